//! Clients that take more than their part: the server stays up, others are served, nothing is lost.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use clockwise::config::Config;
use clockwise::server::Server;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use testkit::process::WITHIN;
use testkit::site::{Site, call};
use testkit::{pattern, until};

/// Connections that are opened at once.
const CONNECTIONS: usize = 1_000;

/// Lets this process have that many descriptors and some.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let allowed = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, allowed).expect("a limit can be raised up to its maximum");
}

/// Opens connections that say `text` and then nothing.
fn idle(site: &Site, socket: &str, text: &[u8]) -> Vec<UnixStream> {
    (0..CONNECTIONS)
        .map(|number| {
            let mut connection = testkit::site::try_connect(&site.path(socket))
                .unwrap_or_else(|error| panic!("connection {number}: {error}"));
            connection.write_all(text).expect("it is taken");
            connection
        })
        .collect()
}

#[test]
fn a_thousand_connections_to_the_control_socket_keep_nobody_out() {
    allow_descriptors();
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    // Half a request each, and another thousand that say nothing at all.
    let half = idle(&site, "api.sock", b"GET /v1/status HTTP/1.1\r\nhost: x\r\n");
    let silent = idle(&site, "api.sock", b"");
    let volumes = site.json(&["volume", "list"]);
    assert_eq!(volumes[0]["name"], "v");
    site.run(&["volume", "create", "w", "--size", "1MiB"])
        .done();
    // The first ones are served when they say the rest.
    for mut connection in half.into_iter().take(10) {
        connection
            .write_all(b"connection: close\r\n\r\n")
            .expect("it is taken");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    drop(silent);
    assert_eq!(server.terminate().0, Some(0));
    site.run(&["pool", "check"]).done();
}

#[test]
fn a_thousand_silent_connections_to_the_data_socket_keep_nobody_out() {
    allow_descriptors();
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let silent = idle(&site, "data.sock", b"clockwise-");
    let content = pattern(1, 256 << 10);
    std::fs::write(site.path("content"), &content).expect("a file");
    let from = site.path("content").display().to_string();
    let reserve = ["--volume", "v", "--rate", "200KB/s", "--block", "64KiB"];
    site.run(&[&["stream", "record", "--from", &from][..], &reserve].concat())
        .done();
    drop(silent);
    assert_eq!(server.terminate().0, Some(0));
    site.run(&["pool", "check"]).done();
}

/// Size of a block of the stream that is stuck.
const BLOCK: usize = 65_536;

/// Bytes that the sockets of the stuck player may hold, with any defaults of this host.
const SOCKET_BYTES: usize = 2 * BLOCK;

/// A pair of sockets, of which the second is the sender's.
fn sockets() -> (UnixStream, UnixStream) {
    let (receiver, sender) = UnixStream::pair().expect("a pair of sockets");
    set_socket_send_buffer_size(&sender, SOCKET_BYTES).expect("it can be set");
    (receiver, sender)
}

/// Bytes that a socket takes without a reader, from a writer that writes blocks when there is room.
fn taken_by_a_socket() -> u64 {
    let (_receiver, mut sender) = sockets();
    sender.set_nonblocking(true).expect("it can be set");
    let mut taken = 0;
    loop {
        let mut writable = [PollFd::new(&sender, PollFlags::OUT)];
        let now = rustix::time::Timespec::default();
        if poll(&mut writable, Some(&now)).expect("it can be asked") == 0 {
            return taken;
        }
        taken += sender.write(&[0; BLOCK]).expect("it has room") as u64;
    }
}

#[test]
fn a_player_that_takes_nothing_holds_its_own_buffers_and_nobody_elses() {
    // A server within this process, so that the socket that it sends by is known.
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let config = Config::read(&site.config()).expect("a configuration");
    let server = runtime.block_on(Server::start(&config));
    let server = server.expect("the pool is there");
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let content = pattern(2, 512 << 10);
    std::fs::write(site.path("content"), &content).expect("a file");
    let from = site.path("content").display().to_string();
    let reserve = ["--volume", "v", "--rate", "200KB/s", "--block", "64KiB"];
    let record = || site.run(&[&["stream", "record", "--from", &from][..], &reserve].concat());
    record().done();
    let ask = json!({
        "volume": "v", "op": "play", "rate_bytes_per_second": 200_000, "block_bytes": BLOCK, "length_bytes": 524_288, "wraps": true
    });
    let (status, reserved) = call(&site, "POST", "/v1/streams", &ask.to_string());
    assert_eq!(status, 201, "{reserved}");
    let (mut stuck, sender) = sockets();
    let token = reserved["token"].as_str().expect("a token");
    stuck
        .write_all(format!("clockwise-stream {token}\n").as_bytes())
        .expect("it is taken");
    let sessions = Arc::clone(&server.app().sessions);
    let playing = std::thread::spawn(move || {
        let session = sessions.claim(&sender, WITHIN).expect("it is reserved");
        session.serve(sender);
    });
    // The player reads that it may begin, and then nothing: the socket fills, and then its buffers.
    stuck.set_read_timeout(Some(WITHIN)).expect("it can be set");
    let mut ok = [0; 3];
    stuck.read_exact(&mut ok).expect("an answer");
    assert_eq!(&ok, b"ok\n");
    let path = format!("/v1/streams/{}", reserved["id"]);
    let blocks = || call(&site, "GET", &path, "").1["stream"]["blocks"].as_u64();
    let full = taken_by_a_socket() / BLOCK as u64 + 2;
    until("its socket and its two buffers are full", || {
        blocks() >= Some(full)
    });
    // Others play and record meanwhile, and get what they should.
    let to = site.path("back").display().to_string();
    let play = ["stream", "play", "--to", &to, "--length", "512KiB"];
    site.run(&[&play[..], &reserve].concat()).done();
    assert!(testkit::site::read(&site.path("back")) == content);
    record().done();
    let held = &site.json(&["status"])["memory"];
    let of_it = held.as_array().expect("accounts").iter();
    let of_it: Vec<_> = of_it.filter(|one| one["client"] == "v").collect();
    assert_eq!(of_it.len(), 1, "{held}");
    let parts = ["fixed_bytes", "variable_bytes", "buffers"].map(|part| &of_it[0][part]);
    assert_eq!(parts, [&json!(2 * BLOCK), &json!(0), &json!(2)], "{held}");
    // All the while it has not been given another block.
    assert_eq!(blocks(), Some(full));
    // Ended by somebody else, it gives everything back although it still takes nothing.
    assert_eq!(call(&site, "DELETE", &path, "").0, 200);
    assert_eq!(site.json(&["status"])["streams"], json!([]));
    until("nothing is sent any more", || playing.is_finished());
    runtime.block_on(server.close()).expect("a clean end");
    site.run(&["pool", "check"]).done();
}

/// Number of partial bodies, and their declared length.
const HALVES: usize = 300;
const BODY_BYTES: usize = 2_000_000;

/// Allowed growth of a server's memory: the bytes under way of 300 calls, twice.
const MORE_KIB: u64 = 2 * HALVES as u64 * 64;

#[test]
fn bodies_that_are_sent_by_halves_take_little_memory_and_keep_nobody_out() {
    let (site, server) = Site::serving(1);
    let resident_kib = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|text| text.parse().ok()).expect("a number")
    };
    let before = resident_kib();
    let head = format!(
        "POST /v1/volumes HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
    );
    let half = [head.as_bytes(), &vec![b' '; BODY_BYTES / 2]].concat();
    let kept: Vec<UnixStream> = (0..HALVES)
        .map(|_| {
            let mut connection = testkit::site::connect(&site.path("api.sock"));
            // A server that has read enough answers, and closes.
            let _ = connection.write_all(&half);
            connection
        })
        .collect();
    let more = resident_kib().saturating_sub(before);
    assert!(more < MORE_KIB, "{more} KiB more");
    site.run(&["volume", "create", "v", "--size", "1MiB"])
        .done();
    for mut connection in kept {
        let mut answer = Vec::new();
        // Unread bytes make the connection end as a broken one.
        let _ = connection.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with("HTTP/1.1 413") || answer.starts_with("HTTP/1.1 503"),
            "{answer}"
        );
    }
    assert_eq!(server.terminate().0, Some(0));
}

