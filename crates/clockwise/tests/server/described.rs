//! The control API answers as the OpenAPI document that it serves says: every call's answer has the
//! members that are described, of the types that are described, and no others.

mod measured;
mod whole;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use testkit::site::{
    Answer, Serve, Site, answer_in, call, call_if_there, call_with, connect, read_text,
};
use testkit::{pattern, until};
use whole::{Described, is_whole};

#[test]
fn every_answer_is_as_it_is_described() {
    // On drives that take their time, so that there is a move under way to ask about.
    let (site, server) = Site::serving_drives(2);
    let described = Described::new(&site);
    let known = serde_json::to_value(clockwise::http::openapi()).expect("it is JSON");
    assert_eq!(
        described.description, known,
        "what is served is not what the tests of the description look at"
    );
    let ask = |status, method, template, parts| described.ask(status, method, template, parts);
    let volume = json!({ "name": "v", "size_bytes": 8 << 20 }).to_string();
    ask(201, "POST", "/v1/volumes", ["", "", &volume]);
    std::fs::write(site.path("in"), pattern(1, 200_000)).expect("a file");
    let from = site.path("in").display().to_string();
    let stream = stream(65_536);
    let id = ask(201, "POST", "/v1/streams", ["", "", &stream])["id"].to_string();
    let recorded = ["--rate", "200KB/s", "--block", "64KiB", "--from", &from];
    site.run(&[&["stream", "record", "--volume", "v"][..], &recorded].concat())
        .done();
    for template in [
        "/v1/pool",
        "/v1/disks",
        "/v1/status",
        "/v1/volumes",
        "/v1/streams",
    ] {
        let answer = ask(200, "GET", template, ["", "", ""]);
        assert!(
            answer.as_array().is_none_or(|list| !list.is_empty()),
            "{template} shows nothing"
        );
    }
    ask(200, "GET", "/v1/disks/{number}", ["1", "", ""]);
    ask(200, "GET", "/v1/disks/{number}/profile", ["1", "", ""]);
    let faults = "/v1/disks/{number}/faults";
    let fault = json!({ "faults": [{ "from_byte": 1_u64 << 35, "bytes": 512, "rotations": 3 }] });
    let fault = fault.to_string();
    let given = ask(200, "PATCH", faults, ["1", "", &fault]);
    let shown = ask(200, "GET", faults, ["1", "", ""]);
    assert_eq!(shown, given);
    let part = fault.replace("512", "513");
    ask(422, "PATCH", faults, ["1", "", &part]);
    ask(404, "GET", faults, ["9", "", ""]);
    ask(200, "PATCH", faults, ["1", "", "{\"faults\":[]}"]);
    measured::a_disk_is_measured(&described);
    ask(200, "GET", "/v1/volumes/{name}", ["v", "", ""]);
    let places = "/v1/volumes/{name}/places";
    ask(200, "GET", places, ["v", "?from=1048576", ""]);
    ask(200, "GET", "/v1/recordings", ["", "", ""]);
    let recordings = "/v1/volumes/{name}/recordings";
    ask(409, "GET", recordings, ["v", "", ""]);
    ask(404, "GET", recordings, ["none", "", ""]);
    let empty = volume.replace("\"v\"", "\"empty\"");
    ask(201, "POST", "/v1/volumes", ["", "", &empty]);
    ask(200, "GET", recordings, ["empty", "", ""]);
    let timeline = "/v1/volumes/{name}/timeline";
    ask(409, "GET", timeline, ["v", "", ""]);
    ask(404, "GET", timeline, ["none", "", ""]);
    ask(400, "GET", timeline, ["v", "?until_unix_ns=0", ""]);
    ask(409, "GET", RETENTION, ["empty", "", ""]);
    let source = json!({ "name": "door", "url": "rtsp://127.0.0.1:1/", "volume": "empty" });
    let source = source.to_string();
    ask(201, "POST", "/v1/sources", ["", "", &source]);
    ask(409, "POST", "/v1/sources", ["", "", &source]);
    let nowhere = source.replace("rtsp:", "http:");
    ask(422, "POST", "/v1/sources", ["", "", &nowhere]);
    let camera = json!({ "name": "gate", "url": "rtsp://127.0.0.1:1/" }).to_string();
    ask(502, "POST", "/v1/cameras", ["", "", &camera]);
    let taken = camera.replace("gate", "v");
    ask(409, "POST", "/v1/cameras", ["", "", &taken]);
    // It takes a camera: `camera_is_inspected_given_a_volume_and_recorded`.
    described.is_answered_elsewhere("POST", "/v1/cameras");
    ask(200, "GET", "/v1/sources", ["", "", ""]);
    ask(200, "GET", "/v1/sources/{name}", ["door", "", ""]);
    ask(200, "DELETE", "/v1/sources/{name}", ["door", "", ""]);
    ask(404, "DELETE", "/v1/sources/{name}", ["door", "", ""]);
    let of_stream = "/v1/streams/{id}";
    ask(200, "GET", of_stream, [&id, "", ""]);
    ask(200, "GET", "/v1/streams/{id}/blocks", [&id, "?from=0", ""]);
    let rate = "{\"rate_bytes_per_second\":2000}";
    ask(200, "PATCH", of_stream, [&id, "", rate]);
    ask(200, "POST", "/v1/window", ["", "", ""]);
    let of_volume = "/v1/volumes/{name}";
    ask(
        200,
        "PATCH",
        of_volume,
        ["v", "", "{\"size_bytes\":16777216}"],
    );
    // Refusals are described as well.
    ask(409, "DELETE", of_volume, ["v", "", ""]);
    ask(409, "POST", "/v1/volumes", ["", "", &volume]);
    ask(404, "GET", of_volume, ["none", "", ""]);
    let of_move = "/v1/volumes/{name}/move";
    ask(404, "GET", of_move, ["v", "", ""]);
    ask(404, "DELETE", of_move, ["v", "", ""]);
    let much = stream.replace(":1000,", ":900000000000,");
    let refused = ask(409, "POST", "/v1/streams", ["", "", &much]);
    assert!(refused["refusal"]["rate_that_fits"].is_u64(), "{refused}");
    ask(200, "DELETE", of_stream, [&id, "", ""]);
    let placement = "{\"placement\":{\"run_extents\":2}}";
    ask(200, "POST", of_move, ["v", "", placement]);
    ask(200, "DELETE", of_volume, ["v", "", ""]);
    a_move_is_watched_and_stopped(&site, &described);
    // It takes a session: `recordings_are_listed_and_deleted_as_described` as well.
    ask(200, "GET", "/v1/sessions", ["", "", ""]);
    ask(404, "GET", SESSION, ["1", "", ""]);
    for method in ["GET", "PATCH", "DELETE"] {
        described.is_answered_elsewhere(method, SESSION);
    }
    // These take recordings: `recordings_are_listed_and_deleted_as_described`.
    for method in ["GET", "DELETE"] {
        described.is_answered_elsewhere(method, RECORDING);
    }
    described.is_answered_elsewhere("GET", CHECK);
    described.is_answered_elsewhere("POST", LOCKS);
    described.is_answered_elsewhere("DELETE", UNLOCK);
    ask(200, "GET", "/v1/locks", ["", "", ""]);
    described.is_answered_elsewhere("GET", timeline);
    // It does not end: `events`.
    described.is_answered_elsewhere("GET", "/v1/events");
    described.is_answered_elsewhere("GET", INDEX);
    for method in ["GET", "PATCH"] {
        described.is_answered_elsewhere(method, RETENTION);
    }
    // These take accounts: `accounts_are_as_described`.
    for (method, template) in OF_USERS {
        described.is_answered_elsewhere(method, template);
    }
    ask(409, "GET", USERS, ["", "", ""]);
    described.all_are_answered();
    assert_eq!(server.terminate().0, Some(0));
}

