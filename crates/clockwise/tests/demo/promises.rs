//! The demo runs and keeps its promises, alone and beside another one.

use crate::support;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Running, demo, ended, may_mount, nothing_is_left};
use serde_json::Value;
use testkit::skip::have;

/// Length of a demo, in seconds, in which every program of its load ends at least once. An idle machine needs
/// three.
const LONG_ENOUGH: &str = "20";

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key} in {value:#}"))
}

fn share(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {value:#}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value[key].as_array();
    list.unwrap_or_else(|| panic!("no {key} in {value:#}"))
}

#[test]
#[ignore = "alone: a busy machine makes a demo miss deadlines"]
fn a_short_demo_keeps_its_promises_and_cleans_up() {
    if !have("fio") {
        return;
    }
    let scratch = support::scratch();
    let outcome = ended(demo(scratch.path(), &["--seconds", LONG_ENOUGH, "--json"]));
    nothing_is_left(scratch.path());
    assert!(!outcome.out.is_empty(), "{outcome:?}");
    let report = outcome.json();
    let [exact, edf] = list(&report, "phases") else {
        panic!("not two runs: {report:#}");
    };
    assert_eq!(
        (&exact["scheduler"], &edf["scheduler"]),
        (&"exact".into(), &"edf".into())
    );
    let may_mount = may_mount();
    for phase in [exact, edf] {
        assert_eq!(number(phase, "recorded"), 2);
        most_of_what_fits_is_promised(phase);
        one_more_is_refused(phase);
        all_bytes_are_right(phase);
        all_frames_are_right(phase);
        assert!(number(phase, "blocks") > 0, "{phase:#}");
        let latency = &phase["best_effort"];
        let [p50, p99, max] = ["p50_ns", "p99_ns", "max_ns"].map(|key| number(latency, key));
        assert!(0 < p50 && p50 <= p99 && p99 <= max, "{latency:#}");
        assert!(number(latency, "count") > 0, "{phase:#}");
        let load = &phase["file_load"];
        assert!(number(&load["nbd_reads"], "count") > 0, "{load:#}");
        assert_eq!(load["is_mounted"], may_mount, "{report:#}");
    }
    a_place_failed_and_nothing_was_lost(exact);
    let place = &exact["failing_place"];
    assert_eq!(number(place, "late_others"), 0, "{place:#}");
    assert_eq!(edf["failing_place"], Value::Null);
    // In the short run beside it no program need come to an end.
    if may_mount {
        let load = &exact["file_load"];
        for programs in ["clones", "archives"] {
            assert!(number(load, programs) > 0, "{programs}: {load:#}");
        }
        for requests in ["nbd_writes", "file_reads", "file_writes"] {
            assert!(number(&load[requests], "count") > 0, "{requests}: {load:#}");
        }
        assert_eq!(report["file_load_note"], Value::Null);
    }
    assert_eq!(number(exact, "misses"), 0, "{exact:#}");
    // The data lay in a folder of its own, which is gone.
    let lay = Path::new(report["scratch"].as_str().expect("a folder"));
    assert_eq!(lay.parent(), Some(scratch.path()));
    assert_eq!(report["scratch_is_kept"], false);
    it_says_that_the_profile_was_not_measured(&report);
    assert_eq!(report["is_kept"], true, "{report:#}");
    assert_eq!(outcome.code, 0);
}

/// Checks that the drives have promised about 80 % of what admission allows, whatever it is promised to.
#[track_caller]
fn most_of_what_fits_is_promised(phase: &Value) {
    let streams = number(phase, "recorded") + number(phase, "played");
    let cameras = number(phase, "cameras");
    let capacity = number(phase, "capacity");
    let disks = list(phase, "disks");
    let names: Vec<_> = disks.iter().map(|disk| &disk["name"]).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let most = 80 * capacity..80 * capacity + 100 * disks.len() as u64;
    if cameras == 0 {
        // Each drive's part is 80 % of what it carries, rounded up to whole streams.
        assert!(most.contains(&(100 * streams)), "{streams} of {capacity}");
    } else {
        // Cameras and players have taken something of that, and not most of it.
        assert!(
            streams + cameras < most.end / 100,
            "{streams} of {capacity}"
        );
        assert!(100 * streams > 50 * capacity, "{streams} of {capacity}");
    }
    for disk in disks {
        let promised = share(disk, "utilization_promised");
        assert!((0.76..=0.86).contains(&promised), "{disk:#}");
    }
}

/// Checks that the stream that is too much was refused for a reason, and told what would fit.
#[track_caller]
fn one_more_is_refused(phase: &Value) {
    let too_much = &phase["too_much"];
    let refusal = &too_much["refusal"];
    let disk = refusal["disk"].as_str().expect("a disk");
    let answer = too_much["answer"].as_str().expect("an answer");
    let by = refusal["refused_by"].as_str().expect("a reason");
    for word in [disk, by, "would fit"] {
        assert!(answer.contains(word), "no {word:?} in {answer}");
    }
    assert!(number(refusal, "short_by_ns") > 0, "{refusal:#}");
    assert!(number(refusal, "rate_that_fits") < number(too_much, "rate_bytes_per_second"));
    // Bandwidth that players over RTSP do not need is given back while they play.
    let may_change = if number(phase, "cameras") > 0 {
        0.05
    } else {
        0.0
    };
    let promised = share(&list(phase, "disks")[0], "utilization_promised");
    let changed = (share(refusal, "utilization") - promised).abs();
    assert!(changed <= may_change, "{promised}: {refusal:#}");
}

/// Checks that everything that was recorded and played was compared, and nothing differs.
#[track_caller]
fn all_bytes_are_right(phase: &Value) {
    assert!(number(phase, "played_bytes") > 0, "{phase:#}");
    assert_eq!(number(phase, "played_different"), 0, "{phase:#}");
    let recordings = list(phase, "recordings");
    assert_eq!(recordings.len(), 2, "{phase:#}");
    for recording in recordings {
        assert_eq!(number(recording, "different"), 0, "{phase:#}");
        assert!(number(recording, "bytes") > 1_000_000, "{phase:#}");
    }
}

/// Checks that a place failed under a recording, and that all that was to be written there is elsewhere. The
/// place fails for reads too, so nothing of it was compared there.
#[track_caller]
fn a_place_failed_and_nothing_was_lost(phase: &Value) {
    let place = &phase["failing_place"];
    assert_eq!(place["volume"], list(phase, "recordings")[0]["volume"]);
    for some in ["bytes", "failed_writes", "extents_left", "blocks"] {
        assert!(number(place, some) > 0, "{some}: {place:#}");
    }
    for none in ["lost_blocks", "different"] {
        assert_eq!(number(place, none), 0, "{none}: {place:#}");
    }
    assert!(
        number(place, "late_again") <= number(place, "failed_writes"),
        "{place:#}"
    );
}

/// Checks that cameras recorded over RTSP and what they recorded was played, each frame as it was published.
#[track_caller]
fn all_frames_are_right(phase: &Value) {
    if !have("ffmpeg") {
        assert_eq!(phase["filmed"], Value::Null);
        return;
    }
    // All who record but two streams of bytes.
    let cameras = number(phase, "cameras");
    assert_eq!(cameras, 9, "{phase:#}");
    let filmed = &phase["filmed"];
    for some in ["blocks", "promised_bytes_per_second"] {
        assert!(number(filmed, some) > cameras, "{filmed:#}");
    }
    // They run at 25 frames a second, longer than is measured, but for what is in the blocks that are on their way.
    let seconds = share(phase, "seconds") as u64;
    for frames in ["recorded_frames", "played_frames"] {
        assert!(
            number(filmed, frames) > cameras * 25 * seconds / 2,
            "{filmed:#}"
        );
    }
    for wrong in ["recorded_different", "played_different"] {
        assert_eq!(number(filmed, wrong), 0, "{filmed:#}");
    }
}

/// Checks that the report says of each drive that its profile is a guess.
#[track_caller]
fn it_says_that_the_profile_was_not_measured(report: &Value) {
    let warnings = list(report, "warnings").iter();
    let mut of_profile = warnings.filter(|warning| {
        let what = warning["what"].as_str().expect("words");
        what.contains("was not measured on this disk")
    });
    let warning = of_profile
        .next()
        .unwrap_or_else(|| panic!("no word of it: {report:#}"));
    assert_eq!(of_profile.next(), None);
    let disks = list(&report["phases"][0], "disks");
    let names: Vec<_> = disks.iter().map(|disk| disk["name"].clone()).collect();
    assert_eq!(warning["concerns"], Value::from(names));
    for disk in disks {
        assert_eq!(disk["profile_is_measured"], false, "{disk:#}");
        let profile = disk["profile"].as_str().expect("a name");
        assert!(warning["what"].as_str().expect("words").contains(profile));
    }
}

#[test]
#[ignore = "soak: two whole runs, on a machine without other load"]
fn two_demos_at_once_keep_out_of_each_others_way() {
    if !have("fio") {
        return;
    }
    let scratch = support::scratch();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let reports = ["one", "other"].map(|name| elsewhere.path().join(name));
    let begin = |report: &Path| {
        let report = std::fs::File::create_new(report).expect("a file for its report");
        let command = demo(scratch.path(), &["--seconds", "5", "--no-edf"]);
        Running::begin_to(command, Stdio::from(report))
    };
    let mut demos = [begin(&reports[0]), begin(&reports[1])];
    for demo in &mut demos {
        // By now it has its folder, its pool, its sockets and its mount.
        demo.until("Starting the streams");
    }
    let folders = std::fs::read_dir(scratch.path()).expect("the folder");
    assert_eq!(folders.count(), 2);
    for (demo, report) in demos.into_iter().zip(reports) {
        let (status, said) = demo.end();
        assert_eq!(status.code(), Some(0), "{said}");
        let text = String::from_utf8(testkit::site::read(&report)).expect("text");
        let lay = format!("in {}/", scratch.path().display());
        let unmeasured = "was not measured on this disk; the promises rely on it (all 3 disks)";
        for words in ["The data lay on", &lay, "emulated drives", unmeasured] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        its_table_says_that_all_is_well(&text);
    }
    nothing_is_left(scratch.path());
}

/// Checks what people read at the end of a demo of 5 s that kept its promises.
#[track_caller]
fn its_table_says_that_all_is_well(text: &str) {
    let rows = |name: &'static str| {
        let rows = text.lines().map(str::trim);
        // A row has two spaces behind its name; a line of prose may begin with the same word.
        rows.filter_map(move |row| row.strip_prefix(name)?.strip_prefix("  "))
            .map(str::trim)
            .collect::<Vec<_>>()
    };
    let only = |name| match rows(name)[..] {
        [row] => row,
        ref rows => panic!("{name}: {rows:?} in {text}"),
    };
    assert_eq!(only("measured for"), "5 s");
    assert!(
        only("promised to streams of bytes").ends_with(" MB/s"),
        "{text}"
    );
    // In brackets are those that were late because the host was.
    let missed = only("DEADLINES MISSED").split(' ').next();
    assert_eq!(missed, Some("0"), "{text}");
    assert_eq!(rows("every byte compared"), ["all right"; 2], "{text}");
    assert_eq!(
        only("every byte of the recording compared"),
        "all right",
        "{text}"
    );
    let number = |name| only(name).parse::<u64>().expect("a number");
    assert!(
        number("writes that failed there and were made elsewhere") > 0,
        "{text}"
    );
    assert_eq!(number("blocks lost"), 0, "{text}");
    for moved in ["recorded", "played"] {
        let (amount, unit) = only(moved).split_once(' ').expect("a size");
        assert!(
            amount.parse::<f64>().is_ok_and(|amount| amount > 0.0),
            "{text}"
        );
        assert!(unit.ends_with("iB"), "{text}");
    }
    let mut last = text.trim_end().lines().rev().take(3);
    assert!(
        last.any(|line| line.starts_with("Every deadline promised under exact was met")),
        "{text}"
    );
    assert!(
        text.contains("No block was lost where a place of drive-0 failed: "),
        "{text}"
    );
}

