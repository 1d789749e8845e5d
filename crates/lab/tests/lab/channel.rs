//! One SCSI channel: times of a request, arbitration, fairness, and the buffers of the drives.

use std::collections::HashMap;

use lab::arms::{ArmScheduler, CScan, Edf};
use lab::channel::drive::{Drive, Place};
use lab::channel::{Arrival, Arrivals, Bus, Discipline, Event, Setup, Tally, Watch, priority, run};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sched::units::{Bytes, Nanos, Time};

const UNIT: Bytes = Bytes(128 << 10);
const FAIR: Discipline = Discipline::Fair { tokens: 2 };

/// Requests in order of time.
struct List(std::vec::IntoIter<Arrival>);

impl List {
    fn new(mut arrivals: Vec<Arrival>) -> Self {
        arrivals.sort_by_key(|arrival| arrival.time);
        Self(arrivals.into_iter())
    }
}

impl Arrivals for List {
    fn time(&self) -> Time {
        self.0
            .as_slice()
            .first()
            .map_or(Time::MAX, |arrival| arrival.time)
    }

    fn take(&mut self) -> Arrival {
        self.0.next().expect("there is another one")
    }
}

/// All events.
#[derive(Default)]
struct Seen(Vec<(Time, Event)>);

impl Watch for Seen {
    fn see(&mut self, at: Time, event: Event) {
        self.0.push((at, event));
    }
}

/// A channel without random angles.
struct Rig {
    bus: Bus,
    drive: Drive,
    places: Vec<Place>,
    ids: Vec<u8>,
    outstanding: u32,
    discipline: Discipline,
}

impl Rig {
    fn new(drive: &str, ids: &[u8], discipline: Discipline) -> Self {
        let drive = Drive::built_in(drive).expect("it comes with the program");
        Self {
            bus: Bus::built_in("fast-wide-scsi").expect("it comes with the program"),
            places: drive.places(UNIT),
            drive,
            ids: ids.to_vec(),
            outstanding: 2,
            discipline,
        }
    }

    fn run(&self, arrivals: Vec<Arrival>, watch: &mut impl Watch) -> Tally {
        let setup = Setup {
            bus: &self.bus,
            drive: &self.drive,
            places: &self.places,
            unit: UNIT,
            ids: &self.ids,
            spindles: &vec![Nanos::ZERO; self.ids.len()],
            outstanding: self.outstanding,
            discipline: self.discipline,
            scheduler: &|| Box::new(CScan) as Box<dyn ArmScheduler>,
            stop_when_late: false,
        };
        run(&setup, &mut List::new(arrivals), watch)
    }
}

fn arrival(at_us: u64, disk: u32, unit: u32) -> Arrival {
    Arrival {
        time: Time(at_us * 1_000),
        deadline: Time::MAX,
        disk,
        unit,
        stream: disk,
    }
}

/// Requests at random: so many of each disk, in bursts.
fn random(seed: u64, rig: &Rig, each: u32, mean_us: u64) -> Vec<Arrival> {
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut arrivals = Vec::new();
    for disk in 0..rig.ids.len() as u32 {
        let mut at = 0;
        for _ in 0..each {
            at += if dice.next_u64().is_multiple_of(3) {
                0
            } else {
                dice.next_u64() % (3 * mean_us)
            };
            arrivals.push(arrival(
                at,
                disk,
                (dice.next_u64() % rig.places.len() as u64) as u32,
            ));
        }
    }
    arrivals
}

#[test]
fn ids_arbitrate_from_7_to_0_and_then_from_15_to_8() {
    let mut ids: Vec<u8> = (0..16).collect();
    ids.sort_by_key(|id| priority(*id));
    assert_eq!(ids, [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]);
}

/// The parts of a request's time, added by hand: the arm and all platters begin at 0.
#[test]
fn one_request_takes_the_sum_of_its_phases() {
    let (command, status, transfer) = (45_000, 35_000, 20_000 + 6_553_600 + 15_000);
    for unit in [0, 1, 4_000, 8_000] {
        let plain = Rig::new("hp-c2247", &[3], Discipline::Plain);
        let place = plain.places[unit as usize];
        let rotation = plain.drive.rotation().get();
        let times = |rig: &Rig| {
            let mut seen = Seen::default();
            rig.run(vec![arrival(10, 0, unit)], &mut seen);
            seen.0
        };
        let done = |events: &[(Time, Event)]| {
            let found = events.iter().find(|(_, event)| *event == Event::Done(0));
            found.expect("it is done").0.get()
        };
        // The seek of the farthest unit is known from the file: none for the first.
        let begin = 10_000 + command + 558_000;
        let media = done(&times(&plain)) - transfer - place.media.get();
        assert_eq!(media % rotation, place.angle.get(), "unit {unit}");
        assert!(media >= begin && (unit > 0 || media < begin + rotation));

        let fair = times(&Rig::new("hp-c2247", &[3], FAIR));
        let ready = media + place.media.get() + status;
        assert_eq!(fair[0], (Time(ready), Event::Ready(0)));
        assert_eq!(fair[1], (Time(ready), Event::Service(0)));
        let pause = done(&fair) - ready - command - transfer;
        assert!((800_000..=1_000_000).contains(&pause), "{pause} ns");
    }
}

