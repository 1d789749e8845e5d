//! Placement of volumes from the command line: disks, zones, byte ranges, runs of extents; and refusals of
//! places that do not exist.

use serde_json::{Value, json};
use testkit::site::{Outcome, Site, call};

const MIB: u64 = 1 << 20;

fn create(site: &Site, name: &str, options: &[&str]) -> Outcome {
    site.run(&[&["volume", "create", name, "--size", "8MiB"], options].concat())
}

/// A run of a volume's extents.
#[derive(Debug, PartialEq)]
struct Run {
    disk: String,
    extents: u64,
    from: u64,
    to: u64,
    zone: u64,
}

/// Places of a volume in the JSON of `volume show --places`; the text says the same.
fn places(site: &Site, name: &str) -> Vec<Run> {
    let places = site.json(&["volume", "show", name, "--places"]);
    let text = site.run(&["volume", "show", name, "--places"]).done().out;
    let places = places.as_array().expect("a list");
    assert_eq!(text.lines().count(), places.len() + 1, "{text}");
    let number = |place: &Value, key: &str| place[key].as_u64().expect("a number");
    let mut at = 0;
    let mut runs = Vec::new();
    for place in places {
        assert_eq!(number(place, "offset_bytes"), at, "{places:?}");
        let run = Run {
            disk: place["disk"].as_str().expect("a disk").to_owned(),
            extents: number(place, "extents"),
            from: number(place, "from_byte"),
            to: number(place, "to_byte"),
            zone: number(place, "zone"),
        };
        assert_eq!(run.to - run.from, run.extents * MIB, "{run:?}");
        assert!(text.contains(&run.disk), "{text}");
        at += run.extents * MIB;
        runs.push(run);
    }
    let size = site.json(&["volume", "show", name])["size_bytes"].as_u64();
    assert_eq!(Some(at), size, "not all of the volume is told");
    runs
}

/// First byte of each zone of a drive, from `disk show`.
fn zones(site: &Site) -> Vec<u64> {
    let disk = site.json(&["disk", "show", "0"]);
    let starts = disk["zone_starts_bytes"].as_array().expect("zones");
    starts
        .iter()
        .map(|start| start.as_u64().expect("a byte"))
        .collect()
}

