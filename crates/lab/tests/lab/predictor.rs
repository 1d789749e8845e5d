//! The prediction of `sched` is never less than the time of a simulated drive. The two
//! share neither code nor figures' files, only the facts about the drives.

#![allow(clippy::print_stdout, reason = "a test says its seed")]

use drives::plant::{Plant, PlantSpec};
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::{Random, seed};

struct Request {
    op: Op,
    start: u64,
    count: u64,
}

/// Random places and sizes, with the awkward ones often: around track and zone boundaries, next to
/// the head, at the far end.
fn choose(random: &mut Random, predictor: &Predictor, head: u64, unit: u64) -> Request {
    let capacity = predictor.capacity().get();
    let count = match random.below(4) {
        0 => 1 + random.below(16),
        1 => 1 + random.below(600),
        2 => 1 << random.below(12),
        _ => 1 + random.below(9_000),
    };
    let count = if random.below(8) == 0 {
        count
    } else {
        count.next_multiple_of(unit)
    };
    let place = match random.below(6) {
        0 => head + 1,
        1 => head.saturating_sub(random.below(20_000)),
        2 => {
            let zone = random.below(predictor.zone_count() as u64) as usize;
            let end = predictor
                .zone_range(zone)
                .map_or(0, |range| range.end.get());
            end.saturating_sub(random.below(2 * count))
        }
        3 => random.below(2) * capacity,
        _ => random.below(capacity),
    };
    let start = place.min(capacity - count);
    let start = if random.below(8) == 0 {
        start
    } else {
        start - start % unit
    };
    let op = if random.below(2) == 0 {
        Op::Read
    } else {
        Op::Write
    };
    Request { op, start, count }
}

fn never_slower_than_predicted(name: &str) {
    let seed = seed(name, Some(1));
    let profile = DriveProfile::shipped(name).expect("it is shipped");
    let predictor = Predictor::new(&profile);
    let mut plant = Plant::new(PlantSpec::built_in(name).expect("it is built in"), seed);
    assert_eq!(plant.sectors(), predictor.capacity());
    let mut random = Random(seed);
    let mut now = Time(0);
    let mut head = None;
    let unit = profile.physical_sector().get() / 512;
    let (mut predicted_sum, mut actual_sum) = (0, 0);
    for number in 0..400_000 {
        let place = head.map_or(0, |head: Sector| head.get());
        let Request { op, start, count } = choose(&mut random, &predictor, place, unit);
        let (start, count) = (Sector(start), SectorCount(count));
        now += Nanos(random.below(20_000_000));
        let service = plant.service(now, op, start, count);
        let actual = service.completed - now;
        let predicted = predictor.predict(head, op, start, count);
        assert!(
            actual <= predicted,
            "{name}, seed {seed}, request {number}: {op:?} {count:?} at {start:?} from {head:?} took \
             {actual}, predicted {predicted}; {:?}",
            service.breakdown
        );
        (predicted_sum, actual_sum) = (predicted_sum + predicted.get(), actual_sum + actual.get());
        now = service.completed;
        head = Some(Sector(start.get() + count.get() - 1));
    }
    println!(
        "{name}: predicted is {:.3} of actual",
        predicted_sum as f64 / actual_sum as f64
    );
}

#[test]
fn the_atlas_is_never_slower_than_predicted() {
    never_slower_than_predicted("quantum-atlas-ii");
}

#[test]
fn the_drive_of_today_is_never_slower_than_predicted() {
    never_slower_than_predicted("hdd-8tb-7200");
}

