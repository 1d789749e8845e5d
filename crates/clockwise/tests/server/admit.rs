//! `clockwise admit`: verdicts, exit statuses, and what is wrong with a file.

use testkit::site::{Outcome, clockwise, outcome};

fn admit(text: &str) -> (Outcome, Outcome) {
    let file = tempfile::NamedTempFile::new().expect("a file for the test");
    std::fs::write(file.path(), text).expect("it can be written");
    let run = |json: &[&str]| outcome(clockwise().arg("admit").arg(file.path()).args(json));
    (run(&[]), run(&["--json"]))
}

#[test]
fn a_schedulable_set_is_admitted_with_both_deltas() {
    // The horizon fault of the published delta-L: at U = 1 there is no slack at all.
    let (text, json) = admit(
        "[[task]]\nservice_us = 4000\nperiod_us = 200000\ncount = 33\n\
         [[task]]\nname = \"logger\"\nservice_ms = 3\nperiod_ms = 300\ncount = 34\n",
    );
    let json = json.done().json();
    assert_eq!(json["schedulable"], true);
    assert_eq!(json["delta_l_ns"], 0);
    assert_eq!(json["delta_l_published_ns"], 65_000_001);
    assert!((json["utilization"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert!(json.get("refused_by").is_none());
    let text = text.done().out;
    for word in [
        "schedulable",
        "utilization",
        "delta_l_ns",
        "delta_l_published_ns",
    ] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_set_that_only_preemption_would_save_is_refused() {
    // The set that the thesis's USD admits and that misses when run without preemption.
    let (text, json) = admit(
        "[[task]]\nservice_ms = 42\nperiod_ms = 250\n[[task]]\nservice_ms = 69\nperiod_ms = 250\n\
         [[task]]\nservice_ms = 122\nperiod_ms = 1000\n[[task]]\nname = \"long\"\nservice_ms = 163\nperiod_ms = 2000\n",
    );
    assert_eq!(json.code, 3, "{json:?}");
    let json = json.json();
    assert_eq!(json["schedulable"], false);
    assert_eq!(json["refused_by"], "blocking");
    assert_eq!(json["task"], "long");
    // 42 + 69 + 163 ms are asked for in 250 ms and a nanosecond.
    assert_eq!(json["interval_ns"], 250_000_001);
    assert_eq!(json["short_by_ns"], 23_999_999);
    assert_eq!(text.code, 3);
    assert!(
        text.out.contains("refused_by") && text.out.contains("blocking"),
        "{text:?}"
    );
}

#[test]
fn first_of_equally_blocking_tasks_is_named() {
    // 80 ms of any of the three and 30 ms of "short" are more than 100 ms.
    let long = |name: &str, period: u64, count: u64| {
        format!(
            "[[task]]\nname = \"{name}\"\nservice_ms = 80\nperiod_ms = {period}\ncount = {count}\n"
        )
    };
    let short = "[[task]]\nname = \"short\"\nservice_ms = 30\nperiod_ms = 100\n";
    let middling = "[[task]]\nname = \"middling\"\nservice_ms = 75\nperiod_ms = 1000\n";
    let all = [middling, &long("b", 2000, 2), &long("a", 1000, 1), short].concat();
    let (_, json) = admit(&all);
    assert_eq!(json.code, 3, "{json:?}");
    let json = json.json();
    assert_eq!(
        (&json["refused_by"], &json["task"]),
        (&"blocking".into(), &"b #1".into())
    );
}

#[test]
fn more_than_the_whole_disk_is_refused_for_its_utilization() {
    let (_, json) =
        admit("[[task]]\nname = \"cam\"\nservice_ms = 60\nperiod_ms = 100\ncount = 2\n");
    assert_eq!(json.code, 3);
    let json = json.json();
    assert_eq!(json["refused_by"], "utilization");
    assert_eq!(json["task"], "cam #2");
    assert_eq!(json["interval_ns"], 100_000_000);
    assert_eq!(json["short_by_ns"], 20_000_000);
}

/// Fifty times 4 ms in 200 ms are the whole disk, and a bit more in floating point.
#[test]
fn the_task_is_named_that_no_room_was_left_for_and_a_name_is_only_a_name() {
    let (text, json) = admit(
        "[[task]]\nname = \"a\"\nservice_ms = 4\nperiod_ms = 200\ncount = 50\n\
         [[task]]\nname = \"\\u001b[31mb\"\nservice_ms = 4\nperiod_ms = 200\ncount = 2\n",
    );
    assert_eq!(json.json()["task"], "\u{1b}[31mb #1");
    assert!(!text.out.contains('\u{1b}'), "{text:?}");
    assert!(text.out.contains("\\u{1b}[31mb #1"), "{text:?}");
}

#[test]
fn a_task_that_no_disk_could_serve_alone_is_refused_for_its_utilization() {
    let (text, json) = admit(
        "[[task]]\nservice_ms = 1\nperiod_ms = 10\n\
         [[task]]\nname = \"huge\"\nservice_ms = 30\nperiod_ms = 20\ncount = 2\n",
    );
    assert_eq!((text.code, json.code), (3, 3));
    let json = json.json();
    assert_eq!(json["refused_by"], "utilization");
    assert_eq!(json["task"], "huge");
    assert_eq!(json["interval_ns"], 20_000_000);
    assert_eq!(json["short_by_ns"], 10_000_000);
    assert!((json["utilization"].as_f64().unwrap() - 3.1).abs() < 1e-9);
    assert!(
        text.out
            .lines()
            .any(|line| line.starts_with("tasks") && line.ends_with('3')),
        "{text:?}"
    );
}

#[test]
fn fault_of_a_file_is_reported_with_its_line() {
    let cases = [
        (
            "[[task]]\nservice_us = 4\nperiod_us = \"x\"\n",
            ":3:13",
            "expected a number",
        ),
        (
            "[[task]]\nservice_us = 4\nperiod_us = 9\nspeed = 1\n",
            ":4:1",
            "unknown field `speed`",
        ),
        ("[[task]]\nservice_us = 4\n", ":1:1", "no period"),
        ("[[task]]\nperiod_us = 4\n", ":1:1", "no service time"),
        (
            "[[task]]\nservice_us = 4\nservice_ms = 4\nperiod_us = 9\n",
            ":3:14",
            "two values for the service time",
        ),
        (
            "[[task]]\nservice_us = 0\nperiod_us = 9\n",
            ":2:14",
            "more than zero",
        ),
        (
            "[[task]]\nservice_us = -3\nperiod_us = 9\n",
            ":2:14",
            "more than zero",
        ),
        (
            "[[task]]\nservice_us = nan\nperiod_us = 9\n",
            ":2:14",
            "not a number",
        ),
        (
            "[[task]]\nservice_us = inf\nperiod_us = 9\n",
            ":2:14",
            "too large",
        ),
        (
            "[[task]]\nservice_us = 4\nperiod_ms = 9223372036854775807\n",
            ":3:13",
            "too large",
        ),
        (
            "[[task]]\nservice_us = 1\nperiod_us = 9\ncount = 0\n",
            ":4:9",
            "at least 1",
        ),
        (
            "[[task]]\nservice_us = 1\nperiod_us = 9\ncount = 99999999\n",
            ":4:9",
            "too many",
        ),
        ("[[task]]\nservice_us 4\n", ":2:", "expected"),
        (
            "[task]\nservice_us = 4\nperiod_us = 9\n",
            ":1:1",
            "expected a sequence",
        ),
        ("", ":1:1", "no tasks"),
    ];
    for (text, place, what) in cases {
        let (people, program) = admit(text);
        people.fails(2, &[place, what]);
        program.fails(
            2,
            &[
                "\"line\"",
                what.split('`').next().unwrap_or(what).trim_end_matches('"'),
            ],
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_wrong_input() {
    let missing = outcome(clockwise().args(["admit", "/nonexistent/tasks.toml"]));
    missing.fails(2, &["/nonexistent/tasks.toml", "No such file"]);
    let file = tempfile::NamedTempFile::new().expect("a file for the test");
    std::fs::write(file.path(), [0xff, 0xfe, 0]).expect("it can be written");
    let binary = outcome(clockwise().arg("admit").arg(file.path()));
    binary.fails(2, &["not a UTF-8 text file"]);
}

#[test]
fn a_fraction_of_a_millisecond_is_a_time() {
    let (_, json) = admit("[[task]]\nservice_ms = 0.5\nperiod_ms = 1.25\n");
    let json = json.done().json();
    assert_eq!(json["utilization"], 0.4);
}

#[test]
fn there_are_no_more_than_a_million_tasks_however_they_are_listed() {
    let task = "[[task]]\nservice_ns = 1\nperiod_ms = 1\n";
    let (text, _) = admit(&format!("{task}count = 999999\n{task}{task}"));
    text.fails(2, &["too many tasks", "1000000", ":8:1"]);
    let (text, _) = admit(&format!("{task}count = 1000001\n"));
    text.fails(2, &["too many tasks", ":4:9"]);
}
