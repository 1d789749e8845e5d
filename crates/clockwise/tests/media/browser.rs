//! A browser plays recordings by the page that the server has for them.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use testkit::process::Process;
use testkit::rtsp::browser::{Browser, SiteUser};
use testkit::rtsp::{TCP, publisher, rtp, serve, serving, users, with_rtsp};
use testkit::site::{ReadyServer, Site, outcome};
use testkit::skip::{have, tool};
use testkit::until;

/// A port of its own for browsers.
pub(crate) const HTTP: &str = "rate = \"400KB/s\"\n[http]\nlisten = \"0\"";

/// Frames in a second of what is recorded.
const RATE: u32 = 25;

/// A browser that has none for the page's player.
const WITHOUT_MEDIA_SOURCE: &str = "delete window.MediaSource; delete window.ManagedMediaSource";

/// Length of an ended recording, in seconds.
const SECONDS: f64 = 60.0;

/// The text of the page's message, once it begins with this.
pub(crate) fn says(text: &str) -> String {
    format!(
        "new Promise(yes => {{
            const said = document.getElementById('said');
            const look = () => said.textContent.startsWith('{text}') && yes(said.textContent);
            new MutationObserver(look).observe(said, {{ childList: true }});
            look();
        }})"
    )
}

/// A report about the page's video, once a condition holds; an error if it cannot be played.
pub(crate) fn when(condition: &str) -> String {
    format!(
        "new Promise((yes, no) => {{
            const video = document.getElementById('video'), said = document.getElementById('said');
            const look = () => {{
                if (video.error) no(new Error(`${{video.error.code}}: ${{video.error.message}}`));
                else if ({condition}) yes({{
                    at: video.currentTime, length: video.duration, source: video.currentSrc,
                    frames: video.getVideoPlaybackQuality().totalVideoFrames,
                    width: video.videoWidth, height: video.videoHeight, sound: video.webkitAudioDecodedByteCount,
                }});
            }};
            for (const event of ['timeupdate', 'ended', 'seeked', 'error', 'playing', 'progress'])
                video.addEventListener(event, look);
            new MutationObserver(look).observe(said, {{ childList: true }});
            look();
        }})"
    )
}

pub(crate) fn number(of: &Value, name: &str) -> f64 {
    of[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} of {of}"))
}

