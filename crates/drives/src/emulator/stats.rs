//! Counters of an emulated drive, and the host's lateness.

use engine::dispatcher::HOST_LATE_LIMIT;
use hdrhistogram::Histogram;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use super::worker::Finished;
use crate::plant::Service;

/// The longest lateness that is told apart: beyond, the host was not running.
const LATENESS_NS_MAX: u64 = 600_000_000_000;
/// Digits to which the distribution of lateness is kept.
const LATENESS_DIGITS: u8 = 3;

/// A distribution of lateness.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatenessSummary {
    /// The median.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The 99.9th percentile.
    pub p999: Nanos,
    /// The worst.
    pub max: Nanos,
}

/// Counters of a drive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DriveStats {
    /// Requests completed, failed ones included.
    pub completed: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Requests that failed because a fault was injected or the drive was gone.
    pub faults: u64,
    /// Requests that failed because the host's file did (no space left, for example).
    pub host_errors: u64,
    /// The time the model was busy.
    pub busy: Nanos,
    /// Lateness of the drive's thread at the end of requests, against the model: zero while the host wakes it
    /// in time.
    pub done_late: LatenessSummary,
    /// Lateness of the hand-over to the waiting thread, against the model. The host has to wake that thread
    /// too.
    pub lateness: LatenessSummary,
    /// Present lead: time before a completion at which the waiting thread is called.
    pub lead: Nanos,
    /// Requests whose data took the host's file longer than the model took for everything.
    pub late_file: u64,
    /// Requests handed over more than [`LATE_LIMIT`] after the model's instant, whatever the cause.
    pub late: u64,
}

/// Beyond this a completion counts as late: the accuracy that is promised at the 99th percentile. It is
/// what a dispatcher calls a late host, so that both count the same completions.
pub const LATE_LIMIT: Nanos = HOST_LATE_LIMIT;

/// A request, and what the model said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceLogEntry {
    /// When it was issued.
    pub issued: Time,
    /// The direction.
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// The plant's answer.
    pub service: Service,
    /// When it was due: the plant's instant, later for faults and stalls.
    pub due: Time,
    /// When the host had moved the data.
    pub moved: Time,
    /// When it was handed over.
    pub handed_over: Time,
}

pub(super) struct Recorder {
    stats: DriveStats,
    done_late: Histogram<u64>,
    lateness: Histogram<u64>,
    log: Vec<ServiceLogEntry>,
    log_max: usize,
}

impl Recorder {
    pub(super) fn new() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENESS_NS_MAX, LATENESS_DIGITS)
                .expect("the bounds are constants that the library takes")
        };
        Self {
            stats: DriveStats::default(),
            done_late: histogram(),
            lateness: histogram(),
            log: Vec::new(),
            log_max: 0,
        }
    }

    pub(super) fn record(&mut self, finished: &Finished, at: Time) {
        let late = at.saturating_since(finished.due);
        self.lateness.saturating_record(late.get());
        let done_late = finished.posted.saturating_since(finished.due);
        self.done_late.saturating_record(done_late.get());
        let stats = &mut self.stats;
        stats.completed += 1;
        stats.busy += finished.due.saturating_since(finished.service.begun);
        stats.late += u64::from(late > LATE_LIMIT);
        stats.late_file += u64::from(finished.moved > finished.due);
        match (finished.result.is_ok(), finished.op) {
            (true, Op::Read) => stats.sectors_read += finished.count.get(),
            (true, Op::Write) => stats.sectors_written += finished.count.get(),
            (false, _) if finished.host_failed => stats.host_errors += 1,
            (false, _) => stats.faults += 1,
        }
        if self.log.len() < self.log_max {
            self.log.push(ServiceLogEntry {
                issued: finished.issued,
                op: finished.op,
                start: finished.start,
                count: finished.count,
                service: finished.service,
                due: finished.due,
                moved: finished.moved,
                handed_over: at,
            });
        }
    }

    pub(super) fn stats(&self) -> DriveStats {
        DriveStats {
            done_late: summary(&self.done_late),
            lateness: summary(&self.lateness),
            ..self.stats.clone()
        }
    }

    pub(super) fn keep_log(&mut self, entries_max: usize) {
        self.log = Vec::with_capacity(entries_max);
        self.log_max = entries_max;
    }

    pub(super) fn take_log(&mut self) -> Vec<ServiceLogEntry> {
        std::mem::replace(&mut self.log, Vec::with_capacity(self.log_max))
    }
}

fn summary(histogram: &Histogram<u64>) -> LatenessSummary {
    let quantile = |q| Nanos(histogram.value_at_quantile(q));
    LatenessSummary {
        p50: quantile(0.5),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: Nanos(histogram.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::Breakdown;

    const DUE: Time = Time(10_000_000);

    fn finished(moved: Time) -> Finished {
        Finished {
            tag: 1,
            op: Op::Read,
            start: Sector(0),
            count: SectorCount(8),
            result: Ok(()),
            host_failed: false,
            issued: Time(1),
            service: Service {
                begun: Time(1),
                completed: DUE,
                breakdown: Breakdown::default(),
            },
            due: DUE,
            moved,
            posted: DUE,
            called_at: None,
            crossing: None,
        }
    }

    #[test]
    fn late_is_what_is_handed_over_more_than_a_fifth_of_a_millisecond_after_it_was_due() {
        let mut recorder = Recorder::new();
        for (us, late) in [(0, 0), (199, 0), (200, 0), (201, 1), (5_000, 2)] {
            recorder.record(&finished(DUE), DUE + Nanos::from_micros(us));
            assert_eq!(recorder.stats().late, late, "{us} us");
        }
        let stats = recorder.stats();
        assert_eq!((stats.completed, stats.late_file), (5, 0));
    }

    #[test]
    fn the_file_is_late_when_it_has_moved_the_data_after_the_model() {
        let mut recorder = Recorder::new();
        for (moved, late_file) in [(DUE.0 - 1, 0), (DUE.0, 0), (DUE.0 + 1, 1)] {
            recorder.record(&finished(Time(moved)), DUE);
            assert_eq!(recorder.stats().late_file, late_file, "moved at {moved}");
        }
        assert_eq!(recorder.stats().late, 0);
    }
}
