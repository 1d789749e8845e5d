//! Places of emulated drives that fail while the server runs: what a recording, `disk show` and `pool check` make of it.

use serde_json::json;
use testkit::site::{Site, call, read};
use testkit::{pattern, until};

const FAULTS: &str = "/v1/disks/0/faults";

#[test]
fn a_region_fails_under_a_recording_on_an_emulated_drive() {
    let (site, server) = Site::serving_drives(1);
    site.run(&["volume", "create", "v", "--size", "16MiB"])
        .done();
    let (status, places) = call(&site, "GET", "/v1/volumes/v/places", "");
    assert_eq!(status, 200, "{places}");
    let start = places[0]["from_byte"].as_u64().expect("a place");
    // From the middle of the first megabyte on, for reads and writes.
    let fault = json!({ "from_byte": start + (512 << 10), "bytes": 1 << 20, "rotations": 2, "fails": true });
    let faults = json!({ "faults": [fault] }).to_string();
    assert_eq!(call(&site, "PATCH", FAULTS, &faults).0, 200);
    let data = pattern(3, 2 << 20);
    std::fs::write(site.path("in"), &data).expect("a file");
    let (from, to) = (site.path("in"), site.path("out"));
    let (from, to) = (from.display().to_string(), to.display().to_string());
    let how = ["--rate", "1MB/s", "--block", "256KiB"];
    let record = ["stream", "record", "--volume", "v", "--from", &from];
    site.run(&[&record[..], &how].concat()).done();
    let play = ["stream", "play", "--volume", "v", "--length", "2MiB"];
    site.run(&[&play[..], &how, &["--to", &to]].concat()).done();
    assert!(
        read(&site.path("out")) == data,
        "another recording is played"
    );
    until("no data is left at a bad place", || {
        site.json(&["disk", "show", "0"])["places_to_leave"] == 0
    });
    let disk = site.json(&["disk", "show", "0"]);
    let bad = disk["bad_places"].as_u64().expect("a number");
    assert!(bad > 0 && disk["write_errors"].as_u64() > Some(0), "{disk}");
    let shown = site.run(&["disk", "show", "0"]).done().out;
    assert!(shown.contains(&format!("{bad} bad")), "{shown}");
    assert_eq!(server.terminate().0, Some(0));
    let checked = site.run(&["pool", "check"]).done().out;
    assert!(checked.contains("bad"), "{checked}");
    let server = site.serve();
    assert_eq!(site.json(&["disk", "show", "0"])["bad_places"], bad);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_disk_that_is_no_emulated_drive_takes_no_faults() {
    let (site, server) = Site::serving(1);
    let (status, answer) = call(&site, "PATCH", FAULTS, "{\"faults\":[]}");
    assert_eq!(status, 409, "{answer}");
    assert!(
        answer.to_string().contains("not an emulated drive"),
        "{answer}"
    );
    assert_eq!(server.terminate().0, Some(0));
}