pub(crate) fn ffmpeg() -> Command {
    let mut command = tool("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]);
    command
}

/// Publishes pictures and sound, to where it is told yet.
pub(crate) fn clip(more: &[&str], seconds: f64) -> Command {
    let mut command = ffmpeg();
    let video = format!("testsrc2=size=320x240:rate={RATE}:duration={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    for input in [&video, &sound] {
        command.args(more).args(["-f", "lavfi", "-i", input]);
    }
    let encoded = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 25 -bf 0 -c:a aac -f rtsp -rtsp_transport tcp";
    command.args(encoded.split(' '));
    command
}

pub(crate) fn http(serve: &ReadyServer) -> SocketAddr {
    let said = serve.said["http"].as_str().and_then(|of| of.parse().ok());
    said.expect("an address")
}

/// Number of ended recordings.
pub(crate) fn ended(site: &Site, volume: &str) -> usize {
    let list = site.json(&["recording", "list", volume]);
    let list = list.as_array().expect("a list");
    list.iter().filter(|of| of["is_recorded"] == false).count()
}

/// Something done with what plays.
fn with_video(what: &str) -> String {
    format!("(video => {{ {what}; }})(document.getElementById('video'))")
}

/// A recording of a minute, which came faster than it is played.
fn of_a_minute(site: &Site, address: SocketAddr) {
    let mut command = clip(&[], SECONDS);
    outcome(command.arg(format!("rtsp://{address}/cam"))).done();
    until("the recording is closed", || ended(site, "cam") == 1);
}

/// Nothing came for nine seconds.
fn plays_over_a_gap(site: &Site, address: SocketAddr, browser: &mut Browser, page: &str) {
    let mut command = clip(&[], 24.0);
    let gap = "between(t,8,17)";
    let (picture, sound) = (
        format!("select='not({gap})'"),
        format!("aselect='not({gap})'"),
    );
    command.args(["-fps_mode", "passthrough", "-vf", &picture, "-af", &sound]);
    outcome(command.arg(format!("rtsp://{address}/cam"))).done();
    until("the recording is closed", || ended(site, "cam") == 2);
    assert_eq!(browser.open(page), Ok(200));
    browser.does(&when("video.currentTime > 0.5"));
    browser.does(&with_video("video.playbackRate = 4"));
    let done = browser.does(&when("video.ended"));
    let frames = number(&done, "frames");
    assert!((340.0..400.0).contains(&frames), "there is no gap: {done}");
    // The gap is not in the list.
    assert!((number(&done, "at") - 15.0).abs() < 0.5, "{done}");
}

/// The page asks for the next list when one is played to its end. The lists are short here.
fn plays_ranges_one_after_another(browser: &mut Browser) {
    browser.does(
        "(whole => { listUrl = (name, from) => `${whole(name, from)}${from === null ? '' : `&until=${from + 8}`}`; \
         play(10); })(listUrl)",
    );
    browser.does(&when(
        "video.currentTime > 0 && video.currentTime < 8 && !video.seeking",
    ));
    browser.does(&with_video("video.playbackRate = 4"));
    // The bar has the time of the recording.
    browser.does(&when("document.getElementById('at').value > 30"));
}

/// Begins, goes to the middle, and on to the end.
fn plays_through(browser: &mut Browser, source: &str) {
    let begun = browser.does(&when("video.currentTime > 0.5"));
    assert!(
        begun["source"]
            .as_str()
            .is_some_and(|of| of.contains(source)),
        "{begun}"
    );
    assert_eq!(
        (&begun["width"], &begun["height"]),
        (&320.into(), &240.into())
    );
    assert!((number(&begun, "length") - SECONDS).abs() < 0.2, "{begun}");
    // The middle has not been fetched yet, or only just.
    let half = format!("video.currentTime = {}", SECONDS / 2.0);
    browser.does(&with_video(&half));
    let middle = browser.does(&when(&format!(
        "!video.seeking && video.currentTime > {}",
        SECONDS / 2.0 + 1.0
    )));
    assert!(number(&middle, "at") < SECONDS / 2.0 + 3.0, "{middle}");
    // At four times the speed, all of it.
    browser.does(&with_video("video.playbackRate = 4"));
    let before = number(&browser.does(&when("true")), "frames");
    browser.does(&with_video("video.currentTime = 0"));
    browser.does(&when("!video.seeking && video.currentTime < 5"));
    let done = browser.does(&when("video.ended"));
    assert!((number(&done, "at") - SECONDS).abs() < 0.2, "{done}");
    let frames = number(&done, "frames") - before;
    let all = SECONDS * f64::from(RATE);
    assert!(frames >= all * 0.98, "{frames} of {all} frames: {done}");
    assert!(number(&done, "sound") > 0.0, "{done}");
}

#[test]
fn a_browser_plays_a_recording_to_its_end_and_from_its_middle() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    of_a_minute(&site, address);
    let page = format!("http://{}/media/cam/1/", http(&serve));
    let mut browser = Browser::start(site.folder.path(), None);
    assert_eq!(
        browser.open(&format!("http://{}/media/cam/9/", http(&serve))),
        Ok(404)
    );
    assert_eq!(browser.open(&page), Ok(200));
    plays_through(&mut browser, "blob:");
    plays_ranges_one_after_another(&mut browser);
    plays_over_a_gap(&site, address, &mut browser, &page.replace("/1/", "/2/"));
    // One that brings a player of HLS of its own, and nothing for the page's.
    browser.at_each_page(WITHOUT_MEDIA_SOURCE);
    assert_eq!(browser.open(&page), Ok(200));
    plays_through(&mut browser, "index.m3u8");
    // One that no file can be made of says so.
    let mut client = publisher(address, TCP);
    client.packet(0, &rtp(0, 0, 1, &[1; 1_000]));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || ended(&site, "cam") == 3);
    assert_eq!(browser.open(&page.replace("/1/", "/3/")), Ok(200));
    browser.does(&says(
        "Nothing of this recording can be played by a browser.",
    ));
    browser.close();
    serve.terminate();
}

/// The volume has room for some twenty seconds: the oldest part is overwritten while it is played.
#[test]
fn a_browser_plays_a_recording_that_goes_on_until_that_ends() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    site.run(&["volume", "create", "ring", "--size", "2MiB"])
        .done();
    // A browser plays the first minute of it at most; the rest is time to start, and to go back.
    let seconds = 60.0;
    let mut command = clip(&["-re"], seconds);
    let mut publisher = Process::spawn(command.arg(format!("rtsp://{address}/ring")));
    let mut browser = Browser::start(site.folder.path(), None);
    let page = format!("http://{}/media/ring/1/", http(&serve));
    until("something is recorded", || browser.open(&page) == Ok(200));
    let begun = browser.does(&when("video.currentTime > 0.2 && !video.paused"));
    assert_eq!(
        begun["length"],
        Value::Null,
        "it has no length yet: {begun}"
    );
    // More than there was when it began, and then from where the recording is by then.
    let further = format!("video.currentTime > {}", number(&begun, "at") + 20.0);
    let later = browser.does(&when(&further));
    let frames = number(&later, "frames") - number(&begun, "frames");
    assert!(frames > 19.0 * f64::from(RATE), "{begun} {later}");
    assert_eq!(ended(&site, "ring"), 0, "it goes on");
    // By the bar, back to the oldest part, and on from there to the end of the recording.
    let back = "(at => { at.value = at.min; at.dispatchEvent(new Event('change')); return Number(at.min); })\
                (document.getElementById('at'))";
    let oldest = browser.does(back).as_f64().expect("a time");
    assert!(oldest > 1.0, "nothing has been overwritten: {oldest}");
    browser.does(&when(
        "video.currentTime < 10 && video.currentTime > 0.2 && !video.paused && !video.seeking",
    ));
    browser.does(&with_video("video.playbackRate = 2"));
    // The page skips segments that are overwritten meanwhile.
    let bar = "document.getElementById('at')";
    let value = |browser: &mut Browser, name: &str| {
        let value = browser.does(&format!("Number({bar}.{name})"));
        value.as_f64().expect("a time")
    };
    until("all is played", || {
        value(&mut browser, "value") > seconds - 2.0
    });
    let ends = value(&mut browser, "max");
    assert!((ends - seconds).abs() < 0.5, "{ends}");
    assert_eq!(publisher.wait().code(), Some(0));
    browser.close();
    serve.terminate();
}

