use super::*;
use crate::profile::{DriveKind, DriveProfile};
use crate::units::{Bytes, BytesPerSecond};
use proptest::prelude::*;
use testkit::cases;

mod formula;

fn of(name: &str) -> Predictor {
    Predictor::new(&DriveProfile::shipped(name).unwrap())
}

fn kib(kib: u64) -> SectorCount {
    Bytes::from_kib(kib).sectors().unwrap()
}

#[test]
fn the_atlas_is_predicted_as_it_was_measured() {
    let atlas = of("quantum-atlas-ii");
    // Two sectors without a seek: at most 11.1 ms read (4.3.4) and 10.8 ms written (4.3.5); here a
    // head switch and what seek figures include come on top.
    for (op, measured_us) in [(Op::Read, 11_100), (Op::Write, 10_800)] {
        let predicted = atlas.predict(Some(Sector(8)), op, Sector(10), SectorCount(2));
        let measured = Nanos::from_micros(measured_us);
        assert!(
            measured <= predicted && predicted <= measured + Nanos::from_micros(2_600),
            "{predicted}"
        );
    }
    // A track in at most 20.9 ms, and two in at most 29.5 ms, read from their beginning.
    for (tracks, measured_us) in [(1, 20_900), (2, 29_500)] {
        let count = SectorCount(179 * tracks);
        let predicted = atlas.predict(Some(Sector(0)), Op::Read, Sector(0), count);
        assert!(
            predicted >= Nanos::from_micros(measured_us),
            "{tracks} tracks: {predicted}"
        );
    }
}

#[test]
fn a_write_of_a_sector_more_than_whole_tracks_costs_a_rotation_more() {
    let atlas = of("quantum-atlas-ii");
    let write = |count| atlas.predict(Some(Sector(0)), Op::Write, Sector(0), SectorCount(count));
    assert!(write(180) - write(179) > Nanos::from_micros(8_333));
}

#[test]
fn the_worst_case_is_not_less_than_was_measured_and_not_much_more() {
    let atlas = of("quantum-atlas-ii");
    for zone in 0..atlas.zone_count() {
        for block in [128, 256, 512, 1024] {
            let range = atlas.zone_range(zone).unwrap();
            let measured = atlas.measured(zone, kib(block)).unwrap();
            let worst = atlas.worst_case(range, Op::Read, kib(block));
            assert!(
                worst >= measured,
                "zone {zone}, {block} KiB: {worst} < {measured}"
            );
            // Two rotations and the last burst are what the thesis's percentile leaves out.
            assert!(
                worst < measured + Nanos::from_millis(32),
                "zone {zone}, {block} KiB: {worst}"
            );
        }
    }
    assert_eq!(atlas.measured(0, kib(1024)), Some(Nanos::from_millis(134)));
    assert_eq!(
        atlas.measured(0, kib(192)),
        Some(Nanos::from_micros(48_500))
    );
    assert_eq!(atlas.measured(11, kib(64)), Some(Nanos::from_millis(50)));
    assert_eq!(atlas.measured(0, kib(2048)), None);
}

#[test]
fn extents_and_blocks_follow_the_papers_rule() {
    assert_eq!(of("quantum-atlas-ii").extent_bytes(), Bytes::from_mib(1));
    assert_eq!(of("hdd-8tb-7200").extent_bytes(), Bytes::from_mib(32));
    let today = of("hdd-8tb-7200");
    let block = |rate, memory| today.block_bytes(BytesPerSecond(rate), memory);
    assert_eq!(
        block(20_000_000, Bytes::from_mib(1024)),
        Bytes::from_mib(32)
    );
    assert_eq!(block(20_000_000, Bytes::from_mib(3)), Bytes::from_mib(1));
    assert_eq!(block(1_200_000, Bytes::from_mib(1024)), Bytes::from_mib(4));
    assert_eq!(block(1, Bytes(0)), Bytes::from_kib(64));
    for name in DriveProfile::shipped_names() {
        assert!(of(name).extent_bytes().get().is_power_of_two());
    }
}

