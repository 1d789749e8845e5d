//! Disks on a link in virtual time.

use std::sync::Arc;

use lab::channel::drive::Drive;
use lab::run::{
    Access, Arrivals, BestEffortLoad, Experiment, LinkedOutcome, LinkedRun, Outcome, StreamLoad,
    run,
};
use sched::disk::SchedulerConfig;
use sched::link::LinkShare;
use sched::profile::DriveProfile;
use sched::request::{Op, Urgency};
use sched::units::{BytesPerSecond, Nanos, Sector, SectorCount, Time};

/// The string of the Cheetahs, which carries two of three.
const RATE: BytesPerSecond = BytesPerSecond(40_000_000);
const SEED: u64 = 2026;

fn drive() -> Drive {
    Drive::built_in("cheetah-4lp").expect("it comes with the program")
}

fn shared_by(disks: u32) -> DriveProfile {
    drive().profile().on_link(LinkShare {
        disks,
        rate: RATE,
        burst_bytes: 256 << 10,
    })
}

/// A disk with so many streams of a megabyte every three seconds, beside small reads and writes.
fn disk(number: u64, streams: u64, profile: DriveProfile) -> Experiment {
    let sectors = drive().capacity().get() / 512;
    let stream = |of: u64| StreamLoad {
        op: if of % 3 == 2 { Op::Write } else { Op::Read },
        block: SectorCount(2048),
        period: Nanos::from_secs(3),
        region: Sector(of * sectors / 40)..Sector((of + 1) * sectors / 40),
        access: Access::Sequential,
        first: Time(number * 1_000_000),
    };
    let small = BestEffortLoad {
        arrivals: Arrivals::Poisson {
            mean: Nanos::from_millis(80),
        },
        sizes: vec![SectorCount(8), SectorCount(128)],
        read_percent: 70,
        write_urgency: Urgency::Sync,
        region: Sector(0)..Sector(sectors),
    };
    Experiment {
        plant: drive().plant(),
        profile: Arc::new(profile),
        config: SchedulerConfig::default(),
        streams: (0..streams).map(stream).collect(),
        best_effort: vec![small],
        floor: None,
        duration: Nanos::from_secs(120),
        seed: SEED + number,
    }
}

fn linked(disks: &[Experiment], rate: BytesPerSecond, places: usize) -> LinkedOutcome {
    let run = LinkedRun {
        disks,
        rate,
        places,
    };
    run.run().expect("the streams are admitted")
}

fn missed(outcome: &LinkedOutcome) -> u64 {
    outcome.disks.iter().map(Outcome::missed).sum()
}

fn overruns(outcome: &LinkedOutcome) -> u64 {
    outcome.disks.iter().map(|of| of.disk.overruns).sum()
}

#[test]
fn disks_on_a_link_that_never_holds_them_up_are_disks_alone() {
    let disks: Vec<Experiment> = (0..3).map(|of| disk(of, 12, drive().profile())).collect();
    let together = linked(&disks, BytesPerSecond(1 << 50), 3);
    for (of, experiment) in together.disks.iter().zip(&disks) {
        let alone = run(experiment).expect("the streams are admitted");
        assert_eq!(of.disk.hash, alone.disk.hash);
        assert_eq!(of.best_effort, alone.best_effort);
        assert_eq!(of.streams, alone.streams);
    }
}

#[test]
fn times_for_a_link_of_its_own_do_not_hold_on_a_link_that_is_shared() {
    let disks: Vec<Experiment> = (0..3).map(|of| disk(of, 12, drive().profile())).collect();
    let ignored = linked(&disks, RATE, 3);
    assert!(overruns(&ignored) > 10, "{}", overruns(&ignored));
}

#[test]
fn inflated_times_hold_for_all_disks_at_once() {
    let disks: Vec<Experiment> = (0..3).map(|of| disk(of, 12, shared_by(3))).collect();
    let inflated = linked(&disks, RATE, 3);
    assert_eq!((missed(&inflated), overruns(&inflated)), (0, 0));
    assert_eq!(inflated.busy_max, 3);
}

#[test]
fn disk_without_a_place_serves_best_effort_in_the_slack_of_the_others() {
    let mut disks: Vec<Experiment> = (0..2).map(|of| disk(of, 12, shared_by(2))).collect();
    disks.push(disk(2, 0, shared_by(2)));
    let lent = linked(&disks, RATE, 2);
    assert_eq!((missed(&lent), overruns(&lent)), (0, 0));
    assert_eq!(lent.busy_max, 2);
    let borrower = &lent.disks[2];
    assert_eq!(borrower.best_effort_unserved, 0);
    assert!(borrower.best_effort.count > 1_000);
    assert_eq!(linked(&disks, RATE, 2), lent, "the same again");
}
