//! A disk's thread allocates nothing per request, including requests that it passes to another thread.

use std::fs::File;
use std::sync::Arc;
use testkit::folders;
use testkit::own_process;

use crate::counting::{Counted, count_here, counted};
use engine::buffer::{Memory, MemoryConfig};
use engine::clock;
use engine::completion::CompletionQueue;
use engine::disk::Disk;
use engine::dispatcher::{Dispatcher, DispatcherConfig, Io, Places, StallLimits};
use engine::rt::ThreadParams;
use engine::testing::MailboxProbe;
use engine::uring::UringDisk;
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::{Class, Op, Order, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, Nanos, Sector, SectorCount};

const BLOCK: usize = 4096;
const DEPTH: usize = 16;

const STREAM: TaskId = TaskId(1);
const SERVER: TaskId = TaskId(2);

/// A stream, whose requests are sometimes early and sometimes due; a client with a reservation; plain best
/// effort.
const CLASSES: [Class; 4] = [
    Class::Stream(STREAM),
    Class::Reserved(SERVER, Urgency::Sync),
    Class::BestEffort(Urgency::Sync),
    Class::BestEffort(Urgency::Async),
];

/// Allocations of a disk's thread and of the submitter, for a thousand requests of these classes and for the
/// next two thousand.
fn allocations(folder: &std::path::Path, classes: &[Class]) -> (u64, u64) {
    let path = folder.join("disk");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(4))
    };
    let memory = Memory::new(&config).unwrap();
    let disk = UringDisk::open(&path, &memory, 8).unwrap();
    let capacity = disk.capacity();
    let profile = DriveProfile::conservative(DriveKind::File, capacity).unwrap();
    let (dispatcher, _) = Dispatcher::start(DispatcherConfig {
        name: "counted".into(),
        disk: Box::new(Counted(disk)),
        scheduler: DiskScheduler::new(Arc::new(profile), SchedulerConfig::default()),
        thread: ThreadParams::ordinary("counted"),
        places: Places::default(),
        patience: StallLimits::default(),
        link: None,
    })
    .unwrap();
    let handle = dispatcher.handle();
    let params = TaskParams::new(Nanos::from_millis(100), Nanos::from_millis(500)).unwrap();
    for (task, kind) in [(STREAM, TaskKind::Stream), (SERVER, TaskKind::Server)] {
        let is_used = |class: &Class| matches!(class, Class::Stream(id) | Class::Reserved(id, _) if *id == task);
        if classes.iter().any(is_used) {
            handle.join(task, params, kind, clock::now()).unwrap();
        }
    }
    let account = memory.open_account("test", Bytes(0)).unwrap();
    let queue = CompletionQueue::new(DEPTH).unwrap();
    let buffers: Vec<_> = (0..DEPTH)
        .map(|_| account.allocate(BLOCK).unwrap())
        .collect();
    let submit = |slot: usize, round: u64| {
        let op = if round.is_multiple_of(2) {
            Op::Write
        } else {
            Op::Read
        };
        let half = BLOCK / 2;
        // Two pieces, so that some transfers are vectored.
        let mut segments = buffers[slot].segments(op, half..BLOCK).unwrap();
        segments.push(&buffers[slot], 0..half).unwrap();
        let io = Io {
            account: account.id(),
            op,
            start: Sector(round * 8 % (capacity.0 - 8)),
            count: SectorCount(8),
            class: classes[round as usize % classes.len()],
            order: Order::default(),
            durable: false,
            segments,
            target: queue.target(slot as u64).unwrap(),
        };
        // A disk that completes at once may be served by this thread.
        count_here(true);
        let submitted = handle.submit(io);
        count_here(false);
        submitted.unwrap();
    };
    let run = |rounds: u64| {
        for slot in 0..DEPTH {
            submit(slot, slot as u64);
        }
        for round in 0..rounds {
            let answer = queue.wait(None).unwrap();
            answer.result.unwrap();
            submit(answer.token as usize, round);
        }
        for _ in 0..DEPTH {
            queue.wait(None).unwrap().result.unwrap();
        }
    };
    let measure = || {
        let before = counted();
        assert!(before > 0, "the counter counts");
        run(1000);
        let once = counted() - before;
        run(2000);
        (once, counted() - before - once)
    };
    // Structures that grow once have grown, though on a busy host that may take longer. Allocations per
    // request would show in every measurement.
    run(2000);
    let measured = (0..4).map(|_| measure());
    let found = measured.reduce(|least, of| if least == (0, 0) { least } else { of });
    dispatcher.stop(true);
    found.unwrap_or_default()
}

#[test]
fn a_disk_thread_allocates_nothing_per_request() {
    own_process(|| {
        for folder in folders::folders() {
            // Best effort alone; a stream alone, so that the thread waits for releases and deadlines; all
            // classes.
            for classes in [&CLASSES[2..3], &CLASSES[..1], &CLASSES[..]] {
                let about = format!("{}: {classes:?}", folder.path().display());
                assert_eq!(allocations(folder.path(), classes), (0, 0), "{about}");
            }
        }
    });
}

#[test]
fn mailbox_allocates_only_beyond_its_places() {
    own_process(|| {
        let mailbox = MailboxProbe::new(3);
        let allocations = |letters: u64| {
            let before = counted();
            count_here(true);
            for _ in 0..100 {
                assert!(mailbox.pass(letters));
            }
            count_here(false);
            counted() - before
        };
        assert_eq!(allocations(3), 0);
        assert_eq!(allocations(5), 200);
    });
}
