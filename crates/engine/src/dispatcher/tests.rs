//! Dispatchers on a disk in memory.

mod faults;
mod host;
mod machine;

use std::collections::HashMap;
use std::sync::Mutex;

use proptest::prelude::*;
use sched::disk::{SchedulerConfig, SubmitError};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::{Class, Op, Order, Urgency};
use sched::units::{Bytes, Sector};

use super::*;
use crate::buffer::{Account, AccountId, Memory, MemoryConfig, Segments};
use crate::clock;
use crate::completion::{Completion, CompletionQueue, IoError};
use crate::disk::{DiskError, DiskIo, Done, Durability};
use crate::event::EventFd;

const SECTORS: SectorCount = SectorCount(2048);
const SYNC: Class = Class::BestEffort(Urgency::Sync);
const FEW: Places = Places {
    stream: 2,
    reserved: 2,
    best_effort: 4,
};

fn scheduler() -> DiskScheduler {
    let profile = DriveProfile::conservative(DriveKind::File, SECTORS).unwrap();
    DiskScheduler::new(Arc::new(profile), SchedulerConfig::default())
}

/// However slow the host is, a disk does not stall in a test that is not about that.
const NEVER: Patience = Patience {
    stalled_after: Nanos::from_secs(100_000),
    give_up_after: Nanos::from_secs(100_000),
};

/// A disk that is stalled is given up at once.
const LITTLE: Patience = Patience {
    stalled_after: Nanos::from_millis(30),
    give_up_after: Nanos::from_millis(30),
};

/// What a test does to a disk that lives in memory.
#[derive(Debug, Default)]
struct Knobs {
    /// Completes nothing while set.
    frozen: AtomicBool,
    /// Every write from now on fails.
    fails_writes: AtomicBool,
    /// Every transfer from now on fails: the disk is gone.
    vanished: AtomicBool,
    /// Waiting fails.
    deaf: AtomicBool,
    /// Panics in the next submission.
    panics: AtomicBool,
}

struct MemoryDisk {
    bytes: Vec<u8>,
    held: Vec<DiskIo>,
    knobs: Arc<Knobs>,
    served: Arc<Mutex<Vec<(Op, Sector)>>>,
}

impl Disk for MemoryDisk {
    fn capacity(&self) -> SectorCount {
        SECTORS
    }

    fn places(&self) -> usize {
        1
    }

    fn durability(&self) -> Durability {
        Durability::WriteThrough
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        assert!(!self.knobs.panics.load(Ordering::SeqCst), "on purpose");
        if self.knobs.vanished.load(Ordering::SeqCst) {
            return Err(DiskError::Gone {
                errno: libc::ENODEV,
            });
        }
        self.held.push(io);
        Ok(())
    }

    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        if self.knobs.deaf.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if self.held.is_empty() || self.knobs.frozen.load(Ordering::SeqCst) {
            wake.wait(until);
            return Ok(());
        }
        for io in self.held.drain(..) {
            let at = (io.start.0 * SECTOR_BYTES) as usize;
            let range = at..at + io.segments.size();
            let fails = io.op == Op::Write && self.knobs.fails_writes.load(Ordering::SeqCst);
            match io.op {
                Op::Read => io.segments.copy_from(0, &self.bytes[range]),
                Op::Write if fails => {}
                Op::Write => io.segments.copy_to(0, &mut self.bytes[range]),
            }
            self.served.lock().unwrap().push((io.op, io.start));
            let result = if fails {
                Err(DiskError::Io {
                    errno: libc::EIO,
                    start: io.start,
                })
            } else {
                Ok(())
            };
            out.push(Done {
                tag: io.tag,
                result,
                at: clock::now(),
                host_late: Nanos::ZERO,
            });
        }
        Ok(())
    }
}

struct Rig {
    dispatcher: Option<Dispatcher>,
    handle: DispatcherHandle,
    knobs: Arc<Knobs>,
    served: Arc<Mutex<Vec<(Op, Sector)>>>,
    account: Account,
    queue: CompletionQueue,
}

