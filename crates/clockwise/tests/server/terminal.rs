//! On a terminal: what takes long shows that it is at work. And for programs: every command's result is
//! one JSON value.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::commands::commands;
use serde_json::Value;
use testkit::process::Process;
use testkit::site::{Outcome, Site, outcome};
use testkit::skip::{have, is_root};
use testkit::{pattern, until};

/// A command on a terminal of its own, by `script`. It takes the place of the shell that `script` starts,
/// which would get a Ctrl-C as well and may die of it before it has heard how the command ended.
pub(crate) fn on_a_terminal(site: &Site, arguments: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_clockwise");
    let quoted: Vec<String> = arguments.iter().map(|part| format!("'{part}'")).collect();
    let line = format!(
        "exec '{program}' --config '{}' {}",
        site.config().display(),
        quoted.join(" ")
    );
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--flush"])
        .args(["--command", &line, "/dev/null"])
        .env("TERM", "xterm");
    command
}

/// Runs it; what it showed there.
fn shown(site: &Site, arguments: &[&str]) -> String {
    let outcome = outcome(&mut on_a_terminal(site, arguments));
    assert_eq!(outcome.code, 0, "{arguments:?}: {outcome:?}");
    outcome.out
}

#[test]
fn long_command_shows_progress() {
    if !have("script") {
        return;
    }
    let site = Site::new(2);
    let at_work = |arguments: &[&str], words: &[&str]| {
        let text = shown(&site, arguments);
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text:?}");
        }
        // The progress line is gone when the result is there.
        assert!(text.contains("\u{1b}["), "{text:?}");
    };
    at_work(&["pool", "create"], &["creating the pool"]);
    at_work(&["pool", "check"], &["checking the pool", "sound"]);
    let server = site.serve();
    at_work(
        &["volume", "create", "v", "--size", "8MiB"],
        &["creating the volume"],
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
    std::fs::write(site.path("in"), pattern(1, 400_000)).expect("a file");
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
fn status_that_is_watched_is_shown_in_one_place_until_ctrl_c() {
    if !have("script") {
        return;
    }
    let (site, server) = Site::serving(1);
    let mut watch = on_a_terminal(&site, &["status", "--watch", "--interval", "10ms"]);
    let mut watching = Process::spawn(watch.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut keyboard = watching.stdin.take().expect("it is piped");
    let mut screen = watching.heard();
    let mut shown = Vec::new();
    // A picture begins in the upper left corner and ends by wiping what is below it.
    let pictures = |shown: &[u8]| shown.windows(3).filter(|part| part == b"\x1b[J").count();
    while pictures(&shown) < 3 {
        let mut part = [0; 4096];
        let length = screen.read(&mut part).expect("it can be read");
        assert!(length > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..length]);
    }
    keyboard.write_all(b"\x03").expect("it listens");
    screen.read_to_end(&mut shown).expect("it ends");
    assert_eq!(watching.wait().code(), Some(0));
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.starts_with("\x1b[H"), "{shown:?}");
    let first = shown.split("\x1b[J").next().expect("a picture");
    for word in ["pool test", "DISK", "disk-0", "no streams", "best effort"] {
        assert!(first.contains(word), "no {word:?} in {first:?}");
    }
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

/// All commands without others in them, and without the program's name.
fn commands_that_do_something() -> BTreeSet<String> {
    let names: Vec<_> = commands().into_iter().map(|one| one.name + " ").collect();
    let is_one = |name: &&String| names.iter().filter(|one| one.starts_with(*name)).count() == 1;
    let words = |name: &String| name.trim_start_matches("clockwise").trim().to_owned();
    names.iter().filter(is_one).map(words).collect()
}

/// One JSON value and nothing else.
fn value(outcome: Outcome) -> Value {
    assert_eq!(outcome.err, "");
    outcome.done().json()
}

#[test]
fn every_commands_result_is_json_for_programs() {
    let site = Site::new(2);
    let all = commands_that_do_something();
    let asked = RefCell::new(BTreeSet::new());
    let json = |arguments: &[&str]| {
        let words = arguments.join(" ") + " ";
        let mut commands = all.iter();
        let command = commands.find(|name| words.starts_with(&format!("{name} ")));
        asked
            .borrow_mut()
            .insert(command.expect("a command").clone());
        value(site.run(&[&["--json"], arguments].concat()))
    };
    assert_eq!(json(&["pool", "create"])["disks"], 2);
    assert_eq!(json(&["pool", "check"])["volumes"], 0);
    let serve = site.serve();
    assert_eq!(json(&["pool", "show"])["name"], "test");
    assert_eq!(json(&["disk", "show"]).as_array().map(Vec::len), Some(2));
    assert!(json(&["disk", "show", "0"])["zone_starts_bytes"].is_array());
    assert_eq!(json(&["disk", "profile", "0"])["widened_percent"], 0);
    assert_eq!(
        json(&["volume", "create", "v", "--size", "2MiB"])["name"],
        "v"
    );
    assert_eq!(json(&["volume", "list"])[0]["name"], "v");
    assert_eq!(json(&["volume", "show", "v"])["extents"], 2);
    assert_eq!(json(&["volume", "show", "v", "--places"])[0]["zone"], 0);
    assert_eq!(json(&["recording", "list", "v"]), serde_json::json!([]));
    let door = [
        "source",
        "add",
        "door",
        "rtsp://127.0.0.1:1/",
        "--volume",
        "v",
    ];
    assert_eq!(json(&door)["name"], "door");
    assert_eq!(json(&["source", "list"])[0]["name"], "door");
    assert_eq!(json(&["camera", "list"])[0]["name"], "door");
    assert_eq!(json(&["source", "show", "door"])["volume"], "v");
    assert_eq!(json(&["source", "remove", "door"])["state"], "ended");
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
    let source = site.path("source").display().to_string();
    std::fs::write(&source, vec![0; 128 << 10]).expect("a file");
    let record = [&["stream", "record", "--from", &source][..], &stream].concat();
    assert_eq!(json(&record)["pace"]["blocks"], 2);
    let play = [&["stream", "play", "--to", "/dev/null"][..], &stream].concat();
    assert_eq!(json(&play)["pace"]["blocks"], 2);
    assert_eq!(json(&["stream", "list"]), Value::Array(Vec::new()));
    assert_eq!(json(&["session", "list"]), Value::Array(Vec::new()));
    let ask =
        "{\"volume\":\"v\",\"op\":\"play\",\"rate_bytes_per_second\":1000,\"block_bytes\":65536}";
    let reserved = testkit::site::call(&site, "POST", "/v1/streams", ask).1;
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
    // One that people are not shown.
    let made = value(site.run(&["--json", "man", &folder]));
    assert_eq!(made["folder"], *folder);
    let case = site.path("case.toml").display().to_string();
    let adversary = ["sim", "adversary", "--scheduler", "edf", "--sets", "100"];
    let found = json(&[&adversary[..], &["--case", &case]].concat());
    assert_eq!(found["sets"], 100);
    assert_eq!(json(&["sim", "replay", &case])["late"], true);
    let trace = site.path("cello").display().to_string();
    let cello = json(&["sim", "cello", "--source", "busy", "--out", &trace]);
    assert_eq!(cello["requests"], 53_752);
    let out = site.path("results").display().to_string();
    let experiment = "../../examples/experiments/figure-6.4.toml";
    let ran = json(&["sim", "run", experiment, "--out", &out]);
    assert_eq!(ran["runs"][0]["measured"]["missed"], 0);
    // These are looked at where demos are run, drives, hosts and figures are measured, and there are recordings.
    for name in [
        "demo",
        "disk measure",
        "doctor",
        "init",
        "sim figure",
        "sim plant import",
        "sim replay-trace",
        "sim video",
        "recording show",
        "recording export",
        "recording check",
    ] {
        asked.borrow_mut().insert(name.to_owned());
    }
    // These need cameras, recordings, sessions or users, or do not end: theirs are looked at where these are.
    for name in [
        "events",
        "user add",
        "user grant",
        "user list",
        "user password",
        "user remove",
        "user revoke",
        "user token",
        "user withdraw",
        "camera add",
        "camera show",
        "camera remove",
        "recording delete",
        "recording index",
        "recording keep",
        "recording lock",
        "recording locks",
        "recording unlock",
        "timeline",
        "session show",
        "session set",
        "session end",
    ] {
        asked.borrow_mut().insert(name.to_owned());
    }
    assert_eq!(asked.into_inner(), all);
}

#[test]
fn a_server_says_to_programs_when_it_is_ready() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let serving = site.serve_json();
    let ready = &serving.said;
    assert_eq!(ready["pool"], "test");
    // The server is at its announced address, and ready.
    assert_eq!(ready["api"], *site.path("api.sock").display().to_string());
    assert_eq!(testkit::site::call(&site, "GET", "/v1/pool", "").0, 200);
    serving.terminate();
}

