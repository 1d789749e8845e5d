//! On a terminal: what takes long shows that it is at work. And for programs: every command's result is
//! one JSON value.

mod common;

use std::process::{Command, Stdio};

use common::skip::{have, is_root};
use common::{Outcome, Site, noise};
use serde_json::Value;

/// Runs a command on a terminal of its own, by `script`; what it showed there.
fn shown(site: &Site, arguments: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_clockwise");
    let quoted: Vec<String> = arguments.iter().map(|part| format!("'{part}'")).collect();
    let line = format!(
        "'{program}' --config '{}' {}",
        site.config().display(),
        quoted.join(" ")
    );
    let output = Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &line,
            "/dev/null",
        ])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let outcome = Outcome::from(output);
    assert_eq!(outcome.code, 0, "{arguments:?}: {outcome:?}");
    outcome.out
}

#[test]
fn what_takes_long_shows_that_it_is_at_work() {
    if !have("script") {
        return;
    }
    let site = Site::new(2);
    let at_work = |arguments: &[&str], words: &[&str]| {
        let text = shown(&site, arguments);
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text:?}");
        }
        // It is gone when the result is there.
        assert!(text.contains("\u{1b}["), "{text:?}");
    };
    at_work(&["pool", "create"], &["making the pool"]);
    at_work(&["pool", "check"], &["examining the pool", "sound"]);
    let server = site.serve();
    at_work(
        &["volume", "create", "v", "--size", "8MiB"],
        &["making the volume"],
    );
    at_work(
        &["volume", "grow", "v", "--size", "16MiB"],
        &["growing the volume"],
    );
    at_work(
        &["volume", "shrink", "v", "--size", "8MiB"],
        &["shrinking the volume"],
    );
    let disk = site.path("disk-1").display().to_string();
    at_work(
        &["volume", "move", "v", "--disk", &disk],
        &["moving extents"],
    );
    std::fs::write(site.path("in"), noise(1, 400_000)).expect("a file");
    let from = site.path("in").display().to_string();
    let stream = ["--volume", "v", "--rate", "400KB/s", "--block", "64KiB"];
    let record = [&["stream", "record", "--from", &from][..], &stream].concat();
    at_work(&record, &["recording", "KB/s", "blocks"]);
    let limited = ["--to", "/dev/null", "--seconds", "1"];
    let play = [&["stream", "play"][..], &stream, &limited].concat();
    at_work(&play, &["playing", "/390.62 KiB"]);
    at_work(&["volume", "delete", "v"], &["deleting the volume"]);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn nothing_of_that_goes_to_programs_or_files() {
    let site = Site::new(1);
    let made = site.run(&["pool", "create"]).done();
    assert_eq!(made.err, "");
    let checked = site.run(&["--json", "pool", "check"]).done();
    assert_eq!(checked.err, "");
}

/// One JSON value and nothing else.
fn value(outcome: Outcome) -> Value {
    assert_eq!(outcome.err, "");
    outcome.done().json()
}

