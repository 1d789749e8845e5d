//! Asynchronous best effort leaves slack to synchronous requests that are still to come.

use crate::common::disk::{atlas, request};
use sched::admission::Admission;
use sched::delta_l::{delta_l, delta_l_published};
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::request::{Class, Decision, Dispatch, Op, RequestId, Served, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};

const BLOCK: u64 = 2_048;
const STREAMS: u64 = 16;
const WRITES: u64 = 400;
const REGION: u64 = 2_000_000;

/// Streams that are all released at once and take four fifths of the disk, and a queue of writes that
/// nobody waits for.
struct Run {
    disk: DiskScheduler,
    now: Time,
    next_id: u64,
}

impl Run {
    fn new() -> Self {
        let mut disk = atlas(SchedulerConfig::default());
        let outer = Sector(0)..Sector(REGION);
        let service = disk
            .predictor()
            .worst_case(outer, Op::Read, SectorCount(BLOCK));
        let period = Nanos(service.get() * STREAMS * 5 / 4);
        let params = TaskParams::new(service, period).expect("a task");
        let mut admission = Admission::new();
        for id in (0..STREAMS).map(TaskId) {
            admission.insert(id, params).expect("they fit");
            disk.join(Time(0), id, params, TaskKind::Stream, Time(0))
                .expect("admitted");
        }
        let (corrected, published) = (delta_l(&admission), delta_l_published(&admission));
        disk.set_delta_l(Time(0), corrected.value, published.value);
        let mut run = Self {
            disk,
            now: Time(0),
            next_id: 0,
        };
        for id in 0..STREAMS {
            run.submit(Class::Stream(TaskId(id)), Op::Read, id * 100_000, BLOCK);
        }
        for number in 0..WRITES {
            let start = 4_000_000 + number * 7_919 % REGION;
            run.submit(Class::BestEffort(Urgency::Async), Op::Write, start, 8);
        }
        run
    }

    fn submit(&mut self, class: Class, op: Op, start: u64, count: u64) -> RequestId {
        let request = request(&mut self.next_id, class, op, Sector(start), count);
        self.disk.submit(self.now, request).expect("there is room");
        request.id
    }

    /// The next piece, or `None` when nothing is left to do.
    fn issue(&mut self) -> Option<Dispatch> {
        match self.disk.decide(self.now) {
            Decision::Issue(piece) => Some(piece),
            Decision::Wait { .. } => None,
        }
    }

    /// Completes the piece after seven eighths of its predicted time.
    fn complete(&mut self, piece: &Dispatch) {
        self.now += Nanos(piece.predicted.get() * 7 / 8);
        let done = self.disk.completed(self.now, piece.id).expect("issued");
        assert_eq!(done.lateness, Nanos::ZERO, "{piece:?} is late");
    }
}

/// Whenever it comes, a read goes next: at each decision of the run in turn.
#[test]
fn a_synchronous_request_goes_next_however_much_write_back_there_was() {
    let mut blocks_left = STREAMS;
    let mut moments = 0;
    // Moment by moment until the streams have nothing released any more.
    while blocks_left > 0 {
        let mut run = Run::new();
        blocks_left = STREAMS;
        for _ in 0..moments {
            let piece = run.issue().expect("there is more to do");
            blocks_left -= u64::from(piece.served == Served::RealTime);
            run.complete(&piece);
        }
        let read = run.submit(Class::BestEffort(Urgency::Sync), Op::Read, 5_000_000, 8);
        let next = run.issue().expect("there is a read to do");
        assert_eq!(next.id, read, "after {moments} pieces: {next:?}");
        moments += 1;
    }
    // Write-back used what it might: it went between the blocks, not after them.
    assert!(moments > STREAMS + 20, "{moments}");
}

/// The reserve is no share: when nothing is released, or it has waited for long, write-back goes.
#[test]
fn write_back_is_served_before_blocks_fall_due_again() {
    let mut run = Run::new();
    let mut written = 0;
    while let Some(piece) = run.issue() {
        written += u64::from(piece.served == Served::Slack);
        run.complete(&piece);
    }
    assert_eq!(written, WRITES);
}