/// The transfer's part of the time of an access, in per cent, from the figures of the profile: at the densest
/// tracks, after a seek over a third of the stroke and half a rotation.
fn transfer_percent(rotating: &crate::profile::RotatingSpec, bytes: Bytes) -> f64 {
    let us = |us: u64| us as f64;
    let cylinders = rotating.seek.last().unwrap().cylinders / 3;
    let above = rotating
        .seek
        .partition_point(|point| point.cylinders < cylinders);
    let (from, to) = (rotating.seek[above - 1], rotating.seek[above]);
    let way = (cylinders - from.cylinders) as f64 / (to.cylinders - from.cylinders) as f64;
    let seek = us(from.us) + way * us(to.us - from.us);
    let positioning = us(rotating.command_overhead_us) + seek + us(rotating.rotation_us) / 2.0;
    let zone = rotating.zones[0];
    let tracks = bytes.get() as f64 / (SECTOR_BYTES * zone.sectors_per_track) as f64;
    let cylinder_switch = us(rotating.cylinder_switch_us - rotating.head_switch_us);
    let switches = us(rotating.head_switch_us) + cylinder_switch / zone.heads as f64;
    let transfer = tracks * (us(rotating.rotation_us) + switches);
    100.0 * transfer / (positioning + transfer)
}

#[test]
fn extent_is_mostly_transfer_and_half_an_extent_is_not() {
    for name in DriveProfile::shipped_names() {
        let profile = DriveProfile::shipped(name).unwrap();
        let Some(rotating) = &profile.spec().rotating else {
            continue;
        };
        let extent = of(name).extent_bytes();
        let percent = transfer_percent(rotating, extent);
        assert!(percent >= 85.0, "{name}: {percent} % of {extent}");
        let percent = transfer_percent(rotating, Bytes(extent.get() / 2));
        assert!(percent < 85.0, "{name}: {percent} % of half of {extent}");
    }
}

/// They take longer there; to cut them shorter would not help.
#[test]
fn pieces_are_as_large_on_a_shared_link() {
    for name in ["hdd-8tb-7200", "conservative-solid-state"] {
        let profile = DriveProfile::shipped(name).unwrap();
        let share = LinkShare {
            disks: 3,
            rate: BytesPerSecond(600_000_000),
            burst_bytes: 1 << 20,
        };
        let (alone, shared) = (of(name), Predictor::new(&profile.on_link(share)));
        let limit = alone.piece_limit();
        assert_eq!(shared.piece_limit(), limit);
        assert_eq!(
            shared.piece_sectors(0, limit),
            alone.piece_sectors(0, limit)
        );
        let longer = shared
            .piece_max(limit)
            .saturating_sub(alone.piece_max(limit));
        assert!(longer >= Nanos(2 * (1 << 20) * 5 / 3), "{name}: {longer}");
    }
}

#[test]
fn pieces_take_some_tens_of_milliseconds_on_rotating_drives() {
    for name in ["quantum-atlas-ii", "hdd-8tb-7200", "conservative-rotating"] {
        let drive = of(name);
        let limit = drive.piece_limit();
        assert!(
            (Nanos::from_millis(30)..Nanos::from_millis(100)).contains(&limit),
            "{name}: {limit}"
        );
        for zone in 0..drive.zone_count() {
            let count = drive.piece_sectors(zone, limit);
            assert!(count >= kib(64), "{name}, zone {zone}: {count:?}");
        }
        assert!(
            drive.piece_max(limit) <= limit + Nanos::from_millis(12),
            "{name}"
        );
    }
    let atlas = of("quantum-atlas-ii");
    assert_eq!(
        atlas.piece_sectors(0, Nanos(1)),
        SectorCount(1),
        "never nothing"
    );
    let threshold = atlas.burst_threshold();
    assert!(
        (Nanos::from_millis(350)..Nanos::from_millis(450)).contains(&threshold),
        "{threshold}"
    );
}

#[test]
fn zones_and_cylinders_are_found() {
    let atlas = of("quantum-atlas-ii");
    assert_eq!(atlas.zone_count(), 12);
    assert_eq!(atlas.zone_of(Sector(1772 * 1790 - 1)), 0);
    assert_eq!(atlas.zone_of(Sector(1772 * 1790)), 1);
    assert_eq!(atlas.cylinder(Sector(1772 * 1790)), 1772);
    assert_eq!(atlas.cylinder(Sector(8_890_759)), 5811);
    assert_eq!(atlas.zone_of(Sector(u64::MAX)), 11);
    assert_eq!(atlas.zone_range(11).unwrap().end, Sector(8_890_760));
    assert_eq!(atlas.zone_range(12), None);
    let today = of("hdd-8tb-7200");
    assert_eq!(today.zone_range(19).unwrap().end, Sector(15_628_053_168));
}

