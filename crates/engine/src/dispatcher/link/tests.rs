//! The exchange of places, step by step and between threads.
//!
//! Time stands still where threads run: a loan ends when its piece does, and no test depends on how fast they are.

use super::*;
use std::sync::atomic::AtomicUsize;

use sched::disk::SchedulerConfig;
use sched::profile::DriveProfile;
use sched::request::{Class, Op, Order, Request, RequestId, Urgency};
use sched::units::{Sector, SectorCount};
use testkit::Random;

use crate::clock;

const NOW: Time = Time(1_000_000_000);

fn disk() -> DiskScheduler {
    let profile = DriveProfile::shipped("quantum-atlas-ii").expect("shipped");
    DiskScheduler::new(Arc::new(profile), SchedulerConfig::default())
}

fn places(disks: usize, lenders: usize) -> Arc<LinkPlaces> {
    LinkPlaces::new(disks, lenders).expect("descriptors")
}

fn submit(disk: &mut DiskScheduler, now: Time, id: u64, sectors: u64) {
    let request = Request {
        id: RequestId(id),
        op: Op::Read,
        start: Sector(id * 1_000),
        count: SectorCount(sectors),
        class: Class::BestEffort(Urgency::Sync),
        order: Order::default(),
    };
    disk.submit(now, request).expect("accepted");
}

/// A disk at its end of a link, step by step.
struct Side {
    end: LinkEnd,
    disk: DiskScheduler,
}

impl Side {
    fn of(places: &Arc<LinkPlaces>, disk_of_link: usize) -> Self {
        Self {
            end: places.end(disk_of_link),
            disk: disk(),
        }
    }

    fn decide(&mut self, now: Time) -> Decision {
        self.end.decide(now, &mut self.disk)
    }

    /// Until when the place is lent.
    fn lends(&mut self, now: Time) -> Time {
        match self.decide(now) {
            Decision::Wait { until: Some(until) } => until,
            other => panic!("{other:?}"),
        }
    }

    fn waits(&mut self, now: Time) {
        assert_eq!(self.decide(now), Decision::Wait { until: None });
    }

    fn begins(&mut self, now: Time) -> RequestId {
        match self.decide(now) {
            Decision::Issue(dispatch) => dispatch.id,
            Decision::Wait { until } => panic!("waits until {until:?}"),
        }
    }

    /// Returns true if that was the last piece of the request.
    fn ends(&mut self, now: Time, id: RequestId) -> bool {
        self.end.ended();
        self.disk
            .completed(now, id)
            .expect("it was on the disk")
            .finished
    }
}

#[test]
fn a_place_that_is_granted_to_a_disk_without_work_comes_back() {
    let places = places(2, 1);
    let (mut lender, mut borrower) = (Side::of(&places, 0), Side::of(&places, 1));
    submit(&mut borrower.disk, NOW, 1, 8);
    borrower.waits(NOW);
    lender.lends(NOW);
    assert!(borrower.end.has_news());
    borrower.disk.cancel(NOW, RequestId(1));
    lender.end.take_news();
    borrower.waits(NOW);
    assert!(lender.end.has_news());
    submit(&mut lender.disk, NOW, 2, 8);
    lender.begins(NOW);
}

#[test]
fn a_loan_for_a_shorter_piece_is_not_used_for_a_longer_one() {
    let places = places(2, 1);
    let (mut lender, mut borrower) = (Side::of(&places, 0), Side::of(&places, 1));
    submit(&mut borrower.disk, NOW, 1, 8);
    borrower.waits(NOW);
    let short = lender.lends(NOW);
    borrower.disk.cancel(NOW, RequestId(1));
    submit(&mut borrower.disk, NOW, 2, 512);
    borrower.waits(NOW);
    assert!(lender.lends(NOW) > short);
    assert_eq!(borrower.begins(NOW), RequestId(2));
}

#[test]
fn a_disk_that_does_not_answer_asks_for_nothing_and_lends_always() {
    let places = places(3, 1);
    let (mut lender, mut gone) = (Side::of(&places, 0), Side::of(&places, 1));
    let mut borrower = Side::of(&places, 2);
    submit(&mut gone.disk, NOW, 1, 8);
    gone.waits(NOW);
    assert_eq!(gone.end.lend_unused(NOW), None);
    lender.waits(NOW);
    submit(&mut borrower.disk, NOW, 2, 8);
    borrower.waits(NOW);
    let until = lender.end.lend_unused(NOW);
    assert!(until.is_some());
    assert_eq!(lender.end.lend_unused(NOW), until);
    assert_eq!(borrower.begins(NOW), RequestId(2));
}

