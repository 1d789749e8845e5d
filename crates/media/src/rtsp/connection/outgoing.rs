//! Output of a session that plays: packets, with replies and reports between them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use engine::clock;
use engine::stream::BlockReader;
use sched::units::{Nanos, Time};

use super::answer::Answer;
use super::burst::{self, PACKETS_MAX};
use super::parameters::Changes;
use crate::play::presentation::Presentation;
use crate::play::{OutPacket, PlayError};
use crate::rtp::packet::{HEADER_BYTES, Header};
use crate::rtsp::link::Link;
use crate::rtsp::reports::{frame, source_description};
use crate::rtsp::transport::Transport;

/// Interval of sender reports.
const REPORT_EVERY: Nanos = Nanos::from_secs(5);

/// By UDP this many bytes are sent at a time, then nothing for [`PACE`]: 32 MB/s. The receive buffer of a player has
/// 212,992 bytes unless it asks for more (`net.core.rmem_default`), each packet of 1,400 bytes takes 2,304 of them, and
/// key frames are longer than that.
const PACED_BYTES: usize = 32 << 10;
const PACE: Nanos = Nanos::from_millis(1);

/// While this many bytes of replies wait, no more requests are read.
const ANSWERS_BYTES_MAX: usize = 64 << 10;

/// The destination that takes no more bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// The connection.
    Connection,
    /// A track's socket.
    Track(usize),
}

/// Packets and bytes of a track that were sent under its SSRC since its last BYE (RFC 3550, section 6.4.1).
#[derive(Clone, Copy, Default)]
pub(super) struct SentCounts {
    packets: u32,
    octets: u32,
    ssrc: u32,
    reported: Option<Time>,
}

/// Counts of all sent packets.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) packets: u64,
    /// Their bytes, with headers.
    pub(super) bytes: u64,
    /// Bytes that this program has copied, which are those that it has encrypted.
    pub(super) copied_bytes: u64,
}

/// The transports of a player, with what is sent between its packets.
pub(super) struct PlayerOutput<'a> {
    pub(super) transports: &'a [Option<Transport>],
    sent: &'a mut [SentCounts],
    tally: Tally,
    /// Bytes of the next packet that have been sent.
    pub(super) packet_sent: usize,
    /// The destination that takes no more bytes at the moment.
    pub(super) full: Option<Destination>,
    /// Replies and reports, which are sent between two packets.
    pub(super) between: VecDeque<u8>,
    pub(super) pace: Pace,
    /// A time of the monotonic clock, and the wall clock at that time.
    ntp: (Time, u64),
}

/// The pace of datagrams within a frame.
#[derive(Clone, Copy, Default)]
pub(super) struct Pace {
    bytes: usize,
    until: Time,
}

impl Pace {
    /// Counts sent bytes.
    fn sent(&mut self, bytes: usize, now: Time) {
        if now >= self.until.saturating_add(PACE) {
            self.bytes = 0;
        }
        self.bytes += bytes;
        if self.bytes >= PACED_BYTES {
            *self = Self {
                bytes: 0,
                until: now.saturating_add(PACE),
            };
        }
    }

    /// Nothing is sent before this time.
    pub(super) fn until(&self) -> Time {
        self.until
    }
}

impl<'a> PlayerOutput<'a> {
    /// Output on these transports. `sent` is what has been sent of each track before.
    pub(super) fn new(transports: &'a [Option<Transport>], sent: &'a mut [SentCounts]) -> Self {
        // A sender report is due at once.
        sent.iter_mut().for_each(|of| of.reported = None);
        Self {
            transports,
            sent,
            tally: Tally::default(),
            packet_sent: 0,
            full: None,
            between: VecDeque::new(),
            pace: Pace::default(),
            ntp: (clock::now(), ntp_now()),
        }
    }

    /// Queues a reply between two packets.
    pub(super) fn queue(&mut self, said: Answer) -> io::Result<()> {
        let mut bytes = Vec::new();
        said.done()
            .write(&mut bytes)
            .map_err(|_| io::Error::other("a reply cannot be written"))?;
        self.between.extend(bytes);
        Ok(())
    }

    /// True if no more requests are to be read until some replies have been sent.
    pub(super) fn has_too_many_replies(&self) -> bool {
        self.between.len() >= ANSWERS_BYTES_MAX
    }

    /// Counts so far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// True if packets of a track are sent.
    pub(super) fn is_played(&self, track: usize) -> bool {
        self.transports.get(track).is_some_and(Option::is_some)
    }

