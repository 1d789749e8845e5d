//! Recordings over HTTP: files in parts, segments for players, and who gets them.

use testkit::rtsp::clip::ENCODED;
use testkit::rtsp::files::{clip, closed, export, is_heard, record, sums};
use testkit::rtsp::http::{HttpConnection, ask, get, header, http};
use testkit::rtsp::peers::{HEARD, SEEN, ffmpeg};
use testkit::rtsp::{serve, serving, users, with_rtsp};
use testkit::site::{Site, outcome};
use testkit::skip::have;

/// A port of its own for browsers.
const HTTP: &str = "rate = \"400KB/s\"\n[http]\nlisten = \"0\"";

#[test]
fn browsers_get_a_file_in_parts_and_players_its_segments() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    let encoded = [&ENCODED[..], &["-c:a", "aac"]].concat();
    let clip = clip(&site, "a.mp4", 13, &encoded);
    let number = record(&site, address, &clip, "tcp");
    let path = format!("/media/cam/{number}");
    let file = format!("{path}/recording.mp4");
    let (status, head, whole) = get(browsers, &file, "");
    assert_eq!(
        (status, header(&head, "content-type")),
        (200, Some("video/mp4"))
    );
    assert_eq!(header(&head, "accept-ranges"), Some("bytes"));
    assert_eq!(
        header(&head, "content-length"),
        Some(&*whole.len().to_string())
    );
    let exported = export(&site, &number, "out.mp4", &[]);
    assert!(
        std::fs::read(&exported).unwrap() == whole,
        "a file is made in two ways"
    );
    // Any part, in any order, also from the middle of a fragment to the middle of another.
    let step = whole.len() / 7 + 1;
    for from in (0..whole.len()).step_by(step).rev() {
        let to = (from + step).min(whole.len());
        let range = format!("Range: bytes={from}-{}\r\n", to - 1);
        let (status, head, part) = get(browsers, &file, &range);
        assert_eq!(status, 206);
        let told = format!("bytes {from}-{}/{}", to - 1, whole.len());
        assert_eq!(header(&head, "content-range"), Some(&*told));
        assert!(part == whole[from..to], "{told}");
    }
    let (status, _, last) = get(browsers, &file, "Range: bytes=-5\r\n");
    assert!(status == 206 && last == whole[whole.len() - 5..]);
    // A client that has all of it gets 416.
    let (status, head, _) = get(browsers, &file, "Range: bytes=999999999-\r\n");
    let told = format!("bytes */{}", whole.len());
    assert_eq!(
        (status, header(&head, "content-range")),
        (416, Some(&*told))
    );
    let (status, head, body) = ask(browsers, "HEAD", &file, "");
    assert_eq!((status, body.len()), (200, 0));
    assert_eq!(
        header(&head, "content-length"),
        Some(&*whole.len().to_string())
    );

    // A player makes the published frames of the segments.
    let playlist = format!("http://{browsers}{path}/index.m3u8");
    assert_eq!(sums(&playlist, &SEEN), sums(&clip, &SEEN));
    is_heard(&sums(&playlist, &HEARD), &sums(&clip, &HEARD));
    let (_, _, master) = get(browsers, &format!("{path}/index.m3u8"), "");
    let master = String::from_utf8_lossy(&master).into_owned();
    assert!(
        master.contains("avc1.") && master.contains("mp4a.40.2"),
        "{master}"
    );
    assert!(master.contains("RESOLUTION=320x240"), "{master}");
    let (_, _, media) = get(browsers, &format!("{path}/media.m3u8"), "");
    let media = String::from_utf8_lossy(&media).into_owned();
    let segments: Vec<&str> = media
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(
        (3..=5).contains(&segments.len()) && media.ends_with("#EXT-X-ENDLIST\n"),
        "{media}"
    );
    let second = format!("{path}/{}", segments[1]);
    let again = [get(browsers, &second, "").2, get(browsers, &second, "").2];
    assert!(again[0] == again[1] && !again[0].is_empty());
    let (status, head, page) = get(browsers, &format!("{path}/"), "");
    assert!(status == 200 && String::from_utf8_lossy(&page).contains("cam, recording 1"));
    // All that a page needs is here, and nothing in it runs by itself.
    let policy = header(&head, "content-security-policy").unwrap_or_default();
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
        "{head}"
    );
    for file in ["hls.light.min.js", "player.js", "style.css"] {
        assert!(String::from_utf8_lossy(&page).contains(&format!("\"/player/{file}\"")));
        assert_eq!(
            get(browsers, &format!("/player/{file}"), "").0,
            200,
            "{file}"
        );
    }
    assert_eq!(get(browsers, "/player/other", "").0, 404);
    let (_, _, list) = get(browsers, "/media/", "");
    assert!(String::from_utf8_lossy(&list).contains("href=\"cam/1/\""));

    // Bad input.
    for (path, status) in [
        ("/media/none/1/recording.mp4", 404),
        ("/media/cam/99/recording.mp4", 404),
        ("/media/cam/x/recording.mp4", 400),
        ("/media/cam/1/recording.mp4?from_ns=5&to_ns=5", 400),
        ("/media/cam/1/recording.mp4?from=5", 400),
        ("/media/cam/1/recording.mp4?from_ns=3600000000000", 409),
        ("/media/cam/1/track7", 404),
        ("/media/cam/1/trackx", 404),
        ("/media/cam/1/recording.avi", 404),
        ("/media/cam/1/segments/0.0-0.1.m4s", 404),
        ("/media/cam/1/segments/nonsense", 404),
        ("/media/cam/1/media.m3u8?from=x", 400),
        ("/media/cam/1/media.m3u8?until=5", 400),
        ("/media/cam/1/index.m3u8?tracks=7", 404),
        ("/media/none/live/", 404),
        ("/media/none/live/media.m3u8", 404),
        ("/media/cam/live/media.m3u8?from=5", 400),
        ("/media/cam/1/segments/0.0-99999999.0.m4s", 404),
        // Calls that change something are not served here.
        ("/v1/volumes", 404),
    ] {
        let (got, _, body) = get(browsers, path, "");
        assert_eq!(got, status, "{path}: {}", String::from_utf8_lossy(&body));
    }
    assert_eq!(
        ask(browsers, "DELETE", "/media/cam/1/recording.mp4", "").0,
        405
    );
    serve.terminate();
}

