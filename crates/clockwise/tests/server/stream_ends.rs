//! Streams that somebody else ends, that nothing comes of, and what is said at their end and where.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;
use testkit::process::Process;
use testkit::site::{Serve, Site, call, clockwise};
use testkit::{pattern, until};

fn site() -> (Site, Serve) {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    (site, server)
}

fn of_site(site: &Site, arguments: &[&str]) -> std::process::Command {
    let mut command = clockwise();
    command.arg("--config").arg(site.config()).args(arguments);
    command
}

#[test]
fn standard_output_has_the_played_bytes_alone() {
    let (site, server) = site();
    let content = pattern(1, 300_000);
    std::fs::write(site.path("in"), &content).expect("a file");
    let from = site.path("in").display().to_string();
    let of_v = ["--volume", "v", "--rate", "500KB/s", "--block", "64KiB"];
    site.run(&[&["stream", "record", "--from", &from], &of_v[..]].concat())
        .done();
    let play = [
        &["stream", "play", "--to", "-", "--length", "256KiB"],
        &of_v[..],
    ]
    .concat();
    for arguments in [play.clone(), [&["--json"], &play[..]].concat()] {
        let played = Process::captured(&mut of_site(&site, &arguments)).output();
        assert!(played.status.success(), "{arguments:?}: {played:?}");
        assert_eq!(played.stdout.len(), 256 << 10, "{arguments:?}");
        assert!(played.stdout == content[..256 << 10]);
        let said = String::from_utf8(played.stderr).expect("text");
        assert!(
            said.contains("262144") || said.contains("256 KiB"),
            "{said}"
        );
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_client_whose_stream_somebody_else_ends_has_its_report() {
    let (site, server) = site();
    let of_v = [
        "--json", "stream", "record", "--volume", "v", "--rate", "500KB/s",
    ];
    let how = ["--block", "64KiB", "--wrap", "--from", "-"];
    let mut record = of_site(&site, &[&of_v[..], &how].concat());
    record
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut client = Process::spawn(&mut record);
    let mut source = client.stdin.take().expect("it is piped");
    source.write_all(&pattern(2, 131_072)).expect("it reads");
    let streams = || call(&site, "GET", "/v1/streams", "").1;
    until("all of it is recorded", || {
        streams()[0]["pace"]["blocks"] == 2
    });
    let ended = site.json(&["stream", "end", "1"]);
    assert_eq!(ended["state"], "stopped", "{ended}");
    // The command finds out when it has something to send.
    drop(source);
    let output = client.output();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["state"], "stopped", "{report}");
    assert_eq!(report["pace"]["durable_bytes"], 131_072, "{report}");
    // The stream took its report along.
    assert_eq!(streams().as_array().map(Vec::len), Some(0));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn playing_that_is_interrupted_ends_well() {
    let (site, server) = site();
    let to = site.path("out").display().to_string();
    let play = ["--json", "stream", "play", "--volume", "v", "--to", &to];
    // A block every two seconds: it is not by chance that one is due.
    let how = ["--rate", "32KiB/s", "--block", "64KiB", "--loop"];
    let client = Process::captured(&mut of_site(&site, &[&play[..], &how].concat()));
    let streams = || call(&site, "GET", "/v1/streams", "").1;
    until("it plays", || streams()[0]["pace"]["blocks"] == 1);
    let pid = rustix::process::Pid::from_child(&client);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    let output = client.output();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["state"], "stopped", "{report}");
    assert_eq!(server.terminate().0, Some(0));
}

/// Ctrl-C ends a stream also when the server does not answer, and nothing comes that could be recorded.
#[test]
fn a_stream_is_interrupted_whatever_the_server_does() {
    let (site, server) = site();
    let of_v = ["stream", "record", "--volume", "v", "--rate", "500KB/s"];
    let how = ["--block", "64KiB", "--wrap", "--from"];
    for from in ["/dev/zero", "-"] {
        let mut record = of_site(&site, &[&of_v[..], &how, &[from]].concat());
        record
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut client = Process::spawn(&mut record);
        let mut source = client.stdin.take().expect("it is piped");
        source.write_all(&pattern(3, 65_536)).expect("it is taken");
        let is_running = || {
            let streams = call(&site, "GET", "/v1/streams", "").1;
            let mut streams = streams.as_array().into_iter().flatten();
            streams.any(|of| of["state"] == "running" && of["pace"]["blocks"] != 0)
        };
        until("it records", is_running);
        server.stop();
        let pid = rustix::process::Pid::from_child(&client);
        until("it ends", || {
            let ended = client.try_wait().expect("it is a child");
            if ended.is_none() {
                let interrupt = rustix::process::Signal::INT;
                rustix::process::kill_process(pid, interrupt).expect("it is there");
            }
            ended.is_some()
        });
        server.go_on();
        drop(source);
        let output = client.output();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains("interrupted by Ctrl-C"), "{said}");
        until("the server has ended it as well", || !is_running());
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_stream_whose_bytes_cannot_go_anywhere_is_given_up() {
    let (site, server) = site();
    std::fs::remove_file(site.path("data.sock")).expect("the data socket");
    let in_a_day = [
        "--starts-in",
        "24h",
        "--rate",
        "500KB/s",
        "--to",
        "/dev/null",
    ];
    site.run(&[&["stream", "play", "--volume", "v"][..], &in_a_day].concat())
        .fails(1, &["data.sock"]);
    let (_, streams) = call(&site, "GET", "/v1/streams", "");
    assert_eq!(streams.as_array().map(Vec::len), Some(0), "{streams}");
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_recording_that_the_range_is_too_short_for_says_so() {
    let (site, server) = site();
    std::fs::write(site.path("in"), pattern(5, 300_000)).expect("a file");
    let from = site.path("in").display().to_string();
    let of_v = ["--volume", "v", "--rate", "200KB/s", "--block", "64KiB"];
    let record = |more: &[&str]| {
        let command = ["stream", "record", "--from", &from];
        site.run(&[&command, &of_v[..], more].concat())
    };
    // The rest is in the socket, or does not even get there.
    for length in ["256KiB", "64KiB"] {
        record(&["--length", length]).fails(1, &["the range is full", "--wrap", "grow"]);
        record(&["--length", length, "--wrap"]).done();
        record(&["--length", length, "--loop", "--ends-in", "1s"]).done();
    }
    record(&["--length", "512KiB"]).done();
    std::fs::write(site.path("in"), pattern(6, 262_144)).expect("a file");
    record(&["--length", "256KiB"]).done();
    assert_eq!(server.terminate().0, Some(0));
}
