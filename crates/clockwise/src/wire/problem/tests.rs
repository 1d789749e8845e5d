//! Every error of the engine and of the sessions becomes a problem with a remedy.
//!
//! The `match`es have no wildcard on purpose: a new error does not compile here until it is added to the
//! tested ones.

use engine::stream::DiskRefusal;
use engine::volume_io::IoFailure;
use sched::units::{Bytes, BytesPerSecond, Nanos, SectorCount};

use super::*;
use crate::failure::Style;
use crate::session::{SessionError, SessionKey};

/// One error of each kind.
fn pool_errors() -> Vec<PoolError> {
    let text = || "cam".to_owned();
    vec![
        PoolError::NoDisks,
        PoolError::Disk {
            disk: text(),
            reason: "cam: is stale".to_owned(),
            remedy: "name the disk that was there last".to_owned(),
        },
        PoolError::Taken { disk: text() },
        PoolError::Unsuited {
            reason: "disk cam is too small".to_owned(),
            remedy: "take smaller extents",
        },
        PoolError::Missing {
            pool: text(),
            missing: "disk 1".to_owned(),
            remedy: "bring the disk back".to_owned(),
        },
        PoolError::Metadata("no sense in it".to_owned()),
        PoolError::NoSuchVolume(text()),
        PoolError::VolumeExists(text()),
        PoolError::BadName {
            name: "a/b".to_owned(),
            reason: "it has a slash in it".to_owned(),
        },
        PoolError::BadSize {
            what: "the volume's size",
            reason: "it is zero".to_owned(),
            remedy: "ask for at least one byte",
        },
        PoolError::BadPlacement("no such disk".to_owned()),
        PoolError::NoSpace {
            needed: 1 << 30,
            free: 53,
            place: "in the pool".to_owned(),
            extent: Bytes::from_mib(1),
        },
        PoolError::InUse {
            volume: text(),
            users: vec!["a stream".to_owned()],
        },
        PoolError::BeingMoved { extent: 3 },
        PoolError::Reserved {
            volume: text(),
            stream: text(),
            reason: "it cannot be cut off".to_owned(),
        },
        PoolError::Poisoned {
            volume: text(),
            reason: "a write failed".to_owned(),
        },
        PoolError::MetadataFailed("a write failed".to_owned()),
        PoolError::Io(IoFailure::Disk {
            disk: text(),
            op: "write",
            sector: 8,
            sectors: SectorCount(8),
            reason: "no medium".to_owned(),
        }),
        PoolError::Host {
            what: "threads",
            error: std::io::Error::other("too many"),
        },
        PoolError::Stopped,
        PoolError::NoSuchScheduler("fifo".to_owned()),
        PoolError::Closed,
        PoolError::Occupied {
            disk: text(),
            what: "something",
            at: Bytes(1080),
        },
        PoolError::TakenOver("disk-0: another server has opened the pool since".to_owned()),
        PoolError::MetadataFrozen {
            reason: "disk cam: no room".to_owned(),
            is_pending: true,
        },
    ]
}

/// The index of a kind in [`pool_errors`].
fn number(error: &PoolError) -> usize {
    match error {
        PoolError::NoDisks => 0,
        PoolError::Disk { .. } => 1,
        PoolError::Taken { .. } => 2,
        PoolError::Unsuited { .. } => 3,
        PoolError::Missing { .. } => 4,
        PoolError::Metadata(_) => 5,
        PoolError::NoSuchVolume(_) => 6,
        PoolError::VolumeExists(_) => 7,
        PoolError::BadName { .. } => 8,
        PoolError::BadSize { .. } => 9,
        PoolError::BadPlacement(_) => 10,
        PoolError::NoSpace { .. } => 11,
        PoolError::InUse { .. } => 12,
        PoolError::BeingMoved { .. } => 13,
        PoolError::Reserved { .. } => 14,
        PoolError::Poisoned { .. } => 15,
        PoolError::MetadataFailed(_) => 16,
        PoolError::Io(_) => 17,
        PoolError::Host { .. } => 18,
        PoolError::Stopped => 19,
        PoolError::NoSuchScheduler(_) => 20,
        PoolError::Closed => 21,
        PoolError::Occupied { .. } => 22,
        PoolError::TakenOver(_) => 23,
        PoolError::MetadataFrozen { .. } => 24,
    }
}

fn refusals() -> Vec<Refusal> {
    let disk = || {
        Box::new(DiskRefusal {
            disk: "cam".to_owned(),
            utilization: 0.5,
            service_ns: 4_000_000,
            period_ns: 5_000_000,
            refused_by: "blocking".to_owned(),
            interval_ns: Some(1_000_000),
            short_by_ns: Some(1_000),
            task: None,
            utilization_leaving: 0.25,
            leaving_ns: Some(2_000_000_000),
        })
    };
    let load = |rate_that_fits| Refusal::Load {
        disk: disk(),
        rate_that_fits,
    };
    let share = |period_that_fits| Refusal::Share {
        disk: disk(),
        period_that_fits,
    };
    vec![
        load(Some(BytesPerSecond(1_000_000))),
        load(None),
        share(Some(Nanos::from_millis(9))),
        share(None),
        Refusal::Invalid {
            what: "the rate",
            reason: "it must be at least 1 B/s".to_owned(),
            remedy: "ask for the rate at which the bytes come",
        },
        Refusal::Memory {
            needed: 128 << 20,
            available: 64 << 20,
        },
        Refusal::Pool(PoolError::Closed),
    ]
}

