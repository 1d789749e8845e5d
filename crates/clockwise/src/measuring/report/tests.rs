use super::*;
use crate::measuring::evidence::Drive;
use measure::findings::{
    DepthFound, FailedRequest, Method, RotationFound, SeekFound, TracksFound, Validation, ZoneFound,
};
use sched::units::{Sector, SectorCount};

fn compared(start: u64) -> Compared {
    Compared {
        op: Op::Read,
        start: Sector(start),
        count: SectorCount(8),
        head: (start > 0).then_some(Sector(7)),
        predicted: Nanos(12_000_000),
        actual: Nanos(9_500_000),
        widened_since: start == 0,
    }
}

/// A flat drive whose texts are markup.
fn evidence() -> Evidence {
    Evidence {
        drive: Drive {
            path: "/dev/sd<b>".to_owned(),
            model: "MAKER & SON <script>alert(1)</script>".to_owned(),
            serial: Some("\"7\"\u{1b}[31m".to_owned()),
            firmware: "A'1".to_owned(),
            properties: vec![("queue depth".to_owned(), "32".to_owned())],
        },
        date: "2026-11-30T04:20:00Z".to_owned(),
        method: "by hand".to_owned(),
        is_written: false,
        findings: Findings {
            method: Method::Flat,
            rotation: None,
            zones: vec![ZoneFound {
                first_sector: 0,
                sectors_per_track: 0,
                bytes_per_second: 4.2e8,
            }],
            tracks: None,
            seeks: Vec::new(),
            depths: Vec::new(),
            overhead: Nanos(900_000),
            write_settle: None,
            reads_whole_tracks: false,
            writes_whole_last_track: false,
            late: 0,
            served: 12_000,
            after_others: 0,
            failed: 1,
            failures: vec![FailedRequest {
                op: Op::Read,
                start: Sector(99),
                count: SectorCount(8),
                errno: 5,
            }],
            validation: Validation {
                requests: 10_000,
                reads: 10_000,
                predicted_over_actual: 1.25,
                slowest: vec![compared(0), compared(1_000)],
                ..Validation::default()
            },
            notes: vec!["The verdict.".to_owned(), "A note.".to_owned()],
        },
        remarks: vec!["A remark.".to_owned()],
    }
}

#[test]
fn page_is_whole_and_nothing_in_it_is_markup_of_the_drive() {
    insta::assert_snapshot!(page(&evidence()));
}

#[test]
fn page_shows_each_curve_that_was_measured() {
    let mut evidence = evidence();
    let findings = &mut evidence.findings;
    findings.method = Method::Geometry;
    findings.rotation = Some(RotationFound {
        nanos: 8.333e6,
        error_ppm: 1.0,
        has_cache: false,
    });
    let inner = ZoneFound {
        first_sector: 5_000_000,
        sectors_per_track: 107,
        bytes_per_second: 6.3e6,
    };
    findings.zones.push(inner);
    findings.tracks = Some(TracksFound {
        heads: 2,
        skews: vec![vec![8e5, 9e5], vec![8e5]],
        ..TracksFound::default()
    });
    for (cylinders, inwards) in [(1, true), (1, false), (5_000, true)] {
        findings.seeks.push(SeekFound {
            cylinders,
            inwards,
            fastest: Nanos(1_000_000),
            slowest: Nanos(2_000_000 + cylinders),
            bound: Nanos(3_000_000),
            samples: 48,
        });
    }
    findings.depths.push(DepthFound {
        depth: 1,
        reads_per_second: 9_000.0,
        slowest: Nanos(200_000),
    });
    findings.validation.margin_ms = vec![0, 3, 900, 0];
    let page = page(&evidence);
    assert_eq!(page.matches("<svg").count(), 5, "{page}");
    for words in [
        "distance, cylinders",
        "position, GB",
        "track boundary",
        "requests at a time",
        "prediction minus time, ms",
        "A seek takes up to 3.0 ms to the next cylinder and up to 3.0 ms across the drive",
        "at 420.0 MB/s outside and at 6.3 MB/s inside",
    ] {
        assert!(page.contains(words), "no {words:?}");
    }
    assert!(!page.contains("<script"));
}
