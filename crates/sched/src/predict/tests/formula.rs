//! The bounds against the model that they bound, gone through sector by sector, track by track.

use super::*;
use crate::profile::{ProfileError, ProfileSpec, RotatingSpec, SeekPoint, ZoneSpec};
use alloc::vec;

/// A track: its zone, its cylinder, its first sector and how many it has.
#[derive(Clone, Copy)]
struct Track {
    zone: usize,
    cylinder: u64,
    start: u64,
    sectors: u64,
}

/// A drive of which every track is written down. Times are in nanoseconds.
struct Model {
    spec: RotatingSpec,
    tracks: Vec<Track>,
}

impl Model {
    fn new(spec: &RotatingSpec) -> Self {
        let (mut tracks, mut start) = (Vec::new(), 0);
        for (zone, of) in spec.zones.iter().enumerate() {
            for number in 0..of.cylinders * of.heads {
                let cylinder = of.first_cylinder + number / of.heads;
                let sectors = of.sectors_per_track;
                tracks.push(Track {
                    zone,
                    cylinder,
                    start,
                    sectors,
                });
                start += sectors;
            }
        }
        Self {
            spec: spec.clone(),
            tracks,
        }
    }

    fn rotation(&self) -> f64 {
        self.spec.rotation_us as f64 * 1e3
    }

    fn bus(&self) -> f64 {
        512e9 / self.spec.bus_bytes_per_second as f64
    }

    fn media(&self, track: Track) -> f64 {
        self.rotation() / track.sectors as f64
    }

    /// From one track to the next: a switch, the sector by which the skew is rounded up, and a rotation where tracks
    /// are not skewed.
    fn switch(&self, from: Track, to: Track) -> f64 {
        let us = if from.cylinder == to.cylinder {
            self.spec.head_switch_us
        } else {
            self.spec.cylinder_switch_us
        };
        let skew = self.media(to);
        us as f64 * 1e3
            + skew
            + if from.zone == to.zone {
                0.0
            } else {
                self.rotation()
            }
    }

    /// The tracks of a request, with the sectors on each.
    fn runs(&self, start: u64, count: u64) -> impl Iterator<Item = (Track, u64)> + '_ {
        let first = self.tracks.partition_point(|track| track.start <= start) - 1;
        let end = start + count;
        let tracks = self.tracks[first..].iter();
        let touched = tracks.take_while(move |track| track.start < end);
        touched.map(move |track| {
            let until = end.min(track.start + track.sectors);
            (*track, until - start.max(track.start))
        })
    }

    /// From the first sector's passing: each sector passes the head, and then crosses the bus, which is done with the
    /// one before.
    fn read_in_order(&self, start: u64, count: u64) -> f64 {
        let (mut head, mut bus, mut before) = (0.0, 0.0_f64, None);
        for (track, sectors) in self.runs(start, count) {
            head += before.map_or(0.0, |before| self.switch(before, track));
            before = Some(track);
            for _ in 0..sectors {
                head += self.media(track);
                bus = bus.max(head) + self.bus();
            }
        }
        bus
    }

    /// Each sector crosses the bus, and then passes the head.
    fn write_in_order(&self, start: u64, count: u64) -> f64 {
        let (mut head, mut bus, mut before) = (0.0_f64, 0.0, None);
        for (track, sectors) in self.runs(start, count) {
            head += before.map_or(0.0, |before| self.switch(before, track));
            before = Some(track);
            for _ in 0..sectors {
                bus += self.bus();
                head = head.max(bus) + self.media(track);
            }
        }
        head
    }

    /// Each track takes a rotation and crosses the bus afterwards.
    fn read_track_by_track(&self, start: u64, count: u64) -> f64 {
        let (mut head, mut bus, mut before) = (0.0, 0.0_f64, None);
        for (track, sectors) in self.runs(start, count) {
            head += before.map_or(0.0, |before| self.switch(before, track)) + self.rotation();
            before = Some(track);
            bus = bus.max(head) + sectors as f64 * self.bus();
        }
        bus
    }

    /// From anywhere, with all that the request may have to wait for.
    fn longest(&self, op: Op, start: u64, count: u64) -> f64 {
        let seek = self.spec.seek.iter().map(|point| point.us).max();
        let before = (self.spec.command_overhead_us + seek.unwrap_or_default()) as f64 * 1e3;
        let is_long = self.runs(start, count).nth(1).is_some();
        before
            + match op {
                Op::Read if self.spec.track_reads => self.read_track_by_track(start, count),
                Op::Read => self.rotation() + self.read_in_order(start, count),
                Op::Write => {
                    let tail = is_long && self.spec.track_writes_tail;
                    self.spec.write_settle_us as f64 * 1e3
                        + self.rotation() * if tail { 2.0 } else { 1.0 }
                        + self.write_in_order(start, count)
                }
            }
    }
}

