//! A session with a camera, from PLAY to its end: receives packets into blocks, keeps the session alive, and notices
//! silence.

use std::convert::Infallible;
use std::os::fd::AsFd;

use engine::clock;
use rustix::event::PollFlags;
use sched::units::{Nanos, Time};

use super::connect::ANSWER_WITHIN;
use super::connection::CameraConnection;
use super::{BackOff, LowerTransport, SourceError, State, Worker};
use crate::archive::block::Kind;
use crate::record::RtpRecorder;
use crate::rtsp::input::InputError;
use crate::rtsp::poll::Wait;
use crate::rtsp::receive::{
    ITEMS_AT_A_TIME, PartialPacket, ReceiveError, Received, StrayBytes, WakeEvent,
};
use crate::rtsp::transport::Transport;

/// A session with a camera to which PLAY was sent.
pub(super) struct CameraSession<'a> {
    pub(super) worker: &'a Worker,
    /// The number of the recording.
    pub(super) number: u64,
    /// When the last packet of the session before arrived; taken when the first packet of this one does.
    pub(super) gap_began: Option<Time>,
    /// The transport that was asked for.
    pub(super) lower: LowerTransport,
    /// Packets of the recording before this session.
    pub(super) packets_before: u64,
    /// Packets of the recording when the status was updated last.
    pub(super) packets_noted: u64,
    /// For each recorded track.
    pub(super) transports: Vec<Option<Transport>>,
    pub(super) back_off: &'a mut BackOff,
    /// True while received bytes wait for a free buffer.
    pub(super) is_behind: bool,
    /// When the last keep-alive or PLAY was sent.
    pub(super) kept_alive: Time,
    /// Bytes between packets that belong to none.
    pub(super) stray: StrayBytes,
    pub(super) is_stray_logged: bool,
}

