//! Recordings that were made together are played together, by one clock.

use std::collections::BTreeMap;

use testkit::rtsp::clip::frames;
use testkit::rtsp::together::{
    CLOCK, Camera, DESCRIPTION, FRAMES_PER_SECOND, GOP, ReceivedTrack, SECOND_NS, are_as_they_were,
    begun, come_back, comes, comes_until, frames_on, goes_on_in_time, newest, player, record,
    recorded, site,
};
use testkit::rtsp::{Client, SDP_TYPE, SECOND, TCP, reservations};
use testkit::site::{call, outcome};
use testkit::skip::{have, tool};
use testkit::until;

#[test]
fn recordings_are_played_by_the_masters_clock_and_end_with_it() {
    let (site, serve, address) = recorded();
    let mut client = player(address);
    // Faster than they were, so that this takes a second: the clock is the same.
    let said = client
        .ask("PLAY", "cam+other", "Range: npt=0-\r\nSpeed: 4\r\n", "")
        .is(200);
    let info = said.header("RTP-Info").expect("the tracks").to_owned();
    assert!(
        info.contains("/track0;seq=0") && info.contains("/track1;seq=0"),
        "{info}"
    );
    let (tracks, order) = comes(&mut client, usize::MAX);
    let [master, other] = &tracks;
    let all: Vec<u32> = master.frames.iter().map(|(frame, _)| *frame).collect();
    assert_eq!(all, (0..200).collect::<Vec<_>>());
    // The other one, which goes on for longer, is played until a second behind the master's end.
    let (begun, later) = (newest(&site, "cam").0, newest(&site, "other").0);
    let lag = (later - begun) / (1_000_000_000 / u64::from(FRAMES_PER_SECOND));
    let last = other.frames.last().expect("a frame").0;
    assert_eq!(other.frames.len() as u32, last + 1, "none is missing");
    assert!(
        u64::from(last).abs_diff(199 + u64::from(FRAMES_PER_SECOND) - lag) <= 1,
        "{last} is the last one, {lag} frames later"
    );
    are_as_they_were(&site, &tracks, 4);
    // In the order of their times: neither is far ahead of the other.
    let mut ahead = 0_i64;
    let both = order.iter().skip_while(|track| **track == 0);
    let last = order.iter().rposition(|track| *track == 0).expect("some");
    let alone = order.iter().position(|track| *track == 1).expect("some");
    for track in both.take(last - alone) {
        ahead += if *track == 0 { 1 } else { -1 };
        assert!(ahead.abs() <= 2, "{order:?}");
    }
    client.ask("TEARDOWN", "cam+other", "", "").is(200);
    until("nothing is reserved", || reservations(&site) == 0);
    serve.terminate();
}

