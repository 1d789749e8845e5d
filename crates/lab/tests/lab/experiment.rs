//! Experiments as files: the shipped ones are what they say, what is asked for is done, and what makes no
//! sense is told.

use std::path::{Path, PathBuf};
use testkit::skip;

use lab::experiment::{Experiment, ExperimentError, Results};
use lab::sweep::Sweep;
use lab::thesis::{Layout, Point, Source, Thesis, Times};
use sched::disk::OverPrediction;
use sched::policy::Policy;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/experiments")
}

fn example(name: &str) -> String {
    let path = examples().join(format!("{name}.toml"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn run_in(text: &str, folder: &Path) -> Results {
    let experiment = Experiment::parse(text, folder).unwrap_or_else(|error| panic!("{error}"));
    let sweep = Sweep {
        threads: 2,
        folder: None,
        progress: &|_, _| {},
    };
    experiment
        .run(&sweep)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn run(text: &str) -> Results {
    run_in(text, &examples())
}

fn wrong(text: &str, folder: &Path) -> String {
    let experiment = match Experiment::parse(text, folder) {
        Ok(experiment) => experiment,
        Err(error) => return error.to_string(),
    };
    let sweep = Sweep {
        threads: 1,
        folder: None,
        progress: &|_, _| {},
    };
    experiment
        .run(&sweep)
        .expect_err("it makes no sense")
        .to_string()
}

/// Replaces what is there exactly once.
fn with(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "`{from}` in {text}");
    text.replace(from, to)
}

/// The program's figures and the files beside them describe the same runs, to the nanosecond.
#[test]
fn the_examples_are_the_figures() {
    for (name, layout, over_prediction) in [
        ("figure-6.5", Layout::Rotation, OverPrediction::Known),
        ("figure-6.7", Layout::Random, OverPrediction::Known),
        ("figure-6.9", Layout::Random, OverPrediction::Given),
        (
            "figure-6.10",
            Layout::MemoryOptimized,
            OverPrediction::Known,
        ),
        (
            "figure-6.11",
            Layout::MemoryOptimizedLarge,
            OverPrediction::Known,
        ),
    ] {
        let mut text = with(&example(name), "\"day\"", "\"busy\"");
        text = if name == "figure-6.9" {
            with(&text, "loads = \"full\"", "loads = [4]")
        } else {
            with(&text, "loads = \"until-full\"", "loads = [4]")
        };
        let seed = 3;
        text = format!(
            "seeds = [{seed}]\nschedulers = [\"exact\", \"delta-l\"]\nduration_s = 1300\n{text}"
        );
        let results = run(&text);
        let thesis = Thesis::new(layout, Times::Printed, seed).expect("the thesis fits");
        let load = thesis.cello(&Source::Busy.period(), seed);
        for (of, policy) in results.runs.iter().zip([Policy::Exact, Policy::DeltaL]) {
            let point = Point {
                layout,
                times: Times::Printed,
                policy,
                pairs: 4,
                source: Source::Busy,
                seed,
                over_prediction,
            };
            let measured = point.run(&thesis, &load).expect("four pairs fit");
            assert_eq!(of.measured.hash, measured.hash, "{name} {policy}");
            assert_eq!(
                of.measured.best_effort, measured.best_effort,
                "{name} {policy}"
            );
            assert_eq!(of.measured.blocks, measured.blocks, "{name} {policy}");
        }
    }
}

/// Each shipped file is read, and as much of it run as takes no time.
#[test]
fn every_example_can_be_run() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let trace = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                 128166372013061629,usr,0,Write,1317441536,8192,1963\n";
    std::fs::write(folder.path().join("trace.csv"), trace).expect("a trace");
    let mut names: Vec<_> = std::fs::read_dir(examples())
        .expect("the examples are there")
        .map(|entry| entry.expect("an example").path())
        .collect();
    names.sort();
    assert!(names.len() >= 14, "{names:?}");
    for path in names {
        let mut text = std::fs::read_to_string(&path).expect("an example is text");
        for line in text.clone().lines() {
            if ["loads =", "duration_s =", "seeds ="]
                .iter()
                .any(|key| line.starts_with(key))
            {
                text = text.replacen(&format!("{line}\n"), "", 1);
            }
        }
        text = format!(
            "loads = [1]\nduration_s = 60\n{}",
            text.replace("\"day\"", "\"busy\"")
        );
        let results = run_in(&text, folder.path());
        for run in &results.runs {
            assert!(run.measured.blocks > 10, "{}", path.display());
            if matches!(run.scheduler, Policy::Exact | Policy::DeltaL) {
                assert_eq!(run.measured.missed, 0, "{}", path.display());
            }
        }
        assert!(
            results.csv().lines().count() > results.runs.len(),
            "{}",
            path.display()
        );
    }
}

const SMALL: &str = "
loads = [1]
schedulers = [\"exact\", \"delta-l\", \"edf\"]
duration_s = 120

[disks]
count = 1
drive = \"quantum-atlas-ii\"

[[band]]
extent_kib = 1024
volume = [{ name = \"film\", size_kib = 102400 }, { name = \"files\", size_kib = 1024000 }]

[[stream]]
name = \"film\"
volume = \"film\"
block_kib = 256
period_ms = 500

[[group]]
streams = [\"film\", \"film\"]

[[best_effort]]
volumes = [\"files\"]
random = { per_second = 30.0, sizes_kib = [8], read_percent = 50, burst = 5 }
";

/// Clients that are early, late, variable or ask for more than is theirs make nobody late.
#[test]
fn no_client_behaviour_makes_a_block_late() {
    for (what, blocks) in [
        ("early_ms = 900", 460..=482),
        ("late_ms = 900", 460..=482),
        ("asks_percent = 300", 1_300..=1_446),
        ("first_ms = 60000", 240..=241),
        ("buffers = 1", 478..=482),
        (
            "vbr = { frames_per_second = 25, mean_percent = 80 }",
            330..=440,
        ),
        ("op = \"write\"", 478..=482),
    ] {
        let text = with(
            SMALL,
            "period_ms = 500",
            &format!("period_ms = 500\n{what}"),
        );
        let in_sweeps = with(&text, "[disks]", "[disks]\nadmission = \"sweeps\"");
        let runs = [run(&text).runs, run(&in_sweeps).runs];
        for (run, is_swept) in runs[0]
            .iter()
            .map(|run| (run, false))
            .chain(runs[1].iter().map(|run| (run, true)))
        {
            let of = &run.measured;
            if run.scheduler != Policy::Edf {
                assert_eq!(of.missed, 0, "{what}: {}", run.scheduler);
            }
            // Nothing is early in a sweep.
            let blocks = match (what, is_swept) {
                ("asks_percent = 300", true) => 478..=486,
                _ => blocks.clone(),
            };
            assert!(blocks.contains(&of.blocks), "{what}: {} blocks", of.blocks);
            assert!(
                of.best_effort.count > 3_000,
                "{what}: {}",
                of.best_effort.count
            );
        }
    }
}

#[test]
fn looking_at_slack_and_slots_changes_nothing() {
    let plain = run(SMALL);
    let looked = run(&format!(
        "slack_every_ms = 7\nlatency_slot_ms = 1000\n{SMALL}"
    ));
    assert_eq!(plain.hash(), looked.hash());
    assert_eq!(plain.slack_csv(), None);
    assert_eq!(plain.slots_csv(), None);
    let slack = looked.slack_csv().expect("slack was looked at");
    assert_eq!(slack.lines().count(), 1 + 3 * 120_000_usize.div_ceil(7));
    for run in &looked.runs {
        let known = run.slack_ns[0].iter().flatten();
        let (least, most) = (known.clone().min(), known.max());
        // The slack is used up, and comes back.
        assert!(least < most, "{}", run.scheduler);
        let slots: u64 = run.slots.iter().map(|slot| slot.requests).sum();
        assert_eq!(slots, run.measured.best_effort.count);
    }
    let slots = looked.slots_csv().expect("slots were asked for");
    assert!(slots.contains("\nexact,1,1,files,119.000,"), "{slots}");
}

#[test]
fn a_table_tells_where_all_time_went() {
    let results = run(SMALL);
    for run in &results.runs {
        let of = &run.measured;
        let split =
            |of: &lab::thesis::Split| of.overhead_s + of.seek_s + of.rotation_s + of.transfer_s;
        let disk = &run.disks[0];
        assert!((split(&of.streams) - disk.streams_s).abs() < 1e-6);
        assert!((split(&of.others) - disk.best_effort_s).abs() < 1e-6);
        let all = disk.streams_s + disk.best_effort_s + disk.idle_s;
        assert!((119.0..125.0).contains(&all), "{all}");
    }
    let header = results.csv();
    let columns = header.lines().next().map(|line| line.split(',').count());
    assert!(
        header
            .lines()
            .all(|line| Some(line.split(',').count()) == columns),
        "{header}"
    );
}

/// Names with commas and quotes are fields like others.
#[test]
fn names_do_not_break_tables() {
    let text = SMALL.replace("\"film\"", "'a \"film\", or two'");
    let text = text.replace("\"files\"", "'files, all'");
    let results = run(&format!("latency_slot_ms = 60000\n{text}"));
    let streams = results.streams_csv();
    assert!(
        streams.contains(",0,\"a \"\"film\"\", or two\","),
        "{streams}"
    );
    assert!(
        results.csv().contains(",\"files, all\","),
        "{}",
        results.csv()
    );
    let slots = results.slots_csv().expect("slots were asked for");
    assert!(slots.contains(",1,1,\"files, all\",0.000,"), "{slots}");
}

#[test]
fn another_seed_is_another_run_and_the_same_seed_the_same() {
    let seeds = run(&format!("seeds = [1, 2]\n{SMALL}"));
    assert_eq!(seeds.runs.len(), 6);
    assert_ne!(seeds.runs[0].measured.hash, seeds.runs[1].measured.hash);
    let again = run(&format!("seeds = [2]\n{SMALL}"));
    assert_eq!(again.runs[0].measured.hash, seeds.runs[1].measured.hash);
}

#[test]
fn loads_go_on_until_the_disks_are_full() {
    let text = |loads: &str| {
        with(SMALL, "loads = [1]", &format!("loads = \"{loads}\"")).replace(
            "schedulers = [\"exact\", \"delta-l\", \"edf\"]",
            "schedulers = [\"exact\"]",
        )
    };
    let each = run(&text("each-until-full"));
    let most = each.runs.len();
    assert!(most > 2, "{most}");
    let loads: Vec<usize> = each.runs.iter().map(|run| run.load).collect();
    assert_eq!(loads, (1..=most).collect::<Vec<_>>());
    let full = run(&text("full"));
    assert_eq!(full.runs[0].measured, each.runs[most - 1].measured);
    let steps = run(&text("until-full"));
    assert_eq!(steps.runs.last().map(|run| run.load), Some(most));
    let more = with(SMALL, "loads = [1]", &format!("loads = [{}]", most + 1));
    let said = wrong(&more, &examples());
    assert!(
        said.starts_with(&format!("there is no room for {} groups", most + 1)),
        "{said}"
    );
}

/// The places of blocks and their service decide the number that fits.
#[test]
fn more_is_admitted_in_sweeps() {
    let full = |admission: &str| {
        let text = with(SMALL, "loads = [1]", "loads = \"full\"");
        let text = with(&text, "[\"film\", \"film\"]", "[\"film\"]");
        let text = with(&text, "size_kib = 102400 ", "size_kib = 1536000 ");
        let text = with(&text, "period_ms = 500", "period_ms = 1000");
        let admission = format!("[disks]\nadmission = \"{admission}\"");
        let results = run(&with(&text, "[disks]", &admission));
        for run in &results.runs[..2] {
            let of = &run.measured;
            assert_eq!((of.missed, of.overruns), (0, 0), "{}", run.scheduler);
        }
        results.runs[0].load
    };
    let loads = ["bound", "near", "sweeps"].map(full);
    assert!(loads.is_sorted_by(|a, b| a < b), "{loads:?}");
}

const TRACE: &str = "trace = { file = \"trace\" }";

fn traced(trace: &str) -> String {
    let random = "random = { per_second = 30.0, sizes_kib = [8], read_percent = 50, burst = 5 }";
    with(SMALL, random, trace)
}

/// Device, seconds, block of 512 bytes, blocks, read.
fn disksim(requests: &[(u32, u64, u64, u64)]) -> String {
    let line = |(device, second, block, blocks): &(u32, u64, u64, u64)| {
        format!("{}.0 {device} {block} {blocks} 1\n", second * 1_000)
    };
    requests.iter().map(line).collect()
}

#[test]
fn a_trace_is_played_as_it_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let put = |text: &str| std::fs::write(folder.path().join("trace"), text).expect("a trace");
    let slots = |trace: &str| {
        let text = format!("latency_slot_ms = 1000\n{}", traced(trace));
        let results = run_in(&text, folder.path());
        let of = &results.runs[0];
        let slots = of.slots.iter().filter(|slot| slot.requests > 0);
        slots
            .map(|slot| (slot.slot, slot.requests))
            .collect::<Vec<_>>()
    };
    put(&disksim(&[
        (3, 0, 0, 8),
        (3, 2, 16, 8),
        (3, 2, 16, 8),
        (3, 8, 99, 8),
    ]));
    assert_eq!(slots(TRACE), [(0, 1), (2, 2), (8, 1)]);
    assert_eq!(
        slots("speed_percent = 200\ntrace = { file = \"trace\" }"),
        [(0, 1), (1, 2), (4, 1)]
    );
    assert_eq!(
        slots("trace = { file = \"trace\", from_s = 1, for_s = 3 }"),
        [(1, 2)]
    );
    put(&disksim(&[(3, 0, 0, 8), (5, 2, 16, 8), (3, 4, 16, 8)]));
    assert_eq!(
        slots("trace = { file = \"trace\", devices = [\"5\"] }"),
        [(2, 1)]
    );
    put(&format!("{}nonsense\n", disksim(&[(3, 0, 0, 8)])));
    assert_eq!(
        slots("trace = { file = \"trace\", lenient = true }"),
        [(0, 1)]
    );
    // Each request of this one was issued when the one before it was done.
    put(
        "fio version 2 iolog\nf add\nf open\nf read 0 4096\nf wait 1000000 0\nf read 4096 4096\nf close\n",
    );
    assert_eq!(
        slots("trace = { file = \"trace\", took_us = 1500000 }"),
        [(0, 1), (2, 1)]
    );
    // A trace with times of its own keeps them.
    put(
        "fio version 3 iolog\n0 f add\n0 f open\n100 f read 0 4096\n2500100 f read 4096 4096\n2500101 f close\n",
    );
    assert_eq!(slots("trace = { file = \"trace\" }"), [(0, 1), (2, 1)]);
}

/// A week of a workstation beside films, as it was and in a twentieth of the time: all of it is served, the
/// streams lose nothing, and who comes faster waits longer.
#[test]
fn a_real_trace_is_played_as_it_is_and_faster() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/traces/hplajw-1992-05-30-1week.srt.gz");
    if !trace.exists() {
        return skip::skipped("no trace of HPLAJW beside the repository");
    }
    let text = |speed: u64| {
        format!(
            "loads = [8]
            schedulers = [\"exact\", \"edf\"]
            [disks]
            count = 2
            drive = \"quantum-atlas-ii\"
            [[band]]
            extent_kib = 256
            sectors = 1000000
            volume = [{{ name = \"film\", size_kib = 204800 }}]
            [[band]]
            extent_kib = 1024
            volume = [{{ name = \"hp\", size_kib = 327424, count = 2 }}]
            [[stream]]
            name = \"film\"
            volume = \"film\"
            period_ms = 886
            [[group]]
            streams = [\"film\"]
            [[best_effort]]
            volumes = [\"hp-0\", \"hp-1\"]
            speed_percent = {speed}
            trace = {{ file = \"{}\" }}",
            trace.display()
        )
    };
    let (as_it_is, faster) = (run(&text(100)), run(&text(2_000)));
    for results in [&as_it_is, &faster] {
        let [exact, edf] = &results.runs[..] else {
            panic!("two runs");
        };
        assert_eq!(exact.measured.missed, 0);
        for run in [exact, edf] {
            assert_eq!(run.measured.best_effort.count, 44_519);
            assert_eq!(run.measured.unserved, 0);
        }
        let mean = |of: &lab::experiment::RunResult| of.measured.best_effort.mean_ms;
        assert!(
            mean(exact) < 0.9 * mean(edf),
            "{} {}",
            mean(exact),
            mean(edf)
        );
    }
    let (slow, fast) = (&as_it_is.runs[0].measured, &faster.runs[0].measured);
    assert!(fast.best_effort.mean_ms > 4.0 * slow.best_effort.mean_ms);
    assert!(fast.blocks.abs_diff(slow.blocks / 20) < 100);
}

#[test]
fn a_trace_that_cannot_be_played_is_told() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let put = |text: &str| std::fs::write(folder.path().join("trace"), text).expect("a trace");
    let says = |trace: &str, what: &str| {
        let said = wrong(&traced(trace), folder.path());
        assert!(said.contains("trace") && said.contains(what), "{said}");
    };
    says(TRACE, "No such file");
    put("");
    says(TRACE, "empty");
    put("what is this?\n");
    says(TRACE, "no known format");
    put(&format!("{}nonsense\n", disksim(&[(3, 0, 0, 8)])));
    says(TRACE, "line 2");
    put(&disksim(&[(3, 0, 0, 8), (5, 2, 16, 8)]));
    says(TRACE, "2 of its devices (3, 5) are to be 1 volumes");
    says(
        "trace = { file = \"trace\", devices = [\"7\"] }",
        "no device `7`; there are 3, 5",
    );
    says(
        "trace = { file = \"trace\", format = \"tape\" }",
        "unknown format `tape`",
    );
    says(
        "trace = { file = \"trace\", took_us = 3 }",
        "but disksim has all times",
    );
    put("fio version 2 iolog\nf add\nf open\nf read 0 4096\nf close\n");
    says(TRACE, "took_us");
}

#[test]
fn senseless_experiment_is_refused_with_its_place() {
    for (from, to, said) in [
        (
            "count = 1",
            "count = 0",
            "disks: `count` is 0; it must be from 1 to 128",
        ),
        (
            "quantum-atlas-ii",
            "quantum-atlas-9",
            "no drive `quantum-atlas-9`",
        ),
        (
            "drive = \"quantum-atlas-ii\"",
            "plant = \"none.toml\"",
            "none.toml: No such file",
        ),
        (
            "drive = \"quantum-atlas-ii\"",
            "profile = \"none.toml\"",
            "the file of a `plant`",
        ),
        (
            "extent_kib = 1024",
            "extent_kib = 3",
            "band 1: `extent_kib` is 3",
        ),
        ("extent_kib = 1024", "extent_kib = 1000", "band 1"),
        (
            "extent_kib = 1024",
            "extent_kib = 1024\nfrom_zone = 99",
            "band 1: there are zones 0 to",
        ),
        (
            "extent_kib = 1024",
            "extent_kib = 1024\nfrom_sector = 99999999999",
            "band 1: sectors",
        ),
        (
            "extent_kib = 1024",
            "extent_kib = 1024\nsectors = 10",
            "band 1",
        ),
        (
            "size_kib = 102400 ",
            "size_kib = 102400000 ",
            "volume `film`",
        ),
        (
            "size_kib = 102400 ",
            "size_kib = 102400, disks = [1] ",
            "there is no disk 1",
        ),
        (
            "name = \"files\"",
            "name = \"film\"",
            "volume `film`: there are two",
        ),
        (
            "volume = \"film\"",
            "volume = \"movie\"",
            "volume `movie`: a load uses it",
        ),
        (
            "block_kib = 256",
            "block_kib = 256000",
            "stream `film`: its volume of",
        ),
        (
            "period_ms = 500",
            "period_ms = 0",
            "stream `film`: `period_ms` is 0",
        ),
        ("period_ms = 500", "", "stream `film`: it has one of"),
        (
            "period_ms = 500",
            "period_ms = 500\nkib_per_second = 3",
            "stream `film`: it has one of",
        ),
        (
            "period_ms = 500",
            "period_ms = 500\nasks_percent = 0",
            "`asks_percent` is 0",
        ),
        (
            "period_ms = 500",
            "period_ms = 500\nvbr = { frames_per_second = 0 }",
            "`frames_per_second`",
        ),
        (
            "period_ms = 500",
            "period_ms = 20",
            "there is no room for 1 groups of streams: disk 0",
        ),
        (
            "streams = [\"film\", \"film\"]",
            "streams = []",
            "group 1: it has no streams",
        ),
        (
            "[\"film\", \"film\"]",
            "[\"movie\"]",
            "group 1: there is no stream `movie`",
        ),
        ("loads = [1]", "loads = [1, 1]", "loads"),
        ("loads = [1]", "loads = \"some\"", "until-full"),
        ("loads = [1]", "seeds = []", "it needs a seed"),
        ("loads = [1]", "load = [1]", "load"),
        ("\"edf\"", "\"fifo\"", "fifo"),
        ("duration_s = 120", "", "set `duration_s`"),
        ("duration_s = 120", "duration_s = 0", "`duration_s` is 0"),
        (
            "volumes = [\"files\"]",
            "volumes = []",
            "best_effort 1: it has no volumes",
        ),
        (
            "volumes = [\"files\"]",
            "volumes = [\"files\"]\ncello = \"day\"",
            "best_effort 1: it has one of",
        ),
        (
            "per_second = 30.0",
            "per_second = -1.0",
            "best_effort 1: `per_second`",
        ),
        (
            "per_second = 30.0",
            "per_second = nan",
            "best_effort 1: `per_second`",
        ),
        (
            "sizes_kib = [8]",
            "sizes_kib = []",
            "best_effort 1: `sizes_kib`",
        ),
        (
            "[[best_effort]]",
            "[[reservation]]\nvolume = \"files\"\nslice_ms = 1\nperiod_ms = 100\n[[best_effort]]",
            "reservation of `files`: a slice of",
        ),
        (
            "[[best_effort]]",
            "[[reservation]]\nvolume = \"files\"\nslice_ms = 100\nperiod_ms = 100\n[[best_effort]]",
            "there is no room for 1 groups",
        ),
        (
            "[[best_effort]]",
            "[[reservation]]\nvolume = \"film\"\nslice_ms = 50\nperiod_ms = 100\n[[best_effort]]",
            "reservation 1: no best effort uses",
        ),
    ] {
        let text = with(SMALL, from, to);
        let what = wrong(&text, &examples());
        assert!(what.contains(said), "{to}: {what}");
    }
}

/// Nothing that is changed in a file makes more of it than an error or an experiment.
#[test]
fn damaged_files_are_errors() {
    for name in ["figure-6.5", "figure-6.14", "random"] {
        let text = example(name);
        let lines: Vec<&str> = text.lines().collect();
        for left_out in 0..lines.len() {
            let mut rest = lines.clone();
            rest.remove(left_out);
            let text = rest.join("\n");
            if let Err(ExperimentError::Invalid { at, problem }) =
                Experiment::parse(&text, &examples())
            {
                assert!(!at.is_empty() && !problem.is_empty());
            }
        }
    }
}
