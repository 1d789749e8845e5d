//! Packets from a peer into a recording: between the messages of a connection, or by UDP. It makes no difference
//! whether the peer publishes or is pulled from.

use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;

use engine::clock;
use rtsp_types::{Request, Response};
use sched::units::{Nanos, Time};

use crate::archive::block::Kind;
use crate::record::{Left, RecordError, RtpRecorder};
use crate::rtp::packet::HEADER_BYTES;
use crate::rtp::packet::Head;
use crate::rtsp::input::{Input, InputError, Next};
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;
use crate::rtsp::transport::Transport;

/// Bytes that are received behind a body: the head of the next packet, and no more, so that its body is not received
/// where it does not stay.
const AHEAD_BYTES: usize = 4 + HEADER_BYTES;

/// Packets that are received from one socket before others have their turn.
const AT_A_TIME: usize = 64;

/// Packets, requests and answers that are taken from a connection before others have their turn.
pub(crate) const ITEMS_AT_A_TIME: usize = 1_024;

/// How much that is neither a packet nor an answer is passed over between two packets that are recorded.
const STRAY_BYTES_MAX: usize = 65_536;

/// How long what lies in sockets at the end is received, where no buffer is free for it at once.
const REST_WITHIN: Nanos = Nanos::from_secs(10);

/// The same where somebody ends it, or the server stops: as far as buffers are free.
const REST_WITHIN_STOPPED: Nanos = Nanos::from_secs(1);

/// A packet of which a part has come.
pub(crate) struct Partial {
    /// Whose it is; `None`: it is passed over.
    of: Option<(usize, Kind)>,
    /// No block has room for it.
    is_too_long: bool,
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

/// What came between packets and is none of them.
#[derive(Default)]
pub(crate) struct Stray {
    /// Packets that had come before, and been recorded.
    packets: u64,
    /// How much of it has come since.
    bytes: usize,
    /// Whether the next packet has not been found yet.
    is_searching: bool,
}

impl Stray {
    fn pass(&mut self, bytes: usize) -> Result<(), InputError> {
        self.bytes += bytes;
        match self.bytes > STRAY_BYTES_MAX {
            true => Err(InputError::Syntax),
            false => Ok(()),
        }
    }
}

/// What who records wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    Socket,
    /// It is to end.
    Stop,
    Disks,
    /// What is told who is recorded can go.
    Writable,
    /// By UDP.
    Track(usize, Kind),
}

impl Wakes {
    /// Whether something may have come.
    pub(crate) fn is_of_packets(&self) -> bool {
        matches!(self, Self::Socket | Self::Track(..))
    }
}

/// What came of receiving.
pub(crate) enum Came {
    /// Something is asked for.
    Request(Box<Request<Vec<u8>>>),
    /// Something is answered.
    Response(Box<Response<Vec<u8>>>),
    /// Nothing more has come.
    Nothing,
    /// There is no buffer for what has.
    NoRoom,
    /// More may have, and others have their turn.
    More,
    /// The peer has ended.
    End,
}

/// Why nothing more can be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error("the recording: {0}")]
    Record(#[from] RecordError),
}

/// A connection that packets come in, and what has come of it.
pub(crate) struct Receiver<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) input: &'a mut Input,
    /// When something was heard last.
    pub(crate) heard: &'a mut Time,
}

