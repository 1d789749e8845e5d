//! Recording and playing over RTSP up to the limit of admission, on three emulated drives beside a file load. Reports
//! late blocks, lost packets, and the jitter of packets.
//!
//! ```text
//! cargo bench -p clockwise --bench rtsp
//! RTSP_BENCH_SECONDS=600 ...
//! ```
//!
//! A run makes some recordings. Then it admits as many players and publishers as the disks carry, every second one by
//! UDP, until one is refused. All of them move packets for the given time. Beside them `fio` loads the block export
//! with four requests at a time. The packets recorded are compared with those published. Further runs have 64
//! requests at a time, which is more than the disks can serve, and the policy `edf`. The lateness of a packet is its
//! arrival time less its timestamp, over the least of these. Publishers and players are in this process, on the same
//! processors, which sometimes delays them.
//!
//! A run fails if a deadline is missed net of the host's lateness, a block overruns, a packet is missing, or the 99th
//! percentile of lateness reaches 5 ms.

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use testkit::process::Process;
use testkit::rtsp::udp::Pair;
use testkit::rtsp::{Client, SDP_TYPE, TCP, rtp, sdp, serve, with_blocks_of};
use testkit::site::{Site, call, read_text};
use testkit::skip::tool;

const DRIVES: usize = 3;
/// Each stream has 300 packets a second of 1,212 bytes.
const PACKETS_PER_SECOND: u64 = 300;
const BODY: [u8; 1_200] = [0x5a; 1_200];
const KBIT_PER_SECOND: u64 = PACKETS_PER_SECOND * 1_260 * 8 / 1_000;
/// Recordings made before the run. Several players play each.
const RECORDINGS: usize = 4;
/// Speed of making them, as a multiple of the rate at which they are played.
const PREPARED_FASTER: u64 = 4;
/// Number of publishers among ten streams.
const RECORD_OF_TEN: usize = 2;
/// Time for the last packets to be recorded.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);
/// The limit of the 99th percentile of lateness in milliseconds.
const LATE_MAX_MS: f64 = 5.0;

/// A session that records or plays a path, with its sockets if it uses UDP.
struct Session {
    client: Client,
    udp: Option<Pair>,
    path: String,
}

impl Session {
    /// Connects a session. It uses UDP if `number`, counted for each kind of session, is odd.
    fn new(address: SocketAddr, path: String, number: usize) -> Self {
        Self {
            client: Client::connect(address),
            udp: (number % 2 == 1).then(Pair::new),
            path,
        }
    }

