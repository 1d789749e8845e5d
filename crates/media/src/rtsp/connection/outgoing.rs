//! Output of a session that plays: packets, with replies and reports between them.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use engine::clock;
use engine::stream::BlockReader;
use sched::units::{Nanos, Time};

use super::answer::Answer;
use super::parameters::Changes;
use crate::play::presentation::Presentation;
use crate::rtp::packet::Header;
use crate::rtsp::reports::{frame, source_description};
use crate::rtsp::transport::Transport;

/// Interval of sender reports.
const REPORT_EVERY: Nanos = Nanos::from_secs(5);

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

/// A presentation and its output.
pub(super) struct Outgoing<'a> {
    pub(super) playback: Presentation<'a>,
    pub(super) transports: &'a [Option<Transport>],
    sent: &'a mut [SentCounts],
    tally: Tally,
    /// Bytes of the next packet that have been sent.
    pub(super) packet_sent: usize,
    /// The destination that takes no more bytes at the moment.
    pub(super) full: Option<Destination>,
    /// Replies and reports, which are sent between two packets.
    pub(super) between: VecDeque<u8>,
    /// Changes of the reservation that are under way.
    pub(super) changes: Changes,
    /// When BYE is sent, after the last packet.
    pub(super) farewell_at: Option<Time>,
    /// A time of the monotonic clock, and the wall clock at that time.
    pub(super) ntp: (Time, u64),
}

impl<'a> Outgoing<'a> {
    /// Output on these transports. `sent` is what has been sent of each track before.
    pub(super) fn new(
        playback: Presentation<'a>,
        transports: &'a [Option<Transport>],
        sent: &'a mut [SentCounts],
    ) -> Self {
        // A sender report is due at once.
        sent.iter_mut().for_each(|of| of.reported = None);
        Self {
            playback,
            transports,
            sent,
            tally: Tally::default(),
            packet_sent: 0,
            full: None,
            between: VecDeque::new(),
            changes: Changes::default(),
            farewell_at: None,
            ntp: (clock::now(), ntp_now()),
        }
    }
}

impl Outgoing<'_> {
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

    /// Waits for changes of the reservation, and queues the replies.
    pub(super) fn settle_changes(&mut self, id: &str, timeout: Duration) -> io::Result<()> {
        self.playback.readers().for_each(BlockReader::settle);
        for said in std::mem::take(&mut self.changes).settled() {
            self.queue(said.session(id, timeout))?;
        }
        Ok(())
    }

    /// Counts so far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Counts copied bytes.
    pub(super) fn note_copied(&mut self, bytes: usize) {
        self.tally.copied_bytes += bytes as u64;
    }

    /// Counts a packet of a track that has been sent.
    pub(super) fn note_sent(&mut self, track: usize, len: usize) {
        self.tally.packets += 1;
        self.tally.bytes += len as u64;
        if let Some(sent) = self.sent.get_mut(track) {
            sent.packets = sent.packets.wrapping_add(1);
            sent.octets = sent.octets.wrapping_add(len as u32 - 12);
        }
    }

    /// Queues a sender report for the track of the next packet, if one is due.
    pub(super) fn report(&mut self, track: usize) {
        let now = clock::now();
        let header = self.playback.header();
        let Some(header) = header.and_then(|header| Header::parse(&header)) else {
            return;
        };
        // The due time of the packet, not the current one: players synchronise tracks by this, also when packets
        // are late.
        let ntp = self.ntp_at(self.playback.plays_at());
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