impl Receiver<'_> {
    /// Takes in what has come, at most so much; `None`: nothing has, `Some(0)`: nothing will.
    pub(crate) fn receive(&mut self, most: usize) -> io::Result<Option<usize>> {
        let mut bytes = [0; 4_096];
        let most = most.min(bytes.len());
        let count = self.link.read(&mut bytes[..most])?;
        self.input.add(&bytes[..count.unwrap_or(0)]);
        Ok(count)
    }

    /// Receives what lies in a socket; whether there was anything to the last.
    pub(crate) fn udp(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        track: usize,
        kind: Kind,
    ) -> Result<bool, RecordError> {
        let Some(Transport::Udp { rtp, rtcp, .. }) = &transports[track] else {
            return Ok(false);
        };
        let socket = match kind {
            Kind::Rtp => rtp,
            Kind::Rtcp => rtcp,
        };
        for _ in 0..AT_A_TIME {
            if !tape.has_room(true) {
                return Ok(true);
            }
            if !tape.receive(socket, track, kind)? {
                return Ok(false);
            }
            *self.heard = clock::now();
        }
        Ok(true)
    }

    /// Receives what was sent by UDP before the end and lies in the sockets: as far as buffers become free for it in a while, or
    /// are free when one of these is signalled. What does not become part of the recording then is missing.
    pub(crate) fn rest(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        stops: &[BorrowedFd<'_>],
    ) -> Result<(), RecordError> {
        let sockets = transports.iter().enumerate().filter_map(|(track, of)| {
            let Some(Transport::Udp { rtp, .. }) = of else {
                return None;
            };
            Some((track, rtp))
        });
        let left = Left::now(&sockets.collect::<Vec<_>>());
        let is_all = self.rest_in_time(tape, transports, stops)?;
        left.iter().for_each(|of| tape.leave(of, is_all));
        Ok(())
    }

    /// Whether that was all of it.
    fn rest_in_time(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        stops: &[BorrowedFd<'_>],
    ) -> Result<bool, RecordError> {
        let mut until = clock::now().saturating_add(REST_WITHIN);
        loop {
            tape.advance()?;
            let Some(may_sleep) = self.some_of_the_rest(tape, transports)? else {
                return Ok(true);
            };
            let mut wait = Wait::new();
            for stop in stops {
                wait.readable(*stop, Wakes::Stop);
            }
            wait.readable(tape.writer().event(), Wakes::Disks);
            wait.readable(tape.writer().memory_event(), Wakes::Disks);
            let next = tape.writer().next_at().into_iter().chain([until]).min();
            let ready = wait.sleep(may_sleep && tape.writer().arm(), next)?;
            let now = clock::now();
            if ready.contains(&Wakes::Stop) {
                until = match may_sleep {
                    true => now,
                    false => until.min(now.saturating_add(REST_WITHIN_STOPPED)),
                };
            }
            if now >= until {
                return Ok(false);
            }
            if ready.contains(&Wakes::Disks) {
                tape.writer().drain();
            }
        }
    }

    /// Receives some of what lies in the sockets of those who have ended; `None`: nothing does, or nothing can be received
    /// there any more; whether that has to wait for a buffer.
    fn some_of_the_rest(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
    ) -> Result<Option<bool>, RecordError> {
        let mut is_more = false;
        for track in 0..transports.len() {
            for kind in [Kind::Rtp, Kind::Rtcp] {
                is_more |= match self.udp(tape, transports, track, kind) {
                    // What is said of a peer that is gone takes nothing of the others along.
                    Err(RecordError::Socket(_)) => false,
                    is_more => is_more?,
                };
            }
        }
        Ok(is_more.then(|| !tape.has_room(true)))
    }

    /// Receives what comes in the connection, so many items at most, which are counted down.
    pub(crate) fn between(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        partial: &mut Option<Partial>,
        items: &mut usize,
    ) -> Result<Came, ReceiveError> {
        loop {
            let Some(packet) = partial else {
                if *items == 0 {
                    return Ok(Came::More);
                }
                *items -= 1;
                match self.input.next_item()? {
                    Next::Request(request) => return Ok(Came::Request(request)),
                    Next::Response(response) => return Ok(Came::Response(response)),
                    Next::Packet { channel, len } => {
                        *partial = Some(Partial {
                            of: whose(transports, channel, len),
                            is_too_long: len > tape.body_bytes_max(),
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
            let is_head = packet.got < packet.head();
            let came = match is_head {
                true => self.receive_head(packet)?,
                false => self.receive_body(tape, packet)?,
            };
            if let Some(came) = came {
                return Ok(came);
            }
            // There has to be room behind a head also where there is no body.
            if is_head {
                continue;
            }
            if packet.got == packet.len {
                *self.heard = clock::now();
                match packet.of {
                    Some((track, kind)) if packet.is_too_long => {
                        let header = (kind == Kind::Rtp).then_some(&packet.header);
                        tape.note_too_long(track, header);
                    }
                    Some((track, kind)) => {
                        let body = packet.len - packet.head();
                        tape.packet(track, kind, &packet.header, body);
                    }
                    None => {}
                }
                *partial = None;
            }
        }
    }

    /// Looks for the next packet, or answer, behind what is neither; `None`: there is one.
    pub(crate) fn search(
        &mut self,
        tape: &RtpRecorder<'_>,
        transports: &[Option<Transport>],
        stray: &mut Stray,
    ) -> Result<Option<Came>, ReceiveError> {
        let is_packet = |channel, head: &Head| {
            let of = whose(transports, channel, HEADER_BYTES);
            of.is_some_and(|(track, kind)| tape.may_be_of(track, kind, head))
        };
        while stray.is_searching {
            let (passed, is_found) = self.input.pass_stray(is_packet);
            stray.pass(passed)?;
            stray.is_searching = !is_found;
            if is_found {
                break;
            }
            match self.receive(4_096)? {
                None => return Ok(Some(Came::Nothing)),
                Some(0) => return Ok(Some(Came::End)),
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// What has come is neither a packet nor an answer: it is passed over.
    pub(crate) fn pass_stray(
        &mut self,
        tape: &RtpRecorder<'_>,
        stray: &mut Stray,
    ) -> Result<(), InputError> {
        let packets = tape.tally().packets;
        if packets != stray.packets {
            (stray.packets, stray.bytes) = (packets, 0);
        }
        stray.is_searching = true;
        stray.pass(self.input.take(&mut [0]))
    }

    fn receive_head(&mut self, packet: &mut Partial) -> Result<Option<Came>, ReceiveError> {
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
        tape: &mut RtpRecorder<'_>,
        packet: &mut Partial,
    ) -> Result<Option<Came>, ReceiveError> {
        let body = packet.len - packet.head();
        let filled = packet.got - packet.head();
        if packet.of.is_none() || packet.is_too_long {
            return self.pass_over(packet);
        }
        // A block that is begun for this body is not sealed before it is whole.
        if filled == 0 && !tape.make_room(body) {
            return Ok(Some(Came::NoRoom));
        }
        let (input, link) = (&mut *self.input, &mut *self.link);
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
            match link.readv(&mut parts).map_err(RecordError::Socket)? {
                Some(0) => {
                    came = Some(Came::End);
                    Ok(taken)
                }
                Some(count) => {
                    input.add(&ahead[..count.saturating_sub(left)]);
                    Ok(taken + count.min(left))
                }
                None => {
                    came = Some(Came::Nothing);
                    Ok(taken)
                }
            }
        })?;
        let copied_by_tls = if self.link.is_secure() { count } else { 0 };
        tape.note_copied(taken + copied_by_tls);
        packet.got += count;
        Ok(came)
    }

    fn pass_over(&mut self, packet: &mut Partial) -> Result<Option<Came>, ReceiveError> {
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
