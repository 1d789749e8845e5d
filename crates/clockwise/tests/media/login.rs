//! Rights to record and play over RTSP: by hand, with ffmpeg and with GStreamer.

use http_auth::PasswordClient;
use testkit::process::Process;
use testkit::rtsp::clip::{clip, frames};
use testkit::rtsp::login::{DigestUser, challenge};
use testkit::rtsp::peers::has_played;
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, reservations, rtp, sdp, serve, serve_logged, users, with_rtsp,
};
use testkit::site::{Site, outcome};
use testkit::skip::{have, tool};
use testkit::until;

const USERS: &str = "users = \"rtsp-users\"\n";

/// `anna` may do everything, `paul` may play `cam`.
const PERMITS: &str = "users = \"rtsp-users\"\n\
    [[rtsp.permit]]\nuser = \"anna\"\nmay = [\"play\", \"record\"]\n\
    [[rtsp.permit]]\nuser = \"paul\"\nmay = [\"play\"]\nvolumes = [\"cam\"]\n";

/// A pool with the volumes `cam` and `other` for recordings, for users.
fn site(more: &str) -> Site {
    let site = Site::new(2);
    with_rtsp(&site, more);
    users(
        &site,
        "rtsp-users",
        &[("anna", "secret of anna"), ("paul", "of-paul")],
    );
    site.run(&["pool", "create"]).done();
    site
}

fn volumes(site: &Site) {
    for volume in ["cam", "other"] {
        site.run(&["volume", "create", volume, "--size", "20MiB"])
            .done();
    }
}

#[test]
fn each_request_is_by_who_may() {
    let site = site(PERMITS);
    let (serve, address) = serve(&site);
    volumes(&site);
    let mut anna = DigestUser::connect(address, "anna", "secret of anna");
    anna.client.ask("OPTIONS", "cam", "", "").is(200);
    anna.records();
    for number in 0..20 {
        anna.client
            .packet(0, &rtp(number, 100 * u32::from(number), 1, &[7; 500]));
    }
    // Each request while it records, too; packets go on whatever is refused.
    anna.client.ask("GET_PARAMETER", "cam", "", "").is(401);
    anna.ask("GET_PARAMETER", "cam", "", "").is(200);
    anna.client.ask("TEARDOWN", "cam", "", "").is(401);
    anna.client.packet(0, &rtp(20, 2_000, 1, &[7; 500]));
    anna.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    let mut paul = DigestUser::connect(address, "paul", "of-paul");
    let said = paul.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(403);
    assert!(
        said.body
            .contains("\"paul\" may not record in volume \"cam\""),
        "{said:?}"
    );
    // Nothing is told of what is not his either.
    for volume in ["other", "nowhere"] {
        paul.ask("DESCRIBE", volume, "", "").is(403);
        paul.ask("SETUP", &format!("{volume}/track0"), TCP, "")
            .is(403);
    }
    paul.ask("DESCRIBE", "cam", "", "").is(200);
    // With the URI of the presentation, as clients of live555 (VLC) log in.
    let of_all = paul.authorization("SETUP", "cam/") + TCP;
    paul.client.ask("SETUP", "cam/track0", &of_all, "").is(200);
    paul.ask("PLAY", "cam", "", "").is(200);
    assert_eq!(paul.client.packets_on(0, 5).len(), 5);
    paul.client.ask("PAUSE", "cam", "", "").is(401);
    paul.ask("PAUSE", "cam", "", "").is(200);
    paul.client.ask("PLAY", "cam", "", "").is(401);
    assert_eq!(reservations(&site), 1, "it is still his");
    paul.ask("PLAY", "cam", "", "").is(200);
    assert_eq!(paul.client.packets_on(0, 21).len(), 21);
    paul.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    serve.terminate();
}

#[test]
fn a_login_is_of_no_use_to_others() {
    let site = site(USERS);
    let (serve, address) = serve(&site);
    volumes(&site);
    let mut anna = DigestUser::connect(address, "anna", "secret of anna");
    // Credentials overheard on one connection are sent on another one.
    let headers = anna.authorization("ANNOUNCE", "cam");
    let mut other = Client::connect(address);
    challenge(&mut other);
    let said = other
        .ask("ANNOUNCE", "cam", &(headers.clone() + SDP_TYPE), &sdp(800))
        .is(401);
    let again = said.header("WWW-Authenticate").expect("a challenge");
    assert!(again.contains("\", stale=true, "), "{again}");
    // They are right, and good once.
    let with_type = headers + SDP_TYPE;
    anna.client
        .ask("ANNOUNCE", "cam", &with_type, &sdp(800))
        .is(200);
    let said = anna
        .client
        .ask("ANNOUNCE", "cam", &with_type, &sdp(800))
        .is(401);
    let again = said.header("WWW-Authenticate").expect("a challenge");
    assert!(again.contains("\", stale=true, "), "{again}");
    // With the new nonce it goes on.
    anna.login = PasswordClient::try_from(again).expect("a challenge");
    anna.ask("SETUP", "cam/one", TCP, "").is(200);
    // A connection is one user's.
    anna.user = "paul";
    anna.password = "of-paul";
    let said = anna.ask("TEARDOWN", "cam", "", "").is(401);
    assert!(said.body.contains("another user"), "{said:?}");
    assert_eq!(reservations(&site), 1);
    drop(anna);
    until("the reservation is given back", || reservations(&site) == 0);
    serve.terminate();
}