/// A user for a server that asks for passwords.
const ANNA: SiteUser<'_> = SiteUser {
    user: "anna",
    password: "of-anna",
};

/// A server that asks who somebody is, with a recording, and where browsers reach it; `more` is of `[http]`.
fn with_users(more: &str) -> (Site, ReadyServer, SocketAddr) {
    let site = Site::new(2);
    with_rtsp(&site, &format!("users = \"rtsp-users\"\n{HTTP}\n{more}"));
    users(&site, "rtsp-users", &[(ANNA.user, ANNA.password)]);
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve(&site);
    site.run(&["volume", "create", "cam", "--size", "20MiB"])
        .done();
    outcome(clip(&[], 6.0).arg(format!("rtsp://anna:of-anna@{address}/cam"))).done();
    until("the recording is closed", || ended(&site, "cam") == 1);
    let browsers = http(&serve);
    (site, serve, browsers)
}

#[test]
fn a_browser_is_asked_who_it_is_and_plays_then() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    let (site, serve, browsers) = with_users("");
    let path = "media/cam/1/";
    let plays = |browser: &mut Browser, source: &str| {
        let done = browser.does(&when("video.ended"));
        assert!(
            done["source"]
                .as_str()
                .is_some_and(|of| of.contains(source)),
            "{done}"
        );
        assert!(number(&done, "at") > 5.5, "{done}");
    };
    // By what its user types where it is asked.
    let mut browser = Browser::start(site.folder.path(), Some(ANNA));
    assert_eq!(browser.open(&format!("http://{browsers}/{path}")), Ok(200));
    assert!(browser.challenges > 0);
    plays(&mut browser, "blob:");
    browser.close();
    // By the address alone, and with a player of its own.
    let mut browser = Browser::start(site.folder.path(), None);
    let unknown = browser.open(&format!("http://{browsers}/{path}"));
    assert_eq!(unknown, Err("net::ERR_INVALID_AUTH_CREDENTIALS".to_owned()));
    let known = format!("http://anna:of-anna@{browsers}/{path}");
    assert_eq!(browser.open(&known), Ok(200));
    plays(&mut browser, "blob:");
    browser.at_each_page(WITHOUT_MEDIA_SOURCE);
    assert_eq!(browser.open(&known), Ok(200));
    plays(&mut browser, "index.m3u8");
    browser.close();
    serve.terminate();
}

/// A page of another site gets at recordings where its site is named, with what its user logs in with, and
/// others do not.
#[test]
fn a_page_of_another_site_shows_what_it_may() {
    if !have("ffmpeg") || !have("chromium") {
        return;
    }
    // Another site is whatever answers, here with a page that says that there is none, and leaves it to
    // scripts what they fetch.
    let portal = Site::new(1);
    with_rtsp(&portal, HTTP);
    portal.run(&["pool", "create"]).done();
    let (portal_serve, _) = serve(&portal);
    let portal = http(&portal_serve);
    let (site, serve, browsers) = with_users(&format!("allow_origin = [\"http://{portal}\"]"));
    // A part is what the browser asks for beforehand whether it may.
    let fetches = |path: &str| {
        format!(
            "fetch('http://{browsers}/media/cam/1/{path}', {{ credentials: 'include', headers: {{ Range: 'bytes=0-99' }} }})
                .then(async got => `${{got.status}} ${{got.headers.get('content-range')}} ${{(await got.text()).slice(0, 7)}}`)
                .catch(error => error.name)"
        )
    };
    let mut browser = Browser::start(site.folder.path(), Some(ANNA));
    let page = format!("http://{portal}/page");
    assert_eq!(browser.open(&page), Ok(404));
    assert_eq!(browser.does(&fetches("index.m3u8")), "200 null #EXTM3U");
    assert!(browser.challenges > 0);
    let part = browser.does(&fetches("recording.mp4"));
    let part = part.as_str().unwrap_or_default();
    assert!(part.starts_with("206 bytes 0-99/"), "{part}");
    // The same page under another name belongs to another site.
    let other = format!("http://localhost:{}/page", portal.port());
    assert_eq!(browser.open(&other), Ok(404));
    assert_eq!(browser.does(&fetches("index.m3u8")), "TypeError");
    browser.close();
    serve.terminate();
    portal_serve.terminate();
}
