//! Delays of live pictures.

use std::net::TcpListener;
use std::time::Duration;

use testkit::rtsp::browser::Browser;
use testkit::rtsp::peers::listens;
use testkit::until;

use crate::picture::{Camera, READ_CANVAS, play_rtsp};
use crate::served::Served;

/// Rates of the cameras in kbit/s, and the delays without live play from memory, over RTSP and in a browser.
const RATES: [(u64, &str, &str); 2] = [(2_000, "5.0 s", "6.6 s"), (250, "32 s", "10.9 s")];

/// Ways of the live page to play: their names, goals, and queries of its URL that choose them.
const BROWSER_WAYS: [(&str, &str, &str); 2] = [
    ("WebRTC in Chromium", "under 300 ms", ""),
    ("low-latency HLS in Chromium", "under 2 s", "?hls"),
];

/// Time between two looks at the picture of a browser.
const LOOK_MS: u64 = 50;

pub(crate) fn report(length: Duration) {
    println!(
        "## Delay\n\nDelay of the picture over {} s, from before the encoder to the decoded picture. The picture \
         shows the time, 25 times a\nsecond. In the browser it is read each {LOOK_MS} ms, so the time for which it \
         stands counts as well. \"Before\" was measured\nearlier, without live play from memory.\nThe two programs \
         ffmpeg take two pictures' time, also without a server.\n",
        length.as_secs()
    );
    println!("| camera | player | before | median | p99 | worst | pictures | goal |");
    println!("|---|---|---:|---:|---:|---:|---:|---|");
    for (kbit, rtsp_before, browser_before) in RATES {
        let served = Served::new(None);
        served.volume("cam");
        let camera = Camera::publishes(served.rtsp, "cam", kbit);
        served.is_live("cam/live");
        let url = format!("rtsp://{}/cam/live", served.rtsp);
        let delays = play_rtsp(&["-i", &url], length);
        row(
            kbit,
            "RTSP, ffmpeg",
            rtsp_before,
            delays,
            "p99 at most 100 ms",
        );
        for (name, goal, query) in BROWSER_WAYS {
            let delays = play_in_browser(&served, query, length);
            row(kbit, name, browser_before, delays, goal);
        }
        drop(camera);
        served.ends();
        let delays = without_server(kbit, length / 3);
        row(kbit, "ffmpeg, without a server between", "", delays, "");
    }
    println!();
}

/// Delays of one ffmpeg that plays from another one.
fn without_server(kbit: u64, length: Duration) -> Vec<f64> {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its number");
    drop(free);
    let url = format!("rtsp://{address}/cam");
    std::thread::scope(|scope| {
        let input = ["-rtsp_flags", "listen", "-i", &url];
        let playing = scope.spawn(move || play_rtsp(&input, length));
        until("it listens", || playing.is_finished() || listens(address));
        let _camera = Camera::publishes(address, "cam", kbit);
        playing.join().expect("it plays")
    })
}

fn row(kbit: u64, player: &str, before: &str, mut delays: Vec<f64>, goal: &str) {
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let ms = delays[((delays.len() - 1) as f64 * share) as usize];
        match ms < 1_000.0 {
            true => format!("{ms:.0} ms"),
            false => format!("{:.2} s", ms / 1e3),
        }
    };
    println!(
        "| {kbit} kbit/s | {player} | {before} | {} | {} | {} | {} | {goal} |",
        at(0.5),
        at(0.99),
        at(1.0),
        delays.len(),
    );
}

/// Delays of the live page, in milliseconds: from two seconds after the first picture on, as for RTSP.
fn play_in_browser(served: &Served, query: &str, length: Duration) -> Vec<f64> {
    let mut browser = Browser::start(served.site.folder.path(), None);
    let page = format!("http://{}/media/cam/live/{query}", served.http);
    assert_eq!(browser.open(&page), Ok(200));
    let watched = browser.does(&format!(
        "(async () => {{
            {READ_CANVAS}
            const video = document.getElementById('video'), sleep = ms => new Promise(done => setTimeout(done, ms));
            while (video.readyState < 2 || video.paused || delay_ms(video) === null) await sleep(10);
            await sleep(2000);
            const delays = [], end = Date.now() + {};
            let unread = 0;
            while (Date.now() < end) {{
                const delay = delay_ms(video);
                if (delay === null) unread++; else delays.push(delay);
                await sleep({LOOK_MS});
            }}
            return {{ delays, unread, isByWebRtc: !!video.srcObject }};
        }})()",
        length.as_millis()
    ));
    browser.close();
    let delays = watched["delays"].as_array().expect("a list").iter();
    let delays: Vec<f64> = delays.filter_map(serde_json::Value::as_f64).collect();
    let unread = watched["unread"].as_u64().expect("a number");
    assert!(
        unread * 100 < delays.len() as u64,
        "{unread} pictures without a time, {} with one",
        delays.len()
    );
    let is_by_webrtc = watched["isByWebRtc"] == true;
    assert_eq!(is_by_webrtc, query.is_empty(), "it was played another way");
    delays
}
