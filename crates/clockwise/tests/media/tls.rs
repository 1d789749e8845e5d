//! RTSP by TLS: by hand, with ffmpeg and with GStreamer, and what is no TLS, or half of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use testkit::process::{Process, WITHIN};
use testkit::rtsp::clip::{clip, frames};
use testkit::rtsp::login::DigestUser;
use testkit::rtsp::peers::has_played;
use testkit::rtsp::tls::{self, Certificate, connect, half_connect, with_tls, write};
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, lines, logged, reservations, rtp, sdp, serve_logged, users,
};
use testkit::site::{Site, outcome};
use testkit::skip::{have, tool};
use testkit::until;

/// Begins to record.
fn records(client: &mut Client, kbit: u64) {
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(kbit)).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
}

#[test]
fn packets_come_back_as_they_came_and_none_goes_by_udp() {
    let (site, serve, certificate, address) = tls::serving("");
    let mut client = connect(address, &certificate);
    // More in one record of TLS than is read at a time: what is left is taken without anything more that comes.
    client.send(
        "OPTIONS * RTSP/1.0\r\nCSeq: 5\r\n\r\n"
            .repeat(300)
            .as_bytes(),
    );
    for _ in 0..300 {
        assert_eq!(client.answer().expect("an answer").status, 200);
    }
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    let udp = "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n";
    let said = client.ask("SETUP", "cam/one", udp, "").is(461);
    assert!(said.body.contains("would not be encrypted"), "{said:?}");
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    // Many packets in one record of TLS, and one in many.
    let packet = |number: u16| rtp(number, 0, 1, &[number as u8; 700]);
    let framed = |packet: &[u8]| {
        let [high, low] = (packet.len() as u16).to_be_bytes();
        [&[b'$', 0, high, low], packet].concat()
    };
    let all: Vec<u8> = (0..20).flat_map(|number| framed(&packet(number))).collect();
    let session = client.session.clone().expect("a session");
    let ends =
        format!("TEARDOWN rtsps://{address}/cam RTSP/1.0\r\nCSeq: 9\r\nSession: {session}\r\n\r\n");
    for piece in framed(&packet(20)).chunks(90) {
        client.send(piece);
    }
    client.send(&[&all, ends.as_bytes()].concat());
    assert_eq!(client.answer().expect("an answer").status, 200);
    until("the reservation is given back", || reservations(&site) == 0);

    let mut player = connect(address, &certificate);
    let said = player.ask("DESCRIBE", "cam", "", "").is(200);
    let base = said.header("Content-Base").expect("a base");
    assert!(base.starts_with("rtsps://"), "{base}");
    player.ask("SETUP", "cam/track0", udp, "").is(461);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
    let expected: Vec<_> = [20].into_iter().chain(0..20).map(packet).collect();
    assert_eq!(player.packets_on(0, 21), expected);
    player.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
    // The end is said as TLS says it.
    assert!(player.answer().is_none());
}

#[test]
fn tls_player_that_reads_nothing_gets_its_packets_later() {
    let (site, serve, certificate, address) = tls::serving("");
    let mut client = connect(address, &certificate);
    records(&mut client, 24_000);
    // More than two sockets hold, and all of one moment.
    let sent: Vec<Vec<u8>> = (0..12_000)
        .map(|number| rtp(number, 0, 1, &[number as u8; 1_400]))
        .collect();
    sent.iter().for_each(|packet| client.packet(0, packet));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    let mut player = connect(address, &certificate);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
    player.packets_on(0, 1);
    let come = || rustix::io::ioctl_fionread(&player.socket).expect("a socket");
    until("nothing comes any more", || {
        let came = come();
        std::thread::sleep(Duration::from_secs(1));
        came > 0 && come() == came
    });
    assert_eq!(player.packets_on(0, sent.len()), sent);
    serve.terminate();
}

/// Bytes from the other side before it closes.
fn ends(socket: &mut TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(WITHIN)).expect("a time");
    let mut said = Vec::new();
    match socket.read_to_end(&mut said) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => said,
    }
}