#[test]
fn drives_that_are_ready_together_go_by_id() {
    // The same unit, command after command: the later drives wait for the first.
    let rig = Rig::new("cheetah-4lp", &[0, 15, 6, 8], Discipline::Plain);
    let mut seen = Seen::default();
    let arrivals = (0..4).map(|disk| arrival(0, disk, 0)).collect();
    rig.run(arrivals, &mut seen);
    let done: Vec<Event> = seen.0.iter().map(|(_, event)| *event).collect();
    assert_eq!(done, [2, 0, 1, 3].map(Event::Done));
}

#[test]
fn bursts_let_another_drive_in_between() {
    let first = Rig::new("cheetah-4lp", &[6, 0], Discipline::Plain);
    let end = |unit| first.run(vec![arrival(0, 1, unit)], &mut ()).end.get();
    // A unit that the drive with the higher priority has read while the other one sends.
    let unit =
        (1..100).find(|unit| (1_500_000..4_000_000).contains(&end(*unit).wrapping_sub(end(0))));
    let unit = unit.expect("there is one");
    for (burst_kib, is_short) in [(128, false), (16, true)] {
        let mut rig = Rig::new("cheetah-4lp", &[6, 0], Discipline::Plain);
        rig.bus.burst = Bytes::from_kib(burst_kib);
        let tally = rig.run(vec![arrival(0, 1, 0), arrival(0, 0, unit)], &mut ());
        let wait = tally.disks[0].bus_wait.get() / tally.disks[0].bursts;
        assert_eq!(tally.disks[0].bursts, 128 / burst_kib);
        assert_eq!(wait < 1_000_000, is_short, "{burst_kib} KiB: {wait} ns");
    }
}

#[test]
fn every_request_is_done_once() {
    for seed in 0..40 {
        let ids: Vec<u8> = (0..1 + (seed % 6) as u8).collect();
        let discipline = [Discipline::Plain, FAIR][seed as usize % 2];
        let mut rig = Rig::new(
            ["ibm-dfhs", "hp-c2247"][seed as usize / 2 % 2],
            &ids,
            discipline,
        );
        rig.outstanding = 1 + (seed % 4) as u32;
        rig.bus.burst = Bytes::from_kib([128, 48, 16][seed as usize % 3]);
        let tally = rig.run(random(seed, &rig, 200, 20_000), &mut ());
        assert!(
            tally.disks.iter().all(|disk| disk.done == 200),
            "seed {seed}"
        );
        let bursts = 128_u64.div_ceil(rig.bus.burst.get() >> 10);
        assert!(
            tally.disks.iter().all(|disk| disk.bursts == 200 * bursts),
            "seed {seed}"
        );
        assert!(tally.bus_busy.get() <= tally.end.get(), "seed {seed}");
        assert_eq!(
            tally,
            rig.run(random(seed, &rig, 200, 20_000), &mut ()),
            "seed {seed}"
        );
    }
}

/// For each disk that is ready all the time from one service of another disk to the `count`-th after it, without a service of
/// its own: the other disk.
fn passed_over(events: &[(Time, Event)], disks: usize, count: usize) -> usize {
    let mut waiting = vec![0_i32; disks];
    // Services of another disk since the disk is ready.
    let mut since: HashMap<(usize, usize), usize> = HashMap::new();
    let mut found = 0;
    for (_, event) in events {
        match *event {
            Event::Ready(disk) => {
                if waiting[disk] == 0 {
                    since.retain(|(of, _), _| *of != disk);
                }
                waiting[disk] += 1;
            }
            Event::Service(disk) => {
                waiting[disk] -= 1;
                since.retain(|(of, _), _| *of != disk);
                for other in (0..disks).filter(|other| *other != disk && waiting[*other] > 0) {
                    let services = since.entry((other, disk)).or_default();
                    *services += 1;
                    found += usize::from(*services > count);
                }
            }
            Event::Done(_) => {}
        }
    }
    found
}

