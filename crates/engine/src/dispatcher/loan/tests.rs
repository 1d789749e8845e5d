use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::{Class, Op, Order, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount, Time};

use super::super::{
    Dispatcher, DispatcherConfig, DispatcherHandle, Io, Places, RejectReason, StallLimits,
};
use crate::buffer::{Account, Buffer, Memory, MemoryConfig};
use crate::clock;
use crate::completion::{CompletionQueue, IoError};
use crate::disk::{Disk, DiskError, DiskIo, Done, Durability};
use crate::event::EventFd;
use crate::rt::ThreadParams;

const SECTORS: SectorCount = SectorCount(2048);
const SIZE: usize = SECTOR_BYTES as usize;

/// A disk that completes transfers while taking them, and records the thread that submitted.
struct InstantDisk {
    bytes: Vec<u8>,
    ready: Vec<Done>,
    panics: Arc<AtomicBool>,
    served_by: Arc<Mutex<Vec<ThreadId>>>,
}

impl Disk for InstantDisk {
    fn capacity(&self) -> SectorCount {
        SECTORS
    }

    fn places(&self) -> usize {
        4
    }

    fn durability(&self) -> Durability {
        Durability::WriteThrough
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
        let at = (io.start.0 * SECTOR_BYTES) as usize;
        let range = at..at + io.segments.size();
        match io.op {
            Op::Read => io.segments.copy_from(0, &self.bytes[range]),
            Op::Write => io.segments.copy_to(0, &mut self.bytes[range]),
        }
        self.served_by.lock().unwrap().push(thread::current().id());
        self.ready.push(Done {
            tag: io.tag,
            result: Ok(()),
            at: clock::now(),
            host_late: Nanos::ZERO,
        });
        Ok(())
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn completes_at_once(&self) -> bool {
        true
    }

    fn wait(&mut self, _: Option<Time>, _: &EventFd, out: &mut Vec<Done>) -> std::io::Result<()> {
        assert!(self.has_ready(), "waited for with nothing ready");
        out.append(&mut self.ready);
        Ok(())
    }
}

struct Rig {
    dispatcher: Dispatcher,
    handle: DispatcherHandle,
    account: Account,
    panics: Arc<AtomicBool>,
    served_by: Arc<Mutex<Vec<ThreadId>>>,
}

fn rig() -> Rig {
    let (panics, served_by) = (Arc::default(), Arc::default());
    let disk = InstantDisk {
        bytes: vec![0; SECTORS.bytes().0 as usize],
        ready: Vec::new(),
        panics: Arc::clone(&panics),
        served_by: Arc::clone(&served_by),
    };
    let profile = DriveProfile::conservative(DriveKind::File, SECTORS).unwrap();
    let (dispatcher, _) = Dispatcher::start(DispatcherConfig {
        name: "at once".into(),
        disk: Box::new(disk),
        scheduler: DiskScheduler::new(Arc::new(profile), SchedulerConfig::default()),
        thread: ThreadParams::ordinary("test-disk"),
        places: Places::default(),
        patience: StallLimits {
            stalled_after: Nanos::from_secs(100_000),
            give_up_after: Nanos::from_secs(200_000),
        },
        link: None,
    })
    .unwrap();
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(4))
    };
    let memory = Memory::new(&config).unwrap();
    Rig {
        handle: dispatcher.handle(),
        dispatcher,
        account: memory.open_account("test", Bytes(0)).unwrap(),
        panics,
        served_by,
    }
}

impl Rig {
    /// A transfer of one sector.
    fn io(&self, queue: &CompletionQueue, op: Op, sector: u64, buffer: &Buffer) -> Io {
        Io {
            account: self.account.id(),
            op,
            start: Sector(sector),
            count: SectorCount(1),
            class: Class::BestEffort(Urgency::Sync),
            order: Order::default(),
            durable: false,
            segments: buffer.segments(op, 0..SIZE).unwrap(),
            target: queue.target(sector).unwrap(),
        }
    }

    fn transfer(&self, queue: &CompletionQueue, op: Op, sector: u64, buffer: &Buffer) {
        self.handle
            .submit(self.io(queue, op, sector, buffer))
            .unwrap();
        let answer = queue.wait(None).unwrap();
        assert_eq!((answer.token, answer.result), (sector, Ok(())));
    }

