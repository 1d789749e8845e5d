//! Streams: recorded and played bytes are the same, what does not fit is refused with the reason,
//! and a client that behaves badly harms nobody.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::process::Process;
use testkit::site::{Serve, Site, call};
use testkit::{pattern, until};

fn site() -> (Site, Serve) {
    let (site, server) = Site::serving(2);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    (site, server)
}

fn record(site: &Site, arguments: &[&str]) -> testkit::site::Outcome {
    let fixed = [
        "--json", "stream", "record", "--volume", "v", "--block", "64KiB",
    ];
    site.run(&[&fixed, arguments].concat())
}

fn play(site: &Site, arguments: &[&str]) -> testkit::site::Outcome {
    let fixed = [
        "--json", "stream", "play", "--volume", "v", "--block", "64KiB",
    ];
    site.run(&[&fixed, arguments].concat())
}

/// Checks the distributions of a report against the account of each block: they have two digits.
#[track_caller]
fn tells_of_every_block(report: &Value, lines: &str) {
    let mut rows = lines.lines();
    let head: Vec<&str> = rows.next().expect("a head").split(',').collect();
    let column = |name| head.iter().position(|column| *column == name).expect(name);
    let columns = ["submitted_ns", "deadline_ns", "completed_ns"].map(column);
    let (mut responses, mut margins) = (Vec::new(), Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.split(',').collect();
        let [submitted, deadline, completed] = columns.map(|column| cells[column]);
        let at = |cell: &str| cell.parse::<u64>().expect(cell);
        responses.push(at(completed) - at(submitted));
        // A block of holes is read from no disk and is due at no time.
        if !deadline.is_empty() {
            margins.push(at(deadline).saturating_sub(at(completed)));
        }
    }
    for (name, values) in [("response", responses), ("margin", margins)] {
        let told = &report[name];
        let close = |key: &str, wanted: u64| {
            let told = told[key].as_u64().expect(key);
            assert!(
                told.abs_diff(wanted) <= wanted / 50,
                "{name} {key} is told as {told} and was {wanted}: {values:?}"
            );
        };
        assert_eq!(told["count"], values.len());
        close("mean_ns", values.iter().sum::<u64>() / values.len() as u64);
        close("max_ns", *values.iter().max().expect("blocks"));
    }
}

