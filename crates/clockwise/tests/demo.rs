//! The demo runs, keeps its promises, and leaves nothing behind, however it ends.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use common::{Outcome, clockwise};
use rustix::process::Signal;

/// One demo at a time: two would measure each other.
static ALONE: Mutex<()> = Mutex::new(());

fn has_fio() -> bool {
    let is_here = Command::new("fio").arg("--version").output().is_ok();
    if !is_here {
        println!("skipped: there is no fio; `make setup` brings it");
    }
    is_here
}

fn demo(scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = clockwise();
    command
        .args(["demo", "--scratch"])
        .arg(scratch)
        .args(arguments);
    command
}

/// Ends the demo however the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already when all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that nothing on this machine names the folder any more, and that it is empty.
#[track_caller]
fn nothing_is_left(scratch: &Path) {
    let name = scratch.display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("/proc");
    assert!(!mounts.contains(&name), "a mount is left: {mounts}");
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let is_own = entry.file_name().to_string_lossy() == std::process::id().to_string();
        assert!(
            is_own || !command.contains(&name),
            "a process is left: {command}"
        );
    }
    for entry in std::fs::read_dir("/sys/block").expect("/sys").flatten() {
        let file =
            std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        assert!(!file.contains(&name), "a loop device is left: {file}");
    }
    let left: Vec<_> = std::fs::read_dir(scratch)
        .expect("the folder")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(left.is_empty(), "files are left: {left:?}");
}

#[test]
fn a_short_demo_keeps_its_promises_and_cleans_up() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !has_fio() {
        return;
    }
    let scratch = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let outcome: Outcome = demo(scratch.path(), &["--seconds", "5", "--json"])
        .output()
        .expect("it runs")
        .into();
    nothing_is_left(scratch.path());
    assert!(!outcome.out.is_empty(), "{outcome:?}");
    let report = outcome.json();
    let phases = report["phases"].as_array().expect("phases");
    assert_eq!(phases.len(), 2, "{report:#}");
    for phase in phases {
        let number = |key: &str| {
            phase[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key}: {phase:#}"))
        };
        assert_eq!(number("recorded"), 2);
        assert!(
            number("played") >= 4 && number("capacity") > number("recorded") + number("played"),
            "{phase:#}"
        );
        assert!(
            number("blocks") > 0 && number("played_bytes") > 0,
            "{phase:#}"
        );
        assert_eq!(number("played_different"), 0, "{phase:#}");
        assert_eq!(number("misses"), 0, "{phase:#}");
        assert!(
            phase["best_effort"]["count"]
                .as_u64()
                .is_some_and(|count| count > 0),
            "{phase:#}"
        );
        assert!(
            phase["file_load"]["nbd_reads"]["count"]
                .as_u64()
                .is_some_and(|count| count > 0),
            "{phase:#}"
        );
        assert!(
            phase["too_much"]["refusal"]["refused_by"].is_string(),
            "{phase:#}"
        );
        for recording in phase["recordings"].as_array().expect("recordings") {
            assert_eq!(recording["different"], 0, "{phase:#}");
            assert!(
                recording["bytes"]
                    .as_u64()
                    .is_some_and(|bytes| bytes > 1_000_000),
                "{phase:#}"
            );
        }
    }
    assert_eq!(report["is_kept"], true, "{report:#}");
    assert_eq!(outcome.code, 0);
}

/// Begins a demo, and returns it when it has said `moment`.
fn begun(scratch: &Path, moment: &str) -> (Running, impl Iterator<Item = String> + use<>) {
    let mut command = demo(scratch, &["--seconds", "60"]);
    let mut running = Running(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs"),
    );
    let errors = running.0.stderr.take().expect("its errors are piped");
    let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
    let mut seen = String::new();
    loop {
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("no {moment:?} in {seen}"));
        seen += &line;
        if line.contains(moment) {
            return (running, lines);
        }
    }
}

fn signal(running: &Running, signal: Signal) {
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, signal).expect("it is there");
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !has_fio() {
        return;
    }
    let scratch = tempfile::tempdir_in("/var/tmp").expect("a folder");
    // Before anything runs, while things are made, when streams begin, and in the middle of the run.
    for (moment, by, code) in [
        ("Three emulated drives", Signal::INT, 130),
        ("Making volumes", Signal::TERM, 143),
        ("Admission allows", Signal::INT, 130),
        ("scheduler exact", Signal::TERM, 143),
    ] {
        let (mut running, rest) = begun(scratch.path(), moment);
        signal(&running, by);
        let rest: Vec<String> = rest.collect();
        let status = running.0.wait().expect("it ends");
        assert_eq!(status.code(), Some(code), "at {moment:?}: {rest:?}");
        nothing_is_left(scratch.path());
    }
}

#[test]
fn what_a_killed_demo_leaves_the_next_one_takes_down() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !has_fio() {
        return;
    }
    let scratch = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let (mut running, rest) = begun(scratch.path(), "scheduler exact");
    signal(&running, Signal::KILL);
    // Its programs hold the other end of the pipe until they have ended too.
    drop(rest);
    running.0.wait().expect("it ends");
    let left = std::fs::read_dir(scratch.path()).expect("the folder");
    assert_eq!(left.count(), 1, "the folder of the killed demo");
    let (mut next, rest) = begun(scratch.path(), "Three emulated drives");
    signal(&next, Signal::INT);
    rest.for_each(drop);
    assert_eq!(next.0.wait().expect("it ends").code(), Some(130));
    nothing_is_left(scratch.path());
}

#[test]
fn too_little_room_is_said_before_it_begins() {
    if !has_fio() {
        return;
    }
    let scratch = tempfile::tempdir_in("/var/tmp").expect("a folder");
    // A day of recording is more than any disk that this runs on.
    let outcome: Outcome = demo(scratch.path(), &["--seconds", "86400", "--no-edf"])
        .output()
        .expect("it runs")
        .into();
    let name = scratch.path().display().to_string();
    outcome.fails(1, &["free", "may write up to", "--scratch", &name]);
    nothing_is_left(scratch.path());
}
