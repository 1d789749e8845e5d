//! The video server: its requests, the search, and faults of its file.

use std::num::NonZeroUsize;
use std::path::Path;

use lab::channel::Discipline;
use lab::channel::drive::Drive;
use lab::sweep::Sweep;
use lab::video::{Arm, Plan, Search, Server, VideoError};
use sched::units::Nanos;

const EXAMPLE: &str = include_str!("../../../../examples/video/server.toml");

/// Short movies on few disks.
fn small(arm: Arm, discipline: Discipline) -> Server {
    let drive = Drive::built_in("hp-c2247").expect("it comes with the program");
    Server {
        movie: (Nanos::from_secs(60), Nanos::from_secs(90)),
        think: Nanos::from_secs(5),
        movies: 160,
        arm,
        discipline,
        ..Server::of_the_paper(drive, 2)
    }
}

fn window() -> Arm {
    Arm::RtWindow {
        window: NonZeroUsize::new(5).unwrap_or(NonZeroUsize::MIN),
        threshold: Nanos::from_millis(350),
    }
}

fn sweep(threads: usize) -> Sweep<'static> {
    Sweep {
        threads,
        folder: None,
        progress: &|_, _| {},
    }
}

#[test]
fn streams_make_a_request_for_each_segment_on_all_disks() {
    let server = small(Arm::CScan, Discipline::Plain);
    let one = server.run(1, 1, true);
    assert!(one.is_smooth());
    // 160 movies of 60 to 90 seconds.
    let segments = 75.0 / server.period().as_secs_f64() * 160.0;
    assert!(
        (one.requests as f64 / segments - 1.0).abs() < 0.1,
        "{}",
        one.requests
    );
    let fewest = one.ids.iter().map(|id| id.requests).min().unwrap_or(0);
    assert!(fewest * 2 >= one.requests * 99 / 100, "{:?}", one.ids);
    // More viewers watch as many movies, in less time.
    let many = server.run(20, 1, false);
    assert!(
        (many.requests as f64 / segments - 1.0).abs() < 0.1,
        "{}",
        many.requests
    );
    assert!(many.seconds * 10.0 < one.seconds, "{} s", many.seconds);
}

#[test]
fn search_ends_where_one_more_stream_is_late_and_threads_change_nothing() {
    for (arm, discipline) in [
        (Arm::CScan, Discipline::Plain),
        (window(), Discipline::Fair { tokens: 2 }),
    ] {
        let server = small(arm, discipline);
        let found = Search::all(&server, 3, 3, &sweep(1));
        for threads in 2..=3 {
            assert_eq!(Search::all(&server, 3, 3, &sweep(threads)), found);
        }
        for (seed, run) in (3..).zip(&found.runs) {
            assert!(run.is_smooth() && run.streams > 20, "{}", run.streams);
            assert!(
                !server.run(run.streams + 1, seed, true).is_smooth(),
                "seed {seed}"
            );
            assert_eq!(server.run(run.streams, seed, true).hash, run.hash);
        }
    }
}

#[test]
fn every_scheduler_carries_streams() {
    let names = ["c-scan", "edf", "fd-scan", "gss", "scan-edf", "rt-window"];
    let found = names.map(|name| {
        let text = EXAMPLE.replacen("rt-window", name, 1);
        let plan = Plan::parse(&text, Path::new("")).expect("the scheduler has a name");
        let server = small(plan.server.arm, Discipline::Plain);
        Search::all(&server, 1, 1, &sweep(1)).runs[0].streams
    });
    assert!(
        found.iter().all(|streams| *streams > 20),
        "{names:?}: {found:?}"
    );
}

/// The paper's 4.2: at a load without late requests, the status of a PRE-FETCH is not starved.
#[test]
fn no_status_waits_long_where_no_request_is_late() {
    let server = small(window(), Discipline::Fair { tokens: 2 });
    let found = Search::all(&server, 1, 1, &sweep(1));
    for id in &found.runs[0].ids {
        assert!(id.status_passed_max <= 2, "{id:?}");
        assert!(id.status_wait_max_ms > 0.0, "{id:?}");
    }
}

#[test]
fn example_is_the_server_of_the_paper() {
    let plan = Plan::parse(EXAMPLE, Path::new("")).expect("the example is valid");
    let drive = Drive::built_in("hp-c2247").expect("it comes with the program");
    let paper = Server {
        arm: window(),
        discipline: Discipline::Fair { tokens: 2 },
        movies: 300,
        ..Server::of_the_paper(drive, 4)
    };
    assert_eq!(plan.server, paper);
    assert_eq!((plan.streams, plan.runs), (None, 2));
}

