//! RECORD: packets come, by UDP or between requests, until TEARDOWN, silence, or the end of the connection.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use engine::clock;
use rtsp_types::{Method, Response, StatusCode};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::answer::{answer, options};
use super::reports::Reports;
use super::{Asked, Connection, Ended, Role, Session, Then};
use crate::media::block::Kind;
use crate::media::input::Next;
use crate::media::packet::HEADER_BYTES;
use crate::media::poll::Wait;
use crate::media::record::{RecordError, Tally, Tape};
use crate::media::transport::Transport;

/// Bytes that are received behind a body: the head of the next packet, and no more, so that its body is not received
/// where it does not stay.
const AHEAD_BYTES: usize = 4 + HEADER_BYTES;

/// Packets that are received from one socket before others have their turn.
const AT_A_TIME: usize = 64;

/// A packet of which a part has come.
struct Partial {
    /// Whose it is; `None`: it is passed over.
    of: Option<(usize, Kind)>,
    len: usize,
    header: [u8; HEADER_BYTES],
    /// How much has come.
    got: usize,
}

impl Partial {
    /// How much of it is no body.
    fn head(&self) -> usize {
        match self.of {
            Some((_, Kind::Rtp)) => HEADER_BYTES,
            _ => 0,
        }
    }
}

/// What came of receiving.
enum Came {
    /// Something is asked for.
    Request(Box<Asked>),
    /// Nothing more has come.
    Nothing,
    /// There is no buffer for what has.
    NoRoom,
    /// The peer has ended.
    End,
}

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
        let moved = self.move_packets(&mut tape, transports, id);
        // Whatever ended it: what has come is written, and durable.
        let (report, tally) = tape.finish()?;
        let Tally {
            packets,
            lost,
            duplicates,
            strangers,
            too_long,
            bytes,
            copied_bytes,
        } = tally;
        tracing::info!(
            peer = %self.peer, %volume, recording = number, packets, bytes, lost, duplicates, strangers, too_long, copied_bytes,
            blocks = report.blocks, missed = report.misses, "a recording ended"
        );
        stream.close();
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
        transports: &[Option<Transport>],
        id: &str,
    ) -> Result<Option<Box<Asked>>, Ended> {
        let mut partial = None;
        let mut reports = Reports::new(clock::now());
        loop {
            tape.advance()?;
            self.send_reports(&mut reports, tape, transports, clock::now())?;
            let has_room = tape.make_any_room()?;
            let ready = self.sleep(tape, transports, has_room, &reports)?;
            if ready.contains(&Wakes::Disks) {
                tape.writer().drain();
            }
            if ready.contains(&Wakes::Stop) {
                return Ok(None);
            }
            for of in &ready {
                if let Wakes::Track(track, kind) = of {
                    self.receive_udp(tape, transports, *track, *kind)?;
                }
            }
            if ready.contains(&Wakes::Socket) {
                loop {
                    match self.receive_between(tape, transports, &mut partial)? {
                        Came::Request(request) => {
                            self.finish_reports(&mut reports)?;
                            if matches!(request.method(), Method::Teardown | Method::Pause) {
                                return Ok(Some(request));
                            }
                            let said = self.while_recording(&request, id);
                            self.tell(&said)?;
                        }
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
            wait.readable(self.socket.as_fd(), Wakes::Socket);
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
            wait.add(self.socket.as_fd(), PollFlags::OUT, Wakes::Writable);
        }
        let silent = self.heard.saturating_add(self.timeout());
        let due = tape.writer().next_at().into_iter().chain(report_at);
        let until = due.chain([silent]).min();
        Ok(wait.sleep(tape.writer().arm(), until)?)
    }

    fn while_recording(&mut self, request: &Asked, id: &str) -> Response<Vec<u8>> {
        let timeout = self.shared.config.timeout;
        match request.method() {
            Method::Options => options(request).done(),
            Method::GetParameter | Method::SetParameter => answer(Some(request), StatusCode::Ok)
                .session(id, timeout)
                .done(),
            _ => answer(Some(request), StatusCode::MethodNotValidInThisState)
                .session(id, timeout)
                .done(),
        }
    }

    fn receive_udp(
        &mut self,
        tape: &mut Tape<'_>,
        transports: &[Option<Transport>],
        track: usize,
        kind: Kind,
    ) -> Result<(), Ended> {
        let Some(Transport::Udp { rtp, rtcp, .. }) = &transports[track] else {
            return Ok(());
        };
        let socket = match kind {
            Kind::Rtp => rtp,
            Kind::Rtcp => rtcp,
        };
        for _ in 0..AT_A_TIME {
            if !tape.make_any_room()? || !tape.receive(socket, track, kind)? {
                return Ok(());
            }
            self.heard = clock::now();
        }
        Ok(())
    }

    /// Receives what comes in the connection.
    fn receive_between(
        &mut self,
        tape: &mut Tape<'_>,
        transports: &[Option<Transport>],
        partial: &mut Option<Partial>,
    ) -> Result<Came, Ended> {
        loop {
            let Some(packet) = partial else {
                match self.input.next_item()? {
                    Next::Request(request) => {
                        self.heard = clock::now();
                        return Ok(Came::Request(request));
                    }
                    Next::Response(_) => {}
                    Next::Packet { channel, len } => {
                        let of = whose(transports, channel, len);
                        let is_too_long = len > tape.body_bytes_max();
                        if of.is_some() && is_too_long {
                            tape.note_too_long();
                        }
                        *partial = Some(Partial {
                            of: of.filter(|_| !is_too_long),
                            len,
                            header: [0; HEADER_BYTES],
                            got: 0,
                        });
                    }
                    Next::More => {
                        let is_packet = matches!(self.input.unused().first(), None | Some(b'$'));
                        let most = if is_packet { AHEAD_BYTES } else { 4_096 };
                        match self.receive(most)? {
                            None => return Ok(Came::Nothing),
                            Some(0) => return Ok(Came::End),
                            Some(_) => {}
                        }
                    }
                }
                continue;
            };
            let came = if packet.got < packet.head() {
                self.receive_head(packet)?
            } else {
                self.receive_body(tape, packet)?
            };
            if let Some(came) = came {
                return Ok(came);
            }
            if packet.got == packet.len {
                self.heard = clock::now();
                if let Some((track, kind)) = packet.of {
                    let body = packet.len - packet.head();
                    tape.packet(track, kind, &packet.header, body)?;
                }
                *partial = None;
            }
        }
    }

    fn receive_head(&mut self, packet: &mut Partial) -> Result<Option<Came>, Ended> {
        let wanted = HEADER_BYTES - packet.got;
        let taken = self.input.take(&mut packet.header[packet.got..]);
        packet.got += taken;
        if taken < wanted {
            match self.receive(wanted - taken)? {
                None => return Ok(Some(Came::Nothing)),
                Some(0) => return Ok(Some(Came::End)),
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// Receives of a body what has come; what follows it goes to the input.
    fn receive_body(
        &mut self,
        tape: &mut Tape<'_>,
        packet: &mut Partial,
    ) -> Result<Option<Came>, Ended> {
        let body = packet.len - packet.head();
        let filled = packet.got - packet.head();
        if packet.of.is_none() {
            return self.pass_over(packet);
        }
        // A block that is begun for this body is not sealed before it is whole.
        if filled == 0 && !tape.make_room(body)? {
            return Ok(Some(Came::NoRoom));
        }
        let (input, socket) = (&mut self.input, &self.socket);
        let mut ahead = [0; AHEAD_BYTES];
        let mut taken = 0;
        let mut came = None;
        let count = tape.fill(filled, body, |out| {
            taken = input.take(out);
            let left = out.len() - taken;
            if left == 0 {
                return Ok(taken);
            }
            let mut parts = [
                IoSliceMut::new(&mut out[taken..]),
                IoSliceMut::new(&mut ahead),
            ];
            match rustix::io::readv(socket, &mut parts) {
                Ok(0) => {
                    came = Some(Came::End);
                    Ok(taken)
                }
                Ok(count) => {
                    input.add(&ahead[..count.saturating_sub(left)]);
                    Ok(taken + count.min(left))
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    came = Some(Came::Nothing);
                    Ok(taken)
                }
                Err(error) => Err(RecordError::Socket(io::Error::from(error))),
            }
        })?;
        tape.note_copied(taken);
        packet.got += count;
        Ok(came)
    }

    fn pass_over(&mut self, packet: &mut Partial) -> Result<Option<Came>, Ended> {
        let mut scratch = [0; 4_096];
        let most = (packet.len - packet.got).min(scratch.len());
        let taken = self.input.take(&mut scratch[..most]);
        packet.got += taken;
        if taken > 0 || packet.got == packet.len {
            return Ok(None);
        }
        Ok(match self.receive(most)? {
            None => Some(Came::Nothing),
            Some(0) => Some(Came::End),
            Some(_) => None,
        })
    }
}

/// Whose packet comes on a channel.
fn whose(transports: &[Option<Transport>], channel: u8, len: usize) -> Option<(usize, Kind)> {
    let of = transports
        .iter()
        .enumerate()
        .find_map(|(track, of)| match of {
            Some(Transport::Interleaved { rtp, .. }) if *rtp == channel => Some((track, Kind::Rtp)),
            Some(Transport::Interleaved { rtcp, .. }) if *rtcp == channel => {
                Some((track, Kind::Rtcp))
            }
            _ => None,
        });
    of.filter(|(_, kind)| *kind == Kind::Rtcp || len >= HEADER_BYTES)
}
