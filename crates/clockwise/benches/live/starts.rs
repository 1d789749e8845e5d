//! How soon something is shown, and what it costs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::process::Process;
use testkit::rtsp::browser::Browser;
use testkit::rtsp::http::get;
use testkit::rtsp::load::{self, Epoch, Player, StopOnDrop};
use testkit::rtsp::peers::{closed, made, publish};
use testkit::site::Site;

use crate::day;
use crate::served::Served;

const PLAYERS: usize = 24;
const PLAYERS_WATCH_S: u64 = 45;
/// A camera of 2 Mbit/s that is recorded for a day.
const DAY: day::Camera = day::Camera {
    bytes_per_second: 250_000,
    block_bytes: 256 << 10,
    fast_ppm: 0,
};
/// Starts of a browser; the median is reported.
const OPENED_TIMES: usize = 5;

pub(crate) fn report() {
    println!("## Costs and starts\n\n| measurement | before | now |\n|---|---:|---:|");
    let read = read_by_players();
    println!(
        "| read from the disks by {PLAYERS} live players in {PLAYERS_WATCH_S} s, 2 Mbit/s | 560 MB \
         | {:.1} MB |",
        read as f64 / 1e6
    );
    playlist();
    let (described, played) = small_camera();
    println!(
        "| a camera of 20 kbit/s can be played after it has begun to connect | \
         | {described:.3} s, first packet at {played:.3} s |"
    );
    let mut first: Vec<f64> = first_pictures();
    first.sort_by(f64::total_cmp);
    println!(
        "| first picture of a recording of 30 s in Chromium, from the request of the page on | \
         | {:.0} ms ({:.0} to {:.0}) |\n",
        first[first.len() / 2],
        first[0],
        first[first.len() - 1]
    );
}

/// Bytes that the server reads while players watch a camera that is recorded.
fn read_by_players() -> u64 {
    let served = Served::new(None);
    served.volume("cam");
    let (epoch, stop) = (Epoch::now(), AtomicBool::new(false));
    let mut camera = [load::Camera::publishes(served.rtsp, "cam", 2_000, 2_200)];
    let read = std::thread::scope(|scope| {
        let _stops = StopOnDrop(&stop);
        scope.spawn(|| load::publish(&mut camera, epoch, &stop));
        served.is_live("cam/live");
        let player = |_| Player::connect(served.rtsp, "cam/live", true, false);
        let players: Result<Vec<Player>, _> = (0..PLAYERS).map(player).collect();
        let mut players = players.expect("nobody is refused");
        players.iter_mut().for_each(Player::plays);
        let before = served.read_bytes();
        let stop = &stop;
        let receiving = scope.spawn(move || {
            load::receive(&mut players, epoch, stop);
            players.iter().map(|of| (of.packets, of.missing)).min()
        });
        std::thread::sleep(Duration::from_secs(PLAYERS_WATCH_S));
        let read = served.read_bytes() - before;
        stop.store(true, Ordering::Relaxed);
        let least = receiving.join().expect("they play");
        assert!(least.is_some_and(|(packets, missing)| packets > 0 && missing == 0));
        read
    });
    let [camera] = camera;
    camera.ends();
    served.ends();
    read
}

/// Bytes and times of a playlist of a day.
fn playlist() {
    let site = Site::new(0);
    let bytes = day::volume_bytes(&DAY) + (4 << 30);
    let pool = day::pool(&site.path("disk-0"), bytes);
    day::record(&pool, "cam", &DAY, &[0]);
    let more = "[rtsp]\nlisten = \"0\"\n[http]\nlisten = \"0\"\n";
    day::configure(&site, pool, bytes, more);
    let served = Served::of(site, None);
    for turn in ["first", "second"] {
        let (begin, before) = (Instant::now(), served.processor_s());
        let (status, head, body) = get(served.http, "/media/cam/1/media.m3u8?from=43200", "");
        let (took, processor) = (begin.elapsed(), served.processor_s() - before);
        assert_eq!(status, 200, "{head}");
        println!(
            "| the {turn} playlist of a recording of a day, from its middle on | 6.1 MB, 0.19 s of processor time \
             | {:.1} kB in {:.1} ms, {:.1} ms of processor time |",
            body.len() as f64 / 1e3,
            took.as_secs_f64() * 1e3,
            processor * 1e3
        );
    }
    served.ends();
}

/// When a camera of 20 kbit/s is described and when its first packet is played, in seconds after it begins to connect.
fn small_camera() -> (f64, f64) {
    let served = Served::new(None);
    served.volume("cam");
    let (epoch, stop) = (Epoch::now(), AtomicBool::new(false));
    let begin = Instant::now();
    let mut camera = [load::Camera::publishes(served.rtsp, "cam", 20, 25)];
    let times = std::thread::scope(|scope| {
        let _stops = StopOnDrop(&stop);
        scope.spawn(|| load::publish(&mut camera, epoch, &stop));
        served.is_live("cam");
        let described = begin.elapsed().as_secs_f64();
        let mut client = testkit::rtsp::Client::connect(served.rtsp);
        client
            .ask("SETUP", "cam/track0", testkit::rtsp::TCP, "")
            .is(200);
        client.ask("PLAY", "cam", "", "").is(200);
        client.packets_on(0, 1);
        let played = begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        (described, played)
    });
    let [camera] = camera;
    camera.ends();
    served.ends();
    times
}

/// Times from the navigation to a finished recording until its first picture, in milliseconds.
fn first_pictures() -> Vec<f64> {
    let served = Served::new(None);
    served.volume("cam");
    let clip = made(&served.site, 30, 2_000);
    let url = format!("rtsp://{}/cam", served.rtsp);
    let mut publisher = Process::spawn(&mut publish(&clip, "tcp", &url, false));
    assert_eq!(publisher.wait().code(), Some(0));
    closed(&served.site, "cam", 1);
    let page = format!("http://{}/media/cam/1/", served.http);
    let times = (0..OPENED_TIMES).map(|_| {
        let mut browser = Browser::start(served.site.folder.path(), None);
        browser.at_each_page(
            "document.addEventListener('DOMContentLoaded', () => document.getElementById('video')
                ?.requestVideoFrameCallback(now => { window.firstPicture = now; }))",
        );
        assert_eq!(browser.open(&page), Ok(200));
        let time = browser.does(
            "(async () => {
                while (!window.firstPicture) await new Promise(done => setTimeout(done, 10));
                return window.firstPicture;
            })()",
        );
        browser.close();
        time.as_f64().expect("a time")
    });
    let times = times.collect();
    served.ends();
    times
}
