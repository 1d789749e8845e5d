//! A server from its start to its end: volumes, bad calls, restarts, SIGTERM, SIGKILL.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use clockwise::client::ApiClient;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};
use testkit::nbd::Wire;
use testkit::pattern;
use testkit::process::Process;
use testkit::site::{Outcome, Site, call, clockwise, outcome};
use testkit::skip::have;

fn nbd(site: &Site, volume: &str) -> String {
    format!(
        "nbd+unix:///{volume}?socket={}",
        site.path("nbd.sock").display()
    )
}

fn nbdcopy(arguments: &[&str]) -> Outcome {
    outcome(Command::new("nbdcopy").args(arguments))
}

#[test]
fn a_volume_lives_from_its_creation_to_its_deletion() {
    let (site, server) = Site::serving(2);
    let made = site.json(&["volume", "create", "cam", "--size", "3MiB"]);
    assert_eq!(made["size_bytes"], 3 << 20);
    assert_eq!(made["extents"], 3);
    assert_eq!(made["written_bytes"], 0);
    // One name, one volume.
    site.run(&["volume", "create", "cam", "--size", "1MiB"])
        .fails(1, &["cam", "already"]);
    let grown = site.json(&["volume", "grow", "cam", "--size", "5MiB"]);
    assert_eq!(grown["size_bytes"], 5 << 20);
    site.run(&["volume", "grow", "cam", "--size", "2MiB"])
        .fails(2, &["size"]);
    let shrunk = site.json(&["volume", "shrink", "cam", "--size", "2MiB"]);
    assert_eq!(shrunk["extents"], 2);
    let disk = site.path("disk-1").display().to_string();
    let moved = site.json(&["volume", "move", "cam", "--disk", &disk]);
    assert_eq!(
        moved["extents_by_disk"],
        json!([{ "disk": disk, "extents": 2 }])
    );
    assert_eq!(
        site.json(&["volume", "list"]).as_array().map(Vec::len),
        Some(1)
    );
    // A restart forgets nothing.
    assert_eq!(server.terminate().0, Some(0));
    let server = site.serve();
    assert_eq!(
        site.json(&["volume", "show", "cam"])["extents_by_disk"][0]["disk"],
        *disk
    );
    site.run(&["volume", "delete", "cam"]).done();
    site.run(&["volume", "show", "cam"])
        .fails(2, &["cam", "volume list"]);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_token_means_no_stream_of_another_server() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "cam", "--size", "1MiB"])
        .done();
    let ask = json!({ "volume": "cam", "op": "play", "rate_bytes_per_second": 1_000_000, "connect_within_ms": 600_000 });
    let reserve = || call(&site, "POST", "/v1/streams", &ask.to_string());
    let of_number = |stream: &Value| format!("/v1/streams/{}", stream["id"]);
    let of_token = |stream: &Value| {
        let token = stream["token"].as_str().expect("a token");
        format!("/v1/streams/{token}")
    };
    let (status, first) = reserve();
    assert_eq!(status, 201, "{first}");
    server.kill();
    let server = site.serve();
    let (status, second) = reserve();
    assert_eq!(status, 201, "{second}");
    assert_eq!(first["id"], second["id"]);
    let rate = json!({ "rate_bytes_per_second": 500_000 }).to_string();
    for (method, body) in [("GET", ""), ("PATCH", rate.as_str()), ("DELETE", "")] {
        let (status, problem) = call(&site, method, &of_token(&first), body);
        assert_eq!(status, 404, "{method}: {problem}");
        let (status, answer) = call(&site, method, &of_token(&second), body);
        assert_eq!(status, 200, "{method}: {answer}");
    }
    assert_eq!(call(&site, "GET", &of_number(&second), "").0, 404);
    for nonsense in ["cam", "-1", "18446744073709551616", "%00"] {
        let (status, problem) = call(&site, "GET", &format!("/v1/streams/{nonsense}"), "");
        assert_eq!(status, 400, "{nonsense}: {problem}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn names_and_sizes_that_make_no_sense_are_refused() {
    let (site, server) = Site::serving(1);
    let create =
        |name: &str, size: &str| site.run(&["volume", "create", "--size", size, "--", name]);
    create("", "1MiB").fails(2, &["name"]);
    create(&"x".repeat(256), "1MiB").fails(2, &["name"]);
    create("a/b", "1MiB").fails(2, &["slash"]);
    create("line\nbreak", "1MiB").fails(2, &["name"]);
    create("big", "1PiB").fails(2, &["extents"]);
    create("overflow", "18446744073709551615").fails(2, &[]);
    create(&"x".repeat(255), "1MiB").done();
    create("na\u{ef}ve name?&%2F", "1MiB").done();
    site.run(&["volume", "show", "na\u{ef}ve name?&%2F"]).done();
    for body in [
        "",
        "{",
        "[]",
        "{\"name\":\"v\"}",
        "{\"name\":7,\"size_bytes\":1}",
        "{\"name\":\"v\",\"size_bytes\":-1}",
    ] {
        let (status, problem) = call(&site, "POST", "/v1/volumes", body);
        assert!((400..500).contains(&status), "{body}: {status}");
        assert!(
            problem["what"].is_string() && problem["help"].is_string(),
            "{body}: {problem}"
        );
    }
    let (status, problem) = call(
        &site,
        "POST",
        "/v1/volumes",
        "{\"name\":\"v\",\"size_bytes\":0}",
    );
    assert_eq!(status, 422, "{problem}");
    assert_eq!(call(&site, "GET", "/v1/nothing", "").0, 404);
    assert_eq!(call(&site, "PUT", "/v1/pool", "").0, 405);
    assert_eq!(call(&site, "GET", "/v1/streams/x", "").0, 400);
    assert_eq!(call(&site, "GET", "/v1/streams/999", "").0, 404);
    assert_eq!(call(&site, "GET", "/v1/disks/7", "").0, 404);
    // After all of that it serves.
    assert_eq!(
        site.json(&["volume", "list"]).as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn every_reading_command_says_what_there_is_to_people_and_programs() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "1MiB"])
        .done();
    for command in [
        &["pool", "show"][..],
        &["disk", "show"],
        &["disk", "show", "0"],
        &["volume", "show", "v"],
        &["status"],
    ] {
        let text = site.run(command).done();
        assert!(!text.out.is_empty());
        let json = site.run(&[&["--json"], command].concat()).done().json();
        assert!(json.is_object() || json.is_array(), "{command:?}");
    }
    // A guessed profile is said wherever it is shown.
    for command in [["pool", "show"], ["disk", "show"]] {
        let text = site.run(&command).done().out;
        assert!(text.contains("not measured"), "{command:?}: {text}");
    }
    let text = site.run(&["status"]).done().out;
    let is_said = |line: &str| line.starts_with("warning: ") && line.contains("on this disk");
    assert!(text.lines().any(is_said), "{text}");
    let one = site.run(&["disk", "show", "0"]).done().out;
    assert!(
        one.contains("warning: ") && one.contains("on this disk"),
        "{one}"
    );
    let warnings = site.json(&["status"])["warnings"].clone();
    let disk = site.path("disk-0").display().to_string();
    assert!(
        warnings
            .as_array()
            .expect("warnings")
            .iter()
            .any(|warning| warning["what"].is_string()
                && warning["concerns"]
                    .as_array()
                    .is_some_and(|names| names.contains(&json!(disk)))),
        "{warnings}"
    );
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn watching_ends_with_who_watches() {
    let (site, server) = Site::serving(1);
    let mut watch = clockwise();
    watch
        .arg("--config")
        .arg(site.config())
        .args(["status", "--watch", "--interval", "10ms"])
        .stdout(Stdio::piped());
    let mut watching = Process::spawn(&mut watch);
    let mut lines = BufReader::new(watching.heard()).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(first.starts_with("pool test"), "{first}");
    // From here on nobody reads; a command that did not notice would run for ever.
    drop(lines);
    assert_eq!(watching.wait().code(), Some(0));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn programs_get_every_error_as_json() {
    let site = Site::new(1);
    for (arguments, says) in [
        (&["--json", "volume", "create", "v"][..], "--size"),
        (&["volume", "list", "--colour", "--json"], "--colour"),
        (&["--json", "volume", "list"], "no server"),
    ] {
        let outcome = site.run(arguments);
        let error: serde_json::Value = serde_json::from_str(&outcome.err)
            .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        let what = error["what"].as_str().expect("what");
        assert!(what.contains(says), "{error}");
        let kind = if outcome.code == 2 {
            "bad-input"
        } else {
            "failed"
        };
        assert_eq!(error["kind"], kind, "{outcome:?}");
        assert!(
            error["help"].is_string() && outcome.out.is_empty(),
            "{outcome:?}"
        );
    }
}

#[test]
fn sockets_have_their_permissions_and_go_with_the_server() {
    let (site, server) = Site::serving(1);
    for socket in ["api.sock", "data.sock", "nbd.sock"] {
        let mode = std::fs::metadata(site.path(socket))
            .expect("the socket is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o660, "{socket}");
    }
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    for socket in ["api.sock", "data.sock", "nbd.sock"] {
        assert!(!site.path(socket).exists(), "{socket} is left behind");
    }
    // Remains of a killed server are no obstacle.
    let _ = site.serve().kill();
    assert!(site.path("api.sock").exists());
    assert_eq!(site.serve().terminate().0, Some(0));
    // Something else in its place is.
    std::fs::write(site.path("api.sock"), "precious").expect("a file");
    site.run(&["serve"]).fails(2, &["api.sock", "not a socket"]);
    assert_eq!(testkit::site::read(&site.path("api.sock")), b"precious");
}

#[test]
fn the_memory_of_a_server_in_real_time_is_not_paged_out() {
    let site = Site::new(1);
    let config = std::fs::read_to_string(site.config()).expect("the configuration");
    let config = config.replace("realtime = false", "realtime = true");
    std::fs::write(site.config(), config).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    let process = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let process = process.expect("it runs");
    let kib = |name: &str| -> u64 {
        let line = process.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|text| text.parse().ok()).expect("a number")
    };
    // Pages that nobody has touched are counted too; the kernel's own, mapped for all, are not.
    let is_locked = kib("VmLck:") * 10 > kib("VmSize:") * 9;
    let said = site.run(&["status"]).done();
    let said = said.out;
    assert_ne!(is_locked, said.contains("mlockall"), "{process}{said}");
}

#[test]
fn flushed_data_survives_a_kill() {
    if !have("nbdcopy") {
        return;
    }
    let (site, mut server) = Site::serving(2);
    site.run(&["volume", "create", "v", "--size", "6MiB"])
        .done();
    for round in 0..3 {
        let content = pattern(round, 6 << 20);
        std::fs::write(site.path("content"), &content).expect("a file");
        let from = site.path("content").display().to_string();
        nbdcopy(&["--flush", &from, &nbd(&site, "v")]).done();
        let _ = server.kill();
        site.run(&["pool", "check"]).done();
        server = site.serve();
        let to = site.path("back").display().to_string();
        nbdcopy(&[&nbd(&site, "v"), &to]).done();
        assert!(
            testkit::site::read(&site.path("back")) == content,
            "round {round} was lost"
        );
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_volume_in_use_is_not_deleted() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "2MiB"])
        .done();
    let ask =
        json!({ "volume": "v", "op": "play", "rate_bytes_per_second": 1000, "block_bytes": 65536 });
    let (status, reserved) = call(&site, "POST", "/v1/streams", &ask.to_string());
    assert_eq!(status, 201, "{reserved}");
    site.run(&["volume", "delete", "v"]).fails(1, &["in use"]);
    assert_eq!(
        call(
            &site,
            "DELETE",
            &format!("/v1/streams/{}", reserved["id"]),
            ""
        )
        .0,
        200
    );
    site.run(&["volume", "delete", "v"]).done();
    assert_eq!(server.terminate().0, Some(0));
}

/// Shorter than anybody waits, and longer than a server takes to say that there is nothing.
const PATIENCE: Duration = Duration::from_secs(2);

#[test]
fn a_server_that_is_stopped_is_not_waited_for() {
    let (site, server) = Site::serving(1);
    let client = ApiClient::new(site.path("api.sock")).patient(PATIENCE);
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let list = || runtime.block_on(client.get::<Value>("/v1/volumes"));
    assert_eq!(list(), Ok(json!([])));
    server.stop();
    let failure = list().expect_err("nobody answers");
    assert!(failure.what.contains("has not answered"), "{failure:?}");
    assert!(failure.help.contains("kill -CONT"), "{failure:?}");
    // Waiting connections fill the socket, and it takes no more.
    let waiting: Vec<_> = std::iter::from_fn(|| unaccepted(&site))
        .take(10_000)
        .collect();
    let failure = list().expect_err("nobody answers");
    assert!(failure.what.contains("has not answered"), "{failure:?}");
    drop(waiting);
    server.go_on();
    assert_eq!(list(), Ok(json!([])));
    assert_eq!(server.terminate().0, Some(0));
}

/// A connection that nobody has accepted; `None`: there is no room for one.
fn unaccepted(site: &Site) -> Option<OwnedFd> {
    let address = SocketAddrUnix::new(site.path("api.sock")).expect("a path");
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::NONBLOCK, None);
    let socket = socket.expect("a socket");
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket)
}

