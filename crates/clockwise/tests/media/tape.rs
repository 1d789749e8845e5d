//! A recording is filled as its packets come: in pieces, whatever else is looked at between them.

use std::io::Read as _;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};

use crate::served::Rig;
use crate::support::tape::{BODY, SDP, begun, header, opened, reserve, reserved};
use engine::clock;
use engine::pool::{Placement, VolumeSpec};
use engine::volume_io::Client;
use media::archive::archives::Archives;
use media::archive::block::{Block, Kind};
use media::archive::check::check;
use media::archive::index::{GROUP, keys_max, section_bytes_max};
use media::archive::retention_record::RetentionLimits;
use media::archive::start::{Start, start_at};
use media::archive::wall_clock::{Instant, now_unix_ns};
use media::archive::{Archive, ArchiveError, Recording};
use media::play::{Origin, PlayError, Playback, PlaybackTerms, Upcoming};
use media::record::{EndedSocket, RtpRecorder};
use media::rtp::packet::HEADER_BYTES;
use media::session::Scale;
use nix::sys::socket::{setsockopt, sockopt};
use sched::request::Op;
use sched::units::{Bytes, Nanos};
use testkit::until;

const PACKETS: u16 = 250;

/// Packets, each in pieces.
fn receive(tape: &mut RtpRecorder<'_>) {
    receive_numbers(tape, 0..PACKETS);
}

