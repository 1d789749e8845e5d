//! Metrics are what the reference says, and Prometheus takes them.

mod families;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;

use families::{families, named_in, values};
use serde_json::{Value, json};
use testkit::nbd::{Wire, cmd};
use testkit::process::{Process, run};
use testkit::rtsp::http::get;
use testkit::site::{ReadyServer, Site, call, connect, read_text};
use testkit::skip::{have, tool};
use testkit::until;

/// A file of this repository.
fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Adds to the configuration of a site.
fn configure(site: &Site, more: &str) {
    let text = more.to_owned() + &read_text(&site.config());
    std::fs::write(site.config(), text).expect("the configuration can be written");
}

fn address(server: &ReadyServer) -> SocketAddr {
    let said = server.said["metrics"].as_str().expect("an address");
    said.parse().expect("an address")
}

/// The metrics by TCP, in the plain format.
fn scraped(address: SocketAddr) -> String {
    let (status, head, body) = get(address, "/metrics", "");
    assert_eq!(status, 200, "{head}");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    String::from_utf8(body).expect("text")
}

/// The metrics by the control socket, with the head of the answer.
fn scraped_by_socket(site: &Site, accept: &str) -> String {
    let mut connection = connect(&site.path("api.sock"));
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept: {accept}\r\n\r\n"
    );
    connection
        .write_all(request.as_bytes())
        .expect("it is taken");
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("an answer");
    text
}

/// Reserves a stream.
fn reserve(site: &Site, ask: Value) {
    let (status, answer) = call(site, "POST", "/v1/streams", &ask.to_string());
    assert_eq!(status, 201, "{answer}");
}

fn stream(name: &str) -> Value {
    json!({
        "volume": "v", "op": "play", "rate_bytes_per_second": 1000, "block_bytes": 65_536, "name": name,
        "connect_within_ms": 600_000, "length_bytes": 65_536,
    })
}

/// A server with disks on a link, volumes, streams now and later, a reservation, and a camera that does not answer.
fn everything() -> (Site, ReadyServer) {
    let site = Site::new(2);
    configure(
        &site,
        "[metrics]\nlisten = \"0\"\n\
         [[nbd.reservation]]\nvolume = \"v\"\nslice = \"1s\"\nperiod = \"20s\"\n\
         [[link]]\nname = \"cable\"\ndisks = [\"disk-0\", \"disk-1\"]\nrate = \"10GB/s\"\n",
    );
    site.run(&["pool", "create"]).done();
    let server = site.serve_json();
    for name in ["v", "a \"b\" \\c"] {
        site.run(&["volume", "create", name, "--size", "4MiB"])
            .done();
    }
    reserve(&site, stream("now"));
    let mut later = stream("later");
    later["starts_in_ms"] = json!(3_600_000);
    later["ends_in_ms"] = json!(7_200_000);
    reserve(&site, later);
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    assert_eq!(wire.write(cmd::FUA, 0, &[1; 4096]).error, 0);
    site.run(&["volume", "create", "door", "--size", "4MiB"])
        .done();
    let source = json!({ "name": "door", "url": "rtsp://127.0.0.1:1/", "volume": "door" });
    let (status, answer) = call(&site, "POST", "/v1/sources", &source.to_string());
    assert_eq!(status, 201, "{answer}");
    (site, server)
}

/// Families of which that server has no series.
const ABSENT: [&str; 4] = [
    "clockwise_disk_smart_pending_sectors",
    "clockwise_disk_smart_reallocated_sectors",
    "clockwise_volume_flush_waits_seconds",
    "clockwise_live_readers",
];

/// The rows of the reference, by name: type, labels, meaning.
fn reference() -> Vec<[String; 4]> {
    let page = read_text(&repository("docs/reference/metrics.md"));
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `clockwise_"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let cells: [&str; 4] = cells.try_into().unwrap_or_else(|_| panic!("{line}"));
        cells.map(|cell| cell.replace('`', ""))
    };
    rows.map(row).collect()
}

