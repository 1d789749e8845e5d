//! The page of the newest recording, and what a page says when something is missing.

use std::net::SocketAddr;

use crate::browser::{HTTP, ended, ffmpeg, http, number, says, when};
use crate::webrtc::CARRIED;
use testkit::process::Process;
use testkit::rtsp::browser::Browser;
use testkit::rtsp::serving;
use testkit::site::outcome;
use testkit::skip::have;
use testkit::until;

/// Publishes pictures and sound for ten minutes, encoded so.
pub(crate) fn publish_with(encoded: &str, address: SocketAddr) -> Process {
    let mut command = ffmpeg();
    let inputs = [
        "testsrc2=size=320x240:rate=25:duration=600",
        "sine=frequency=440:sample_rate=48000:duration=600",
    ];
    for input in inputs {
        command.args(["-re", "-f", "lavfi", "-i", input]);
    }
    command
        .args(encoded.split(' '))
        .args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
    Process::spawn(command.arg(format!("rtsp://{address}/cam")))
}

/// Pictures, and sound that WebRTC does not carry.
const BY_HLS: &str = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 25 -bf 0 -c:a aac";

/// By low-latency HLS.
#[test]
fn the_live_page_follows_from_recording_to_recording() {
    follows_from_recording_to_recording(BY_HLS, "!video.srcObject");
}

#[test]
fn the_live_page_follows_from_recording_to_recording_by_webrtc() {
    follows_from_recording_to_recording(CARRIED, "video.srcObject");
}

/// The live page survives all that happens to a camera and to a server, and shows what comes next by itself, in this way.
fn follows_from_recording_to_recording(encoded: &str, way: &str) {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let port = http(&serve).port();
    let mut browser = Browser::start(site.folder.path(), None);
    let page = format!("http://127.0.0.1:{port}/media/cam/live/");
    assert_eq!(browser.open(&page), Ok(200));
    browser.does(&says("Nothing has been recorded yet."));
    let publish = |address: SocketAddr| publish_with(encoded, address);
    // Notes where the page is.
    let note = |browser: &mut Browser| {
        browser.does("(video => { window.at = video.currentTime; window.stream = video.srcObject; return Promise.resolve(); })(document.getElementById('video'))");
    };
    // A WebRTC session that is new begins at 0.
    let further = |browser: &mut Browser, seconds: f64| {
        browser.does(&when(&format!(
            "{way} && video.currentTime > (video.srcObject === stream ? at : 0) + {seconds}"
        )))
    };
    // A session by WebRTC that is not the one that was noted. Low-latency HLS goes on in its own.
    let is_another = format!("{way} && (!video.srcObject || video.srcObject !== stream)");
    let first = publish(address);
    browser.does(&when(&format!(
        "{way} && video.currentTime > 0.5 && !video.paused"
    )));
    // The network is lost, and nothing is left to show. A browser cannot be kept from sending by UDP.
    if way == "!video.srcObject" {
        browser.set_offline(true);
        browser.does(&says("The server cannot be reached."));
        browser.does(&when("video.readyState < video.HAVE_FUTURE_DATA"));
        browser.set_offline(false);
    }
    note(&mut browser);
    further(&mut browser, 4.0);
    // The camera goes, and comes again.
    drop(first);
    browser.does(&says("The recording ended at"));
    note(&mut browser);
    let second = publish(address);
    browser.does(&when(&is_another));
    let later = further(&mut browser, 6.0);
    assert_eq!(ended(&site, "cam"), 1, "{later}");
    // The server is started again.
    drop(second);
    serve.terminate();
    browser.does(&says("The server cannot be reached."));
    let config = std::fs::read_to_string(site.config()).expect("text");
    let config = config.replace(
        "[http]\nlisten = \"0\"",
        &format!("[http]\nlisten = \"{port}\""),
    );
    std::fs::write(site.config(), config).expect("it can be written");
    let (serve, address) = testkit::rtsp::serve(&site);
    note(&mut browser);
    let third = publish(address);
    browser.does(&when(&is_another));
    further(&mut browser, 6.0);
    browser.does(&when("document.getElementById('said').textContent === ''"));
    assert_eq!(ended(&site, "cam"), 2);
    drop(third);
    browser.close();
    serve.terminate();
}

/// A browser without a decoder for the picture says so, and plays the sound.
#[test]
fn a_browser_without_a_decoder_says_so_and_plays_the_rest() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let mut command = ffmpeg();
    command.args([
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=320x240:rate=25:duration=6",
    ]);
    command.args([
        "-f",
        "lavfi",
        "-i",
        "sine=frequency=440:sample_rate=48000:duration=6",
    ]);
    let encoded = "-c:v libx265 -preset ultrafast -g 25 -bf 0 -c:a aac -f rtsp -rtsp_transport tcp";
    command.args(encoded.split(' '));
    outcome(command.arg(format!("rtsp://{address}/cam"))).done();
    until("the recording is closed", || ended(&site, "cam") == 1);
    let mut browser = Browser::start(site.folder.path(), None);
    browser.at_each_page(
        "MediaSource.isTypeSupported = (can => kind => !kind.includes('hvc1') && can(kind))(MediaSource.isTypeSupported)",
    );
    let page = format!("http://{}/media/cam/1/", http(&serve));
    assert_eq!(browser.open(&page), Ok(200));
    browser.does(&says(
        "The picture is H.265 (HEVC), which this browser cannot play.",
    ));
    let done = browser.does(&when("video.ended"));
    assert!(number(&done, "sound") > 0.0, "{done}");
    assert!(number(&done, "at") > 5.0, "{done}");
    browser.close();
    serve.terminate();
}
