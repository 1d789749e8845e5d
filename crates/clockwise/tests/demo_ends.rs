//! However the demo ends, it says why and leaves nothing behind.
//!
//! Demos are brought to the moment that is meant by waiting for what they say. Two of these tests
//! run at a time: a demo takes a gigabyte or two of memory.

mod common;
mod demo_support;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::Outcome;
use common::skip::have;
use demo_support::{Running, SmallDisk, demo, nothing_is_left};
use rustix::process::Signal;

static LANES: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

fn lane(number: usize) -> MutexGuard<'static, ()> {
    LANES[number].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a demo until it says `moment`, sends it a signal, and checks that it ends by that, cleanly.
/// Returns what it said.
#[track_caller]
fn interrupted_at(moment: &str, scratch: &Path, command: Command, signal: Signal) -> String {
    let mut running = Running::begin(command);
    running.until(moment);
    running.signal(signal);
    let (status, said) = running.end();
    let expected = 128 + signal.as_raw();
    assert_eq!(status.code(), Some(expected), "at {moment:?}: {said}");
    assert!(
        said.contains("interrupted; nothing is left behind"),
        "{said}"
    );
    nothing_is_left(scratch);
    said
}

const LONG: [&str; 2] = ["--seconds", "60"];
const SHORT: [&str; 2] = ["--seconds", "1"];

#[test]
fn interrupted_while_it_prepares() {
    let _lane = lane(0);
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    interrupted_at(
        "Three emulated drives",
        scratch.path(),
        demo(scratch.path(), &LONG),
        Signal::INT,
    );
    // While clips are recorded, and while files are written.
    interrupted_at(
        "Making volumes",
        scratch.path(),
        demo(scratch.path(), &LONG),
        Signal::TERM,
    );
    interrupted_at(
        "Preparing the file load",
        scratch.path(),
        demo(scratch.path(), &LONG),
        Signal::INT,
    );
}

#[test]
fn interrupted_again_and_again_while_it_runs() {
    let _lane = lane(1);
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    let mut running = Running::begin(demo(scratch.path(), &LONG));
    running.until("scheduler exact");
    running.signal(Signal::INT);
    // The first signal counts; the others change nothing of how it ends.
    running.until("taking everything down");
    running.signal(Signal::INT);
    running.until("Still taking everything down");
    running.signal(Signal::TERM);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(130), "{said}");
    nothing_is_left(scratch.path());
}

#[test]
fn interrupted_when_the_run_is_over() {
    let _lane = lane(0);
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    interrupted_at(
        "Comparing what was recorded",
        scratch.path(),
        demo(scratch.path(), &SHORT),
        Signal::INT,
    );
}

#[test]
fn interrupted_in_the_run_beside_it() {
    let _lane = lane(1);
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    interrupted_at(
        "scheduler edf, ",
        scratch.path(),
        demo(scratch.path(), &SHORT),
        Signal::TERM,
    );
}

#[test]
fn interrupted_while_nobody_reads_its_report() {
    let _lane = lane(0);
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    // The least that there is: the report does not fit.
    rustix::net::sockopt::set_socket_send_buffer_size(&theirs, 0).expect("a small buffer");
    let command = demo(scratch.path(), &["--seconds", "1", "--no-edf", "--json"]);
    let running = Running::begin_to(command, Stdio::from(OwnedFd::from(theirs)));
    let mut begun = [0];
    let read = (&ours).read(&mut begun).expect("a report begins");
    // Nobody reads on: it cannot come to its end.
    running.signal(Signal::TERM);
    let (status, said) = running.end();
    assert_eq!((read, status.code()), (1, Some(143)), "{said}");
    nothing_is_left(scratch.path());
}

#[test]
fn interrupted_while_ffmpeg_makes_its_video() {
    let _lane = lane(1);
    if !have("fio") || !have("ffmpeg") {
        return;
    }
    let scratch = demo_support::scratch();
    // Where there is no video to be found.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let inside = elsewhere.path().join("inside");
    std::fs::create_dir(&inside).expect("a folder");
    let mut command = demo(scratch.path(), &LONG);
    command.current_dir(inside).env_remove("CLOCKWISE_SHARED");
    let said = interrupted_at("with ffmpeg", scratch.path(), command, Signal::INT);
    // It did not wait for ffmpeg to be done and then go on.
    assert!(!said.contains("Three emulated drives"), "{said}");
}

#[test]
fn what_a_killed_demo_leaves_the_next_one_takes_down() {
    let _lane = lane(1);
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    let mut killed = Running::begin(demo(scratch.path(), &LONG));
    killed.until("scheduler exact");
    killed.kill();
    let left = std::fs::read_dir(scratch.path()).expect("the folder");
    assert_eq!(left.count(), 1, "the folder of the killed demo");
    let next = demo(scratch.path(), &LONG);
    interrupted_at("Three emulated drives", scratch.path(), next, Signal::INT);
}

#[test]
fn too_little_room_is_said_before_it_begins() {
    if !have("fio") {
        return;
    }
    let Some(disk) = SmallDisk::new(64) else {
        return;
    };
    let outcome: Outcome = demo(&disk.path(), &LONG).output().expect("it runs").into();
    let name = disk.path().display().to_string();
    outcome.fails(1, &["free", "may write up to", "--scratch", &name]);
    nothing_is_left(&disk.path());
}

#[test]
fn a_disk_that_fills_up_meanwhile_is_named() {
    let _lane = lane(0);
    if !have("fio") {
        return;
    }
    let Some(disk) = SmallDisk::new(6 << 10) else {
        return;
    };
    let mut running = Running::begin(demo(&disk.path(), &LONG));
    running.until("scheduler exact, ");
    disk.fill();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(1), "{said}");
    let name = disk.path().display().to_string();
    for word in [&name, "is full", "--scratch"] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    nothing_is_left(&disk.path());
}