/// Clients that are denied, and how many of them there are.
const DENIED: usize = 200;

#[test]
fn clients_that_are_denied_do_not_fill_the_log() {
    let (site, server) = Site::serving(1);
    let begun = Instant::now();
    for _ in 0..DENIED {
        let mut connection = testkit::site::connect(&site.path("data.sock"));
        connection.write_all(b"garbage\n").expect("it is taken");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("error the first line is no"), "{answer}");
    }
    // One line in a minute, and the first at once.
    let most = 1 + begun.elapsed().as_secs() as usize / 60;
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    let told = log.matches("is denied: the first line is no").count();
    assert!((1..=most).contains(&told), "{told} of {DENIED}: {log}");
}

/// Lines of a log about something, of which one a minute may be told, or so many.
#[track_caller]
fn are_told_sparingly(log: &str, begun: Instant, words: &str, a_minute: usize) {
    let most = (1 + begun.elapsed().as_secs() as usize / 60) * a_minute;
    let told = log.matches(words).count();
    assert!((1..=most).contains(&told), "{told} times {words:?}: {log}");
}

/// A health check connects, and may stop half-way through a handshake.
#[test]
fn clients_that_look_at_the_block_export_and_leave_do_not_fill_the_log() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "1MiB"])
        .done();
    let begun = Instant::now();
    for number in 0..300 {
        let mut connection = testkit::site::connect(&site.path("nbd.sock"));
        let said: &[u8] = [b"", &b"\0\0\0\x03"[..], b"\0\0\0\x03IHAV"][number % 3];
        connection.write_all(said).expect("it is taken");
    }
    // Others break the protocol, which is told.
    for _ in 0..30 {
        let mut connection = testkit::site::connect(&site.path("nbd.sock"));
        connection.write_all(&[9; 64]).expect("it is taken");
        let mut rest = Vec::new();
        // It may be cut off with bytes of ours unread.
        let _ = connection.read_to_end(&mut rest);
    }
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    are_told_sparingly(&log, begun, "block export connection", 1);
}