#[test]
fn a_time_is_found_in_all_of_them_and_gone_on_from_where_they_were_paused() {
    let (site, serve, address) = recorded();
    let mut client = player(address);
    let said = client
        .ask("PLAY", "cam+other", "Range: npt=5-7\r\n", "")
        .is(200);
    let (tracks, _) = comes(&mut client, 20);
    for of in &tracks {
        assert!(of.frames[0].0.is_multiple_of(GOP), "{:?}", of.frames[0]);
    }
    are_as_they_were(&site, &tracks, 1);
    // The timestamp that is told is that of the time that is told, for each.
    let info = said.header("RTP-Info").expect("the tracks").to_owned();
    let told: Vec<u32> = info
        .split("rtptime=")
        .skip(1)
        .map(|of| of.split(',').next().expect("it").parse().expect("a number"))
        .collect();
    let firsts = [0, 1].map(|track: usize| {
        let apart = tracks[track].frames[0].1.wrapping_sub(told[track]) as i32;
        tracks[track].at_ns(0) - i128::from(apart) * 1_000_000_000 / i128::from(CLOCK)
    });
    let apart = (firsts[0] - firsts[1]).abs();
    assert!(apart < 1_000_000, "{info}: {apart} ns apart");

    client.ask("PAUSE", "cam+other", "", "").is(200);
    let (mut paused, _) = (client.packets.split_off(0), ());
    paused.retain(|(channel, _)| channel % 2 == 0);
    let mut last = BTreeMap::new();
    for (track, of) in tracks.iter().enumerate() {
        last.insert(track, of.frames.last().expect("a frame").0);
    }
    for (channel, packet) in &paused {
        let mut came = ReceivedTrack::default();
        came.take(packet);
        last.insert(usize::from(channel / 2), came.frames[0].0);
    }
    client.ask("PLAY", "cam+other", "", "").is(200);
    let (tracks, _) = comes(&mut client, 10);
    for (track, of) in tracks.iter().enumerate() {
        assert_eq!(of.frames[0].0, last[&track] + 1, "track {track}");
    }
    are_as_they_were(&site, &tracks, 1);

    // Key frames of both, twice as fast and backwards.
    for scale in ["2", "-1"] {
        let range = if scale == "2" { "npt=1-" } else { "npt=6-1" };
        let headers = format!("Range: {range}\r\nScale: {scale}\r\n");
        let said = client.ask("PLAY", "cam+other", &headers, "").is(200);
        assert_eq!(said.header("Scale"), Some(&*format!("{scale}.000")));
        client.packets.clear();
        let (tracks, _) = comes(&mut client, 3);
        let forward = scale == "2";
        for of in &tracks {
            let keys: Vec<u32> = of.frames.iter().map(|(frame, _)| *frame).collect();
            assert!(keys.iter().all(|key| key.is_multiple_of(GOP)), "{keys:?}");
            let goes_on = keys.windows(2).all(|two| (two[0] < two[1]) == forward);
            assert!(goes_on, "{scale}: {keys:?}");
        }
        client.ask("PAUSE", "cam+other", "", "").is(200);
        client.packets.clear();
    }
    serve.terminate();
}

#[test]
fn one_of_them_alone_is_played_in_the_masters_time() {
    let (site, serve, address) = recorded();
    let mut client = Client::connect(address);
    client.ask("SETUP", "cam+other/track1", SECOND, "").is(200);
    client
        .ask("PLAY", "cam+other", "Range: npt=5-\r\n", "")
        .is(200);
    let lag_ns = newest(&site, "other").0 - newest(&site, "cam").0;
    let lag = lag_ns / (1_000_000_000 / u64::from(FRAMES_PER_SECOND));
    let first = frames_on(&mut client, 2, 1)[0];
    let asked = (5 * u64::from(FRAMES_PER_SECOND) - lag) as u32;
    assert!(
        first.is_multiple_of(GOP) && (asked.saturating_sub(GOP)..=asked).contains(&first),
        "{first}, and {asked} was asked for"
    );
    client.ask("PAUSE", "cam+other", "", "").is(200);
    let last = *frames_on(&mut client, 2, 1).last().expect("some");
    client.packets.clear();
    client.ask("PLAY", "cam+other", "", "").is(200);
    assert_eq!(frames_on(&mut client, 2, 1)[0], last + 1);
    serve.terminate();
}

/// Start in the answer to PLAY, in seconds.
fn begins(said: &testkit::rtsp::RtspResponse) -> f64 {
    let range = said.header("Range").unwrap_or_default();
    let from = range.trim_start_matches("npt=").split('-').next();
    from.and_then(|from| from.parse().ok()).expect("seconds")
}

#[test]
fn none_holds_the_master_up() {
    let (site, serve, address) = site();
    // One whose only key frame is more than 16 blocks before its end, and a minute of the master.
    let mut other = Camera::records(address, "other", 5);
    other.gop = 10_000;
    let mut master = Camera::records(address, "cam", 50);
    other.publish(0..1_000);
    master.publish(0..1_500);
    other.ends(&site);
    master.ends(&site);
    let mut client = player(address);
    for (from, first) in [(50, 1_250), (30, 750)] {
        let range = format!("Range: npt={from}-\r\n");
        let said = client.ask("PLAY", "cam+other", &range, "").is(200);
        let begins = begins(&said);
        assert!((f64::from(from) - begins).abs() < 0.5, "{begins}");
        let came = frames_on(&mut client, 0, 20)[0];
        assert!((first - GOP..=first).contains(&came), "{came}");
        // It is over, or has no key frame from there on.
        let others = frames_on(&mut client, 2, 0);
        assert!(others.is_empty(), "from {from}: {others:?}");
        client.ask("PAUSE", "cam+other", "", "").is(200);
        client.packets.clear();
    }
    serve.terminate();
}

