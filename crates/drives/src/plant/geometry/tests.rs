//! Numbering of sectors, runs, and skews.

use super::*;

fn geometry(name: &str) -> Geometry {
    Geometry::new(&PlantSpec::built_in(name).unwrap())
}

#[test]
fn sectors_are_numbered_along_tracks_heads_and_cylinders() {
    let geometry = geometry("quantum-atlas-ii");
    let at = |sector| geometry.locate(Sector(sector));
    let track = |zone, cylinder, head| Track {
        zone,
        cylinder,
        head,
    };
    assert_eq!(
        at(0),
        Place {
            track: track(0, 0, 0),
            index: 0
        }
    );
    assert_eq!(
        at(178),
        Place {
            track: track(0, 0, 0),
            index: 178
        }
    );
    assert_eq!(
        at(179),
        Place {
            track: track(0, 0, 1),
            index: 0
        }
    );
    assert_eq!(
        at(1_790),
        Place {
            track: track(0, 1, 0),
            index: 0
        }
    );
    let second = geometry.zones()[1].first_sector.get();
    assert_eq!(
        at(second - 1),
        Place {
            track: track(0, 1_771, 9),
            index: 178
        }
    );
    assert_eq!(
        at(second),
        Place {
            track: track(1, 1_772, 0),
            index: 0
        }
    );
    let last = geometry.sectors().get() - 1;
    assert_eq!(
        at(last),
        Place {
            track: track(11, 5_811, 9),
            index: 106
        }
    );
}

#[test]
fn runs_cover_a_request_track_by_track() {
    let geometry = geometry("quantum-atlas-ii");
    let start = geometry.zones()[1].first_sector.get() - 10;
    let runs: Vec<(Run, Nanos)> = geometry.runs(geometry.locate(Sector(start)), 200).collect();
    let shape: Vec<(u64, u64, u64, u64)> = runs
        .iter()
        .map(|(r, s)| (r.track.cylinder, r.index, r.count, s.get()))
        .collect();
    assert_eq!(
        shape,
        [
            (1_771, 169, 10, 0),
            (1_772, 0, 170, 1_700_000),
            (1_772, 0, 20, 600_000)
        ]
    );
}

#[test]
fn a_sequential_transfer_loses_no_rotation_at_any_switch() {
    for name in crate::plant::spec::BUILT_IN {
        let geometry = geometry(name);
        for zone in geometry.zones() {
            for tracks_before in [1, 2, 9, 10, 11, 3_217] {
                let sectors = (tracks_before * zone.sectors_per_track)
                    .min(zone.first_sector.get().max(zone.sectors_per_track));
                let mut place = geometry.locate(Sector(
                    (zone.first_sector.get() + sectors).saturating_sub(2 * sectors),
                ));
                place.index = 0;
                let (next, switch) = geometry.next_track(place.track);
                let begun = geometry.passes(place.track, 0, Time(1_000_000_000));
                let at = begun + geometry.rotation() + switch;
                let wait = geometry.passes(next, 0, at) - at;
                // At most the sector by which the skew is rounded up, and no rotation.
                assert!(
                    wait < geometry.passing(next, 1) + Nanos(20),
                    "{name} {place:?}: {wait}"
                );
            }
        }
    }
}

#[test]
fn a_serpentine_goes_along_a_band_and_back_with_the_next_head() {
    let geometry = geometry("hdd-8tb-7200-serpentine");
    let spt = geometry.zones()[0].sectors_per_track;
    let track = |number: u64| {
        let place = geometry.locate(Sector(number * spt));
        assert_eq!(place.index, 0);
        (place.track.cylinder, place.track.head)
    };
    assert_eq!([track(0), track(1), track(199)], [(0, 0), (1, 0), (199, 0)]);
    assert_eq!(
        [track(200), track(399), track(400)],
        [(199, 1), (0, 1), (0, 2)]
    );
    assert_eq!([track(1_999), track(2_000)], [(0, 9), (200, 0)]);
    // The last band of the zone has 30 cylinders of 23,830.
    assert_eq!(track(23_830 * 10 - 1), (23_800, 9));
    let mut at = geometry.locate(Sector(0)).track;
    for number in 1..10_000 {
        (at, _) = geometry.next_track(at);
        assert_eq!((at.cylinder, at.head), track(number));
    }
    let second = geometry.zones()[1].first_sector;
    assert_eq!(geometry.locate(second).track.cylinder, 23_830);
}

#[test]
fn the_next_boundary_is_where_a_sector_begins() {
    let geometry = geometry("hdd-8tb-7200");
    for i in 0..2_000_u64 {
        let place = geometry.locate(Sector(i * 7_654_321));
        let at = Time(i * 1_234_567);
        let (index, boundary) = geometry.next_boundary(place.track, at);
        assert!(boundary - at <= geometry.passing(place.track, 1));
        assert_eq!(geometry.passes(place.track, index, boundary), boundary);
    }
}