    /// Sets a track up. The error is the server's refusal if the disks do not carry it.
    fn set_up(&mut self, address: SocketAddr, track: &str) -> Result<(), String> {
        let transport = self.udp.as_ref().map_or(TCP.to_owned(), Pair::transport);
        let track = format!("{}/{track}", self.path);
        let response = self.client.ask("SETUP", &track, &transport, "");
        match (response.status, &self.udp) {
            (453, _) => return Err(response.body),
            (200, Some(pair)) => pair.agreed(address, &response),
            (200, None) => {}
            _ => panic!("{response:?}"),
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let seconds: u64 = std::env::var("RTSP_BENCH_SECONDS").map_or(30, |text| {
        text.parse().expect("RTSP_BENCH_SECONDS is a number")
    });
    let runs = [("exact", 4), ("exact", 64), ("edf", 4), ("edf", 64)];
    let runs = runs.map(|(scheduler, depth)| run(scheduler, depth, Duration::from_secs(seconds)));
    if runs.contains(&false) {
        println!("FAILED: a deadline was missed, or packets are missing or late");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Returns true if the run meets all limits.
fn run(scheduler: &str, depth: u32, length: Duration) -> bool {
    let site = Site::new(0);
    let mut text = read_text(&site.config()).replace("64MiB", "512MiB");
    text += &format!("[scheduler]\npolicy = \"{scheduler}\"\n");
    for drive in 0..DRIVES {
        text += &format!(
            "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
             profile = \"quantum-atlas-ii\"\n"
        );
    }
    std::fs::write(site.config(), text).expect("the configuration can be written");
    with_blocks_of(&site, "1MiB", "");
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve(&site);
    let volume = |name: &str, mib: u64| {
        let size = format!("{mib}MiB");
        site.run(&["volume", "create", name, "--size", &size])
            .done();
    };
    let mib = length.as_secs() * PACKETS_PER_SECOND * 1_300 / 1_000_000 + 40;
    (0..RECORDINGS).for_each(|number| volume(&format!("film-{number}"), mib));
    volume("files", 400);
    prepare(address, length);
    let (publishers, players, refused) = fill(&site, address, mib);
    println!(
        "{scheduler}, {depth} file requests at a time: {} recorded and {} played at {:.3} MB/s each, half of both by UDP; the next is refused:\n  {}",
        publishers.len(),
        players.len(),
        (KBIT_PER_SECOND / 8) as f64 / 1_000.0,
        refused
            .trim()
            .replace(&format!("{}/", site.folder.path().display()), "")
    );
    let load = file_load(&site, depth, length);
    call(&site, "POST", "/v1/window", "");
    let (sent, moved, sessions) = move_all(publishers, players, length);
    let is_passed = report(&site, sent, &moved);
    drop(sessions);
    let mut load = load;
    assert_eq!(load.wait().code(), Some(0), "the file load failed");
    serve.terminate();
    is_passed
}

/// Begins to record on a path.
fn publisher(
    address: SocketAddr,
    path: String,
    number: usize,
    kbit: u64,
) -> Result<Session, String> {
    let mut session = Session::new(address, path, number);
    let (description, path) = (sdp(kbit), session.path.clone());
    let response = session
        .client
        .ask("ANNOUNCE", &path, SDP_TYPE, &description);
    response.is(200);
    session.set_up(address, "one")?;
    session.client.ask("RECORD", &path, "", "").is(200);
    Ok(session)
}

/// Sends packets for the time `length`, each when it is due. Returns their number. The RTP clock has 1 kHz.
fn publish(session: &mut Session, begin: Instant, length: Duration) -> u64 {
    let count = length.as_millis() as u64 * PACKETS_PER_SECOND / 1_000;
    for number in 0..count {
        let at = number * 1_000 / PACKETS_PER_SECOND;
        let due = begin + Duration::from_millis(at);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let packet = rtp(number as u16, at as u32, 3, &BODY);
        match &session.udp {
            None => session.client.packet(0, &packet),
            Some(pair) => pair.send(&packet),
        }
    }
    count
}

/// Makes the recordings for the players, at a multiple of their rate. The server measures the rate for players
/// meanwhile.
fn prepare(address: SocketAddr, length: Duration) {
    std::thread::scope(|scope| {
        for number in 0..RECORDINGS {
            scope.spawn(move || {
                let path = format!("film-{number}");
                let kbit = PREPARED_FASTER * KBIT_PER_SECOND;
                let session = publisher(address, path.clone(), 0, kbit);
                let mut client = session.expect("the disks carry the first sessions").client;
                let count = (length.as_secs() + 10) * PACKETS_PER_SECOND;
                for number in 0..count {
                    let at = number * 1_000 / PACKETS_PER_SECOND;
                    client.packet(0, &rtp(number as u16, at as u32, 3, &BODY));
                }
                client.ask("TEARDOWN", &path, "", "").is(200);
            });
        }
    });
}

/// Adds streams until one is refused. Returns publishers, players and the refusal.
fn fill(site: &Site, address: SocketAddr, mib: u64) -> (Vec<Session>, Vec<Session>, String) {
    let (mut publishers, mut players) = (Vec::new(), Vec::new());
    let mut cameras = 0;
    loop {
        let next = if (publishers.len() + players.len()) % 10 < RECORD_OF_TEN {
            let name = format!("camera-{}", publishers.len());
            if cameras == publishers.len() {
                let size = format!("{mib}MiB");
                site.run(&["volume", "create", &name, "--size", &size])
                    .done();
                cameras += 1;
            }
            let next = publisher(address, name, publishers.len(), KBIT_PER_SECOND);
            next.map(|session| publishers.push(session))
        } else {
            let path = format!("film-{}", players.len() % RECORDINGS);
            // Half of the players of each recording use UDP.
            let number = players.len() / RECORDINGS;
            let mut session = Session::new(address, path, number);
            let next = session.set_up(address, "track0");
            next.map(|()| players.push(session))
        };
        match next {
            // The share of a preparing session is freed a little after its end.
            Err(why) if why.contains("is still held by reservations that have ended") => {
                std::thread::sleep(Duration::from_millis(500));
            }
            Err(why) => return (publishers, players, why),
            Ok(()) => {}
        }
    }
}

/// Starts small random requests, `depth` at a time.
fn file_load(site: &Site, depth: u32, length: Duration) -> Process {
    let uri = format!(
        "--uri=nbd+unix:///files?socket={}",
        site.path("nbd.sock").display()
    );
    let runtime = format!("--runtime={}", length.as_secs() + 5);
    let mut fio = tool("fio");
    fio.args([
        "--name=files",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bs=8k",
        &format!("--iodepth={depth}"),
    ]);
    fio.args(["--size=400m", "--time_based", &runtime]);
    Process::captured(&mut fio)
}

/// The packets of one player.
struct Played {
    packets: usize,
    missing: usize,
    /// Lateness of each packet in microseconds, sorted.
    late_us: Vec<u64>,
}

fn move_all(
    publishers: Vec<Session>,
    players: Vec<Session>,
    length: Duration,
) -> (u64, Vec<Played>, Vec<Session>) {
    let all = Barrier::new(publishers.len() + players.len());
    std::thread::scope(|scope| {
        let all = &all;
        let publishing: Vec<_> = publishers
            .into_iter()
            .map(|mut session| {
                scope.spawn(move || {
                    all.wait();
                    let sent = publish(&mut session, Instant::now(), length);
                    (sent, session)
                })
            })
            .collect();
        let playing: Vec<_> = players
            .into_iter()
            .enumerate()
            .map(|(number, session)| {
                scope.spawn(move || {
                    all.wait();
                    // Players begin at different times.
                    std::thread::sleep(Duration::from_millis(37 * number as u64));
                    play(session, length)
                })
            })
            .collect();
        // Sessions stay open until the report has read their state.
        let (mut sent, mut all, mut sessions) = (0, Vec::new(), Vec::new());
        for publisher in publishing {
            let (count, session) = publisher.join().expect("it publishes");
            sent += count;
            sessions.push(session);
        }
        for player in playing {
            let (played, session) = player.join().expect("it plays");
            all.push(played);
            sessions.push(session);
        }
        (sent, all, sessions)
    })
}

/// The next packets of a session.
fn next_packets(session: &mut Session) -> Vec<Vec<u8>> {
    if let Some(pair) = &session.udp {
        let mut bytes = [0; 2_048];
        let packet = pair.receive(&mut bytes);
        return vec![packet.expect("packets come").to_vec()];
    }
    let packets = session.client.next_packets().into_iter();
    packets
        .filter(|(channel, _)| *channel == 0)
        .map(|(_, packet)| packet)
        .collect()
}

fn play(mut session: Session, length: Duration) -> (Played, Session) {
    let path = session.path.clone();
    session.client.ask("PLAY", &path, "", "").is(200);
    // Playing begins once the first block has been read.
    let mut packets = next_packets(&mut session);
    let begin = Instant::now();
    let mut received: Vec<(u16, i128)> = Vec::new();
    let mut kept_alive = begin;
    while begin.elapsed() < length {
        if kept_alive.elapsed() > Duration::from_secs(20) {
            session.client.keep_alive(&path);
            kept_alive = Instant::now();
        }
        let at = begin.elapsed().as_micros() as i128;
        for packet in packets.drain(..) {
            let sequence = u16::from_be_bytes([packet[2], packet[3]]);
            let timestamp = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
            received.push((sequence, at - i128::from(timestamp) * 1_000));
        }
        packets = next_packets(&mut session);
    }
    let steps = received
        .windows(2)
        .map(|pair| pair[1].0.wrapping_sub(pair[0].0));
    let missing = steps.map(|step| usize::from(step) - 1).sum();
    let earliest = received
        .iter()
        .map(|(_, late)| *late)
        .min()
        .unwrap_or_default();
    let mut late_us: Vec<u64> = received
        .iter()
        .map(|(_, late)| (late - earliest) as u64)
        .collect();
    late_us.sort_unstable();
    let played = Played {
        packets: received.len(),
        missing,
        late_us,
    };
    (played, session)
}

/// Numbers of packets that sessions have recorded and that they miss. Waits for all that were sent, up to a limit.
fn recorded(site: &Site, sent: u64) -> (u64, u64) {
    let end = Instant::now() + RECORDED_WITHIN;
    loop {
        let (_, sessions) = call(site, "GET", "/v1/sessions", "");
        let sessions = sessions.as_array().map_or(&[][..], Vec::as_slice);
        let recorders = || sessions.iter().filter(|of| of["does"] == "records");
        let sum = |key: &str| recorders().filter_map(|of| of[key].as_u64()).sum::<u64>();
        if sum("packets") >= sent || Instant::now() >= end {
            return (sum("packets"), sum("lost"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Prints the results of a run. Returns true if they meet all limits.
fn report(site: &Site, sent: u64, played: &[Played]) -> bool {
    let (recorded, lost) = recorded(site, sent);
    let (_, status) = call(site, "GET", "/v1/status", "");
    let sum = |key: &str| -> u64 {
        let streams = status["streams"].as_array().map_or(&[][..], Vec::as_slice);
        streams
            .iter()
            .filter_map(|stream| stream[key].as_u64())
            .sum()
    };
    let packets: usize = played.iter().map(|of| of.packets).sum();
    let missing: usize = played.iter().map(|of| of.missing).sum();
    let mut late: Vec<u64> = played
        .iter()
        .flat_map(|of| of.late_us.iter().copied())
        .collect();
    late.sort_unstable();
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize] as f64 / 1_000.0;
    println!(
        "  {} blocks, {} deadlines missed ({} with the host's lateness), {} overruns",
        sum("blocks"),
        sum("misses"),
        sum("misses_gross"),
        sum("overruns")
    );
    println!(
        "  {sent} packets published, {recorded} recorded, {} missing ({lost} of them known to the server)",
        sent.saturating_sub(recorded)
    );
    println!(
        "  {packets} packets played, {missing} missing; lateness p50 {:.2} ms, p99 {:.2} ms, maximum {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    let best = &status["best_effort"];
    println!(
        "  best effort: {} requests, mean {:.1} ms",
        best["count"],
        best["mean_ns"].as_f64().unwrap_or_default() / 1e6
    );
    let has_no_loss = sum("misses") + sum("overruns") + lost == 0 && missing == 0;
    has_no_loss && recorded == sent && sum("blocks") > 0 && at(0.99) < LATE_MAX_MS
}