impl CameraSession<'_> {
    /// Receives until an error ends the session.
    pub(super) fn move_packets(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        camera: &mut CameraConnection,
    ) -> Result<Infallible, SourceError> {
        let mut partial = None;
        loop {
            recorder.advance()?;
            let has_room = recorder.has_room(self.is_by_udp());
            let ready = self.sleep(recorder, camera, has_room)?;
            if ready.contains(&WakeEvent::Disks) {
                recorder.drain();
            }
            if ready.contains(&WakeEvent::Stop) {
                return Err(SourceError::Stopped);
            }
            for wake in &ready {
                if let WakeEvent::Track(track, kind) = wake {
                    camera
                        .receiver()
                        .udp(recorder, &self.transports, *track, *kind)?;
                }
            }
            let received = match ready.contains(&WakeEvent::Socket) {
                true => self.receive(recorder, camera, &mut partial),
                false => Ok(()),
            };
            self.update_status(recorder);
            received?;
            if self.worker.is_unwanted(recorder) {
                return Err(SourceError::Unwanted);
            }
            if has_room && !self.is_behind {
                camera.report(recorder, &self.transports, clock::now());
            }
            let is_quiet = !ready.iter().any(WakeEvent::is_of_packets);
            let bye_at = self.bye_at(recorder, has_room);
            if is_quiet && bye_at.is_some_and(|at| clock::now() >= at) {
                return Err(SourceError::Bye);
            }
            if !has_room || self.is_behind {
                camera.extend_deadlines();
            }
            self.keep_time(recorder, camera)?;
        }
    }

    /// Receives what is left in the sockets after the session has ended, because the next session has other sockets.
    /// Returns why the session ended.
    pub(super) fn receive_rest(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        camera: &mut CameraConnection,
        error: SourceError,
    ) -> SourceError {
        if let SourceError::Record(_) = error {
            return error;
        }
        recorder.cut();
        let stops = [self.worker.stop.as_fd()];
        let rest = camera.receiver().rest(recorder, &self.transports, &stops);
        self.update_status(recorder);
        match rest {
            Ok(()) => error,
            Err(failed) => failed.into(),
        }
    }

    /// Sleeps until a socket or the disks are ready, or a time limit is due.
    fn sleep(
        &self,
        recorder: &RtpRecorder<'_>,
        camera: &CameraConnection,
        has_room: bool,
    ) -> Result<Vec<WakeEvent>, SourceError> {
        let mut wait = Wait::new();
        wait.readable(self.worker.stop.as_fd(), WakeEvent::Stop);
        for event in recorder.events() {
            wait.readable(event, WakeEvent::Disks);
        }
        if has_room || self.is_by_udp() {
            camera.link().hear(&mut wait, WakeEvent::Socket);
        }
        // Bytes that were read already do not make the socket readable.
        if self.is_behind && has_room {
            wait.at_once(WakeEvent::Socket);
        }
        for (track, transport) in self.transports.iter().enumerate() {
            if let Some(Transport::Udp { rtp, rtcp, .. }) = transport
                && has_room
                && !recorder.is_receiving()
            {
                wait.readable(rtp.as_fd(), WakeEvent::Track(track, Kind::Rtp));
                wait.readable(rtcp.as_fd(), WakeEvent::Track(track, Kind::Rtcp));
            }
        }
        let silent_at = camera.heard.saturating_add(self.silence());
        let due = camera.answer_due().or(self.keep_alive_at(camera));
        let report_at = match has_room && !self.is_behind {
            true => camera.reports_at(),
            false => Some(Time::MAX),
        };
        if report_at.is_none() {
            wait.add(camera.link().as_fd(), PollFlags::OUT, WakeEvent::Writable);
        }
        let next = recorder.next_at();
        let until = [next, due, report_at, self.bye_at(recorder, has_room)]
            .into_iter()
            .flatten();
        let until = until.fold(silent_at, Time::min);
        Ok(wait.sleep(recorder.arm(), Some(until))?)
    }

    /// True if any track arrives by UDP. The camera may have chosen another transport than was asked for.
    fn is_by_udp(&self) -> bool {
        let is_udp = |of: &Option<Transport>| matches!(of, Some(Transport::Udp { .. }));
        self.transports.iter().any(is_udp)
    }

    /// True if packets have arrived in this session.
    pub(super) fn has_packets(&self) -> bool {
        self.packets_noted > self.packets_before
    }

    /// Time without data after which the session ends. By UDP the first packet arrives soon or is blocked by a firewall,
    /// so the limit is short until UDP has worked once.
    fn silence(&self) -> Nanos {
        let timeout = self.worker.config.timeout;
        match self.is_by_udp() && !self.has_packets() && !self.worker.fallbacks().is_proven() {
            true => timeout.min(ANSWER_WITHIN),
            false => timeout,
        }
    }

    /// When the session ends because of RTCP BYE; `None` while data waits to be received.
    fn bye_at(&self, recorder: &RtpRecorder<'_>, has_room: bool) -> Option<Time> {
        recorder
            .over_at()
            .filter(|_| has_room && !self.is_behind && !recorder.is_receiving())
    }

    /// Receives from the connection: packets, answers and requests.
    fn receive(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        camera: &mut CameraConnection,
        partial: &mut Option<PartialPacket>,
    ) -> Result<(), SourceError> {
        let mut items = ITEMS_AT_A_TIME;
        loop {
            let mut receiver = camera.receiver();
            let mut came = receiver.search(recorder, &self.transports, &mut self.stray)?;
            if came.is_none() {
                came = match receiver.between(recorder, &self.transports, partial, &mut items) {
                    // Some cameras send bytes between packets that belong to none.
                    Err(ReceiveError::Input(InputError::Syntax | InputError::Tls)) => {
                        receiver.pass_stray(recorder, &mut self.stray)?;
                        None
                    }
                    came => Some(came?),
                };
                if came.is_none() && !std::mem::replace(&mut self.is_stray_logged, true) {
                    let (spec, camera) = (&self.worker.spec, self.worker.spec.address.shown());
                    tracing::warn!(source = %spec.name, %camera, "source sends bytes between packets that are not RTSP; they are skipped");
                }
            }
            match came {
                None => {}
                Some(Received::Response(answer)) => {
                    camera.take_answer(*answer, &mut self.worker.waiter(Some(recorder)))?;
                }
                Some(Received::Request(request)) => {
                    camera.answer_request(&request, &mut self.worker.waiter(Some(recorder)))?;
                }
                Some(came @ (Received::Nothing | Received::NoRoom | Received::More)) => {
                    self.is_behind = !matches!(came, Received::Nothing);
                    return Ok(());
                }
                Some(Received::End) => return Err(SourceError::Closed),
            }
        }
    }

    /// Copies the counts into the status. With the first packet of a session the source is recording.
    fn update_status(&mut self, recorder: &RtpRecorder<'_>) {
        let tally = recorder.tally();
        let mut status = self.worker.status_mut();
        status.tally = tally;
        if tally.packets == self.packets_noted {
            return;
        }
        self.packets_noted = tally.packets;
        if status.state == State::Recording {
            return;
        }
        status.state = State::Recording;
        status.reason = {
            let mut fallbacks = self.worker.fallbacks();
            fallbacks.packets_arrived();
            fallbacks.reason()
        };
        *self.back_off = BackOff::new();
        let (source, recording) = (&self.worker.spec.name, self.number);
        let gap = self.gap_began.take().zip(recorder.heard());
        match gap.map(|(from, to)| to.saturating_since(from)) {
            None => {
                status.recording = Some(recording).filter(|of| *of > 0);
                (status.gaps, status.gap_ns) = (0, 0);
                tracing::info!(%source, volume = self.worker.spec.volume, recording, "recording of a source begins");
            }
            Some(gap) => {
                status.gaps += 1;
                status.gap_ns = status.gap_ns.saturating_add(gap.get());
                tracing::warn!(%source, recording, %gap, "recording of a source continues after a gap");
            }
        }
    }

    /// When the next keep-alive is due; `None` while the camera has not taken all that was sent to it, because writing
    /// more would block the reception of packets.
    fn keep_alive_at(&self, camera: &CameraConnection) -> Option<Time> {
        // The interval may have changed since: some cameras state the timeout in the answer to PLAY alone.
        let at = self.kept_alive.saturating_add(camera.keep_alive_interval());
        camera.reports_at().map(|_| at)
    }

    /// Ends a silent session, handles a missing answer, and sends the keep-alive if it is due.
    fn keep_time(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        camera: &mut CameraConnection,
    ) -> Result<(), SourceError> {
        let now = clock::now();
        let silence = self.silence();
        if now >= camera.heard.saturating_add(silence) {
            let is_proven = self.has_packets() || self.worker.fallbacks().is_proven();
            return Err(match is_proven || camera.is_secure() {
                true => SourceError::Silent(silence),
                false => SourceError::TransportSilent {
                    by: self.lower,
                    wait: silence,
                },
            });
        }
        if let Some(until) = camera.answer_due() {
            let mut waiter = self.worker.waiter(Some(recorder));
            return match now < until {
                true => Ok(()),
                false => camera.answer_missing(self.has_packets(), &mut waiter),
            };
        }
        if self.keep_alive_at(camera).is_some_and(|at| now >= at) {
            camera.keep_alive(&mut self.worker.waiter(Some(recorder)))?;
            self.kept_alive = now;
        }
        Ok(())
    }
}