#[test]
fn request_beyond_any_drives_limit_takes_for_ever() {
    for name in DriveProfile::shipped_names() {
        let drive = of(name);
        let whole = Sector(0)..Sector(drive.capacity().get());
        for op in [Op::Read, Op::Write] {
            let year = Nanos::from_secs(365 * 86_400);
            assert!(drive.predict(None, op, Sector(0), SectorCount(u64::MAX)) > year);
            assert!(drive.worst_case(whole.clone(), op, SectorCount(u64::MAX)) > year);
        }
    }
}

fn any_drive() -> impl Strategy<Value = Predictor> {
    let shipped = (0..DriveProfile::shipped_names().len())
        .prop_map(|index| of(DriveProfile::shipped_names()[index]));
    let cautious = (1_000_u64..1 << 36).prop_map(|capacity| {
        Predictor::new(
            &DriveProfile::conservative(DriveKind::Rotating, SectorCount(capacity)).unwrap(),
        )
    });
    prop_oneof![shipped, cautious]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Read), Just(Op::Write)]
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// Admission covers each prediction, at every position of request and head.
    #[test]
    fn no_prediction_exceeds_the_worst_case(
        drive in any_drive(), op in any_op(), head in any::<u64>(), place in any::<u64>(),
        length in 0_u32..14, extra in 0_u64..300,
    ) {
        let capacity = drive.capacity().get();
        let count = ((1 << length) + extra).min(capacity);
        let start = place % (capacity - count + 1);
        let (start, count) = (Sector(start), SectorCount(count));
        let exact = drive.predict(Some(Sector(head % capacity)), op, start, count);
        let unknown = drive.predict(None, op, start, count);
        let worst = drive.worst_case(start..start + count, op, count);
        let anywhere = drive.worst_case(Sector(start.get() % 8)..Sector(capacity), op, count);
        prop_assert!(exact <= unknown, "{exact} {unknown}");
        prop_assert!(unknown <= worst, "{unknown} {worst}");
        prop_assert!(worst <= anywhere, "{worst} {anywhere}");
    }

    /// A longer request, and one further away, is never predicted to be quicker.
    #[test]
    fn predictions_grow_with_size(
        drive in any_drive(), op in any_op(), place in any::<u64>(), count in 1_u64..4_000, more in 1_u64..4_000,
    ) {
        let capacity = drive.capacity().get();
        let unit = drive.physical_sectors;
        let count = (count * unit).min(capacity);
        let longer = (count + more * unit).min(capacity);
        prop_assume!(longer.is_multiple_of(unit) && count.is_multiple_of(unit));
        let start = place % (capacity - longer + 1) / unit * unit;
        let short = drive.predict(None, op, Sector(start), SectorCount(count));
        prop_assert!(short <= drive.predict(None, op, Sector(start), SectorCount(longer)));
        let all = Sector(0)..Sector(capacity);
        let worst = drive.worst_case(all.clone(), op, SectorCount(count));
        prop_assert!(worst <= drive.worst_case(all, op, SectorCount(longer)));
    }

    /// A piece begun anywhere keeps to the limit, if the limit allows for more than the least piece.
    #[test]
    fn pieces_keep_to_the_limit(
        drive in any_drive(), op in any_op(), place in any::<u64>(), limit_ms in 1_u64..200,
    ) {
        let capacity = drive.capacity().get();
        let limit = Nanos::from_millis(limit_ms);
        let unit = drive.physical_sectors;
        let start = place % capacity / unit * unit;
        let zone = drive.zone_of(Sector(start));
        let count = drive.piece_sectors(zone, limit);
        prop_assume!(start + count.get() <= drive.zone_range(zone).unwrap().end.get());
        let predicted = drive.predict(None, op, Sector(start), count);
        prop_assert!(predicted <= limit || count.get() == unit, "{predicted} > {limit}, {count:?}");
        prop_assert!(predicted <= drive.piece_max(limit));
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// The charges of a sweep's requests are at most the promise for that number, and no seek of it takes
    /// longer than its charge.
    #[test]
    fn sweeps_take_no_longer_than_promised(
        drive in any_drive(), from in any::<u64>(), until in any::<u64>(), op in any_op(),
        places in proptest::collection::vec((any::<u64>(), 1_u64..3_000), 1..20),
    ) {
        let capacity = drive.capacity().get();
        let (from, until) = (from % capacity, until % capacity);
        let within = Sector(from.min(until))..Sector(from.max(until) + 1);
        let room = within.end.get() - within.start.get();
        let mut requests: Vec<(Sector, SectorCount)> = places
            .iter()
            .map(|(place, count)| {
                let count = (*count).min(room);
                let start = within.start.get() + place % (room - count + 1);
                (Sector(start), SectorCount(count))
            })
            .collect();
        requests.sort_unstable();
        let across = requests.iter().map(|(start, count)| drive.cylinders_across(*start, *count));
        let ends = requests.iter().map(|(start, count)| *start + *count);
        let of = requests[0].0..ends.max().unwrap();
        let count = requests.len() as u64;
        let promised = drive.seeks_of_sweep(&within, &of, count, across.max().unwrap());
        let way = drive.way_over(&within);
        let mut charged = way + way;
        let mut head = None;
        for (start, count) in requests {
            let swept = drive.swept(op, start, count);
            let seek = head.map_or(way, |head| drive.seek_in_sweep(head, start));
            if head.is_some() {
                charged += seek;
            }
            let known = drive.worst_within(&(start..start + count), op, start, count);
            prop_assert!(swept <= known, "{swept} {known}");
            for from in [within.start, Sector(within.end.get() - 1)].into_iter().chain(head) {
                let here = drive.worst_within(&(from.min(start)..from.max(start) + SectorCount(1)), op, start, count);
                let seek = drive.way_into(&within, Some(from));
                prop_assert!(here <= swept + seek + Nanos(1), "{here} {swept} {seek}");
            }
            if let Some(head) = head {
                let here = drive.worst_within(&(head.min(start)..head.max(start) + SectorCount(1)), op, start, count);
                prop_assert!(here <= swept + seek + Nanos(1), "{here} {swept} {seek}");
            }
            head = Some(Sector((start + count).get() - 1));
        }
        prop_assert!(charged <= promised, "{charged} {promised}");
        prop_assert!(way <= drive.way_into(&within, None));
    }
}