#[test]
fn clients_that_are_refused_over_rtsp_do_not_fill_the_log() {
    let site = Site::new(1);
    let text = testkit::site::read_text(&site.config()) + "[rtsp]\nlisten = \"0\"\n";
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    let (_, address) = server.ready.split_once("rtsp=\"").expect("an address");
    let (address, _) = address.split_once('"').expect("its end");
    let port = address.rsplit_once(':').expect("a port").1;
    let port: u16 = port.parse().expect("a number");
    let begun = Instant::now();
    for _ in 0..DENIED {
        let connection = std::net::TcpStream::connect(("127.0.0.1", port));
        let mut connection = connection.expect("it listens");
        connection.set_read_timeout(Some(WITHIN)).expect("it can");
        let text = b"DESCRIBE rtsp://h/nowhere RTSP/1.0\r\nCSeq: 1\r\n\r\nnonsense\r\n\r\n";
        connection.write_all(text).expect("it is taken");
        let mut answer = [0; 12];
        connection.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"RTSP/1.0 404");
        let nothing_more = connection.shutdown(std::net::Shutdown::Write);
        nothing_more.expect("it is open");
        let mut rest = Vec::new();
        let _ = connection.read_to_end(&mut rest);
    }
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    are_told_sparingly(&log, begun, "a request is refused", 20);
    assert!(
        log.matches("an RTSP connection ended").count()
            <= 20 * (1 + begun.elapsed().as_secs() as usize / 60),
        "{log}"
    );
}
