//! Receiver reports to the sender of a recording, every 5 s.
//!
//! A recording never waits for them: what the connection does not take is sent later, and a connection that takes
//! none is received from all the same, to its end.

use sched::units::{Nanos, Time};

use crate::record::RtpRecorder;
use crate::rtp::reception::ReceiverReport;
use crate::rtsp::link::Link;
use crate::rtsp::transport::Transport;

/// Interval of receiver reports, the minimum of RFC 3550, section 6.2.
const REPORT_EVERY: Nanos = Nanos::from_secs(5);

/// The source description that each RTCP compound contains (RFC 3550, section 6.1).
pub(crate) fn source_description(ssrc: u32) -> rtcp_types::SdesBuilder<'static> {
    let name = rtcp_types::SdesItem::builder(rtcp_types::SdesItem::CNAME, "clockwise");
    let chunk = rtcp_types::SdesChunk::builder(ssrc).add_item(name);
    rtcp_types::Sdes::builder().add_chunk(chunk)
}

/// The header of a packet between the messages of a connection (RFC 2326, section 10.12). `len` is at most 65,535.
pub(crate) fn frame(channel: u8, len: usize) -> [u8; 4] {
    let [high, low] = (len as u16).to_be_bytes();
    [b'$', channel, high, low]
}

/// The receiver reports of a recording.
pub(crate) struct Reports {
    /// The SSRC of the receiver.
    ssrc: u32,
    next: Time,
    /// Bytes that the connection has not taken yet.
    unsent: Vec<u8>,
}

impl Reports {
    /// The first report is due an interval after `now`.
    pub(crate) fn new(now: Time) -> Self {
        let mut ssrc = [0; 4];
        // A collision does no harm: a session has only two participants.
        let _ = rustix::rand::getrandom(&mut ssrc, rustix::rand::GetRandomFlags::empty());
        Self {
            ssrc: u32::from_ne_bytes(ssrc),
            next: now.saturating_add(REPORT_EVERY),
            unsent: Vec::new(),
        }
    }

    /// When the next report is due; `None` while the connection has not taken the rest of the last one.
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
            .add_packet(source_description(self.ssrc));
        let mut bytes = vec![0; 128];
        let len = rtcp_types::RtcpPacketWriterExt::write_into(&compound, &mut bytes).ok()?;
        bytes.truncate(len);
        Some(bytes)
    }

    /// Sends the reports that are due, as far as the connection takes them. Everything that has arrived has to be
    /// received before: a peer that has closed its socket answers a report with a reset, which discards unread
    /// packets.
    pub(crate) fn send(
        &mut self,
        link: &mut Link,
        recorder: &mut RtpRecorder<'_>,
        transports: &[Option<Transport>],
        now: Time,
    ) {
        if self.next_at().is_some_and(|next| now >= next) {
            self.next = now.saturating_add(REPORT_EVERY);
            for (track, transport) in transports.iter().enumerate() {
                let report = recorder.reception(track);
                let Some(bytes) = report.and_then(|of| self.compound(&of)) else {
                    continue;
                };
                match transport {
                    Some(Transport::Interleaved { rtcp, .. }) => {
                        self.unsent.extend(frame(*rtcp, bytes.len()));
                        self.unsent.extend(bytes);
                    }
                    // A lost report is followed by the next one.
                    Some(Transport::Udp { rtcp, .. }) => drop(rtcp.send(&bytes)),
                    None => {}
                }
            }
        }
        if !self.unsent.is_empty() {
            match link.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count.unwrap_or(0))),
                // Receiving reports the end of the connection, behind the packets before it.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// The rest of the last report, which has to be sent before any other message.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }
}
