//! Recording and playing over RTSP as far as admission allows, on three emulated drives beside a file load: what is
//! late, what is lost, and how evenly packets come.
//!
//! ```text
//! cargo bench -p clockwise --bench rtsp
//! RTSP_BENCH_SECONDS=600 ...
//! ```
//!
//! A few recordings are made first; then as many players and publishers are taken as the disks carry, one more is
//! refused, and all of them move packets for that long beside `fio` over the block export, as fast as it is served. The
//! same again under `edf`. How evenly packets come is when each came after the first, less its timestamp: the worst
//! hundredth, over the earliest. The other end is in this process, on the same processors, and is late now and then
//! itself.

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/rtsp_support/mod.rs"]
mod rtsp_support;

use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use common::skip::tool;
use common::{Process, Site, call, read_text};
use rtsp_support::{Client, SDP_TYPE, TCP, rtp, sdp, serve, with_rtsp};

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

fn main() {
    let seconds: u64 = std::env::var("RTSP_BENCH_SECONDS").map_or(30, |text| {
        text.parse().expect("RTSP_BENCH_SECONDS is a number")
    });
    for scheduler in ["exact", "edf"] {
        run(scheduler, Duration::from_secs(seconds));
    }
}

fn run(scheduler: &str, length: Duration) {
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
    with_rtsp(&site, "");
    let text = read_text(&site.config()).replace("block = \"64KiB\"", "block = \"1MiB\"");
    std::fs::write(site.config(), text).expect("the configuration can be written");
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
        "{scheduler}: {} recorded and {} played at {:.3} MB/s each; one more is refused:\n  {}",
        publishers.len(),
        players.len(),
        (KBIT_PER_SECOND / 8) as f64 / 1_000.0,
        refused.trim()
    );
    let load = file_load(&site, length);
    call(&site, "POST", "/v1/window", "");
    let (moved, sessions) = move_all(publishers, players, length);
    report(&site, &moved);
    drop((sessions, load));
    serve.terminate();
}

/// Publishes on a path; the recording has begun.
fn publisher(address: SocketAddr, path: &str, kbit: u64) -> Result<Client, String> {
    let mut client = Client::connect(address);
    let description = sdp(kbit);
    client.ask("ANNOUNCE", path, SDP_TYPE, &description).is(200);
    let said = client.ask("SETUP", &format!("{path}/one"), TCP, "");
    if said.status != 200 {
        return Err(said.body);
    }
    client.ask("RECORD", path, "", "").is(200);
    Ok(client)
}

/// Packets for so long, each when it is due. The clock of the description has a thousand units in a second.
fn publish(client: &mut Client, begin: Instant, length: Duration) {
    let count = length.as_millis() as u64 * PACKETS_PER_SECOND / 1_000;
    for number in 0..count {
        let at = number * 1_000 / PACKETS_PER_SECOND;
        let due = begin + Duration::from_millis(at);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        client.packet(0, &rtp(number as u16, at as u32, 3, &BODY));
    }
}

/// Makes the recordings that are played, faster than they are played: what is reserved for that is measured then.
fn prepare(address: SocketAddr, length: Duration) {
    std::thread::scope(|scope| {
        for number in 0..RECORDINGS {
            scope.spawn(move || {
                let path = format!("film-{number}");
                let kbit = PREPARED_FASTER * KBIT_PER_SECOND;
                let mut client = publisher(address, &path, kbit).expect("the first ones fit");
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
fn fill(
    site: &Site,
    address: SocketAddr,
    mib: u64,
) -> (Vec<Client>, Vec<(Client, String)>, String) {
    let (mut publishers, mut players) = (Vec::new(), Vec::new());
    loop {
        if (publishers.len() + players.len()) % 10 < RECORD_OF_TEN {
            let name = format!("camera-{}", publishers.len());
            let size = format!("{mib}MiB");
            site.run(&["volume", "create", &name, "--size", &size])
                .done();
            match publisher(address, &name, KBIT_PER_SECOND) {
                Ok(client) => publishers.push(client),
                Err(why) => return (publishers, players, why),
            }
        } else {
            let path = format!("film-{}", players.len() % RECORDINGS);
            let mut client = Client::connect(address);
            let said = client.ask("SETUP", &format!("{path}/track0"), TCP, "");
            if said.status != 200 {
                assert_eq!(said.status, 453, "{said:?}");
                return (publishers, players, said.body);
            }
            players.push((client, path));
        }
    }
}

/// Small requests of a file system's kind, as fast as they are served.
fn file_load(site: &Site, length: Duration) -> Process {
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
        "--iodepth=4",
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
    publishers: Vec<Client>,
    players: Vec<(Client, String)>,
    length: Duration,
) -> (Vec<Played>, Vec<Client>) {
    let all = Barrier::new(publishers.len() + players.len());
    std::thread::scope(|scope| {
        let all = &all;
        let publishing: Vec<_> = publishers
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    all.wait();
                    publish(&mut client, Instant::now(), length);
                    client
                })
            })
            .collect();
        let playing: Vec<_> = players
            .into_iter()
            .enumerate()
            .map(|(number, (client, path))| {
                scope.spawn(move || {
                    all.wait();
                    // They do not all begin at once.
                    std::thread::sleep(Duration::from_millis(37 * number as u64));
                    play(client, &path, length)
                })
            })
            .collect();
        // Sessions last until what came of them was asked for.
        let publishing = publishing.into_iter();
        let mut sessions: Vec<Client> = publishing
            .map(|publisher| publisher.join().expect("it publishes"))
            .collect();
        let mut all = Vec::new();
        for player in playing {
            let (played, client) = player.join().expect("it plays");
            all.push(played);
            sessions.push(client);
        }
        (all, sessions)
    })
}

fn play(mut client: Client, path: &str, length: Duration) -> (Played, Client) {
    client.ask("PLAY", path, "", "").is(200);
    // The first block is there within a period of its disk, and then it begins.
    client.packets_on(0, 1);
    let begin = Instant::now();
    let mut came: Vec<(u16, i128)> = Vec::new();
    let mut said = begin;
    while begin.elapsed() < length {
        if said.elapsed() > Duration::from_secs(20) {
            client.keep_alive(path);
            said = Instant::now();
        }
        let seen = client.packets.len();
        client.packets_on(0, 1);
        client.packets.drain(..seen.min(client.packets.len()));
        let at = begin.elapsed().as_micros() as i128;
        for (channel, packet) in client.packets.drain(..) {
            if channel == 0 {
                let sequence = u16::from_be_bytes([packet[2], packet[3]]);
                let timestamp = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
                came.push((sequence, at - i128::from(timestamp) * 1_000));
            }
        }
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
    (played, client)
}

fn report(site: &Site, played: &[Played]) {
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
}
