//! Many cameras and players at one time, beside files on the same drives.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::process::Process;
use testkit::rtsp::load::{
    Camera, Delay, Epoch, FRAMES_PER_SECOND, Player, StopOnDrop, publish, receive,
};
use testkit::rtsp::peers::closed;
use testkit::rtsp::serve;
use testkit::site::{ReadyServer, Site, call, read_text};
use testkit::skip::{have, tool};
use testkit::until;

const DRIVES: usize = 3;
const CAMERAS: usize = 64;
const WATCHED: usize = 16;
const PLAYED: usize = 16;
/// Recordings made before, each for several players.
const FILMS: usize = 4;
const KBIT: u64 = 1_000;
/// Promised for a camera: its packets have headers.
const PROMISED_KBIT: u64 = KBIT * 11 / 10;
/// Speed of making the recordings, as a multiple of the speed of playing.
const PREPARED_FASTER: u64 = 8;
/// Players and the recordings that they follow settle before it counts.
const SETTLED: Duration = Duration::from_secs(3);
/// Time between two looks at the host's lateness.
const PROBE_NS: u64 = 2_000_000;
/// Lateness of the host this long before a packet was sent may still delay it.
const BEFORE_NS: u64 = 10_000_000;
/// The goal of live play.
const DELAY_MAX_MS: f64 = 100.0;

/// How long it takes: `CLOCKWISE_LOAD_SECONDS`, or ten minutes.
fn length() -> Duration {
    let text = std::env::var("CLOCKWISE_LOAD_SECONDS");
    Duration::from_secs(text.map_or(600, |text| text.parse().expect("a number of seconds")))
}

fn site() -> Site {
    let site = Site::new(0);
    let text = read_text(&site.config()).replace("64MiB", "512MiB");
    // The drives choose the size of extents.
    let mut text = text.replace("extent = \"1MiB\"\n", "");
    text += "[rtsp]\nlisten = \"0\"\nblock = \"256KiB\"\n";
    for drive in 0..DRIVES {
        text += &format!(
            "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"hdd-8tb-7200\"\n\
             profile = \"hdd-8tb-7200\"\n"
        );
    }
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    site
}

/// Makes a volume on one of the drives, in turns. A stream of a volume on several drives has its share on each of them.
fn volume(site: &Site, name: &str, number: usize, mib: u64) {
    let (size, drive) = (
        format!("{mib}MiB"),
        site.path(&format!("drive-{}", number % DRIVES)),
    );
    let drive = drive.to_str().expect("text");
    site.run(&["volume", "create", name, "--size", &size, "--disk", drive])
        .done();
}

/// Makes the recordings that are played.
fn prepare(site: &Site, address: SocketAddr, length: Duration) {
    let seconds = length.as_secs() + 30;
    let films = || (0..FILMS).map(|number| format!("film-{number}"));
    let mib = seconds * KBIT / 8 / 1_000 * 5 / 4 + 16;
    (0..)
        .zip(films())
        .for_each(|(number, name)| volume(site, &name, number, mib));
    std::thread::scope(|scope| {
        for name in films() {
            scope.spawn(move || {
                let promised = PREPARED_FASTER * PROMISED_KBIT;
                let mut camera = Camera::publishes(address, &name, KBIT, promised);
                let epoch = Epoch::now();
                (0..seconds * FRAMES_PER_SECOND).for_each(|_| camera.sends_picture(epoch));
                camera.ends();
            });
        }
    });
    films().for_each(|name| closed(site, &name, 1));
    until("their shares of the drives are free", || {
        let status = call(site, "GET", "/v1/status", "").1;
        let drives = status["disks"].as_array().expect("drives");
        drives.iter().all(|of| of["utilization_leaving"] == 0.0)
    });
}

/// Small random requests to the block export, four at a time, for longer than `length`.
fn file_load(site: &Site, length: Duration) -> Process {
    volume(site, "files", 0, 400);
    let socket = site.path("nbd.sock");
    let uri = format!("--uri=nbd+unix:///files?socket={}", socket.display());
    let runtime = format!("--runtime={}", (length + 3 * SETTLED).as_secs());
    let mut fio = tool("fio");
    fio.args(["--name=files", "--ioengine=nbd", &uri, "--rw=randrw"]);
    fio.args(["--bs=8k", "--iodepth=4", "--size=400m", "--time_based"]);
    Process::captured(fio.arg(&runtime))
}

