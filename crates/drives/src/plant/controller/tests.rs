//! Layouts, caches and writing behind, on drives that are changed in one thing at a time.

mod layouts;

use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::{Random, seed};

use super::description::{
    Access, Bus, Cache, Description, ExtraDisconnect, Kind, Layout, MarksOf, Mechanics, Order,
    Overhead, ReadAhead, Requested, Skew, Sparing, ZoneLine,
};
use crate::plant::{Plant, PlantSpec};

/// Between requests: long enough for anything in the background.
const PAUSE: Nanos = Nanos(500_000_000);

fn zone(first: u64, last: u64, sectors_per_track: u64) -> ZoneLine {
    ZoneLine {
        first_cylinder: first,
        last_cylinder: last,
        sectors_per_track,
        first_sector: Skew::Sectors(0),
        head_skew: Skew::Sectors(9),
        cylinder_skew: Skew::Sectors(14),
        reserved_sectors: 0,
        spares: 0,
        slips: vec![],
        defects: vec![],
    }
}

/// Two zones of 60 and 50 sectors on a track, 10 ms a rotation.
fn drive() -> Description {
    let overhead = 100_000;
    Description {
        kind: Kind::Controller,
        name: "made".into(),
        description: "for tests".into(),
        sectors: 0,
        seek: vec![(1, 1_000_000), (300, 10_000_000)],
        mechanics: Mechanics {
            access: Access::Full,
            rotation_ns: 10_000_000,
            heads: 3,
            head_switch_ns: 800_000,
            write_settle_ns: 0,
        },
        bus: Bus {
            read_sector_ns: 50_000,
            write_sector_ns: 50_000,
            arbitration_ns: 0,
            hold_for_read: false,
            hold_for_write: false,
            never_disconnect: false,
        },
        overhead: Overhead {
            request_ns: 0,
            read_hit_after_read_ns: overhead,
            read_hit_after_write_ns: overhead,
            read_miss_after_read_ns: overhead,
            read_miss_after_write_ns: overhead,
            write_hit_after_read_ns: overhead,
            write_hit_after_write_ns: overhead,
            write_miss_after_read_ns: overhead,
            write_miss_after_write_ns: overhead,
            read_completion_ns: 0,
            write_completion_ns: 0,
            data_preparation_ns: 0,
            first_reselect_ns: 0,
            other_reselect_ns: 0,
            read_disconnect_after_read_ns: 0,
            read_disconnect_after_write_ns: 0,
            write_disconnect_ns: 0,
            write_seek_min_ns: 0,
            extra_write_disconnect: None,
        },
        cache: Cache {
            enabled: true,
            segments: 2,
            segment_sectors: 128,
            write_segments: 1,
            separate_write_segment: false,
            read_hits_on_written: true,
            fast_write: true,
            combine_writes: true,
            write_hit_stops_read_ahead: true,
            hit_on_sector_being_read: false,
            partial_hit_at_once: true,
            read_mark_ppm: 0,
            write_mark_ppm: 0,
            marks_of: MarksOf::Request,
            read_ahead: ReadAhead::ToSegmentEnd,
            read_ahead_min_sectors: 0,
            read_ahead_max_sectors: 64,
            read_ahead_over_requested: Requested::Replaced,
            read_ahead_after_hit: false,
            stop_within_sector: false,
            finish_seek_in_background: false,
            read_before_requested: false,
            zero_latency_read: false,
            zero_latency_write: false,
        },
        layout: Layout::Zones {
            order: Order::Cylinders,
            sparing: Sparing::None,
            range_cylinders: 1,
            zone: vec![zone(0, 199, 60), zone(200, 299, 50)],
        },
    }
}

fn spec(change: impl FnOnce(&mut Description)) -> PlantSpec {
    let mut description = drive();
    change(&mut description);
    description.sectors = description.capacity();
    PlantSpec::of_controller(description).unwrap()
}

fn plant(change: impl FnOnce(&mut Description)) -> Plant {
    Plant::new(spec(change), 1)
}

