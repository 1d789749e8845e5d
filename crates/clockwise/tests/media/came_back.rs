//! Recordings that are played together go on with the next recording of a volume whose publisher has come
//! back.

use testkit::rtsp::clip::frames;
use testkit::rtsp::peers::has_played;
use testkit::rtsp::together::{
    Camera, FRAMES_PER_SECOND, GOP, ReceivedTrack, SECOND_NS, are_over, begun, come_back, comes,
    comes_on, frames_on, goes_on_in_time, newest, player, site,
};
use testkit::rtsp::{Client, SECOND, reservations};
use testkit::site::outcome;
use testkit::skip::{have, tool};
use testkit::until;

#[test]
fn returned_camera_is_played_by_key_frames_either_way() {
    // The first ones are more than one key frame, all of which are earlier in their recording than the third
    // ones end.
    let (_site, serve, address) = come_back(60);
    let mut client = player(address);
    for scale in ["2", "-2"] {
        let range = if scale == "2" { "0-" } else { "15.9-0" };
        let headers = format!("Range: npt={range}\r\nScale: {scale}\r\nSpeed: 4\r\n");
        client.ask("PLAY", "cam+other", &headers, "").is(200);
        client.packets.clear();
        let (tracks, _) = comes(&mut client, usize::MAX);
        refused_requests_do_not_stop_key_frames(&mut client, scale, &headers, &tracks);
        let [_, other] = tracks;
        let mut keys: Vec<u32> = other.frames.iter().map(|(frame, _)| *frame).collect();
        assert!(keys.iter().all(|key| key.is_multiple_of(GOP)), "{keys:?}");
        if scale == "-2" {
            keys.reverse();
        }
        let (first, last) = (keys[0], keys[keys.len() - 1]);
        assert!(first < 60 && last >= 1_000, "{scale}: {keys:?}");
        assert!(
            keys.iter()
                .all(|key| *key < 60 || (1_000..1_100).contains(key))
        );
        assert!(keys.is_sorted(), "{scale}: {keys:?}");
        let times: Vec<i128> = (0..keys.len()).map(|number| other.at_ns(number)).collect();
        assert!(times.is_sorted(), "{scale}: {times:?}");
        let apart = (times[times.len() - 1] - times[0]) / 1_000_000;
        assert!(apart > 500, "{scale}: {apart} ms");
    }
    serve.terminate();
}

/// Checks that key frames come in order up to the end if PLAY requests are refused meanwhile: for times at which nothing was
/// recorded, which is known only after a read. Some may come twice, or be left out.
#[track_caller]
fn refused_requests_do_not_stop_key_frames(
    client: &mut Client,
    scale: &str,
    headers: &str,
    expected: &[ReceivedTrack; 2],
) {
    client.ask("PLAY", "cam+other", headers, "").is(200);
    let until = if scale == "2" { 0 } else { 9_999 };
    let refused = format!("Range: npt=-{until}\r\nScale: {scale}\r\n");
    let mut came = [vec![], vec![]];
    for number in 0..6 {
        let refuses = number < 5;
        let (tracks, _) = match refuses {
            true => comes_on(client, 2, 1),
            false => comes(client, usize::MAX),
        };
        for (all, some) in came.iter_mut().zip(tracks) {
            all.extend(some.frames.into_iter().map(|of| of.0));
        }
        if refuses {
            client.ask("PLAY", "cam+other", &refused, "").is(457);
        }
    }
    for (came, expected) in came.into_iter().zip(expected) {
        let (first, last) = (
            expected.frames[0].0,
            expected.frames.last().expect("a key frame").0,
        );
        let is_in_order = if scale == "2" {
            came.is_sorted()
        } else {
            came.iter().rev().is_sorted()
        };
        assert!(
            is_in_order && came.iter().all(|key| key.is_multiple_of(GOP)),
            "{scale}: {came:?}"
        );
        assert_eq!(came[0], first, "{scale}: {came:?}");
        let ends = came.last().expect("a key frame");
        assert!(ends.abs_diff(last) < 10 * GOP, "{scale}: {came:?}");
    }
}

