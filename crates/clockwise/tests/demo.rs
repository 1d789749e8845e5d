//! The demo runs and keeps its promises, alone and beside another one.

mod common;
mod demo_support;

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::Outcome;
use common::skip::have;
use demo_support::{Running, demo, nothing_is_left};

/// Who measures wants to be alone.
static ALONE: Mutex<()> = Mutex::new(());

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_short_demo_keeps_its_promises_and_cleans_up() {
    let _alone = alone();
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
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

#[test]
fn two_demos_at_once_keep_out_of_each_others_way() {
    let _alone = alone();
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    let begin = || Running::begin(demo(scratch.path(), &["--seconds", "5", "--no-edf"]));
    let mut demos = [begin(), begin()];
    for demo in &mut demos {
        // By now it has its folder, its pool, its sockets and its mount.
        demo.until("Starting the streams");
    }
    let folders = std::fs::read_dir(scratch.path()).expect("the folder");
    assert_eq!(folders.count(), 2);
    for demo in demos {
        let (status, said) = demo.end();
        assert_eq!(status.code(), Some(0), "{said}");
    }
    nothing_is_left(scratch.path());
}

#[test]
fn without_root_the_file_load_goes_through_nbd_and_that_is_said() {
    let _alone = alone();
    if !have("fio") {
        return;
    }
    let scratch = demo_support::scratch();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut command = demo(scratch.path(), &["--seconds", "1", "--no-edf", "--json"]);
    if rustix::process::geteuid().is_root() {
        // Where anybody may run it, wherever this was built.
        let program = elsewhere.path().join("clockwise");
        std::fs::copy(command.get_program(), &program).expect("a copy");
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(elsewhere.path(), everybody).expect("permissions");
        chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("an owner");
        let mut other = Command::new(program);
        other.args(command.get_args()).env("NO_COLOR", "1");
        command = other;
        command
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir(elsewhere.path());
    }
    let outcome: Outcome = command.output().expect("it runs").into();
    nothing_is_left(scratch.path());
    assert!(!outcome.out.is_empty(), "{outcome:?}");
    let report = outcome.json();
    let note = report["file_load_note"].as_str().unwrap_or_default();
    assert!(
        note.ends_with("instead of a mounted ext4: no root."),
        "{note}"
    );
    // Without real-time threads a busy host may make blocks late; what was moved is right even so.
    let phase = &report["phases"][0];
    assert_eq!(phase["file_load"]["is_mounted"], false, "{phase:#}");
    assert_eq!(phase["played_different"], 0, "{phase:#}");
    for count in ["nbd_reads", "nbd_writes"] {
        let count = phase["file_load"][count]["count"].as_u64();
        assert!(count.is_some_and(|count| count > 0), "{phase:#}");
    }
}