/// The time of a request that comes after a pause.
fn took(plant: &mut Plant, op: Op, start: u64, count: u64) -> Nanos {
    let now = plant.busy_until() + PAUSE;
    let service = plant.service(now, op, Sector(start), SectorCount(count));
    assert_eq!(service.completed - service.begun, service.breakdown.total());
    service.completed - now
}

/// All but the transfer of a hit of `count` sectors.
fn hit(count: u64) -> Nanos {
    Nanos(100_000 + count * 50_000)
}

#[test]
fn reading_ahead_makes_the_next_read_a_hit_and_only_that() {
    let mut plant = plant(|_| {});
    assert!(took(&mut plant, Op::Read, 600, 8) > hit(8));
    assert_eq!(took(&mut plant, Op::Read, 608, 8), hit(8), "read ahead");
    assert_eq!(took(&mut plant, Op::Read, 600, 8), hit(8), "still there");
    // 64 sectors beyond the last read, 616 + 64.
    let partial = took(&mut plant, Op::Read, 676, 8);
    assert!(partial > hit(8), "the rest has to be read: {partial}");
    assert!(took(&mut plant, Op::Read, 5_000, 8) > hit(8), "elsewhere");
    assert_eq!(
        took(&mut plant, Op::Read, 676, 8),
        hit(8),
        "in the other segment"
    );
    took(&mut plant, Op::Read, 9_000, 8);
    took(&mut plant, Op::Read, 12_000, 8);
    assert!(
        took(&mut plant, Op::Read, 676, 8) > hit(8),
        "two segments, both used again"
    );
}

#[test]
fn reading_ahead_ends_where_its_rule_says() {
    // Sector 610 is on the track 600..660 and in the cylinder 540..720.
    for (rule, last_hit) in [
        (ReadAhead::None, 618),
        (ReadAhead::ToTrackEnd, 660),
        (ReadAhead::ToCylinderEnd, 682),
        (ReadAhead::ToSegmentEnd, 682),
        (ReadAhead::TrackAhead, 660),
    ] {
        let is_hit = |sector: u64| {
            let mut plant = plant(|drive| {
                drive.cache.read_ahead = rule;
                if rule == ReadAhead::None {
                    drive.cache.read_ahead_max_sectors = 0;
                }
            });
            took(&mut plant, Op::Read, 610, 8);
            took(&mut plant, Op::Read, sector, 1) == hit(1)
        };
        assert!(is_hit(last_hit - 1), "{rule:?}");
        assert!(!is_hit(last_hit), "{rule:?}");
    }
}

#[test]
fn caches_turned_off_leave_nothing_behind() {
    let plain = spec(|_| {});
    let mut plant = Plant::new(plain.without_caches(), 1);
    for _ in 0..2 {
        assert!(took(&mut plant, Op::Read, 600, 8) > hit(8));
        assert!(took(&mut plant, Op::Read, 608, 8) > hit(8));
        assert!(
            took(&mut plant, Op::Write, 608, 8) > hit(8),
            "written before it is answered"
        );
    }
    assert_ne!(plain, plain.without_caches());
}

#[test]
fn writing_behind_answers_when_the_data_are_in_the_buffer_and_delays_who_comes_too_soon() {
    let mut plant = plant(|_| {});
    assert_eq!(took(&mut plant, Op::Write, 30_000, 16), hit(16));
    // At once: the media take at least a part of a rotation and a seek.
    let soon = plant.busy_until();
    let other = plant.service(soon, Op::Read, Sector(0), SectorCount(8));
    assert!(other.completed - soon > Nanos(8_000_000), "{other:?}");
    // A write that continues the data under way is answered at once as well.
    took(&mut plant, Op::Write, 10_000, 16);
    let soon = plant.busy_until();
    let next = plant.service(soon, Op::Write, Sector(10_016), SectorCount(16));
    assert_eq!(next.completed - soon, hit(16));
    let soon = plant.busy_until();
    let other = plant.service(soon, Op::Write, Sector(20_000), SectorCount(16));
    assert!(
        other.completed - soon > hit(16),
        "there is one segment for writes"
    );
    // More than a segment: the rest waits for the media.
    let long = took(&mut plant, Op::Write, 3_000, 300);
    assert!(long > hit(300) && long < Nanos(200_000_000), "{long}");
}

