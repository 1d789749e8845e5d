//! Streams that admission guarantees, and those that rules for the arm carry.

use std::num::NonZeroUsize;

use lab::channel::Discipline;
use lab::channel::drive::Drive;
use lab::video::guarantee::Bounds;
use lab::video::{Arm, Server};
use sched::units::{Bytes, Nanos};

const BUFFER: Bytes = Bytes::from_kib(512);

/// Four disks on channels of their own, under RT-WINDOW.
fn server(drive: &str) -> Server {
    let drive = Drive::built_in(drive).expect("it comes with the program");
    let server = Server {
        channels: 4,
        arm: Arm::RtWindow {
            window: NonZeroUsize::new(5).unwrap(),
            threshold: Nanos::from_millis(350),
        },
        discipline: Discipline::Fair { tokens: 2 },
        movies: 40,
        ..Server::of_the_paper(drive, 1)
    };
    server.with_buffer(BUFFER)
}

#[test]
fn nothing_that_is_guaranteed_is_late_on_the_drives_of_the_paper() {
    let seed = testkit::seed("what is guaranteed", None);
    for drive in ["hp-c2247", "ibm-dfhs"] {
        let server = server(drive);
        let promises = Bounds::ALL.map(|bounds| server.promise(bounds, BUFFER, seed));
        for (bounds, promise) in Bounds::ALL.iter().zip(&promises) {
            let name = bounds.name();
            assert!(promise.blocks > 0, "{drive} {name}");
            assert_eq!((promise.late, promise.overruns), (0, 0), "{drive} {name}");
            assert!(promise.share <= 1.0, "{drive} {name}: {}", promise.share);
        }
        let [bound, near, ..] = &promises;
        assert!(bound.mean() <= near.mean(), "{drive}");
    }
}

#[test]
fn streams_in_phase_make_the_window_late_at_a_load_that_it_carries() {
    let seed = testkit::seed("streams in phase", Some(1));
    let server = server("hp-c2247");
    let streams = 24;
    assert!(server.run(streams, seed, true).is_smooth());
    let found = server.in_phase(streams, seed);
    let fewest = found.fewest.expect("24 requests take longer than a second");
    assert!((2..=streams).contains(&fewest), "{fewest}");
    // A stream alone, or two, are never late.
    assert_eq!(server.in_phase(2, seed).fewest, None);
}

#[test]
fn streams_that_begin_at_once_ask_for_each_segment_once() {
    let seed = testkit::seed("streams that begin at once", None);
    let apart = Server {
        library: 1,
        ..server("hp-c2247")
    };
    let at_once = Server {
        think: Nanos::ZERO,
        ..apart.clone()
    };
    let requests = |server: &Server| server.run(10, seed, false).requests;
    assert_eq!(requests(&at_once), requests(&apart));
}
