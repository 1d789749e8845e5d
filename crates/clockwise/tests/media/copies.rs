//! Packets lie in one place between a socket and the disks, and no instruction of ours touches their bodies
//! there but to sum them up, and to copy them once for all live players: words of them are watched by the processor itself, so that a copy, by whichever
//! part of the server, is counted.

use std::io::{IoSlice, Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use testkit::{own_process, until};

use crate::served::Rig;
use crate::support::tape::{BODY, SDP, begun, header, opened, reserve, reserved};
use engine::stream::Stream;
use engine::testing::Watch;
use engine::volume_io::Client;
use media::archive::Archive;
use media::archive::block::Kind;
use media::archive::start::Start;
use media::play::{Origin, OutPacket, Playback, PlaybackTerms, Upcoming};
use media::record::RtpRecorder;
use media::rtp::packet::HEADER_BYTES;
use media::session::Scale;
use sched::request::Op;
use sched::units::Time;
use testkit::skip::skipped;

/// Packets of less than a block.
const PACKETS: u16 = 80;

/// The watched packets.
const WATCHED: [u16; 3] = [5, 40, 79];

/// The first whole word in a body that begins there, not far from its middle.
fn word(body: *const u8) -> usize {
    (body.addr() + BODY / 2).next_multiple_of(8)
}

/// Allowed accesses to a word of a body: its block's checksum.
const SUMS: u64 = 1;

/// Allowed accesses beside that when it is recorded: the copy for live players.
const COPIES: u64 = 1;

/// A packet's body, as it is sent.
fn body(number: u16) -> Vec<u8> {
    (0..BODY as u32)
        .map(|at| (at * 7 + u32::from(number)) as u8)
        .collect()
}

/// Watches a word in each of the bodies that lie one after another from there on.
fn watch(first: *const u8) -> std::io::Result<Watch> {
    let words = WATCHED.map(|number| word(first.wrapping_add(usize::from(number) * BODY)));
    Watch::new(&words)
}

/// Receives a body from a connection, where it stays; where that is.
fn receive(tape: &mut RtpRecorder<'_>, from: &mut UnixStream, number: u16) -> *const u8 {
    assert!(tape.make_room(BODY));
    let (mut filled, mut place) = (0, std::ptr::null());
    while filled < BODY {
        filled += tape
            .fill(filled, BODY, |out| {
                if filled == 0 {
                    place = out.as_ptr();
                }
                Ok(from.read(out)?)
            })
            .unwrap();
    }
    tape.packet(0, Kind::Rtp, &header(number), BODY);
    place
}

/// Records packets, all but the first by UDP or in the connection; how often what is watched was touched.
fn recorded(tape: &mut RtpRecorder<'_>, by_udp: bool) -> Watch {
    let (mut far, mut near) = UnixStream::pair().unwrap();
    let (here, there) = [(); 2]
        .map(|()| UdpSocket::bind("127.0.0.1:0").unwrap())
        .into();
    there.connect(here.local_addr().unwrap()).unwrap();
    here.set_nonblocking(true).unwrap();
    far.write_all(&body(0)).unwrap();
    let first = receive(tape, &mut near, 0);
    let watch = watch(first).unwrap();
    for number in 1..PACKETS {
        if by_udp {
            let packet = [&header(number)[..], &body(number)].concat();
            there.send(&packet).unwrap();
            assert!(tape.has_room(true));
            assert!(tape.receive(&here, 0, Kind::Rtp).unwrap());
        } else {
            // In two pieces.
            let bytes = body(number);
            far.write_all(&bytes[..300]).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| far.write_all(&bytes[300..]).unwrap());
                receive(tape, &mut near, number);
            });
        }
        tape.advance().unwrap();
    }
    watch
}