#[test]
fn the_one_that_was_made_for_longest_with_the_master_is_played_and_may_end_or_be_deleted() {
    let (site, serve, address) = site();
    let mut first = Camera::records(address, "other", 1);
    first.publish(0..20);
    let mut master = Camera::records(address, "cam", 50);
    master.publish(0..100);
    first.ends(&site);
    let mut second = Camera::records(address, "other", 9);
    second.publish(0..300);
    master.publish(100..400);
    second.ends(&site);
    master.ends(&site);
    let mut client = player(address);
    client
        .ask("PLAY", "cam+other", "Range: npt=6-\r\n", "")
        .is(200);
    // The first one has no frame so late.
    assert!(frames_on(&mut client, 2, 1)[0] >= 30);
    // A recording that was over at the pause stays over.
    client
        .ask("PLAY", "cam+other", "Range: npt=11-\r\n", "")
        .is(200);
    client.packets.clear();
    let came = frames_on(&mut client, 0, 90);
    client.ask("PAUSE", "cam+other", "", "").is(200);
    let came = frames_on(&mut client, 0, came.len());
    let last = *came.last().expect("a frame");
    assert!(last >= 320 && frames_on(&mut client, 2, 0).last() == Some(&299));
    client.packets.clear();
    let said = client.ask("PLAY", "cam+other", "", "").is(200);
    let expected = f64::from(last) / f64::from(FRAMES_PER_SECOND);
    assert!((begins(&said) - expected).abs() < 0.5, "{said:?}");
    assert_eq!(frames_on(&mut client, 0, 1)[0], last + 1);

    client
        .ask("PLAY", "cam+other", "Range: npt=2-\r\n", "")
        .is(200);
    client.packets.clear();
    site.run(&["recording", "delete", "other", "2"]).done();
    let came = frames_on(&mut client, 0, 60);
    assert!(came.windows(2).all(|two| two[1] == two[0] + 1), "{came:?}");
    // The rest goes on, wherever it is asked for.
    client.packets.clear();
    let said = client
        .ask("PLAY", "cam+other", "Range: npt=10-\r\n", "")
        .is(200);
    assert!((begins(&said) - 10.0).abs() < 0.5, "{said:?}");
    client.packets.clear();
    let came = frames_on(&mut client, 0, 30);
    assert!(came.windows(2).all(|two| two[1] == two[0] + 1), "{came:?}");
    assert!(frames_on(&mut client, 2, 0).is_empty());
    site.run(&["recording", "delete", "cam", "1"]).done();
    client.ask("PLAY", "cam+other", "", "").is(404);
    serve.terminate();
}

