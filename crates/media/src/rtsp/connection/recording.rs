//! RECORD: packets arrive by UDP or between requests, until TEARDOWN, silence, or the end of the connection.
//!
//! [`RecordingSteps`] decides about the next action; this module carries it out.

mod steps;

use std::fmt::Display;
use std::os::fd::AsFd;
use std::sync::Arc;

use engine::clock;
use engine::stream::PaceReport;
use rtsp_types::{Method, Response, StatusCode};
use rustix::event::PollFlags;

use super::answer::{Answer, answer, options};
use super::parameters::Changes;
use super::{
    ClientRequest, Connection, ConnectionError, NextStep, RecordingReservation, Role, RtspSession,
};
use crate::archive::block::Kind;
use crate::archive::gap::GapCause;
use crate::record::{RecordError, RtpRecorder, Tally};
use crate::rtsp::poll::Wait;
use crate::rtsp::receive::{ITEMS_AT_A_TIME, PartialPacket, ReceiveError, WakeEvent};
use crate::rtsp::reports::Reports;
use crate::rtsp::transport::Transport;
use crate::session::registry::{Session, SessionSubject};
use steps::{Action, Conditions, EndReason, RecordingSteps, SleepKind, SleepPlan};

/// The end of a recording.
enum RecordingEnd {
    /// By PAUSE or TEARDOWN.
    Requested(Box<ClientRequest>),
    /// All senders have left.
    SendersLeft,
    /// With the connection, the server, or the session, for this reason.
    Closed(GapCause),
}

/// A recording while packets arrive.
struct RecordingRun<'r, 's> {
    recorder: &'r mut RtpRecorder<'s>,
    member: &'r Arc<Session>,
    changes: &'r mut Changes,
    transports: &'r [Option<Transport>],
    session_id: &'r str,
    reports: Reports,
    partial: Option<PartialPacket>,
    /// Items that may still be taken from the connection in this turn.
    items_left: usize,
}

/// Why a recording ends that ended in this way.
fn cause_of(received: &Result<RecordingEnd, ConnectionError>, has_failed: bool) -> GapCause {
    match received {
        _ if has_failed => GapCause::Disk,
        Ok(RecordingEnd::Closed(cause)) => *cause,
        Ok(_) => GapCause::Camera,
        Err(_) => GapCause::Network,
    }
}

impl RecordingRun<'_, '_> {
    fn conditions(&mut self) -> Conditions {
        let is_udp = |of: &Option<Transport>| matches!(of, Some(Transport::Udp { .. }));
        let by_udp = self.transports.iter().any(is_udp);
        Conditions {
            has_room: self.recorder.has_room(by_udp),
            is_mid_packet: self.partial.is_some(),
            over_at: self.recorder.over_at(),
            report_at: self.reports.next_at(),
        }
    }
}

/// The volume and the number of a recording, for the log.
struct RecordingName {
    volume: String,
    number: u64,
}

