//! What goes out while a session plays: packets, and answers and reports between them.

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
use crate::rtsp::reports::{frame, named};
use crate::rtsp::transport::Transport;

/// How often those who play are told what time a packet's timestamp is.
const REPORT_EVERY: Nanos = Nanos::from_secs(5);

/// Of who does not take so many bytes of answers, nothing more is listened to.
const ANSWERS_BYTES_MAX: usize = 64 << 10;

/// What takes no more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The connection.
    Connection,
    /// A track's socket.
    Track(usize),
}

/// What was sent of a track since its source began or said farewell (RFC 3550, section 6.4.1).
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    packets: u32,
    octets: u32,
    ssrc: u32,
    reported: Option<Time>,
}

/// What has gone in all.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) packets: u64,
    /// Of them, with their headers.
    pub(super) bytes: u64,
    /// Bytes that were copied by this program on their way, which are those that were encrypted.
    pub(super) copied_bytes: u64,
}

/// What is played, and what goes out of it.
pub(super) struct Outgoing<'a> {
    pub(super) playback: Presentation<'a>,
    pub(super) transports: &'a [Option<Transport>],
    sent: &'a mut [Sent],
    tally: Tally,
    /// How much of the packet that is next has gone.
    pub(super) gone: usize,
    /// What takes no more at this moment.
    pub(super) full: Option<Full>,
    /// Answers and reports that go between two packets.
    pub(super) between: VecDeque<u8>,
    /// What is asked for and takes a while.
    pub(super) changes: Changes,
    /// When those who play are told that this was all.
    pub(super) over: Option<Time>,
    /// The wall clock at an instant of the other one.
    pub(super) ntp: (Time, u64),
}

impl<'a> Outgoing<'a> {
    /// Goes on with what was sent by track.
    pub(super) fn new(
        playback: Presentation<'a>,
        transports: &'a [Option<Transport>],
        sent: &'a mut [Sent],
    ) -> Self {
        // What time it is is told anew.
        sent.iter_mut().for_each(|of| of.reported = None);
        Self {
            playback,
            transports,
            sent,
            tally: Tally::default(),
            gone: 0,
            full: None,
            between: VecDeque::new(),
            changes: Changes::default(),
            over: None,
            ntp: (clock::now(), ntp_now()),
        }
    }
}

impl Outgoing<'_> {
    /// An answer goes between two packets.
    pub(super) fn say(&mut self, said: Answer) -> io::Result<()> {
        let mut bytes = Vec::new();
        said.done()
            .write(&mut bytes)
            .map_err(|_| io::Error::other("an answer that is none"))?;
        self.between.extend(bytes);
        Ok(())
    }

    /// Whether nothing more is to be asked until some of the answers have gone.
    pub(super) fn has_answers_enough(&self) -> bool {
        self.between.len() >= ANSWERS_BYTES_MAX
    }

    /// What was asked for and takes a while is answered when it is done.
    pub(super) fn settle_changes(&mut self, id: &str, timeout: Duration) -> io::Result<()> {
        self.playback.readers().for_each(BlockReader::settle);
        for said in std::mem::take(&mut self.changes).settled() {
            self.say(said.session(id, timeout))?;
        }
        Ok(())
    }

    /// What has gone until now.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Notes that so many bytes were copied on their way.
    pub(super) fn note_copied(&mut self, bytes: usize) {
        self.tally.copied_bytes += bytes as u64;
    }

    /// A packet of a track has gone.
    pub(super) fn note(&mut self, track: usize, len: usize) {
        self.tally.packets += 1;
        self.tally.bytes += len as u64;
        if let Some(sent) = self.sent.get_mut(track) {
            sent.packets = sent.packets.wrapping_add(1);
            sent.octets = sent.octets.wrapping_add(len as u32 - 12);
        }
    }

    /// Tells what time it is, if it is time to: with the packet of a track that is next, now.
    pub(super) fn report(&mut self, track: usize) {
        let now = clock::now();
        let header = self.playback.header();
        let Some(header) = header.and_then(|header| Header::parse(&header)) else {
            return;
        };
        // Not when it is sent: tracks are brought together by this, however late somebody is.
        let ntp = self.ntp_at(self.playback.plays_at());
        let Some(sent) = self.sent.get_mut(track) else {
            return;
        };
        if sent.ssrc != header.ssrc {
            *sent = Sent {
                ssrc: header.ssrc,
                ..Sent::default()
            };
        }
        let is_due = sent
            .reported
            .is_none_or(|at| now >= at.saturating_add(REPORT_EVERY));
        if !is_due || self.gone > 0 {
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
            .add_packet(named(header.ssrc));
        let said = tell(self.transports[track].as_ref(), &compound);
        self.between.extend(said);
    }

    /// Tells those who play that this was all (RFC 3550, section 6.6).
    pub(super) fn farewell(&mut self) {
        let said = farewell(self.transports, self.sent);
        self.between.extend(said);
    }

    fn ntp_at(&self, at: Time) -> u64 {
        let (from, ntp) = self.ntp;
        let after_ns = i128::from(at.get()) - i128::from(from.get());
        ntp.wrapping_add_signed(((after_ns << 32) / 1_000_000_000) as i64)
    }
}

/// The same, of tracks of which this was sent: what is to be said in the connection.
pub(super) fn farewell(transports: &[Option<Transport>], sent: &mut [Sent]) -> Vec<u8> {
    let mut said = Vec::new();
    for (transport, sent) in transports.iter().zip(sent) {
        let Sent { packets, ssrc, .. } = std::mem::take(sent);
        if packets > 0 {
            let compound = rtcp_types::Compound::builder()
                .add_packet(rtcp_types::ReceiverReport::builder(ssrc))
                .add_packet(rtcp_types::Bye::builder().add_source(ssrc));
            said.extend(tell(transport.as_ref(), &compound));
        }
    }
    said
}

/// Sends reports of a track, or has them said in the connection.
fn tell(transport: Option<&Transport>, compound: &rtcp_types::CompoundBuilder<'_>) -> Vec<u8> {
    let mut bytes = [0; 256];
    let Ok(len) = rtcp_types::RtcpPacketWriterExt::write_into(compound, &mut bytes) else {
        return Vec::new();
    };
    match transport {
        Some(Transport::Interleaved { rtcp, .. }) => {
            [&frame(*rtcp, len)[..], &bytes[..len]].concat()
        }
        Some(Transport::Udp { rtcp, .. }) => {
            // One that is lost is followed by the next.
            let _ = rtcp.send(&bytes[..len]);
            Vec::new()
        }
        None => Vec::new(),
    }
}

/// The wall clock as NTP has it: seconds since 1900, and their fraction.
fn ntp_now() -> u64 {
    const FROM_1900_TO_1970_S: u64 = 2_208_988_800;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    (since.as_secs().wrapping_add(FROM_1900_TO_1970_S) << 32) | fraction
}