/// A drive whose outer zone has fewer heads than the inner one, so that a request over both crosses more
/// cylinders than its slower half would alone: counted track by track, no prediction is too short.
#[test]
fn zones_with_different_heads_are_counted_track_by_track() {
    let text = r#"
        name = "two zones"
        measured = false
        sources = []
        outstanding = 1
        kind = "rotating"
        capacity_sectors = 24_000
        physical_sector_bytes = 512
        [rotating]
        rotation_us = 10_000
        command_overhead_us = 0
        head_switch_us = 100
        cylinder_switch_us = 8_000
        write_settle_us = 0
        bus_bytes_per_second = 1_000_000_000
        track_reads = false
        track_writes_tail = false
        retry_rotations = 0
        zones = [
            { first_cylinder = 0, cylinders = 200, heads = 1, sectors_per_track = 60 },
            { first_cylinder = 200, cylinders = 30, heads = 8, sectors_per_track = 59 },
        ]
        seek = [{ cylinders = 1, us = 2_000 }, { cylinders = 229, us = 9_000 }]
    "#;
    let profile = DriveProfile::from_toml(text).expect("a profile");
    let predictor = Predictor::new(&profile);
    // Sector by sector: when the head has read it, if every switch costs its time and no more.
    let track = |sector: u64| match sector.checked_sub(12_000) {
        None => (sector / 60, sector / 60, 10_000.0 / 60.0),
        Some(inner) => (200 + inner / 472, 200 + inner / 59, 10_000.0 / 59.0),
    };
    for (start, count) in [
        (11_000, 2_000),
        (9_000, 4_000),
        (11_940, 1_000),
        (500, 20_000),
    ] {
        let mut us = 0.0;
        for sector in start..start + count {
            let (cylinder, number, time) = track(sector);
            us += time;
            if sector > start {
                let (cylinder_before, number_before, _) = track(sector - 1);
                us += match (cylinder != cylinder_before, number != number_before) {
                    (true, _) => 8_000.0,
                    (false, true) => 100.0,
                    (false, false) => 0.0,
                };
            }
        }
        let least = Nanos::from_micros(us as u64);
        let (at, count) = (Sector(start), SectorCount(count));
        let predicted = predictor.predict(Some(at), Op::Read, at, count);
        let range = at..at + count;
        let worst = predictor.worst_case(range, Op::Read, count);
        assert!(predicted >= least, "{start}: {predicted} < {least}");
        assert!(worst >= predicted, "{start}: {worst} < {predicted}");
    }
}

