//! Layouts: each sector has a place, and it costs what its place says.

use std::collections::BTreeSet;

use sched::request::Op;
use sched::units::{Nanos, Sector};

use super::super::description::{Layout, Order, Sparing, ZoneLine};
use super::{plant, took, zone};
use crate::plant::Plant;

/// A place of a zone of three heads that no sector has, with three spares and the slips 5 and 20.
fn free_spare(sparing: Sparing, zone: &ZoneLine) -> Option<u64> {
    let tracks = (zone.last_cylinder - zone.first_cylinder + 1) * 3;
    let cylinder = zone.sectors_per_track * 3;
    match sparing {
        Sparing::None | Sparing::DiskEnd => None,
        Sparing::Tracks => Some(tracks - 1),
        Sparing::TrackEnd => Some(zone.sectors_per_track - 1),
        Sparing::CylinderEnd | Sparing::CylinderEndSlipToEnd => Some(cylinder - 1),
        Sparing::CylinderFront | Sparing::CylinderFrontSlipToEnd => Some(0),
        Sparing::RangeEnd => Some(4 * cylinder - 1),
        Sparing::ZoneEnd | Sparing::ZoneEndSlipToEnd => Some(tracks * zone.sectors_per_track - 1),
    }
}

#[test]
fn every_layout_gives_each_sector_a_place_of_its_own_in_their_order() {
    let sparings = [
        Sparing::None,
        Sparing::Tracks,
        Sparing::CylinderEnd,
        Sparing::TrackEnd,
        Sparing::CylinderEndSlipToEnd,
        Sparing::CylinderFront,
        Sparing::CylinderFrontSlipToEnd,
        Sparing::DiskEnd,
        Sparing::RangeEnd,
        Sparing::ZoneEnd,
        Sparing::ZoneEndSlipToEnd,
    ];
    for sparing in sparings {
        for order in [
            Order::Cylinders,
            Order::SerpentineInZones,
            Order::Serpentine,
        ] {
            let plant = plant(|drive| {
                let mut zones = vec![zone(0, 19, 20), zone(25, 39, 15)];
                for zone in &mut zones {
                    zone.spares = 3;
                    zone.reserved_sectors = 7;
                    zone.slips = vec![5, 20];
                    zone.defects = free_spare(sparing, zone)
                        .map(|spare| (11, spare))
                        .into_iter()
                        .collect();
                    if sparing == Sparing::None {
                        zone.slips = vec![];
                    }
                }
                drive.layout = Layout::Zones {
                    order,
                    sparing,
                    range_cylinders: 4,
                    zone: zones,
                };
            });
            let mut places = BTreeSet::new();
            let (mut cylinder, mut far) = (0, 0);
            for sector in 0..plant.sectors().get() {
                let at = plant.locate(Sector(sector));
                let place = (at.cylinder, at.head, at.angle);
                assert!(
                    places.insert(place),
                    "{sparing:?} {order:?} {sector}: {at:?} is taken"
                );
                assert!(at.head < 3 && at.cylinder < 40 && !(20..25).contains(&at.cylinder));
                far += u64::from(at.cylinder.abs_diff(cylinder) > 1);
                cylinder = at.cylinder;
            }
            // There and back for each defect, and the gap between the zones.
            assert!(far <= 5, "{sparing:?} {order:?}: {far}");
            let zones = plant.zones();
            assert_eq!(zones.len(), 2, "{sparing:?} {order:?}");
            assert_eq!(zones[1].first_cylinder, 25);
        }
    }
}

#[test]
fn a_serpentine_changes_cylinders_without_changing_heads() {
    let serpentine = |order| {
        plant(|drive| {
            if let Layout::Zones { order: of, .. } = &mut drive.layout {
                *of = order;
            }
        })
    };
    let head = |plant: &Plant, track: u64| plant.locate(Sector(track * 60)).head;
    let normal: Vec<u64> = (0..7)
        .map(|t| head(&serpentine(Order::Cylinders), t))
        .collect();
    assert_eq!(normal, [0, 1, 2, 0, 1, 2, 0]);
    for order in [Order::SerpentineInZones, Order::Serpentine] {
        let heads: Vec<u64> = (0..7).map(|t| head(&serpentine(order), t)).collect();
        assert_eq!(heads, [0, 1, 2, 2, 1, 0, 0]);
    }
}

#[test]
fn slipped_and_remapped_sectors_cost_what_their_places_say() {
    let spoilt = plant(|drive| {
        if let Layout::Zones { sparing, zone, .. } = &mut drive.layout {
            *sparing = Sparing::ZoneEnd;
            zone[0].spares = 200;
            zone[0].slips = vec![10];
            zone[0].defects = vec![(31, 35_900)];
        }
    });
    let at = |sector| spoilt.locate(Sector(sector));
    let gap = |a: u64, b: u64| at(b).angle.get().abs_diff(at(a).angle.get());
    assert!(
        gap(9, 10).abs_diff(2 * 10_000_000 / 60) < 2,
        "a sector is left out"
    );
    // Position 31 holds sector 30, because one before it is left out; its place is at the zone's end.
    assert_eq!(at(30).cylinder, 199);
    assert_eq!((at(29).cylinder, at(31).cylinder), (0, 0));
    let mut clean = plant(|_| {});
    let mut spoilt = spoilt;
    let (usual, with_seek) = (
        took(&mut clean, Op::Read, 20, 20),
        took(&mut spoilt, Op::Read, 20, 20),
    );
    // There and back.
    assert!(with_seek > usual + Nanos(12_000_000), "{with_seek} {usual}");
}
