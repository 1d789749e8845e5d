use super::*;
use crate::wire::view::{
    ByClassView, CompletedView, DiskView, LatencyView, MetadataView, StreamView,
};

/// Each column gets a distinct number.
#[test]
fn each_promise_and_measurement_has_a_column() {
    let disk = DiskView {
        name: "/dev/sda".to_owned(),
        utilization_promised: 0.8,
        utilization_measured: 0.72,
        floor: 0.05,
        delta_l_ns: 447_400_000,
        slack_ns: 599_900_000,
        queued: 3,
        served: ByClassView {
            real_time: 194,
            early: 6,
            slack: 705,
            container: 9,
        },
        completed: CompletedView {
            streams: 200,
            sync: 311,
            asynchronous: 402,
        },
        misses: 1,
        misses_gross: 2,
        overruns: 4,
        host_late_count: 42,
        host_late_max_ns: 5_300_000,
        ..DiskView::default()
    };
    let stream = StreamView {
        name: "camera".to_owned(),
        volume: "cam-1".to_owned(),
        op: "record".to_owned(),
        rate_bytes_per_second: 4_000_000,
        block_bytes: 8 << 20,
        blocks: 80,
        early: 7,
        misses: 5,
        misses_gross: 11,
        late_net_max_ns: 12_300_000,
        overruns: 13,
        ..StreamView::default()
    };
    let status = StatusView {
        name: "films".to_owned(),
        scheduler: "exact".to_owned(),
        disks: vec![disk],
        streams: vec![stream],
        ..StatusView::default()
    };
    let text = render(&status);
    insta::assert_snapshot!("status", text);
    let of_a_disk = text.lines().take_while(|line| !line.starts_with("STREAM"));
    let longest = of_a_disk.map(|line| line.chars().count()).max();
    assert!(longest <= Some(100), "{longest:?}");
}

#[test]
fn misses_including_host_lateness_follow_in_brackets_if_more() {
    let disk = |misses, misses_gross| DiskView {
        misses,
        misses_gross,
        ..DiskView::default()
    };
    let stream = |misses, misses_gross| StreamView {
        misses,
        misses_gross,
        ..StreamView::default()
    };
    let text_of = |disk, stream| {
        render(&StatusView {
            disks: vec![disk],
            streams: vec![stream],
            ..StatusView::default()
        })
    };
    let in_words = "misses are net of the host's own lateness; numbers in brackets include it\n";
    let both = text_of(disk(0, 31), stream(2, 32));
    for part in [" 0 (31) ", " 2 (32) ", in_words] {
        assert!(both.contains(part), "{part:?} in\n{both}");
    }
    assert!(text_of(disk(4, 4), stream(2, 32)).contains(in_words));
    let neither = text_of(disk(4, 4), stream(2, 2));
    assert!(!neither.contains("(4)") && !neither.contains("(2)"));
    assert!(!neither.contains(in_words), "{neither}");
}

#[test]
fn share_of_ended_streams_is_shown() {
    let disk = |leaving_ns| DiskView {
        name: "sda".to_owned(),
        utilization_leaving: 0.125,
        leaving_ns,
        ..DiskView::default()
    };
    let status = StatusView {
        disks: vec![disk(0), disk(2_500_000_000)],
        ..StatusView::default()
    };
    let text = render(&status);
    let of_ended: Vec<&str> = text.lines().filter(|line| line.contains("ENDED")).collect();
    let wanted = "ENDED streams and exports still hold 12.5 % of sda; all of it is free in 2.50 s";
    assert_eq!(of_ended, [wanted], "{text}");
}

#[test]
fn volume_that_takes_no_more_writes_is_named() {
    let status = serde_json::json!([{
        "name": "v\u{202e}", "size_bytes": 1, "written_bytes": 1, "extents": 1, "open_count": 0,
        "users": [], "poisoned": "disk sda: no answer", "extents_by_disk": [],
    }]);
    let status = StatusView {
        volumes: serde_json::from_value(status).unwrap(),
        ..StatusView::default()
    };
    let last = render(&status).lines().last().map(str::to_owned);
    let wanted = "NO MORE WRITES to volume v\\u{202e}: disk sda: no answer";
    assert_eq!(last.as_deref(), Some(wanted));
}

#[test]
fn overruns_of_a_stream_are_shown() {
    let status = StatusView {
        streams: vec![StreamView {
            overruns: 7,
            ..StreamView::default()
        }],
        ..StatusView::default()
    };
    let text = render(&status);
    let last_but_one = |line: Option<&str>| {
        let mut words = line.expect("a line").split_whitespace();
        words.nth_back(1).map(str::to_owned)
    };
    let head = text.lines().find(|line| line.starts_with("STREAM"));
    let row = text.lines().find(|line| line.ends_with("ok"));
    assert_eq!(last_but_one(head).as_deref(), Some("OVERRUNS"));
    assert_eq!(last_but_one(row).as_deref(), Some("7"), "{text}");
}

#[test]
fn flush_that_waits_for_a_disk_is_shown() {
    let nothing = serde_json::json!([]);
    let latency = serde_json::to_value(LatencyView::default()).unwrap();
    let status = serde_json::json!({
        "name": "films", "scheduler": "exact", "uptime_ns": 1, "window_ns": 1, "extent_bytes": 1,
        "allocated_bytes": 0, "free_bytes": 0, "memory_bytes": 0, "best_effort": latency,
        "warnings": nothing, "disks": nothing, "streams": nothing, "volumes": nothing,
        "memory": nothing, "reservations": nothing,
        "waits": [{
            "volume": "x", "disk": "y", "waits_ns": 4_000_000_000_u64,
            "stalled_ns": 3_200_000_000_u64,
        }],
    });
    let status: StatusView = serde_json::from_value(status).unwrap();
    let text = render(&status);
    let last = text.lines().last().unwrap();
    assert_eq!(
        last,
        "WAITS flush of volume x waits for disk y (stalled for 3.20 s)"
    );
}

#[test]
fn frozen_metadata_and_failed_requests_are_shown() {
    let status = |goes_on| StatusView {
        metadata: MetadataView {
            frozen: Some("disk sda: no room".to_owned()),
            frozen_ns: 3_200_000_000,
            goes_on,
            freezes: 1,
            resumes: 0,
        },
        disks: vec![DiskView {
            name: "sda".to_owned(),
            errors: 5,
            read_errors: 2,
            write_errors: 3,
            last_error: Some("write: No space left on device".to_owned()),
            ..DiskView::default()
        }],
        ..StatusView::default()
    };
    let text = render(&status(true));
    let wanted = [
        "FROZEN metadata, for 3.20 s, until the disk accepts it: disk sda: no room; no volume can be created, changed or \
         deleted, and no flush of newly written chunks succeeds; everything else works",
        "ERRORS sda: 2 reads and 3 writes failed; the last failure: write: No space left on device",
    ];
    let last: Vec<&str> = text.lines().rev().take(2).collect();
    assert_eq!([last[1], last[0]], wanted, "{text}");
    assert!(render(&status(false)).contains("until the server is restarted"));
}
