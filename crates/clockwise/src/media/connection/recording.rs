//! RECORD: packets come, by UDP or between requests, until TEARDOWN, silence, or the end of the connection.

use std::os::fd::AsFd;

use engine::clock;
use engine::stream::Stream;
use rtsp_types::{Method, Response, StatusCode};
use rustix::event::PollFlags;

use super::answer::{answer, options};
use super::parameters::{Held, parameters};
use super::reports::Reports;
use super::{Asked, Connection, Ended, Role, Session, Then};
use crate::media::block::Kind;
use crate::media::poll::Wait;
use crate::media::receive::Came;
use crate::media::record::{Tally, Tape};
use crate::media::transport::Transport;

/// What a recording wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wakes {
    Socket,
    Stop,
    Disks,
    /// What is told who is recorded can go.
    Writable,
    Track(usize, Kind),
}

impl Connection<'_> {
    /// Whether it can be recorded now, and that it is.
    pub(super) fn begin_record(&mut self, request: &Asked) -> (Response<Vec<u8>>, Then) {
        let is_ready = self.session.as_ref().is_some_and(|session| {
            let is_set_up = session.transports.iter().any(Option::is_some);
            is_set_up && matches!(session.role, Role::Publisher { .. })
        });
        if !is_ready {
            let said = self.in_session(request, StatusCode::MethodNotValidInThisState);
            return (said.done(), Then::Next);
        }
        // After a PAUSE it is another recording.
        if let Err(refused) = self.reserve_recording(request) {
            return (refused.done(), Then::Next);
        }
        let said = self.in_session(request, StatusCode::Ok).done();
        (said, Then::Record)
    }

    /// Records to the end; whether the connection goes on.
    pub(super) fn record(&mut self) -> Result<bool, Ended> {
        let Some(mut session) = self.session.take() else {
            return Ok(true);
        };
        let Session {
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
        let Some((stream, writing)) = reserved.take() else {
            return Ok(true);
        };
        let number = writing.number();
        let volume = writing.archive().volume().name().to_owned();
        tracing::info!(peer = %self.peer, %volume, recording = number, "a recording begins");
        let mut tape = Tape::new(&stream, writing, description)?;
        let moved = self.move_packets(&mut tape, &stream, transports, id);
        // Whatever ended it: what has come is written, and durable.
        let (report, tally) = tape.finish()?;
        let Tally {
            packets,
            lost,
            lost_without_buffer,
            duplicates,
            strangers,
            too_long,
            bytes,
            copied_bytes,
        } = tally;
        tracing::info!(
            peer = %self.peer, %volume, recording = number, packets, bytes, lost, lost_without_buffer, duplicates, strangers, too_long, copied_bytes,
            blocks = report.blocks, missed = report.misses, "a recording ended"
        );
        stream.close();
        self.shared.archives.looks().look_at(&volume);
        let Some(request) = moved? else {
            return Ok(false);
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

    /// Receives until somebody ends it: the request for that, if it was one.
    fn move_packets(
        &mut self,
        tape: &mut Tape<'_>,
        stream: &Stream,
        transports: &[Option<Transport>],
        id: &str,
    ) -> Result<Option<Box<Asked>>, Ended> {
        let mut partial = None;
        let mut reports = Reports::new(clock::now());
        loop {
            tape.advance()?;
            self.send_reports(&mut reports, tape, transports, clock::now())?;
            let has_room = tape.make_any_room();
            let ready = self.sleep(tape, transports, has_room, &reports)?;
            if ready.contains(&Wakes::Disks) {
                tape.writer().drain();
            }
            if ready.contains(&Wakes::Stop) {
                return Ok(None);
            }
            for of in &ready {
                if let Wakes::Track(track, kind) = of {
                    self.receiver().udp(tape, transports, *track, *kind)?;
                }
            }
            if ready.contains(&Wakes::Socket) {
                loop {
                    match self.receiver().between(tape, transports, &mut partial)? {
                        Came::Request(request) => {
                            self.finish_reports(&mut reports)?;
                            if let Some(refused) = self.admit(&request)? {
                                self.tell(&refused.done())?;
                                continue;
                            }
                            if matches!(request.method(), Method::Teardown | Method::Pause) {
                                return Ok(Some(request));
                            }
                            let said = self.while_recording(&request, stream, id);
                            self.tell(&said)?;
                        }
                        Came::Response(_) => {}
                        Came::Nothing | Came::NoRoom => break,
                        Came::End => return Ok(None),
                    }
                }
            }
            if clock::now() >= self.heard.saturating_add(self.timeout()) {
                tracing::info!(peer = %self.peer, "a recording ends: nothing was heard of its source for {}", self.timeout());
                return Ok(None);
            }
        }
    }

    fn sleep(
        &self,
        tape: &Tape<'_>,
        transports: &[Option<Transport>],
        has_room: bool,
        reports: &Reports,
    ) -> Result<Vec<Wakes>, Ended> {
        let mut wait = Wait::new();
        wait.readable(self.shared.stop.as_fd(), Wakes::Stop);
        wait.readable(tape.writer().event(), Wakes::Disks);
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
            {
                wait.readable(rtp.as_fd(), Wakes::Track(track, Kind::Rtp));
                wait.readable(rtcp.as_fd(), Wakes::Track(track, Kind::Rtcp));
            }
        }
        let report_at = reports.next_at();
        if report_at.is_none() {
            wait.add(self.link.as_fd(), PollFlags::OUT, Wakes::Writable);
        }
        let silent = self.heard.saturating_add(self.timeout());
        let due = tape.writer().next_at().into_iter().chain(report_at);
        let until = due.chain([silent]).min();
        Ok(wait.sleep(tape.writer().arm(), until)?)
    }

    fn while_recording(&self, request: &Asked, stream: &Stream, id: &str) -> Response<Vec<u8>> {
        let timeout = self.shared.config.timeout;
        match request.method() {
            Method::Options => options(request).done(),
            Method::GetParameter | Method::SetParameter => {
                let held = Held { stream, rate: None };
                parameters(request, Some(held)).session(id, timeout).done()
            }
            _ => answer(Some(request), StatusCode::MethodNotValidInThisState)
                .session(id, timeout)
                .done(),
        }
    }
}