impl Connection<'_> {
    /// Answers RECORD, and reserves for the recording if it follows a PAUSE.
    pub(super) fn begin_record(
        &mut self,
        request: &ClientRequest,
    ) -> (Response<Vec<u8>>, NextStep) {
        let session = self.session.as_ref();
        let is_ready = session.is_some_and(|session| {
            let is_set_up = session.transports.iter().any(Option::is_some);
            is_set_up && matches!(session.role, Role::Publisher { .. })
        });
        if let Some(session) = session.filter(|session| session.has_recorded()) {
            let transports = session.transports.iter().flatten();
            transports.for_each(Transport::forget);
        }
        if !is_ready {
            let said = self.in_session(request, StatusCode::MethodNotValidInThisState);
            return (said.log(self.peer, request).done(), NextStep::Read);
        }
        // After a PAUSE it is another recording.
        if let Err(refused) = self.reserve_recording(request) {
            return (refused.log(self.peer, request).done(), NextStep::Read);
        }
        let said = self.in_session(request, StatusCode::Ok).done();
        (said, NextStep::Record)
    }

    /// Records to the end; returns false if the connection ends as well.
    pub(super) fn record(&mut self) -> Result<bool, ConnectionError> {
        let Some(mut session) = self.session.take() else {
            return Ok(true);
        };
        let RtspSession {
            id,
            role:
                Role::Publisher {
                    description,
                    reserved,
                    ..
                },
            transports,
            ..
        } = &mut session
        else {
            return Ok(true);
        };
        let Some(RecordingReservation { disks, member }) = reserved.take() else {
            return Ok(true);
        };
        let SessionSubject {
            volume, recording, ..
        } = member.about();
        let name = RecordingName {
            volume: volume.clone(),
            number: *recording,
        };
        let (stream, writing) = disks.unzip();
        let streams = self.shared.archives.live();
        let recorder = match (&stream, writing) {
            (Some(stream), Some(writing)) => {
                RtpRecorder::new(stream, writing, description, Arc::clone(&member), streams)
            }
            _ => RtpRecorder::live_only(&name.volume, description, streams),
        };
        let mut recorder = recorder?;
        tracing::info!(peer = %self.peer, volume = name.volume, recording = name.number, "a recording begins");
        transports.iter().flatten().for_each(Transport::widen);
        let mut changes = Changes::default();
        self.recording = Some(Arc::clone(&member));
        let run = RecordingRun {
            recorder: &mut recorder,
            member: &member,
            changes: &mut changes,
            transports,
            session_id: id,
            reports: Reports::new(clock::now()),
            partial: None,
            items_left: 0,
        };
        let received = self.move_packets(run);
        let end = self.finish_recording(recorder, received, &member, transports, &name);
        drop(stream);
        self.recording = None;
        drop(member);
        if name.number > 0 {
            self.shared.archives.looks().look_at(&name.volume);
        }
        self.leave_recording(end?, session, changes)
    }

    /// Receives what is still in the sockets, and waits until all of it is durable.
    fn finish_recording(
        &mut self,
        mut recorder: RtpRecorder<'_>,
        received: Result<RecordingEnd, ConnectionError>,
        member: &Session,
        transports: &[Option<Transport>],
        name: &RecordingName,
    ) -> Result<RecordingEnd, ConnectionError> {
        let has_failed = matches!(
            received,
            Err(ConnectionError::Record(RecordError::Pace(_))
                | ConnectionError::Receive(ReceiveError::Record(RecordError::Pace(_))))
        );
        let rest = match has_failed {
            true => Ok(()),
            false => {
                recorder.end();
                let stops = [self.shared.stop.as_fd(), member.ends()];
                self.receiver().rest(&mut recorder, transports, &stops)
            }
        };
        recorder.lose(cause_of(&received, has_failed));
        let tally = recorder.tally();
        let finished = recorder.finish();
        // The first error is the cause; where nothing was left to be written, the last step does not know of it.
        let failure: Option<&dyn Display> = match (&received, &rest, &finished) {
            (Err(error), ..) if has_failed => Some(error),
            (_, Err(error @ RecordError::Pace(_)), _) | (.., Err(error)) => Some(error),
            _ => None,
        };
        if let Some(error) = failure {
            let RecordingName { volume, number } = name;
            tracing::warn!(
                peer = %self.peer, volume, recording = number, packets = tally.packets, bytes = tally.bytes, %error,
                "a recording fails: its durable part is kept, and later packets may be lost"
            );
        }
        let (report, tally) = finished?;
        // The peer was not listened to meanwhile.
        self.heard = clock::now();
        self.log_recording_end(name, &report, tally);
        let end = received?;
        rest?;
        Ok(end)
    }

    fn log_recording_end(&self, name: &RecordingName, report: &PaceReport, tally: Tally) {
        let RecordingName { volume, number } = name;
        let Tally {
            packets,
            reports,
            lost,
            lost_without_buffer,
            duplicates,
            strangers,
            too_long,
            bytes,
            copied_bytes,
        } = tally;
        tracing::info!(
            peer = %self.peer, volume, recording = number, packets, reports, bytes, lost, lost_without_buffer, duplicates, strangers, too_long, copied_bytes,
            blocks = report.blocks, missed = report.misses, "a recording ended"
        );
    }

    /// Answers the request that ended the recording, and those that were waiting; returns false if the connection ends.
    fn leave_recording(
        &mut self,
        end: RecordingEnd,
        session: RtspSession,
        changes: Changes,
    ) -> Result<bool, ConnectionError> {
        let request = match end {
            RecordingEnd::Requested(request) => Some(request),
            RecordingEnd::SendersLeft => None,
            RecordingEnd::Closed(_) => return Ok(false),
        };
        let timeout = self.shared.config.timeout;
        for said in changes.given_up() {
            self.tell(&said.session(&session.id, timeout).done())?;
        }
        let Some(request) = request else {
            // TEARDOWN follows, or another RECORD.
            self.session = Some(session);
            return Ok(true);
        };
        let said = answer(Some(&request), StatusCode::Ok).session(&session.id, timeout);
        if *request.method() == Method::Pause {
            self.session = Some(session);
        } else {
            drop(session);
        }
        self.tell(&said.done())?;
        Ok(true)
    }

    /// Receives until the recording ends.
    fn move_packets(
        &mut self,
        mut run: RecordingRun<'_, '_>,
    ) -> Result<RecordingEnd, ConnectionError> {
        let mut steps = RecordingSteps::new();
        loop {
            run.recorder.advance()?;
            while let Some(said) = run.changes.answered() {
                self.send_all(&run.reports.rest())?;
                self.tell_in_session(said, &run)?;
            }
            run.items_left = ITEMS_AT_A_TIME;
            let plan = steps.begin_turn(run.conditions());
            let ready = self.sleep(&run, plan)?;
            steps.woken(&ready, clock::now());
            if let Some(end) = self.apply_all(&mut steps, &mut run)? {
                return Ok(end);
            }
            let silent_at = self.heard.saturating_add(self.timeout());
            steps.end_turn(clock::now(), silent_at);
            if let Some(end) = self.apply_all(&mut steps, &mut run)? {
                return Ok(end);
            }
        }
    }

    /// Carries out all actions; `Some` if one ends the recording.
    fn apply_all(
        &mut self,
        steps: &mut RecordingSteps,
        run: &mut RecordingRun<'_, '_>,
    ) -> Result<Option<RecordingEnd>, ConnectionError> {
        while let Some(action) = steps.next_action() {
            if let Some(end) = self.apply(action, steps, run)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn apply(
        &mut self,
        action: Action,
        steps: &mut RecordingSteps,
        run: &mut RecordingRun<'_, '_>,
    ) -> Result<Option<RecordingEnd>, ConnectionError> {
        match action {
            Action::DrainDisks => run.recorder.drain(),
            Action::ReceiveDatagrams(track, kind) => {
                let mut receiver = self.receiver();
                receiver.udp(run.recorder, run.transports, track, kind)?;
            }
            Action::ReadConnection => {
                let (partial, items) = (&mut run.partial, &mut run.items_left);
                let mut receiver = self.receiver();
                steps.received(receiver.between(run.recorder, run.transports, partial, items)?);
            }
            Action::Answer(request) => return self.answer_while_recording(request, run),
            Action::SendReports => {
                let now = clock::now();
                let (recorder, transports) = (&mut *run.recorder, run.transports);
                run.reports.send(&mut self.link, recorder, transports, now);
            }
            Action::RestartSilence => self.heard = clock::now(),
            Action::End(reason) => return self.end_recording(reason, run).map(Some),
        }
        Ok(None)
    }

    fn end_recording(
        &mut self,
        reason: EndReason,
        run: &mut RecordingRun<'_, '_>,
    ) -> Result<RecordingEnd, ConnectionError> {
        let cause = match reason {
            EndReason::Closed | EndReason::SendersLeft => GapCause::Camera,
            EndReason::Stopped => GapCause::Server,
            EndReason::Silent => GapCause::Network,
        };
        match reason {
            EndReason::Closed | EndReason::Stopped => {}
            EndReason::SendersLeft => {
                tracing::info!(peer = %self.peer, "a recording ends: its source sent RTCP BYE");
                self.send_all(&run.reports.rest())?;
                return Ok(RecordingEnd::SendersLeft);
            }
            EndReason::Silent => {
                tracing::info!(peer = %self.peer, "a recording ends: nothing was received from its source for {}", self.timeout());
            }
        }
        Ok(RecordingEnd::Closed(cause))
    }

    /// Answers a request between packets; `Some` if it ends the recording, which is answered later.
    fn answer_while_recording(
        &mut self,
        request: Box<ClientRequest>,
        run: &mut RecordingRun<'_, '_>,
    ) -> Result<Option<RecordingEnd>, ConnectionError> {
        self.heard = clock::now();
        self.send_all(&run.reports.rest())?;
        if let Some(refused) = self.admit(&request)? {
            self.tell(&refused.done())?;
            return Ok(None);
        }
        let said = match request.method() {
            Method::Teardown | Method::Pause => return Ok(Some(RecordingEnd::Requested(request))),
            Method::Options => options(&request),
            Method::GetParameter | Method::SetParameter => {
                match run.changes.ask(request, run.member) {
                    Some(said) => said,
                    None => return Ok(None),
                }
            }
            _ => answer(Some(&request), StatusCode::MethodNotValidInThisState)
                .log(self.peer, &request),
        };
        self.tell_in_session(said, run)?;
        Ok(None)
    }

    fn tell_in_session(
        &mut self,
        said: Answer,
        run: &RecordingRun<'_, '_>,
    ) -> Result<(), ConnectionError> {
        let timeout = self.shared.config.timeout;
        self.tell(&said.session(run.session_id, timeout).done())
    }

    fn sleep(
        &self,
        run: &RecordingRun<'_, '_>,
        plan: SleepPlan,
    ) -> Result<Vec<WakeEvent>, ConnectionError> {
        let (recorder, transports) = (&*run.recorder, run.transports);
        let mut wait = Wait::new();
        wait.readable(self.shared.stop.as_fd(), WakeEvent::Stop);
        wait.readable(run.member.ends(), WakeEvent::Stop);
        for event in recorder.events() {
            wait.readable(event, WakeEvent::Disks);
        }
        let is_interleaved = |transport: &Option<Transport>| {
            matches!(transport, Some(Transport::Interleaved { .. }))
        };
        // Requests between packets are not read either while there is no room for the packets.
        if plan.has_room || !transports.iter().any(is_interleaved) {
            self.link.hear(&mut wait, WakeEvent::Socket);
        }
        for (track, transport) in transports.iter().enumerate() {
            if let Some(Transport::Udp { rtp, rtcp, .. }) = transport
                && plan.has_room
                && !recorder.is_receiving()
            {
                // A sender that restarts says BYE by RTCP and goes on by RTP: RTCP is received first.
                wait.readable(rtcp.as_fd(), WakeEvent::Track(track, Kind::Rtcp));
                wait.readable(rtp.as_fd(), WakeEvent::Track(track, Kind::Rtp));
            }
        }
        if plan.awaits_writable {
            wait.add(self.link.as_fd(), PollFlags::OUT, WakeEvent::Writable);
        }
        let silent_at = self.heard.saturating_add(self.timeout());
        let due = recorder.next_at().into_iter().chain(plan.until);
        let until = due.chain([silent_at]).min();
        let may_block = recorder.arm() && plan.sleep == SleepKind::Block;
        Ok(wait.sleep(may_block, until)?)
    }
}