#[test]
fn live_recordings_are_played_together() {
    let (site, serve, address) = site();
    let mut master = Camera::records(address, "cam", 7);
    let mut other = Camera::records(address, "other", 77);
    for step in 0..8 {
        master.publish(step * 50..step * 50 + 50);
        other.publish(step * 50..step * 50 + 50);
    }
    until("blocks of both are on the disks", || {
        let blocks = |volume: &str| {
            let path = format!("/v1/volumes/{volume}/recordings");
            call(&site, "GET", &path, "").1[0]["blocks"].as_u64()
        };
        blocks("cam") > Some(5) && blocks("other") > Some(5)
    });
    let mut client = Client::connect(address);
    let path = "cam+other/live";
    client.ask("DESCRIBE", path, "", "").is(200);
    client
        .ask("SETUP", &format!("{path}/track0"), TCP, "")
        .is(200);
    client
        .ask("SETUP", &format!("{path}/track1"), SECOND, "")
        .is(200);
    client.ask("PLAY", path, "", "").is(200);
    // Frames before are only there to decode these. From the first one on, frames have their own times.
    let (before, _) = comes(&mut client, 1);
    master.publish(400..420);
    other.publish(400..420);
    let is_there = |of: &ReceivedTrack| of.frames.last().is_some_and(|of| of.0 == 419);
    let (mut tracks, _) = comes_until(&mut client, |tracks| tracks.iter().all(is_there));
    for (of, before) in tracks.iter_mut().zip(before) {
        let (first, _) = before.frames[0];
        assert!(first > 0 && first.is_multiple_of(GOP));
        of.frames.retain(|(frame, _)| *frame >= 400);
        of.reports.splice(0..0, before.reports);
    }
    are_as_they_were(&site, &tracks, 1);
    client.ask("TEARDOWN", path, "", "").is(200);
    master.ends(&site);
    let mut client = Client::connect(address);
    let said = client.ask("DESCRIBE", path, "", "").is(404);
    assert!(said.body.contains("volume \"cam\" is not being recorded"));
    other.ends(&site);
    serve.terminate();
}

/// One of which nothing more is on the disks for a while, as its blocks take long to be full, is shown again
/// when there is.
#[test]
fn player_that_has_caught_up_gets_live_packets() {
    let (site, serve, address) = site();
    let mut master = Camera::records(address, "cam", 7);
    let mut other = Camera::records(address, "other", 77);
    // At four times the speed it lasts for 20 s.
    master.publish(0..2_000);
    other.publish(0..200);
    let blocks = |volume: &str| {
        let path = format!("/v1/volumes/{volume}/recordings");
        call(&site, "GET", &path, "").1[0]["blocks"].as_u64()
    };
    until("blocks of both are on the disks", || {
        blocks("cam") > Some(15) && blocks("other") > Some(2)
    });
    let headers = "Range: npt=0-\r\nScale: 4\r\n";
    let last = |came: &ReceivedTrack| came.frames.last().map_or(0, |(frame, _)| *frame);
    // Alone it ends where it has caught up.
    let mut alone = Client::connect(address);
    alone.ask("SETUP", "cam+other/track1", SECOND, "").is(200);
    alone.ask("PLAY", "cam+other", headers, "").is(200);
    let (tracks, _) = comes_until(&mut alone, |[_, other]| other.has_ended);
    alone.ask("TEARDOWN", "cam+other", "", "").is(200);
    assert!(last(&tracks[1]) < 200, "{:?}", tracks[1].frames);
    let mut client = player(address);
    client.ask("PLAY", "cam+other", headers, "").is(200);
    let (tracks, _) = comes_until(&mut client, |[master, _]| last(master) >= 400);
    assert!(last(&tracks[1]) < 200, "{:?}", tracks[1].frames);
    other.publish(200..1_000);
    let (tracks, _) = comes_until(&mut client, |[_, other]| {
        other.has_ended || last(other) >= 200
    });
    assert!(!tracks[1].has_ended, "{:?}", tracks[1].frames);
    client.ask("TEARDOWN", "cam+other", "", "").is(200);
    master.ends(&site);
    other.ends(&site);
    serve.terminate();
}

/// An ended recording stays ended if something else is refused, also if some of it was not shown.
#[test]
fn ended_recording_does_not_begin_again_beside_a_live_one() {
    let (site, serve, address) = site();
    let mut master = Camera::records(address, "cam", 7);
    let mut other = Camera::records(address, "other", 9);
    master.publish(0..300);
    // At these distances no other frame fits then, but one fits a little before.
    other.publish(0..120);
    other.gop = 1_000;
    other.publish(120..300);
    master.ends(&site);
    other.ends(&site);
    let mut client = player(address);
    let headers = "Range: npt=0-\r\nScale: 4\r\n";
    client.ask("PLAY", "cam+other", headers, "").is(200);
    let (before, _) = comes_until(&mut client, |tracks| {
        tracks.iter().all(|of| !of.frames.is_empty())
    });
    // Only a read of the recording can tell that there is nothing.
    let headers = "Range: npt=-0\r\nScale: 4\r\n";
    client.ask("PLAY", "cam+other", headers, "").is(457);
    let (after, _) = comes(&mut client, usize::MAX);
    let shown = [0, 1].map(|track: usize| {
        let both = before[track].frames.iter().chain(&after[track].frames);
        both.map(|of| of.0).collect::<Vec<_>>()
    });
    assert_eq!(shown, [vec![0, 120, 240], vec![0]]);
    serve.terminate();
}