fn receive_numbers(tape: &mut RtpRecorder<'_>, numbers: std::ops::Range<u16>) {
    for number in numbers {
        assert!(tape.make_room(BODY));
        for piece in [0..500, 500..699, 699..BODY] {
            let bytes = vec![number as u8; piece.len()];
            let filled = tape.fill(piece.start, BODY, |out| {
                out[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            });
            assert_eq!(filled.unwrap(), bytes.len());
            assert_eq!(tape.is_receiving(), piece.end < BODY);
            if tape.is_receiving() {
                // The receiver does this before it sleeps.
                tape.advance().unwrap();
                assert!(tape.has_room(true));
            }
        }
        tape.packet(0, Kind::Rtp, &header(number), BODY);
    }
}

/// Packets, as soon as there is room for them.
fn receive_as_written(tape: &mut RtpRecorder<'_>, numbers: std::ops::Range<u16>) {
    for number in numbers {
        until("there is room", || {
            tape.drain();
            tape.advance().unwrap();
            tape.make_room(BODY)
        });
        receive_numbers(tape, number..number + 1);
    }
}

/// A recording of packets, which has ended.
fn recorded(
    archives: &Archives,
    archive: &Arc<Archive>,
    numbers: std::ops::Range<u16>,
) -> Recording {
    let (stream, member) = reserved(archives, archive);
    let mut tape = begun(&stream, archive, SDP, member);
    receive_as_written(&mut tape, numbers);
    tape.finish().unwrap();
    stream.close();
    archive.recording(None).unwrap()
}

#[test]
fn a_block_is_not_sealed_while_a_part_of_a_body_is_in_it() {
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    receive(&mut tape);
    tape.finish().unwrap();
    let client = archives.client().unwrap();
    let recording = archive.recording(None).unwrap();
    let mut packets = Vec::new();
    for serial in recording.first..recording.end {
        let bytes = archive.read_block(&client, serial).unwrap().unwrap();
        let block = Block::parse(&bytes).unwrap();
        for (entry, body) in (0..block.len()).filter_map(|number| block.packet(number)) {
            packets.push((entry.header[3], bytes[body].to_vec()));
        }
    }
    let expected: Vec<_> = (0..PACKETS)
        .map(|number| (number as u8, vec![number as u8; BODY]))
        .collect();
    assert!(packets == expected, "a packet is not what came");
}

/// Each packet of what is no picture is a key, of which sections name as many as there is room for: no more
/// are kept in memory, neither when a group is whole nor before.
#[test]
fn no_more_of_the_index_is_in_memory_than_on_the_disks() {
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    let block = Bytes::from_kib(64).get() as usize;
    let (in_section, in_group) = (keys_max(section_bytes_max(block)), keys_max(block));
    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    let (mut most, mut groups, mut next) = (0, 0, 0);
    while groups < 2 {
        until("there is room", || {
            tape.drain();
            tape.advance().unwrap();
            tape.make_room(BODY)
        });
        let filled = tape.fill(0, BODY, |out| {
            out[..BODY].fill(1);
            Ok(BODY)
        });
        assert_eq!(filled.unwrap(), BODY);
        let mut header = header(next);
        header[4..8].copy_from_slice(&u32::from(next).to_be_bytes());
        tape.packet(0, Kind::Rtp, &header, BODY);
        next += 1;
        let Some(recording) = archive.recording(None) else {
            continue;
        };
        if let Some(so_far) = archive.so_far(&recording) {
            most = most.max(so_far.keys.len());
        }
        groups = recording.end / GROUP;
    }
    // It would exceed both limits if all were kept.
    assert!(usize::from(next) > 2 * in_group, "{next}");
    assert!(most <= in_group + 100, "{most} of a group");
    let recording = archive.recording(None).unwrap();
    let before = archive.reads();
    for last in [GROUP - 1, 2 * GROUP - 1] {
        let section = archive.section(&client, &recording, last).unwrap().unwrap();
        let keys = section.keys.len();
        assert!((GROUP as usize..=in_section).contains(&keys), "{keys} keys");
    }
    assert_eq!(archive.reads(), before, "they are in memory");
    tape.finish().unwrap();
    stream.close();
}

/// A live recording is played from any time with one read, of the block of the start: the recorder knows that
/// block.
#[test]
fn a_time_in_the_group_that_is_being_recorded_is_found_without_reading() {
    const PICTURE: &[u8] =
        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
        m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/1000\r\n";
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, PICTURE, member);
    let client = archives.client().unwrap();
    // Frames of three packets, every fiftieth a key frame, in more blocks than a group has.
    let mut keys = Vec::new();
    let mut looked = 0;
    for number in 0..6_600_u16 {
        until("it is written", || {
            tape.drain();
            tape.advance().unwrap();
            tape.waiting() < 2 && tape.make_room(BODY)
        });
        let (frame, part) = (number / 3, number % 3);
        let mut body = [0; BODY];
        body[0] = if frame % 50 == 0 { 0x65 } else { 0x41 };
        let mut header = header(number);
        header[4..8].copy_from_slice(&(u32::from(frame) * 40).to_be_bytes());
        header[1] |= if part == 2 { 0x80 } else { 0 };
        if frame % 50 == 0 && part == 0 {
            keys.push(u64::from(frame) * 40_000_000);
        }
        let put = |out: &mut [u8]| {
            out.copy_from_slice(&body);
            Ok(BODY)
        };
        tape.fill(0, BODY, put).unwrap();
        tape.packet(0, Kind::Rtp, &header, BODY);
        let Some(recording) = archive.recording(None).filter(|of| of.end > of.first) else {
            continue;
        };
        if number % 97 != 0 {
            continue;
        }
        // The reads of DESCRIBE and SETUP.
        let extent = archive.extent(&client, &recording).unwrap();
        let group = (recording.end - 1) / GROUP * GROUP;
        let begins = archive
            .read_block(&client, group.max(recording.first))
            .unwrap()
            .unwrap();
        let begins = Block::parse(&begins).unwrap().trailer.media_ns;
        for at in [begins, (begins + extent.end) / 2, extent.end] {
            let before = archive.reads();
            let found = start_at(&archive, &client, &recording, at, 0, None).unwrap();
            let (reads, start) = (archive.reads() - before, found.start);
            // The section of an earlier group tells the time of its key frame.
            assert_eq!(reads, 0, "at {at} of {recording:?}");
            let bytes = archive.read_block(&client, start.serial).unwrap().unwrap();
            let block = Block::parse(&bytes).unwrap();
            let key = keys.iter().rfind(|key| extent.start + **key <= at).unwrap();
            assert_eq!(start.media_ns, extent.start + key, "of {recording:?}");
            let entry = block.packet(start.packet).unwrap().0;
            assert_eq!((entry.media_ns, entry.is_key), (start.media_ns, true));
            looked += u64::from(recording.end > GROUP);
        }
    }
    assert!(looked > 10, "a group was full before");
    tape.finish().unwrap();
}

/// A socket that packets come to, and the one that they come from.
fn by_udp() -> (UdpSocket, UdpSocket) {
    let near = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (here, there) = (near(), near());
    there.connect(here.local_addr().unwrap()).unwrap();
    here.set_nonblocking(true).unwrap();
    (here, there)
}