fn rig_with(places: Places, patience: Patience) -> Rig {
    let knobs = Arc::new(Knobs::default());
    let served = Arc::default();
    let disk = MemoryDisk {
        bytes: vec![0; SECTORS.bytes().0 as usize],
        held: Vec::new(),
        knobs: Arc::clone(&knobs),
        served: Arc::clone(&served),
    };
    let (dispatcher, _) = Dispatcher::start(DispatcherConfig {
        name: "memory".into(),
        disk: Box::new(disk),
        scheduler: scheduler(),
        thread: ThreadParams::ordinary("test-disk"),
        places,
        patience,
    })
    .unwrap();
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(4))
    };
    let account = Memory::new(&config)
        .unwrap()
        .open_account("test", Bytes(0))
        .unwrap();
    let handle = dispatcher.handle();
    let queue = CompletionQueue::new(256).unwrap();
    Rig {
        dispatcher: Some(dispatcher),
        handle,
        knobs,
        served,
        account,
        queue,
    }
}

fn rig() -> Rig {
    rig_with(Places::default(), NEVER)
}

impl Rig {
    fn io(&self, token: u64, op: Op, start: u64, segments: Segments) -> Io {
        Io {
            account: self.account.id(),
            op,
            start: Sector(start),
            count: SectorCount(segments.size() as u64 / SECTOR_BYTES),
            class: SYNC,
            order: Order::default(),
            durable: false,
            segments,
            target: self.queue.target(token).unwrap(),
        }
    }

    /// A transfer of 4 KiB whose buffer goes with it.
    fn small(&self, token: u64, op: Op, start: u64) -> Io {
        let buffer = self.account.allocate(4096).unwrap();
        self.io(token, op, start, buffer.segments(op, 0..4096).unwrap())
    }

    fn answer(&self) -> Completion {
        self.queue.wait(None).unwrap()
    }

    fn results(&self, count: usize) -> HashMap<u64, Result<(), IoError>> {
        (0..count)
            .map(|_| self.answer())
            .map(|answer| (answer.token, answer.result))
            .collect()
    }

    /// Waits until the disk's thread has taken in everything that came before.
    fn settle(&self) -> DispatcherReport {
        self.handle.report().unwrap()
    }

    fn thaw(&self) {
        self.knobs.frozen.store(false, Ordering::SeqCst);
        self.settle();
    }

    /// A disk that is busy with one read, token 0, until it thaws.
    fn freeze(&self) {
        self.knobs.frozen.store(true, Ordering::SeqCst);
        self.handle.try_submit(self.small(0, Op::Read, 0)).unwrap();
        while self.settle().on_disk == 0 {}
    }
}

#[test]
fn what_is_written_is_read_back_and_timed() {
    let rig = rig();
    let mut buffer = rig.account.allocate(8192).unwrap();
    buffer.with_mut(|bytes| bytes.fill(5)).unwrap();
    rig.handle
        .submit(rig.io(
            1,
            Op::Write,
            8,
            buffer.segments(Op::Write, 0..8192).unwrap(),
        ))
        .unwrap();
    let written = rig.answer();
    assert_eq!((written.token, written.result), (1, Ok(())));
    let timing = written.timing;
    assert!(timing.submitted <= timing.issued && timing.issued <= timing.completed);
    buffer.with_mut(|bytes| bytes.fill(0)).unwrap();
    rig.handle
        .submit(rig.io(2, Op::Read, 8, buffer.segments(Op::Read, 0..8192).unwrap()))
        .unwrap();
    assert_eq!(rig.answer().result, Ok(()));
    assert!(buffer.with(|bytes| bytes == [5; 8192]).unwrap());
    let report = rig.settle();
    assert_eq!(
        (report.requests, report.on_disk, report.counters.completed),
        (0, 0, 2)
    );
    assert_eq!(report.counters.sync_latency_us.len(), 2);
    assert_eq!(report.health, Health::default());
}

