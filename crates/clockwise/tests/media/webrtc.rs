//! Live streams by WebRTC: a browser plays what arrives now, and publishes.

use crate::browser::{HTTP, ended, ffmpeg, http, number, when};
use crate::browser_live::publish_with;
use testkit::rtsp::browser::Browser;
use testkit::rtsp::serving;
use testkit::skip::have;
use testkit::until;

/// Pictures and sound that WebRTC carries.
const CARRIED: &str =
    "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 50 -bf 0 -c:a libopus";

/// Sessions of players.
fn watching(site: &testkit::site::Site) -> usize {
    let list = site.json(&["session", "list"]);
    let list = list.as_array().expect("a list");
    list.iter().filter(|of| of["does"] == "watches").count()
}

/// The live page plays by WebRTC, and by HLS where that is not possible.
#[test]
fn the_live_page_plays_by_webrtc() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let camera = publish_with(CARRIED, address);
    let mut browser = Browser::start(site.folder.path(), None);
    let page = format!("http://{}/media/cam/live/", http(&serve));
    assert_eq!(browser.open(&page), Ok(200));
    let played = browser.does(&when("video.srcObject && video.currentTime > 3"));
    assert!(number(&played, "frames") > 25.0, "{played}");
    let tracks = browser.does("Promise.resolve(document.getElementById('video').srcObject.getTracks().map(of => of.kind + of.muted).sort())");
    assert_eq!(tracks.to_string(), r#"["audiofalse","videofalse"]"#);
    assert_eq!(watching(&site), 1);
    // Another page takes its place, and has no WebRTC.
    browser.at_each_page("delete window.RTCPeerConnection");
    assert_eq!(browser.open(&page), Ok(200));
    let played = browser.does(&when("video.currentSrc && video.currentTime > 1"));
    assert!(number(&played, "frames") > 5.0, "{played}");
    drop(camera);
    browser.close();
    until("the recording is closed", || ended(&site, "cam") == 1);
    serve.terminate();
}

/// A page publishes what it draws. It is recorded, and played by RTSP.
#[test]
fn a_browser_publishes_by_webrtc() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let mut browser = Browser::start(site.folder.path(), None);
    assert_eq!(
        browser.open(&format!("http://{}/media/", http(&serve))),
        Ok(200)
    );
    let said = browser.does(
        "(async () => {
            const canvas = document.createElement('canvas');
            canvas.width = 320; canvas.height = 240;
            const context = canvas.getContext('2d');
            let turn = 0;
            setInterval(() => { context.fillStyle = `hsl(${turn += 5}, 90%, 50%)`; context.fillRect(0, 0, 320, 240); }, 40);
            const sound = new AudioContext(), tone = sound.createOscillator(), out = sound.createMediaStreamDestination();
            tone.connect(out); tone.start();
            const peer = window.peer = new RTCPeerConnection();
            for (const track of [...canvas.captureStream(25).getTracks(), ...out.stream.getTracks()]) peer.addTransceiver(track, { direction: 'sendonly' });
            await peer.setLocalDescription();
            const answer = await fetch('/media/cam/whip', { method: 'POST', headers: { 'Content-Type': 'application/sdp' }, body: peer.localDescription.sdp });
            const text = await answer.text();
            if (answer.status !== 201) return text;
            await peer.setRemoteDescription({ type: 'answer', sdp: text });
            window.session = answer.headers.get('Location');
            await new Promise(yes => peer.addEventListener('connectionstatechange', () => peer.connectionState === 'connected' && yes()));
            return 'connected';
        })()",
    );
    assert_eq!(said, "connected");
    // What is published is played at once, and recorded.
    let mut play = ffmpeg();
    play.args([
        "-rtsp_transport",
        "tcp",
        "-i",
        &format!("rtsp://{address}/cam"),
    ]);
    play.args(["-t", "4", "-f", "null", "-"]);
    testkit::site::outcome(&mut play).done();
    let deleted = browser.does("fetch(window.session, { method: 'DELETE' }).then(of => of.status)");
    assert_eq!(deleted, 200);
    until("the recording is closed", || ended(&site, "cam") == 1);
    let shown = site.json(&["recording", "show", "cam", "1"]);
    let names: Vec<_> = shown["tracks"]
        .as_array()
        .expect("tracks")
        .iter()
        .map(|of| of["encoding"].to_string())
        .collect();
    assert_eq!(names.len(), 2, "{shown}");
    assert!(names[1].to_lowercase().contains("opus"), "{shown}");
    browser.close();
    serve.terminate();
}