/// A busy channel of fast drives, at random.
fn busy(seed: u64, disks: u8, tokens: u32) -> (Rig, Vec<Arrival>) {
    let ids: Vec<u8> = (0..disks).collect();
    let mut rig = Rig::new("ibm-dfhs", &ids, Discipline::Fair { tokens });
    rig.outstanding = 1 + (seed % 4) as u32;
    let arrivals = random(seed, &rig, 150, [30_000, 60_000][seed as usize % 2]);
    (rig, arrivals)
}

/// Rounds of the fair discipline: a disk with data is served at the latest between the second and the third service of another.
#[test]
fn no_ready_disk_is_passed_over_twice_by_another() {
    let mut once = 0;
    for seed in 0..60 {
        let disks = 2 + (seed % 6) as u8;
        let (rig, arrivals) = busy(seed, disks, 1 + (seed / 6 % 4) as u32);
        let mut seen = Seen::default();
        rig.run(arrivals, &mut seen);
        assert_eq!(passed_over(&seen.0, disks.into(), 2), 0, "seed {seed}");
        once += passed_over(&seen.0, disks.into(), 1);
    }
    // The published rule does not serve every ready disk between two services of one: a new round may begin with the disk that
    // ended the last one.
    assert!(once > 0);
}

/// With one token the bus is free while a drive prepares to send, and every status gets through.
#[test]
fn one_token_starves_no_status() {
    for seed in 0..30 {
        let (rig, arrivals) = busy(seed, 2 + (seed % 6) as u8, 1);
        let tally = rig.run(arrivals, &mut ());
        let passed = tally.disks.iter().map(|disk| disk.status_passed_max).max();
        assert!(passed <= Some(2), "seed {seed}: {passed:?}");
    }
}

/// With two tokens, drives of high priority can keep the bus among themselves: the status of a low one waits.
#[test]
fn two_tokens_starve_a_status_on_a_saturated_channel() {
    let (rig, arrivals) = busy(2, 7, 2);
    let tally = rig.run(arrivals, &mut ());
    let passed = |disk: usize| tally.disks[disk].status_passed_max;
    assert!(passed(0) > 100, "{}", passed(0));
    assert!(passed(6) <= 3, "{}", passed(6));
}

#[test]
fn no_segment_is_overwritten_unless_requests_outnumber_segments() {
    let text = include_str!("../../drives/ibm-dfhs.toml");
    for segments in 1..=4_u32 {
        let mut overwritten = [0, 0];
        for seed in 0..20 {
            let (mut rig, arrivals) = busy(seed, 7, 2);
            let text = text.replace("segments = 4", &format!("segments = {segments}"));
            rig.drive = Drive::parse(&text).expect("it is valid");
            for (index, outstanding) in [segments, segments + 1].into_iter().enumerate() {
                rig.outstanding = outstanding;
                let tally = rig.run(arrivals.clone(), &mut ());
                overwritten[index] += tally.disks.iter().map(|disk| disk.overwritten).sum::<u64>();
            }
        }
        assert_eq!(overwritten[0], 0, "{segments} segments");
        assert!(overwritten[1] > 0, "{segments} segments");
    }
}

/// EDF takes the most urgent of the requests that wait at the host.
#[test]
fn waiting_requests_go_in_the_order_of_the_scheduler() {
    let rig = Rig::new("hp-c2247", &[0], Discipline::Plain);
    let schedulers: [&(dyn Fn() -> Box<dyn ArmScheduler> + Sync); 2] =
        [&|| Box::new(Edf), &|| Box::new(CScan)];
    // Two go to the drive at once. The others are more urgent the farther they are.
    let arrivals: Vec<Arrival> = (0..8)
        .map(|number: u32| Arrival {
            deadline: Time(3_000_000_000 - u64::from(number) * 100_000_000),
            ..arrival(u64::from(number), 0, number * 900)
        })
        .collect();
    let late = schedulers.map(|scheduler| {
        let setup = Setup {
            bus: &rig.bus,
            drive: &rig.drive,
            places: &rig.places,
            unit: UNIT,
            ids: &rig.ids,
            spindles: &[Nanos::ZERO],
            outstanding: 1,
            discipline: Discipline::Plain,
            scheduler,
            stop_when_late: false,
        };
        let mut order = Order::default();
        run(&setup, &mut List::new(arrivals.clone()), &mut order);
        order.0
    });
    assert!(late[0] > late[1], "{late:?}");
}

/// The time of the last completion: the farthest request first costs a long way.
#[derive(Default)]
struct Order(u64);

impl Watch for Order {
    fn see(&mut self, at: Time, _: Event) {
        self.0 = at.get();
    }
}