#[test]
fn without_root_the_file_load_goes_through_nbd_and_that_is_said() {
    if !have("fio") {
        return;
    }
    let scratch = support::scratch();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut command = demo(scratch.path(), &["--seconds", "1", "--no-edf", "--json"]);
    if rustix::process::geteuid().is_root() {
        // A place where anybody may run it, wherever this was built.
        let program = elsewhere.path().join("clockwise");
        std::fs::copy(env!("CARGO_BIN_EXE_clockwise"), &program).expect("a copy");
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(elsewhere.path(), everybody).expect("permissions");
        chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("an owner");
        let mut other = Command::new(command.get_program());
        let arguments = command.get_args().skip(1);
        other.arg(program).args(arguments).env("NO_COLOR", "1");
        command = other;
        command
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir(elsewhere.path());
    }
    goes_through_nbd(command, scratch.path(), "no root");
}

/// Runs a demo that cannot mount anything for a `reason`, and checks that it says so and shows the rest.
#[track_caller]
fn goes_through_nbd(command: Command, scratch: &Path, reason: &str) {
    let outcome = ended(command);
    nothing_is_left(scratch);
    assert!(!outcome.out.is_empty(), "{outcome:?}");
    let report = outcome.json();
    let note = report["file_load_note"].as_str().unwrap_or_default();
    let (_, said) = note
        .split_once("instead of a mounted ext4: ")
        .unwrap_or_default();
    assert!(said.contains(reason) && said.ends_with('.'), "{note}");
    // Without real-time threads a busy host may make blocks late; what was moved is right even so.
    let phase = &report["phases"][0];
    assert_eq!(phase["file_load"]["is_mounted"], false, "{phase:#}");
    assert_eq!(phase["played_different"], 0, "{phase:#}");
    a_place_failed_and_nothing_was_lost(phase);
    for count in ["nbd_reads", "nbd_writes"] {
        let count = phase["file_load"][count]["count"].as_u64();
        assert!(count.is_some_and(|count| count > 0), "{phase:#}");
    }
}

/// As in a container with the devices of its host: root sees all that is needed, and may not use it.
#[test]
fn denied_mount_moves_the_file_load_to_nbd_with_a_notice() {
    if !have("fio") || !have("setpriv") || !may_mount() {
        return;
    }
    let scratch = support::scratch();
    let demo = demo(scratch.path(), &["--seconds", "1", "--no-edf", "--json"]);
    let mut denied = Command::new("setpriv");
    denied
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
        .arg(demo.get_program())
        .args(demo.get_args())
        .env("NO_COLOR", "1");
    goes_through_nbd(denied, scratch.path(), "mount failed");
}