    /// Reads until a read is served by the calling thread, which happens once the disk's thread sleeps. False
    /// if it never happens.
    fn borrows(&self) -> bool {
        let queue = CompletionQueue::new(1).unwrap();
        let buffer = self.account.allocate(SIZE).unwrap();
        (0..1_000_000).any(|_| {
            self.transfer(&queue, Op::Read, 0, &buffer);
            thread::yield_now();
            self.served_by.lock().unwrap().last() == Some(&thread::current().id())
        })
    }
}

#[test]
fn submitter_serves_while_the_thread_sleeps_and_no_task_has_joined() {
    let rig = rig();
    assert!(rig.borrows());
    let params = TaskParams::new(Nanos::from_millis(500), Nanos::from_secs(5)).unwrap();
    let join = |id, kind| rig.handle.join(TaskId(id), params, kind, Time::ZERO);
    join(1, TaskKind::Floor).unwrap();
    assert!(rig.borrows());

    join(2, TaskKind::Stream).unwrap();
    rig.served_by.lock().unwrap().clear();
    let queue = CompletionQueue::new(1).unwrap();
    let buffer = rig.account.allocate(SIZE).unwrap();
    for sector in 0..200 {
        rig.transfer(&queue, Op::Read, sector, &buffer);
    }
    let me = thread::current().id();
    assert!(rig.served_by.lock().unwrap().iter().all(|by| *by != me));

    assert!(rig.handle.leave(TaskId(2)).unwrap().is_some());
    assert!(rig.borrows());
    rig.dispatcher.stop(true);
}

#[test]
fn requests_and_control_calls_of_many_submitters_are_all_served() {
    const SUBMITTERS: u64 = 4;
    const ROUNDS: u64 = 2_000;
    let rig = rig();
    let busy = AtomicBool::new(true);
    thread::scope(|scope| {
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|submitter| {
                let rig = &rig;
                scope.spawn(move || {
                    let queue = CompletionQueue::new(1).unwrap();
                    let mut buffer = rig.account.allocate(SIZE).unwrap();
                    for round in 0..ROUNDS {
                        let sector = submitter + SUBMITTERS * (round % 100);
                        let byte = (round + submitter) as u8;
                        buffer.with_mut(|bytes| bytes.fill(byte)).unwrap();
                        rig.transfer(&queue, Op::Write, sector, &buffer);
                        buffer.with_mut(|bytes| bytes.fill(!byte)).unwrap();
                        rig.transfer(&queue, Op::Read, sector, &buffer);
                        let same = buffer.with(|bytes| bytes.iter().all(|is| *is == byte));
                        assert!(same.unwrap());
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let params = TaskParams::new(Nanos::from_millis(500), Nanos::from_secs(5)).unwrap();
            for id in (0..).map(TaskId) {
                if !busy.load(Ordering::SeqCst) {
                    return;
                }
                rig.handle.report().unwrap();
                rig.handle
                    .join(id, params, TaskKind::Stream, Time::ZERO)
                    .unwrap();
                assert!(rig.handle.leave(id).unwrap().is_some());
            }
        });
        for submitter in submitters {
            submitter.join().unwrap();
        }
        busy.store(false, Ordering::SeqCst);
    });
    let served = rig.served_by.lock().unwrap().len() as u64;
    assert_eq!(served, 2 * SUBMITTERS * ROUNDS);
    rig.dispatcher.stop(true);
}

#[test]
fn a_borrower_that_panics_ends_the_dispatcher_and_goes_on_itself() {
    let rig = rig();
    assert!(rig.borrows());
    rig.panics.store(true, Ordering::SeqCst);
    let queue = CompletionQueue::new(1).unwrap();
    let buffer = rig.account.allocate(SIZE).unwrap();
    // Served by the owner of the runner: usually this thread, otherwise the disk's.
    rig.handle
        .submit(rig.io(&queue, Op::Read, 7, &buffer))
        .unwrap();
    assert_eq!(queue.wait(None).unwrap().result, Err(IoError::Stopped));
    // The disk's thread ends in either case.
    let late = rig.io(&queue, Op::Read, 7, &buffer);
    rig.dispatcher.stop(true);
    let refused = rig.handle.try_submit(late).unwrap_err();
    assert_eq!(refused.reason, RejectReason::Stopped);
}