fn session_errors() -> Vec<SessionError> {
    vec![
        SessionError::Unknown(SessionKey::Id(7)),
        SessionError::Token,
        SessionError::Ended(7),
        SessionError::Closing,
        SessionError::Host("too many open files".to_owned()),
    ]
}

/// Asserts that a problem and its remedy are sentences that a person can use.
#[track_caller]
fn assert_readable(problem: Problem) {
    assert!(problem.what.len() > 5, "{problem:?}");
    assert!(problem.help.split(' ').count() > 2, "{problem:?}");
    for text in [&problem.what, &problem.help] {
        let is_raw = |word: &&str| word.len() > 6 && word.bytes().all(|byte| byte.is_ascii_digit());
        let words: Vec<&str> = text.split([' ', ',', ';', ':', '(', ')']).collect();
        let raw = words.iter().position(is_raw);
        // Numbers of extents are allowed, because their size is given beside them.
        assert!(
            raw.is_none_or(|at| words.get(at + 1) == Some(&"extents")),
            "a raw number in {text:?}"
        );
    }
    assert!((400..600).contains(&problem.status), "{problem:?}");
    let what = problem.what.clone();
    let failure = problem.into_failure();
    assert!(failure.what.ends_with(&what), "{failure:?}");
    assert!(
        failure.render(Style::Plain).contains("help: "),
        "{failure:?}"
    );
}

#[test]
fn help_names_the_task_at_fault() {
    for (kind, told, words) in [
        (CulpritKind::Floor, "floor", "a shorter `floor_slice`"),
        (CulpritKind::Stream, "stream", "or end \"cam 1\""),
        (
            CulpritKind::Share,
            "share",
            "a shorter `slice` for \"cam 1\"",
        ),
        // A task that has ended cannot be changed, only waited for.
        (CulpritKind::Leaving, "leaving", "try again in 2.000 s"),
    ] {
        let problems = refusals().into_iter().filter_map(|mut refusal| {
            let (Refusal::Load { disk, .. } | Refusal::Share { disk, .. }) = &mut refusal else {
                return None;
            };
            disk.task = Some(Culprit {
                name: "cam 1".to_owned(),
                kind,
            });
            Some(Problem::from(refusal))
        });
        let problems: Vec<Problem> = problems.collect();
        assert_eq!(problems.len(), 4);
        for problem in problems {
            let refusal = problem.refusal.expect("what was refused");
            assert_eq!(refusal.task_is.as_deref(), Some(told));
            assert_eq!(refusal.task.as_deref(), Some("cam 1"));
            assert!(problem.help.contains(words), "{}", problem.help);
            let ends_it = problem.help.contains("end \"cam 1\"");
            assert_eq!(ends_it, kind == CulpritKind::Stream, "{}", problem.help);
        }
    }
}

#[test]
fn every_pool_error_has_a_remedy() {
    let errors = pool_errors();
    let numbers: Vec<usize> = errors.iter().map(number).collect();
    assert_eq!(numbers, (0..25).collect::<Vec<_>>());
    errors
        .into_iter()
        .map(Problem::from)
        .for_each(assert_readable);
}

#[test]
fn every_refusal_and_session_error_has_a_remedy() {
    for refusal in refusals() {
        match refusal {
            Refusal::Load { .. }
            | Refusal::Share { .. }
            | Refusal::Invalid { .. }
            | Refusal::Memory { .. }
            | Refusal::Pool(_) => assert_readable(Problem::from(refusal)),
        }
    }
    for error in session_errors() {
        match error {
            SessionError::Unknown(_)
            | SessionError::Token
            | SessionError::Ended(_)
            | SessionError::Closing
            | SessionError::Host(_) => assert_readable(Problem::from(error)),
        }
    }
}

#[test]
fn errors_that_the_caller_can_correct_exit_with_status_2() {
    let kind = |error: PoolError| Problem::from(error).into_failure().kind;
    for (index, wanted) in [
        (0, FailureKind::BadInput),
        (2, FailureKind::Failed),
        (3, FailureKind::BadInput),
        (6, FailureKind::BadInput),
        (7, FailureKind::Failed),
        (9, FailureKind::BadInput),
        (11, FailureKind::BadInput),
        (17, FailureKind::Failed),
    ] {
        let error = pool_errors().swap_remove(index);
        let text = error.to_string();
        assert_eq!(kind(error), wanted, "{text}");
    }
}

#[test]
fn unavailable_response_has_a_retry_after_header() {
    let response = |status| Problem::new(status, "what", "help").into_response();
    let retry_after = |status| {
        let response = response(status);
        let header = response.headers().get(header::RETRY_AFTER);
        header.map(|of| of.to_str().unwrap().to_owned())
    };
    assert_eq!(
        retry_after(StatusCode::SERVICE_UNAVAILABLE).as_deref(),
        Some("1")
    );
    assert_eq!(retry_after(StatusCode::CONFLICT), None);
}
