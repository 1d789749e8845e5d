//! `status` is taken from what happened: what it says of a stream and of disks is what the account of
//! each block and the promises in force add up to.

mod common;
mod nbd_support;

use common::{Site, call};
use nbd_support::{Wire, cmd, pattern};
use serde_json::{Value, json};

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
        // What is promised is what the stream's task takes of the disk, and delta-L what is left.
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
    let lines = String::from_utf8(common::read(&site.path("blocks.csv"))).expect("text");
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
    assert!(text.contains("that somebody waited for"), "{text}");
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_tcp_port_alone_is_on_the_loopback_address() {
    let site = Site::new(1);
    let text = String::from_utf8(common::read(&site.config())).expect("text");
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
    let mut watching = common::clockwise()
        .arg("--config")
        .arg(site.config())
        .args(["--json", "status", "--watch", "--interval", "10ms"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    let out = watching.stdout.take().expect("it is piped");
    let mut values = serde_json::Deserializer::from_reader(out).into_iter::<Value>();
    let mut next = || values.next().map(|value| value.expect("a value"));
    let uptimes: Vec<u64> = std::iter::from_fn(&mut next)
        .take(3)
        .map(|status| number(&status, "uptime_ns"))
        .collect();
    assert_eq!(uptimes.len(), 3);
    assert!(uptimes.is_sorted_by(|one, next| one < next), "{uptimes:?}");
    let pid = rustix::process::Pid::from_child(&watching);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    // What was on its way comes whole.
    while next().is_some() {}
    assert_eq!(watching.wait().expect("it ends").code(), Some(0));
    assert_eq!(server.terminate().0, Some(0));
}
