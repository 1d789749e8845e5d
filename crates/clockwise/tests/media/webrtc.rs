//! Live streams by WebRTC: a browser plays what arrives now, and publishes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::browser::{HTTP, ended, ffmpeg, http, number, when};
use crate::browser_live::publish_with;
use testkit::process::WITHIN;
use testkit::rtsp::browser::Browser;
use testkit::rtsp::serving;
use testkit::skip::have;
use testkit::until;

/// Pictures and sound that WebRTC carries.
pub(crate) const CARRIED: &str =
    "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 50 -bf 0 -c:a libopus";

/// Sessions of players.
fn watching(site: &testkit::site::Site) -> usize {
    let list = site.json(&["session", "list"]);
    let list = list.as_array().expect("a list");
    list.iter().filter(|of| of["does"] == "watches").count()
}

/// A report about the page's video, once more frames than these were decoded, from this source.
fn shown(source: &str, frames: u32) -> String {
    when(&format!(
        "video.{source} && video.getVideoPlaybackQuality().totalVideoFrames > {frames}"
    ))
}

/// The tracks that the page gets by WebRTC, and whether they are silent.
fn heard(browser: &mut Browser) -> String {
    let tracks = browser.does("Promise.resolve(document.getElementById('video').srcObject.getTracks().map(of => of.kind + of.muted).sort())");
    tracks.to_string()
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
    let played = browser.does(&shown("srcObject", 25));
    assert_eq!(number(&played, "width"), 320.0, "{played}");
    assert_eq!(heard(&mut browser), r#"["audiofalse","videofalse"]"#);
    assert_eq!(watching(&site), 1);
    // Another page takes its place, and has no WebRTC.
    browser.at_each_page("delete window.RTCPeerConnection");
    assert_eq!(browser.open(&page), Ok(200));
    browser.does(&shown("currentSrc", 5));
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
    let (site, serve, address) = serving(&format!("{HTTP}\npublish = true"));
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
    // A published stream is played at once, and recorded.
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

/// A network that lets no UDP through is no obstacle: the same goes over TCP.
#[test]
fn the_live_page_plays_by_webrtc_over_tcp() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, address) = serving(&format!("{HTTP}\nwebrtc = \"0\""));
    // Sound that browsers get by WebRTC only.
    let _camera = publish_with(
        &CARRIED.replace("libopus", "pcm_alaw -ar 8000 -ac 1"),
        address,
    );
    let mut browser = Browser::start(site.folder.path(), None);
    browser.at_each_page(
        "(whole => { RTCPeerConnection.prototype.setRemoteDescription = function (of) {
            const sdp = of.sdp.split('\\r\\n').filter(line => !/candidate.* udp /i.test(line)).join('\\r\\n');
            return whole.call(this, { type: of.type, sdp });
        }; })(RTCPeerConnection.prototype.setRemoteDescription)",
    );
    assert_eq!(
        browser.open(&format!("http://{}/media/cam/live/", http(&serve))),
        Ok(200)
    );
    browser.does(&shown("srcObject", 25));
    assert_eq!(heard(&mut browser), r#"["audiofalse","videofalse"]"#);
    let said = browser.does("Promise.resolve(document.getElementById('tracks').textContent)");
    assert_eq!(said, "");
    browser.close();
    serve.terminate();
}

/// Posts an offer; returns the status, and the path of the session if there is one.
fn offer(address: SocketAddr, path: &str, offer: &[u8]) -> (u16, Option<String>) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(WITHIN)).expect("a socket");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/sdp\r\ncontent-length: {}\r\n\r\n",
        offer.len()
    );
    stream
        .write_all(&[head.as_bytes(), offer].concat())
        .expect("it takes it");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|of| of.parse().ok());
    let session = answer
        .lines()
        .find_map(|line| line.strip_prefix("location: "));
    (status.expect("a status"), session.map(str::to_owned))
}