const SESSION: &str = "/v1/sessions/{number}";
const RECORDING: &str = "/v1/volumes/{name}/recordings/{number}";
const CHECK: &str = "/v1/volumes/{name}/recordings/{number}/check";
const INDEX: &str = "/v1/volumes/{name}/recordings/{number}/index";
const LOCKS: &str = "/v1/volumes/{name}/locks";
const UNLOCK: &str = "/v1/locks/{name}";
const RETENTION: &str = "/v1/volumes/{name}/retention";
const USERS: &str = "/v1/users";
const USER: &str = "/v1/users/{name}";
const TOKENS: &str = "/v1/users/{name}/tokens";
const TOKEN: &str = "/v1/users/{name}/tokens/{token}";
const OF_USERS: [(&str, &str); 7] = [
    ("GET", USERS),
    ("POST", USERS),
    ("GET", USER),
    ("PATCH", USER),
    ("DELETE", USER),
    ("POST", TOKENS),
    ("DELETE", TOKEN),
];

#[test]
fn accounts_are_as_described() {
    let site = Site::new(1);
    let text = read_text(&site.config()) + "[access]\naccounts = \"accounts.json\"\n";
    std::fs::write(site.config(), text).expect("it can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    let described = Described::new(&site);
    let ask = |status, method, template, parts| described.ask(status, method, template, parts);
    let anna = json!({
        "name": "anna", "password": "of anna 1", "grants": [{ "may": ["live"], "volumes": ["v"] }]
    });
    let anna = anna.to_string();
    let short = anna.replace("of anna 1", "short");
    ask(201, "POST", USERS, ["", "", &anna]);
    ask(409, "POST", USERS, ["", "", &anna]);
    ask(422, "POST", USERS, ["", "", &short]);
    ask(200, "GET", USERS, ["", "", ""]);
    ask(200, "GET", USER, ["anna", "", ""]);
    ask(404, "GET", USER, ["paul", "", ""]);
    ask(200, "PATCH", USER, ["anna", "", "{\"rtsp\":false}"]);
    ask(422, "PATCH", USER, ["anna", "", "{\"rtsp\":true}"]);
    let token = "{\"name\":\"t\",\"expires_in_s\":60}";
    ask(201, "POST", TOKENS, ["anna", "", token]);
    ask(409, "POST", TOKENS, ["anna", "", token]);
    ask(200, "DELETE", TOKEN, ["anna/t", "", ""]);
    ask(404, "DELETE", TOKEN, ["anna/t", "", ""]);
    ask(200, "DELETE", USER, ["anna", "", ""]);
    server.terminate();
}

#[test]
fn recordings_are_listed_and_deleted_as_described() {
    let (site, server, address) = testkit::rtsp::serving("");
    let described = Described::new(&site);
    let mut publisher = testkit::rtsp::publisher(address, testkit::rtsp::TCP);
    publisher.packet(0, &testkit::rtsp::rtp(0, 0, 1, b"sound"));
    let listed = described.ask(200, "GET", "/v1/sessions", ["", "", ""]);
    let session = listed[0]["number"].to_string();
    described.ask(200, "GET", SESSION, [&session, "", ""]);
    for (status, change) in [
        (200, "{\"rate_bytes_per_second\":120000,\"buffers\":6}"),
        (200, "{}"),
        (409, "{\"rate_bytes_per_second\":900000000}"),
        (422, "{\"buffers\":1}"),
    ] {
        described.ask(status, "PATCH", SESSION, [&session, "", change]);
    }
    described.ask(404, "PATCH", SESSION, ["99", "", "{}"]);
    described.ask(404, "DELETE", SESSION, ["99", "", ""]);
    let ended = described.ask(200, "DELETE", SESSION, [&session, "", ""]);
    assert_eq!(ended["number"].to_string(), session);
    let mut listed = Value::Null;
    until("the recording is closed", || {
        let template = "/v1/volumes/{name}/recordings";
        listed = described.ask(200, "GET", template, ["cam", "", ""]);
        listed[0]["is_recorded"] == false
    });
    assert_eq!(listed[0]["tracks"], json!(["X-TEST"]));
    let shown = described.ask(200, "GET", RECORDING, ["cam/1", "", ""]);
    assert_eq!(shown["tracks"][0]["encoding"], "X-TEST");
    described.ask(404, "GET", RECORDING, ["cam/2", "", ""]);
    described.ask(200, "GET", CHECK, ["cam/1", "", ""]);
    let timeline = "/v1/volumes/{name}/timeline";
    let shown = described.ask(200, "GET", timeline, ["cam", "", ""]);
    let entry = &shown["entries"][0];
    let lock = |note: &str| {
        let times = (&entry["begins_unix_ns"], &entry["ends_unix_ns"]);
        let (from, until) = (times.0, times.1.as_u64().expect("a time") + 1);
        json!({ "from_unix_ns": from, "until_unix_ns": until, "note": note }).to_string()
    };
    let made = described.ask(201, "POST", LOCKS, ["cam", "", &lock("x")]);
    assert_eq!(made["name"], "cam.lock-1");
    described.ask(422, "POST", LOCKS, ["cam", "", &lock(&"x".repeat(600))]);
    described.ask(404, "POST", LOCKS, ["none", "", &lock("x")]);
    described.ask(409, "DELETE", RECORDING, ["cam/1", "", ""]);
    described.ask(409, "DELETE", "/v1/volumes/{name}", ["cam.lock-1", "", ""]);
    let locks = described.ask(200, "GET", "/v1/locks", ["", "", ""]);
    assert_eq!(locks[0]["note"], "x");
    described.ask(200, "DELETE", UNLOCK, ["cam.lock-1", "", ""]);
    described.ask(404, "DELETE", UNLOCK, ["cam", "", ""]);
    assert_eq!(shown["entries"][1]["cause"], "server", "{shown}");
    described.ask(200, "GET", INDEX, ["cam/1", "", ""]);
    described.ask(200, "GET", INDEX, ["cam/1", "?from_ns=0", ""]);
    described.ask(422, "GET", INDEX, ["cam/1", "?to_ns=0", ""]);
    let least = "{\"keep_bytes\":1}";
    described.ask(422, "PATCH", RETENTION, ["cam", "", least]);
    let day = "{\"keep_for_ns\":86400000000000}";
    let changed = described.ask(200, "PATCH", RETENTION, ["cam", "", day]);
    let shown = described.ask(200, "GET", RETENTION, ["cam", "", ""]);
    assert_eq!(shown, changed);
    let deleted = described.ask(200, "DELETE", RECORDING, ["cam/1", "", ""]);
    assert_eq!(deleted, listed[0]);
    described.ask(404, "DELETE", RECORDING, ["cam/1", "", ""]);
    server.terminate();
}

/// A move that is stopped when whoever asked for it is done with it, however that comes.
struct Moving<'a>(&'a Site, &'a str);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // One that has ended is not there to be stopped.
        let _ = call_if_there(self.0, "DELETE", self.1, "");
    }
}