/// A drive at random: its plant, and a profile with bounds of the same figures.
fn any_drive(random: &mut Random) -> (PlantSpec, DriveProfile) {
    let mut between = |least: u64, most: u64| least + random.below(most - least + 1);
    let rotation_us = between(4_000, 12_000);
    let heads = between(1, 10);
    let head_switch_us = between(0, rotation_us / 2);
    let cylinder_switch_us = between(head_switch_us, rotation_us / 2);
    let zones: Vec<u64> = (0..between(1, 3)).map(|_| between(5, 60)).collect();
    let mut sectors_per_track = between(20, 200);
    let bus_ns = rotation_us * 1_000 / sectors_per_track * between(30, 200) / 100;
    let (reads_tracks, has_tail) = (between(0, 1) == 0, between(0, 1) == 0);
    let (mut sectors, mut cylinders) = (0, 0);
    let (mut of_plant, mut of_profile) = (String::new(), String::new());
    for zone in zones {
        of_plant +=
            &format!("[[zone]]\ncylinders = {zone}\nsectors_per_track = {sectors_per_track}\n");
        of_profile += &format!(
            "{{ first_cylinder = {cylinders}, cylinders = {zone}, heads = {heads}, \
             sectors_per_track = {sectors_per_track} }},"
        );
        sectors += zone * heads * sectors_per_track;
        cylinders += zone;
        sectors_per_track -= between(0, 5);
    }
    let policy = if reads_tracks {
        "kind = \"track-buffer\"\nzero_latency_track_percent_max = 150\nfirst_burst_track_percent = 50\n\
         long_burst_track_percent = 90\nburst_delay_us_max = 200"
    } else {
        "kind = \"streaming\""
    };
    let full = cylinders - 1;
    let plant = format!(
        "name = \"any\"\ndescription = \"any\"\nsectors = {sectors}\nphysical_sector_sectors = 1\n\
         seek_included_overhead_us = 0\n\
         seek = [{{ distance_cylinders = 1, min_us = 500, mean_us = 1000, max_us = 2000 }}, \
         {{ distance_cylinders = {full}, min_us = 3000, mean_us = 4000, max_us = 6000 }}]\n\
         [mechanics]\nrotation_ns = {rotation_us}000\nphase_ns = 0\nheads = {heads}\n\
         head_switch_us = {head_switch_us}\ncylinder_switch_us = {cylinder_switch_us}\n\
         [read]\noverhead_us_min = 100\noverhead_us_max = 300\nbus_sector_ns = {bus_ns}\n\
         [read.policy]\n{policy}\n\
         [write]\noverhead_us = 100\nsetup_us_max = 300\nsettle_us = 200\nbus_sector_ns = {bus_ns}\n\
         partial_tail_takes_rotation = {has_tail}\n{of_plant}"
    );
    let profile = format!(
        "name = \"any\"\nkind = \"rotating\"\nmeasured = true\ncapacity_sectors = {sectors}\n\
         [rotating]\nrotation_us = {rotation_us}\ncommand_overhead_us = 600\n\
         head_switch_us = {head_switch_us}\ncylinder_switch_us = {cylinder_switch_us}\nwrite_settle_us = 200\n\
         bus_bytes_per_second = {}\ntrack_reads = {reads_tracks}\ntrack_writes_tail = {has_tail}\n\
         zones = [{of_profile}]\n\
         seek = [{{ cylinders = 1, us = {} }}, {{ cylinders = {full}, us = {} }}]\n",
        512_000_000_000 / bus_ns,
        head_switch_us.max(2_000),
        head_switch_us.max(6_000),
    );
    (
        PlantSpec::parse(&plant).unwrap_or_else(|error| panic!("{error}: {plant}")),
        DriveProfile::from_toml(&profile).unwrap_or_else(|error| panic!("{error}: {profile}")),
    )
}

/// Buses faster and slower than the medium, few heads and many, switches of up to half a rotation.
#[test]
fn no_drive_at_random_is_slower_than_predicted() {
    let seed = seed("drives at random", None);
    let mut random = Random(seed);
    for drive in 0..300 {
        let (plant, profile) = any_drive(&mut random);
        let predictor = Predictor::new(&profile);
        let mut plant = Plant::new(plant, seed);
        let capacity = predictor.capacity();
        assert_eq!(plant.sectors(), capacity);
        let mut head = None;
        for number in 0..300 {
            let longest = capacity.get() >> random.below(10);
            let count = 1 + random.below(longest);
            let start = Sector(random.below(capacity.get() - count + 1));
            let (op, count) = (
                [Op::Read, Op::Write][random.below(2) as usize],
                SectorCount(count),
            );
            let now = plant.busy_until() + Nanos(random.below(20_000_000));
            let service = plant.service(now, op, start, count);
            let actual = service.completed - now;
            let predicted = predictor.predict(head, op, start, count);
            let worst = predictor.worst_case(start..start + count, op, count);
            assert!(
                actual <= predicted && predicted <= worst,
                "seed {seed}, drive {drive}, request {number}: {op:?} {count:?} at {start:?} from {head:?} took \
                 {actual}, predicted {predicted}, at most {worst}; {:?}; {profile:?}",
                service.breakdown
            );
            head = Some(Sector((start + count).get() - 1));
        }
    }
}