#[test]
fn a_named_disk_a_zone_a_range_and_runs_have_their_effect() {
    let (site, server) = Site::serving_drives(2);
    let disk = |number: usize| site.path(&format!("drive-{number}")).display().to_string();
    // In turn when nothing is said.
    create(&site, "turns", &[]).done();
    let turns = places(&site, "turns");
    assert_eq!(turns.len(), 8, "{turns:?}");
    assert!(
        turns.windows(2).all(|pair| pair[0].disk != pair[1].disk),
        "{turns:?}"
    );
    // In runs of three: 3, 3, 2.
    create(&site, "runs", &["--run", "3"]).done();
    let runs = places(&site, "runs");
    let lengths: Vec<u64> = runs.iter().map(|run| run.extents).collect();
    assert_eq!(lengths, [3, 3, 2], "{runs:?}");
    assert!(
        runs[0].disk != runs[1].disk && runs[0].disk == runs[2].disk,
        "{runs:?}"
    );
    // On one disk.
    create(&site, "one", &["--disk", &disk(1)]).done();
    assert!(places(&site, "one").iter().all(|run| run.disk == disk(1)));
    // In a zone of each.
    let starts = zones(&site);
    assert!(starts.len() > 8, "{starts:?}");
    create(&site, "zone", &["--zone", "7"]).done();
    for run in places(&site, "zone") {
        assert!(
            run.zone == 7 && run.from >= starts[7] && run.to <= starts[8],
            "{run:?}"
        );
    }
    let shown = site.run(&["disk", "show", "0"]).done().out;
    assert!(
        shown.contains("zones ") && shown.contains(", 7 from "),
        "{shown}"
    );
    // In a range of bytes, of one disk.
    let range = [
        "--from-byte",
        "1GiB",
        "--to-byte",
        "1.5GiB",
        "--disk",
        &disk(0),
    ];
    create(&site, "range", &range).done();
    for run in places(&site, "range") {
        assert!(
            run.disk == disk(0) && run.from >= 1 << 30 && run.to <= 3 << 29,
            "{run:?}"
        );
    }
    // Added and moved extents go to their own placement.
    let grow = ["volume", "grow", "one", "--size", "10MiB", "--zone", "2"];
    site.run(&grow).done();
    let grown = places(&site, "one");
    assert_eq!(
        grown
            .iter()
            .filter(|run| run.zone == 2)
            .map(|run| run.extents)
            .sum::<u64>(),
        2
    );
    let to = disk(1);
    let moved = site.json(&["volume", "move", "range", "--disk", &to, "--zone", "5"]);
    assert_eq!(
        (&moved["users"], &moved["open_count"]),
        (&json!([]), &json!(0)),
        "the move itself is over"
    );
    assert!(
        places(&site, "range")
            .iter()
            .all(|run| run.disk == to && run.zone == 5)
    );
    assert_eq!(server.terminate().0, Some(0));
    // All of it is on the disks.
    let server = site.serve();
    assert!(
        places(&site, "range")
            .iter()
            .all(|run| run.disk == to && run.zone == 5)
    );
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_volume_that_shrinks_is_placed_nowhere() {
    let (site, server) = Site::serving(1);
    create(&site, "v", &[]).done();
    let before = places(&site, "v");
    let resize = |size: u64, direction: &str, placement: Value| {
        let mut ask = json!({ "size_bytes": size, "placement": placement });
        if !direction.is_empty() {
            ask["direction"] = direction.into();
        }
        call(&site, "PATCH", "/v1/volumes/v", &ask.to_string())
    };
    for direction in ["", "shrink"] {
        let (status, problem) = resize(4 * MIB, direction, json!({ "zone": 0 }));
        assert_eq!(status, 422, "{problem}");
        let what = problem["what"].as_str().expect("words");
        assert!(what.contains("shrinks"), "{what}");
    }
    assert_eq!(places(&site, "v"), before);
    // A placement that says nothing is none, and where it grows there is something to place.
    assert_eq!(resize(4 * MIB, "", json!({})).0, 200);
    assert_eq!(resize(6 * MIB, "", json!({ "zone": 0 })).0, 200);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn places_that_are_none_are_refused_with_what_there_is() {
    let (site, server) = Site::serving_drives(2);
    let refused = |options: &[&str], words: &[&str]| create(&site, "v", options).fails(2, words);
    let zones_end = (zones(&site).len() - 1).to_string();
    refused(
        &["--zone", "99"],
        &["zones 0 to", &zones_end, "no zone 99", "disk show"],
    );
    refused(
        &["--disk", "drive-9"],
        &["no disk \"drive-9\"", "drive-0", "drive-1", "disk show"],
    );
    refused(
        &["--from-byte", "1TB"],
        &["no disk has a part behind", "931.3 GiB", "disk show"],
    );
    let reversed = ["--from-byte", "2GiB", "--to-byte", "1GiB"];
    refused(&reversed, &["between 2 GiB and 1 GiB", "disk show"]);
    let elsewhere = ["--zone", "0", "--from-byte", "8GiB"];
    refused(&elsewhere, &["zone 0", "8 GiB", "disk show"]);
    let narrow = ["--from-byte", "1GiB", "--to-byte", "1.001GiB"];
    refused(
        &narrow,
        &[
            "8 extents (8 MiB) are needed",
            "within the given range",
            "ask for less",
        ],
    );
    // A value that cannot be parsed is refused before the server is asked.
    refused(&["--zone", "-1"], &["--zone"]);
    refused(&["--zone", "outer"], &["--zone", "outer"]);
    refused(&["--run", "0"], &["--run", "0"]);
    refused(&["--from-byte", "lots"], &["--from-byte", "not a number"]);
    refused(&["--to-byte=-1"], &["--to-byte", "negative"]);
    refused(&["--to-byte", "1K"], &["--to-byte", "KiB"]);
    // None of it made anything.
    assert_eq!(site.json(&["volume", "list"]), json!([]));
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_disk_is_named_as_it_is_to_be_shown() {
    let (site, server) = Site::serving(2);
    let whole = site.path("disk-1").display().to_string();
    for (number, name) in ["disk-1", "1", &whole].into_iter().enumerate() {
        assert_eq!(site.json(&["disk", "show", name])["name"], *whole);
        let volume = format!("v{number}");
        let made = site.json(&[
            "volume", "create", &volume, "--size", "2MiB", "--disk", name,
        ]);
        assert_eq!(
            made["extents_by_disk"],
            serde_json::json!([{ "disk": whole, "extents": 2 }])
        );
    }
    site.run(&["volume", "move", "v0", "--disk", "disk-7"])
        .fails(2, &["no disk \"disk-7\""]);
    assert_eq!(server.terminate().0, Some(0));
}