/// Moves a volume that takes minutes to move, looks how far that is, and stops it.
fn a_move_is_watched_and_stopped(site: &Site, described: &Described<'_>) {
    let large = json!({ "name": "large", "size_bytes": 4_u64 << 30 }).to_string();
    described.ask(201, "POST", "/v1/volumes", ["", "", &large]);
    let placement = json!({ "placement": { "zone": 9 } }).to_string();
    let path = "/v1/volumes/large/move";
    let (template, json) = ("/v1/volumes/{name}/move", "application/json");
    std::thread::scope(|scope| {
        let _stopped = Moving(site, path);
        let mut moving = Some(scope.spawn(|| call_with(site, "POST", path, json, &placement)));
        until("the move is under way", || {
            let is_under_way = call(site, "GET", path, "").0 == 200;
            if let Some(moved) = moving.take_if(|moving| !is_under_way && moving.is_finished()) {
                panic!("it has ended: {}", moved.join().expect("an answer").body);
            }
            is_under_way
        });
        described.ask(200, "GET", template, ["large", "", ""]);
        described.ask(200, "DELETE", template, ["large", "", ""]);
        let moving = moving.expect("it has not ended before");
        let moved = moving.join().expect("an answer");
        described.check(409, "POST", template, moved);
    });
}

/// Content type of errors.
const PROBLEM: &str = "application/problem+json";

