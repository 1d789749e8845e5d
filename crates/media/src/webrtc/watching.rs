//! The packets of a live stream on their way to a player.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::clock;
use str0m::Rtc;
use str0m::format::Codec;
use str0m::rtp::RtpWrite;

use super::offer::{AgreedTrack, Negotiated};
use super::payload;
use super::peer::PeerEnd;
use crate::files::unit::{Packet, Reorder};
use crate::live::{LiveFeed, LiveOut, LivePacket, LiveReader};
use crate::rtp::packet::Header;
use crate::rtp::parameters;
use crate::session::registry::Session;

/// Packets that are taken from the stream at a time.
const PACKETS_AT_A_TIME: usize = 32;

/// A track on its way.
#[derive(Debug)]
struct WatchedTrack {
    agreed: AgreedTrack,
    reorder: Reorder,
    /// The number of the next packet.
    next: u64,
    /// Parameter sets of the description, as payloads; empty once packets have brought some.
    parameters: Vec<Vec<u8>>,
    /// The timestamp of the key frame that has got them last.
    key_timestamp: Option<u32>,
    order: PictureOrder,
}

/// Finds pictures that are shown before one that was sent earlier.
#[derive(Clone, Copy, Debug, Default)]
struct PictureOrder {
    newest: Option<u32>,
}

impl PictureOrder {
    /// True if a frame with this timestamp is shown before the newest one.
    fn is_earlier(&mut self, packet: &LivePacket) -> bool {
        let Some(header) = Header::parse(&packet.header).filter(|_| packet.begins_frame) else {
            return false;
        };
        let since = self
            .newest
            .map(|newest| header.timestamp.wrapping_sub(newest) as i32);
        // A jump of more than a second is a clock that begins anew.
        let is_earlier = since.is_some_and(|since| (-90_000..0).contains(&since));
        if !is_earlier {
            self.newest = Some(header.timestamp);
        }
        is_earlier
    }
}

/// True if the pictures in memory are shown in another order than they are sent.
pub(super) fn is_reordered(feed: &Arc<LiveFeed>) -> io::Result<bool> {
    let video = feed.description().video_track();
    if !feed.description().sends_pictures() {
        return Ok(false);
    }
    let mut order = PictureOrder::default();
    let mut reader = feed.read()?;
    let packets = reader.take(usize::MAX).packets;
    let pictures = packets.iter().map(|of| &of.packet);
    Ok(pictures
        .filter(|of| of.track == video)
        .any(|of| order.is_earlier(of)))
}

/// A player.
#[derive(Debug)]
pub(super) struct Watching {
    reader: LiveReader,
    tracks: Vec<WatchedTrack>,
    /// The beginning of the stream.
    begun: Instant,
    member: Arc<Session>,
    is_over: bool,
}

impl Watching {
    pub(super) fn new(
        feed: &Arc<LiveFeed>,
        negotiated: &Negotiated,
        member: Arc<Session>,
    ) -> io::Result<Self> {
        let since = clock::now().saturating_since(feed.begun());
        let now = Instant::now();
        let described = feed.description().tracks();
        let tracks = negotiated.tracks.iter().map(|agreed| {
            let track = described.get(usize::from(agreed.number));
            let of_track = track.filter(|_| agreed.codec == Codec::H264);
            let parameters = of_track.map(|track| {
                let sets = parameters::described(parameters::Codec::Avc, &track.parameters);
                sets.units().cloned().collect()
            });
            WatchedTrack {
                agreed: agreed.clone(),
                reorder: Reorder::default(),
                next: 1,
                key_timestamp: None,
                parameters: parameters.unwrap_or_default(),
                order: PictureOrder::default(),
            }
        });
        Ok(Self {
            reader: feed.read()?,
            tracks: tracks.collect(),
            begun: now
                .checked_sub(Duration::from_nanos(since.get()))
                .unwrap_or(now),
            member,
            is_over: false,
        })
    }

    /// Readable when there are packets.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.reader.event()
    }

    /// Readable when the session is to end.
    pub(super) fn ends(&self) -> BorrowedFd<'_> {
        self.member.ends()
    }

    /// Writes the next packets; returns true if there may be more.
    pub(super) fn write(&mut self, rtc: &mut Rtc) -> Result<bool, PeerEnd> {
        if self.is_over {
            return Err(PeerEnd::StreamEnded);
        }
        let batch = self.reader.take(PACKETS_AT_A_TIME);
        if batch.is_anew {
            self.tracks
                .iter_mut()
                .for_each(|of| of.reorder = Reorder::default());
        }
        for out in &batch.packets {
            self.write_packet(rtc, out)?;
        }
        self.is_over = batch.is_last;
        Ok(batch.is_last || !batch.packets.is_empty())
    }

    fn write_packet(&mut self, rtc: &mut Rtc, out: &LiveOut) -> Result<(), PeerEnd> {
        let is_its = |of: &&mut WatchedTrack| of.agreed.number == out.packet.track;
        let Some(track) = self.tracks.iter_mut().find(is_its) else {
            return Ok(());
        };
        let codec = track.agreed.codec;
        if codec.is_video() && track.order.is_earlier(&out.packet) {
            return Err(PeerEnd::Reordered);
        }
        let Some(header) = Header::parse(&out.header) else {
            return Ok(());
        };
        let Some(body) = header.payload(&out.packet.body) else {
            return Ok(());
        };
        let (track, wallclock) = (track, self.begun + Duration::from_nanos(out.media_ns));
        let mut ordered = Vec::new();
        let mut reorder = std::mem::take(&mut track.reorder);
        let mut give = |packet: &Packet<'_>| track.payloads(packet, &mut ordered);
        reorder.push(header, header.unpadded(body), out.media_ns, &mut give);
        track.reorder = reorder;
        let mut direct = rtc.direct_api();
        let Some(stream) = direct.stream_tx_by_mid(track.agreed.mid, None) else {
            return Ok(());
        };
        for of in ordered {
            let (pt, number) = (track.agreed.pt, of.number.into());
            let packet = RtpWrite::new(pt, number, of.timestamp, wallclock, of.payload);
            stream.write_rtp(packet.marker(of.is_marked).nackable(codec.is_video()));
        }
        Ok(())
    }
}