fn send(there: &UdpSocket, number: u16) {
    let mut packet = vec![number as u8; HEADER_BYTES + BODY];
    packet[..HEADER_BYTES].copy_from_slice(&header(number));
    there.send(&packet).unwrap();
}

/// By UDP nobody knows whether a packet follows before it is there.
fn receive_by_udp(tape: &mut RtpRecorder<'_>, count: u16) {
    let (here, there) = by_udp();
    for number in 0..count {
        send(&there, number);
        assert!(tape.has_room(true));
        assert!(tape.receive(&here, 0, Kind::Rtp).unwrap());
        // The receiver does this before it sleeps.
        assert!(tape.has_room(true));
        assert!(!tape.receive(&here, 0, Kind::Rtp).unwrap());
    }
    // An unrecorded packet is no successor.
    send(&there, count - 1);
    there.send(&[0x80]).unwrap();
    for _ in 0..2 {
        assert!(tape.has_room(true));
        assert!(tape.receive(&here, 0, Kind::Rtp).unwrap());
    }
    assert_eq!((tape.tally().duplicates, tape.tally().strangers), (1, 1));
}

/// A packet of which no more than a part comes is none.
fn receive_a_part(tape: &mut RtpRecorder<'_>) {
    assert!(tape.make_room(BODY));
    assert_eq!(tape.fill(0, BODY, |_| Ok(500)).unwrap(), 500);
}

/// The last block says that it is the last, and has a section of the index, also where the last packet fills it.
#[test]
fn a_block_that_is_full_may_be_the_last() {
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    for by_udp in [false, true] {
        let blocks = (82..94).map(|count| {
            let (stream, member) = reserved(&archives, &archive);
            let mut tape = begun(&stream, &archive, SDP, member);
            match by_udp {
                false => {
                    receive_numbers(&mut tape, 0..count);
                    receive_a_part(&mut tape);
                }
                true => receive_by_udp(&mut tape, count),
            }
            assert!(tape.has_room(true));
            tape.finish().unwrap();
            stream.close();
            let recording = archive.recording(None).unwrap();
            let mut packets = 0;
            for serial in recording.first..recording.end {
                let bytes = archive.read_block(&client, serial).unwrap().unwrap();
                let block = Block::parse(&bytes).unwrap();
                let is_last = serial + 1 == recording.end;
                let found = (block.trailer.is_last(), block.index().is_empty());
                assert_eq!(found, (is_last, !is_last), "{serial} of {recording:?}");
                packets += block.len();
            }
            assert_eq!(packets, usize::from(count));
            recording.end - recording.first
        });
        let blocks: Vec<u64> = blocks.collect();
        // Some of those before have no room for a packet of an unknown length.
        assert!(blocks.contains(&1) && blocks.contains(&2), "{blocks:?}");
    }
}

/// No room is kept in a block that may become the last one: where the packets have left none for the section
/// of its group it is known as long as the archive is open, and rebuilt when it is needed after that.
#[test]
fn a_section_that_the_last_block_has_no_room_for_is_rebuilt() {
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    let look = |serial| {
        let bytes = archive.read_block(&client, serial).unwrap().unwrap();
        let block = Block::parse(&bytes).unwrap();
        (block.trailer, block.len())
    };
    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    receive_as_written(&mut tape, 0..PACKETS);
    until("a block is written", || {
        tape.drain();
        tape.advance().unwrap();
        archive.recording(None).is_some()
    });
    let in_block = look(0).1;
    receive_as_written(&mut tape, PACKETS..41 * in_block as u16);
    tape.finish().unwrap();
    stream.close();
    let recording = archive.recording(None).unwrap();
    assert_eq!((recording.first, recording.end), (0, 41));
    let (last, packets) = look(40);
    assert_eq!((packets, last.is_last()), (in_block, true));
    assert!(!last.has_section());
    let begins_ns = look(recording.first).0.media_ns;
    let at = |archive: &Archive, client: &Client| {
        let outline = archive.outline(client, &recording).unwrap();
        let found: Vec<_> = outline.iter().map(|of| (of.first, of.begins_ns)).collect();
        assert_eq!(found, [(recording.first, begins_ns)]);
        let section = archive.index_at(client, &recording, begins_ns).unwrap();
        section.expect("what it says").records.clone()
    };
    let before = archive.reads();
    let known = at(&archive, &client);
    assert_eq!(archive.reads(), before, "it is kept");
    assert_eq!(known.len(), 41);
    drop((client, archive, archives));
    let (archives, archive) = opened(&rig);
    assert_eq!(at(&archive, &archives.client().unwrap()), known);
}