/// Lateness of the host: when a thread was to wake, and how much later it did.
fn probe(epoch: Epoch, stop: &AtomicBool) -> Vec<(u64, u64)> {
    let mut late = Vec::new();
    let mut due_ns = epoch.ns(Instant::now());
    while !stop.load(Ordering::Relaxed) {
        due_ns += PROBE_NS;
        let now_ns = epoch.ns(Instant::now());
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
        let woken_ns = epoch.ns(Instant::now());
        late.push((due_ns, woken_ns.saturating_sub(due_ns)));
    }
    late
}

/// Delays in milliseconds without the lateness of the host meanwhile, sorted.
fn net_ms(delays: &[Delay], late: &[(u64, u64)]) -> Vec<f64> {
    let net = |of: &Delay| {
        let from = of.received_ns.saturating_sub(of.delay_ns + BEFORE_NS);
        let first = late.partition_point(|(due, _)| *due < from);
        let during = late[first..].iter();
        let during = during.take_while(|(due, _)| *due <= of.received_ns);
        let host_ns = during.map(|(_, late)| *late).max().unwrap_or(0);
        of.delay_ns.saturating_sub(host_ns) as f64 / 1e6
    };
    let mut all: Vec<f64> = delays.iter().map(net).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Counts of the cameras, the players and the host.
struct Moved {
    sent: u64,
    live: Vec<Player>,
    played: Vec<Player>,
    late: Vec<(u64, u64)>,
    /// From here on, in nanoseconds of the epoch.
    settled_ns: u64,
    sessions: Vec<Value>,
    status: Value,
}

impl Moved {
    fn delays(&self) -> Vec<Delay> {
        let all = self.live.iter().flat_map(|of| of.delays.iter());
        all.filter(|of| of.received_ns - of.delay_ns > self.settled_ns)
            .copied()
            .collect()
    }

    fn sum(&self, key: &str) -> u64 {
        let streams = self.status["streams"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        streams.iter().filter_map(|of| of[key].as_u64()).sum()
    }

    fn recorded(&self, key: &str) -> u64 {
        let recorders = self.sessions.iter().filter(|of| of["does"] == "records");
        recorders.filter_map(|of| of[key].as_u64()).sum()
    }
}

fn sessions(site: &Site) -> Vec<Value> {
    let said = call(site, "GET", "/v1/sessions", "").1;
    said.as_array().cloned().unwrap_or_default()
}

/// Connects everyone and moves packets for the time `length`.
fn moves(site: &Site, address: SocketAddr, length: Duration) -> Moved {
    let (epoch, stop, stop_publishing) =
        (Epoch::now(), AtomicBool::new(false), AtomicBool::new(false));
    let camera = |number| Camera::publishes(address, &format!("cam-{number}"), KBIT, PROMISED_KBIT);
    let mut cameras: Vec<Camera> = (0..CAMERAS).map(camera).collect();
    let connect = |path: &str, is_live, number: usize| {
        let player = Player::connect(address, path, is_live, number % 2 == 1);
        let mut player = player.expect("the drives carry it");
        player.plays();
        player
    };
    std::thread::scope(|scope| {
        let _stops = [StopOnDrop(&stop), StopOnDrop(&stop_publishing)];
        let (cameras, stop, stop_publishing) = (&mut cameras, &stop, &stop_publishing);
        let publishing = scope.spawn(|| {
            publish(cameras, epoch, stop_publishing);
            cameras.iter().map(|of| of.packets).sum::<u64>()
        });
        until("all cameras can be watched", || {
            (0..WATCHED).all(|number| {
                let mut client = testkit::rtsp::Client::connect(address);
                let path = format!("cam-{number}/live");
                client.ask("DESCRIBE", &path, "", "").status == 200
            })
        });
        let live = (0..WATCHED).map(|number| connect(&format!("cam-{number}/live"), true, number));
        let mut live: Vec<Player> = live.collect();
        let played = (0..PLAYED)
            .map(|number| connect(&format!("film-{}", number % FILMS), false, number / FILMS));
        let mut played: Vec<Player> = played.collect();
        let probing = scope.spawn(move || probe(epoch, stop));
        let receiving = scope.spawn(move || {
            let count = live.len();
            live.append(&mut played);
            receive(&mut live, epoch, stop);
            let played = live.split_off(count);
            (live, played)
        });
        std::thread::sleep(SETTLED);
        let settled_ns = epoch.ns(Instant::now());
        call(site, "POST", "/v1/window", "");
        std::thread::sleep(length);
        let status = call(site, "GET", "/v1/status", "").1;
        stop_publishing.store(true, Ordering::Relaxed);
        let sent = publishing.join().expect("they publish");
        let recorded = || {
            sessions(site)
                .into_iter()
                .filter(|of| of["does"] == "records")
        };
        until("all packets are recorded", || {
            recorded()
                .filter_map(|of| of["packets"].as_u64())
                .sum::<u64>()
                >= sent
        });
        let sessions = sessions(site);
        stop.store(true, Ordering::Relaxed);
        let (live, played) = receiving.join().expect("they play");
        Moved {
            sent,
            live,
            played,
            late: probing.join().expect("it wakes"),
            settled_ns,
            sessions,
            status,
        }
    })
}

#[allow(
    clippy::print_stdout,
    reason = "the numbers are shown with --nocapture"
)]
fn report(moved: &Moved, net: &[f64]) {
    let at = |of: &[f64], share: f64| of[((of.len() - 1) as f64 * share) as usize];
    let mut gross: Vec<f64> = moved
        .delays()
        .iter()
        .map(|of| of.delay_ns as f64 / 1e6)
        .collect();
    gross.sort_by(f64::total_cmp);
    let packets = |of: &[Player]| of.iter().map(|of| of.packets).sum::<u64>();
    let best = &moved.status["best_effort"];
    println!(
        "{} blocks, {} deadlines missed ({} with the host's lateness), {} overruns",
        moved.sum("blocks"),
        moved.sum("misses"),
        moved.sum("misses_gross"),
        moved.sum("overruns")
    );
    println!(
        "{} packets published, {} recorded, {} lost; {} watched live and {} played from the drives, none missing",
        moved.sent,
        moved.recorded("packets"),
        moved.recorded("lost"),
        packets(&moved.live),
        packets(&moved.played)
    );
    for (name, of) in [("net of the host's lateness", net), ("with it", &gross[..])] {
        println!(
            "live delay {name}: p50 {:.2} ms, p99 {:.2} ms, maximum {:.2} ms",
            at(of, 0.5),
            at(of, 0.99),
            at(of, 1.0)
        );
    }
    println!(
        "best effort: {} requests, mean {:.1} ms",
        best["count"],
        best["mean_ns"].as_f64().unwrap_or_default() / 1e6
    );
}

