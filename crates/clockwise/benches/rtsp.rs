//! Recording and playing over RTSP as far as admission allows, on three emulated drives beside a file load: what is
//! late, what is lost, and how evenly packets come.
//!
//! ```text
//! cargo bench -p clockwise --bench rtsp
//! RTSP_BENCH_SECONDS=600 ...
//! ```
//!
//! A few recordings are made first; then as many players and publishers are taken as the disks carry, every second of each
//! by UDP, one more is refused, and all of them move packets for that long beside `fio` over the block export, four requests
//! at a time, each as soon as one is served. What publishers have sent is compared with what was recorded. The same again with
//! 64 requests at a time, which is more than is ever served, and both under `edf`. How evenly packets come is when each came
//! after the first, less its timestamp: the worst hundredth, over the earliest. The other end is in this process, on the same
//! processors, and is late now and then itself.
//!
//! A deadline that is missed net of the host's lateness, an overrun, a packet that is missing, or a worst hundredth of 5 ms is a
//! failure, and said at the end.

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
/// Of each stream: 300 packets a second of 1,212 bytes.
const PACKETS_PER_SECOND: u64 = 300;
const BODY: [u8; 1_200] = [0x5a; 1_200];
const KBIT_PER_SECOND: u64 = PACKETS_PER_SECOND * 1_260 * 8 / 1_000;
/// Recordings that are made before, each played by several.
const RECORDINGS: usize = 4;
/// So many times as fast.
const PREPARED_FASTER: u64 = 4;
/// Of ten streams, so many record.
const RECORD_OF_TEN: usize = 2;
/// How long is waited for the last packets that were sent until they are recorded.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);
/// How late the worst hundredth of what is played may be.
const LATE_MAX_MS: f64 = 5.0;

/// A session that records or plays a path, and where its packets go if that is not the connection.
struct Session {
    client: Client,
    udp: Option<Pair>,
    path: String,
}

impl Session {
    /// A session to be; the `number`th of its kind is by UDP if that is odd.
    fn new(address: SocketAddr, path: String, number: usize) -> Self {
        Self {
            client: Client::connect(address),
            udp: (number % 2 == 1).then(Pair::new),
            path,
        }
    }

    /// Reserves for a track; why not, if the disks do not carry it.
    fn set_up(&mut self, address: SocketAddr, track: &str) -> Result<(), String> {
        let transport = self.udp.as_ref().map_or(TCP.to_owned(), Pair::transport);
        let track = format!("{}/{track}", self.path);
        let said = self.client.ask("SETUP", &track, &transport, "");
        match (said.status, &self.udp) {
            (453, _) => return Err(said.body),
            (200, Some(pair)) => pair.agreed(address, &said),
            (200, None) => {}
            _ => panic!("{said:?}"),
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
        println!("FAILED: something was missed, is missing or came late");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Whether nothing was missed, is missing, or came too late.
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
        "{scheduler}, {depth} file requests at a time: {} recorded and {} played at {:.3} MB/s each, half of both by UDP; one more is refused:\n  {}",
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
    let is_well = report(&site, sent, &moved);
    drop(sessions);
    let mut load = load;
    assert_eq!(load.wait().code(), Some(0), "the file load failed");
    serve.terminate();
    is_well
}

/// Publishes on a path; the recording has begun.
fn publisher(
    address: SocketAddr,
    path: String,
    number: usize,
    kbit: u64,
) -> Result<Session, String> {
    let mut session = Session::new(address, path, number);
    let (description, path) = (sdp(kbit), session.path.clone());
    let said = session
        .client
        .ask("ANNOUNCE", &path, SDP_TYPE, &description);
    said.is(200);
    session.set_up(address, "one")?;
    session.client.ask("RECORD", &path, "", "").is(200);
    Ok(session)
}

/// Packets for so long, each when it is due; how many. The clock of the description has a thousand units in a second.
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

/// Makes the recordings that are played, faster than they are played: what is reserved for that is measured then.
fn prepare(address: SocketAddr, length: Duration) {
    std::thread::scope(|scope| {
        for number in 0..RECORDINGS {
            scope.spawn(move || {
                let path = format!("film-{number}");
                let kbit = PREPARED_FASTER * KBIT_PER_SECOND;
                let session = publisher(address, path.clone(), 0, kbit);
                let mut client = session.expect("the first ones fit").client;
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

/// As many streams as there is room for: who publishes, who plays, and why the next one was refused.
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
            // By UDP or not, whichever of the recordings it plays.
            let number = players.len() / RECORDINGS;
            let mut session = Session::new(address, path, number);
            let next = session.set_up(address, "track0");
            next.map(|()| players.push(session))
        };
        match next {
            // What was prepared has ended, and its share is free a little later.
            Err(why) if why.contains("still being given back") => {
                std::thread::sleep(Duration::from_millis(500));
            }
            Err(why) => return (publishers, players, why),
            Ok(()) => {}
        }
    }
}

/// Small requests of a file system's kind, so many at a time, as fast as they are served.
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

/// What one player got.
struct Played {
    packets: usize,
    missing: usize,
    /// How much later than the earliest each packet came, in microseconds, sorted.
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
                    // They do not all begin at once.
                    std::thread::sleep(Duration::from_millis(37 * number as u64));
                    play(session, length)
                })
            })
            .collect();
        // Sessions last until what came of them was asked for.
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
    let came = session.client.next_packets().into_iter();
    came.filter(|(channel, _)| *channel == 0)
        .map(|(_, packet)| packet)
        .collect()
}

fn play(mut session: Session, length: Duration) -> (Played, Session) {
    let path = session.path.clone();
    session.client.ask("PLAY", &path, "", "").is(200);
    // The first block is there within a period of its disk, and then it begins.
    let mut packets = next_packets(&mut session);
    let begin = Instant::now();
    let mut came: Vec<(u16, i128)> = Vec::new();
    let mut said = begin;
    while begin.elapsed() < length {
        if said.elapsed() > Duration::from_secs(20) {
            session.client.keep_alive(&path);
            said = Instant::now();
        }
        let at = begin.elapsed().as_micros() as i128;
        for packet in packets.drain(..) {
            let sequence = u16::from_be_bytes([packet[2], packet[3]]);
            let timestamp = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
            came.push((sequence, at - i128::from(timestamp) * 1_000));
        }
        packets = next_packets(&mut session);
    }
    let steps = came
        .windows(2)
        .map(|pair| pair[1].0.wrapping_sub(pair[0].0));
    let missing = steps.map(|step| usize::from(step) - 1).sum();
    let earliest = came.iter().map(|(_, late)| *late).min().unwrap_or_default();
    let mut late_us: Vec<u64> = came
        .iter()
        .map(|(_, late)| (late - earliest) as u64)
        .collect();
    late_us.sort_unstable();
    let played = Played {
        packets: came.len(),
        missing,
        late_us,
    };
    (played, session)
}

/// How many packets sessions have recorded, and how many they miss, when all that were sent have come, or do not any more.
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

/// Whether nothing was missed, is missing, or came too late.
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
        "  {sent} packets published, {recorded} recorded, {} missing ({lost} seen to be)",
        sent.saturating_sub(recorded)
    );
    println!(
        "  {packets} packets played, {missing} missing; they came p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms after the earliest",
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
    let well = sum("misses") + sum("overruns") + lost == 0 && missing == 0;
    well && recorded == sent && sum("blocks") > 0 && at(0.99) < LATE_MAX_MS
}