#[test]
fn senseless_presentation_is_refused_and_holds_nothing() {
    let (site, serve, address) = site();
    site.run(&["volume", "create", "third", "--size", "20MiB"])
        .done();
    let mut third = Camera::records(address, "third", 3);
    third.publish(0..2);
    third.ends(&site);
    let ended_ns = u128::from(newest(&site, "third").0) + 50_000_000;
    until("its two frames are over", || {
        let now = std::time::UNIX_EPOCH.elapsed().expect("it is later");
        now.as_nanos() > ended_ns
    });
    record(&site, address);
    let mut client = Client::connect(address);
    let mut describes = |path: &str, status, why: &str| {
        let said = client.ask("DESCRIBE", path, "", "").is(status);
        assert!(said.body.contains(why), "{path}: {said:?}");
    };
    describes("cam+cam", 400, "volume \"cam\" is named twice");
    describes("a+b+c+d+e+f+g+h+i", 400, "at most 8");
    describes("cam+nowhere", 404, "nowhere");
    describes("cam+/track0", 404, "name a volume");
    // It was recorded before.
    describes(
        "cam+third",
        404,
        "nothing was recorded in volume \"third\" while recording 1 in volume \"cam\" was",
    );
    let said = client.ask("ANNOUNCE", "cam+other", SDP_TYPE, DESCRIPTION);
    assert!(said.is(400).body.contains("%2B"));

    // All that is reserved is reserved, or nothing.
    let mut client = player(address);
    until("both are reserved", || reservations(&site) == 2);
    let rate = "Content-Type: text/parameters\r\n";
    let said = client
        .ask("SET_PARAMETER", "cam+other", rate, "rate: 300000\r\n")
        .is(459);
    assert!(said.body.contains("name one"), "{said:?}");
    client
        .ask("SET_PARAMETER", "other", rate, "rate: 300000\r\n")
        .is(200);
    let said = client.ask("GET_PARAMETER", "cam", rate, "rate\r\n").is(200);
    assert_ne!(said.body, "rate: 300000\r\n");
    client
        .ask("SET_PARAMETER", "other", rate, "rate: 900000000000\r\n")
        .is(453);
    client.ask("PLAY", "cam+other", "", "").is(200);
    client
        .ask("SET_PARAMETER", "cam+other", rate, "rate: 300000\r\n")
        .is(459);
    let said = client
        .ask("GET_PARAMETER", "other", rate, "rate\r\n")
        .is(200);
    assert_eq!(said.body, "rate: 300000\r\n");
    // A Speed that one of them does not get none gets.
    let said = client.ask("PLAY", "cam+other", "Speed: 16\r\n", "").is(200);
    assert!(said.header("Speed").is_some());
    drop(client);
    until("nothing is reserved", || reservations(&site) == 0);

    // Players fill the disks until the second of two does not fit.
    let mut players = Vec::new();
    let refused = loop {
        let mut client = Client::connect(address);
        let said = client.ask("SETUP", "cam+other/track0", TCP, "");
        if said.status != 200 {
            break said.is(453);
        }
        players.push(client);
    };
    assert!(!refused.body.is_empty(), "{refused:?}");
    assert_eq!(reservations(&site), 2 * players.len());
    drop(players);
    until("nothing is reserved", || reservations(&site) == 0);
    serve.terminate();
}