fn ends(site: &Site, serve: ReadyServer, mut fio: Process) {
    assert_eq!(fio.wait().code(), Some(0), "the file load failed");
    assert!(!sessions(site).is_empty());
    serve.terminate();
}

/// Nobody is late and nothing is missing, while recorders, players and files share the drives.
#[test]
#[ignore = "soak: 64 cameras, 32 players and fio for ten minutes"]
fn many_cameras_are_recorded_watched_and_played_beside_files() {
    if !have("fio") {
        return;
    }
    let (length, site) = (length(), site());
    let (serve, address) = serve(&site);
    prepare(&site, address, length);
    // Recordings that take longer than five minutes overwrite their beginnings.
    (0..CAMERAS).for_each(|number| volume(&site, &format!("cam-{number}"), number, 40));
    let fio = file_load(&site, length);
    let moved = moves(&site, address, length);
    let net = net_ms(&moved.delays(), &moved.late);
    report(&moved, &net);
    assert!(moved.sum("blocks") > 0);
    assert_eq!(
        (moved.sum("misses"), moved.sum("overruns")),
        (0, 0),
        "{:#}",
        moved.status
    );
    assert_eq!(
        (moved.recorded("packets"), moved.recorded("lost")),
        (moved.sent, 0)
    );
    for player in moved.live.iter().chain(&moved.played) {
        assert_eq!(player.missing, 0, "of {} packets", player.packets);
        // Each has played to the end.
        assert!(player.packets as f64 > length.as_secs_f64() * FRAMES_PER_SECOND as f64);
    }
    let p99 = net[net.len() * 99 / 100];
    assert!(p99 < DELAY_MAX_MS, "{p99} ms");
    ends(&site, serve, fio);
}
