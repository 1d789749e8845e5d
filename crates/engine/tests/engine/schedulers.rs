//! The schedulers by name, through the pool: the delta-L that each is given determines its decisions.

use std::sync::atomic::Ordering;
use testkit::disks;

use engine::buffer::{AccountId, Segments};
use engine::completion::CompletionQueue;
use engine::disk::Durability;
use engine::dispatcher::{Action, DispatcherState, Io, Places, StallLimits};
use engine::pool::{Floor, Pool};
use engine::volume_io::{BestEffortReservation, Client, ClientOptions, VolumeRequest};
use sched::book::{Book, Span};
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::profile::DriveProfile;
use sched::request::{Class, Op, Order, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, Nanos, Sector, SectorCount, Time};
use testkit::disks::{MIB, Rig, WRITE, filled, volume};

/// The unit of times. The longest best-effort piece of the disks of [`Rig`] takes 2.66 units: more than the
/// corrected delta-L of the set, less than the published one.
const UNIT: Nanos = Nanos::from_micros(150);

/// A set for which the published delta-L is larger than the corrected one (`docs/design/scheduling.md`).
const SET: [(u64, u64); 4] = [(3, 13), (4, 23), (7, 24), (7, 25)];

/// Bytes of the longest piece.
const PIECE: usize = 195 * 512;

fn reserved(pool: &Pool, (slice, period): (u64, u64)) -> Client {
    let reservation = BestEffortReservation {
        slice: Nanos(slice * UNIT.0),
        period: Nanos(period * UNIT.0),
    };
    let options = ClientOptions {
        reservation: Some(pool.reserve_share("reserved", reservation).unwrap()),
        ..ClientOptions::default()
    };
    pool.client("reserved", options).unwrap()
}

/// True if a request of the longest piece precedes a container that is due, on a disk with the tasks of
/// [`SET`].
fn long_piece_goes_first(scheduler: &str) -> bool {
    let mut rig = Rig::new(1, 32 * MIB, Durability::WriteThrough);
    rig.options.scheduler = scheduler.into();
    rig.options.floor = Floor::None;
    rig.create(MIB);
    let pool = rig.open();
    let volume = volume(&pool, "v", MIB);
    let plain = disks::client(&pool);
    plain
        .write_at(&volume, Bytes(0), &vec![0; MIB as usize])
        .unwrap();
    let clients: Vec<Client> = SET.iter().map(|&task| reserved(&pool, task)).collect();
    let submit = |client: &Client, offset: u64, len: usize| {
        let (_buffer, memory) = filled(client, &vec![1; len]);
        let request = VolumeRequest::transfer(&volume, WRITE, Bytes(offset), memory);
        client.submit(request).unwrap();
    };
    // Both arrive while the disk is busy with a container's request; the long piece is nearer in position.
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    submit(&clients[1], 0, 512);
    // After two replies the dispatcher has issued everything that was queued before the first.
    for _ in 0..2 {
        let _ = pool.status();
    }
    submit(&plain, 4096, PIECE);
    submit(&clients[0], MIB / 2, 4096);
    let _ = pool.status();
    rig.platters[0].stalled.store(false, Ordering::SeqCst);
    clients[1].wait(None).unwrap().result.unwrap();
    let container = clients[0].wait(None).unwrap();
    // Without a floor, the long piece may be served only after the reservations have ended.
    drop(clients);
    let long = plain.wait(None).unwrap();
    long.result.and(container.result).unwrap();
    long.completed < container.completed
}

#[test]
fn published_scheduler_uses_the_published_delta_l() {
    let mut book = Book::new();
    for (index, (slice, period)) in SET.into_iter().enumerate() {
        let params = TaskParams::new(Nanos(slice * UNIT.0), Nanos(period * UNIT.0)).unwrap();
        let span = Span::since(Time(0));
        book.join(TaskId(index as u64), params, span).unwrap();
    }
    let piece = Nanos(399_680);
    assert!(book.delta_l(Time(0)).value < piece);
    assert!(book.delta_l_published(Time(0)).value > piece);
    assert!(long_piece_goes_first("delta-l-published"));
    assert!(!long_piece_goes_first("delta-l"));
    assert!(!long_piece_goes_first("edf"));
}

#[test]
fn best_effort_leaves_the_last_place_to_streams() {
    const PLACES: u32 = 3;
    let rig = Rig::new(1, 32 * MIB, Durability::WriteThrough);
    let mut spec = rig.profile.spec().clone();
    spec.outstanding = PLACES;
    let profile = DriveProfile::new(spec).unwrap();
    let scheduler = DiskScheduler::new(profile.into(), SchedulerConfig::default());
    let patience = StallLimits::default();
    let mut state = DispatcherState::new(scheduler, Places::default(), 8, patience);
    let queue = CompletionQueue::new(16).unwrap();
    let now = Time(1);
    let params = TaskParams::new(Nanos::from_millis(1), Nanos::from_millis(10)).unwrap();
    state
        .join(now, TaskId(1), params, TaskKind::Stream, now)
        .unwrap();
    let ask = |state: &mut DispatcherState, class: Class, token: u64| {
        let id = state.reserve(class).unwrap();
        let io = Io {
            account: AccountId(1),
            op: Op::Read,
            start: Sector(token * 8),
            count: SectorCount(8),
            class,
            order: Order::default(),
            durable: false,
            segments: Segments::empty(Op::Read),
            target: queue.target(token).unwrap(),
        };
        state.submit(now, id, io);
    };
    let issued = |state: &mut DispatcherState, at: Time| {
        let next = || matches!(state.next_action(at), Action::Issue(_));
        std::iter::repeat_with(next)
            .take_while(|issued| *issued)
            .count()
    };
    for token in 0..5 {
        ask(&mut state, Class::BestEffort(Urgency::Sync), token);
    }
    assert_eq!(issued(&mut state, now), PLACES as usize - 1);
    // Requests submitted at the time of a start are released after it.
    let soon = now + Nanos(100);
    ask(&mut state, Class::Stream(TaskId(1)), 5);
    ask(&mut state, Class::Stream(TaskId(1)), 6);
    assert_eq!(issued(&mut state, soon), 1, "the disk has no more room");
    state.stop(now, false);
}