/// Checks that an answer is the error that is meant, and as that is described for the call.
#[track_caller]
fn is_described(description: &Value, wanted: u16, method: &str, template: &str, sent: &Answer) {
    let is = (sent.status, sent.content_type.as_str());
    assert_eq!(is, (wanted, PROBLEM), "{template}: {}", sent.body);
    let call = &description["paths"][template][method.to_lowercase()];
    let described = &call["responses"][wanted.to_string()];
    let schema = &described["content"][PROBLEM]["schema"];
    let fit = is_whole(description, schema, &sent.body, template);
    assert_eq!(fit, Ok(()), "{call}");
    assert!(described["description"].is_string(), "{described}");
}

#[test]
fn every_error_is_sent_as_what_it_is_described_to_be() {
    let (site, server) = Site::serving(1);
    let (_, description) = call(&site, "GET", "/v1/openapi.json", "");
    let json = "application/json";
    for (wanted, method, template, path, content_type, body) in [
        (400, "GET", "/v1/disks/{number}", "/v1/disks/x", json, ""),
        (400, "GET", "/v1/streams/{id}", "/v1/streams/-1", json, ""),
        (
            400,
            "GET",
            "/v1/volumes/{name}/places",
            "/v1/volumes/v/places?from=x",
            json,
            "",
        ),
        (400, "POST", "/v1/volumes", "/v1/volumes", json, "{"),
        (404, "GET", "/v1/disks/{number}", "/v1/disks/7", json, ""),
        (
            415,
            "POST",
            "/v1/streams",
            "/v1/streams",
            "text/plain",
            "{}",
        ),
        (422, "POST", "/v1/streams", "/v1/streams", json, "{}"),
        (
            422,
            "POST",
            "/v1/volumes",
            "/v1/volumes",
            json,
            "[\"v\", 512]",
        ),
    ] {
        let sent = call_with(&site, method, path, content_type, body);
        is_described(&description, wanted, method, template, &sent);
    }
    // The document as a whole describes errors of unknown calls.
    for (wanted, method, path) in [(404, "GET", "/v1/nothing"), (405, "PUT", "/v1/pool")] {
        let sent = call_with(&site, method, path, json, "");
        assert_eq!(
            (sent.status, sent.content_type.as_str()),
            (wanted, PROBLEM),
            "{path}"
        );
        let told = description["info"]["description"].as_str();
        assert!(told.is_some_and(|told| told.contains(&wanted.to_string())));
    }
    // No error is described as anything else, and every call may fail.
    for (path, methods) in description["paths"].as_object().expect("paths") {
        for (method, call) in methods.as_object().expect("methods") {
            let answers = call["responses"].as_object().expect("answers");
            assert!(answers.contains_key("500"), "{method} {path}");
            for (status, answer) in answers
                .iter()
                .filter(|(status, _)| status.as_str() >= "400")
            {
                let content = answer["content"].as_object().expect("content");
                assert_eq!(
                    content.keys().collect::<Vec<_>>(),
                    [PROBLEM],
                    "{method} {path} {status}"
                );
            }
        }
    }
    assert_eq!(server.terminate().0, Some(0));
}