#[test]
fn ffmpeg_plays_what_it_has_recorded_to_two_volumes() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = site();
    let clip = testkit::rtsp::clip::clip(&site);
    let expected = frames(&["-i", &clip]).expect("frames");
    let mut publish = tool("ffmpeg");
    publish.args(["-nostdin", "-loglevel", "error", "-re", "-i", &clip]);
    for volume in ["cam", "other"] {
        let url = format!("rtsp://{address}/{volume}");
        publish.args(["-map", "0:v", "-c", "copy", "-f", "rtsp"]);
        publish.args(["-rtsp_transport", "tcp", &url]);
    }
    outcome(&mut publish).done();
    until("both are closed", || {
        newest(&site, "cam").1 && newest(&site, "other").1
    });
    let url = format!("rtsp://{address}/cam+other");
    for transport in ["tcp", "udp"] {
        let played = frames(&["-rtsp_transport", transport, "-i", &url]).expect("frames");
        // Lines of one track and of the other one, as they come.
        let mut of = played.clone();
        of.sort_unstable();
        let mut twice = [expected.clone(), expected.clone()].concat();
        twice.sort_unstable();
        assert_eq!(of.len(), twice.len(), "by {transport}");
        assert_eq!(of, twice, "by {transport}");
    }
    serve.terminate();
}

#[test]
fn returned_camera_is_played_from_then_on() {
    let (site, serve, address) = come_back(20);
    let (cam, other) = (begun(&site, "cam")[0], begun(&site, "other"));
    let times = [(other[0], 0), (other[2], 1_000)];
    let mut client = player(address);
    client
        .ask("PLAY", "cam+other", "Range: npt=0-\r\nSpeed: 4\r\n", "")
        .is(200);
    let (tracks, _) = comes(&mut client, usize::MAX);
    let came =
        |of: &ReceivedTrack| -> Vec<u32> { of.frames.iter().map(|(frame, _)| *frame).collect() };
    assert_eq!(came(&tracks[0]), (0..400).collect::<Vec<_>>());
    let all: Vec<u32> = (0..20).chain(1_000..1_100).collect();
    assert_eq!(came(&tracks[1]), all);
    goes_on_in_time(&tracks, cam, &times);

    // The request is for the packets of that time, and goes on where it was paused.
    let at = (other[2] - cam + 2 * SECOND_NS) as f64 / 1e9;
    let range = format!("Range: npt={at:.3}-\r\n");
    client.ask("PLAY", "cam+other", &range, "").is(200);
    let (tracks, _) = comes(&mut client, 5);
    let first = tracks[1].frames[0].0;
    assert!((1_040..=1_050).contains(&first) && first.is_multiple_of(GOP));
    goes_on_in_time(&tracks, cam, &times);
    client.ask("PAUSE", "cam+other", "", "").is(200);
    let on = client
        .packets
        .drain(..)
        .filter(|(channel, _)| *channel == 2);
    let mut last = ReceivedTrack::default();
    on.for_each(|(_, packet)| last.take(&packet));
    let last = last
        .frames
        .last()
        .or(tracks[1].frames.last())
        .expect("one")
        .0;
    client.ask("PLAY", "cam+other", "", "").is(200);
    let (again, _) = comes(&mut client, 5);
    assert_eq!(again[1].frames[0].0, last + 1);
    assert_eq!(again[1].numbers[0].1, tracks[1].numbers[0].1, "one source");

    // While nobody recorded there, paused and gone on, forwards from there.
    let at = (other[1] - cam) as f64 / 1e9;
    let range = format!("Range: npt={at:.3}-\r\n");
    client.ask("PLAY", "cam+other", &range, "").is(200);
    client.packets.clear();
    frames_on(&mut client, 0, 1);
    client.ask("PAUSE", "cam+other", "", "").is(200);
    assert!(frames_on(&mut client, 2, 0).is_empty());
    client.packets.clear();
    client.ask("PLAY", "cam+other", "", "").is(200);
    let (tracks, _) = comes(&mut client, 3);
    assert_eq!(tracks[1].frames[0].0, 1_000);
    goes_on_in_time(&tracks, cam, &times);
    client.ask("TEARDOWN", "cam+other", "", "").is(200);
    serve.terminate();
}