#[test]
fn password_guessing_is_cut_off_and_the_log_has_no_password() {
    let site = site(USERS);
    let (serve, address) = serve_logged(&site);
    volumes(&site);
    for is_by_name in [true, false] {
        let mut client = Client::connect(address);
        challenge(&mut client);
        client
            .ask(
                "DESCRIBE",
                "cam",
                "Authorization: Basic YW5uYTpzZWNyZXQ=\r\n",
                "",
            )
            .is(401);
        if is_by_name {
            let login = PasswordClient::try_from(challenge(&mut client).as_str());
            let mut anna = DigestUser {
                login: login.expect("a challenge"),
                client,
                address,
                user: "anna",
                password: "hunter two",
            };
            let said = anna.ask("DESCRIBE", "cam", "", "").is(401);
            assert!(
                said.body.contains("unknown user or wrong password"),
                "{said:?}"
            );
            assert!(!said.head.contains("stale"), "{said:?}");
            client = anna.client;
        }
        // Others are served while it waits, and after it is gone.
        let text =
            "DESCRIBE rtsp://h/cam RTSP/1.0\r\nCSeq: 7\r\nAuthorization: Digest x=\"\r\n\r\n";
        client.send(text.repeat(5).as_bytes());
        let mut anna = DigestUser::connect(address, "anna", "secret of anna");
        anna.ask("DESCRIBE", "cam", "", "").is(404);
        while let Some(said) = client.answer() {
            assert_eq!(said.status, 401, "{said:?}");
        }
    }
    let (status, log) = serve.terminate();
    assert_eq!(status, Some(0));
    for word in [
        "a login is refused",
        "peer=127.0.0.1:",
        "user=\"anna\"",
        "too many failed logins",
    ] {
        assert!(log.contains(word), "no {word:?} in {log}");
    }
    for word in ["hunter", "secret", "c2VjcmV0", "Some("] {
        assert!(!log.contains(word), "{word:?} in {log}");
    }
}

#[test]
fn a_file_of_users_that_others_may_read_keeps_the_server_from_starting() {
    use std::os::unix::fs::PermissionsExt;
    let site = site(USERS);
    let path = site.path("rtsp-users");
    let mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("it is ours");
    };
    mode(0o644);
    site.run(&["serve"])
        .fails(1, &["rtsp-users", "0644", "chmod 600"]);
    mode(0o600);
    std::fs::write(&path, "anna:clockwise:c0ffee\n").expect("it can be written");
    let outcome = site.run(&["serve"]);
    outcome.fails(1, &["rtsp-users, line 1", "MD5", "htdigest"]);
    assert!(!outcome.err.contains("c0ffee"), "{outcome:?}");
    std::fs::remove_file(&path).expect("it is there");
    site.run(&["serve"])
        .fails(1, &["rtsp-users", "No such file", "htdigest"]);
}

