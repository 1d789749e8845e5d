//! A demo whose recording is damaged while it runs finds it, and says so.

use crate::support;
use std::process::{Command, Stdio};

use crate::support::{Running, demo, nothing_is_left};
use serde_json::Value;
use testkit::site::{clockwise, outcome};
use testkit::skip::have;
use testkit::until;

/// Bytes written over the recording: no video begins with them.
const DAMAGE: [u8; 4096] = [0xa5; 4096];

#[test]
fn a_recording_with_other_bytes_is_no_promise_kept() {
    if !have("fio") || !have("nbdcopy") {
        return;
    }
    let scratch = support::scratch();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let [report, damage] = ["report", "damage"].map(|name| elsewhere.path().join(name));
    std::fs::write(&damage, DAMAGE).expect("a file");
    let said = std::fs::File::create_new(&report).expect("a file for its report");
    let command = demo(scratch.path(), &["--seconds", "15", "--no-edf"]);
    let mut running = Running::begin_to(command, Stdio::from(said));
    running.until("Starting the streams");
    let folder = std::fs::read_dir(scratch.path())
        .expect("the folder")
        .next()
        .expect("that of the demo")
        .expect("it can be read")
        .path();
    // Only what has been recorded is not written over once more.
    until("the first block of a recording", || {
        let mut list = clockwise();
        list.args(["--json", "stream", "list", "--socket"]);
        let listed = outcome(list.arg(folder.join("api.sock")));
        let sessions = listed.done().json();
        let mut sessions = sessions.as_array().expect("a list").iter();
        sessions.any(|session: &Value| {
            session["stream"]["volume"] == "camera-0-exact"
                && session["pace"]["blocks"].as_u64() > Some(0)
        })
    });
    let uri = format!(
        "nbd+unix:///camera-0-exact?socket={}",
        folder.join("nbd.sock").display()
    );
    let mut copy = Command::new("nbdcopy");
    outcome(copy.arg("--flush").arg(&damage).arg(uri)).done();
    let (status, said) = running.end();
    nothing_is_left(scratch.path());
    let text = testkit::site::read_text(&report);
    assert_eq!(status.code(), Some(1), "{said}{text}");
    for words in [
        "NOT every promise was kept.",
        " DIFFER",
        "bytes differ from the recorded ones.",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}
