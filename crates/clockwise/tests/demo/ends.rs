//! However the demo ends, it says why and leaves nothing behind.
//!
//! Demos are brought to the moment that is meant by waiting for what they say.

use crate::support;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::terminal::{Terminal, on_a_terminal};
use crate::support::{Running, Scratch, SmallDisk, demo, ended, nothing_is_left};
use rustix::process::Signal;
use testkit::skip::have;

const LONG: [&str; 2] = ["--seconds", "60"];
const SHORT: [&str; 2] = ["--seconds", "1"];

/// The folder of a test's demos.
struct Stage {
    scratch: Scratch,
}

impl Stage {
    /// `None`, and the test is skipped, where there can be no demo.
    fn enter() -> Option<Self> {
        have("fio").then(|| Self {
            scratch: support::scratch(),
        })
    }

    fn path(&self) -> &Path {
        self.scratch.path()
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        demo(self.path(), arguments)
    }

    /// Runs a demo until it says `moment`, sends it a signal, and checks that it ends by that, cleanly.
    /// Returns what it said.
    #[track_caller]
    fn interrupted_at(&self, moment: &str, command: Command, signal: Signal) -> String {
        let mut running = Running::begin(command);
        running.until(moment);
        running.signal(signal);
        let (status, said) = running.end();
        let expected = 128 + signal.as_raw();
        assert_eq!(status.code(), Some(expected), "at {moment:?}: {said}");
        assert!(
            said.contains("interrupted; all files are removed"),
            "{said}"
        );
        nothing_is_left(self.path());
        said
    }
}

/// Interrupts one demo after another, each at its moment.
#[track_caller]
fn interrupted(moments: &[(&str, [&str; 2], Signal)]) {
    let Some(stage) = Stage::enter() else {
        return;
    };
    for (moment, length, signal) in moments {
        stage.interrupted_at(moment, stage.demo(length), *signal);
    }
}

#[test]
fn interrupted_while_it_prepares() {
    // While drives are made, clips recorded, files written.
    interrupted(&[
        ("Three emulated drives", LONG, Signal::INT),
        ("Creating volumes", LONG, Signal::TERM),
        ("Preparing the file load", LONG, Signal::INT),
    ]);
}

#[test]
#[ignore = "soak: a whole run for a rare moment of its end"]
fn interrupted_when_the_run_is_over() {
    interrupted(&[("Comparing the recordings", SHORT, Signal::INT)]);
}

/// On a terminal, where a picture shows how the drives stand.
#[test]
fn interrupted_in_the_run_beside_it_with_ctrl_c() {
    if !have("script") {
        return;
    }
    let Some(stage) = Stage::enter() else {
        return;
    };
    let mut demo = on_a_terminal(&stage.demo(&SHORT));
    let mut terminal = Terminal::begin(demo.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut pictures = 0;
    while pictures < 2 {
        let picture = terminal.picture();
        if !picture.contains("scheduler edf, ") {
            continue;
        }
        for word in [
            "best effort: ",
            "DRIVE",
            "PROMISED",
            "SLACK",
            "drive-0",
            "drive-2",
        ] {
            assert!(picture.contains(word), "no {word:?} in {picture:?}");
        }
        pictures += 1;
    }
    terminal.press(b"\x03");
    let (status, said) = terminal.end();
    assert_eq!(status.code(), Some(130), "{said}");
    let last = "interrupted; all files are removed";
    assert!(said.contains(last) && !said.contains("panicked"), "{said}");
    nothing_is_left(stage.path());
}

#[test]
fn interrupted_again_and_again_while_it_runs() {
    let Some(stage) = Stage::enter() else {
        return;
    };
    let mut running = Running::begin(stage.demo(&LONG));
    running.until("scheduler exact");
    running.signal(Signal::INT);
    // The first signal counts; the others change nothing of how it ends.
    running.until("cleaning up");
    running.signal(Signal::INT);
    running.until("Still cleaning up");
    running.signal(Signal::TERM);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(130), "{said}");
    nothing_is_left(stage.path());
}

#[test]
#[ignore = "soak: a whole run for a rare moment of its end"]
fn interrupted_while_nobody_reads_its_report() {
    let Some(stage) = Stage::enter() else {
        return;
    };
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    // The least that there is: the report does not fit.
    rustix::net::sockopt::set_socket_send_buffer_size(&theirs, 0).expect("a small buffer");
    let command = stage.demo(&["--seconds", "1", "--no-edf", "--json"]);
    let running = Running::begin_to(command, Stdio::from(OwnedFd::from(theirs)));
    let mut begun = [0];
    let read = (&ours).read(&mut begun).expect("a report begins");
    // Nobody reads on: it cannot come to its end.
    running.signal(Signal::TERM);
    let (status, said) = running.end();
    assert_eq!((read, status.code()), (1, Some(143)), "{said}");
    nothing_is_left(stage.path());
}

#[test]
fn interrupted_while_ffmpeg_makes_its_video() {
    if !have("ffmpeg") {
        return;
    }
    let Some(stage) = Stage::enter() else {
        return;
    };
    // A folder without video.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let inside = elsewhere.path().join("inside");
    std::fs::create_dir(&inside).expect("a folder");
    let mut command = stage.demo(&LONG);
    command.current_dir(inside).env_remove("CLOCKWISE_SHARED");
    let said = stage.interrupted_at("with ffmpeg", command, Signal::INT);
    // It did not wait for ffmpeg to finish and then go on.
    assert!(!said.contains("Three emulated drives"), "{said}");
}

#[test]
fn next_demo_removes_the_remains_of_a_killed_one() {
    let Some(stage) = Stage::enter() else {
        return;
    };
    let mut killed = Running::begin(stage.demo(&LONG));
    killed.until("scheduler exact");
    killed.kill();
    let left = std::fs::read_dir(stage.path()).expect("the folder");
    assert_eq!(left.count(), 1, "the folder of the killed demo");
    stage.interrupted_at("Three emulated drives", stage.demo(&LONG), Signal::INT);
}

/// A small disk where a demo can be. `None`, and the test is skipped, where there can be none.
fn small_disk(mib: u64) -> Option<SmallDisk> {
    have("fio").then(|| SmallDisk::new(mib)).flatten()
}

#[test]
fn too_little_room_is_said_before_it_begins() {
    let Some(disk) = small_disk(64) else {
        return;
    };
    let outcome = ended(demo(&disk.path(), &LONG));
    let name = disk.path().display().to_string();
    outcome.fails(1, &["free", "may write up to", "--scratch", &name]);
    nothing_is_left(&disk.path());
}

#[test]
fn a_disk_that_fills_up_meanwhile_is_named() {
    let Some(disk) = small_disk(6 << 10) else {
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
    nothing_is_left(&disk.path());
}
