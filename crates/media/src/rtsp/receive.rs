//! Reception of packets into a recording, between the messages of a connection or by UDP, from a publisher or from
//! a camera that the server pulls from.

use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;

use engine::clock;
use rtsp_types::{Request, Response};
use sched::units::{Nanos, Time};

use crate::archive::block::Kind;
use crate::record::{EndedSocket, RecordError, RtpRecorder};
use crate::rtp::packet::HEADER_BYTES;
use crate::rtp::packet::PacketHead;
use crate::rtsp::input::{Input, InputError, Next};
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;
use crate::rtsp::transport::Transport;

/// Bytes that are received behind a body: the head of the next packet, and no more, as its body is to be received
/// where it stays.
const AHEAD_BYTES: usize = 4 + HEADER_BYTES;

/// Packets that are received from one socket at a time.
const AT_A_TIME: usize = 64;

/// Packets and messages that are taken from a connection at a time.
pub(crate) const ITEMS_AT_A_TIME: usize = 1_024;

/// Bytes that belong to no packet or message and are skipped between two recorded packets.
const STRAY_BYTES_MAX: usize = 65_536;

/// Packets that are queued in sockets at the end may wait for a buffer for this long.
const REST_WITHIN: Nanos = Nanos::from_secs(10);

/// When the session was ended or the server stops, packets are received for this long, as far as buffers are free.
const REST_WITHIN_STOPPED: Nanos = Nanos::from_secs(1);

/// A packet that has arrived in part.
pub(crate) struct PartialPacket {
    /// Its track; `None`: it is skipped.
    of: Option<(usize, Kind)>,
    /// It is longer than a block has room for.
    is_too_long: bool,
    len: usize,
    header: [u8; HEADER_BYTES],
    /// Bytes that have arrived.
    got: usize,
}

impl PartialPacket {
    /// The length of its RTP header.
    fn head(&self) -> usize {
        match self.of {
            Some((_, Kind::Rtp)) => HEADER_BYTES,
            _ => 0,
        }
    }
}

/// Bytes between packets that belong to no packet or message.
#[derive(Default)]
pub(crate) struct StrayBytes {
    /// Recorded packets before them.
    packets: u64,
    /// Bytes that have been skipped since.
    bytes: usize,
    /// The next packet has not been found yet.
    is_searching: bool,
}

impl StrayBytes {
    fn pass(&mut self, bytes: usize) -> Result<(), InputError> {
        self.bytes += bytes;
        match self.bytes > STRAY_BYTES_MAX {
            true => Err(InputError::Syntax),
            false => Ok(()),
        }
    }
}

/// Events that a recording wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeEvent {
    Socket,
    /// The recording is to end.
    Stop,
    Disks,
    /// The connection takes more bytes.
    Writable,
    /// A socket of a track.
    Track(usize, Kind),
}

impl WakeEvent {
    /// True if packets may have arrived.
    pub(crate) fn is_of_packets(&self) -> bool {
        matches!(self, Self::Socket | Self::Track(..))
    }
}

/// The outcome of receiving from a connection.
pub(crate) enum Received {
    /// A request of the peer.
    Request(Box<Request<Vec<u8>>>),
    /// A response of the peer.
    Response(Box<Response<Vec<u8>>>),
    /// Nothing more has arrived.
    Nothing,
    /// No buffer is free for the next packet.
    NoRoom,
    /// The maximum for a turn was taken; more may have arrived.
    More,
    /// The peer has closed the connection.
    End,
}

/// Why receiving failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error("the recording failed: {0}")]
    Record(#[from] RecordError),
}

/// Packets that are still queued in sockets at the end of a recording.
enum Rest {
    None,
    Queued,
    /// They have to wait for a free buffer.
    NeedsBuffer,
}

/// Receives from a connection and from sockets.
pub(crate) struct Receiver<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) input: &'a mut Input,
    /// When the peer was heard last.
    pub(crate) heard: &'a mut Time,
}