/// Notes about a recording without blocks are not taken for the next recording with its number.
#[test]
fn nothing_is_known_of_a_recording_that_begins() {
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    let before = recorded(&archives, &archive, 0..61 * 89);
    // The group ends with one of the next blocks.
    assert!((60..63).contains(&before.end), "{before:?}");

    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    receive_by_udp(&mut tape, 4 * 89);
    // The live recording has no block yet.
    assert_eq!(archive.recording(None), Some(before));
    assert!(archive.is_recorded() && !archive.goes_on(&before));
    drop(tape);
    stream.close();
    assert_eq!(archive.recording(None), Some(before));

    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    receive_numbers(&mut tape, 0..90);
    until("a block is written", || {
        tape.drain();
        tape.advance().unwrap();
        archive.recording(None) != Some(before)
    });
    let recording = archive.recording(None).unwrap();
    assert_eq!((recording.number, recording.first), (2, before.end));
    let bytes = archive.read_block(&client, recording.first).unwrap();
    let begins_ns = Block::parse(&bytes.unwrap()).unwrap().trailer.media_ns;
    let known = archive.so_far(&recording).unwrap();
    assert_eq!((known.records.len(), known.begins_ns()), (1, begins_ns));
    tape.finish().unwrap();
}

/// UDP packets that arrive after all packets before the end were received are not missing, nor are unreceived
/// ones if buffers were free and nothing behind them was dropped. Packets that waited for a buffer are
/// missing.
#[test]
fn packets_after_the_end_are_not_missing() {
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    for (is_starved, is_all, lost) in [(false, true, 0), (false, false, 0), (true, false, 2)] {
        let (stream, member) = reserved(&archives, &archive);
        let mut tape = begun(&stream, &archive, SDP, member);
        let (here, there) = by_udp();
        let mut number = 0;
        loop {
            send(&there, number);
            if number == PACKETS && !is_starved || !tape.has_room(true) {
                break;
            }
            assert!(tape.receive(&here, 0, Kind::Rtp).unwrap());
            number += 1;
        }
        send(&there, number + 1);
        let left = EndedSocket::now(&[(0, &here)]);
        left.iter().for_each(|of| tape.leave(of, is_all));
        let tally = tape.tally();
        assert_eq!(tally.packets, u64::from(number));
        assert_eq!((tally.lost, tally.lost_without_buffer), (lost, lost));
        tape.finish().unwrap();
        stream.close();
    }
}

/// Lines of the log meanwhile.
fn said_by(says: impl FnOnce()) -> String {
    let (mut log, said) = std::io::pipe().unwrap();
    let log_to = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(Mutex::new(said));
    tracing::subscriber::with_default(log_to.finish(), says);
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    text
}

/// If a socket was not emptied in time, each packet before the dropped ones is missing, by number and reason.
/// Packets behind them may have come after the end.
#[test]
fn packets_dropped_by_a_full_socket_are_missing() {
    const SENT: u16 = 200;
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    for received in [1, 30] {
        let (stream, member) = reserved(&archives, &archive);
        let mut tape = begun(&stream, &archive, SDP, member);
        let (here, there) = by_udp();
        setsockopt(&here, sockopt::RxqOvfl, &1).unwrap();
        setsockopt(&here, sockopt::RcvBuf, &65_536).unwrap();
        send(&there, 0);
        let mut receive = || {
            assert!(tape.has_room(true));
            assert!(tape.receive(&here, 0, Kind::Rtp).unwrap());
        };
        receive();
        (1..SENT).for_each(|number| send(&there, number));
        (1..received).for_each(|_| receive());
        if received > 1 {
            // For which there is room now: the kernel gives it back by quarters.
            send(&there, SENT);
        }
        let left = EndedSocket::now(&[(0, &here)]);
        let said = said_by(|| {
            left.iter().for_each(|of| tape.leave(of, false));
            assert_eq!(tape.tally().packets, u64::from(received));
            assert_eq!(tape.tally().lost, u64::from(SENT - received));
            tape.finish().unwrap();
        });
        // The host decides where it became full.
        let ranges: Vec<&str> = said.split("track 0: ").skip(1).collect();
        let [first, second] = ranges[..] else {
            panic!("{said}");
        };
        let numbers = |range: &str| -> Vec<u16> {
            let mut words = range.split(' ');
            [0, 1]
                .map(|at| words.nth(at).unwrap().parse().unwrap())
                .to_vec()
        };
        let (waited, dropped) = (numbers(first), numbers(second));
        assert_eq!((waited[0], dropped[1]), (received, SENT - 1), "{said}");
        assert_eq!(waited[1] + 1, dropped[0], "{said}");
        assert!(
            first.contains("the recording ended before they were received"),
            "{said}"
        );
        assert!(second.contains("the socket was full"), "{said}");
        stream.close();
    }
}