#[test]
fn what_a_disk_cannot_do_is_refused_and_comes_back() {
    let rig = rig();
    let buffer = rig.account.allocate(8192).unwrap();
    let reason = |io: Io| {
        let rejected = rig.handle.try_submit(io).unwrap_err();
        // Its target is unanswered until the request is dropped.
        assert_eq!(rig.queue.poll(), None);
        let reason = rejected.reason;
        drop(rejected);
        assert_eq!(rig.answer().result, Err(IoError::Stopped));
        reason
    };
    let segments = |range| buffer.segments(Op::Read, range).unwrap();
    assert_eq!(
        reason(rig.io(1, Op::Read, SECTORS.0, segments(0..512))),
        Reason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Read, u64::MAX, segments(0..512))),
        Reason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Read, 0, segments(0..0))),
        Reason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Read, 0, segments(0..700))),
        Reason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Write, 0, segments(0..512))),
        Reason::Invalid
    );
    let theirs = Io {
        account: AccountId(77),
        ..rig.io(1, Op::Read, 0, segments(0..512))
    };
    assert_eq!(reason(theirs), Reason::Foreign);
    let stranger = Io {
        class: Class::Stream(TaskId(5)),
        ..rig.io(1, Op::Read, 0, segments(0..512))
    };
    rig.handle.submit(stranger).unwrap();
    let refused = IoError::Refused(SubmitError::NoSuchTask(TaskId(5)));
    assert_eq!(rig.answer().result, Err(refused));
}

#[test]
fn a_full_queue_refuses_or_makes_wait_and_leaves_room_for_streams() {
    let rig = rig_with(FEW, NEVER);
    let params = TaskParams::new(Nanos::from_millis(500), Nanos::from_secs(5)).unwrap();
    rig.handle
        .join(TaskId(1), params, TaskKind::Stream, Time::ZERO)
        .unwrap();
    rig.freeze();
    for token in 1..4 {
        rig.handle
            .try_submit(rig.small(token, Op::Read, 0))
            .unwrap();
    }
    assert_eq!(
        rig.handle
            .try_submit(rig.small(4, Op::Read, 0))
            .unwrap_err()
            .reason,
        Reason::Full
    );
    assert_eq!(rig.answer().token, 4, "the refused one, dropped");
    let stream = Io {
        class: Class::Stream(TaskId(1)),
        ..rig.small(5, Op::Read, 0)
    };
    rig.handle.try_submit(stream).unwrap();
    std::thread::scope(|scope| {
        for token in 6..10 {
            let io = rig.small(token, Op::Read, 0);
            let handle = &rig.handle;
            scope.spawn(move || handle.submit(io).unwrap());
        }
        rig.thaw();
    });
    let results = rig.results(9);
    assert_eq!(results.len(), 9);
    assert!(results.values().all(Result::is_ok));
}

#[test]
fn a_request_can_be_taken_back_until_it_is_on_the_disk() {
    let rig = rig();
    rig.knobs.frozen.store(true, Ordering::SeqCst);
    let running = rig.handle.submit(rig.small(0, Op::Read, 0)).unwrap();
    while rig.settle().on_disk == 0 {}
    let queued = rig.handle.submit(rig.small(1, Op::Read, 0)).unwrap();
    rig.handle.cancel(running);
    rig.handle.cancel(queued);
    rig.handle.cancel(RequestId(u64::MAX));
    let answer = rig.answer();
    assert_eq!((answer.token, answer.result), (1, Err(IoError::Cancelled)));
    rig.thaw();
    assert_eq!(rig.answer().result, Ok(()));
}