/// Plays packets to a peer that looks at each; how often a word of one of them was touched, and how many
/// blocks lay there.
fn played(playback: &mut Playback<'_>, count: u16) -> (u64, u64) {
    let (mut far, near) = UnixStream::pair().unwrap();
    let mut watched: Option<(usize, Watch)> = None;
    let (mut sent, mut blocks) = (0, 0);
    let mut came = vec![0; HEADER_BYTES + BODY];
    while sent < count {
        match playback.advance().unwrap() {
            Upcoming::Packet { .. } => {
                let put = |packets: &[OutPacket<'_>]| -> nix::Result<usize> {
                    let [OutPacket { header, body, .. }] = packets else {
                        panic!("{} packets", packets.len());
                    };
                    match &watched {
                        // The first block's bytes have been summed up.
                        None if sent == WATCHED[0] => {
                            let word = word(body.as_ptr());
                            watched = Some((word, Watch::new(&[word]).unwrap()));
                        }
                        Some((word, _)) => {
                            let body = body.as_ptr_range();
                            blocks +=
                                u64::from((body.start.addr()..body.end.addr()).contains(word));
                        }
                        None => {}
                    }
                    nix::sys::uio::writev(&near, &[IoSlice::new(header), IoSlice::new(body)])
                };
                let went = playback.with_due(Time::ZERO, 1, |_| true, put);
                assert_eq!(went.unwrap().unwrap(), Ok(came.len()));
                far.read_exact(&mut came).unwrap();
                assert!(came[HEADER_BYTES..] == body(sent));
                playback.done();
                sent += 1;
            }
            Upcoming::Unread => playback.reader().drain(),
            Upcoming::Nothing => panic!("it ends after {sent} packets"),
        }
    }
    let (_, watch) = watched.expect("something is watched");
    (watch.touched(), blocks)
}

fn player<'a>(stream: &'a Stream, archive: &'a Arc<Archive>, client: &'a Client) -> Playback<'a> {
    let recording = archive.recording(None).unwrap();
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
    Playback::new(
        stream,
        archive,
        client,
        recording,
        start.into(),
        manner,
        origin,
    )
    .unwrap()
}

#[test]
fn bodies_are_touched_by_nothing_but_their_blocks_sum() {
    own_process(|| {
        let rig = Rig::new(&[("cam", 20)]);
        let (archives, archive) = opened(&rig);
        if let Err(error) = watch(body(0).as_ptr()) {
            skipped(&format!("the host lets nobody watch memory: {error}"));
            return;
        }
        let client = archives.client().unwrap();
        for by_udp in [false, true] {
            let (stream, member) = reserved(&archives, &archive);
            let mut tape = begun(&stream, &archive, SDP, member);
            let watch = recorded(&mut tape, by_udp);
            let watched = WATCHED.len() as u64;
            assert_eq!(
                watch.touched(),
                COPIES * watched,
                "as it is received, by UDP: {by_udp}"
            );
            let (_, tally) = tape.finish().unwrap();
            assert_eq!(watch.touched(), (SUMS + COPIES) * watched);
            assert_eq!((tally.packets, tally.copied_bytes), (PACKETS.into(), 0));
            stream.close();
        }
        // Many blocks, each read into one of a few buffers.
        let (stream, member) = reserved(&archives, &archive);
        let mut tape = begun(&stream, &archive, SDP, member);
        let (mut far, mut near) = UnixStream::pair().unwrap();
        let count = 20 * PACKETS;
        for number in 0..count {
            far.write_all(&body(number)).unwrap();
            until("there is room", || {
                tape.drain();
                tape.advance().unwrap();
                tape.make_room(BODY)
            });
            receive(&mut tape, &mut near, number);
        }
        tape.finish().unwrap();
        stream.close();
        let stream = reserve(&archives, &archive, Op::Read, archive.range(), true);
        let mut playback = player(&stream, &archive, &client);
        let (touched, blocks) = played(&mut playback, count);
        assert!(blocks > 3, "{blocks} blocks lay where one is watched");
        assert_eq!(touched, SUMS * blocks, "as {blocks} blocks are played");
    });
}