/// Blocks that expire during an examination are not damaged.
#[test]
fn expired_block_is_not_damaged() {
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    let recording = recorded(&archives, &archive, 0..9 * 89);
    assert!(recording.end >= 9, "{recording:?}");
    // After the first block was read.
    let examined = |act: &dyn Fn()| {
        let mut asked = 0;
        check(&archive, &client, &recording, || {
            asked += 1;
            if asked == 2 {
                act();
            }
            true
        })
    };
    let report = examined(&|| {}).unwrap().unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.blocks, recording.end);
    let keep = RetentionLimits {
        size: Some(Bytes::from_kib(4 * 64)),
        ..RetentionLimits::default()
    };
    let report = examined(&|| {
        archive.set_retention(&client, keep).unwrap();
        let (unix_ns, at) = (now_unix_ns(), clock::now());
        archive.expire(&client, Instant { unix_ns, at }).unwrap();
    });
    let report = report.unwrap().unwrap();
    let kept = archive.recording(None).unwrap();
    assert!(kept.first > 1, "{kept:?}");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.blocks, 1 + kept.end - kept.first);
    let error = examined(&|| {
        archive.delete(&client, recording.number).unwrap();
    });
    assert!(
        matches!(error, Err(ArchiveError::NoSuch { .. })),
        "{error:?}"
    );
}

/// Recordings that are too old or too large already, but not gone yet, are no reason to refuse limits that
/// release nothing more.
#[test]
fn only_what_goes_by_a_change_is_told() {
    const DAY: u64 = 86_400_000_000_000;
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    let recording = recorded(&archives, &archive, 0..9 * 89);
    assert!(recording.end > 8, "{recording:?}");
    let days_later = |days| Instant {
        unix_ns: now_unix_ns() + days * DAY,
        at: clock::now().saturating_add(Nanos(days * DAY)),
    };
    let told = |keep, days| archive.would_go(&client, keep, days_later(days)).unwrap();
    let old = |days| RetentionLimits {
        age: Some(Nanos(days * DAY)),
        ..RetentionLimits::default()
    };
    let all = Some(Bytes::from_kib(recording.end * 64));
    assert_eq!(told(old(2), 3), all);
    archive.set_retention(&client, old(2)).unwrap();
    // Nothing has looked for what is too old since.
    assert_eq!([told(old(2), 3), told(old(9), 3)], [None, None]);
    assert_eq!(told(old(1), 3), None);
    // That one is not too old yet.
    assert_eq!([told(old(2), 1), told(old(1), 1)], [None, all]);
    let much = |blocks: u64| RetentionLimits {
        size: Some(Bytes::from_kib(blocks * 64)),
        ..RetentionLimits::default()
    };
    archive.set_retention(&client, much(7)).unwrap();
    assert_eq!([told(much(7), 0), told(much(8), 0)], [None, None]);
    assert_eq!(told(much(5), 0), Some(Bytes::from_kib(2 * 64)));
}