#[test]
fn a_place_is_not_used_when_its_time_is_over() {
    let places = places(2, 1);
    let (mut lender, mut borrower) = (Side::of(&places, 0), Side::of(&places, 1));
    submit(&mut borrower.disk, NOW, 1, 8);
    borrower.waits(NOW);
    let until = lender.lends(NOW);
    submit(&mut lender.disk, NOW, 2, 8);
    borrower.waits(until);
    let own = lender.begins(until);
    assert!(lender.ends(until + Nanos(1), own));
    assert!(lender.lends(until + Nanos(1)) > until);
    assert_eq!(borrower.begins(until + Nanos(2)), RequestId(1));
}

/// The first piece overruns. When it ends, the second one's loan is out; then that one has come back.
#[test]
fn a_loan_that_comes_back_late_changes_no_other() {
    for late_first in [true, false] {
        let places = places(3, 1);
        let mut lender = Side::of(&places, 0);
        let (mut first, mut second) = (Side::of(&places, 1), Side::of(&places, 2));
        submit(&mut first.disk, NOW, 1, 8);
        first.waits(NOW);
        let over = lender.lends(NOW);
        let overruns = first.begins(NOW);
        submit(&mut second.disk, over, 2, 8);
        second.waits(over);
        let until = lender.lends(over);
        let in_time = second.begins(over);
        let at = over + Nanos(1);
        submit(&mut lender.disk, at, 3, 8);
        if late_first {
            assert!(first.ends(at, overruns));
            assert_eq!(lender.lends(at), until);
            assert!(second.ends(at, in_time));
        } else {
            assert!(second.ends(at, in_time));
            assert!(first.ends(at, overruns));
        }
        assert_eq!(lender.begins(at), RequestId(3));
    }
}

/// Shared by the threads of a link.
struct Link {
    places: Arc<LinkPlaces>,
    executing: AtomicUsize,
    most: AtomicUsize,
    /// Requests of all disks that have not been served.
    left: AtomicUsize,
}

impl Link {
    /// Serves `requests` on this disk, and lends until all disks are done. Returns the number of sleeps.
    fn run(&self, disk_of_link: usize, requests: u64, random: &mut Random) -> u64 {
        let mut side = Side::of(&self.places, disk_of_link);
        let bell = side.end.bell();
        let (mut submitted, mut served, mut sleeps) = (0, 0, 0);
        loop {
            if submitted == served {
                let more = random.range(1, 3).min(requests - submitted);
                for _ in 0..more {
                    submitted += 1;
                    submit(&mut side.disk, NOW, submitted, 8 * random.range(1, 64));
                }
            }
            side.end.take_news();
            match side.decide(NOW) {
                Decision::Issue(dispatch) => {
                    let executing = self.executing.fetch_add(1, Ordering::SeqCst) + 1;
                    self.most.fetch_max(executing, Ordering::SeqCst);
                    (0..random.below(4)).for_each(|_| std::thread::yield_now());
                    self.executing.fetch_sub(1, Ordering::SeqCst);
                    if !side.ends(NOW, dispatch.id) {
                        continue;
                    }
                    served += 1;
                    if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                        (0..self.places.bells.len()).for_each(|disk| self.places.ring(disk));
                    }
                }
                Decision::Wait { .. } => {
                    if self.left.load(Ordering::SeqCst) == 0 {
                        return sleeps;
                    }
                    bell.arm();
                    if !side.end.has_news() {
                        sleeps += 1;
                        let far = clock::now() + Nanos::from_millis(60_000);
                        assert!(
                            bell.event().wait(Some(far)),
                            "disk {disk_of_link} was not woken"
                        );
                    }
                    bell.disarm();
                }
            }
        }
    }
}

#[test]
fn threads_use_no_more_places_than_there_are_and_all_of_them_are_served() {
    let seed = testkit::seed("places of a link", None);
    for (disks, lenders) in [(2, 1), (3, 1), (3, 2), (6, 3)] {
        let each = 500;
        let link = Link {
            places: places(disks, lenders),
            executing: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            left: AtomicUsize::new(disks * each),
        };
        let sleeps: u64 = std::thread::scope(|scope| {
            let link = &link;
            let threads: Vec<_> = (0..disks)
                .map(|disk| {
                    let mut random = Random(seed + disk as u64);
                    scope.spawn(move || link.run(disk, each as u64, &mut random))
                })
                .collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            joined.sum()
        });
        assert!(sleeps > 0);
        let most = link.most.into_inner();
        assert!(most <= lenders, "{most} of {lenders} places, seed {seed}");
    }
}
