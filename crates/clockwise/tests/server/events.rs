//! Events come to all who follow them, once and in order.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::nbd::{Wire, cmd};
use testkit::process::Process;
use testkit::rtsp::sdp;
use testkit::rtsp::source::{called, has, packets, send};
use testkit::site::{Site, call, clockwise, connect};

/// A client that follows events.
struct Follower(BufReader<UnixStream>);

impl Follower {
    /// Follows from now on, or after the event with this number.
    fn new(site: &Site, last: Option<u64>) -> Self {
        let mut connection = connect(&site.path("api.sock"));
        let last = last.map(|last| format!("last-event-id: {last}\r\n"));
        let last = last.unwrap_or_default();
        let request = format!("GET /v1/events HTTP/1.1\r\nhost: x\r\n{last}\r\n");
        connection
            .write_all(request.as_bytes())
            .expect("it is taken");
        let mut lines = BufReader::new(connection);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).expect("a head") > 0, "{head}");
        }
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self(lines)
    }

    /// The next event; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        let mut before = [String::new(), String::new()];
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("it goes on") == 0 {
                return None;
            }
            let Some(data) = line.strip_prefix("data: ") else {
                before = [std::mem::take(&mut before[1]), line];
                continue;
            };
            let event: Value = serde_json::from_str(data).expect("JSON");
            let kind = event["kind"].as_str().expect("a kind");
            assert_eq!(
                before,
                [format!("id: {}\n", event["id"]), format!("event: {kind}\n")]
            );
            return Some(event);
        }
    }

    /// The next event of this kind.
    fn awaited(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("no {kind}"));
            if event["kind"] == kind {
                return event;
            }
        }
    }
}

#[test]
fn a_failing_disk_and_an_unreachable_camera_are_events_for_all_that_follow() {
    let (site, server) = Site::serving_drives(1);
    let mut follower = Follower::new(&site, None);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let status = site.json(&["status"]);
    let (disk, size) = (
        &status["disks"][0]["name"],
        &status["disks"][0]["size_bytes"],
    );
    let faults = |fails: bool| {
        let fault = json!({ "from_byte": 0, "bytes": size, "op": "read", "fails": true });
        let faults = if fails { vec![fault] } else { Vec::new() };
        let body = json!({ "faults": faults }).to_string();
        assert_eq!(call(&site, "PATCH", "/v1/disks/0/faults", &body).0, 200);
    };
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    assert_eq!(wire.write(cmd::FUA, 0, &[1; 4096]).error, 0);
    faults(true);
    assert_ne!(wire.ask(cmd::READ, 0, 0, 4096).error, 0);
    let failed = follower.awaited("disk-error");
    faults(false);
    assert_eq!(failed["disk"], *disk, "{failed}");
    let what = failed["what"].as_str().expect("a sentence");
    assert!(what.contains("failed reads"), "{what}");
    let source = json!({ "name": "door", "url": "rtsp://127.0.0.1:1/", "volume": "gate" });
    site.run(&["volume", "create", "gate", "--size", "4MiB"])
        .done();
    assert_eq!(
        call(&site, "POST", "/v1/sources", &source.to_string()).0,
        201
    );
    let lost = follower.awaited("camera-lost");
    assert_eq!(
        (&lost["camera"], &lost["volume"]),
        (&json!("door"), &json!("gate"))
    );
    let number = |event: &Value| event["id"].as_u64().expect("a number");
    assert!(number(&lost) > number(&failed));
    // A later follower gets the events that it has not seen.
    assert_eq!(
        Follower::new(&site, Some(number(&lost) - 1))
            .next()
            .as_ref(),
        Some(&lost)
    );
    assert_eq!(Follower::new(&site, Some(0)).awaited("disk-error"), failed);
    // One who has followed an earlier run is told that there was one.
    let told = Follower::new(&site, Some(7)).next().expect("an event");
    assert_eq!(
        (&told["kind"], &told["lost"]),
        (&json!("lost"), &Value::Null)
    );
    assert_eq!(server.terminate().0, Some(0));
    assert_eq!(follower.next(), None, "it ends with the server");
}

#[test]
fn the_loss_and_return_of_a_camera_and_its_recording_are_events_and_printed() {
    let (site, server, _, camera, mut visit) = called("tcp");
    let mut follower = Follower::new(&site, Some(0));
    send(&mut visit, &packets(0..20, 7));
    let volume = has(&site, 20)["volume"].clone();
    let begun = follower.awaited("recording-begun");
    assert_eq!(
        (&begun["volume"], &begun["recording"]),
        (&volume, &json!(1))
    );
    let mut follow = clockwise();
    follow
        .arg("--config")
        .arg(site.config())
        .args(["--json", "events", "--past"]);
    follow.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut follow = Process::spawn(&mut follow);
    let mut printed =
        serde_json::Deserializer::from_reader(follow.heard_now_and_then()).into_iter::<Value>();
    assert_eq!(printed.next().expect("an event").expect("JSON"), begun);
    visit.reset();
    let lost = follower.awaited("camera-lost");
    assert_eq!(lost["camera"], "door");
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(20..40, 7));
    assert_eq!(follower.awaited("camera-back")["camera"], "door");
    site.json(&["source", "remove", "door"]);
    let ended = follower.awaited("recording-ended");
    assert_eq!(
        (&ended["volume"], &ended["recording"]),
        (&volume, &json!(1))
    );
    let all: Vec<Value> = printed
        .by_ref()
        .take(3)
        .map(|event| event.expect("JSON"))
        .collect();
    let kinds: Vec<_> = all
        .iter()
        .map(|event| event["kind"].as_str().expect("a kind"))
        .collect();
    assert_eq!(kinds, ["camera-lost", "camera-back", "recording-ended"]);
    server.terminate();
    assert_eq!(follow.wait().code(), Some(1));
}