#[test]
fn a_write_through_takes_the_media_and_every_overhead_of_its_case() {
    let through = |change: &dyn Fn(&mut Description)| {
        plant(|drive| {
            drive.cache.fast_write = false;
            change(drive);
        })
    };
    let base = took(&mut through(&|_| {}), Op::Write, 600, 8);
    assert!(base > hit(8));
    let late =
        |change: &dyn Fn(&mut Description)| took(&mut through(change), Op::Write, 600, 8) - base;
    assert_eq!(
        late(&|drive| drive.overhead.write_completion_ns = 70_000),
        Nanos(70_000)
    );
    assert_eq!(
        late(&|drive| drive.overhead.first_reselect_ns = 30_000),
        Nanos(30_000)
    );
    assert_eq!(
        late(&|drive| drive.bus.arbitration_ns = 20_000),
        Nanos(20_000)
    );
    // A write after a write that does not continue it disconnects once more, where drives do so.
    let second = |extra: Option<ExtraDisconnect>| {
        let mut plant = through(&|drive| {
            drive.cache.separate_write_segment = true;
            drive.overhead.extra_write_disconnect = extra.clone();
            drive.overhead.other_reselect_ns = 40_000;
        });
        took(&mut plant, Op::Write, 600, 20);
        (
            took(&mut plant, Op::Write, 5_000, 20),
            took(&mut plant, Op::Write, 5_020, 20),
        )
    };
    let extra = ExtraDisconnect {
        command_ns: 6_000_000,
        disconnect_ns: 5_000_000,
        between_ns: 5_000_000,
        second_disconnect_ns: 0,
        seek_delay_ns: 0,
    };
    let (with, without) = (second(Some(extra)), second(None));
    assert!(
        with.0 > without.0 + Nanos(5_000_000),
        "{with:?} {without:?}"
    );
    assert!(with.0.get() >= 16_000_000);
    assert!(
        with.1.get() < 16_000_000,
        "{with:?}: it continues the one before"
    );
}

#[test]
fn zero_latency_reads_a_track_in_one_rotation() {
    let track = |zero_latency| {
        let mut most = Nanos::ZERO;
        for step in 0..40 {
            let mut plant = plant(|drive| {
                drive.cache.zero_latency_read = zero_latency;
                drive.bus.read_sector_ns = 1_000;
                drive.cache.read_ahead = ReadAhead::None;
                drive.cache.read_ahead_max_sectors = 0;
            });
            let service = plant.service(Time(step * 251_000), Op::Read, Sector(0), SectorCount(60));
            most = most.max(service.completed - service.begun);
        }
        most
    };
    // Overhead, the rest of a sector, the rotation, and the bus at its end.
    assert!(track(true) < Nanos(10_500_000), "{}", track(true));
    assert!(track(false) > Nanos(19_000_000), "{}", track(false));
}

#[test]
fn mechanics_that_are_not_modelled_are_left_out() {
    let mut constant = plant(|drive| {
        drive.mechanics.access = Access::Constant;
        drive.mechanics.head_switch_ns = 5_000_000;
        drive.cache.turn_off();
    });
    for sector in [0, 30_000, 7] {
        assert_eq!(
            took(&mut constant, Op::Read, sector, 8),
            hit(8) + Nanos(5_000_000)
        );
    }
    let mut half = plant(|drive| {
        drive.mechanics.access = Access::HalfRotation;
        drive.bus.read_sector_ns = 1;
        drive.cache.turn_off();
    });
    let at_rest = took(&mut half, Op::Read, 8, 1);
    let expected = 100_000 + 5_000_000 + 10_000_000 / 60;
    assert!(at_rest.get().abs_diff(expected) < 10, "{at_rest}");
}