/// A stream of volume `v` with blocks of this size.
fn stream(block: u64) -> String {
    let stream = json!({
        "volume": "v", "op": "play", "rate_bytes_per_second": 1000, "block_bytes": block,
        "connect_within_ms": 600_000
    });
    stream.to_string()
}

#[test]
fn too_long_a_body_and_too_little_memory_are_told_as_described() {
    let (site, server) = Site::serving(1);
    let (_, description) = call(&site, "GET", "/v1/openapi.json", "");
    let post = |path: &str, body: &str| call_with(&site, "POST", path, "application/json", body);
    // One more than the server reads, so that there is nothing that it leaves unread.
    let long = " ".repeat((64 << 10) + 1);
    let sent = post("/v1/volumes", &long);
    is_described(&description, 413, "POST", "/v1/volumes", &sent);
    let volume = json!({ "name": "v", "size_bytes": 8 << 20 }).to_string();
    assert_eq!(post("/v1/volumes", &volume).status, 201);
    // Each has two blocks of the memory, of which there are 64 MiB.
    let mut answers = (0..100).map(|_| post("/v1/streams", &stream(1 << 20)));
    let sent = answers.find(|answer| answer.status != 201);
    let sent = sent.expect("a hundred streams do not fit");
    is_described(&description, 507, "POST", "/v1/streams", &sent);
    assert_eq!(server.terminate().0, Some(0));
}

