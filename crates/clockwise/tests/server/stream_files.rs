//! The files that streams are recorded from and played to, and the numbers that say which part.

use std::process::Stdio;

use serde_json::json;
use testkit::process::Process;
use testkit::site::{Outcome, Site, clockwise, read};
use testkit::{pattern, until};

/// Earlier contents of a file.
const PRECIOUS: &[u8] = b"not to be lost";

#[test]
fn a_file_is_made_empty_only_for_a_stream_that_was_granted() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let precious = |name: &str| {
        std::fs::write(site.path(name), PRECIOUS).expect("a file");
        site.path(name).display().to_string()
    };
    let (out, log) = (precious("out"), precious("log.csv"));
    let new = site.path("new").display().to_string();
    let new_log = site.path("new.csv").display().to_string();
    let link = site.path("link").display().to_string();
    std::os::unix::fs::symlink(site.path("beyond"), &link).expect("a link");
    let play = |volume: &str, rate: &str, to: &str, log: &str| {
        let what = ["stream", "play", "--volume", volume, "--rate", rate];
        let how = ["--block", "64KiB", "--length", "64KiB"];
        let files = ["--to", to, "--blocks", log];
        site.run(&[&what[..], &how, &files].concat())
    };
    for (volume, rate, status) in [("v", "900GB/s", 3), ("none", "500KB/s", 2)] {
        play(volume, rate, &out, &log).fails(status, &[]);
        play(volume, rate, &new, &new_log).fails(status, &[]);
        for file in ["out", "log.csv"] {
            assert_eq!(read(&site.path(file)), PRECIOUS, "{file} after {volume}");
        }
        for file in ["new", "new.csv"] {
            assert!(!site.path(file).exists(), "{file} after {volume}");
        }
    }
    for (to, log) in [(&out, &log), (&new, &new_log), (&link, &log)] {
        play("v", "500KB/s", to, log).done();
        let played = read(std::path::Path::new(to));
        assert!(played == vec![0; 64 << 10], "{to}: {}", played.len());
        let lines = String::from_utf8(read(std::path::Path::new(log))).expect("text");
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(lines.starts_with("index,"), "{lines}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn the_account_of_blocks_does_not_go_where_the_bytes_are() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    std::fs::write(site.path("there"), PRECIOUS).expect("a file");
    std::os::unix::fs::symlink(site.path("there"), site.path("link")).expect("a link");
    let path = |name: &str| site.path(name).display().to_string();
    let stream = |way: [&str; 3], log: &str| {
        let [way, option, file] = way;
        let what = [
            "stream", way, "--volume", "v", "--rate", "500KB/s", "--length", "64KiB",
        ];
        let files = [option, file, "--block", "64KiB", "--blocks", log];
        site.run(&[&what[..], &files].concat())
    };
    for (file, log) in [("there", "there"), ("there", "link"), ("new", "new")] {
        let played = stream(["play", "--to", &path(file)], &path(log));
        played.fails(2, &["--to and --blocks name the same file", "another file"]);
    }
    let recorded = stream(["record", "--from", &path("there")], &path("link"));
    recorded.fails(2, &["--from and --blocks name the same file"]);
    assert_eq!(read(&site.path("there")), PRECIOUS);
    assert!(!site.path("new").exists());
    // Nothing is lost there.
    let nowhere = stream(["play", "--to", "/dev/null"], "/dev/null");
    assert!(!nowhere.err.contains("same file"), "{nowhere:?}");
    assert_eq!(server.terminate().0, Some(0));
}

/// Names that differ between command line and API stay apart.
#[test]
fn a_part_of_a_stream_that_cannot_be_is_told_by_its_option() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let play = |part: [&str; 4], words: &[&str]| {
        let what = ["stream", "play", "--volume", "v", "--rate", "1MB/s"];
        let how = ["--block", "64KiB", "--to", "/dev/null"];
        let refused = site.run(&[&what[..], &how, &part].concat());
        refused.fails(2, words);
        for member in ["_bytes", "_ms"] {
            assert!(!refused.err.contains(member), "{refused:?}");
        }
    };
    let range = ["--offset", "8MiB", "--length", "64KiB"];
    play(range, &["--offset and --length: the range is"]);
    let backwards = ["--starts-in", "2s", "--ends-in", "1s"];
    play(backwards, &["--ends-in: the stream would end"]);
    let far = ["--starts-in", "1000000h", "--ends-in", "1000001h"];
    play(far, &["--starts-in: ", "a hundred years"]);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_position_may_be_the_beginning() {
    let (site, server) = Site::serving(1);
    let made = site.json(&[
        "volume",
        "create",
        "v",
        "--size",
        "1MiB",
        "--from-byte",
        "0",
        "--to-byte",
        "64MiB",
    ]);
    assert_eq!(made["extents"], 1, "{made}");
    site.run(&["volume", "create", "w", "--size", "1MiB", "--to-byte", "0"])
        .fails(2, &["between 0 B and 0 B"]);
    let content = pattern(1, 64 << 10);
    std::fs::write(site.path("in"), &content).expect("a file");
    let [from, to] = ["in", "out"].map(|name| site.path(name).display().to_string());
    let common = [
        "--volume", "v", "--rate", "500KB/s", "--offset", "0", "--length", "64KiB",
    ];
    let [record, play] = [["record", "--from", &from], ["play", "--to", &to]];
    for way in [record, play] {
        let outcome = site.run(&[&["--json", "stream"][..], &way, &common].concat());
        // A machine that is busy may make blocks late.
        assert!(matches!(outcome.code, 0 | 1), "{outcome:?}");
        assert_eq!(outcome.json()["state"], json!("done"), "{outcome:?}");
    }
    assert!(read(&site.path("out")) == content, "other bytes");
    assert_eq!(server.terminate().0, Some(0));
}

/// Without a server: the numbers are looked at first.
#[test]
fn a_number_that_cannot_be_used_is_told_what_it_lacks() {
    let site = Site::new(1);
    let said = |arguments: &[&str], words: &[&str]| site.run(arguments).fails(2, words);
    said(&["stream", "rate", "1", "0"], &["`0` has no unit", "MB/s"]);
    said(
        &["status", "--watch", "--interval", "0"],
        &["`0` has no unit", "ms"],
    );
    said(&["stream", "rate", "1", "0MB/s"], &["it is zero"]);
    let whole = "`0.3` is not a whole number of seconds";
    let play = [
        "stream", "play", "--volume", "v", "--rate", "1MB/s", "--to", "-",
    ];
    said(&[&play[..], &["--seconds", "0.3"]].concat(), &[whole]);
    said(&["demo", "--seconds", "0.3"], &[whole]);
    said(&["demo", "--seconds", "86401"], &["86400 s, a day"]);
}

#[test]
fn recorder_reports_durable_bytes_when_the_server_is_gone() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let mut record = clockwise();
    record
        .arg("--config")
        .arg(site.config())
        .args([
            "stream",
            "record",
            "--volume",
            "v",
            "--from",
            "/dev/zero",
            "--wrap",
        ])
        .args(["--rate", "500KB/s", "--block", "64KiB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let recording = Process::spawn(&mut record);
    until("a block is recorded", || {
        site.json(&["stream", "list"])[0]["pace"]["blocks"].as_u64() > Some(0)
    });
    server.kill();
    let outcome = Outcome::from(recording.output());
    let words = [
        "recording ended early: ",
        " block",
        " had been recorded at its last answer",
    ];
    outcome.fails(1, &words);
}
