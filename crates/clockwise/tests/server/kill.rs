//! A server that is killed while clients write: at whatever moment that is, what was acknowledged as
//! durable is there afterwards. And one that is told to end while streams run.

#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

use std::io::Read;
use std::process::Stdio;
use std::sync::mpsc;

use serde_json::{Value, json};
use testkit::nbd::{Wire, cmd};
use testkit::site::{Site, call};
use testkit::{Random, pattern, seed, until};

/// Blocks of the volume: some are written again and again, others for the first time in a late round.
const BLOCKS: u64 = 512;

const BLOCK: usize = 4096;

/// Number of kills.
const ROUNDS: u64 = 12;

/// The answer to one write.
enum Told {
    /// Answered; durable after the next flush.
    Answered { block: u64, version: u64 },
    /// All that was answered before is durable.
    Flushed,
    /// Durable.
    Forced { block: u64, version: u64 },
}

/// One request and its answer; `None` when the server has gone.
fn ask(wire: &mut Wire, kind: u16, flags: u16, offset: u64, data: &[u8]) -> Option<()> {
    use std::io::Write;
    let length = data.len() as u32;
    let mut request = Wire::header(kind, flags, offset, offset, length);
    request.extend_from_slice(data);
    wire.stream.write_all(&request).ok()?;
    // A simple reply: magic, error, cookie.
    let mut reply = [0; 16];
    wire.stream.read_exact(&mut reply).ok()?;
    assert_eq!(&reply[4..8], [0; 4], "the server answers with an error");
    Some(())
}