/// A profile of these mechanics; its capacity is what its zones hold.
fn drive(rotating: RotatingSpec, physical_sector_bytes: u32) -> Result<DriveProfile, ProfileError> {
    let zones = rotating.zones.iter();
    let capacity = zones.map(|zone| zone.cylinders * zone.heads * zone.sectors_per_track);
    let spec = ProfileSpec {
        name: "a drive".into(),
        kind: DriveKind::Rotating,
        measured: false,
        sources: Vec::new(),
        outstanding: 1,
        capacity_sectors: capacity.sum(),
        physical_sector_bytes,
        widened_percent: 0,
        trust_worst_case: false,
        measurement: None,
        rotating: Some(rotating),
        flat: None,
        worst_case: Vec::new(),
    };
    DriveProfile::new(spec)
}

/// The mechanics of a drive whose bus is slower than its medium, but not by as much on the tracks of a
/// cylinder as their switches take.
fn with_a_slow_bus() -> RotatingSpec {
    RotatingSpec {
        rotation_us: 10_683,
        command_overhead_us: 0,
        head_switch_us: 209,
        cylinder_switch_us: 5_208,
        write_settle_us: 0,
        bus_bytes_per_second: 7_565_023,
        write_bus_bytes_per_second: None,
        track_reads: false,
        exact_tracks: true,
        track_writes_tail: false,
        retry_rotations: 0,
        zones: vec![ZoneSpec {
            first_cylinder: 0,
            cylinders: 30,
            heads: 9,
            sectors_per_track: 169,
        }],
        seek: vec![
            SeekPoint {
                cylinders: 1,
                us: 6_000,
            },
            SeekPoint {
                cylinders: 29,
                us: 9_000,
            },
        ],
    }
}

#[test]
fn a_bus_slower_than_the_medium_may_be_held_up_last_by_the_last_cylinder_switch() {
    for track_reads in [false, true] {
        let spec = RotatingSpec {
            track_reads,
            ..with_a_slow_bus()
        };
        let predictor = Predictor::new(&drive(spec.clone(), 512).unwrap());
        let model = Model::new(&spec);
        let count = 18_120;
        // Somewhere; from the last sector of a cylinder on, the worst place for reads; and up to the first sector of
        // one, the worst for writes.
        for start in [5_901, 1_520, 13 * 1_521 + 1 - count] {
            for op in [Op::Read, Op::Write] {
                let predicted = predictor.predict(None, op, Sector(start), SectorCount(count));
                let longest = model.longest(op, start, count);
                assert!(
                    predicted.0 as f64 >= longest,
                    "{op:?} at {start}, whole tracks {track_reads}: {predicted}, takes {longest} ns"
                );
                let everywhere = Sector(0)..Sector(predictor.capacity().get());
                let worst = predictor.worst_case(everywhere, op, SectorCount(count));
                assert!(predicted <= worst, "{predicted} {worst}");
            }
        }
    }
}

#[test]
fn the_bound_of_a_slow_bus_is_reached_but_for_a_few_sectors() {
    let spec = with_a_slow_bus();
    let predictor = Predictor::new(&drive(spec.clone(), 512).unwrap());
    let model = Model::new(&spec);
    for tracks in 1..200 {
        // From the last sector of a cylinder on.
        let (start, count) = (1_520, 1 + tracks * 169);
        let predicted = predictor.predict(None, Op::Read, Sector(start), SectorCount(count));
        let longest = model.longest(Op::Read, start, count);
        let over = predicted.0 as f64 - longest;
        assert!(
            (0.0..300_000.0).contains(&over),
            "{tracks} tracks: {over} ns"
        );
    }
}

