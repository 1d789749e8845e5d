//! `clockwise camera`: what a camera sends is found, a volume is made for it, and its reservation follows it.

use std::thread::JoinHandle;

use serde_json::Value;
use testkit::rtsp::camera::Camera;
use testkit::rtsp::sized::{number, sessions};
use testkit::rtsp::{reservations, rtp, serve, with_blocks_of};
use testkit::site::{ReadyServer, Site, call, read_text};
use testkit::until;

/// Packets that a camera sends at once, as if they were those of five seconds.
const PACKETS: u16 = 125;
/// Bytes of their bodies.
const BODY: usize = 988;

/// A picture and a sound of unknown rates.
fn sdp() -> String {
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
     m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=framesize:96 640-480\r\na=control:one\r\n"
        .to_owned()
}

/// A camera that answers everybody, until so many sessions in which it played have ended.
fn at_work(camera: Camera, sessions: usize, sdp: String) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut played = 0;
        while played < sessions {
            let mut visit = camera.visit();
            let mut plays = false;
            while let Some(wanted) = visit.wanted() {
                visit.does(&wanted, &sdp);
                if wanted.method == "PLAY" {
                    plays = true;
                    for number in 0..PACKETS {
                        let body = [&[0x65], &[number as u8; BODY - 1][..]].concat();
                        visit.packet(&rtp(number, u32::from(number) * 3_600, 7, &body));
                    }
                }
            }
            played += usize::from(plays);
        }
    })
}

/// A pool on files whose new recordings have the usual blocks, served.
fn serving(rtsp: &str) -> (Site, ReadyServer) {
    let site = Site::new(1);
    let text = read_text(&site.config()).replace("size = \"64MiB\"", "size = \"512MiB\"");
    std::fs::write(site.config(), text).unwrap();
    with_blocks_of(&site, "256KiB", rtsp);
    site.run(&["pool", "create"]).done();
    let (server, _) = serve(&site);
    (site, server)
}

fn is_recording(site: &Site, name: &str) -> bool {
    let (_, source) = call(site, "GET", &format!("/v1/sources/{name}"), "");
    source["state"] == "recording"
}

#[test]
fn camera_is_inspected_given_a_volume_and_recorded() {
    let (site, server) = serving("");
    let camera = Camera::new();
    let url = camera.url("u:p@");
    let work = at_work(camera, 2, sdp());
    let added = site.json(&["camera", "add", "door", &url, "--keep", "1h"]);
    let track = &added["tracks"][0];
    assert_eq!(
        (&track["encoding"], &track["width"], &track["height"]),
        (&"H264".into(), &640.into(), &480.into())
    );
    // Header, body, and an entry in the block.
    let packets = u64::from(PACKETS);
    let of_track = packets * (12 + BODY as u64) / 5;
    assert_eq!(number(track, "rate_bytes_per_second"), of_track);
    let stored = of_track + packets * 32 / 5;
    assert_eq!(number(&added, "measured_bytes_per_second"), stored);
    // An hour, and a third more at most, in whole extents.
    let size = number(&added, "volume_bytes");
    assert!(
        (3_600 * stored..3_600 * stored * 3 / 2).contains(&size),
        "{added}"
    );
    assert_eq!(number(&added, "keep_for_ns"), 3_600_000_000_000);
    assert_eq!(
        (&added["is_volume_new"], &added["is_keep_default"]),
        (&true.into(), &false.into())
    );
    until("it is recorded", || is_recording(&site, "door"));
    let shown = site.json(&["camera", "show", "door"]);
    assert_eq!(shown["volume"]["size_bytes"], added["volume_bytes"]);
    assert_eq!(shown["retention"]["keep_for_ns"], added["keep_for_ns"]);
    assert_eq!(shown["session"]["block_bytes"], added["block_bytes"]);
    let text = site.run(&["camera", "show", "door"]).done().out;
    assert!(text.contains("kept for") && text.contains("1h"), "{text}");
    let text = site.run(&["camera", "list"]).done().out;
    assert!(
        text.contains("door") && text.contains("recording"),
        "{text}"
    );
    // The name is taken, and so is the volume when the camera is gone.
    let again = ["camera", "add", "door", &url];
    site.run(&again)
        .fails(1, &["volume", "already exists", "--volume door"]);
    site.run(&["camera", "remove", "door", "--recordings"])
        .fails(2, &["deletes volume door", "--yes"]);
    let said = site.run(&["camera", "remove", "door"]).done().out;
    assert!(said.contains("stay in volume door"), "{said}");
    work.join().unwrap();
    let kept = site.json(&["recording", "list", "door"]);
    assert_eq!(kept.as_array().map(Vec::len), Some(1), "{kept}");
    site.run(&again).fails(1, &["already exists"]);
    server.terminate();
}

