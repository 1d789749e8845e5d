//! RECORD: packets come, by UDP or between requests, until TEARDOWN, silence, or the end of the connection.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use engine::clock;
use rtsp_types::{Method, Response, StatusCode};
use rustix::event::PollFlags;
use sched::units::Time;

use super::answer::{Answer, answer, options};
use super::parameters::Changes;
use super::{Asked, Connection, Ended, Reserved, Role, RtspSession, Then};
use crate::archive::block::Kind;
use crate::record::{RecordError, RtpRecorder, Tally};
use crate::rtsp::poll::Wait;
use crate::rtsp::receive::{Came, ITEMS_AT_A_TIME, ReceiveError, Wakes};
use crate::rtsp::reports::Reports;
use crate::rtsp::transport::Transport;
use crate::session::registry::Session;

/// Why nothing more is received.
enum Over {
    /// PAUSE or TEARDOWN.
    Asked(Box<Asked>),
    /// All who were recorded have said that they leave.
    Left,
    /// The connection or the server ends, or somebody has ended the session.
    Closed,
}

impl Connection<'_> {
    /// Whether it can be recorded now, and that it is.
    pub(super) fn begin_record(&mut self, request: &Asked) -> (Response<Vec<u8>>, Then) {
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
            return (said.log(self.peer, request).done(), Then::Next);
        }
        // After a PAUSE it is another recording.
        if let Err(refused) = self.reserve_recording(request) {
            return (refused.log(self.peer, request).done(), Then::Next);
        }
        let said = self.in_session(request, StatusCode::Ok).done();
        (said, Then::Record)
    }

    /// Records to the end; whether the connection goes on.
    pub(super) fn record(&mut self) -> Result<bool, Ended> {
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
        let Some(Reserved {
            stream,
            writing,
            member,
        }) = reserved.take()
        else {
            return Ok(true);
        };
        let number = writing.number();
        let volume = writing.archive().volume().name().to_owned();
        tracing::info!(peer = %self.peer, volume, recording = number, "a recording begins");
        transports.iter().flatten().for_each(Transport::widen);
        let mut tape = RtpRecorder::new(&stream, writing, description, Arc::clone(&member))?;
        let mut changes = Changes::default();
        self.recorder = Some(Arc::clone(&member));
        let moved = self.move_packets(&mut tape, &member, &mut changes, transports, id);
        let is_failing = matches!(
            moved,
            Err(Ended::Record(RecordError::Pace(_))
                | Ended::Receive(ReceiveError::Record(RecordError::Pace(_))))
        );
        let rest = match is_failing {
            true => Ok(()),
            false => {
                tape.end();
                let stops = [self.shared.stop.as_fd(), member.ends()];
                self.receiver().rest(&mut tape, transports, &stops)
            }
        };
        // Whatever ended it: what has come is written, and durable.
        let received = tape.tally();
        let finished = tape.finish();
        // The first is the cause; where nothing was left to be written, the last knows nothing of it.
        let failed: Option<&dyn std::fmt::Display> = match (&moved, &rest, &finished) {
            (Err(error), ..) if is_failing => Some(error),
            (_, Err(error @ RecordError::Pace(_)), _) | (.., Err(error)) => Some(error),
            _ => None,
        };
        if let Some(error) = failed {
            tracing::warn!(
                peer = %self.peer, volume, recording = number, packets = received.packets, bytes = received.bytes, %error,
                "a recording fails: what was durable before is kept, and what came since may be lost"
            );
        }
        let (report, tally) = finished?;
        // Nobody was listened to meanwhile.
        self.heard = clock::now();
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
        drop(stream);
        self.recorder = None;
        drop(member);
        self.shared.archives.looks().look_at(&volume);
        let over = moved?;
        rest?;
        let request = match over {
            Over::Asked(request) => Some(request),
            Over::Left => None,
            Over::Closed => return Ok(false),
        };
        for said in changes.given_up() {
            self.tell(&said.session(id, self.shared.config.timeout).done())?;
        }
        let Some(request) = request else {
            // TEARDOWN is to come, or another RECORD.
            self.session = Some(session);
            return Ok(true);
        };
        let said = answer(Some(&request), StatusCode::Ok).session(id, self.shared.config.timeout);
        if *request.method() == Method::Pause {
            self.session = Some(session);
        } else {
            drop(session);
        }
        self.tell(&said.done())?;
        Ok(true)
    }

    /// Receives until somebody ends it.
    fn move_packets(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        member: &Arc<Session>,
        changes: &mut Changes,
        transports: &[Option<Transport>],
        id: &str,
    ) -> Result<Over, Ended> {
        let is_udp = |of: &Option<Transport>| matches!(of, Some(Transport::Udp { .. }));
        let by_udp = transports.iter().any(is_udp);
        let timeout = self.shared.config.timeout;
        let mut partial = None;
        let mut reports = Reports::new(clock::now());
        // Whether packets wait in the connection for room.
        let mut is_behind = false;
        // What has come with RECORD has been read already; so may have what had no room.
        let mut is_untried = true;
        loop {
            tape.advance()?;
            while let Some(said) = changes.answered() {
                self.send_all(&reports.rest())?;
                self.tell(&said.session(id, timeout).done())?;
            }
            let has_room = tape.has_room(by_udp);
            let report_at = match has_room && !is_behind {
                true => reports.next_at(),
                false => Some(Time::MAX),
            };
            let over_at = tape
                .over_at()
                .filter(|_| has_room && !is_behind && partial.is_none());
            let due = [report_at, over_at].into_iter().flatten().min();
            let is_untold = report_at.is_none();
            is_untried |= is_behind && has_room;
            let mut ready = self.sleep(
                tape,
                member,
                transports,
                has_room,
                (due, is_untold, is_untried),
            )?;
            if std::mem::take(&mut is_untried) {
                ready.push(Wakes::Socket);
            }
            if ready.contains(&Wakes::Disks) {
                tape.writer().drain();
            }
            if ready.contains(&Wakes::Stop) {
                return Ok(Over::Closed);
            }
            let is_quiet = !ready.iter().any(Wakes::is_of_packets);
            if is_quiet && over_at.is_some_and(|at| clock::now() >= at) {
                tracing::info!(peer = %self.peer, "a recording ends: its source has said that it leaves");
                self.send_all(&reports.rest())?;
                return Ok(Over::Left);
            }
            for of in &ready {
                if let Wakes::Track(track, kind) = of {
                    self.receiver().udp(tape, transports, *track, *kind)?;
                }
            }
            if ready.contains(&Wakes::Socket) {
                let mut items = ITEMS_AT_A_TIME;
                loop {
                    let mut receiver = self.receiver();
                    match receiver.between(tape, transports, &mut partial, &mut items)? {
                        Came::Request(request) => {
                            self.heard = clock::now();
                            self.send_all(&reports.rest())?;
                            if let Some(refused) = self.admit(&request)? {
                                self.tell(&refused.done())?;
                                is_behind = true;
                                break;
                            }
                            if matches!(request.method(), Method::Teardown | Method::Pause) {
                                return Ok(Over::Asked(request));
                            }
                            if let Some(said) = while_recording(self.peer, request, member, changes)
                            {
                                let said = said.session(id, timeout).done();
                                self.tell(&said)?;
                            }
                            // Who takes each answer late does not keep the disks from what there is to do for them.
                            is_behind = true;
                            break;
                        }
                        Came::Response(_) => {}
                        Came::Nothing => {
                            is_behind = false;
                            break;
                        }
                        Came::NoRoom | Came::More => {
                            is_behind = true;
                            break;
                        }
                        Came::End => return Ok(Over::Closed),
                    }
                }
            }
            if has_room && !is_behind {
                reports.send(&mut self.link, tape, transports, clock::now());
            }
            // Who waits for a buffer is not listened to.
            if !has_room || is_behind {
                self.heard = clock::now();
            }
            if clock::now() >= self.heard.saturating_add(self.timeout()) {
                tracing::info!(peer = %self.peer, "a recording ends: nothing was heard of its source for {}", self.timeout());
                return Ok(Over::Closed);
            }
        }
    }

    fn sleep(
        &self,
        tape: &RtpRecorder<'_>,
        member: &Session,
        transports: &[Option<Transport>],
        has_room: bool,
        (due, is_untold, is_untried): (Option<Time>, bool, bool),
    ) -> Result<Vec<Wakes>, Ended> {
        let mut wait = Wait::new();
        wait.readable(self.shared.stop.as_fd(), Wakes::Stop);
        wait.readable(member.ends(), Wakes::Stop);
        wait.readable(tape.writer().event(), Wakes::Disks);
        wait.readable(tape.writer().memory_event(), Wakes::Disks);
        let is_between = |transport: &Option<Transport>| {
            matches!(transport, Some(Transport::Interleaved { .. }))
        };
        // What comes between packets is not read either while there is no room for these.
        if has_room || !transports.iter().any(is_between) {
            self.link.hear(&mut wait, Wakes::Socket);
        }
        for (track, transport) in transports.iter().enumerate() {
            if let Some(Transport::Udp { rtp, rtcp, .. }) = transport
                && has_room
                && !tape.is_receiving()
            {
                // Who leaves and begins anew says the one here and the other there.
                wait.readable(rtcp.as_fd(), Wakes::Track(track, Kind::Rtcp));
                wait.readable(rtp.as_fd(), Wakes::Track(track, Kind::Rtp));
            }
        }
        if is_untold {
            wait.add(self.link.as_fd(), PollFlags::OUT, Wakes::Writable);
        }
        let silent = self.heard.saturating_add(self.timeout());
        let due = tape.writer().next_at().into_iter().chain(due);
        let until = due.chain([silent]).min();
        Ok(wait.sleep(tape.writer().arm() && !is_untried, until)?)
    }
}

/// What is said to a request beside packets, if not later.
fn while_recording(
    peer: SocketAddr,
    request: Box<Asked>,
    member: &Arc<Session>,
    changes: &mut Changes,
) -> Option<Answer> {
    match request.method() {
        Method::Options => Some(options(&request)),
        Method::GetParameter | Method::SetParameter => changes.ask(request, member),
        _ => {
            let said = answer(Some(&request), StatusCode::MethodNotValidInThisState);
            Some(said.log(peer, &request))
        }
    }
}