impl Receiver<'_> {
    /// Reads at most `most` bytes into the input. `None`: none have arrived; `Some(0)`: the connection is closed.
    pub(crate) fn receive(&mut self, most: usize) -> io::Result<Option<usize>> {
        let mut bytes = [0; 4_096];
        let most = most.min(bytes.len());
        let count = self.link.read(&mut bytes[..most])?;
        self.input.add(&bytes[..count.unwrap_or(0)]);
        Ok(count)
    }

    /// Receives packets that are queued in a socket; returns false if it is empty.
    pub(crate) fn udp(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
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
            if !recorder.has_room(true) {
                return Ok(true);
            }
            if !recorder.receive(socket, track, kind)? {
                return Ok(false);
            }
            *self.heard = clock::now();
        }
        Ok(true)
    }

    /// Receives packets that were queued in the sockets at the end, as far as buffers become free within 10 s. When
    /// one of `stops` is signalled, only free buffers are used, for 1 s. Packets that are not received are noted as
    /// missing.
    pub(crate) fn rest(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        stops: &[BorrowedFd<'_>],
    ) -> Result<(), RecordError> {
        let sockets = transports.iter().enumerate().filter_map(|(track, of)| {
            let Some(Transport::Udp { rtp, .. }) = of else {
                return None;
            };
            Some((track, rtp))
        });
        let left = EndedSocket::now(&sockets.collect::<Vec<_>>());
        let is_all = self.rest_in_time(recorder, transports, stops)?;
        left.iter().for_each(|of| recorder.leave(of, is_all));
        Ok(())
    }

    /// Returns true if all packets were received.
    fn rest_in_time(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        stops: &[BorrowedFd<'_>],
    ) -> Result<bool, RecordError> {
        let mut until = clock::now().saturating_add(REST_WITHIN);
        loop {
            recorder.advance()?;
            let may_sleep = match self.some_of_the_rest(recorder, transports)? {
                Rest::None => return Ok(true),
                Rest::Queued => false,
                Rest::NeedsBuffer => true,
            };
            let mut wait = Wait::new();
            for stop in stops {
                wait.readable(*stop, WakeEvent::Stop);
            }
            for event in recorder.events() {
                wait.readable(event, WakeEvent::Disks);
            }
            let next = recorder.next_at().into_iter().chain([until]).min();
            let ready = wait.sleep(may_sleep && recorder.arm(), next)?;
            let now = clock::now();
            if ready.contains(&WakeEvent::Stop) {
                until = match may_sleep {
                    true => now,
                    false => until.min(now.saturating_add(REST_WITHIN_STOPPED)),
                };
            }
            if now >= until {
                return Ok(false);
            }
            if ready.contains(&WakeEvent::Disks) {
                recorder.drain();
            }
        }
    }

    /// Receives some of the packets that are queued in the sockets.
    fn some_of_the_rest(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
    ) -> Result<Rest, RecordError> {
        let mut is_more = false;
        for track in 0..transports.len() {
            for kind in [Kind::Rtp, Kind::Rtcp] {
                is_more |= match self.udp(recorder, transports, track, kind) {
                    // A failed socket has no packets left; the others are still received.
                    Err(RecordError::Socket(_)) => false,
                    is_more => is_more?,
                };
            }
        }
        Ok(match is_more {
            false => Rest::None,
            true if recorder.has_room(true) => Rest::Queued,
            true => Rest::NeedsBuffer,
        })
    }

    /// Receives packets and messages from the connection; at most `items`, which are counted down.
    pub(crate) fn between(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        partial: &mut Option<PartialPacket>,
        items: &mut usize,
    ) -> Result<Received, ReceiveError> {
        loop {
            let Some(packet) = partial else {
                if *items == 0 {
                    return Ok(Received::More);
                }
                *items -= 1;
                match self.input.next_item()? {
                    Next::Request(request) => return Ok(Received::Request(request)),
                    Next::Response(response) => return Ok(Received::Response(response)),
                    Next::Packet { channel, len } => {
                        *partial = Some(PartialPacket {
                            of: track_of(transports, channel, len),
                            is_too_long: len > recorder.body_bytes_max(),
                            len,
                            header: [0; HEADER_BYTES],
                            got: 0,
                        });
                    }
                    Next::More => {
                        let is_packet = matches!(self.input.unused().first(), None | Some(b'$'));
                        let most = if is_packet { AHEAD_BYTES } else { 4_096 };
                        match self.receive(most)? {
                            None => return Ok(Received::Nothing),
                            Some(0) => return Ok(Received::End),
                            Some(_) => {}
                        }
                    }
                }
                continue;
            };
            let is_head = packet.got < packet.head();
            let came = match is_head {
                true => self.receive_head(packet)?,
                false => self.receive_body(recorder, packet)?,
            };
            if let Some(came) = came {
                return Ok(came);
            }
            // A packet without a body needs room for its entry as well.
            if is_head {
                continue;
            }
            if packet.got == packet.len {
                *self.heard = clock::now();
                match packet.of {
                    Some((track, kind)) if packet.is_too_long => {
                        let header = (kind == Kind::Rtp).then_some(&packet.header);
                        recorder.note_too_long(track, header);
                    }
                    Some((track, kind)) => {
                        let body = packet.len - packet.head();
                        recorder.packet(track, kind, &packet.header, body);
                    }
                    None => {}
                }
                *partial = None;
            }
        }
    }

    /// Searches the next packet or response behind stray bytes; `None` if it was found.
    pub(crate) fn search(
        &mut self,
        recorder: &RtpRecorder<'_>,
        transports: &[Option<Transport>],
        stray: &mut StrayBytes,
    ) -> Result<Option<Received>, ReceiveError> {
        let is_packet = |channel, head: &PacketHead| {
            let of = track_of(transports, channel, HEADER_BYTES);
            of.is_some_and(|(track, kind)| recorder.may_be_of(track, kind, head))
        };
        while stray.is_searching {
            let (passed, is_found) = self.input.pass_stray(is_packet);
            stray.pass(passed)?;
            stray.is_searching = !is_found;
            if is_found {
                break;
            }
            match self.receive(4_096)? {
                None => return Ok(Some(Received::Nothing)),
                Some(0) => return Ok(Some(Received::End)),
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// Skips a byte that belongs to no packet or message, and begins to search the next one.
    pub(crate) fn pass_stray(
        &mut self,
        recorder: &RtpRecorder<'_>,
        stray: &mut StrayBytes,
    ) -> Result<(), InputError> {
        let packets = recorder.tally().packets;
        if packets != stray.packets {
            (stray.packets, stray.bytes) = (packets, 0);
        }
        stray.is_searching = true;
        stray.pass(self.input.take(&mut [0]))
    }

    fn receive_head(
        &mut self,
        packet: &mut PartialPacket,
    ) -> Result<Option<Received>, ReceiveError> {
        let wanted = HEADER_BYTES - packet.got;
        let taken = self.input.take(&mut packet.header[packet.got..]);
        packet.got += taken;
        if taken < wanted {
            match self.receive(wanted - taken)? {
                None => return Ok(Some(Received::Nothing)),
                Some(0) => return Ok(Some(Received::End)),
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// Receives the part of a body that has arrived. Bytes behind it go to the input.
    fn receive_body(
        &mut self,
        recorder: &mut RtpRecorder<'_>,
        packet: &mut PartialPacket,
    ) -> Result<Option<Received>, ReceiveError> {
        let body = packet.len - packet.head();
        let filled = packet.got - packet.head();
        if packet.of.is_none() || packet.is_too_long {
            return self.pass_over(packet);
        }
        // The block of a body is not sealed while the body is received.
        if filled == 0 && !recorder.make_room(body) {
            return Ok(Some(Received::NoRoom));
        }
        let (input, link) = (&mut *self.input, &mut *self.link);
        let mut ahead = [0; AHEAD_BYTES];
        let mut taken = 0;
        let mut came = None;
        let count = recorder.fill(filled, body, |out| {
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
                    came = Some(Received::End);
                    Ok(taken)
                }
                Some(count) => {
                    input.add(&ahead[..count.saturating_sub(left)]);
                    Ok(taken + count.min(left))
                }
                None => {
                    came = Some(Received::Nothing);
                    Ok(taken)
                }
            }
        })?;
        let copied_by_tls = if self.link.is_secure() { count } else { 0 };
        recorder.note_copied(taken + copied_by_tls);
        packet.got += count;
        Ok(came)
    }

    fn pass_over(&mut self, packet: &mut PartialPacket) -> Result<Option<Received>, ReceiveError> {
        let mut scratch = [0; 4_096];
        let most = (packet.len - packet.got).min(scratch.len());
        let taken = self.input.take(&mut scratch[..most]);
        packet.got += taken;
        if taken > 0 || packet.got == packet.len {
            return Ok(None);
        }
        Ok(match self.receive(most)? {
            None => Some(Received::Nothing),
            Some(0) => Some(Received::End),
            Some(_) => None,
        })
    }
}

/// The track and kind of a packet on a channel; `None` if no track has the channel, or the packet is too short.
fn track_of(transports: &[Option<Transport>], channel: u8, len: usize) -> Option<(usize, Kind)> {
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
