//! `clockwise sim`: figures that are the same again, schedulers that are caught or not, cases that are replayed.

use std::fs;
use std::path::Path;

use testkit::site::{Outcome, clockwise, outcome};

fn sim(args: &[&str]) -> Outcome {
    outcome(clockwise().arg("sim").args(args))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_figure_is_a_page_a_picture_and_numbers_and_the_same_again() {
    let (first, second) = (folder(), folder());
    let figure = |folder: &tempfile::TempDir, threads: &str| {
        let out = folder.path().to_str().expect("a path in UTF-8");
        let args = ["figure", "6.4", "6.5", "--source", "busy", "--out", out];
        sim(&[&args[..], &["--threads", threads, "--seed", "3", "--json"]].concat())
            .done()
            .json()
    };
    let said = figure(&first, "1");
    assert_eq!(said[0]["figure"], "6.4");
    assert_eq!(said[1]["seed"], 3);
    for page in said.as_array().expect("a list of pages") {
        let hash = page["hash"].as_str().expect("a hash");
        let shown = text(Path::new(page["page"].as_str().expect("a page")));
        assert!(shown.contains(hash), "{shown}");
        for statement in page["statements"].as_array().expect("statements") {
            assert!(shown.contains(statement["found"].as_str().expect("what was found")));
        }
        assert!(text(Path::new(page["picture"].as_str().expect("a picture"))).starts_with("<svg"));
    }
    let numbers = text(&first.path().join("figure-6.5.csv"));
    assert!(numbers.starts_with("scheduler,MB/s,"), "{numbers}");
    for scheduler in [
        "exact",
        "delta-l",
        "delta-l-published",
        "lst",
        "edf",
        "alone",
    ] {
        assert!(numbers.contains(&format!("\n{scheduler},")), "{scheduler}");
    }
    // On another number of threads, and with half of it kept from before.
    figure(&second, "3");
    let runs = second.path().join("runs");
    let kept = fs::read_dir(&runs).expect("runs are kept");
    for run in kept.step_by(2) {
        fs::remove_file(run.expect("a run").path()).expect("it can be removed");
    }
    assert_eq!(figure(&second, "2")[1]["hash"], said[1]["hash"]);
    for kind in ["md", "svg", "csv"] {
        for number in ["6.4", "6.5"] {
            let name = format!("figure-{number}.{kind}");
            assert_eq!(
                text(&first.path().join(&name)),
                text(&second.path().join(&name)),
                "{name}"
            );
        }
    }
}

/// Four loads of a second each: everything is served by the clock as in virtual time, and nothing is left behind.
#[test]
fn the_clock_and_the_simulator_serve_the_same() {
    let (folder, drives) = (folder(), folder());
    let path = |folder: &tempfile::TempDir| folder.path().display().to_string();
    let (out, data) = (path(&folder), path(&drives));
    let args = ["figure", "7.1", "--seconds", "1", "--out", &out];
    let said = sim(&[&args[..], &["--drives", &data, "--json"]].concat())
        .done()
        .json();
    assert_eq!(said[0]["figure"], "7.1");
    let numbers = text(&folder.path().join("figure-7.1.csv"));
    let rows: Vec<Vec<&str>> = numbers
        .lines()
        .map(|row| row.split(',').collect())
        .collect();
    let column = |name: &str| {
        let place = rows[0].iter().position(|column| *column == name);
        place.expect("a column of that name")
    };
    assert_eq!(rows.len(), 1 + 4 * 5, "{numbers}");
    for row in &rows[1..] {
        assert_eq!(
            row[column("requests")],
            rows[1][column("requests")],
            "{numbers}"
        );
        assert_eq!(row[column("unserved")], "0", "{numbers}");
        if ["exact", "delta-l"].contains(&row[0]) {
            assert_eq!(row[column("missed_net")], "0", "{numbers}");
        }
    }
    assert_eq!(fs::read_dir(drives.path()).expect("the folder").count(), 0);
    sim(&["figure", "7.1", "--out", &out, "--drives", "/nowhere"])
        .fails(1, &["figure 7.1", "folder"]);
}

#[test]
fn unmeasurable_value_is_refused() {
    sim(&["figure", "6.1", "--out", "x"]).fails(2, &["6.1", "6.5", "all"]);
    sim(&["figure", "6.4", "--out", "/proc/none"]).fails(1, &["/proc/none"]);
    sim(&["adversary", "--scheduler", "fifo"]).fails(2, &["fifo", "exact"]);
    sim(&["replay", "/nowhere/case.toml"]).fails(1, &["/nowhere/case.toml"]);
}

const EXPERIMENT: &str = "\
description = \"A film beside a trace\"
schedulers = [\"exact\", \"edf\"]
loads = \"full\"
slack_every_ms = 1000
latency_slot_ms = 1000

[disks]
count = 1
drive = \"quantum-atlas-ii\"

[[band]]
extent_kib = 1024
volume = [{ name = \"film\", size_kib = 102400 }, { name = \"files\", size_kib = 409600, count = 8 }]

[[stream]]
name = \"film\"
volume = \"film\"
period_ms = 900

[[group]]
streams = [\"film\"]

[[best_effort]]
trace = { file = \"cello.gz\", for_s = 60 }
volumes = [\"files-0\", \"files-1\", \"files-2\"]
";

/// An experiment beside a trace that was written for it: the same on any number of threads, gone on with where it was
/// stopped, and run again when one of its files is another.
#[test]
fn an_experiment_is_run_from_its_file() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let cello = |seed: &str| {
        let args = ["cello", "--source", "busy", "--seed", seed];
        sim(&[&args[..], &["--out", &path("cello.gz")]].concat()).done();
    };
    cello("1");
    let file = path("experiment.toml");
    // Number of devices in that minute, or in the whole file: all of them are met there.
    let devices = "volumes = [\"files-0\", \"files-1\", \"files-2\"]";
    fs::write(&file, EXPERIMENT).expect("an experiment");
    sim(&["run", &file, "--out", &path("none")]).fails(2, &["cello.gz", "devices", "3 volumes"]);
    let all: Vec<String> = (0..7).map(|copy| format!("\"files-{copy}\"")).collect();
    let all = format!("volumes = [{}]", all.join(", "));
    fs::write(&file, EXPERIMENT.replace(devices, &all)).expect("an experiment");
    let run = |out: &str, threads: &str| {
        let args = [
            "run",
            &file,
            "--out",
            &path(out),
            "--threads",
            threads,
            "--json",
        ];
        sim(&args).done().json()
    };
    let first = run("first", "1");
    assert_eq!(first["traces"][0]["format"], "disksim");
    assert_eq!(first["runs"][0]["scheduler"], "exact");
    assert_eq!(first["runs"][0]["measured"]["missed"], 0);
    assert!(first["runs"][0]["measured"]["best_effort"]["count"].as_u64() > Some(100));
    let second = run("second", "2");
    assert_eq!(first["hash"], second["hash"]);
    let names = [
        "results.csv",
        "streams.csv",
        "disks.csv",
        "latency.csv",
        "slack.csv",
        "results.json",
    ];
    for name in names {
        let of = |out: &str| text(&folder.path().join(out).join(name));
        assert_eq!(of("first"), of("second"), "{name}");
        assert!(of("first").lines().count() > 2, "{name}");
    }
    // A run that was kept is not measured again, one that is gone is.
    let kept = folder.path().join("second/runs");
    let mut runs: Vec<_> = fs::read_dir(&kept)
        .expect("runs are kept")
        .map(|run| run.expect("a run").path())
        .collect();
    runs.sort();
    assert_eq!(runs.len(), 2);
    let changed = text(&runs[0]).replacen("\"switches\": ", "\"switches\": 9", 1);
    fs::write(&runs[0], &changed).expect("a kept run");
    fs::remove_file(&runs[1]).expect("a kept run");
    run("second", "2");
    assert_eq!(text(&runs[0]), changed);
    let of = |out: &str| text(&folder.path().join(out).join("results.csv"));
    assert_ne!(of("first"), of("second"));
    // The trace is another one now, under the same name.
    cello("2");
    assert_ne!(run("second", "2")["hash"], first["hash"]);
    let shown = sim(&["run", &file, "--out", &path("second")]).done();
    assert!(shown.out.contains("results.csv"), "{}", shown.out);
    assert!(shown.err.contains("A film beside a trace"), "{}", shown.err);
}

#[test]
fn an_experiment_that_makes_no_sense_is_told() {
    let folder = folder();
    let file = folder.path().join("experiment.toml").display().to_string();
    let out = folder.path().join("out").display().to_string();
    let says = |text: &str, status: i32, what: &[&str]| {
        fs::write(&file, text).expect("an experiment");
        sim(&["run", &file, "--out", &out]).fails(status, what);
        assert!(!Path::new(&out).join("results.csv").exists());
    };
    says("", 2, &["experiment.toml", "disks", "experiment.md"]);
    says("loads = [", 2, &["experiment.toml", "1"]);
    says(
        &EXPERIMENT.replace("count = 1", "count = 0"),
        2,
        &["experiment.toml", "`count` is 0"],
    );
    says(EXPERIMENT, 2, &["cello.gz", "No such file"]);
    let alone = EXPERIMENT
        .split("[[best_effort]]")
        .next()
        .expect("a beginning");
    says(alone, 2, &["duration_s"]);
    says(
        &format!("duration_s = 10\n{}", alone.replace("\"full\"", "[999]")),
        2,
        &["no room for", "disk 0", "until-full"],
    );
    sim(&["run", "/nowhere/x.toml", "--out", &out]).fails(2, &["/nowhere/x.toml"]);
    let valid = format!("duration_s = 10\n{alone}");
    fs::write(&file, valid).expect("an experiment");
    sim(&["run", &file, "--out", "/proc/none"]).fails(1, &["/proc/none"]);
    sim(&["cello", "--out", "/proc/none"]).fails(1, &["/proc/none"]);
}

#[test]
fn the_published_rule_is_caught_and_its_case_replayed() {
    let folder = folder();
    let (case, picture) = (
        folder.path().join("case.toml"),
        folder.path().join("case.svg"),
    );
    let (case, picture) = (
        case.to_str().expect("a path in UTF-8"),
        picture.to_str().expect("a path in UTF-8"),
    );
    let args = [
        "adversary",
        "--scheduler",
        "delta-l-published",
        "--sets",
        "10000",
    ];
    let found = sim(&[&args[..], &["--seed", "5", "--case", case, "--json"]].concat())
        .done()
        .json();
    assert_eq!(found["sets"], 10_000);
    assert!(found["sets_with_misses"].as_u64().expect("a number") > 0);
    let late = |args: &[&str]| {
        sim(&[&["replay", case, "--json"], args].concat())
            .done()
            .json()["late"]
            .as_bool()
            .expect("a verdict")
    };
    assert!(late(&["--picture", picture]));
    assert!(text(Path::new(picture)).contains("late by"));
    for scheduler in ["exact", "delta-l"] {
        assert!(!late(&["--scheduler", scheduler]), "{scheduler}");
    }
    let shown = sim(&["replay", case]).done().out;
    assert!(shown.ends_with("A deadline was missed.\n"), "{shown}");
}

#[test]
fn rules_that_are_right_are_not_caught_and_rules_that_are_wrong_are() {
    for (scheduler, sets, away, sweep, is_right) in [
        ("exact", "20000", "0", "0", true),
        ("delta-l", "20000", "0", "0", true),
        ("exact", "1500", "3", "0", true),
        ("delta-l", "1500", "3", "0", true),
        ("exact", "1500", "3", "2", true),
        ("delta-l", "1500", "2", "1", true),
        ("lst", "100", "0", "0", false),
        ("edf", "100", "0", "0", false),
        ("edf", "100", "2", "1", false),
    ] {
        let args = [
            "adversary",
            "--scheduler",
            scheduler,
            "--sets",
            sets,
            "--away",
            away,
            "--sweep",
            sweep,
            "--json",
        ];
        let found = sim(&args).done().json();
        let misses = found["sets_with_misses"].as_u64().expect("a number");
        assert_eq!(
            misses == 0,
            is_right,
            "{scheduler}, away by {away}, ways of {sweep}: {misses} of {sets}"
        );
    }
}

#[test]
fn disks_of_a_link_are_attacked_too() {
    let attack = |link: &str, args: &[&str]| sim(&[&["adversary", "--link", link], args].concat());
    for link in ["inflate", "lend"] {
        let found = |args: &[&str]| attack(link, &[&["--json"], args].concat()).done().json();
        let right = found(&["--sets", "100", "--disks", "3"]);
        assert_eq!(right["link"], link);
        assert_eq!(right["sets"], 100);
        assert_eq!(right["sets_with_misses"], 0);
        assert_eq!(right["sets_beyond_bounds"], 0);
        assert!(right["first_miss"].is_null(), "{right}");

        let wrong = [
            "--sets",
            "100",
            "--scheduler",
            "delta-l-published",
            "--seed",
            "4",
        ];
        let alone = found(&[&wrong[..], &["--threads", "1"]].concat());
        assert_eq!(alone, found(&[&wrong[..], &["--threads", "4"]].concat()));
        let misses = alone["sets_with_misses"].as_u64().expect("a number");
        assert!((1..100).contains(&misses), "{alone}");
        let miss = &alone["first_miss"];
        let promise = miss["tasks"].as_array().expect("tasks by disk").len();
        assert_eq!(promise, if link == "inflate" { 2 } else { 1 });
        assert!(miss["late_by"].as_u64().expect("a time") > 0, "{miss}");
        let shown = attack(link, &wrong).done().out;
        assert!(
            shown.contains(&format!("{misses} of 100 sets (seed 4)")),
            "{shown}"
        );
        assert!(
            shown.contains(&format!("at its deadline {}\n", miss["deadline"])),
            "{shown}"
        );

        for option in [["--case", "case.toml"], ["--away", "3"], ["--sweep", "2"]] {
            attack(link, &option).fails(2, &["--link", option[0], "cannot be used with"]);
        }
        attack(link, &["--disks", "4"]).fails(2, &["4", "2..=3"]);
    }
    sim(&["adversary", "--disks", "3"]).fails(2, &["--link"]);
    sim(&["adversary", "--link", "share"]).fails(2, &["share", "inflate", "lend"]);
}

/// The cases of docs/design/faults.md, and the pictures there.
#[test]
fn the_faults_are_faults_and_mended() {
    let folder = folder();
    let picture = folder.path().join("case.svg");
    let picture = picture.to_str().expect("a path in UTF-8");
    let mut names = Vec::new();
    for entry in fs::read_dir("../../docs/design/faults").expect("the folder of cases") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let case = path.to_str().expect("a path in UTF-8");
        let late = |args: &[&str]| {
            let replay = sim(&[&["replay", case, "--json"], args].concat());
            replay.done().json()["late"].as_bool().expect("a verdict")
        };
        assert!(late(&["--picture", picture]), "{case}");
        assert_eq!(
            text(Path::new(picture)),
            text(&path.with_extension("svg")),
            "{case}"
        );
        for scheduler in ["exact", "delta-l"] {
            assert!(!late(&["--scheduler", scheduler]), "{case} by {scheduler}");
        }
        names.extend(path.file_stem().map(|name| name.display().to_string()));
    }
    names.sort();
    assert_eq!(names, ["horizon", "in-flight", "lst", "replenishment"]);
}

#[test]
fn a_case_that_makes_no_sense_is_told_where() {
    let folder = folder();
    let path = folder.path().join("case.toml");
    let name = path.to_str().expect("a path in UTF-8");
    let task = "scheduler = \"exact\"\n[[task]]\nservice = 2\nperiod = 5\n";
    for (text, words) in [
        (String::new(), ["case.toml", "scheduler"]),
        (format!("{task}[[event]]\nat = 1\n"), ["5", "`release`"]),
        (
            format!("{task}[[event]]\nat = 1\nrelease = 7\n"),
            ["event 1", "no such task"],
        ),
        (
            task.replace("service = 2", "service = 9"),
            ["task 1", "service <= period"],
        ),
    ] {
        fs::write(&path, text).expect("it can be written");
        sim(&["replay", name]).fails(2, &words);
    }
}

/// A drive of DiskSim's files, from the corpus of the fuzzer, in a folder.
fn drive_files(folder: &Path) {
    let all = include_str!("../../../../fuzz/corpus/drive/zones");
    let all = format!("=== drive.parv\n{all}");
    for part in all.split("=== ").skip(1) {
        let (name, text) = part.split_once('\n').expect("a name and a text");
        fs::write(folder.join(name), text).expect("a file");
    }
}

#[test]
fn a_drive_is_imported_and_a_measured_trace_is_replayed_on_it() {
    let folder = folder();
    drive_files(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (dir, plant, trace, out) = (path(""), path("made.toml"), path("t.trace"), path("out"));
    let said = sim(&["plant", "import", &dir, "--out", &plant, "--json"])
        .done()
        .json();
    assert_eq!(said["name"], "MADE");
    assert_eq!(said["sectors"], 34_000);
    // Measured by nobody: hits take 0.38 ms on this drive, and 1 ms here.
    fs::write(
        &trace,
        "R Miss 0 4 9000.0 50000.0\nR Hit 0 4 1000.0 50000.0\nR Hit 4 4 1000 50000\nW Hit 0 4 1000 9\n",
    )
    .expect("a trace");
    let replay = |more: &[&str]| {
        let args = [&["replay-trace", &plant, &trace][..], more].concat();
        sim(&args)
    };
    let said = replay(&["--json", "--out", &out]).done().json();
    for of in [&said, &said["reads"], &said["writes"]] {
        for key in ["demerit_ms", "mean_measured_ms", "mean_simulated_ms"] {
            assert!(of[key].as_f64().expect("a number") > 0.0, "{said}");
        }
    }
    assert_eq!(said["writes"]["mean_measured_ms"], 1.0);
    // Overhead of a write after a read 0.5 ms, doubled by the time scale; 4 sectors of 0.03 ms; completion.
    let write = said["writes"]["mean_simulated_ms"]
        .as_f64()
        .expect("a number");
    assert!((write - (1.0 + 0.12 + 0.12)).abs() < 1e-9, "{said}");
    assert_eq!(said["reads"]["requests"], 3);
    assert_eq!(
        replay(&["--json", "--out", &out]).done().json(),
        said,
        "the same again"
    );
    let slower = replay(&["--json", "--without-caches"]).done().json();
    let mean = |said: &serde_json::Value| said["mean_simulated_ms"].as_f64().expect("a number");
    assert!(mean(&slower) > mean(&said), "{slower}");
    let page = text(&folder.path().join("out/made.md"));
    assert!(
        page.contains("made.svg") && page.contains("demerit"),
        "{page}"
    );
    assert!(text(&folder.path().join("out/made.svg")).starts_with("<svg"));
    assert!(text(&folder.path().join("out/made.csv")).contains("\nwrites,"));
}

#[test]
fn wrong_drives_and_traces_are_refused_with_their_place() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let refused = |args: &[&str], words: &[&str]| sim(args).fails(2, words);
    let (dir, plant, trace) = (path(""), path("made.toml"), path("t.trace"));
    refused(
        &["plant", "import", &path("none"), "--out", &plant],
        &["not a folder"],
    );
    refused(&["plant", "import", &dir, "--out", &plant], &[".parv"]);
    drive_files(folder.path());
    let model = folder.path().join("drive.model");
    let right = text(&model);
    fs::write(&model, format!("source drive.diskspecs\n{right}")).expect("a file");
    refused(
        &["plant", "import", &dir, "--out", &plant],
        &[
            "circle",
            "drive.diskspecs -> drive.model -> drive.diskspecs",
        ],
    );
    fs::write(
        &model,
        right.replace("Blocks per track = 50", "Blocks per track = 0"),
    )
    .expect("a file");
    refused(
        &["plant", "import", &dir, "--out", &plant],
        &["drive.model:", "Blocks per track"],
    );
    fs::write(&model, right).expect("a file");
    sim(&["plant", "import", &dir, "--out", &plant]).done();
    fs::write(&trace, "R Hit 0 4 1 1\nR Hit 33999 2 1 1\n").expect("a trace");
    refused(&["replay-trace", &plant, &trace], &["request 2", "34000"]);
    fs::write(&trace, "R Hit 0 4 1\n").expect("a trace");
    refused(&["replay-trace", &plant, &trace], &["line 1", "5 columns"]);
    fs::write(&trace, [0x1F, 0x8B, 8, 0, 1, 2, 3]).expect("a trace");
    refused(&["replay-trace", &plant, &trace], &["t.trace"]);
    let changed = text(Path::new(&plant)).replacen("heads = 2", "heads = 0", 1);
    fs::write(&plant, changed).expect("a plant");
    refused(&["replay-trace", &plant, &trace], &["mechanics.heads"]);
    fs::write(&plant, "kind = \"controller\"\nname = 1\n").expect("a plant");
    refused(&["replay-trace", &plant, &trace], &["made.toml"]);
}

/// A server with short movies, and where it lies.
fn video_server(folder: &tempfile::TempDir, change: (&str, &str)) -> String {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/video/server.toml"
    );
    let text = text(Path::new(example))
        .replace("[100, 120]", "[1, 1]")
        .replace("movies = 300", "movies = 100")
        .replacen(change.0, change.1, 1);
    let path = folder.path().join("server.toml");
    fs::write(&path, text).expect("it can be written");
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn a_video_server_carries_as_many_streams_on_any_number_of_threads() {
    let folder = folder();
    let server = video_server(&folder, ("think_s = 60", "think_s = 1"));
    let run = |threads: &str| {
        sim(&["video", &server, "--threads", threads, "--json"])
            .done()
            .json()
    };
    let (one, two) = (run("1"), run("2"));
    assert_eq!(one["runs"], two["runs"]);
    assert_eq!(one["late"], 0);
    assert!(one["streams_min"].as_u64() > Some(20), "{one}");
    assert!(one["requests_per_second"].as_f64() > Some(0.0), "{one}");
}

#[test]
fn faults_of_a_video_server_name_file_and_line() {
    let folder = folder();
    for (change, line, says) in [
        (
            ("ids = [0, 1, 2, 3]", "ids = []"),
            6,
            "a channel needs disks",
        ),
        (("[0, 1, 2, 3]", "[0, 1, 1]"), 6, "two disks have the id 1"),
        (
            ("max_outstanding = 2", "max_outstanding = 9"),
            15,
            "the segments of the drive's buffer",
        ),
        (("= 3000", "= 0"), 8, "`stream_kbit_per_s` is 0"),
        (
            ("[1, 1]", "[1, 9999]"),
            16,
            "all disks together have room for",
        ),
    ] {
        let server = video_server(&folder, change);
        let failed = sim(&["video", &server]);
        assert_eq!(failed.code, 2, "{says}");
        assert!(
            failed.err.contains(&format!("server.toml:{line}:")),
            "{}",
            failed.err
        );
        assert!(failed.err.contains(says), "{}", failed.err);
    }
}