/// A day is a day of what went by, whatever the wall clock says of it, as long as that can be known.
#[test]
fn recording_ages_by_elapsed_time() {
    const DAY: u64 = 86_400_000_000_000;
    const YEARS: u64 = 14 * 365 * DAY;
    let rig = Rig::new(&[("cam", 20)]);
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    let keep = RetentionLimits {
        age: Some(Nanos(DAY)),
        ..RetentionLimits::default()
    };
    archive.set_retention(&client, keep).unwrap();
    let expire = |unix_ns, later: u64| {
        let at = clock::now().saturating_add(Nanos(later));
        archive.expire(&client, Instant { unix_ns, at }).unwrap()
    };
    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    receive(&mut tape);
    until("a block is written", || {
        tape.advance().unwrap();
        archive.recording(None).is_some()
    });
    let now = now_unix_ns();
    // It began when the host did not know the time, and goes on when it does; or the reverse.
    for unix_ns in [now, now + YEARS, now - YEARS] {
        let next = expire(unix_ns, 0).unwrap();
        assert!(archive.is_there(1), "{unix_ns}");
        assert!(next.abs_diff(unix_ns + DAY) < DAY / 24, "{next} {unix_ns}");
    }
    // It is old when a day has passed, and nothing has come.
    expire(now + YEARS + DAY / 2, DAY / 2);
    assert!(archive.is_there(1));
    tape.finish().unwrap();
    stream.close();
    expire(now + YEARS + 2 * DAY, 2 * DAY);
    assert!(!archive.is_there(1));

    // One that is found says that it ends in years to come: it ended now, or when the next one began.
    for number in [2, 3] {
        let (stream, member) = reserved(&archives, &archive);
        let mut tape = begun(&stream, &archive, SDP, member);
        receive(&mut tape);
        tape.finish().unwrap();
        stream.close();
        assert!(archive.is_there(number));
    }
    let before = now - YEARS;
    let next = expire(before, 0).unwrap();
    assert!(archive.is_there(2) && next <= before + DAY, "{next}");
    assert!(archive.is_there(3));
    expire(now + 2 * DAY, 2 * DAY);
    assert!(!archive.is_there(2) && !archive.is_there(3));
}

/// A player that needs more than it has reserved, because the archive has grown, asks for the rest during
/// play. If that is refused, it ends with the reason: here the rest would need buffers for another disk.
#[test]
fn a_player_ends_where_what_the_archive_has_grown_by_is_refused() {
    const MIB: u64 = 1 << 20;
    let rig = Rig::new(&[]);
    let spec = VolumeSpec {
        name: "cam".into(),
        size: Bytes::from_mib(4),
        // Two MiB on one disk, and two on the other one.
        placement: Placement {
            run_extents: 2,
            ..Placement::default()
        },
    };
    rig.pool.create_volume(&spec).unwrap();
    let (archives, archive) = opened(&rig);
    let client = archives.client().unwrap();
    let (stream, member) = reserved(&archives, &archive);
    let mut tape = begun(&stream, &archive, SDP, member);
    receive_numbers(&mut tape, 0..45 * 85);
    tape.finish().unwrap();
    stream.close();
    let recording = archive.recording(None).unwrap();
    assert!(recording.end > 35, "{recording:?}");
    let stream = reserve(&archives, &archive, Op::Read, 65_536..2 * MIB, false);
    let manner = PlaybackTerms {
        scale: Scale::ONE,
        speed: Scale::ONE,
        until_ns: None,
        track: 0,
        clock_rates: vec![1_000],
    };
    let start = Start {
        serial: recording.first,
        ..Start::default()
    };
    let origin = Origin {
        at: engine::clock::now(),
        media_ns: 0,
    };
    let playback = Playback::new(
        &stream,
        &archive,
        &client,
        recording,
        start.into(),
        manner,
        origin,
    );
    let mut playback = playback.unwrap();
    let (mut played, mut ended) = (0, None);
    until("it ends", || {
        match playback.advance() {
            Ok(Upcoming::Packet { .. }) => {
                played += 1;
                playback.done();
            }
            Ok(Upcoming::Unread) => playback.reader().drain(),
            Ok(Upcoming::Nothing) => panic!("it has come to the end"),
            Err(error) => ended = Some(error),
        }
        ended.is_some()
    });
    let ended = ended.unwrap();
    assert!(matches!(ended, PlayError::Grown(_)), "{ended}");
    assert!(
        ended.to_string().contains("cannot extend the reservation"),
        "{ended}"
    );
    assert!(played > 20 * 85, "{played} packets before");
}