#[test]
fn each_metric_is_in_the_reference_and_promtool_finds_no_fault() {
    let (site, server) = everything();
    let text = scraped(address(&server));
    let families = families(&text);
    let absent: Vec<_> = families.iter().filter(|(_, of)| !of.has_series).collect();
    let absent: Vec<_> = absent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(absent, ABSENT, "{text}");
    let rows = reference();
    let known: BTreeMap<_, _> = rows.iter().map(|row| (row[0].as_str(), row)).collect();
    for (name, family) in &families {
        let labels: Vec<_> = family.labels.iter().cloned().collect();
        let row = known.get(name.as_str());
        let is_same = row.is_some_and(|[_, kind, listed, meaning]| {
            let mut listed: Vec<_> = listed.split(", ").filter(|one| !one.is_empty()).collect();
            listed.sort_unstable();
            *kind == family.kind
                && *meaning == family.help
                && (!family.has_series || listed == labels)
        });
        assert!(
            is_same,
            "docs/reference/metrics.md should have:\n| `{name}` | {} | {} | {} |\nand has {row:?}",
            family.kind,
            labels.join(", "),
            family.help
        );
    }
    let order: Vec<_> = families.iter().map(|(name, _)| name.as_str()).collect();
    let listed: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(listed, order, "the order of docs/reference/metrics.md");
    let in_names = "clockwise_volume_size_bytes{volume=\"a \\\"b\\\" \\\\c\"} 4194304";
    assert!(text.lines().any(|line| line == in_names), "{text}");
    let examples = ["clockwise-alerts.yml", "grafana-dashboard.json"];
    for example in examples.map(|name| format!("examples/monitoring/{name}")) {
        for name in named_in(&read_text(&repository(&example))) {
            assert!(
                order.contains(&name.as_str()),
                "{example} names {name}, which is no metric"
            );
        }
    }
    is_sound_to_promtool(&text);
    drop(site);
    server.terminate();
}

fn is_sound_to_promtool(text: &str) {
    if !have("promtool") {
        return;
    }
    let mut check = tool("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped());
    check.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = Process::spawn(&mut check);
    let mut input = check.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("it is taken");
    drop(input);
    let output = check.output();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

#[test]
fn examples_of_rules_and_configuration_are_sound() {
    if !have("promtool") {
        return;
    }
    let of = |name| {
        repository("examples/monitoring")
            .join(name)
            .display()
            .to_string()
    };
    run("promtool", &["check", "config", &of("prometheus.yml")]);
    let rules = run("promtool", &["check", "rules", &of("clockwise-alerts.yml")]);
    assert!(rules.contains("SUCCESS: 12 rules found"), "{rules}");
    let dashboard = read_text(&repository("examples/monitoring/grafana-dashboard.json"));
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(
        ids.len(),
        panels.len(),
        "each panel has a number of its own"
    );
}

#[test]
fn prometheus_scrapes_a_server_and_answers_a_query() {
    if !have("prometheus") {
        return;
    }
    let (site, server) = everything();
    let listen = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let listen = listen.expect("a free port");
    let example = read_text(&repository("examples/monitoring/prometheus.yml"));
    let config = example
        .replace("127.0.0.1:9479", &address(&server).to_string())
        .replace("interval: 15s", "interval: 1s")
        .replace(
            "clockwise-alerts.yml",
            &repository("examples/monitoring/clockwise-alerts.yml")
                .display()
                .to_string(),
        );
    std::fs::write(site.path("prometheus.yml"), config).expect("a file");
    let mut prometheus = tool("prometheus");
    prometheus
        .current_dir(site.folder.path())
        .args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=samples",
            "--log.level=warn",
        ])
        .arg(format!("--web.listen-address={listen}"));
    let prometheus = Process::captured(&mut prometheus);
    let query = |query: &str| -> Vec<Value> {
        let path = format!("/api/v1/query?query={query}");
        if std::net::TcpStream::connect(listen).is_err() {
            return Vec::new();
        }
        let (_, _, body) = get(listen, &path, "");
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        answer["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    until("it has scraped the server", || {
        !query("clockwise_disk_requests_completed_total").is_empty()
    });
    let disks = query("clockwise_disk_size_bytes");
    let names: Vec<_> = disks.iter().map(|disk| &disk["metric"]["disk"]).collect();
    let status = site.json(&["status"]);
    assert_eq!(
        names,
        [&status["disks"][0]["name"], &status["disks"][1]["name"]]
    );
    for disk in &disks {
        assert_eq!(disk["value"][1], json!((64 << 20).to_string()), "{disk}");
    }
    assert_eq!(query("up")[0]["value"][1], "1");
    // The camera does not answer, which is no alert at once.
    until("the rules are evaluated", || {
        let alerts = query("ALERTS%7Balertname=%22ClockwiseCameraNotRecording%22%7D");
        alerts.iter().any(|alert| {
            let of = &alert["metric"];
            of["alertstate"] == "pending" && of["camera"] == "door"
        })
    });
    drop(prometheus);
    server.terminate();
}

#[test]
fn metrics_are_served_on_the_control_socket_in_the_format_that_is_accepted() {
    let (site, server) = everything();
    let plain = scraped_by_socket(&site, "*/*");
    assert!(
        plain.contains("content-type: text/plain; version=0.0.4"),
        "{plain}"
    );
    assert!(plain.contains("# TYPE clockwise_disk_overruns_total counter\n"));
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let open = scraped_by_socket(&site, accept);
    assert!(
        open.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{open}"
    );
    assert!(
        open.contains("# TYPE clockwise_disk_overruns counter\nclockwise_disk_overruns_total{")
    );
    assert!(open.ends_with("# EOF\n"));
    // Both have the same series.
    let series = |text: &str| -> Vec<String> {
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        let lines = body.lines().filter(|line| line.starts_with("clockwise_"));
        lines
            .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
            .collect()
    };
    assert_eq!(series(&plain), series(&open));
    let (status, _, body) = get(address(&server), "/v1/status", "");
    assert_eq!(
        (status, &body[..]),
        (404, &b"the metrics are at /metrics\n"[..])
    );
    server.terminate();
}