/// A real offer with something wrong.
fn spoilt(real: &str, rng: &mut StdRng) -> Vec<u8> {
    let mut lines: Vec<&str> = real.lines().collect();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..lines.len());
        match rng.random_range(0..5) {
            0 if lines.len() > 1 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[rng.random_range(0..lines.len())]),
            2 => lines.truncate(at + 1),
            3 => lines[at] = &lines[at][..lines[at].len().min(rng.random_range(0..20))],
            _ => {
                lines[at] = [
                    "m=video 9 RTP/SAVPF",
                    "a=mid:",
                    "a=ssrc:4294967296 x",
                    "a=setup:holdconn",
                    "m=audio 65536 X 999",
                    "a=rtpmap:300 H264/0",
                    "v=9",
                ][rng.random_range(0..7)]
            }
        }
    }
    let mut bytes = lines.join("\r\n").into_bytes();
    if !bytes.is_empty() && rng.random_bool(0.3) {
        let at = rng.random_range(0..bytes.len());
        bytes[at] = rng.random();
    }
    bytes.extend(b"\r\n");
    bytes
}

/// A STUN request (RFC 8489) for this user, without a proof.
fn stun(user: &str, rng: &mut StdRng) -> Vec<u8> {
    let mut attribute = vec![0, 6, 0, user.len() as u8];
    attribute.extend(user.as_bytes());
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    let mut packet = vec![0, 1, 0, attribute.len() as u8, 0x21, 0x12, 0xa4, 0x42];
    packet.extend(rng.random::<[u8; 12]>());
    packet.extend(attribute);
    packet
}

/// A thousand offers that make no sense are refused or answered, a flood of datagrams goes by, and a player plays on.
#[test]
fn nonsense_neither_ends_the_server_nor_a_player() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let mut rng = StdRng::seed_from_u64(testkit::seed("nonsense by WebRTC", None));
    let (site, serve, address) = serving(&format!("{HTTP}\npublish = true"));
    let _camera = publish_with(CARRIED, address);
    let port = http(&serve);
    let mut browser = Browser::start(site.folder.path(), None);
    browser.at_each_page(
        "(whole => { RTCPeerConnection.prototype.setRemoteDescription = function (of) {
            window.real = this.localDescription.sdp; window.said = of.sdp; return whole.call(this, of);
        }; })(RTCPeerConnection.prototype.setRemoteDescription)",
    );
    assert_eq!(
        browser.open(&format!("http://{port}/media/cam/live/")),
        Ok(200)
    );
    browser.does(&when("video.srcObject && video.currentTime > 1"));
    let text = |browser: &mut Browser, name: &str| {
        let text = browser.does(&format!("Promise.resolve(window.{name})"));
        text.as_str().expect("text").to_owned()
    };
    let (real, said) = (text(&mut browser, "real"), text(&mut browser, "said"));
    let mut statuses = BTreeMap::<u16, usize>::new();
    for number in 0..1_000 {
        let bad = spoilt(&real, &mut rng);
        let path = if number % 4 == 0 {
            "/media/cam/live/whip"
        } else {
            "/media/cam/live/whep"
        };
        let (status, session) = offer(port, path, &bad);
        *statuses.entry(status).or_default() += 1;
        let is_expected = matches!(status, 201 | 400 | 406 | 409);
        assert!(
            is_expected,
            "{status} for {:?}",
            String::from_utf8_lossy(&bad)
        );
        if let Some(session) = session {
            assert_eq!(
                testkit::rtsp::http::ask(port, "DELETE", &session, "").0,
                200
            );
        }
    }
    assert!(statuses[&400] > 50 && statuses[&201] > 50, "{statuses:?}");
    let user = said
        .lines()
        .find_map(|line| line.strip_prefix("a=ice-ufrag:"))
        .expect("a name");
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
    let users = [
        user.to_owned(),
        format!("{user}:{user}"),
        "nobody:nobody".to_owned(),
    ];
    for number in 0..100_000 {
        let datagram = match number % 4 {
            0 => (0..rng.random_range(0..200))
                .map(|_| rng.random())
                .collect(),
            other => stun(&users[other - 1], &mut rng),
        };
        // A full buffer of the socket is the host's limit.
        let _ = socket.send_to(&datagram, port);
    }
    let at = number(&browser.does(&when("true")), "at");
    browser.does(&when(&format!(
        "video.srcObject && video.currentTime > {}",
        at + 2.0
    )));
    until("only the page watches", || watching(&site) == 1);
    browser.close();
    serve.terminate();
}