/// If RTSP asks for passwords, so does the port of browsers.
#[test]
fn browsers_are_asked_who_they_are() {
    if !have("ffmpeg") {
        return;
    }
    let site = Site::new(2);
    let more = "users = \"rtsp-users\"\nrate = \"400KB/s\"\n[[rtsp.permit]]\nuser = \"anna\"\nmay = [\"play\", \"record\"]\n\
        [[rtsp.permit]]\nuser = \"paul\"\nmay = [\"play\"]\nvolumes = [\"other\"]\n[http]\nlisten = \"0\"";
    with_rtsp(&site, more);
    users(
        &site,
        "rtsp-users",
        &[("anna", "of-anna"), ("paul", "of-paul")],
    );
    site.run(&["pool", "create"]).done();
    let (serving, address) = serve(&site);
    site.run(&["volume", "create", "cam", "--size", "20MiB"])
        .done();
    let encoded = [&ENCODED[..], &["-an"]].concat();
    let clip = clip(&site, "a.mp4", 3, &encoded);
    let url = format!("rtsp://anna:of-anna@{address}/cam");
    let to = ["-c", "copy", "-f", "rtsp", "-rtsp_transport", "tcp", &url];
    outcome(ffmpeg().args(["-re", "-i", &clip]).args(to)).done();
    assert_eq!(closed(&site), "1");
    let browsers = http(&serving);
    let file = "/media/cam/1/recording.mp4";
    let (status, head, body) = get(browsers, file, "");
    assert_eq!(status, 401, "{}", String::from_utf8_lossy(&body));
    let challenge = header(&head, "www-authenticate").expect("a challenge");
    assert!(
        challenge.starts_with("digest realm=\"clockwise\""),
        "{challenge}"
    );
    // On one connection, as a nonce is of one.
    let mut keeps = HttpConnection::connect(browsers);
    for (user, password, path, status) in [
        ("anna", "wrong", file, 401),
        ("nobody", "of-anna", file, 401),
        ("paul", "of-paul", file, 403),
    ] {
        let mut keeps = HttpConnection::connect(browsers);
        assert_eq!(keeps.ask(path, Some((user, password))).0, status, "{user}");
    }
    let (status, all) = keeps.ask(file, Some(("anna", "of-anna")));
    assert!(status == 200 && !all.is_empty());
    assert_eq!(keeps.ask(file, None).0, 401);
    let (status, list) = keeps.ask("/media/", Some(("anna", "of-anna")));
    assert!(status == 200 && String::from_utf8_lossy(&list).contains("cam/1/"));
    let mut paul = HttpConnection::connect(browsers);
    let (status, list) = paul.ask("/media/", Some(("paul", "of-paul")));
    assert!(status == 200 && !String::from_utf8_lossy(&list).contains("cam/1/"));
    // The player is challenged and answers by itself, on as many connections as it likes.
    let playlist = format!("http://anna:of-anna@{browsers}/media/cam/1/index.m3u8");
    assert_eq!(sums(&playlist, &SEEN), sums(&clip, &SEEN));
    let guessed = format!("http://anna:guess@{browsers}/media/cam/1/index.m3u8");
    assert_ne!(
        outcome(ffmpeg().args(["-i", &guessed, "-f", "null", "-"])).code,
        0
    );
    // A user of the control socket may do everything.
    export(&site, "1", "out.mp4", &[]);
    serving.terminate();
}