    /// Sends packets, at least one, with as few system calls as possible: over the connection all of them, by UDP
    /// those of the first one's track. Returns the number of packets that have been sent completely.
    pub(super) fn send(&mut self, link: &mut Link, packets: &[OutPacket<'_>]) -> io::Result<usize> {
        let Some(first) = packets.first() else {
            return Ok(0);
        };
        let count = match self.transports.get(first.track) {
            Some(Some(Transport::Udp { rtp, .. })) => {
                let of_track = packets.iter().take_while(|of| of.track == first.track);
                let of_track = of_track.count();
                let count = burst::datagrams(rtp, &packets[..of_track])?;
                if count < of_track {
                    self.full = Some(Destination::Track(first.track));
                }
                let bytes = packets[..count].iter().map(OutPacket::bytes).sum();
                self.pace.sent(bytes, clock::now());
                count
            }
            _ => self.send_interleaved(link, packets)?,
        };
        packets[..count].iter().for_each(|of| self.note_sent(of));
        Ok(count)
    }

    fn send_interleaved(
        &mut self,
        link: &mut Link,
        packets: &[OutPacket<'_>],
    ) -> io::Result<usize> {
        let channel = |track: usize| match self.transports.get(track) {
            Some(Some(Transport::Interleaved { rtp, .. })) => Some(*rtp),
            _ => None,
        };
        let is_of_connection = |of: &&OutPacket<'_>| channel(of.track).is_some();
        let count = packets.iter().take_while(is_of_connection).count();
        let packets = &packets[..count];
        let channel = |track| channel(track).unwrap_or_default();
        let written = burst::interleaved(link, packets, channel, self.packet_sent)?;
        let mut left = self.packet_sent + written.unwrap_or(0);
        if link.is_secure() {
            self.tally.copied_bytes += written.unwrap_or(0) as u64;
        }
        let mut sent = 0;
        for packet in packets {
            let bytes = burst::interleaved_bytes(packet);
            if left < bytes {
                break;
            }
            left -= bytes;
            sent += 1;
        }
        self.packet_sent = left;
        if sent < count {
            self.full = Some(Destination::Connection);
        }
        Ok(sent)
    }

    /// Sends replies and reports; returns true if all of them are sent.
    pub(super) fn send_between(&mut self, link: &mut Link) -> io::Result<bool> {
        let bytes = self.between.make_contiguous();
        if let Some(count) = link.write(bytes)? {
            drop(self.between.drain(..count));
        }
        self.full = (!self.between.is_empty()).then_some(Destination::Connection);
        Ok(self.full.is_none())
    }

    /// The descriptor of a destination.
    pub(super) fn fd_of<'b>(&'b self, full: Destination, link: &'b Link) -> BorrowedFd<'b> {
        let track = match full {
            Destination::Connection => None,
            Destination::Track(track) => self.transports[track].as_ref(),
        };
        match track {
            Some(Transport::Udp { rtp, .. }) => rtp.as_fd(),
            _ => link.as_fd(),
        }
    }

    /// Counts a packet of a track that has been sent.
    fn note_sent(&mut self, packet: &OutPacket<'_>) {
        self.tally.packets += 1;
        self.tally.bytes += packet.bytes() as u64;
        if let Some(sent) = self.sent.get_mut(packet.track) {
            sent.packets = sent.packets.wrapping_add(1);
            sent.octets = sent.octets.wrapping_add(packet.body.len() as u32);
        }
    }

    /// Queues a sender report for a track, if one is due before its next packet, which has this header and whose
    /// timestamp means the time `plays_at`.
    pub(super) fn report(&mut self, track: usize, header: &[u8; HEADER_BYTES], plays_at: Time) {
        let now = clock::now();
        let Some(header) = Header::parse(header) else {
            return;
        };
        // The due time of the packet, not the current one: players synchronise tracks by this, also when packets
        // are late.
        let ntp = self.ntp_at(plays_at);
        let Some(sent) = self.sent.get_mut(track) else {
            return;
        };
        if sent.ssrc != header.ssrc {
            *sent = SentCounts {
                ssrc: header.ssrc,
                ..SentCounts::default()
            };
        }
        let is_due = sent
            .reported
            .is_none_or(|at| now >= at.saturating_add(REPORT_EVERY));
        if !is_due || self.packet_sent > 0 {
            return;
        }
        sent.reported = Some(now);
        let report = rtcp_types::SenderReport::builder(header.ssrc)
            .ntp_timestamp(ntp)
            .rtp_timestamp(header.timestamp)
            .packet_count(sent.packets)
            .octet_count(sent.octets);
        let compound = rtcp_types::Compound::builder()
            .add_packet(report)
            .add_packet(source_description(header.ssrc));
        let interleaved = send_report(self.transports[track].as_ref(), &compound);
        self.between.extend(interleaved);
    }

    /// Sends or queues BYE for all tracks (RFC 3550, section 6.6).
    pub(super) fn farewell(&mut self) {
        let interleaved = farewell(self.transports, self.sent);
        self.between.extend(interleaved);
    }

    fn ntp_at(&self, at: Time) -> u64 {
        let (from, ntp) = self.ntp;
        let after_ns = i128::from(at.get()) - i128::from(from.get());
        ntp.wrapping_add_signed(((after_ns << 32) / 1_000_000_000) as i64)
    }
}

/// A presentation and its output.
pub(super) struct Outgoing<'a> {
    pub(super) playback: Presentation<'a>,
    pub(super) output: PlayerOutput<'a>,
    /// Changes of the reservation that are under way.
    pub(super) changes: Changes,
    /// When BYE is sent, after the last packet.
    pub(super) farewell_at: Option<Time>,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(playback: Presentation<'a>, output: PlayerOutput<'a>) -> Self {
        Self {
            playback,
            output,
            changes: Changes::default(),
            farewell_at: None,
        }
    }

    /// Waits for changes of the reservation, and queues the replies.
    pub(super) fn settle_changes(&mut self, id: &str, timeout: Duration) -> io::Result<()> {
        self.playback.readers().for_each(BlockReader::settle);
        for said in std::mem::take(&mut self.changes).settled() {
            self.output.queue(said.session(id, timeout))?;
        }
        Ok(())
    }

    /// Queues a sender report for the track of the next packet, if one is due.
    pub(super) fn report(&mut self, track: usize) {
        if let Some(header) = self.playback.header() {
            self.output.report(track, &header, self.playback.plays_at());
        }
    }

    /// Sends the packets that are due, as far as the peer takes them.
    pub(super) fn send_due(&mut self, link: &mut Link) -> Result<(), PlayError> {
        let output = &mut self.output;
        let transports = output.transports;
        let is_played = |track: usize| transports.get(track).is_some_and(Option::is_some);
        let sent = self
            .playback
            .with_due(clock::now(), PACKETS_MAX, is_played, |packets| {
                let count = output.send(link, packets)?;
                let bytes: usize = packets[..count].iter().map(OutPacket::bytes).sum();
                Ok::<_, io::Error>((count, bytes))
            })?;
        if let Some(sent) = sent {
            let (count, bytes) = sent?;
            self.playback.sent(count, bytes);
        }
        Ok(())
    }
}

/// Sends BYE for tracks of which packets have been sent; returns the bytes for the connection.
pub(super) fn farewell(transports: &[Option<Transport>], sent: &mut [SentCounts]) -> Vec<u8> {
    let mut interleaved = Vec::new();
    for (transport, sent) in transports.iter().zip(sent) {
        let SentCounts { packets, ssrc, .. } = std::mem::take(sent);
        if packets > 0 {
            let compound = rtcp_types::Compound::builder()
                .add_packet(rtcp_types::ReceiverReport::builder(ssrc))
                .add_packet(rtcp_types::Bye::builder().add_source(ssrc));
            interleaved.extend(send_report(transport.as_ref(), &compound));
        }
    }
    interleaved
}

/// Sends an RTCP compound of a track by UDP, or returns its bytes for the connection.
fn send_report(
    transport: Option<&Transport>,
    compound: &rtcp_types::CompoundBuilder<'_>,
) -> Vec<u8> {
    let mut bytes = [0; 256];
    let Ok(len) = rtcp_types::RtcpPacketWriterExt::write_into(compound, &mut bytes) else {
        return Vec::new();
    };
    match transport {
        Some(Transport::Interleaved { rtcp, .. }) => {
            [&frame(*rtcp, len)[..], &bytes[..len]].concat()
        }
        Some(Transport::Udp { rtcp, .. }) => {
            // A lost report is followed by the next one.
            let _ = rtcp.send(&bytes[..len]);
            Vec::new()
        }
        None => Vec::new(),
    }
}

/// The wall clock in NTP format: seconds since 1900, with 32 bits of fraction.
fn ntp_now() -> u64 {
    const FROM_1900_TO_1970_S: u64 = 2_208_988_800;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    (since.as_secs().wrapping_add(FROM_1900_TO_1970_S) << 32) | fraction
}