/// Answers the call that comes on a connection; its first line.
fn answer(connection: &mut UnixStream, status: &str, body: &str) -> String {
    let mut request = BufReader::new(&*connection).lines();
    let head = request.next().expect("a request").expect("text");
    while !request.next().expect("its head").expect("text").is_empty() {}
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    connection.write_all(text.as_bytes()).expect("it waits");
    head
}

/// Answer of a server that opens its pool.
const OPENING: &str =
    r#"{"status":503,"what":"the pool is being opened","help":"ask again","opening":true}"#;

#[test]
fn a_pool_that_is_being_opened_is_waited_for_as_long_as_the_server_says_so() {
    let site = Site::new(0);
    let socket = site.path("opening.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let next = || listener.accept().expect("a call").0;
    let unavailable = "503 Service Unavailable";
    // Another 503 is told, and so is a server that ends instead.
    let answers = [
        (unavailable, OPENING.replace(",\"opening\":true", "")),
        ("200 OK", "[]".to_owned()),
    ];
    for (status, body) in answers {
        let client = ApiClient::new(&socket);
        let asked = runtime.spawn(async move { client.get::<Value>("/v1/volumes").await });
        for _ in 0..10 {
            answer(&mut next(), unavailable, OPENING);
        }
        assert!(!asked.is_finished());
        answer(&mut next(), status, &body);
        let answered = runtime.block_on(asked).expect("it does not panic");
        match status == unavailable {
            true => assert_eq!(answered.expect_err("it is told").help, "ask again"),
            false => assert_eq!(answered, Ok(json!([]))),
        }
    }
    let client = ApiClient::new(&socket);
    let asked = runtime.spawn(async move { client.get::<Value>("/v1/volumes").await });
    let mut last = next();
    drop(listener);
    answer(&mut last, unavailable, OPENING);
    let answered = runtime.block_on(asked).expect("it does not panic");
    let failure = answered.expect_err("nobody answers");
    assert!(
        failure.help.contains("while it opened its pool"),
        "{failure:?}"
    );
}

/// Also one that handles Ctrl-C later on.
#[test]
fn a_command_that_waits_for_a_pool_to_be_opened_is_ended_by_ctrl_c() {
    let site = Site::new(0);
    let socket = site.path("opening.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let to = socket.display().to_string();
    let stream = ["stream", "play", "--volume", "v", "--rate", "1MB/s", "--to"];
    for waits in [
        &["status", "--watch"][..],
        &["volume", "move", "v", "--zone", "0"],
        &[&stream[..], &["/dev/null"]].concat(),
    ] {
        let mut command = clockwise();
        command.args(waits).args(["--socket", &to]);
        let waiting = Process::captured(&mut command);
        let (mut first, _) = listener.accept().expect("a call");
        answer(&mut first, "503 Service Unavailable", OPENING);
        // The client asks again; this is not answered.
        let _again = listener.accept().expect("a call");
        let pid = rustix::process::Pid::from_child(&waiting);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
        let ended = waiting.output();
        assert_eq!(
            ended.status.signal(),
            Some(rustix::process::Signal::INT.as_raw()),
            "{ended:?}"
        );
        assert!(
            ended.stdout.is_empty() && ended.stderr.is_empty(),
            "{ended:?}"
        );
    }
}

#[test]
fn long_command_is_waited_for_while_the_server_answers() {
    let site = Site::new(0);
    let socket = site.path("slow.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let serving = std::thread::spawn(move || {
        // The call is answered when the server was asked twice meanwhile whether it answers.
        let (mut first, _) = listener.accept().expect("the call");
        for _ in 0..2 {
            let (mut meanwhile, _) = listener.accept().expect("another call");
            let asked = answer(&mut meanwhile, "404 Not Found", "[]");
            assert!(asked.starts_with("GET /v1 "), "{asked}");
        }
        answer(&mut first, "200 OK", "[]");
    });
    let client = ApiClient::new(&socket).patient(PATIENCE);
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let list = runtime.block_on(client.get::<Value>("/v1/volumes"));
    assert_eq!(list, Ok(json!([])));
    serving.join().expect("it has answered");
}

#[test]
fn a_move_is_listed_and_stopped_by_the_name_of_its_volume() {
    // On drives that take their time, each extent with a record of its own.
    let (site, server) = Site::serving_drives(2);
    site.run(&["volume", "create", "large", "--size", "4GiB"])
        .done();
    let mut command = clockwise();
    command.arg("--config").arg(site.config());
    command.args(["volume", "move", "large", "--zone", "9"]);
    let moving = Process::captured(&mut command);
    let shown = || site.json(&["volume", "show", "large"])["moving"].clone();
    testkit::until("the move is under way", || shown().is_object());
    // The move goes on when its command is killed, and can be stopped all the same.
    drop(moving);
    let listed = site.json(&["volume", "list"]);
    assert!(listed[0]["moving"]["total"].is_u64(), "{listed}");
    let text = site.run(&["volume", "list"]).done().out;
    assert!(text.contains("volume large is being moved: "), "{text}");
    assert!(
        text.contains("`clockwise volume move large --stop`"),
        "{text}"
    );
    let stop = ["volume", "move", "large", "--stop"];
    let at = site.json(&stop);
    assert!(at["done"].as_u64() < at["total"].as_u64(), "{at}");
    testkit::until("the move has ended", || shown().is_null());
    site.run(&stop).fails(2, &["large", "not being moved"]);
    site.run(&[&stop[..], &["--zone", "1"]].concat())
        .fails(2, &["--zone"]);
    assert_eq!(server.terminate().0, Some(0));
}

/// A file with these bytes at these places, and zeros elsewhere.
fn marked(site: &Site, marks: &[(usize, &[u8])]) -> String {
    let mut content = vec![0; 128 << 10];
    for (at, bytes) in marks {
        content[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    testkit::site::told::file(site, "marked", &content)
}

#[test]
fn existing_data_is_named_and_spared_unless_forced() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    // The marks of ext4: its magic number, and sizes and a revision that it has.
    let ext4 = marked(
        &site,
        &[(0x438, &[0x53, 0xef]), (0x418, &[2]), (0x44c, &[1])],
    );
    let record = |from: &str, more: &[&str]| {
        let how = ["--rate", "500KB/s", "--block", "64KiB"];
        let what = ["stream", "record", "--volume", "v", "--from", from];
        site.run(&[&what[..], &how, more].concat())
    };
    record(&ext4, &[]).done();
    // The volume is a file system now, which is neither recorded over nor cut.
    let data = testkit::site::told::file(&site, "data", &pattern(5, 128 << 10));
    record(&data, &[]).fails(1, &["volume \"v\" holds a file system (ext2", "--force"]);
    let shrink = |size: &str, more: &[&str]| {
        site.run(&[&["volume", "shrink", "v", "--size", size][..], more].concat())
    };
    let words = "(ext2, ext3 or ext4), which may reach past the new size: shrinking the volume may destroy that";
    shrink("2MiB", &[]).fails(1, &[words, "--force", "made smaller before"]);
    let patch = |body: Value| call(&site, "PATCH", "/v1/volumes/v", &body.to_string());
    for direction in [Value::Null, json!("shrink")] {
        let (status, problem) = patch(json!({ "size_bytes": 2 << 20, "direction": direction }));
        assert_eq!(status, 409, "{problem}");
        assert_eq!(problem["where"], "volume", "{problem}");
    }
    record(&data, &["--force"]).done();
    // Bytes without a mark are recorded over, and not cut off.
    record(&data, &["--offset", "2MiB"]).done();
    shrink("2MiB", &[]).fails(1, &["128 KiB of written data past 2 MiB"]);
    let (status, problem) = patch(json!({ "size_bytes": 2 << 20 }));
    assert_eq!(status, 409, "{problem}");
    let asked = json!({ "volume": "v", "op": "play", "rate_bytes_per_second": 500_000, "offset_bytes": 2 << 20 });
    let (status, reserved) = call(&site, "POST", "/v1/streams", &asked.to_string());
    assert_eq!(status, 201, "{reserved}");
    let stream = format!("/v1/streams/{}", reserved["id"]);
    assert_eq!(call(&site, "DELETE", &stream, "").0, 200);
    shrink("3MiB", &[]).done();
    shrink("2MiB", &["--force"]).done();
    shrink("1MiB", &[]).done();
    assert_eq!(site.json(&["volume", "show", "v"])["size_bytes"], 1 << 20);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn volume_open_over_nbd_is_spared_unless_forced() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let client = Wire::simple(&site.path("nbd.sock"), "v");
    let from = testkit::site::told::file(&site, "data", &pattern(5, 64 << 10));
    let record = [
        "stream", "record", "--volume", "v", "--rate", "1MB/s", "--from", &from,
    ];
    let shrink = ["volume", "shrink", "v", "--size", "2MiB"];
    let said = ["in use through its export by 1 NBD client", "--force"];
    for arguments in [&record[..], &shrink] {
        site.run(arguments).fails(1, &said);
        site.run(&[arguments, &["--force"]].concat()).done();
    }
    // It is not deleted even so.
    site.run(&["volume", "delete", "v"])
        .fails(1, &["in use by an NBD client"]);
    drop(client);
    testkit::until("the client has gone", || {
        site.json(&["volume", "show", "v"])["open_count"] == 0
    });
    site.run(&record).done();
    site.run(&["volume", "delete", "v"]).done();
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_socket_that_cannot_be_is_told_with_what_to_do() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let text = String::from_utf8(testkit::site::read(&site.config())).expect("text");
    let with = |unix: &str| {
        let text = text.replace("unix = \"nbd.sock\"", &format!("unix = \"{unix}\""));
        std::fs::write(site.config(), text).expect("the configuration can be written");
    };
    for (unix, words) in [
        (
            "x".repeat(120),
            ["too long for the socket", "the maximum is 107"],
        ),
        (
            "api.sock".to_owned(),
            ["api.sock", "control API and the block export"],
        ),
        (
            "data.sock".to_owned(),
            ["data.sock", "streams' data and the block export"],
        ),
        ("disk-0".to_owned(), ["disk-0", "not a socket"]),
    ] {
        with(&unix);
        site.run(&["serve"]).fails(2, &words);
    }
    // A folder that is missing is made.
    with("run/clockwise/nbd.sock");
    let server = site.serve();
    assert!(site.path("run/clockwise/nbd.sock").exists());
    assert_eq!(server.terminate().0, Some(0));
    assert!(!site.path("run/clockwise/nbd.sock").exists());
}