/// A packet on its way.
struct OutgoingPacket {
    number: u64,
    timestamp: u32,
    is_marked: bool,
    payload: Vec<u8>,
}

impl WatchedTrack {
    /// Adds what carries a packet to `out`. A missing packet leaves a number out, so that the player knows.
    fn payloads(&mut self, packet: &Packet<'_>, out: &mut Vec<OutgoingPacket>) {
        let Packet {
            header,
            payload: body,
            is_after_loss,
            ..
        } = packet;
        let mut payloads = Vec::new();
        let mut give = |payload| payloads.push(payload);
        match self.agreed.codec {
            Codec::H264 => {
                if payload::has_sps(body) {
                    self.parameters.clear();
                }
                let is_new = self.key_timestamp != Some(header.timestamp);
                // The camera tells its parameter sets in the description only.
                if is_new && payload::begins_with_idr(body) {
                    self.key_timestamp = Some(header.timestamp);
                    let sets = self.parameters.iter();
                    sets.for_each(|of| payload::split_avc(of, &mut give));
                }
                payload::split_avc(body, &mut give);
            }
            _ => payload::whole(body, &mut give),
        }
        self.next += u64::from(*is_after_loss);
        let last = payloads.len().saturating_sub(1);
        for (place, payload) in payloads.into_iter().enumerate() {
            out.push(OutgoingPacket {
                number: self.next,
                timestamp: header.timestamp,
                is_marked: header.marker && place == last,
                payload,
            });
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use str0m::media::{Mid, Pt};

    use super::*;

    fn track() -> WatchedTrack {
        WatchedTrack {
            agreed: AgreedTrack {
                mid: Mid::from("0"),
                pt: Pt::from(96),
                codec: Codec::H264,
                number: 0,
            },
            reorder: Reorder::default(),
            next: 1,
            parameters: Vec::new(),
            key_timestamp: None,
            order: PictureOrder::default(),
        }
    }

    /// The numbers under which packets with these numbers arrive at the player, and those that they had.
    fn sent(arrive: &[u16]) -> Vec<(u64, u8)> {
        let mut track = track();
        let mut out = Vec::new();
        let mut reorder = Reorder::default();
        for sequence in arrive {
            let [high, low] = sequence.to_be_bytes();
            let header = Header::parse(&[0x80, 96, high, low, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
            // Every tenth packet is too long.
            let length = if sequence % 10 == 0 { 2_000 } else { 2 };
            let payload = [&[0x41], &vec![low; length][..]].concat();
            let mut give = |packet: &Packet<'_>| track.payloads(packet, &mut out);
            reorder.push(header, &payload, 0, &mut give);
        }
        out.iter()
            .map(|of| (of.number, of.payload[of.payload.len() - 1]))
            .collect()
    }

    #[test]
    fn packets_are_numbered_in_the_order_in_which_they_were_sent() {
        let in_order = [(1, 7), (2, 8), (3, 9), (4, 10), (5, 10), (6, 11)];
        assert_eq!(sent(&[7, 8, 9, 10, 11]), in_order);
        assert_eq!(sent(&[7, 9, 8, 11, 10]), in_order);
        assert_eq!(sent(&[7, 8, 8, 9, 10, 7, 11]), in_order);
    }

    /// The types of the units that a player gets for a picture of these units, which are sent with one timestamp.
    fn units(track: &mut WatchedTrack, timestamp: u8, units: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for unit in units {
            let header = Header::parse(&[0x80, 96, 0, 0, 0, 0, 0, timestamp, 0, 0, 0, 1]).unwrap();
            track.payloads(
                &Packet {
                    header,
                    payload: &[*unit, 0x80],
                    media_ns: 0,
                    is_after_loss: false,
                },
                &mut out,
            );
        }
        out.iter().map(|of| of.payload[0]).collect()
    }

    #[test]
    fn key_frames_have_parameter_sets_whatever_precedes_them() {
        let (sps, pps, sei, idr, slice) = (0x67, 0x68, 0x06, 0x65, 0x41);
        let mut track = track();
        track.parameters = vec![vec![sps], vec![pps]];
        assert_eq!(
            units(&mut track, 1, &[sei, idr, idr]),
            [sei, sps, pps, idr, idr]
        );
        assert_eq!(units(&mut track, 2, &[slice]), [slice]);
        assert_eq!(units(&mut track, 3, &[idr]), [sps, pps, idr]);
        // Later ones of the camera take their place.
        assert_eq!(units(&mut track, 4, &[sps, pps, idr]), [sps, pps, idr]);
        assert_eq!(units(&mut track, 5, &[idr]), [idr]);
    }

    #[test]
    fn missing_packet_leaves_a_number_out() {
        let arrive: Vec<u16> = [1].into_iter().chain(3..90).collect();
        let sent = sent(&arrive);
        assert_eq!(sent[..3], [(1, 1), (3, 3), (4, 4)]);
    }
}