#[test]
fn camera_in_a_volume_that_exists_is_removed_with_its_recordings() {
    let (site, server) = serving("");
    let camera = Camera::new();
    let url = camera.url("");
    let work = at_work(camera, 2, sdp());
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let added = site
        .run(&["camera", "add", "door", &url, "--volume", "v"])
        .done();
    for part in [
        "H264 640x480, 25.0 KB/s",
        "used volume v of 8 MiB",
        "256 KiB",
    ] {
        assert!(added.out.contains(part), "{part}: {added:?}");
    }
    until("it is recorded", || is_recording(&site, "door"));
    site.run(&["camera", "add", "gate", &url, "--volume", "v"])
        .fails(1, &["source \"door\" records in volume \"v\""]);
    let removed = site.json(&["camera", "remove", "door", "--recordings", "--yes"]);
    assert_eq!(removed["state"], "ended");
    work.join().unwrap();
    assert_eq!(site.json(&["volume", "list"]), serde_json::json!([]));
    assert_eq!(site.json(&["camera", "list"]), serde_json::json!([]));
    server.terminate();
}

#[test]
fn errors_of_a_camera_say_what_to_do_and_leave_nothing() {
    let (site, server) = serving("");
    let add =
        |url: &str, more: &[&str]| site.run(&[&["camera", "add", "door", url], more].concat());
    add("http://h/", &[]).fails(2, &["rtsp://USER:PASSWORD@HOST/PATH"]);
    add("rtsp://no-such-host.invalid/", &[]).fails(2, &["no-such-host.invalid", "host in the URL"]);
    add("rtsp://127.0.0.1:1/", &[]).fails(1, &["127.0.0.1:1", "cannot be reached", "554"]);
    add("rtsp://127.0.0.1:1/", &["--block", "100KB"]).fails(2, &["--block", "power of two"]);
    // The next one of each kind answers so.
    let refuses = |status: &'static str, headers: &'static str, url: &str, words: &[&str]| {
        let camera = Camera::new();
        let url = format!("rtsp://{url}{}/x", camera.address());
        let work = std::thread::spawn(move || {
            let mut visit = camera.visit();
            while let Some(wanted) = visit.wanted() {
                match wanted.method.as_str() {
                    "DESCRIBE" => visit.answer(&wanted, status, headers, ""),
                    _ => visit.does(&wanted, ""),
                }
            }
        });
        add(&url, &[]).fails(2, words);
        work.join().unwrap();
    };
    let digest = "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\"\r\n";
    refuses(
        "401 Unauthorized",
        digest,
        "",
        &["asks for a user", "USER:PASSWORD"],
    );
    refuses(
        "401 Unauthorized",
        digest,
        "u:p@",
        &["refuses the password of user \"u\""],
    );
    refuses("404 Not Found", "", "", &["404", "path of the URL"]);
    let camera = Camera::new();
    let url = camera.url("");
    let sound = testkit::rtsp::sdp(800).replace("X-TEST/1000", "PCMA/8000");
    let work = std::thread::spawn(move || {
        let mut visit = camera.visit();
        while let Some(wanted) = visit.wanted() {
            visit.does(&wanted, &sound);
        }
    });
    add(&url, &[]).fails(2, &["no video", "PCMA"]);
    work.join().unwrap();
    let camera = Camera::new();
    let url = camera.url("");
    let work = at_work(camera, 1, sdp());
    add(&url, &["--keep", "10000d"]).fails(1, &["--keep", "10000d at 25.8 KB/s", "free", "fits"]);
    work.join().unwrap();
    assert_eq!(site.json(&["volume", "list"]), serde_json::json!([]));
    assert_eq!(site.json(&["camera", "list"]), serde_json::json!([]));
    server.terminate();
}