#[test]
fn forbidden_socket_is_reported() {
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
        outcome(
            Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&program)
                .args(["volume", "list", "--socket"])
                .arg(site.path("api.sock"))
                .current_dir("/"),
        )
    };
    as_nobody().fails(1, &["no permission to connect", "api.sock", "permissions"]);
    may(&site.path("api.sock"), 0o666);
    as_nobody().done();
    assert_eq!(server.terminate().0, Some(0));
    // The configuration says it from the start, whatever the mask of the process.
    let text = String::from_utf8(testkit::site::read(&site.config())).expect("text");
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

/// Bytes that its source has given already were meant for a later time.
#[test]
fn a_recording_that_is_planned_ends_at_once_on_ctrl_c() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "16MiB"])
        .done();
    let rate = ["--rate", "500KB/s", "--block", "64KiB", "--wrap"];
    let planned = ["--starts-in", "1h", "--from", "/dev/zero", "--json"];
    let blocks = site.path("blocks.csv");
    let mut record = testkit::site::clockwise();
    record
        .arg("--config")
        .arg(site.config())
        .args(["stream", "record", "--volume", "v"])
        .args(rate)
        .args(planned)
        .arg("--blocks")
        .arg(&blocks)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = Process::spawn(&mut record);
    let streams = || site.json(&["status"])["streams"].as_array().map(Vec::len);
    until("it has its stream", || streams() == Some(1));
    let state = || site.json(&["stream", "list"])[0]["state"].clone();
    until("it is connected", || state() != "reserved");
    assert_eq!(state(), "planned");
    let listed = site.run(&["stream", "list"]).done().out;
    assert!(listed.trim_end().ends_with("planned"), "{listed}");
    let pid = rustix::process::Pid::from_child(&child);
    // The command reacts from the moment at which its stream exists.
    until("it hears of Ctrl-C", || hears_interrupts(child.id()));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    let ended: Outcome = child.output().into();
    let report = ended.done().json();
    assert_eq!(
        (&report["state"], &report["pace"]["blocks"]),
        (&"stopped".into(), &0.into())
    );
    assert_eq!(streams(), Some(0));
    let lines = String::from_utf8(testkit::site::read(&blocks)).expect("text");
    assert!(lines.starts_with("index,") && lines.lines().count() == 1);
    assert_eq!(server.terminate().0, Some(0));
}

/// True if a process handles SIGINT itself.
fn hears_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("signals").trim(), 16).expect("a mask");
    caught & (1 << (rustix::process::Signal::INT.as_raw() - 1)) != 0
}