#[test]
fn each_stream_is_in_a_scrape_while_a_disk_is_silent() {
    const STREAMS: usize = 50;
    let site = Site::new(0);
    configure(
        &site,
        "[metrics]\nlisten = \"0\"\n[patience]\nstalled_after = \"100ms\"\n",
    );
    let drive = "[[disk]]\npath = \"drive\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
                 profile = \"quantum-atlas-ii\"\n";
    std::fs::write(site.config(), read_text(&site.config()) + drive).expect("it can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve_json();
    let address = address(&server);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    for number in 0..STREAMS {
        reserve(&site, stream(&format!("s{number}")));
    }
    // From now on each write takes eight seconds.
    let size = site.json(&["status"])["disks"][0]["size_bytes"].clone();
    let fault =
        json!({ "faults": [{ "from_byte": 0, "bytes": size, "op": "write", "rotations": 1_000 }] });
    let (status, answer) = call(&site, "PATCH", "/v1/disks/0/faults", &fault.to_string());
    assert_eq!(status, 200, "{answer}");
    let mut wire = Wire::simple(&site.path("nbd.sock"), "v");
    wire.send(&Wire::header(cmd::WRITE, cmd::FUA, 0, 0, 4096));
    wire.send(&[1; 4096]);
    until("the disk is shown as stalled", || {
        values(&scraped(address), "clockwise_disk_stalled_seconds")[0] > 0.0
    });
    let text = scraped(address);
    assert!(values(&text, "clockwise_disk_requests_queued")[0] > 0.0);
    for number in 0..STREAMS {
        let begin = format!("clockwise_stream_rate_bytes_per_second{{stream=\"s{number}\",");
        assert_eq!(values(&text, &begin), [1000.0], "{number}");
    }
    drop(server);
}

#[test]
fn requests_are_counted_in_the_buckets_of_their_class() {
    let (site, server) = everything();
    let address = address(&server);
    let count = |class: &str| {
        let begin = "clockwise_disk_best_effort_latency_seconds_count";
        let text = scraped(address);
        let of_class = format!("class=\"{class}\"");
        let lines = text
            .lines()
            .filter(|line| line.starts_with(begin) && line.contains(&of_class));
        let last = lines.map(|line| line.rsplit(' ').next().expect("a value"));
        last.map(|value| value.parse::<u64>().expect("a number"))
            .sum::<u64>()
    };
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    let before = (count("sync"), count("async"));
    assert_eq!(wire.write(0, 0, &[2; 4096]).error, 0);
    assert_eq!(count("async"), before.1 + 1);
    wire.read_range(0, 4096);
    // The server reads now and then as well.
    assert!(count("sync") > before.0);
    // The last bucket has all of them.
    let text = scraped(address);
    for name in ["best_effort_latency", "stream_lateness"] {
        let of = |suffix: &str| format!("clockwise_disk_{name}_seconds_{suffix}");
        let lines = text.lines().filter(|line| line.starts_with(&of("bucket")));
        let all: Vec<_> = lines.filter(|line| line.contains("le=\"+Inf\"")).collect();
        assert_eq!(
            values(&all.join("\n"), ""),
            values(&text, &of("count")),
            "{text}"
        );
    }
    server.terminate();
}

/// The time of a scrape with many streams is printed: it should be below 20 ms in a release build.
#[test]
#[ignore = "soak: a thousand streams"]
fn scrape_of_a_thousand_streams_full() {
    const STREAMS: usize = 1_000;
    let site = Site::new(4);
    let text = read_text(&site.config()).replace("\"64MiB\"\n[[disk", "\"1GiB\"\n[[disk");
    std::fs::write(site.config(), text).expect("the configuration can be written");
    configure(&site, "[metrics]\nlisten = \"0\"\n");
    site.run(&["pool", "create"]).done();
    let server = site.serve_json();
    let address = address(&server);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    for number in 0..STREAMS {
        let mut ask = stream(&format!("s{number}"));
        ask["rate_bytes_per_second"] = json!(10);
        reserve(&site, ask);
    }
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let begun = std::time::Instant::now();
            let text = scraped(address);
            let took = begun.elapsed();
            assert_eq!(values(&text, "clockwise_streams{").len(), STREAMS);
            (took, text.len())
        })
        .collect();
    times.sort_unstable();
    let _ = writeln!(
        std::io::stdout(),
        "scrape of {STREAMS} streams: median {:?}, worst {:?}, bytes {}",
        times[10].0,
        times[19].0,
        times[10].1
    );
    server.terminate();
}