/// Sources in a volume each, recorded from cameras that state no rate.
fn sources(site: &Site, count: usize) -> Vec<JoinHandle<()>> {
    let source = |number: usize| {
        let (camera, name) = (Camera::new(), format!("cam-{number}"));
        let url = camera.url("");
        let work = at_work(camera, 1, sdp());
        site.run(&["volume", "create", &name, "--size", "10MiB"])
            .done();
        site.run(&["source", "add", &name, &url, "--volume", &name])
            .done();
        work
    };
    (0..count).map(source).collect()
}

/// Waits until all of them are recorded with little reserved, and ends the server.
fn are_recorded(site: &Site, server: ReadyServer, cameras: Vec<JoinHandle<()>>) {
    let count = cameras.len();
    for number in 0..count {
        let name = format!("cam-{number}");
        until("it is recorded", || is_recording(site, &name));
    }
    until("the reservations have followed the cameras", || {
        let is_low = |of: &Value| number(of, "rate_bytes_per_second") < 40_000;
        let all = sessions(site);
        all.len() == count && all.iter().all(is_low)
    });
    assert_eq!(reservations(site), count);
    server.terminate();
    for camera in cameras {
        camera.join().unwrap();
    }
}

#[test]
fn six_cameras_of_unknown_rates_fit_on_a_pool_in_a_file() {
    let (site, server) = serving("");
    let cameras = sources(&site, 6);
    are_recorded(&site, server, cameras);
}

/// The first takes all that the disk carries. It needs little, and the others come when it has given back the rest.
#[test]
fn guess_beyond_the_disks_is_lowered_and_refused_cameras_follow() {
    let (site, server) = serving("rate = \"9GB/s\"");
    let cameras = sources(&site, 3);
    are_recorded(&site, server, cameras);
}

/// A block expresses 35 minutes of media. Those of a file that is sent fast are in another block.
#[test]
fn times_are_right_where_a_block_would_span_too_much_media() {
    let (site, server, address) = testkit::rtsp::serving("");
    let mut client = testkit::rtsp::publisher(address, testkit::rtsp::TCP);
    // Packets of 15 s each, of which a block has room for hundreds.
    for number in 0..400_u16 {
        client.packet(
            0,
            &rtp(number, u32::from(number) * 15_000, 7, &[number as u8; 50]),
        );
        if number % 50 == 0 {
            let report = testkit::rtsp::sender_report(7, 1, u32::from(number) * 15_000);
            client.packet(1, &report);
        }
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let listed = site.json(&["recording", "list", "cam"]);
    let seconds = number(&listed[0], "length_ns") / 1_000_000_000;
    assert!((5_984..=5_986).contains(&seconds), "{listed}");
    assert_eq!(number(&listed[0], "blocks"), 3);
    let check = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(
        (number(&check, "packets"), &check["is_sound"]),
        (400, &true.into()),
        "{check}"
    );
    let index = "/v1/volumes/cam/recordings/1/index?from_ns=0";
    let keys = call(&site, "GET", index, "").1["keys"].clone();
    let at = |number: usize| {
        keys[number]["begins_ns"]
            .as_u64()
            .map(|ns| ns / 1_000_000_000)
    };
    assert!(
        at(399).is_some_and(|at| (5_984..=5_986).contains(&at)),
        "{keys}"
    );
    server.terminate();
}