/// From, to, the text at the place of the fault, and the fault.
const FAULTS: [(&str, &str, &str, &str); 19] = [
    ("channels = 4", "channels = 0", "0", "`channels` is 0"),
    (
        "ids = [0, 1, 2, 3]",
        "ids = []",
        "[]",
        "a channel needs disks",
    ),
    (
        "ids = [0, 1, 2, 3]",
        "ids = [0, 1, 0]",
        "0]",
        "two disks have the id 0",
    ),
    (
        "ids = [0, 1, 2, 3]",
        "ids = [0, 7]",
        "7]",
        "id 7 is the host's",
    ),
    ("ids = [0, 1, 2, 3]", "ids = [16]", "16]", "`ids` is 16"),
    (
        "max_outstanding = 2",
        "max_outstanding = 5",
        "5",
        "from 1 to 4, the segments",
    ),
    (
        "max_outstanding = 2",
        "max_outstanding = 0",
        "0",
        "`max_outstanding` is 0",
    ),
    (
        "stream_kbit_per_s = 3000",
        "stream_kbit_per_s = 0",
        "0",
        "`stream_kbit_per_s` is 0",
    ),
    (
        "[100, 120]",
        "[100, 10000]",
        "[100, 10000]",
        "have room for",
    ),
    ("[100, 120]", "[120, 100]", "[120, 100]", "`movie_minutes`"),
    (
        "buffer_kib = 512",
        "buffer_kib = 128",
        "128",
        "at least two segments",
    ),
    ("buffer_kib = 512", "buffer_kib = 500", "500", "a multiple"),
    ("tokens = 2", "tokens = 5", "5", "`tokens` is 5"),
    ("window = 5", "window = 0", "0", "`window` is 0"),
    ("movies = 300", "movies = 0", "0", "`movies` is 0"),
    (
        "movies = 300",
        "movies = 1000000",
        "1000000",
        "more than 100 years",
    ),
    (
        "\"hp-c2247\"",
        "\"hp\"",
        "\"hp\"",
        "neither one of hp-c2247",
    ),
    (
        "channels = 4",
        "channels = 4\nsegment_kib = 256",
        "256",
        "a segment of the drive's buffer",
    ),
    (
        "seed = 1",
        "seed = 1\ncolour = 1",
        "colour",
        "unknown field `colour`",
    ),
];

#[test]
fn faults_of_a_file_have_their_place() {
    for (from, to, at, problem) in FAULTS {
        let text = EXAMPLE.replacen(from, to, 1);
        assert_ne!(text, EXAMPLE, "{from}");
        match Plan::parse(&text, Path::new("")) {
            Err(VideoError::Server(fault)) => {
                assert!(fault.problem.contains(problem), "{to}: {}", fault.problem);
                let found = &text[fault.span.start..];
                assert!(found.starts_with(at), "{to}: {:?}", &text[fault.span]);
            }
            other => panic!("{to}: {other:?}"),
        }
    }
}

#[test]
fn faults_of_a_channel_file_have_its_name_and_place() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let channel =
        include_str!("../../channels/fast-wide-scsi.toml").replace("mb_per_s = 20", "mb_per_s = 0");
    std::fs::write(folder.path().join("slow.toml"), &channel).expect("it can be written");
    let text = EXAMPLE.replacen("channels = 4", "channels = 4\nchannel = \"slow.toml\"", 1);
    match Plan::parse(&text, folder.path()) {
        Err(VideoError::Other { path, text, fault }) => {
            assert!(path.ends_with("slow.toml"));
            assert!(
                fault.problem.contains("`mb_per_s` is 0"),
                "{}",
                fault.problem
            );
            assert_eq!(&text[fault.span], "0");
        }
        other => panic!("{other:?}"),
    }
    let text = text.replacen("slow.toml", "none.toml", 1);
    match Plan::parse(&text, folder.path()) {
        Err(VideoError::Server(fault)) => {
            assert!(fault.problem.contains("none.toml: No such file"), "{fault}");
            assert_eq!(&text[fault.span], "\"none.toml\"");
        }
        other => panic!("{other:?}"),
    }
}