#[test]
fn camera_that_returns_during_play_is_played_on() {
    let (site, serve, address) = site();
    let mut master = Camera::records(address, "cam", 7);
    // Enough of it is on the disks while it goes on.
    master.publish(0..200);
    until("it has begun", || newest(&site, "cam").0 > 0);
    let mut first = Camera::records(address, "other", 9);
    first.publish(0..80);
    until("it has begun", || newest(&site, "other").0 > 0);
    let mut clients = [player(address), player(address), player(address)];
    let mut alone = Client::connect(address);
    alone.ask("SETUP", "cam+other/track1", SECOND, "").is(200);
    for client in clients.iter_mut().chain([&mut alone]) {
        client
            .ask("PLAY", "cam+other", "Range: npt=0-\r\n", "")
            .is(200);
    }
    first.ends(&site);
    // Those are over that were there, for who has played them, for who looks there now, and for who pauses.
    for client in &mut clients {
        frames_on(client, 0, 110);
        assert_eq!(frames_on(client, 2, 80).len(), 80);
    }
    are_over(&site, "other", 90);
    // A player that only listens sends keep-alives.
    alone.keep_alive("cam+other");
    let [_, looks, pauses] = &mut clients;
    looks
        .ask("PLAY", "cam+other", "Range: npt=4-\r\n", "")
        .is(200);
    pauses.ask("PAUSE", "cam+other", "", "").is(200);
    pauses.ask("PLAY", "cam+other", "", "").is(200);
    looks.packets.clear();
    pauses.packets.clear();
    master.publish(200..500);
    let mut second = Camera::records(address, "other", 99);
    second.publish(1_000..1_050);
    second.ends(&site);
    let (cam, other) = (begun(&site, "cam")[0], begun(&site, "other"));
    let times = [(other[0], 0), (other[1], 1_000)];
    for (client, of_first) in clients.iter_mut().zip([80, 0, 0]) {
        alone.keep_alive("cam+other");
        let (tracks, _) = comes_on(client, 2, of_first + 50);
        let frames: Vec<u32> = tracks[1].frames.iter().map(|of| of.0).collect();
        let all: Vec<u32> = (0..of_first as u32).chain(1_000..1_050).collect();
        assert_eq!(frames, all);
        goes_on_in_time(&tracks, cam, &times);
    }
    // Nobody comes back any more when the master is over.
    master.ends(&site);
    let (tracks, _) = comes_on(&mut alone, 2, usize::MAX);
    assert_eq!(tracks[1].frames.len(), 130);
    let [mut client, ..] = clients;
    let range = "Range: npt=15-\r\nSpeed: 4\r\n";
    client.ask("PLAY", "cam+other", range, "").is(200);
    client.packets.clear();
    let (tracks, _) = comes_on(&mut client, 0, usize::MAX);
    assert_eq!(tracks[0].frames.last().expect("one").0, 499);
    serve.terminate();
}

#[test]
fn returned_camera_is_played_alone_without_deleted_recordings() {
    let (site, serve, address) = come_back(20);
    let mut client = Client::connect(address);
    client.ask("SETUP", "cam+other/track1", SECOND, "").is(200);
    let all: Vec<u32> = (0..20).chain(1_000..1_100).collect();
    let range = "Range: npt=0-\r\nSpeed: 4\r\n";
    client.ask("PLAY", "cam+other", range, "").is(200);
    let (tracks, _) = comes_on(&mut client, 2, usize::MAX);
    let came: Vec<u32> = tracks[1].frames.iter().map(|of| of.0).collect();
    assert_eq!(came, all);

    // The path means the first recording until that is deleted, and then the last one.
    let mut client = player(address);
    client
        .ask("PLAY", "cam+other", "Range: npt=0-\r\n", "")
        .is(200);
    frames_on(&mut client, 2, 1);
    site.run(&["recording", "delete", "other", "1"]).done();
    let (tracks, _) = comes_on(&mut client, 2, usize::MAX);
    let came: Vec<u32> = tracks[1].frames.iter().map(|of| of.0).collect();
    assert!(came[0] < 20 && came.len() < 120, "{came:?}");
    assert!(came.ends_with(&all[20..]), "{came:?}");
    let range = "Range: npt=0-\r\nSpeed: 4\r\n";
    client.ask("PLAY", "cam+other", range, "").is(200);
    client.packets.clear();
    assert_eq!(frames_on(&mut client, 2, 1), [1_000]);
    site.run(&["recording", "delete", "other", "3"]).done();
    client.packets.clear();
    let (tracks, _) = comes_on(&mut client, 0, usize::MAX);
    assert_eq!(tracks[0].frames.last().expect("one").0, 399);
    assert!(tracks[1].frames.len() < 100, "{:?}", tracks[1].frames.len());
    serve.terminate();
}