/// Browsers learn which pages may show recordings before they are asked for a password.
#[test]
fn other_sites_may_show_recordings_where_they_are_named() {
    let asks_for = |browsers, method: &str, path: &str, origin: &str| {
        let headers = format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range\r\n"
        );
        ask(browsers, method, path, &headers)
    };
    let asks = |browsers, method, origin| asks_for(browsers, method, "/media/", origin);
    let allowed = |head: &str| {
        ["origin", "credentials"].map(|of| {
            let name = format!("access-control-allow-{of}");
            header(head, &name).map(str::to_owned)
        })
    };
    let some = |of: &str| Some(of.to_owned());
    let portal = "https://portal.example";
    for (origins, of_portal, of_other) in [
        ("", [None, None], [None, None]),
        (
            "allow_origin = [\"https://portal.example\", \"http://[::1]:8080\"]",
            [some(portal), some("true")],
            [None, some("true")],
        ),
        (
            "allow_origin = [\"*\"]",
            [some(portal), None],
            [some("https://other.example"), None],
        ),
    ] {
        let site = Site::new(1);
        let text = testkit::site::read_text(&site.config());
        let more = format!("[rtsp]\nusers = \"rtsp-users\"\n[http]\nlisten = \"0\"\n{origins}\n");
        std::fs::write(site.config(), text + &more).expect("it can be written");
        site.run(&["pool", "create"]).done();
        users(&site, "rtsp-users", &[("anna", "of-anna")]);
        let serve = site.serve_json();
        let browsers = http(&serve);
        let (status, head, _) = asks(browsers, "OPTIONS", portal);
        // Without a word of others nobody is let through to what knows no OPTIONS.
        let asked = if origins.is_empty() { 401 } else { 200 };
        assert_eq!(
            (status, allowed(&head)),
            (asked, of_portal.clone()),
            "{head}"
        );
        let (_, head, _) = asks(browsers, "OPTIONS", "https://other.example");
        assert_eq!(allowed(&head), of_other, "{head}");
        // A client that may see the answer is asked for a password there.
        let (status, head, _) = asks(browsers, "GET", portal);
        assert_eq!((status, allowed(&head)), (401, of_portal), "{head}");
        let seen = header(&head, "access-control-expose-headers").unwrap_or_default();
        assert_eq!(
            seen.contains("content-range"),
            !origins.is_empty(),
            "{seen}"
        );
        // The rest is for nobody else.
        let (_, head, _) = asks_for(browsers, "GET", "/v1/status", portal);
        assert_eq!(allowed(&head)[0], None, "{head}");
        serve.terminate();
    }
}

/// Also where nobody comes by RTSP.
#[test]
fn browsers_are_asked_who_they_are_without_rtsp() {
    let site = Site::new(1);
    let text = testkit::site::read_text(&site.config());
    let more = "[rtsp]\nusers = \"rtsp-users\"\n[http]\nlisten = \"0\"\n";
    std::fs::write(site.config(), text + more).expect("it can be written");
    site.run(&["pool", "create"]).done();
    let missing = site.run(&["serve"]);
    missing.fails(1, &["rtsp-users", "htdigest"]);
    users(&site, "rtsp-users", &[("anna", "of-anna")]);
    let serve = site.serve_json();
    let browsers = http(&serve);
    assert_eq!(get(browsers, "/media/", "").0, 401);
    let mut anna = HttpConnection::connect(browsers);
    assert_eq!(anna.ask("/media/", Some(("anna", "wrong"))).0, 401);
    assert_eq!(anna.ask("/media/", Some(("anna", "of-anna"))).0, 200);
    serve.terminate();
}
