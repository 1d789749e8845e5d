//! Exports by times of the clock: over recordings, restarts and gaps.

use jiff::Timestamp;
use serde_json::Value;
use testkit::rtsp::files::{clip, record, sums};
use testkit::rtsp::http::{get, http};
use testkit::rtsp::peers::SEEN;
use testkit::rtsp::{serve, serving};
use testkit::site::{Site, outcome};
use testkit::skip::{have, tool};

const HTTP: &str = "[http]\nlisten = \"0\"";
const ENCODED: [&str; 10] = [
    "-c:v",
    "libx264",
    "-preset",
    "ultrafast",
    "-g",
    "10",
    "-bf",
    "0",
    "-c:a",
    "aac",
];

fn utc(unix_ns: u64) -> String {
    Timestamp::from_nanosecond(unix_ns.into())
        .expect("a time")
        .to_string()
}

/// When each recording of `cam` begins and ends.
fn recorded(site: &Site) -> Vec<(u64, u64)> {
    let listed = site.json(&["recording", "list", "cam"]);
    let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let all = listed.as_array().expect("a list").iter();
    all.map(|of| {
        let begun = number(of, "begun_unix_ns");
        (begun, begun + number(of, "length_ns"))
    })
    .collect()
}

/// The differences between the times of the pictures in a file, in milliseconds.
fn apart_ms(file: &str) -> Vec<i64> {
    let asked = [
        "-v",
        "error",
        "-select_streams",
        "v",
        "-show_entries",
        "packet=pts_time",
    ];
    let said = outcome(tool("ffprobe").args(asked).args(["-of", "csv=p=0", file]));
    let said = said.done().out;
    let times = said
        .lines()
        .filter_map(|line| line.trim_end_matches(',').parse::<f64>().ok());
    let times: Vec<i64> = times.map(|of| (of * 1_000.0).round() as i64).collect();
    times.windows(2).map(|of| of[1] - of[0]).collect()
}

#[test]
fn a_clip_by_the_clock_goes_over_recordings_and_a_restart() {
    if !have("ffmpeg") {
        return;
    }
    let (site, server, address) = serving(HTTP);
    let clip = clip(&site, "a.mp4", 2, &ENCODED);
    record(&site, address, &clip, "tcp");
    server.terminate();
    let (server, address) = serve(&site);
    record(&site, address, &clip, "tcp");
    let times = recorded(&site);
    let [(first, end), (second, last)] = times[..] else {
        panic!("{times:?}");
    };
    let frames = sums(&clip, &SEEN);
    let export = |gaps: &str| {
        let to = site.path(&format!("{gaps}.mp4")).display().to_string();
        let range = ["--from", &utc(first), "--until", &utc(last + 1_000_000_000)];
        let command = ["recording", "export", "cam", "--gaps", gaps, "--to", &to];
        let said = site.json(&[&command[..], &range].concat());
        assert_eq!(sums(&to, &SEEN), [&frames[..], &frames].concat(), "{gaps}");
        let pieces = said["recorded"].as_array().expect("pieces").clone();
        assert_eq!(pieces.len(), 2, "{said}");
        let begins = pieces[1]["begins_unix_ns"].as_u64().expect("a number");
        let ends = pieces[0]["ends_unix_ns"].as_u64().expect("a number");
        assert!(ends < second && second <= begins, "{said}");
        (apart_ms(&to), (begins - ends) / 1_000_000)
    };
    let (closed, _) = export("close");
    assert!(closed.iter().all(|of| (1..=200).contains(of)), "{closed:?}");
    let (kept, gap_ms) = export("keep");
    let longest = kept.iter().max().copied().unwrap_or_default();
    assert!(
        longest.abs_diff(gap_ms as i64) < 100,
        "{longest} of {gap_ms}"
    );
    assert_eq!(kept.iter().filter(|of| **of > 100).count(), 1, "{kept:?}");
    // Only the second one, in local time and from now.
    let to = site.path("part.mp4").display().to_string();
    let local = Timestamp::from_nanosecond((second - 50_000_000).into()).expect("a time");
    let local = local
        .in_tz("Asia/Kolkata")
        .expect("a zone")
        .strftime("%F %T%.f");
    let command = ["recording", "export", "cam", "--to", &to, "--from"];
    let zone = ["--zone", "Asia/Kolkata"];
    let done = site
        .run(&[&command[..], &[&local.to_string()], &zone].concat())
        .done();
    assert_eq!(sums(&to, &SEEN), frames);
    assert!(done.out.contains("+05:30 to "), "{}", done.out);
    refusals(&site, (first, end, second, last));
    recordings_of_all_volumes_are_listed_in_local_time(&site, first);
    http_answers(&site, http(&server), (first, last));
    server.terminate();
}