fn content(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = pattern(block << 32 | version, BLOCK);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Writes blocks in an order that `seed` decides until the server goes, and tells what it was told. Each
/// request takes one of the two connections: a flush covers what was answered on either.
fn write(
    mut wires: [Wire; 2],
    seed: u64,
    mut version: u64,
    told: &mpsc::Sender<Told>,
) -> Option<()> {
    let mut random = Random(seed);
    loop {
        let (block, way) = (random.below(BLOCKS), random.below(16));
        let wire = &mut wires[random.below(2) as usize];
        version += 1;
        let (offset, data) = (block * BLOCK as u64, content(block, version));
        let answer = if way < 4 {
            ask(wire, cmd::WRITE, cmd::FUA, offset, &data)?;
            Told::Forced { block, version }
        } else if way < 14 {
            ask(wire, cmd::WRITE, 0, offset, &data)?;
            Told::Answered { block, version }
        } else {
            ask(wire, cmd::FLUSH, 0, 0, &[])?;
            Told::Flushed
        };
        // The killing thread has stopped listening.
        told.send(answer).ok()?;
    }
}

/// The version of each block that must not be lost.
#[derive(Clone, Copy, Default)]
struct Known {
    answered: u64,
    durable: u64,
}

fn learn(known: &mut [Known], told: &Told) {
    match *told {
        Told::Answered { block, version } => known[block as usize].answered = version,
        Told::Flushed => known.iter_mut().for_each(|one| one.durable = one.answered),
        Told::Forced { block, version } => {
            known[block as usize] = Known {
                answered: version,
                durable: version,
            };
        }
    }
}

#[test]
fn acknowledged_writes_survive_a_kill_at_any_moment() {
    let seed = seed("kill", None);
    let (site, mut server) = Site::serving(2);
    let size = format!("{}KiB", BLOCKS * BLOCK as u64 / 1024);
    site.run(&["volume", "create", "v", "--size", &size]).done();
    let mut known = vec![Known::default(); BLOCKS as usize];
    let mut version = 0;
    for round in 0..ROUNDS {
        let wires = [(); 2].map(|()| Wire::simple(&site.path("nbd.sock"), "v"));
        let (sender, told) = mpsc::channel();
        let writer = std::thread::spawn(move || write(wires, seed ^ round, version, &sender));
        // Not after a time but after so many answers; the next request is under way somewhere.
        for _ in 0..(seed >> (round % 8) & 63) + round {
            learn(&mut known, &told.recv().expect("an answer"));
        }
        let _ = server.kill();
        told.iter().for_each(|one| learn(&mut known, &one));
        assert!(writer.join().expect("the writer ends").is_none());
        site.run(&["pool", "check"]).done();
        server = site.serve();
        let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
        for (block, known) in (0..BLOCKS).zip(&mut known) {
            let there = wire.read_range(block * BLOCK as u64, BLOCK as u32);
            let found = u64::from_le_bytes(there[..8].try_into().expect("eight bytes"));
            let about = format!("round {round}, block {block}: version {found}");
            assert!(
                found >= known.durable,
                "{about} instead of {}",
                known.durable
            );
            // A version that was written, whole, or nothing yet.
            assert!(
                found == 0 && there == [0; BLOCK] || there == content(block, found),
                "{about} is torn"
            );
            // The data that was read is the beginning of the next round; it is on the disks.
            *known = Known {
                answered: found,
                durable: found,
            };
            version = version.max(found);
        }
        // Versions that were on their way to a block are not given again.
        version += BLOCKS;
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_recording_that_is_done_survives_a_kill() {
    for (site, server) in [Site::serving(2), Site::serving_drives(2)] {
        site.run(&["volume", "create", "v", "--size", "64MiB"])
            .done();
        let (film, back) = (site.path("film"), site.path("back"));
        let recorded = pattern(9, 1_234_567);
        std::fs::write(&film, &recorded).expect("a file");
        let stream = |way: &str, option: &str, file: &std::path::Path, more: &[&str]| {
            let file = file.to_str().expect("a name");
            let fixed = ["--json", "stream", way, "--volume", "v", option, file];
            let how = ["--rate", "500KB/s", "--block", "128KiB"];
            let outcome = site.run(&[&fixed[..], &how, more].concat());
            // A machine that is busy may make blocks late.
            assert!(matches!(outcome.code, 0 | 1), "{outcome:?}");
            let report = outcome.json();
            assert_eq!(report["state"], "done", "{report}");
            report
        };
        // And again where there is a recording.
        for _ in 0..2 {
            let report = stream("record", "--from", &film, &[]);
            assert_eq!(report["pace"]["durable_bytes"], recorded.len(), "{report}");
        }
        drop(server.kill());
        site.run(&["pool", "check"]).done();
        let server = site.serve();
        let length = format!("{}", recorded.len().next_multiple_of(4096));
        stream("play", "--to", &back, &["--length", &length]);
        let played = std::fs::read(&back).expect("it was played");
        assert!(played[..recorded.len()] == recorded);
        assert_eq!(server.terminate().0, Some(0));
    }
}

#[test]
fn sigterm_ends_streams_and_clients_in_good_order() {
    let (site, server) = Site::serving(2);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    site.run(&["volume", "create", "w", "--size", "4MiB"])
        .done();
    // A recording under way, a reservation that nobody has connected to, an NBD client.
    let ask_for = json!({
        "volume": "v", "op": "record", "rate_bytes_per_second": 500_000, "block_bytes": 65536,
        "connect_within_ms": 600_000
    });
    let (status, waiting) = call(&site, "POST", "/v1/streams", &ask_for.to_string());
    assert_eq!(status, 201, "{waiting}");
    let (status, reserved) = call(&site, "POST", "/v1/streams", &ask_for.to_string());
    assert_eq!(status, 201, "{reserved}");
    let mut stream = testkit::site::connect(&site.path("data.sock"));
    let token = reserved["token"].as_str().expect("a token");
    std::io::Write::write_all(
        &mut stream,
        format!("clockwise-stream {token}\n").as_bytes(),
    )
    .expect("it is taken");
    let recorded = pattern(5, 4 * 65536);
    std::io::Write::write_all(&mut stream, &recorded).expect("it is taken");
    let path = format!("/v1/streams/{}", reserved["id"]);
    until("four blocks are recorded", || {
        call(&site, "GET", &path, "").1["pace"]["blocks"].as_u64() >= Some(4)
    });
    let mut wire = Wire::structured(&site.path("nbd.sock"), "w");
    let written = pattern(7, 65536);
    assert_eq!(wire.write(0, 0, &written).error, 0);
    server.tell_to_end();
    // Both ends are told, by an end of their connections; nothing that they sent was left unread.
    let mut answers = Vec::new();
    let ended = stream.read_to_end(&mut answers);
    assert!(
        ended.is_ok() && answers == b"ok\n",
        "{ended:?}: {answers:?}"
    );
    assert!(wire.is_closed());
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    let check = site.run(&["--json", "pool", "check"]).done().json();
    assert_eq!(check["findings"], json!([]));
    // Answered writes were made durable, flushed or not; the recording is there.
    let server = site.serve();
    let mut wire = Wire::structured(&site.path("nbd.sock"), "w");
    assert!(wire.read_range(0, 65536) == written);
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    assert!(wire.read_range(0, 4 * 65536) == recorded);
    assert_eq!(server.terminate().0, Some(0));
}

/// A drive that takes so long for each sector it reads and writes, and what it is a configuration of.
fn with_a_slow_drive(site: &Site, read_ns: u64, write_ns: u64) {
    let plant = include_str!("../../../drives/plants/quantum-atlas-ii.toml");
    let slow = plant
        .replacen(
            "bus_sector_ns = 50_900",
            &format!("bus_sector_ns = {read_ns}"),
            1,
        )
        .replacen(
            "bus_sector_ns = 52_000",
            &format!("bus_sector_ns = {write_ns}"),
            1,
        );
    std::fs::write(site.path("plant.toml"), slow).expect("it can be written");
    let drive = "[patience]\nstalled_after = \"100ms\"\n[[disk]]\npath = \"drive\"\nkind = \"emulated\"\n\
                 plant = \"plant.toml\"\nprofile = \"quantum-atlas-ii\"\n";
    site.configure(&[]);
    let text = testkit::site::read_text(&site.config()) + drive;
    std::fs::write(site.config(), text).expect("it can be written");
}

/// The exit status of a server that SIGTERM has ended at once.
const ENDED_AT_ONCE: Option<i32> = Some(128 + 15);

#[test]
fn a_signal_ends_a_server_whose_disks_take_long_to_open() {
    let site = Site::new(0);
    with_a_slow_drive(&site, 50_900, 52_000);
    site.run(&["pool", "create"]).done();
    // A second for each sector that is read.
    with_a_slow_drive(&site, 1_000_000_000, 52_000);
    let mut command = testkit::site::clockwise();
    command.arg("--config").arg(site.config()).arg("serve");
    let mut serve = testkit::process::Process::captured(&mut command);
    let opened = format!("/proc/{}/fd", serve.id());
    let drive = site.path("drive");
    until("it has opened the drive", || {
        let open = std::fs::read_dir(&opened).expect("the server is there");
        open.flatten()
            .any(|of| std::fs::read_link(of.path()).is_ok_and(|file| file == drive))
    });
    let pid = rustix::process::Pid::from_child(&serve);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    assert_eq!(serve.wait().code(), ENDED_AT_ONCE);
}

/// All of an answer to a call whose connection could go on.
fn answered(site: &Site, head: &str, body: &str) -> String {
    let mut connection = testkit::site::connect(&site.path("api.sock"));
    let length = body.len();
    let call = format!(
        "{head} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    std::io::Write::write_all(&mut connection, call.as_bytes()).expect("it is taken");
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("an answer");
    text
}

/// A server whose drive takes so long for each sector that it reads, and what it answers first.
fn opening(site: &Site, read_ns: u64) -> (testkit::process::Process, (u16, Value)) {
    with_a_slow_drive(site, read_ns, 52_000);
    let mut command = testkit::site::clockwise();
    command.arg("--config").arg(site.config()).arg("serve");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let server = testkit::process::Process::spawn(&mut command);
    let mut told = None;
    until("it listens", || {
        told = testkit::site::call_if_there(site, "GET", "/v1/status", "");
        told.is_some()
    });
    (server, told.expect("an answer"))
}

#[test]
fn while_the_pool_is_being_opened_calls_are_told_and_commands_wait() {
    let site = Site::new(0);
    with_a_slow_drive(&site, 50_900, 52_000);
    site.run(&["pool", "create"]).done();
    // It takes hours to open.
    let (server, (status, problem)) = opening(&site, 1_000_000_000);
    let is_opening = (status, &problem["opening"]);
    assert_eq!(is_opening, (503, &json!(true)), "{problem}");
    let what = problem["what"].as_str().unwrap_or_default();
    assert!(what.contains("is being opened"), "{problem}");
    // Also with a long body, and the connection ends with that.
    let text = answered(&site, "POST /v1/sources", &"x".repeat(1 << 20));
    assert!(text.starts_with("HTTP/1.1 503"), "{text}");
    for line in ["connection: close\r\n", "retry-after: 1\r\n"] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    drop(server);
    // This one in seconds.
    let _server = opening(&site, 4_000_000);
    let made = site.run(&["volume", "create", "v", "--size", "1MiB"]);
    assert!(made.code == 0 && made.err.is_empty(), "{made:?}");
    assert_eq!(site.json(&["volume", "list"])[0]["name"], "v");
}

#[test]
fn a_second_signal_ends_a_server_that_waits_for_a_disk_and_stalls_are_in_its_log() {
    let site = Site::new(0);
    with_a_slow_drive(&site, 50_900, 52_000);
    site.run(&["pool", "create"]).done();
    // A block of metadata takes 160 ms, which is a stall here, and a mebibyte of data 40 s.
    with_a_slow_drive(&site, 50_900, 20_000_000);
    let server = site.serve();
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let mut wire = Wire::simple(&site.path("nbd.sock"), "v");
    wire.send(&Wire::header(cmd::WRITE, 0, 0, 0, 1 << 20));
    wire.send(&vec![1; 1 << 20]);
    until("the drive is at it", || {
        let disk = &site.json(&["status"])["disks"][0];
        disk["queued"].as_u64() > Some(0) && disk["stalls"].as_u64() > Some(0)
    });
    server.tell_to_end();
    until("it is ending", || !site.path("api.sock").exists());
    let (code, log) = server.terminate();
    assert_eq!(code, ENDED_AT_ONCE, "{log}");
    for line in [
        "drive\" has stalled",
        "drive\" answers again",
        "a second signal",
    ] {
        assert!(log.contains(line), "{line:?} in {log}");
    }
}