/// Drives of any mechanics: up to three zones of less than so many cylinders, heads and sectors on a track, a
/// bus faster or slower than the medium, tracks read whole or not.
fn any_profile(cylinders: u64, heads: u64, sectors: u64) -> impl Strategy<Value = DriveProfile> {
    let zone = (1..cylinders, 1..heads, 1..sectors);
    let zones = proptest::collection::vec(zone, 1..4);
    let times = (500_u64..20_000, 0_u64..3_000, 0_u64..6_000, 0_u64..2_000);
    let seek = (0_u64..4_000, 0_u64..9_000);
    let ways = (any::<bool>(), any::<bool>(), 0_u32..5);
    (zones, times, seek, 20_u64..400, ways).prop_map(|(zones, times, seek, percent, ways)| {
        let (rotation, head, cylinder, settle) = times;
        let mut first_cylinder = 0;
        let mut sectors: u64 = zones.iter().map(|zone| zone.2).sum();
        let zones: Vec<ZoneSpec> = zones
            .into_iter()
            .map(|(cylinders, heads, fewer)| {
                let zone = ZoneSpec {
                    first_cylinder,
                    cylinders,
                    heads,
                    sectors_per_track: sectors,
                };
                (first_cylinder, sectors) = (first_cylinder + cylinders, sectors - fewer + 1);
                zone
            })
            .collect();
        let medium = 512_000_000 * zones[0].sectors_per_track / rotation;
        let point = |cylinders, us| SeekPoint { cylinders, us };
        let spec = RotatingSpec {
            rotation_us: rotation,
            command_overhead_us: 100,
            head_switch_us: head,
            cylinder_switch_us: head + cylinder,
            write_settle_us: settle,
            bus_bytes_per_second: (medium * percent / 100).max(512),
            write_bus_bytes_per_second: None,
            track_reads: ways.0,
            exact_tracks: true,
            track_writes_tail: ways.1,
            retry_rotations: 0,
            zones,
            seek: vec![
                point(1, head + seek.0),
                point(first_cylinder.max(2), head + seek.0 + seek.1),
            ],
        };
        drive(spec, 512 << ways.2).expect("a profile that makes sense")
    })
}

proptest! {
    #![proptest_config(cases(60))]

    /// For every request to a small drive: the prediction is at least the model's time, at most the time that
    /// admission counts, and at most the prediction of a longer request.
    #[test]
    fn every_request_of_a_small_drive_keeps_to_its_bounds(profile in any_profile(4, 5, 6)) {
        let predictor = Predictor::new(&profile);
        let model = Model::new(profile.spec().rotating.as_ref().unwrap());
        let (capacity, unit) = (predictor.capacity().get(), predictor.physical_sectors);
        let all = Sector(0)..Sector(capacity);
        for op in [Op::Read, Op::Write] {
            for count in 1..=capacity {
                let sectors = SectorCount(count);
                let worst = predictor.worst_case(all.clone(), op, sectors);
                for start in 0..=capacity - count {
                    let predicted = predictor.predict(None, op, Sector(start), sectors);
                    let here = predictor.worst_case(Sector(start)..Sector(start + count), op, sectors);
                    prop_assert!(predicted <= here, "{op:?} {start} {count}: {predicted} > {here}");
                    let is_whole = (start | count).is_multiple_of(unit);
                    prop_assert!(here <= worst || !is_whole, "{op:?} {start} {count}: {here} > {worst}");
                    let least = model.longest(op, start, count);
                    prop_assert!(predicted.0 as f64 >= least, "{op:?} {start} {count}: {predicted} < {least}");
                    if start + count + unit <= capacity {
                        let longer = SectorCount(count + unit);
                        let longer = predictor.predict(None, op, Sector(start), longer);
                        prop_assert!(predicted <= longer, "{op:?} {start} {count}: {predicted} > {longer}");
                    }
                    prop_assert!(predictor.shortest() <= predicted);
                }
            }
        }
    }

    /// The same for some requests to larger drives, over many cylinders: many begin at the last sector of a
    /// cylinder, the worst place for a slow bus.
    #[test]
    fn requests_over_many_cylinders_keep_to_their_bounds(
        profile in any_profile(40, 10, 60),
        requests in proptest::collection::vec((any::<u64>(), any::<u64>(), 0_u32..4), 100),
    ) {
        let predictor = Predictor::new(&profile);
        let model = Model::new(profile.spec().rotating.as_ref().unwrap());
        let capacity = predictor.capacity().get();
        let all = Sector(0)..Sector(capacity);
        for (place, count, kind) in requests {
            let begins = model.tracks.iter().rev().find(|track| track.start <= place % capacity).unwrap();
            let cylinder = model.tracks.iter().find(|track| track.cylinder == begins.cylinder).unwrap();
            let start = if kind == 0 { place % capacity } else { cylinder.start.saturating_sub(1) };
            let count = 1 + count % (capacity - start);
            for op in [Op::Read, Op::Write] {
                let predicted = predictor.predict(None, op, Sector(start), SectorCount(count));
                let least = model.longest(op, start, count);
                prop_assert!(predicted.0 as f64 >= least, "{op:?} {start} {count}: {predicted} < {least}");
                let worst = predictor.worst_case(Sector(start)..Sector(start + count), op, SectorCount(count));
                prop_assert!(predicted <= worst, "{op:?} {start} {count}: {predicted} > {worst}");
                let unit = predictor.physical_sectors;
                if (start | count).is_multiple_of(unit) {
                    let anywhere = predictor.worst_case(all.clone(), op, SectorCount(count));
                    prop_assert!(worst <= anywhere, "{op:?} {start} {count}: {worst} > {anywhere}");
                }
            }
        }
    }

    /// No piece takes longer than the longest, wherever physical sectors lie. A piece is a part of a zone, or
    /// the part of a physical sector that lies in several from where the request begins.
    #[test]
    fn no_piece_takes_longer_than_the_longest(profile in any_profile(4, 5, 6), limit_us in 1_u64..100_000) {
        let predictor = Predictor::new(&profile);
        let (capacity, unit) = (predictor.capacity().get(), predictor.physical_sectors);
        let limit = Nanos::from_micros(limit_us);
        let longest = predictor.piece_max(limit);
        for start in 0..capacity {
            let zone = predictor.zone_of(Sector(start));
            let end = predictor.zone_range(zone).unwrap().end.get();
            let within = predictor.piece_sectors(zone, limit).get().min(end - start);
            let torn = unit - start % unit;
            for count in [within, torn.min(capacity - start)] {
                for op in [Op::Read, Op::Write] {
                    let predicted = predictor.predict(None, op, Sector(start), SectorCount(count));
                    prop_assert!(predicted <= longest, "{op:?} {start} {count}: {predicted} > {longest}");
                }
            }
        }
    }
}