#[test]
fn every_commands_result_is_json_for_programs() {
    let site = Site::new(2);
    let json = |arguments: &[&str]| value(site.run(&[&["--json"], arguments].concat()));
    assert_eq!(json(&["pool", "create"])["disks"], 2);
    assert_eq!(json(&["pool", "check"])["volumes"], 0);
    let serve = site.serve();
    assert_eq!(json(&["pool", "show"])["name"], "test");
    assert_eq!(json(&["disk", "show"]).as_array().map(Vec::len), Some(2));
    assert!(json(&["disk", "show", "0"])["zone_starts_bytes"].is_array());
    assert_eq!(
        json(&["volume", "create", "v", "--size", "2MiB"])["name"],
        "v"
    );
    assert_eq!(json(&["volume", "list"])[0]["name"], "v");
    assert_eq!(json(&["volume", "show", "v"])["extents"], 2);
    assert_eq!(json(&["volume", "show", "v", "--places"])[0]["zone"], 0);
    assert_eq!(
        json(&["volume", "grow", "v", "--size", "4MiB"])["extents"],
        4
    );
    assert_eq!(
        json(&["volume", "shrink", "v", "--size", "1MiB"])["extents"],
        1
    );
    assert_eq!(json(&["volume", "move", "v", "--run", "1"])["extents"], 1);
    let stream = [
        "--volume", "v", "--rate", "300KB/s", "--block", "64KiB", "--length", "128KiB",
    ];
    let record = [&["stream", "record", "--from", "/dev/zero"][..], &stream].concat();
    assert_eq!(json(&record)["pace"]["blocks"], 2);
    let play = [&["stream", "play", "--to", "/dev/null"][..], &stream].concat();
    assert_eq!(json(&play)["pace"]["blocks"], 2);
    assert_eq!(json(&["stream", "list"]), Value::Array(Vec::new()));
    let ask =
        "{\"volume\":\"v\",\"op\":\"play\",\"rate_bytes_per_second\":1000,\"block_bytes\":65536}";
    let reserved = common::call(&site, "POST", "/v1/streams", ask).1;
    let id = reserved["id"].to_string();
    assert_eq!(
        json(&["stream", "rate", &id, "2KB/s"])["rate_bytes_per_second"],
        2000
    );
    assert_eq!(json(&["stream", "end", &id])["state"], "stopped");
    assert!(json(&["status"])["disks"].is_array());
    assert_eq!(json(&["volume", "delete", "v"])["name"], "v");
    assert_eq!(serve.terminate().0, Some(0));
    let tasks = site.path("tasks.toml");
    std::fs::write(&tasks, "[[task]]\nservice_ms = 1\nperiod_ms = 9\n").expect("a file");
    assert_eq!(
        json(&["admit", &tasks.display().to_string()])["schedulable"],
        true
    );
    let script = json(&["completions", "bash"])["script"].clone();
    assert!(
        script
            .as_str()
            .is_some_and(|text| text.contains("clockwise"))
    );
    let example = json(&["serve", "--print-example"])["example"].clone();
    assert!(
        example
            .as_str()
            .is_some_and(|text| text.contains("[[disk]]"))
    );
    let folder = site.path("man").display().to_string();
    assert_eq!(json(&["man", &folder])["folder"], *folder);
}

#[test]
fn a_server_says_to_programs_when_it_is_ready() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let serving = site.serve_json();
    let ready = &serving.said;
    assert_eq!(ready["pool"], "test");
    // It is where it says, and ready.
    assert_eq!(ready["api"], *site.path("api.sock").display().to_string());
    assert_eq!(common::call(&site, "GET", "/v1/pool", "").0, 200);
    serving.terminate();
}

#[test]
fn who_may_not_use_the_socket_is_told_so() {
    if !is_root("being somebody else") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let may = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let (site, server) = Site::serving(1);
    // Somebody else can get at the folder and the program; the socket alone decides.
    may(site.folder.path(), 0o755);
    let program = site.path("clockwise");
    std::fs::copy(env!("CARGO_BIN_EXE_clockwise"), &program).expect("a copy");
    may(&program, 0o755);
    let as_nobody = || -> Outcome {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(["volume", "list", "--socket"])
            .arg(site.path("api.sock"))
            .current_dir("/")
            .output()
            .expect("setpriv is part of every Debian")
            .into()
    };
    as_nobody().fails(1, &["you may not connect", "api.sock", "permissions"]);
    may(&site.path("api.sock"), 0o666);
    as_nobody().done();
    assert_eq!(server.terminate().0, Some(0));
    // The configuration says it from the start, whatever the mask of the process.
    let text = String::from_utf8(common::read(&site.config())).expect("text");
    let open = text.replace("[server]\n", "[server]\npermissions = \"0666\"\n");
    std::fs::write(site.config(), open).expect("the configuration can be written");
    let server = site.serve();
    as_nobody().done();
    for socket in ["api.sock", "data.sock", "nbd.sock"] {
        let mode = std::fs::metadata(site.path(socket))
            .expect("a socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o666, "{socket}");
    }
    assert_eq!(server.terminate().0, Some(0));
}
