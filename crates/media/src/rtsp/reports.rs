//! Receiver reports, from time to time, to who is recorded, whether it publishes or is pulled from.
//!
//! Nothing of a recording waits for them: a connection that does not take one has the rest of it later, and one that takes none
//! any more is still received from to its end.

use sched::units::{Nanos, Time};

use crate::record::RtpRecorder;
use crate::rtp::reception::ReceiverReport;
use crate::rtsp::link::Link;
use crate::rtsp::transport::Transport;

/// How often it is told how well its packets come (RFC 3550, section 6.2: not more often than that).
const REPORT_EVERY: Nanos = Nanos::from_secs(5);

/// Who says something: in each compound of RTCP (RFC 3550, section 6.1).
pub(crate) fn named(ssrc: u32) -> rtcp_types::SdesBuilder<'static> {
    let name = rtcp_types::SdesItem::builder(rtcp_types::SdesItem::CNAME, "clockwise");
    let chunk = rtcp_types::SdesChunk::builder(ssrc).add_item(name);
    rtcp_types::Sdes::builder().add_chunk(chunk)
}

/// What goes before a packet between the messages of a connection (RFC 2326, section 10.12). No packet is longer than it says.
pub(crate) fn frame(channel: u8, len: usize) -> [u8; 4] {
    let [high, low] = (len as u16).to_be_bytes();
    [b'$', channel, high, low]
}

/// Reports of a recording.
pub(crate) struct Reports {
    /// Who says them.
    ssrc: u32,
    next: Time,
    /// What the connection has not taken yet.
    unsent: Vec<u8>,
}

impl Reports {
    /// The first one is told a while after now.
    pub(crate) fn new(now: Time) -> Self {
        let mut ssrc = [0; 4];
        // One that somebody else has as well does no harm here: there are two in a session.
        let _ = rustix::rand::getrandom(&mut ssrc, rustix::rand::GetRandomFlags::empty());
        Self {
            ssrc: u32::from_ne_bytes(ssrc),
            next: now.saturating_add(REPORT_EVERY),
            unsent: Vec::new(),
        }
    }

    /// When there is something to say; `None`: when the connection takes the rest of what has been said.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.unsent.is_empty().then_some(self.next)
    }

    fn compound(&self, of: &ReceiverReport) -> Option<Vec<u8>> {
        let block = rtcp_types::ReportBlock::builder(of.ssrc)
            .fraction_lost(of.fraction_lost)
            .cumulative_lost(of.lost)
            .extended_sequence_number(of.highest)
            .interarrival_jitter(of.jitter)
            .last_sender_report_timestamp(of.last_report)
            .delay_since_last_sender_report_timestamp(of.since_report);
        let compound = rtcp_types::Compound::builder()
            .add_packet(rtcp_types::ReceiverReport::builder(self.ssrc).add_report_block(block))
            .add_packet(named(self.ssrc));
        let mut bytes = vec![0; 128];
        let len = rtcp_types::RtcpPacketWriterExt::write_into(&compound, &mut bytes).ok()?;
        bytes.truncate(len);
        Some(bytes)
    }

    /// Says what is due, as far as the connection takes it. What has come is to be received before: a peer that has gone
    /// answers a report with an end that takes what is still on its way along.
    pub(crate) fn send(
        &mut self,
        link: &mut Link,
        tape: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        now: Time,
    ) {
        if self.next_at().is_some_and(|next| now >= next) {
            self.next = now.saturating_add(REPORT_EVERY);
            for (track, transport) in transports.iter().enumerate() {
                let report = tape.reception(track);
                let Some(bytes) = report.and_then(|of| self.compound(&of)) else {
                    continue;
                };
                match transport {
                    Some(Transport::Interleaved { rtcp, .. }) => {
                        self.unsent.extend(frame(*rtcp, bytes.len()));
                        self.unsent.extend(bytes);
                    }
                    // One that is lost is followed by the next.
                    Some(Transport::Udp { rtcp, .. }) => drop(rtcp.send(&bytes)),
                    None => {}
                }
            }
        }
        if !self.unsent.is_empty() {
            match link.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count.unwrap_or(0))),
                // Receiving tells of the end, behind what has come before it.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// Before something else is said: the rest of a report that has begun.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }
}