#[test]
fn one_begins_when_the_one_before_is_over() {
    let (site, serve, address) = site();
    let mut master = Camera::records(address, "cam", 7);
    master.publish(0..400);
    until("it has begun", || newest(&site, "cam").0 > 0);
    // Both are sent faster than they are shown. The second one begins before the first one is over by a
    // moment, and the third one long before the second one is.
    for (base, frames) in [(1, 0..20), (2, 1_000..1_100), (3, 2_000..2_200)] {
        let mut other = Camera::records(address, "other", base);
        other.publish(frames);
        other.ends(&site);
    }
    master.ends(&site);
    let mut client = player(address);
    let range = "Range: npt=0-\r\nSpeed: 4\r\n";
    client.ask("PLAY", "cam+other", range, "").is(200);
    let (tracks, _) = comes(&mut client, usize::MAX);
    let [_, other] = &tracks;
    let came: Vec<u32> = other.frames.iter().map(|of| of.0).collect();
    let last: Vec<u32> = (0..20).chain(1_000..1_100).collect();
    assert_eq!(came[..120], last);
    // The part recorded while another recording was played is skipped.
    let first = came[120];
    let begun = begun(&site, "other");
    let frame_ns = SECOND_NS / u64::from(FRAMES_PER_SECOND);
    // The second one is shown up to a second later than it was, and is brought nearer.
    let passed = (begun[1] + 100 * frame_ns).saturating_sub(begun[2]) / frame_ns;
    assert!(
        u64::from(first).abs_diff(2_000 + passed) <= 25,
        "{first}, and {passed} are passed over"
    );
    assert_eq!(came[120..], (first..2_200).collect::<Vec<_>>());
    let times: Vec<i128> = (0..came.len()).map(|number| other.at_ns(number)).collect();
    let apart = times.windows(2).map(|two| (two[1] - two[0]) / 1_000_000);
    let apart: Vec<i128> = apart.collect();
    // The gap is as long as it was in the recordings, if that was longer.
    let away_ms = begun[1].saturating_sub(begun[0] + 20 * frame_ns) / 1_000_000;
    let most_ms = 1_000 + i128::from(away_ms);
    assert!(
        apart.iter().all(|ms| (0..most_ms).contains(ms)),
        "{apart:?}"
    );
    serve.terminate();
}

#[test]
fn ffmpeg_and_gstreamer_play_who_came_back() {
    if !have("ffmpeg") || !have("gst-launch-1.0") {
        return;
    }
    let (site, serve, address) = site();
    let clip = testkit::rtsp::clip::clip(&site);
    let once = frames(&["-i", &clip]).expect("frames");
    let publish = |volume: &str, options: &[&str]| {
        let mut publish = tool("ffmpeg");
        publish.args(["-nostdin", "-loglevel", "error", "-re"]);
        publish.args(options).args(["-i", &clip, "-c", "copy"]);
        publish.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
        publish.arg(format!("rtsp://{address}/{volume}"));
        outcome(&mut publish).done();
        until("it is closed", || newest(&site, volume).1);
    };
    std::thread::scope(|scope| {
        // Twice as long as both others take, but for what a busy machine takes to begin them.
        let master = scope.spawn(|| publish("cam", &["-stream_loop", "3"]));
        until("it has begun", || reservations(&site) == 1);
        publish("other", &[]);
        publish("other", &[]);
        master.join().expect("it is published");
    });
    let [cam, other] = [4, 2].map(|count| vec![once.clone(); count].concat());
    let url = format!("rtsp://{address}/cam+other");
    let both = [cam.clone(), other.clone()].concat();
    for transport in ["tcp", "udp"] {
        let mut played = frames(&["-rtsp_transport", transport, "-i", &url]).expect("frames");
        let mut both = both.clone();
        played.sort_unstable();
        both.sort_unstable();
        assert_eq!(played.len(), both.len(), "by {transport}");
        assert_eq!(played, both, "by {transport}");
        let outs = ["cam", "other"].map(|of| site.path(&format!("{of}-{transport}")));
        let [first, second] = outs.each_ref().map(|out| {
            let parse = "s. ! rtph264depay ! h264parse";
            let to = "video/x-h264,stream-format=byte-stream ! filesink location";
            format!("{parse} ! {to}={}", out.display())
        });
        let text = format!("rtspsrc name=s location={url} protocols={transport} {first} {second}");
        let mut command = tool("gst-launch-1.0");
        has_played(&outcome(command.arg("-q").args(text.split(' '))));
        let [first, second] = outs.map(|out| {
            let out = out.display().to_string();
            frames(&["-f", "h264", "-i", &out]).expect("frames")
        });
        // The order of the two links is not specified.
        let mut both = [first, second];
        both.sort_by_key(Vec::len);
        assert_eq!(both, [other.clone(), cam.clone()], "by {transport}");
    }
    serve.terminate();
}
