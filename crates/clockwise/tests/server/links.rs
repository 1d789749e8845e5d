//! Disks that share a link, from the configuration to what the commands show.

use serde_json::{Value, json};
use testkit::nbd::Wire;
use testkit::process::Process;
use testkit::site::{Outcome, Site, call, clockwise};
use testkit::{Random, until};

/// A site with three emulated drives, behind a link of this rate with these other keys.
fn site(rate: &str, keys: &str) -> Site {
    let site = Site::new(1);
    let mut text = String::from(
        "[server]\napi = \"api.sock\"\nrealtime = false\n[nbd]\nunix = \"nbd.sock\"\n",
    );
    for drive in 0..3 {
        text += &format!(
            "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
             profile = \"quantum-atlas-ii\"\n"
        );
    }
    let disks = "[\"drive-0\", \"drive-1\", \"drive-2\"]";
    text += &format!("[[link]]\nname = \"string\"\ndisks = {disks}\nrate = \"{rate}\"\n{keys}");
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site
}

fn created(rate: &str, keys: &str) -> Site {
    let site = site(rate, keys);
    site.run(&["pool", "create", "--extent", "1MiB"]).done();
    site
}

/// The row of `disk show` that starts with this word.
fn row(shown: &Outcome, word: &str) -> String {
    let mut lines = shown.out.lines();
    let row = lines.find(|line| line.starts_with(word));
    row.unwrap_or_else(|| panic!("no {word} in {shown:?}"))
        .to_owned()
}

#[test]
fn link_that_cannot_be_is_refused_with_its_line() {
    site("9MB/s", "").run(&["pool", "create"]).fails(
        2,
        &[
            "clockwise.toml:",
            "link `string` carries 9",
            " alone, whose profile has 11",
        ],
    );
}

/// The pieces of a disk with platters would never fit into the slack of one without.
#[test]
fn link_on_which_fast_disks_lend_to_slow_ones_is_refused() {
    let site = Site::new(1);
    let mut text = "[server]\napi = \"api.sock\"\nrealtime = false\n".to_owned();
    for (drive, profile) in ["conservative-solid-state", "quantum-atlas-ii"]
        .iter()
        .enumerate()
    {
        text += &format!(
            "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
             profile = \"{profile}\"\noutstanding = 1\n"
        );
    }
    text += "[[link]]\nname = \"l\"\ndisks = [\"drive-0\", \"drive-1\"]\nrate = \"250MB/s\"\nadmission = \"lend\"\n";
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).fails(
        2,
        &[
            "clockwise.toml:",
            "drive-1",
            "is to lend it a place",
            "inflate",
        ],
    );
}

#[test]
fn first_disks_of_a_link_that_lends_promise_and_the_others_do_not() {
    // Each drive reads 11 MB/s at most.
    let site = created("23MB/s", "admission = \"lend\"\n");
    let server = site.serve();
    for disk in 0..3 {
        let volume = format!("v{disk}");
        let path = site.path(&format!("drive-{disk}")).display().to_string();
        site.run(&[
            "volume", "create", &volume, "--size", "8MiB", "--disk", &path,
        ])
        .done();
    }
    let play = |volume| {
        [
            "stream",
            "play",
            "--volume",
            volume,
            "--rate",
            "400KB/s",
            "--block",
            "64KiB",
            "--length",
            "256KiB",
            "--to",
            "/dev/null",
        ]
    };
    site.run(&play("v2")).fails(
        2,
        &[
            "drive-2 has no place of its own on link \"string\"",
            "admission",
        ],
    );
    site.run(&play("v1")).done();
    let shown = site.run(&["disk", "show", "2"]).done();
    assert!(
        row(&shown, "link").ends_with("this disk has no place on it: best effort only"),
        "{shown:?}"
    );
    let shown = site.run(&["disk", "show", "1"]).done();
    assert!(
        row(&shown, "link").contains("string, streams of all its disks use 0.0 % of 23"),
        "{shown:?}"
    );
    drop(server);
}