/// The shipped profile whose bus is slower than the medium in its outer zones, at the sizes and places that matter.
#[test]
fn the_atlas_keeps_to_its_formula() {
    let profile = DriveProfile::shipped("quantum-atlas-ii").unwrap();
    let predictor = Predictor::new(&profile);
    let model = Model::new(profile.spec().rotating.as_ref().unwrap());
    for zone in 0..predictor.zone_count() {
        let range = predictor.zone_range(zone).unwrap();
        let track = predictor.track(range.start).unwrap().end.get() - range.start.get();
        let cylinder = 10 * track;
        for tracks in [0, 1, 2, 9, 10, 11, 12, 19, 20, 21, 30, 31] {
            for more in [1, 2, track / 2, track] {
                let count = SectorCount(tracks * track + more);
                for before in [1, 2, track - 1, track, 9 * track, 9 * track + 1, 10 * track] {
                    let start = Sector(range.start.get() + 3 * cylinder - before);
                    let last = Sector(range.end.get() - before);
                    for start in [start, last] {
                        if (start + count).get() > predictor.capacity().get() {
                            continue;
                        }
                        for op in [Op::Read, Op::Write] {
                            let predicted = predictor.predict(None, op, start, count);
                            let longest = model.longest(op, start.get(), count.get());
                            let at = (op, start, count);
                            assert!(
                                predicted.0 as f64 >= longest,
                                "{at:?}: {predicted} < {longest}"
                            );
                            let all = Sector(0)..Sector(predictor.capacity().get());
                            let worst = predictor.worst_case(all, op, count);
                            assert!(predicted <= worst, "{at:?}: {predicted} > {worst}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn times_of_the_slowest_drive_that_is_accepted_do_not_overflow() {
    let second = 1_000_000;
    let spec = RotatingSpec {
        rotation_us: second,
        command_overhead_us: 60 * second,
        head_switch_us: second,
        cylinder_switch_us: second,
        write_settle_us: second,
        bus_bytes_per_second: 512,
        write_bus_bytes_per_second: None,
        track_reads: true,
        exact_tracks: true,
        track_writes_tail: true,
        retry_rotations: 1_000,
        zones: vec![ZoneSpec {
            first_cylinder: 0,
            cylinders: 1 << 32,
            heads: 1,
            sectors_per_track: 1,
        }],
        seek: vec![
            SeekPoint {
                cylinders: 1,
                us: second,
            },
            SeekPoint {
                cylinders: 1 << 32,
                us: second,
            },
        ],
    };
    let mut spec = drive(spec, 512).unwrap().spec().clone();
    spec.worst_case = vec![crate::profile::WorstCaseSpec {
        zone: 0,
        bytes: vec![512, 1 << 48],
        service_us: vec![1, 60 * second],
    }];
    for widened_percent in [0, 900] {
        spec.widened_percent = widened_percent;
        let predictor = Predictor::new(&DriveProfile::new(spec.clone()).unwrap());
        let whole = Sector(0)..Sector(predictor.capacity().get());
        for op in [Op::Read, Op::Write] {
            let of = |count| predictor.worst_case(whole.clone(), op, SectorCount(count));
            assert!(of(1) < of(1 << 20) && of(1 << 20) < of(1 << 30));
            assert!(of(1 << 30) <= of(1 << 31) && of(1 << 31) <= FOREVER);
            let far = predictor.predict(Some(Sector(1 << 31)), op, Sector(0), SectorCount(1 << 31));
            assert!(far <= of(1 << 31), "{far}");
        }
    }
}
