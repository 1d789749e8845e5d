//! A recording is exported and downloaded while as many are recorded and played as the drive carries: nobody
//! of these is late or misses anything, and the file is right.

#![allow(clippy::print_stdout, reason = "a measurement is told")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::rtsp::http::get;
use testkit::rtsp::peers::{closed, frames, is_whole, made, publish};
use testkit::rtsp::{Client, SDP_TYPE, TCP, reservations, rtp, sdp, serve, with_rtsp};
use testkit::site::{Site, call, outcome, read_text};
use testkit::skip::have;
use testkit::until;

/// Packets of each stream: 80 of 1,212 bytes in a second; 53 fill a block.
const PACKETS_PER_SECOND: u64 = 80;
const BODY: [u8; 1_200] = [0x5a; 1_200];
const KBIT: u64 = PACKETS_PER_SECOND * 1_260 * 8 / 1_000;
/// Recordings that are played, each by several.
const FILMS: usize = 2;
const FILM_SECONDS: u64 = 40;
/// Factor over real time at which they are made.
const MADE_FASTER: u64 = 2;
/// Least number of blocks of each stream that are recorded or played beside the exports.
const BLOCKS_EACH: u64 = 8;
/// The share of the drive's time that has to be promised for this to be a test.
const PROMISED_MIN: f64 = 0.8;

/// One emulated drive of the nineties.
fn site() -> Site {
    let site = Site::new(0);
    let text = read_text(&site.config())
        + "[[disk]]\npath = \"drive\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
           profile = \"quantum-atlas-ii\"\n";
    std::fs::write(site.config(), text).expect("the configuration can be written");
    with_rtsp(&site, "[http]\nlisten = \"0\"");
    site.run(&["pool", "create"]).done();
    site
}

fn create(site: &Site, name: &str, mib: u64) {
    let size = format!("{mib}MiB");
    site.run(&["volume", "create", name, "--size", &size])
        .done();
}

/// Somebody who publishes; why not, if the drive does not carry it.
fn publisher(address: SocketAddr, path: &str, kbit: u64) -> Result<Client, String> {
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", path, SDP_TYPE, &sdp(kbit)).is(200);
    let said = client.ask("SETUP", &format!("{path}/one"), TCP, "");
    if said.status == 453 {
        return Err(said.body);
    }
    said.is(200);
    client.ask("RECORD", path, "", "").is(200);
    Ok(client)
}

fn packet(number: u64) -> Vec<u8> {
    let at = number * 1_000 / PACKETS_PER_SECOND;
    rtp(number as u16, at as u32, 3, &BODY)
}

fn make_films(address: SocketAddr) {
    std::thread::scope(|scope| {
        for number in 0..FILMS {
            scope.spawn(move || {
                let path = format!("film-{number}");
                let mut client = publisher(address, &path, MADE_FASTER * KBIT).expect("room");
                let all = (0..FILM_SECONDS * PACKETS_PER_SECOND).map(packet);
                all.for_each(|packet| client.packet(0, &packet));
                client.ask("TEARDOWN", &path, "", "").is(200);
            });
        }
    });
}

/// Those that record and those that play what the drive has room for.
struct Streams {
    publishers: Vec<Client>,
    players: Vec<(Client, String)>,
}

/// Starts the largest number of streams that fits; one in three records.
fn fill(site: &Site, address: SocketAddr) -> Streams {
    let (mut publishers, mut players) = (Vec::new(), Vec::new());
    loop {
        if (publishers.len() + players.len()).is_multiple_of(3) {
            let name = format!("camera-{}", publishers.len());
            create(site, &name, 20);
            match publisher(address, &name, KBIT) {
                Ok(client) => publishers.push(client),
                Err(why) => {
                    println!("one more is refused: {}", why.trim());
                    return Streams {
                        publishers,
                        players,
                    };
                }
            }
        } else {
            let path = format!("film-{}", players.len() % FILMS);
            let mut client = Client::connect(address);
            let said = client.ask("SETUP", &format!("{path}/track0"), TCP, "");
            if said.status != 200 {
                let why = said.is(453).body;
                println!("one more is refused: {}", why.trim());
                return Streams {
                    publishers,
                    players,
                };
            }
            players.push((client, path));
        }
    }
}

/// Sends packets, each when it is due, until it is told to stop; how many they were.
fn send(client: &mut Client, is_over: &AtomicBool) -> u64 {
    let begin = Instant::now();
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let due = Duration::from_millis(number * 1_000 / PACKETS_PER_SECOND);
        std::thread::sleep((begin + due).saturating_duration_since(Instant::now()));
        client.packet(0, &packet(number));
        number += 1;
    }
    number
}

/// Plays, again and again, until it is told to stop; how many packets came, all of them in order.
fn receive(client: &mut Client, path: &str, is_over: &AtomicBool) -> u64 {
    client.ask("PLAY", path, "", "").is(200);
    let (mut count, mut next) = (0, None);
    while !is_over.load(Ordering::Relaxed) {
        let came = client.next_packets();
        assert!(!came.is_empty(), "the server has closed the connection");
        for (channel, packet) in came {
            if channel == 1 && says_bye(&packet) {
                client.ask("PLAY", path, "Range: npt=0-\r\n", "").is(200);
                next = None;
            } else if channel == 0 {
                let number = u16::from_be_bytes([packet[2], packet[3]]);
                let wanted = next.unwrap_or(number);
                assert_eq!(
                    number, wanted,
                    "a packet of {path} is missing after {count}"
                );
                next = Some(number.wrapping_add(1));
                count += 1;
            }
        }
    }
    count
}

