//! `status` is taken from what happened: what it says of a stream and of disks is what the account of
//! each block and the promises in force add up to.

use serde_json::{Value, json};
use testkit::nbd::{Wire, cmd};
use testkit::site::{Site, call};
use testkit::{pattern, until};

const BLOCK: u64 = 65_536;

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// The sum of a number of each disk.
fn of_all(status: &Value, part: impl Fn(&Value) -> u64) -> u64 {
    status["disks"]
        .as_array()
        .expect("disks")
        .iter()
        .map(part)
        .sum()
}

fn served_for_streams(status: &Value) -> u64 {
    of_all(status, |disk| {
        number(&disk["served"], "real_time") + number(&disk["served"], "early")
    })
}

#[test]
fn promises_come_and_go_with_streams() {
    let (site, server) = Site::serving(2);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let idle = site.json(&["status"]);
    let ask = json!({
        "volume": "v", "op": "record", "rate_bytes_per_second": 200_000, "block_bytes": BLOCK,
        "connect_within_ms": 600_000
    });
    let (status, reserved) = call(&site, "POST", "/v1/streams", &ask.to_string());
    assert_eq!(status, 201, "{reserved}");
    let busy = site.json(&["status"]);
    let stream = &busy["streams"][0];
    assert_eq!(stream["op"], "record");
    assert_eq!(number(stream, "blocks") + number(stream, "misses"), 0);
    for (index, disk) in busy["disks"].as_array().expect("disks").iter().enumerate() {
        // The promise is the stream's share of the disk, and delta-L is the rest.
        let before = &idle["disks"][index];
        let task = &stream["disks"][index];
        assert_eq!(task["disk"], disk["name"]);
        let share = number(task, "service_ns") as f64 / number(task, "period_ns") as f64;
        let promised = |disk: &Value| disk["utilization_promised"].as_f64().expect("a share");
        let added = promised(disk) - promised(before);
        assert!((added - share).abs() < 1e-6, "{added} and {share}");
        assert!(
            number(disk, "delta_l_ns") < number(before, "delta_l_ns"),
            "{disk}"
        );
    }
    let text = site.run(&["status"]).done().out;
    assert!(
        text.contains("  record  ") && text.contains("200.0 KB/s"),
        "{text}"
    );
    let path = format!("/v1/streams/{}", reserved["id"]);
    assert_eq!(call(&site, "DELETE", &path, "").0, 200);
    let after = site.json(&["status"]);
    assert_eq!(after["streams"], json!([]));
    for (index, disk) in after["disks"].as_array().expect("disks").iter().enumerate() {
        assert_eq!(
            disk["utilization_promised"],
            idle["disks"][index]["utilization_promised"]
        );
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_stream_that_is_planned_is_shown_with_its_span_until_it_is_ended() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let reserve = |name: &str, starts: Option<u64>, ends: Option<u64>| {
        let ask = json!({
            "volume": "v", "op": "play", "rate_bytes_per_second": 1000, "block_bytes": BLOCK,
            "connect_within_ms": 600_000, "name": name, "starts_in_ms": starts, "ends_in_ms": ends,
        });
        let (status, reserved) = call(&site, "POST", "/v1/streams", &ask.to_string());
        assert_eq!(status, 201, "{reserved}");
        number(&reserved, "id")
    };
    let (hour, ms) = (3_600_000, 1_000_000);
    let evening = reserve("evening", Some(hour), Some(3 * hour));
    reserve("always", None, None);
    let now = reserve("now", None, Some(hour));
    let on = reserve("on", Some(2 * hour), None);
    let planned = || -> Vec<Value> {
        let status = site.json(&["status"]);
        status["planned"].as_array().expect("a list").clone()
    };
    let first = planned();
    let ids: Vec<_> = first.iter().map(|one| number(one, "id")).collect();
    assert_eq!(ids, [evening, now, on]);
    let [evening_is, now_is, on_is] = &first[..] else {
        panic!("{first:?}");
    };
    assert_eq!(
        (&evening_is["name"], &evening_is["volume"]),
        (&json!("evening"), &json!("v"))
    );
    // Counted from now, both ends.
    let starts = number(evening_is, "starts_in_ns");
    assert!((1..=hour * ms).contains(&starts), "{evening_is}");
    assert_eq!(number(evening_is, "ends_in_ns"), starts + 2 * hour * ms);
    assert_eq!(number(now_is, "starts_in_ns"), 0);
    assert!((1..=hour * ms).contains(&number(now_is, "ends_in_ns")));
    assert_eq!(on_is["ends_in_ns"], Value::Null);
    assert!(number(&planned()[0], "starts_in_ns") < starts);
    let text = site.run(&["status"]).done().out;
    let row = |name: &str| {
        let rows = text.split("\n\n").find(|part| part.starts_with("PLANNED"));
        let mut rows = rows.unwrap_or_default().lines();
        rows.find(|line| line.starts_with(name)).map(str::to_owned)
    };
    assert!(row("evening").is_some(), "{text}");
    assert!(row("now").is_some_and(|row| row.contains("has begun")));
    assert!(row("on").is_some_and(|row| row.ends_with("when it is ended")));
    assert_eq!(row("always"), None);
    for id in [evening, now, on] {
        let path = format!("/v1/streams/{id}");
        assert_eq!(call(&site, "DELETE", &path, "").0, 200);
    }
    // One whose report is still there has nothing of the disks any more.
    let lapsed = json!({
        "volume": "v", "op": "play", "rate_bytes_per_second": 1000, "block_bytes": BLOCK,
        "connect_within_ms": 1, "ends_in_ms": hour,
    });
    let (status, reserved) = call(&site, "POST", "/v1/streams", &lapsed.to_string());
    assert_eq!(status, 201, "{reserved}");
    let path = format!("/v1/streams/{}", reserved["id"]);
    until("the reservation expires", || {
        call(&site, "GET", &path, "").1["state"] == "failed"
    });
    assert_eq!(planned(), [Value::Null; 0]);
    assert!(!site.run(&["status"]).done().out.contains("PLANNED"));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_stream_is_told_of_as_its_blocks_went() {
    let (site, server) = Site::serving(2);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let before = site.json(&["status"]);
    let content = pattern(1, 30 * BLOCK as usize);
    std::fs::write(site.path("in"), content).expect("a file");
    let from = site.path("in").display().to_string();
    let csv = site.path("blocks.csv").display().to_string();
    let record = site.run(&[
        "--json", "stream", "record", "--volume", "v", "--block", "64KiB", "--rate", "500KB/s",
        "--from", &from, "--blocks", &csv,
    ]);
    // A machine that is busy may make blocks late; then that is what must be told.
    assert!(matches!(record.code, 0 | 1), "{record:?}");
    let report = record.json();
    let lines = String::from_utf8(testkit::site::read(&site.path("blocks.csv"))).expect("text");
    // The last column is net of the host's own lateness, the one before is with it.
    let late = |column: usize| -> Vec<u64> {
        let lines = lines.lines().skip(1);
        let values = lines.map(|line| line.rsplit(',').nth(column).expect("a column"));
        values
            .map(|value| value.parse().expect("a number"))
            .collect()
    };
    let (net, gross) = (late(0), late(1));
    assert_eq!(net.len(), 30, "{lines}");
    let count = |late: &[u64]| late.iter().filter(|late| **late > 0).count() as u64;
    let (misses, misses_gross) = (count(&net), count(&gross));
    let worst = net.iter().copied().max().expect("blocks");
    let stream = &report["stream"];
    for told in [stream, &report["pace"]] {
        assert_eq!(number(told, "blocks"), 30);
        assert_eq!(number(told, "misses"), misses, "{lines}");
        assert_eq!(number(told, "misses_gross"), misses_gross, "{lines}");
        assert_eq!(number(told, "late_net_max_ns"), worst, "{lines}");
    }
    // Each block is a request of one disk: the disks' counts are the stream's.
    let after = site.json(&["status"]);
    assert_eq!(served_for_streams(&after) - served_for_streams(&before), 30);
    let early = |status: &Value| of_all(status, |disk| number(&disk["served"], "early"));
    assert_eq!(early(&after) - early(&before), number(stream, "early"));
    let overruns = |status: &Value| of_all(status, |disk| number(disk, "overruns"));
    assert!(overruns(&after) - overruns(&before) >= number(stream, "overruns"));
    for (key, count) in [("misses", misses), ("misses_gross", misses_gross)] {
        let missed = |status: &Value| of_all(status, |disk| number(disk, key));
        assert_eq!(missed(&after) - missed(&before), count, "{key}");
    }
    let written = |status: &Value| of_all(status, |disk| number(disk, "written_bytes"));
    assert!(written(&after) - written(&before) >= 30 * BLOCK);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn requests_are_told_by_whether_somebody_waits() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    // The first write of a chunk takes more than one request; those after it are what they are.
    assert_eq!(wire.write(cmd::FUA, 0, &pattern(1, 1 << 20)).error, 0);
    let counts = || {
        let completed = site.json(&["disk", "show", "0"])["completed"].clone();
        ["streams", "sync", "asynchronous"].map(|class| number(&completed, class))
    };
    let since = |before: [u64; 3]| {
        let now = counts();
        [now[0] - before[0], now[1] - before[1], now[2] - before[2]]
    };
    let before = counts();
    assert_eq!(wire.write(0, 0, &pattern(2, 4096)).error, 0);
    assert_eq!(since(before), [0, 0, 1], "a write that nobody waits for");
    let before = counts();
    assert_eq!(wire.write(cmd::FUA, 0, &pattern(3, 4096)).error, 0);
    let forced = since(before);
    assert!(
        forced[1] >= 1 && forced[2] == 0,
        "a forced write: {forced:?}"
    );
    let before = counts();
    assert!(wire.read_range(0, 4096) == pattern(3, 4096));
    assert_eq!(since(before), [0, 1, 0], "a read");
    let before = counts();
    assert_eq!(wire.write(0, 8192, &pattern(4, 4096)).error, 0);
    assert_eq!(wire.ask(cmd::FLUSH, 0, 0, 0).error, 0);
    let flushed = since(before);
    assert_eq!(
        flushed[2], 1,
        "the write is what it was, the flush is not: {flushed:?}"
    );
    let text = site.run(&["disk", "show", "0"]).done().out;
    assert!(text.contains("synchronous"), "{text}");
    assert_eq!(server.terminate().0, Some(0));
}

/// The share of a disk's time that a number of its status says.
fn share(disk: &Value, key: &str) -> f64 {
    let share = disk[key].as_f64();
    share.unwrap_or_else(|| panic!("no {key} in {disk}"))
}

/// Reserves a playing stream of volume `v`, or says what rate would fit instead.
fn reserve_playing(site: &Site, rate: u64) -> Result<(), Option<u64>> {
    let ask = json!({
        "volume": "v", "op": "play", "rate_bytes_per_second": rate, "block_bytes": BLOCK,
        "length_bytes": 4 * BLOCK, "connect_within_ms": 600_000
    });
    let (status, answer) = call(site, "POST", "/v1/streams", &ask.to_string());
    match status {
        201 => Ok(()),
        409 => Err(answer["refusal"]["rate_that_fits"].as_u64()),
        _ => panic!("{status}: {answer}"),
    }
}

/// Checks what status says of delta-L and slack of the first disk while no stream has work for it:
/// there is some, and not more than the stream that wants its block soonest leaves. Returns both.
#[track_caller]
fn delta_l_and_slack(status: &Value) -> (u64, u64) {
    let disk = &status["disks"][0];
    let (delta_l, slack) = (number(disk, "delta_l_ns"), number(disk, "slack_ns"));
    let streams = status["streams"].as_array().expect("streams");
    let room = |stream: &Value| {
        let task = &stream["disks"][0];
        number(task, "period_ns") - number(task, "service_ns")
    };
    let soonest = streams.iter().map(room).min().expect("a stream");
    assert!(0 < delta_l && delta_l <= soonest, "{soonest}: {disk}");
    assert!(slack <= soonest, "{soonest}: {disk}");
    (delta_l, slack)
}

#[test]
fn streams_that_fill_a_disk_leave_the_floor_and_status_shows_it() {
    const WRITES: u64 = 16;
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    // A chunk for all that follows: other writes to it are one request each.
    assert_eq!(wire.write(cmd::FUA, 0, &pattern(1, 1 << 20)).error, 0);
    reserve_playing(&site, 100_000).expect("one stream fits");
    let (delta_l, slack) = delta_l_and_slack(&site.json(&["status"]));
    assert!(
        slack >= delta_l,
        "{slack} at rest, {delta_l} at any instant"
    );
    // Each takes the rate that the refusal before it says would fit, until none does.
    while let Err(Some(fits)) = reserve_playing(&site, 1_000_000_000) {
        assert_eq!(reserve_playing(&site, fits), Ok(()), "{fits} B/s fit");
    }
    let before = site.json(&["status"]);
    delta_l_and_slack(&before);
    let before = &before["disks"][0];
    let promised = share(before, "utilization_promised");
    assert!((0.999..=1.0).contains(&promised), "{before}");
    for number in 0..WRITES {
        let written = wire.write(cmd::FUA, number * 4096, &pattern(number, 4096));
        assert_eq!(written.error, 0);
    }
    let after = site.json(&["status"]);
    delta_l_and_slack(&after);
    let after = &after["disks"][0];
    let served = |class: &str| number(&after["served"], class) - number(&before["served"], class);
    // In the floor's time, as is what the pool looks for on its disks every few seconds.
    assert!(served("container") >= WRITES, "{after}");
    assert_eq!(served("slack"), 0, "there is none: {after}");
    assert!((share(after, "floor") - 0.05).abs() < 1e-6, "{after}");
    // The floor is part of what is promised.
    assert_eq!(
        after["utilization_promised"],
        before["utilization_promised"]
    );
    let text = site.run(&["status"]).done().out;
    // Columns are two spaces apart, and what is in them one.
    let columns = |line: &str| -> Vec<String> {
        let columns = line.split("  ").map(str::trim);
        let columns = columns.filter(|column| !column.is_empty());
        columns.map(str::to_owned).collect()
    };
    let in_floor = number(&after["served"], "container").to_string();
    for (table, name, value) in [
        ("DISK", "FLOOR", "5.0 %"),
        ("REQUESTS", "IN FLOOR", &in_floor),
    ] {
        let mut lines = text.lines().skip_while(|line| !line.starts_with(table));
        let [head, row] = [lines.next(), lines.next()].map(|line| columns(line.expect(table)));
        let shown: Vec<_> = head.into_iter().zip(row).collect();
        assert!(
            shown.contains(&(name.into(), value.into())),
            "{name}: {text}"
        );
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_tcp_port_alone_is_on_the_loopback_address() {
    let site = Site::new(1);
    let text = String::from_utf8(testkit::site::read(&site.config())).expect("text");
    let open = text.replace("[nbd]\n", "[nbd]\ntcp = \"0\"\n");
    std::fs::write(site.config(), open).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    let serving = site.serve_json();
    let address = serving.said["nbd_tcp"]
        .as_str()
        .expect("an address")
        .to_owned();
    assert!(
        address.starts_with("127.0.0.1:") && !address.ends_with(":0"),
        "{address}"
    );
    let mut greeting = [0; 8];
    let mut connection = std::net::TcpStream::connect(&address).expect("it listens there");
    std::io::Read::read_exact(&mut connection, &mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"NBDMAGIC");
    drop(connection);
    serving.terminate();
}

#[test]
fn status_that_is_watched_is_a_value_each_time_until_ctrl_c() {
    let (site, server) = Site::serving(1);
    let mut watch = testkit::site::clockwise();
    watch
        .arg("--config")
        .arg(site.config())
        .args(["--json", "status", "--watch", "--interval", "10ms"])
        .stdout(std::process::Stdio::piped());
    let mut watching = testkit::process::Process::spawn(&mut watch);
    let mut values = serde_json::Deserializer::from_reader(watching.heard()).into_iter::<Value>();
    let mut next = || values.next().map(|value| value.expect("a value"));
    let uptimes: Vec<u64> = std::iter::from_fn(&mut next)
        .take(3)
        .map(|status| number(&status, "uptime_ns"))
        .collect();
    assert_eq!(uptimes.len(), 3);
    assert!(uptimes.is_sorted_by(|one, next| one < next), "{uptimes:?}");
    let pid = rustix::process::Pid::from_child(&watching);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    // A status under way arrives whole.
    while next().is_some() {}
    assert_eq!(watching.wait().code(), Some(0));
    assert_eq!(server.terminate().0, Some(0));
}
