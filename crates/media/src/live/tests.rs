use std::sync::Arc;

use sched::units::Time;

use super::*;
use crate::rtp::packet::HEADER_BYTES;
use crate::sdp::Description;

const MS: u64 = 1_000_000;

/// A stream with a picture track and a sound track, and its writer.
fn stream() -> (Arc<LiveStreams>, LiveWriter) {
    let sdp = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
               m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\nm=audio 0 RTP/AVP 0\r\n";
    let description = Description::parse(sdp.as_bytes()).unwrap();
    let streams = Arc::new(LiveStreams::default());
    let writer = streams.begin("cam", Some(1), &description, (0, Time::ZERO));
    (Arc::clone(&streams), writer.unwrap())
}

/// The packet of a frame that arrives so late, with its time as the timestamp.
fn packet(track: u8, at_ms: u64, is_key: bool) -> LivePacket {
    let mut header = [0; HEADER_BYTES];
    header[4..8].copy_from_slice(&(at_ms as u32 * 90).to_be_bytes());
    LivePacket {
        track,
        begins_frame: true,
        is_key,
        arrival_ns: at_ms * MS,
        media_ns: at_ms * MS,
        header,
        body: vec![track; 100].into(),
    }
}

/// Adds pictures and sounds at these times, 40 ms apart, with a key frame in each second.
fn add(writer: &mut LiveWriter, times_ms: std::ops::Range<u64>) {
    for at_ms in times_ms.step_by(40) {
        writer.push(packet(0, at_ms, at_ms % 1_000 == 0));
        writer.push(packet(1, at_ms, true));
        writer.publish();
    }
}

fn times_ms(batch: &LiveBatch) -> Vec<(u8, u64)> {
    let packets = batch.packets.iter();
    packets
        .map(|of| (of.packet.track, of.packet.media_ns / MS))
        .collect()
}

#[test]
fn reader_begins_with_the_latest_key_frame() {
    let (streams, mut writer) = stream();
    let mut early = writer.feed().read().unwrap();
    writer.push(packet(0, 0, false));
    writer.publish();
    assert!(!writer.feed().has_picture());
    assert!(early.take(10).packets.is_empty(), "no key frame has come");
    add(&mut writer, 1_000..1_120);
    let mut late = streams.get("cam").unwrap().read().unwrap();
    for reader in [&mut early, &mut late] {
        let batch = reader.take(10);
        // Sounds before now are left out; pictures are there to decode the next one.
        assert_eq!(times_ms(&batch), [(0, 1_000), (0, 1_040), (0, 1_080)]);
        assert!(batch.is_anew && batch.packets.iter().all(|of| of.is_past));
        // Their timestamps are next to that of the newest one.
        let of = |at: usize| timestamp(&batch.packets[at]);
        assert_eq!(
            (of(0), of(1), of(2)),
            (1_080 * 90 - 7, 1_080 * 90 - 3, 1_080 * 90)
        );
    }
    add(&mut writer, 1_120..1_160);
    let batch = late.take(10);
    assert_eq!(times_ms(&batch), [(0, 1_120), (1, 1_120)]);
    assert!(!batch.is_anew && batch.packets.iter().all(|of| !of.is_past));
    assert_eq!(timestamp(&batch.packets[0]), 1_120 * 90);
}

fn timestamp(of: &LiveOut) -> u32 {
    u32::from_be_bytes(of.header[4..8].try_into().unwrap())
}

/// Packets are kept since the latest key frame and for two seconds. A reader that is further behind continues with the
/// latest key frame and is told.
#[test]
fn slow_reader_skips_to_the_latest_key_frame() {
    let (_streams, mut writer) = stream();
    add(&mut writer, 0..40);
    let mut slow = writer.feed().read().unwrap();
    let mut slower = writer.feed().read().unwrap();
    assert_eq!(slow.take(10).packets.len(), 1);
    assert_eq!(slower.take(10).packets.len(), 1);
    add(&mut writer, 40..1_520);
    let batch = slow.take(2);
    assert_eq!(
        (batch.missed, times_ms(&batch)),
        (0, vec![(0, 40), (1, 40)])
    );
    add(&mut writer, 1_520..6_520);
    let batch = slower.take(1_000);
    // Those of frames from 40 ms to 5,960 ms.
    assert_eq!(batch.missed, 149 * 2);
    assert!(batch.is_anew);
    assert_eq!(times_ms(&batch)[0], (0, 6_000));
    assert_eq!(times_ms(&batch).last(), Some(&(0, 6_480)));
}

#[test]
fn memory_is_limited_without_key_frames() {
    let (_streams, mut writer) = stream();
    add(&mut writer, 0..40);
    let mut reader = writer.feed().read().unwrap();
    for number in 0..1_000 {
        let mut large = packet(0, 80, false);
        large.body = vec![0; 65_000].into();
        large.header[0] = number as u8;
        writer.push(large);
    }
    writer.publish();
    let state = writer.feed().state();
    let bytes: usize = state.packets.iter().map(|of| of.len()).sum();
    assert!(
        bytes <= FEED_BYTES_MAX && bytes > FEED_BYTES_MAX - 200_000,
        "{bytes}"
    );
    drop(state);
    assert!(reader.take(10).packets.is_empty(), "the key frame has gone");
    // A stream that never had one is played after a while.
    let (_streams, mut writer) = stream();
    let mut reader = writer.feed().read().unwrap();
    writer.push(packet(0, 9_000, false));
    writer.publish();
    assert!(reader.take(10).packets.is_empty());
    writer.push(packet(0, 11_000, false));
    writer.publish();
    assert_eq!(times_ms(&reader.take(10)), [(0, 11_000)]);
}

#[test]
fn end_is_told_behind_the_last_packet() {
    let (streams, mut writer) = stream();
    let busy = streams.begin("cam", None, writer.feed().description(), (0, Time::ZERO));
    assert_eq!(
        busy.unwrap_err().to_string(),
        "stream \"cam\" has a source already"
    );
    let mut reader = writer.feed().read().unwrap();
    writer.push(packet(0, 0, true));
    writer.push(packet(0, 40, false));
    drop(writer);
    assert!(streams.get("cam").is_none() && streams.all().is_empty());
    let first = reader.take(1);
    assert_eq!((first.packets.len(), first.is_last), (1, false));
    assert!(reader.take(1).is_last);
    assert!(reader.take(1).packets.is_empty());
}