/// True if one of the reports in a compound packet is a BYE.
fn says_bye(mut reports: &[u8]) -> bool {
    while let [_, kind, high, low, ..] = reports {
        if *kind == 203 {
            return true;
        }
        let words = usize::from(u16::from_be_bytes([*high, *low])) + 1;
        reports = reports.get(4 * words..).unwrap_or_default();
    }
    false
}

/// A part of what the server serves to browsers.
fn download(http: SocketAddr, path: &str, range: &str) -> Vec<u8> {
    let (status, head, body) = get(http, path, &format!("range: bytes={range}\r\n"));
    assert_eq!(status, 206, "{head}");
    body
}

/// A field of the server's status, for each stream.
fn of_streams(site: &Site, name: &str) -> Vec<u64> {
    let status = call(site, "GET", "/v1/status", "").1;
    let streams = status["streams"].as_array().expect("a list").iter();
    streams
        .map(|of| of[name].as_u64().expect("a number"))
        .collect()
}

#[test]
fn an_export_beside_all_that_the_drive_carries_makes_nobody_late_and_is_right() {
    if !have("ffmpeg") {
        return;
    }
    let site = site();
    let (serve, address) = serve(&site);
    let http = serve.said["http"]
        .as_str()
        .and_then(|of| of.parse().ok())
        .expect("an address");
    (0..FILMS).for_each(|number| create(&site, &format!("film-{number}"), 12));
    create(&site, "clip", 12);
    let clip = made(&site, 12, 2_000);
    let wanted = frames(&["-i", &clip]);
    outcome(&mut publish(
        &clip,
        "tcp",
        &format!("rtsp://{address}/clip"),
        false,
    ))
    .done();
    closed(&site, "clip", 1);
    make_films(address);
    let promised = || {
        let status = call(&site, "GET", "/v1/status", "").1;
        let disk = &status["disks"][0];
        let share = |name: &str| disk[name].as_f64().expect("a share");
        (share("utilization_promised"), share("floor"))
    };
    until("all that was for that is given back", || {
        let (promised, floor) = promised();
        reservations(&site) == 0 && promised < floor + 0.001
    });

    let Streams {
        mut publishers,
        mut players,
    } = fill(&site, address);
    let streams = publishers.len() + players.len();
    let (promised, _) = promised();
    assert!(
        promised >= PROMISED_MIN,
        "{promised} is promised to {streams}"
    );
    assert!(
        !publishers.is_empty() && players.len() > 3,
        "{streams} streams"
    );
    let is_over = AtomicBool::new(false);
    let to = site.path("out.mp4").display().to_string();
    let (sent, received, exports) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let sending: Vec<_> = publishers
            .iter_mut()
            .map(|client| scope.spawn(move || send(client, is_over)))
            .collect();
        let receiving: Vec<_> = players
            .iter_mut()
            .map(|(client, path)| scope.spawn(move || receive(client, path, is_over)))
            .collect();
        // However this ends, they end.
        let over = Over(is_over);
        until("all of them have begun", || {
            of_streams(&site, "blocks").iter().all(|count| *count > 0)
        });
        call(&site, "POST", "/v1/window", "");
        let before = of_streams(&site, "blocks");
        let mut exports = 0;
        loop {
            let path = "/media/clip/1/recording.mp4";
            let half = scope.spawn(move || download(http, path, "100000-"));
            site.run(&["recording", "export", "clip", "1", "--to", &to])
                .done();
            let half = half.join().expect("it is downloaded");
            assert!(
                half == testkit::site::read(to.as_ref())[100_000..],
                "{} bytes",
                half.len()
            );
            exports += 1;
            let now = of_streams(&site, "blocks");
            assert_eq!(now.len(), streams, "one has ended");
            let mut moved = now.iter().zip(&before).map(|(now, before)| now - before);
            if moved.all(|count| count >= BLOCKS_EACH) {
                break;
            }
            std::fs::remove_file(&to).expect("it is there");
        }
        let misses: u64 = of_streams(&site, "misses").iter().sum();
        assert_eq!(misses, 0, "{}", call(&site, "GET", "/v1/status", "").1);
        drop(over);
        let sent: Vec<u64> = sending
            .into_iter()
            .map(|of| of.join().expect("it sends"))
            .collect();
        let received = receiving
            .into_iter()
            .map(|of| of.join().expect("nothing is missing"));
        (sent, received.sum::<u64>(), exports)
    });
    println!(
        "{} recorders, {players} players, {promised:.3} of the drive promised: {exports} exports beside {} packets \
         recorded and {received} played, 0 deadlines missed",
        sent.len(),
        sent.iter().sum::<u64>(),
        players = players.len(),
    );
    for (number, (client, sent)) in publishers.iter_mut().zip(&sent).enumerate() {
        let path = format!("camera-{number}");
        client.ask("TEARDOWN", &path, "", "").is(200);
        assert_eq!(is_whole(&site, &path, 1), *sent, "{path}");
    }
    drop(players);
    assert_eq!(frames(&["-i", &to]), wanted);
    serve.terminate();
}

/// Tells all streams that it is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