fn recordings_of_all_volumes_are_listed_in_local_time(site: &Site, first: u64) {
    for volume in ["blank", "other"] {
        let create = ["volume", "create", volume, "--size", "8MiB"];
        site.run(&create).done();
    }
    std::fs::write(site.path("in"), [7; 70_000]).expect("a file");
    let from = site.path("in").display().to_string();
    let options = ["--rate", "200KB/s", "--block", "64KiB", "--from", &from];
    let command = ["stream", "record", "--volume", "other"];
    site.run(&[&command[..], &options].concat()).done();
    let all = site.json(&["recording", "list"]);
    let found = all["recordings"].as_array().expect("a list").iter();
    let found: Vec<_> = found
        .map(|of| (of["volume"].clone(), of["number"].clone()))
        .collect();
    let cam = |number: u64| ("cam".into(), number.into());
    assert_eq!(found, [cam(1), cam(2)], "{all}");
    assert_eq!(all["unreadable"], serde_json::json!([]));
    assert_eq!(all["recordings"][0]["begun_unix_ns"], first);
    let begun = Timestamp::from_nanosecond(first.into()).expect("a time");
    let begun = begun
        .in_tz("Asia/Kolkata")
        .expect("a zone")
        .strftime("%F %T+05:30")
        .to_string();
    for command in [&["recording", "list"][..], &["recording", "list", "cam"]] {
        let said = site
            .run(&[command, &["--zone", "Asia/Kolkata"]].concat())
            .done()
            .out;
        assert!(said.contains(&begun), "{said}, not {begun}");
    }
    site.run(&["recording", "list", "--zone", "Mars/Olympus"])
        .fails(2, &["no time zone", "IANA"]);
}

fn refusals(site: &Site, (first, end, second, last): (u64, u64, u64, u64)) {
    let to = site.path("none.mp4").display().to_string();
    let refused = |from: &str, until: &str, code, words: &[&str]| {
        let range = ["--from", from, "--until", until, "--zone", "UTC"];
        let command = ["recording", "export", "cam", "--to", &to];
        site.run(&[&command[..], &range].concat())
            .fails(code, words);
        assert!(!std::path::Path::new(&to).exists());
    };
    let s = 1_000_000_000;
    let day = &utc(first)[..10];
    let before = (utc(first - 9 * s), utc(first - 3 * s));
    refused(
        &before.0,
        &before.1,
        2,
        &["nothing was recorded", "the next one begins at", day],
    );
    let after = (utc(last + s / 5), utc(last + s / 4));
    refused(
        &after.0,
        &after.1,
        2,
        &["nothing was recorded", "before that ends at", day],
    );
    let middle = (end + second) / 2;
    let (from, until) = (utc(middle), utc(middle + 1_000_000));
    refused(
        &from,
        &until,
        2,
        &["ends at", "begins at", "recording list"],
    );
    refused(&before.1, &before.0, 2, &["is not after --from"]);
    refused("2100-01-01", "now", 2, &["is in the future"]);
    refused("half past", "now", 2, &["is not a time", "yesterday 14:00"]);
    site.run(&["recording", "export", "cam", "--to", &to])
        .fails(2, &["--from"]);
}

fn http_answers(site: &Site, address: std::net::SocketAddr, (first, last): (u64, u64)) {
    let (from, until) = (utc(first), utc(last));
    let asks = |query: &str, status: u16, word: &str| {
        let path = format!("/media/cam/export.mp4?{query}");
        let (found, head, body) = get(address, &path, "");
        let text = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(found, status, "{query}: {text}");
        assert!(
            text.contains(word) || head.contains(word),
            "{query}: {head} {text}"
        );
    };
    asks(
        &format!("from={from}&until={until}"),
        200,
        "clockwise-recorded: ",
    );
    asks(&format!("from={until}&until={from}"), 400, "is not after");
    asks(&format!("from={from}"), 400, "missing");
    asks(&format!("from=14:00&until={until}"), 400, "RFC 3339");
    asks(&format!("from={from}&until={until}&gaps=fill"), 400, "keep");
    asks(
        "from=2001-01-01T00:00:00Z&until=2001-01-02T00:00:00Z",
        404,
        "begins at",
    );
    let offset = "from=2001-01-01T00:00:00%2B01:00&until=2001-01-02T00:00:00Z";
    asks(offset, 404, "2000-12-31 23:00:00.000+00:00");
    assert!(site.run(&["status"]).code == 0);
}

#[test]
fn recordings_of_other_formats_are_not_put_into_one_file() {
    if !have("ffmpeg") {
        return;
    }
    let (site, server, address) = serving("");
    let first = clip(&site, "a.mp4", 1, &ENCODED);
    record(&site, address, &first, "tcp");
    let larger = [&ENCODED[..], &["-s", "640x480"]].concat();
    record(&site, address, &clip(&site, "b.mp4", 1, &larger), "tcp");
    let to = site.path("none.mp4").display().to_string();
    let command = ["recording", "export", "cam", "--to", &to, "--from", "-5min"];
    site.run(&command).fails(
        1,
        &[
            "recordings 1 and 2",
            "different tracks or formats",
            "ends at",
            "separately",
        ],
    );
    // Up to the change it can be exported.
    let end = utc(recorded(&site)[1].0);
    site.run(&[&command[..], &["--until", &end]].concat())
        .done();
    assert_eq!(sums(&to, &SEEN), sums(&first, &SEEN));
    server.terminate();
}