#[test]
fn any_drive_serves_any_requests_the_same_way_again() {
    let seed = seed("controller", Some(7));
    let mut random = Random(seed);
    for _ in 0..60 {
        let spec = spec(|drive| change_anything(drive, &mut random));
        let (mut one, mut other) = (Plant::new(spec.clone(), 1), Plant::new(spec, 1));
        let mut now = Time(0);
        for number in 0..300_u64 {
            let most = if random.below(8) == 0 { 700 } else { 40 };
            let count = 1 + random.below(most);
            let sectors = one.sectors().get();
            let start = match random.below(3) {
                0 => (one.busy_until().get() / 1_000) % sectors,
                1 => (number * 40) % sectors,
                _ => random.below(sectors),
            };
            let count = count.min(sectors - start);
            let op = if random.below(2) == 0 {
                Op::Read
            } else {
                Op::Write
            };
            let service = one.service(now, op, Sector(start), SectorCount(count));
            assert_eq!(
                service,
                other.service(now, op, Sector(start), SectorCount(count))
            );
            assert_eq!(service.completed - service.begun, service.breakdown.total());
            // A request takes a second at most for each of its tracks, far more than it should.
            let most = Nanos(1_000_000_000) * (2 + count / 40);
            assert!(
                service.completed - service.begun < most,
                "{op:?} {start} {count} {service:?}"
            );
            now = match random.below(3) {
                0 => service.completed,
                1 => service.completed + Nanos(random.below(20_000_000)),
                _ => service.completed + PAUSE,
            };
        }
    }
}

fn change_anything(drive: &mut Description, random: &mut Random) {
    let mut is = || random.below(2) == 0;
    let cache = &mut drive.cache;
    cache.separate_write_segment = is();
    cache.read_hits_on_written = is();
    cache.fast_write = is();
    cache.combine_writes = is();
    cache.hit_on_sector_being_read = is();
    cache.partial_hit_at_once = is();
    cache.read_ahead_after_hit = is();
    cache.stop_within_sector = is();
    cache.finish_seek_in_background = is();
    cache.read_before_requested = is();
    cache.zero_latency_read = is();
    cache.zero_latency_write = is();
    drive.bus.hold_for_read = is();
    drive.bus.hold_for_write = is();
    drive.bus.never_disconnect = is();
    if is() {
        drive.mechanics.write_settle_ns = -500_000;
    }
    if is() {
        drive.overhead.write_seek_min_ns = 900_000;
        drive.overhead.extra_write_disconnect = Some(ExtraDisconnect {
            command_ns: 600_000,
            disconnect_ns: 50_000,
            between_ns: 400_000,
            second_disconnect_ns: 100_000,
            seek_delay_ns: 200_000,
        });
    }
    cache.segment_sectors = 16 + random.below(200);
    cache.segments = 2 + random.below(4);
    cache.write_segments = 1 + random.below(2);
    cache.read_mark_ppm = random.below(1_000_001);
    cache.write_mark_ppm = random.below(1_000_001);
    cache.read_ahead_max_sectors = random.below(cache.segment_sectors + 1);
    cache.read_ahead_min_sectors = random.below(cache.read_ahead_max_sectors + 1);
    cache.read_ahead = [
        ReadAhead::None,
        ReadAhead::ToTrackEnd,
        ReadAhead::ToCylinderEnd,
        ReadAhead::ToSegmentEnd,
        ReadAhead::TrackAhead,
    ][random.below(5) as usize];
    cache.read_ahead_over_requested =
        [Requested::Kept, Requested::Replaced, Requested::Dropped][random.below(3) as usize];
    cache.marks_of = [MarksOf::Request, MarksOf::Segment][random.below(2) as usize];
    drive.bus.read_sector_ns = random.below(300_000);
    drive.bus.write_sector_ns = random.below(300_000);
}