#[test]
fn added_and_removed_users_count_at_the_next_login() {
    let site = site(USERS);
    let (serve, address) = serve(&site);
    volumes(&site);
    let asks = |user, password| {
        let mut known = DigestUser::connect(address, user, password);
        known.ask("DESCRIBE", "cam", "", "").status
    };
    assert_eq!(
        [asks("anna", "secret of anna"), asks("eve", "eve's")],
        [404, 401]
    );
    let mut anna = DigestUser::connect(address, "anna", "secret of anna");
    anna.records();
    users(&site, "rtsp-users", &[("eve", "eve's")]);
    assert_eq!(
        [asks("anna", "secret of anna"), asks("eve", "eve's")],
        [401, 404]
    );
    // A recording publisher goes on.
    anna.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

#[test]
fn volumes_open_to_everybody_or_nobody_are_warned_of() {
    let of_eve = format!("{USERS}[[rtsp.permit]]\nuser = \"eve\"\nmay = [\"play\"]\n");
    for (more, is_open) in [("", true), (of_eve.as_str(), false)] {
        let site = site(more);
        let text = testkit::site::read_text(&site.config());
        let text = text.replace("listen = \"0\"", "listen = \"0.0.0.0:0\"");
        let text = text + "[http]\nlisten = \"0.0.0.0:0\"\n";
        std::fs::write(site.config(), text).expect("it can be written");
        let (serve, _) = serve_logged(&site);
        let (_, log) = serve.terminate();
        let told = |words| log.matches(words).count();
        assert_eq!(
            told("there are no users"),
            2 * usize::from(is_open),
            "{log}"
        );
        assert_eq!(told(" address=0.0.0.0:"), 2 * usize::from(is_open), "{log}");
        let of_nobody = "not in the users file user=\"eve\"";
        assert_eq!(told(of_nobody), usize::from(!is_open), "{log}");
    }
    // On this host alone it is nobody else's.
    let (serve, _) = serve_logged(&site(""));
    let (_, log) = serve.terminate();
    assert!(!log.contains("there are no users"), "{log}");
}

fn ffmpeg_publishes(clip: &str, transport: &str, url: &str) -> testkit::site::Outcome {
    let mut command = tool("ffmpeg");
    command.args([
        "-nostdin",
        "-loglevel",
        "error",
        "-re",
        "-i",
        clip,
        "-c",
        "copy",
    ]);
    outcome(command.args(["-f", "rtsp", "-rtsp_transport", transport, url]))
}

#[test]
fn ffmpeg_logs_in() {
    if !have("ffmpeg") {
        return;
    }
    let site = site(PERMITS);
    let (serve, address) = serve(&site);
    volumes(&site);
    let clip = clip(&site);
    let expected = frames(&["-i", &clip]).expect("frames");
    for transport in ["tcp", "udp"] {
        let url = |who: &str| format!("rtsp://{who}{address}/cam");
        for (who, why) in [
            ("paul:of-paul@", "403"),
            ("anna:wrong@", "401"),
            ("", "401"),
        ] {
            let refused = ffmpeg_publishes(&clip, transport, &url(who));
            refused.fails(1, &[why]);
            assert_eq!(reservations(&site), 0);
        }
        ffmpeg_publishes(&clip, transport, &url("anna:secret%20of%20anna@")).done();
        until("the reservation is given back", || reservations(&site) == 0);
        let plays = |who: &str| frames(&["-rtsp_transport", transport, "-i", &url(who)]);
        assert_eq!(plays("paul:of-paul@"), Ok(expected.clone()));
        assert!(plays("paul:wrong@").is_err_and(|error| error.contains("401")));
        assert!(plays("").is_err_and(|error| error.contains("401")));
    }
    serve.terminate();
}

#[test]
fn gstreamer_logs_in() {
    if !have("ffmpeg") || !have("gst-launch-1.0") {
        return;
    }
    let site = site(PERMITS);
    let (serve, address) = serve(&site);
    volumes(&site);
    let clip = clip(&site);
    let expected = frames(&["-i", &clip]).expect("frames");
    let launch = |text: String| outcome(tool("gst-launch-1.0").arg("-q").args(text.split(' ')));
    let url = format!("rtsp://{address}/cam");
    let publish = |user: &str, password: &str| {
        launch(format!(
            "filesrc location={clip} ! qtdemux ! h264parse config-interval=-1 ! rtspclientsink \
             location={url} protocols=tcp user-id={user} user-pw={password}"
        ))
    };
    publish("paul", "of-paul").fails(1, &["Forbidden"]);
    users(
        &site,
        "rtsp-users",
        &[("anna", "of-anna"), ("paul", "of-paul")],
    );
    // It may send everything and not end, as in `gstreamer`: the recording counts.
    let mut publisher = tool("gst-launch-1.0");
    publisher.arg("-q").args(
        format!(
            "filesrc location={clip} ! qtdemux ! h264parse config-interval=-1 ! rtspclientsink \
             location={url} protocols=tcp user-id=anna user-pw=of-anna"
        )
        .split(' '),
    );
    let _ = Process::captured(&mut publisher).try_output(std::time::Duration::from_secs(20));
    until("the reservation is given back", || reservations(&site) == 0);
    let out = site.path("out").display().to_string();
    let play = |password: &str| {
        launch(format!(
            "rtspsrc location={url} protocols=tcp user-id=paul user-pw={password} ! rtph264depay ! h264parse \
             ! video/x-h264,stream-format=byte-stream ! filesink location={out}"
        ))
    };
    play("wrong").fails(1, &["Unauthorized"]);
    has_played(&play("of-paul"));
    let shown = frames(&["-f", "h264", "-i", &out]).expect("frames");
    assert_eq!(shown, expected);
    serve.terminate();
}

/// A missing file of users is no obstacle if neither RTSP nor HTTP is served.
#[test]
fn users_are_not_looked_for_where_nobody_is_asked() {
    let site = Site::new(1);
    let text = testkit::site::read_text(&site.config()) + "[rtsp]\nusers = \"nowhere\"\n";
    std::fs::write(site.config(), &text).unwrap();
    site.run(&["pool", "create"]).done();
    site.serve_json().terminate();
    std::fs::write(site.config(), text + "[http]\nlisten = \"0\"\n").unwrap();
    site.run(&["serve"]).fails(1, &["nowhere"]);
}