/// A connection that is kept: the server needs no descriptor for the next call.
struct Kept(BufReader<UnixStream>);

impl Kept {
    fn call(&mut self, method: &str, path: &str, body: &str) -> Answer {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let sent = self.0.get_mut().write_all(request.as_bytes());
        sent.expect("it listens");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut head).expect("it answers"), 0);
        }
        let value = |name: &str| {
            let mut lines = head.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
        };
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let length = value("content-length: ").parse().expect("a length");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        Answer {
            status: status.expect("a status"),
            content_type: value("content-type: ").to_owned(),
            body: serde_json::from_slice(&body).expect("JSON"),
        }
    }
}

/// A call whose body the server waits for.
struct Unfinished(BufReader<UnixStream>, String);

impl Unfinished {
    fn begin(site: &Site, method: &str, path: &str, body: &str) -> Self {
        let mut call = BufReader::new(connect(&site.path("api.sock")));
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nexpect: 100-continue\r\n\r\n"
        );
        call.get_mut()
            .write_all(head.as_bytes())
            .expect("it listens");
        let mut told = String::new();
        while !told.ends_with("\r\n\r\n") {
            assert_ne!(call.read_line(&mut told).expect("it answers"), 0, "{told}");
        }
        assert!(told.starts_with("HTTP/1.1 100 "), "{told}");
        Self(call, body.to_owned())
    }

    fn finish(mut self) -> Answer {
        let sent = self.0.get_mut().write_all(self.1.as_bytes());
        sent.expect("it still listens");
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("it answers");
        answer_in(&text)
    }
}

/// True if a thread of the server has this name.
fn has_thread(server: &Serve, name: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", server.pid())) else {
        return false;
    };
    // One that ends meanwhile has no name.
    let named = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads
        .flatten()
        .filter_map(|thread| named(thread).ok())
        .any(|of| of.trim_end() == name)
}

#[test]
fn a_server_that_ends_tells_so_who_is_in_the_middle_of_a_call() {
    let (site, server) = Site::serving(1);
    let (_, description) = call(&site, "GET", "/v1/openapi.json", "");
    site.run(&["volume", "create", "v", "--size", "1MiB"])
        .done();
    let resized = json!({ "size_bytes": 2 << 20 }).to_string();
    let moved = json!({ "placement": { "from_byte": 32 << 20 } }).to_string();
    let created = json!({ "name": "w", "size_bytes": 512 }).to_string();
    let (of_volume, of_move) = ("/v1/volumes/{name}", "/v1/volumes/{name}/move");
    let begin = |method, template: &'static str, body: &str| {
        let path = template.replace("{name}", "v");
        (
            method,
            template,
            Unfinished::begin(&site, method, &path, body),
        )
    };
    let calls = [
        begin("PATCH", of_volume, &resized),
        begin("POST", of_move, &moved),
        begin("POST", "/v1/streams", &stream(65_536)),
        begin("POST", "/v1/volumes", &created),
    ];
    server.tell_to_end();
    // The threads of its disks end last when a pool is closed.
    until("the pool is closed", || !has_thread(&server, "disk 0"));
    for (method, template, unfinished) in calls {
        let sent = unfinished.finish();
        is_described(&description, 503, method, template, &sent);
        let help = sent.body["help"].as_str();
        assert!(
            help.is_some_and(|help| help.contains("clockwise serve")),
            "{}",
            sent.body
        );
    }
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