#[test]
fn a_named_request_that_fails_or_is_taken_back_lets_the_others_go() {
    let rig = rig();
    let after = |id| Order {
        after: [Some(id), None, None, None],
        ..Order::default()
    };
    rig.freeze();
    let named = rig.handle.submit(rig.small(1, Op::Read, 1024)).unwrap();
    let second = Io {
        order: after(named),
        ..rig.small(2, Op::Read, 512)
    };
    let second = rig.handle.submit(second).unwrap();
    let third = Io {
        order: after(second),
        ..rig.small(3, Op::Read, 64)
    };
    rig.handle.submit(third).unwrap();
    rig.handle.cancel(named);
    let answer = rig.answer();
    assert_eq!((answer.token, answer.result), (1, Err(IoError::Cancelled)));
    rig.thaw();
    let tokens: Vec<u64> = (0..3).map(|_| rig.answer().token).collect();
    assert_eq!(tokens, [0, 2, 3]);

    rig.freeze();
    let failing = rig.handle.submit(rig.small(4, Op::Write, 1024)).unwrap();
    let last = Io {
        order: after(failing),
        ..rig.small(5, Op::Read, 64)
    };
    rig.handle.submit(last).unwrap();
    rig.knobs.fails_writes.store(true, Ordering::SeqCst);
    rig.thaw();
    let answers: Vec<_> = (0..3).map(|_| rig.answer()).collect();
    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.token)
            .collect::<Vec<_>>(),
        [0, 4, 5]
    );
    assert!(answers[1].result.is_err() && answers[2].result.is_ok());
}

#[test]
fn leaving_waits_for_the_block_on_the_disk_and_cancels_the_others() {
    let rig = rig();
    let params = TaskParams::new(Nanos::from_millis(500), Nanos::from_secs(5)).unwrap();
    rig.handle
        .join(TaskId(1), params, TaskKind::Stream, Time::ZERO)
        .unwrap();
    assert!(matches!(
        rig.handle
            .join(TaskId(1), params, TaskKind::Stream, Time::ZERO),
        Err(ControlError::Join(JoinError::DuplicateTask(_)))
    ));
    assert_eq!(rig.handle.leave(TaskId(9)), Ok(None));
    rig.knobs.frozen.store(true, Ordering::SeqCst);
    for token in 0..2 {
        let io = Io {
            class: Class::Stream(TaskId(1)),
            ..rig.small(token, Op::Read, 0)
        };
        rig.handle.submit(io).unwrap();
    }
    while rig.settle().on_disk == 0 {}
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| rig.handle.leave(TaskId(1)));
        let cancelled = rig.answer();
        assert_eq!(
            (cancelled.token, cancelled.result),
            (1, Err(IoError::Cancelled))
        );
        assert!(!leaving.is_finished());
        rig.thaw();
        assert!(leaving.join().unwrap().unwrap().is_some());
    });
    let block = rig.answer();
    assert_eq!((block.token, block.result), (0, Ok(())));
    assert!(block.timing.deadline.is_some());
}

#[test]
fn stopping_serves_or_fails_what_is_queued_and_answers_everybody() {
    for drain in [true, false] {
        let mut rig = rig();
        rig.freeze();
        for token in 1..10 {
            rig.handle
                .submit(rig.small(token, Op::Read, token))
                .unwrap();
        }
        let dispatcher = rig.dispatcher.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || dispatcher.stop(drain));
            if !drain {
                let failed = rig.results(9);
                assert!(
                    failed
                        .values()
                        .all(|result| *result == Err(IoError::Stopped))
                );
            }
            rig.knobs.frozen.store(false, Ordering::SeqCst);
            // Wakes the disk, which does not notice by itself; it may have stopped already.
            let _ = rig.handle.report();
        });
        let served = rig.results(if drain { 10 } else { 1 });
        assert!(served.values().all(Result::is_ok), "{served:?}");
        let late = rig.handle.submit(rig.small(50, Op::Read, 0)).unwrap_err();
        assert_eq!(late.reason, Reason::Stopped);
        assert_eq!(rig.handle.report().unwrap_err(), Stopped);
        assert_eq!(rig.served.lock().unwrap().len(), if drain { 10 } else { 1 });
    }
}