#[test]
fn a_widened_profile_has_room_for_what_took_longer() {
    for name in DriveProfile::shipped_names() {
        let profile = DriveProfile::shipped(name).unwrap();
        let narrow = Predictor::new(&profile);
        // Again and again: each overrun is of what is predicted by then.
        let mut wider = profile;
        for (took_permille, percent) in
            [(900, 0), (1_000, 0), (1_001, 1), (1_231, 25), (2_000, 150)]
        {
            let before = Predictor::new(&wider);
            wider = wider.widened(took_permille);
            assert_eq!(
                wider.spec().widened_percent,
                percent,
                "{name}, {took_permille}"
            );
            let now = Predictor::new(&wider);
            for (op, start, count) in [
                (Op::Read, 0, 1),
                (Op::Write, 70_000, 128),
                (Op::Read, 123, 4_096),
            ] {
                let (start, count) = (Sector(start), SectorCount(count));
                let of = |of: &Predictor| of.predict(Some(Sector(9_999)), op, start, count).0;
                assert_eq!(of(&now), (of(&narrow) * (100 + percent)).div_ceil(100));
                assert!(of(&now) * 1_000 >= (of(&before) - 1) * took_permille);
                let everywhere = || Sector(0)..Sector(200_000);
                let worst = |of: &Predictor| of.worst_case(everywhere(), op, count).0;
                assert_eq!(
                    worst(&now),
                    (worst(&narrow) * (100 + percent)).div_ceil(100)
                );
                assert!(now.shortest() <= Nanos(of(&now)));
            }
            // Best effort is cut as it was, and each piece has as much longer.
            let limit = now.piece_limit();
            let piece = now.piece_sectors(0, limit);
            assert_eq!(piece, narrow.piece_sectors(0, narrow.piece_limit()));
            let whole = now.predict(None, Op::Write, Sector(0), piece);
            assert!(whole <= now.piece_max(limit), "{name}, {percent}");
        }
        assert_eq!(wider.widened(60_000).spec().widened_percent, 900);
        let text = wider.to_toml();
        assert_eq!(DriveProfile::from_toml(&text).unwrap(), wider);
    }
}

#[test]
fn measured_worst_cases_alone_are_what_admission_uses_if_they_are_trusted() {
    let mut spec = DriveProfile::shipped("quantum-atlas-ii")
        .unwrap()
        .spec()
        .clone();
    let careful = Predictor::new(&DriveProfile::new(spec.clone()).unwrap());
    spec.trust_worst_case = true;
    let trusting = Predictor::new(&DriveProfile::new(spec).unwrap());
    for zone in 0..12 {
        let range = careful.zone_range(zone).unwrap();
        for kib in [128, 200, 256, 512, 1_024] {
            let count = Bytes::from_kib(kib).sectors().unwrap();
            let measured = careful.measured(zone, count).unwrap();
            let worst =
                |predictor: &Predictor| predictor.worst_case(range.clone(), Op::Read, count);
            assert_eq!(worst(&trusting), measured);
            assert!(worst(&careful) >= measured);
        }
        let beyond = SectorCount(4_096);
        assert_eq!(
            trusting.worst_case(range.clone(), Op::Read, beyond),
            careful.worst_case(range, Op::Read, beyond),
            "nothing that large was measured"
        );
    }
}

#[test]
fn unknown_tracks_make_no_prediction_shorter() {
    let seed = testkit::seed("unknown_tracks_make_no_prediction_shorter", None);
    let mut random = testkit::Random(seed);
    for name in ["quantum-atlas-ii", "hdd-8tb-7200"] {
        let profile = DriveProfile::shipped(name).unwrap();
        let mut spec = profile.spec().clone();
        spec.rotating.as_mut().unwrap().exact_tracks = false;
        let known = Predictor::new(&profile);
        let unknown = Predictor::new(&DriveProfile::new(spec).unwrap());
        let end = known.capacity().get();
        for _ in 0..10_000 {
            let largest = 2 << random.below(14);
            let count = 1 + random.below(largest);
            let start = Sector(random.below(end - count));
            let head = Some(Sector(random.below(end)));
            let op = [Op::Read, Op::Write][usize::from(random.below(2) == 0)];
            let times = [&known, &unknown]
                .map(|predictor| predictor.predict(head, op, start, SectorCount(count)));
            assert!(times[0] <= times[1], "{start:?} {count}: {times:?}");
            assert_eq!(unknown.track(start), None);
        }
    }
}