#[test]
fn broken_tls_handshake_ends_and_holds_nothing() {
    let site = Site::new(2);
    let certificate = with_tls(&site, "timeout = \"2s\"\n");
    site.run(&["pool", "create"]).done();
    let (serve, plain) = serve_logged(&site);
    let secure = serve
        .ready
        .split("rtsps=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let secure = secure
        .and_then(|address| address.parse().ok())
        .expect("an address");
    site.run(&["volume", "create", "cam", "--size", "20MiB"])
        .done();

    let mut stalled = half_connect(secure);
    let mut silent = TcpStream::connect(secure).expect("the server listens");
    let mut wrong = TcpStream::connect(secure).expect("the server listens");
    wrong
        .write_all(b"OPTIONS rtsp://h/cam RTSP/1.0\r\nCSeq: 1\r\n\r\n")
        .expect("it is taken");
    // An alert of TLS, and no answer.
    assert_eq!(ends(&mut wrong).first(), Some(&21));
    // And the other way round: an answer that says why.
    let mut reverse = half_connect(plain);
    let said = String::from_utf8(ends(&mut reverse)).expect("text");
    assert!(
        said.starts_with("RTSP/1.0 400 ") && said.contains("this port does not use TLS"),
        "{said}"
    );
    // A client that does not trust the server goes, and others are served meanwhile.
    let mut distrust = connect(secure, &Certificate::new());
    let tls = distrust.tls.as_mut().expect("TLS");
    let error = rustls::Stream::new(tls, &mut distrust.socket)
        .write_all(b"x")
        .unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let mut good = connect(secure, &certificate);
    records(&mut good, 800);
    assert_eq!(reservations(&site), 1);
    good.packet(0, &rtp(1, 0, 1, b"x"));
    good.ask("TEARDOWN", "cam", "", "").is(200);
    until("nothing is held", || reservations(&site) == 0);
    for socket in [&mut stalled, &mut silent] {
        ends(socket);
    }
    let (status, log) = serve.terminate();
    assert_eq!(status, Some(0));
    for word in [
        "does not use TLS",
        "nothing was received for 2.000 s",
        "a recording ended",
    ] {
        assert!(log.contains(word), "no {word:?} in {log}");
    }
}

#[test]
fn a_certificate_that_is_of_no_use_keeps_the_server_from_starting() {
    let site = Site::new(1);
    let certificate = with_tls(&site, "");
    site.run(&["pool", "create"]).done();
    let fails = |words: &[&str]| site.run(&["serve"]).fails(1, words);
    let (pem, key) = (site.path("tls.pem"), site.path("tls.key"));
    write(&key, &Certificate::new().key, 0o600);
    fails(&[
        "tls.key and the certificate",
        "tls.pem",
        "cannot be used",
        "`certificate` and `key`",
    ]);
    write(&key, &certificate.key, 0o644);
    fails(&["tls.key", "0644", "chmod o="]);
    write(&key, "no key", 0o600);
    fails(&["tls.key cannot be read", "no PEM section"]);
    std::fs::remove_file(&key).expect("it is there");
    fails(&["tls.key", "No such file"]);
    write(&key, &certificate.key, 0o600);
    write(&pem, &certificate.key, 0o600);
    fails(&["no certificate in", "tls.pem"]);
    write(
        &pem,
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        0o600,
    );
    fails(&["tls.pem cannot be read", "not PEM"]);
}

/// Waits until a source is so.
#[track_caller]
fn is(site: &Site, name: &str, what: &str, is: impl Fn(&Value) -> bool) {
    until(what, || is(&site.json(&["source", "show", name])));
}

/// Waits until a source does not record, and says why.
#[track_caller]
fn waits(site: &Site, name: &str, word: &str) {
    is(site, name, word, |of| {
        let reason = of["reason"].as_str();
        of["state"] == "waiting" && reason.is_some_and(|of| of.contains(word))
    });
}

/// Another Clockwise is a camera that speaks TLS.
#[test]
fn a_camera_is_believed_by_its_certificate() {
    let far = Site::new(2);
    let certificate = with_tls(&far, "users = \"rtsp-users\"\n");
    users(&far, "rtsp-users", &[("anna", "pass")]);
    far.run(&["pool", "create"]).done();
    let far_server = far.serve_json();
    far.run(&["volume", "create", "cam", "--size", "20MiB"])
        .done();
    let address = far_server.said["rtsps"].as_str().expect("an address");
    let url = format!("rtsps://anna:pass@{address}/cam");
    // The source to be pulled.
    let plain = far_server.said["rtsp"].as_str().expect("an address");
    let mut anna = DigestUser::connect(plain.parse().expect("an address"), "anna", "pass");
    anna.records();
    for number in 0..50 {
        anna.client
            .packet(0, &rtp(number, u32::from(number), 1, &[7; 500]));
    }
    anna.ask("TEARDOWN", "cam", "", "").is(200);
    until("it is recorded", || reservations(&far) == 0);

    let (site, server, _, _) = tls::serving("");
    let add = |name: &str, url: &str, more: &[&str]| {
        site.run(&[&["source", "add", name, url, "--volume", "cam"], more].concat())
    };
    let file = |name: &str, text: &str| {
        write(&site.path(name), text, 0o644);
        site.path(name).display().to_string()
    };
    let (wrong, right) = (
        file("wrong.pem", &Certificate::new().pem),
        file("right.pem", &certificate.pem),
    );
    add("by-host", &url, &[]).done();
    waits(&site, "by-host", "UnknownIssuer (--ca sets");
    add("by-another", &url, &["--ca", &wrong]).done();
    waits(&site, "by-another", "invalid peer certificate");
    add("no-tls", &format!("rtsps://{plain}/cam"), &["--ca", &right]).done();
    waits(&site, "no-tls", "does not use TLS");
    for name in ["by-host", "by-another", "no-tls"] {
        site.run(&["source", "remove", name]).done();
    }
    for (url, more, words) in [
        (
            url.as_str(),
            &["--transport", "udp"][..],
            &["would not be encrypted"][..],
        ),
        (
            url.as_str(),
            &["--ca", "nowhere.pem"],
            &["nowhere.pem", "No such file"],
        ),
        (
            url.as_str(),
            &["--ca", &file("none.pem", "none")],
            &["no certificate in PEM"],
        ),
        (
            "rtsp://h/",
            &["--ca", &right],
            &["does not use TLS", "rtsps://"],
        ),
    ] {
        let failed = add("x", url, more);
        assert!((1..=2).contains(&failed.code), "{failed:?}");
        failed.fails(failed.code, words);
    }
    add("door", &url, &["--ca", &right]).done();
    is(&site, "door", "all packets have come", |of| {
        of["packets"].as_u64() >= Some(50)
    });
    // It is remembered.
    server.terminate();
    let server = site.serve_json();
    is(&site, "door", "all packets have come again", |of| {
        of["packets"].as_u64() >= Some(50)
    });
    assert_eq!(site.json(&["source", "show", "door"])["recording"], 2);
    server.terminate();
    far_server.terminate();
}

/// One that an authority has signed is believed for its name, and for no other; one that is given is believed
/// at once.
#[test]
fn a_certificate_that_is_signed_is_good_for_its_name() {
    for (name, is_given, is_believed) in [
        ("127.0.0.1", false, true),
        ("cam.example", false, false),
        ("cam.example", true, true),
    ] {
        let site = Site::new(2);
        let (certificate, authority) = tls::signed(name);
        tls::with_certificate(&site, &certificate, "");
        let given = if is_given {
            &certificate.pem
        } else {
            &authority
        };
        write(&site.path("given.pem"), given, 0o644);
        site.run(&["pool", "create"]).done();
        let server = site.serve_json();
        let address = server.said["rtsps"]
            .as_str()
            .expect("an address")
            .to_owned();
        for volume in ["cam", "other"] {
            site.run(&["volume", "create", volume, "--size", "20MiB"])
                .done();
        }
        let ca = site.path("given.pem").display().to_string();
        let url = format!("rtsps://{address}/cam");
        site.run(&[
            "source", "add", "door", &url, "--volume", "other", "--ca", &ca,
        ])
        .done();
        // There is nothing to be pulled, which only who is let in finds out.
        let word = if is_believed {
            "404"
        } else {
            "not valid for name"
        };
        waits(&site, "door", word);
        server.terminate();
    }
}

/// Recorded packets are kept, whatever happens to the connection.
#[test]
fn bytes_that_are_changed_on_the_way_end_the_recording() {
    let (site, serve, certificate, address) = tls::serving("");
    let mut client = connect(address, &certificate);
    records(&mut client, 800);
    let sent: Vec<Vec<u8>> = (0..5).map(|number| rtp(number, 0, 1, &[3; 900])).collect();
    sent.iter().for_each(|packet| client.packet(0, packet));
    client.ask("GET_PARAMETER", "cam", "", "").is(200);
    // A record of TLS that nobody has encrypted with the right key.
    let forged = [&[23, 3, 3, 0, 64], &[0x5a; 64][..]].concat();
    client.socket.write_all(&forged).expect("it is taken");
    ends(&mut client.socket);
    until("nothing is held", || reservations(&site) == 0);
    let mut player = connect(address, &certificate);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
    assert_eq!(player.packets_on(0, sent.len()), sent);
    serve.terminate();
}

#[test]
fn ffmpeg_and_gstreamer_record_and_play_by_tls() {
    if !have("ffmpeg") || !have("gst-launch-1.0") {
        return;
    }
    let site = Site::new(2);
    with_tls(&site, "users = \"rtsp-users\"\n");
    users(&site, "rtsp-users", &[("anna", "pass")]);
    site.run(&["pool", "create"]).done();
    let (serve, _) = serve_logged(&site);
    let secure = serve
        .ready
        .split("rtsps=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let address = secure.expect("an address").to_owned();
    site.run(&["volume", "create", "cam", "--size", "20MiB"])
        .done();
    let clip = clip(&site);
    let expected = frames(&["-i", &clip]).expect("frames");
    let url = format!("rtsps://anna:pass@{address}/cam");
    // It has no option to check the certificate (5.1).
    let mut command = tool("ffmpeg");
    command.args([
        "-nostdin",
        "-loglevel",
        "error",
        "-re",
        "-i",
        &clip,
        "-c",
        "copy",
        "-f",
        "rtsp",
    ]);
    outcome(command.arg(&url)).done();
    until("the recording is closed", || reservations(&site) == 0);
    assert_eq!(frames(&["-i", &url]), Ok(expected.clone()));

    let launch = |text: String| outcome(tool("gst-launch-1.0").arg("-q").args(text.split(' ')));
    let url = format!("rtsps://{address}/cam");
    let who = "user-id=anna user-pw=pass tls-validation-flags=0";
    let sink = format!("rtspclientsink location={url} protocols=tcp {who}");
    // It may send everything and not end, as in `gstreamer`: the recording counts.
    let mut publisher = tool("gst-launch-1.0");
    let text = format!("filesrc location={clip} ! qtdemux ! h264parse config-interval=-1 ! {sink}");
    publisher.arg("-q").args(text.split(' '));
    let _ = Process::captured(&mut publisher).try_output(std::time::Duration::from_secs(20));
    until("the recording is closed", || reservations(&site) == 0);
    let out = site.path("out").display().to_string();
    let source = format!("rtspsrc location={url} {who}");
    let stream = "video/x-h264,stream-format=byte-stream";
    has_played(&launch(format!(
        "{source} ! rtph264depay ! h264parse ! {stream} ! filesink location={out}"
    )));
    let shown = frames(&["-f", "h264", "-i", &out]).expect("frames");
    assert_eq!(shown, expected);

    // Decrypted bytes are copied, and the log says so.
    let (_, log) = serve.terminate();
    let ended = lines(&log, "a recording ended");
    assert_eq!(ended.len(), 2, "{log}");
    for line in ended {
        let number = |name: &str| logged(line, name);
        let (bytes, copied, packets) = (number("bytes"), number("copied_bytes"), number("packets"));
        assert!(copied + 12 * packets >= bytes, "{line}");
        assert_eq!((number("lost"), number("strangers")), (0, 0), "{line}");
    }
    // So is what is encrypted, with four bytes before each packet.
    let ended = lines(&log, "playing ends");
    assert!(ended.len() >= 2, "{log}");
    for line in ended {
        let (bytes, packets) = (logged(line, "bytes"), logged(line, "packets"));
        let copied = logged(line, "copied_bytes");
        // A packet may have begun to go.
        let all = bytes + 4 * packets;
        assert!(bytes > 0 && (all..all + 65_540).contains(&copied), "{line}");
    }
}