/// Lets a server have so many descriptors more than it has, while `during` is done.
fn with_descriptors<T>(server: &Serve, spare: usize, during: impl FnOnce() -> T) -> T {
    let process = Pid::from_raw(server.pid().cast_signed());
    let is_free = |number: &u64| {
        let descriptor = format!("/proc/{}/fd/{number}", server.pid());
        std::fs::symlink_metadata(descriptor).is_err()
    };
    let set = |limit| prlimit(process, Resource::Nofile, limit).expect("a limit may be lowered");
    let few = Rlimit {
        current: (0..).filter(is_free).nth(spare),
        ..getrlimit(Resource::Nofile)
    };
    let before = set(few);
    let result = during();
    set(before);
    result
}

#[test]
fn a_host_without_descriptors_and_a_disk_that_fails_are_told_as_described() {
    let (site, server) = Site::serving(1);
    let (_, description) = call(&site, "GET", "/v1/openapi.json", "");
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    std::fs::write(site.path("in"), pattern(1, 256 << 10)).expect("a file");
    let from = site.path("in").display().to_string();
    let recorded = ["--rate", "500KB/s", "--block", "64KiB", "--from", &from];
    site.run(&[&["stream", "record", "--volume", "v"][..], &recorded].concat())
        .done();
    let connection = connect(&site.path("api.sock"));
    let mut kept = Kept(BufReader::new(connection));
    assert_eq!(kept.call("GET", "/v1/pool", "").status, 200);
    // A reservation takes more than one, and any of them may be the one that is not to be had.
    let answers = (0..16).map(|spare| {
        with_descriptors(&server, spare, || {
            kept.call("POST", "/v1/streams", &stream(65_536))
        })
    });
    let refused: Vec<_> = answers.take_while(|answer| answer.status != 201).collect();
    assert!(refused.len() > 1, "a reservation needs descriptors");
    for sent in &refused {
        is_described(&description, 503, "POST", "/v1/streams", sent);
        let help = sent.body["help"].as_str();
        assert!(
            help.is_some_and(|help| help.contains("ulimit")),
            "{}",
            sent.body
        );
    }
    assert_eq!(kept.call("GET", "/v1/status", "").status, 200);
    for stream in call(&site, "GET", "/v1/streams", "")
        .1
        .as_array()
        .expect("streams")
    {
        let path = format!("/v1/streams/{}", stream["id"]);
        assert!(call(&site, "DELETE", &path, "").0 < 500);
    }
    // A disk that has lost all that was on it: what is to be moved cannot be read.
    let disk = std::fs::OpenOptions::new()
        .write(true)
        .open(site.path("disk-0"));
    disk.and_then(|disk| disk.set_len(0))
        .expect("it can be cut off");
    let placement = json!({ "placement": { "from_byte": 32 << 20 } }).to_string();
    let sent = call_with(
        &site,
        "POST",
        "/v1/volumes/v/move",
        "application/json",
        &placement,
    );
    is_described(&description, 500, "POST", "/v1/volumes/{name}/move", &sent);
    // It still answers questions about its state.
    assert_eq!(call(&site, "GET", "/v1/status", "").0, 200);
    drop(server);
}