#[test]
fn recorded_stream_is_played() {
    let (site, server) = site();
    let content = pattern(1, 1_000_000);
    std::fs::write(site.path("in"), &content).expect("a file");
    let (from, to) = (
        site.path("in").display().to_string(),
        site.path("out").display().to_string(),
    );
    let blocks = site.path("blocks.csv").display().to_string();
    let report = record(
        &site,
        &["--rate", "250KB/s", "--from", &from, "--blocks", &blocks],
    )
    .done()
    .json();
    assert_eq!(report["state"], "done");
    assert_eq!(report["pace"]["bytes"], 1_000_000);
    assert_eq!(report["pace"]["blocks"], 16);
    let lines = String::from_utf8(testkit::site::read(&site.path("blocks.csv"))).expect("text");
    assert_eq!(lines.lines().count(), 17, "{lines}");
    tells_of_every_block(&report, &lines);
    // Past the end of what was recorded there are holes, which have no deadlines.
    let arguments = ["--rate", "500KB/s", "--to", &to, "--length", "1280KiB"];
    let report = play(&site, &[&arguments[..], &["--blocks", &blocks]].concat())
        .done()
        .json();
    assert_eq!(report["pace"]["bytes"], 1280 << 10);
    let mut wanted = content;
    wanted.resize(1280 << 10, 0);
    assert!(
        testkit::site::read(&site.path("out")) == wanted,
        "not what was recorded"
    );
    let lines = String::from_utf8(testkit::site::read(&site.path("blocks.csv"))).expect("text");
    tells_of_every_block(&report, &lines);
    assert!(report["margin"]["count"].as_u64() < report["response"]["count"].as_u64());
    // Streams leave nothing reserved.
    let status = site.json(&["status"]);
    assert_eq!(status["streams"], json!([]));
    assert_eq!(site.json(&["stream", "list"]), json!([]));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_file_is_recorded_in_a_loop_and_the_end_of_the_range_ends_it() {
    let (site, server) = site();
    std::fs::write(site.path("in"), pattern(2, 10_000)).expect("a file");
    let from = site.path("in").display().to_string();
    let report = record(
        &site,
        &[
            "--rate", "300KB/s", "--from", &from, "--loop", "--length", "1MiB",
        ],
    )
    .done()
    .json();
    assert_eq!(report["pace"]["bytes"], 1 << 20);
    let to = site.path("out").display().to_string();
    play(
        &site,
        &["--rate", "300KB/s", "--to", &to, "--length", "1MiB"],
    )
    .done();
    let wanted: Vec<u8> = pattern(2, 10_000)
        .into_iter()
        .cycle()
        .take(1 << 20)
        .collect();
    assert!(
        testkit::site::read(&site.path("out")) == wanted,
        "not the looped file"
    );
    record(&site, &["--rate", "1MB/s", "--from", "-", "--loop"]).fails(2, &["standard input"]);
    record(&site, &["--rate", "1MB/s", "--from", "/nonexistent"]).fails(2, &["/nonexistent"]);
    assert_eq!(server.terminate().0, Some(0));
}

/// `/dev/full` takes nothing, as a full file system; a reader that has enough closes its pipe.
#[test]
fn destination_of_a_played_stream_may_be_full_or_closed() {
    let (site, server) = site();
    let arguments = ["--rate", "500KB/s", "--length", "512KiB", "--to"];
    play(&site, &[&arguments[..], &["/dev/full"]].concat())
        .fails(1, &["playing ended early", "/dev/full", "free some space"]);
    let mut reader = testkit::site::clockwise();
    reader
        .args(["stream", "play", "--volume", "v", "--block", "64KiB"])
        .args(arguments)
        .args(["-", "--config"])
        .arg(site.config())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut player = Process::spawn(&mut reader);
    let mut some = [0; 1000];
    let mut output = player.heard();
    output.read_exact(&mut some).expect("its first bytes");
    drop(output);
    let ended = player.output();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(!said.contains("error"), "{said}");
    assert_eq!(site.json(&["stream", "list"]), json!([]));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn stream_that_does_not_fit_is_refused_with_one_that_would() {
    let (site, server) = site();
    let refused = record(&site, &["--rate", "900GB/s", "--from", "/dev/null"]);
    refused.fails(3, &["refused_by", "rate_that_fits", "utilization"]);
    let error: Value = serde_json::from_str(&refused.err).expect("the error is JSON");
    assert_eq!(error["kind"], "refused");
    assert!(
        error["refusal"]["disk"]
            .as_str()
            .is_some_and(|disk| disk.contains("disk-")),
        "{error}"
    );
    let fits = error["refusal"]["rate_that_fits"]
        .as_u64()
        .expect("something fits");
    // The proposed rate fits, and a hundredth more does not.
    let ask = |rate: u64| json!({ "volume": "v", "op": "record", "rate_bytes_per_second": rate, "block_bytes": 65536 });
    let more = call(
        &site,
        "POST",
        "/v1/streams",
        &ask(fits + fits / 100).to_string(),
    );
    assert_eq!(more.0, 409, "{}", more.1);
    let granted = call(&site, "POST", "/v1/streams", &ask(fits).to_string());
    assert_eq!(granted.0, 201, "{}", granted.1);
    // A change of rate is tested in the same way, and a refused one changes nothing.
    let path = format!("/v1/streams/{}", granted.1["id"]);
    let change = |rate: u64| {
        call(
            &site,
            "PATCH",
            &path,
            &json!({ "rate_bytes_per_second": rate }).to_string(),
        )
    };
    assert_eq!(change(fits * 2).0, 409);
    assert_eq!(
        call(&site, "GET", &path, "").1["stream"]["rate_bytes_per_second"],
        fits
    );
    assert_eq!(change(fits / 2).0, 200);
    assert_eq!(call(&site, "DELETE", &path, "").0, 200);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn asks_that_make_no_sense_are_bad_input() {
    let (site, server) = site();
    let ask = |change: Value| {
        let mut ask = json!({ "volume": "v", "op": "play", "rate_bytes_per_second": 1000, "block_bytes": 65536 });
        for (key, value) in change.as_object().expect("an object") {
            ask[key] = value.clone();
        }
        call(&site, "POST", "/v1/streams", &ask.to_string())
    };
    let bad = [
        json!({ "rate_bytes_per_second": 0 }),
        json!({ "rate_bytes_per_second": "NaN" }),
        json!({ "rate_bytes_per_second": -5 }),
        json!({ "block_bytes": 0 }),
        json!({ "block_bytes": 1000 }),
        json!({ "block_bytes": u64::MAX }),
        json!({ "offset_bytes": 8 << 20 }),
        json!({ "length_bytes": 0 }),
        json!({ "offset_bytes": u64::MAX, "length_bytes": u64::MAX }),
        json!({ "op": "erase" }),
        json!({ "volume": "none" }),
        json!({ "colour": "red" }),
    ];
    for change in bad {
        let (status, problem) = ask(change.clone());
        assert!(
            (400..500).contains(&status) && status != 409,
            "{change}: {status} {problem}"
        );
        assert!(
            problem["what"]
                .as_str()
                .is_some_and(|what| !what.is_empty()),
            "{change}: {problem}"
        );
    }
    assert_eq!(site.json(&["stream", "list"]), json!([]));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_client_that_behaves_badly_holds_nothing() {
    let (site, server) = site();
    let ask = json!({
        "volume": "v", "op": "record", "rate_bytes_per_second": 100_000, "block_bytes": 65536, "connect_within_ms": 60_000
    });
    let reserve = || call(&site, "POST", "/v1/streams", &ask.to_string()).1;
    let connect = || testkit::site::connect(&site.path("data.sock"));
    let first_line = |mut connection: &UnixStream| {
        let mut line = Vec::new();
        let mut byte = [0];
        while connection.read(&mut byte).is_ok_and(|read| read == 1) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    };
    // Garbage, a wrong token, the same token twice.
    let mut garbage = connect();
    garbage.write_all(&pattern(3, 4096)).expect("it is taken");
    assert!(first_line(&garbage).starts_with("error"));
    let mut guess = connect();
    guess
        .write_all(b"clockwise-stream 0123456789\n")
        .expect("it is taken");
    assert!(first_line(&guess).starts_with("error"));
    let reserved = reserve();
    let hello = format!(
        "clockwise-stream {}\n",
        reserved["token"].as_str().expect("a token")
    );
    let mut first = connect();
    first.write_all(hello.as_bytes()).expect("it is taken");
    assert_eq!(first_line(&first), "ok");
    let mut second = connect();
    second.write_all(hello.as_bytes()).expect("it is taken");
    assert!(first_line(&second).starts_with("error"));
    // The client vanishes in the middle of a block: the received bytes are recorded, the share is given back.
    first.write_all(&pattern(4, 1000)).expect("it is taken");
    drop(first);
    let path = format!("/v1/streams/{}", reserved["id"]);
    let last = call(&site, "DELETE", &path, "").1;
    assert_eq!(last["stream"]["volume"], "v", "{last}");
    assert_eq!(site.json(&["status"])["streams"], json!([]));
    // One that never connects loses its reservation.
    let mut late = ask.clone();
    late["connect_within_ms"] = json!(1);
    let (status, reserved) = call(&site, "POST", "/v1/streams", &late.to_string());
    assert_eq!(status, 201, "{reserved}");
    let path = format!("/v1/streams/{}", reserved["id"]);
    until("the reservation expires", || {
        call(&site, "GET", &path, "").1["state"] != "reserved"
    });
    assert_eq!(call(&site, "GET", &path, "").1["state"], "failed");
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn streams_whose_times_do_not_overlap_may_each_fill_the_disk() {
    let (site, server) = site();
    let ask = |rate: u64, starts: Option<u64>, ends: Option<u64>| {
        let ask = json!({
            "volume": "v", "op": "play", "rate_bytes_per_second": rate, "block_bytes": 65536,
            "connect_within_ms": 600_000, "starts_in_ms": starts, "ends_in_ms": ends,
        });
        call(&site, "POST", "/v1/streams", &ask.to_string())
    };
    let hours = |hours: u64| Some(hours * 3_600_000);
    let (_, refused) = ask(900_000_000_000, None, None);
    let full = refused["refusal"]["rate_that_fits"].as_u64();
    let full = full.unwrap_or_else(|| panic!("{refused}"));
    let (status, first) = ask(full, None, hours(2));
    assert_eq!(status, 201, "{first}");
    for (starts, ends) in [
        (None, None),
        (None, hours(1)),
        (hours(1), None),
        (hours(1), hours(3)),
    ] {
        let (status, refused) = ask(full, starts, ends);
        assert_eq!(status, 409, "{starts:?} {ends:?}: {refused}");
        assert!(refused["refusal"].is_object(), "{refused}");
    }
    let (status, second) = ask(full, hours(3), hours(5));
    assert_eq!(status, 201, "{second}");
    // Between them and after them as well, but not for ever after the first.
    assert_eq!(ask(full, hours(4), hours(9)).0, 409);
    assert_eq!(ask(full, hours(6), None).0, 201);
    // One that nobody connects to gives its time back at once when it is ended.
    let path = format!("/v1/streams/{}", second["id"]);
    assert_eq!(call(&site, "DELETE", &path, "").0, 200);
    let (status, again) = ask(full, hours(3), hours(5));
    assert_eq!(status, 201, "{again}");
    for (starts, ends) in [
        (None, Some(0)),
        (Some(5), Some(5)),
        (hours(2), hours(1)),
        (Some(u64::MAX), None),
        (None, Some(u64::MAX)),
        (Some(u64::MAX / 1_000_000), None),
        (Some(u64::MAX / 1_000_000 - 60_000_000), None),
    ] {
        let (status, problem) = ask(1000, starts, ends);
        assert_eq!(status, 422, "{starts:?} {ends:?}: {problem}");
        let place = problem["where"].as_str().unwrap_or_default();
        assert!(place.ends_with("s_in_ms"), "{problem}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_recording_ends_by_itself_when_its_time_has_come() {
    let (site, server) = site();
    let record = |times: &[&str]| {
        let what = ["--json", "stream", "record", "--volume", "v", "--from"];
        let how = [
            "/dev/zero",
            "--rate",
            "500KB/s",
            "--block",
            "64KiB",
            "--wrap",
        ];
        site.run(&[&what[..], &how, times].concat())
    };
    let report = record(&["--starts-in", "100ms", "--ends-in", "2s"]);
    // A machine that is busy may make blocks late.
    assert!(matches!(report.code, 0 | 1), "{report:?}");
    assert_eq!(report.json()["state"], "done", "{report:?}");
    assert_ne!(report.json()["pace"]["blocks"], 0, "{report:?}");
    record(&["--starts-in", "1h", "--ends-in", "1min"]).fails(2, &["--ends-in", "before"]);
    record(&["--ends-in", "0s"]).fails(2, &["ends-in"]);
    record(&["--starts-in", "-1s"]).fails(2, &["starts-in"]);
    assert_eq!(site.json(&["status"])["streams"], json!([]));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_report_of_blocks_that_cannot_be_written_is_refused_before_anything_is_reserved() {
    let (site, server) = site();
    for file in ["/nonexistent/blocks.csv", "/dev/full"] {
        let arguments = ["--rate", "1MB/s", "--seconds", "1", "--blocks", file];
        record(&site, &[&arguments[..], &["--from", "/dev/zero"]].concat()).fails(2, &[file]);
        play(&site, &[&arguments[..], &["--to", "/dev/null"]].concat()).fails(2, &[file]);
    }
    // A reservation of a session that fails would be there for a while.
    assert_eq!(site.json(&["stream", "list"]), json!([]));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn standard_input_is_recorded_to_its_end() {
    let (site, server) = site();
    let content = pattern(9, 300_000);
    let mut record = testkit::site::clockwise();
    record
        .arg("--config")
        .arg(site.config())
        .args(["--json", "stream", "record", "--volume", "v", "--from", "-"])
        .args(["--rate", "500KB/s", "--block", "64KiB"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut recording = Process::spawn(&mut record);
    let mut source = recording.stdin.take().expect("it is piped");
    source.write_all(&content).expect("it is read");
    drop(source);
    let outcome = testkit::site::Outcome::from(recording.output());
    // A machine that is busy may make blocks late.
    assert!(matches!(outcome.code, 0 | 1), "{outcome:?}");
    let report = outcome.json();
    assert_eq!(report["state"], "done", "{report}");
    assert_eq!(report["pace"]["bytes"], content.len(), "{report}");
    let to = site.path("out").display().to_string();
    let length = ["--length", "301056", "--rate", "500KB/s", "--to", &to];
    let played = play(&site, &length);
    assert!(matches!(played.code, 0 | 1), "{played:?}");
    let out = testkit::site::read(&site.path("out"));
    assert!(out[..content.len()] == content[..], "other bytes");
    // The last block is filled up to whole sectors.
    assert!(out[content.len()..].iter().all(|byte| *byte == 0));
    assert_eq!(server.terminate().0, Some(0));
}