/// Writes and reads of each disk's client of best effort.
const REQUESTS: u64 = 48;

/// The highest rate at which a volume can be recorded, in bytes a second.
fn rate_that_fits(site: &Site, volume: &str) -> u64 {
    let much = json!({ "volume": volume, "op": "record", "rate_bytes_per_second": 1_u64 << 40, "block_bytes": 1 << 18 });
    let (status, refused) = call(site, "POST", "/v1/streams", &much.to_string());
    assert_eq!(status, 409, "{refused}");
    let rate = refused["refusal"]["rate_that_fits"].as_u64();
    rate.expect("a rate")
}

/// A recording of zeros with four fifths of what its disk promises.
fn record(site: &Site, volume: &str) -> Process {
    let rate = rate_that_fits(site, volume) / 5 * 4;
    let mut record = clockwise();
    record.arg("--config").arg(site.config());
    record.args(["stream", "record", "--from", "/dev/zero", "--wrap"]);
    record.args(["--volume", volume, "--block", "256KiB"]);
    record.args(["--rate", &format!("{rate}B/s")]);
    Process::captured(&mut record)
}

/// Writes at random places of a volume, and reads them back.
fn exercise(site: &Site, volume: &str, random: &mut Random) {
    let mut wire = Wire::structured(&site.path("nbd.sock"), volume);
    for number in 0..REQUESTS {
        let at = random.below(2048) * 4096;
        let data = [number as u8; 4096];
        assert_eq!(wire.write(0, at, &data).error, 0);
        assert_eq!(wire.read_range(at, 4096), data, "{volume}, {at}");
    }
}

/// Recordings on the disks that promise, best effort on all three, on an emulated link that all of them together
/// overload. Late times are net of the host's.
#[test]
fn streams_on_a_link_are_in_time_beside_best_effort_on_all_its_disks() {
    let mut random = Random(testkit::seed("streams on a link", None));
    for (admission, promising) in [("inflate", 3), ("lend", 2)] {
        let site = created("23MB/s", &format!("admission = \"{admission}\"\n"));
        let server = site.serve();
        let create = |volume: &str, disk: usize| {
            let path = site.path(&format!("drive-{disk}")).display().to_string();
            let on = ["--size", "8MiB", "--disk", &path];
            site.run(&[&["volume", "create", volume], &on[..]].concat())
                .done();
        };
        for disk in 0..3 {
            create(&format!("files-{disk}"), disk);
            create(&format!("recording-{disk}"), disk);
        }
        let recordings: Vec<Process> = (0..promising)
            .map(|disk| record(&site, &format!("recording-{disk}")))
            .collect();
        until("all record", || {
            let streams = site.json(&["stream", "list"]);
            let has_begun = |of: &Value| of["stream"]["blocks"].as_u64() > Some(0);
            streams
                .as_array()
                .is_some_and(|of| of.len() == promising && of.iter().all(has_begun))
        });
        std::thread::scope(|scope| {
            for disk in 0..3 {
                let (site, mut random) = (&site, Random(random.below(1 << 40)));
                scope.spawn(move || exercise(site, &format!("files-{disk}"), &mut random));
            }
        });
        for disk in 0..3 {
            let shown = site.json(&["disk", "show", &disk.to_string()]);
            let promises = disk < promising;
            assert_eq!(shown["link"]["promises"], promises, "{shown}");
            assert_eq!(shown["misses"], 0, "{admission}: {shown}");
            assert_eq!(shown["overruns"], 0, "{admission}: {shown}");
            let best_effort = shown["completed"]["sync"].as_u64();
            assert!(best_effort >= Some(REQUESTS), "{shown}");
            let blocks = shown["completed"]["streams"].as_u64();
            assert_eq!(blocks > Some(0), promises, "{shown}");
        }
        drop(recordings);
        drop(server);
    }
}
