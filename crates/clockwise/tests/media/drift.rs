//! A day of two cameras whose clocks go apart by seconds: at any hour of it what was at one time is played at
//! one time.

#![allow(clippy::print_stdout, reason = "a test says what it has measured")]

use std::collections::BTreeSet;

use crate::support::day::{self, Camera, FRAMES_PER_SECOND};
use testkit::rtsp::serve;
use testkit::rtsp::together::{CLOCK, comes, player};
use testkit::site::Site;

/// Clocks of cameras are off by up to 100 millionths.
const CAM: Camera = Camera {
    bytes_per_second: 64_000,
    block_bytes: 64 << 10,
    fast_ppm: -30,
};
const OTHER: Camera = Camera {
    fast_ppm: 70,
    ..CAM
};

/// When it is played, in seconds of what is played along with.
const TIMES: [u64; 3] = [3_600, 43_200, 84_000];

const SECOND_NS: u64 = 1_000_000_000;

/// Largest distance between sound and picture that is not noticed.
const APART_NS: i128 = 80_000_000;

/// Length of the playback of both.
const SECONDS: u64 = 8;

#[test]
fn simultaneous_frames_are_played_together_at_any_hour_of_a_day() {
    let site = Site::new(1);
    let bytes = 2 * day::volume_bytes(&CAM) + (4 << 30);
    let pool = day::pool(&site.path("disk-0"), bytes);
    // The times of either camera, from the key frame before on.
    let whole = TIMES.map(|time| (time - 20) * SECOND_NS..(time + 30) * SECOND_NS);
    let whole = day::groups_at(&CAM, &whole);
    day::record(&pool, "cam", &CAM, &whole);
    day::record(&pool, "other", &OTHER, &whole);
    day::configure(&site, pool, bytes, "[rtsp]\nlisten = \"0\"\n");
    let (serve, address) = serve(&site);
    let was_ns = |camera: &Camera, frame: u32| {
        let media_ns = u64::from(frame) * SECOND_NS / FRAMES_PER_SECOND;
        i128::from(camera.host_ns(media_ns))
    };
    for time in TIMES {
        let mut client = player(address);
        let range = format!("Range: npt={time}-{}\r\n", time + SECONDS);
        client.ask("PLAY", "cam+other", &range, "").is(200);
        let (tracks, _) = comes(&mut client, usize::MAX);
        let [cam, other] = &tracks;
        let began = u64::from(cam.frames[0].0) / FRAMES_PER_SECOND;
        assert!((time - day::KEY_SECONDS..=time).contains(&began), "{began}");
        let apart = |number: usize| {
            let was = was_ns(&OTHER, other.frames[number].0) - was_ns(&CAM, cam.frames[0].0);
            other.at_ns(number) - cam.at_ns(0) - was
        };
        let least = SECONDS * FRAMES_PER_SECOND;
        // Each frame has two packets.
        let shown: BTreeSet<u32> = other.frames.iter().map(|of| of.0).collect();
        assert!(shown.len() as u64 > least, "{}", shown.len());
        let all = (0..other.frames.len()).map(|number| apart(number).abs());
        let worst = all.max().expect("frames");
        println!("at {time} s: at most {:.1} ms apart", worst as f64 / 1e6);
        assert!(worst < APART_NS, "at {time} s: {worst} ns");
        // All that is said of the time is of one clock.
        for came in &tracks {
            let (first, from) = came.reports[0];
            for (ns, timestamp) in &came.reports {
                let media = timestamp.wrapping_sub(from) as i32;
                let media_ns = i128::from(media) * 1_000_000_000 / i128::from(CLOCK);
                let apart = ns - first - media_ns;
                assert!(apart.abs() < APART_NS, "at {time} s: {apart} ns");
            }
        }
        // By the cameras' own clocks they would be as far apart as these have gone.
        let gone_ns = time as i64 * (OTHER.fast_ppm - CAM.fast_ppm) * 1_000;
        let frames = i64::from(other.frames[0].0) - i64::from(cam.frames[0].0);
        let shown_ns = frames * (SECOND_NS / FRAMES_PER_SECOND) as i64;
        let gop_ns = day::KEY_SECONDS * SECOND_NS;
        assert!(shown_ns.abs_diff(gone_ns) <= gop_ns, "{frames} frames");
    }
    serve.terminate();
}
