//! Properties that hold for any text of a drive profile: the entry point of the fuzz target, and of the test
//! that replays its corpus.

use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Sector, SectorCount};

/// Checks that an accepted profile survives being written and read again, and that each predicted service
/// time is between the shortest time and the worst case that admission counts.
///
/// # Panics
/// When a property does not hold.
pub fn profile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(profile) = DriveProfile::from_toml(text) else {
        return;
    };
    let again = DriveProfile::from_toml(&profile.to_toml());
    assert_eq!(again.as_ref(), Ok(&profile));
    let predictor = Predictor::new(&profile);
    let capacity = predictor.capacity().get();
    let unit = profile.physical_sector().get() / sched::units::SECTOR_BYTES;
    let limit = predictor.piece_limit();
    assert!(predictor.piece_max(limit) >= predictor.shortest());
    assert!(predictor.extent_bytes().get().is_power_of_two());
    let _ = predictor.burst_threshold();
    for units in [1, 16, 2048] {
        // Whole physical sectors, because the worst case is defined for these.
        let (count, whole) = (units * unit, capacity / unit * unit);
        let Some(last) = whole.checked_sub(count) else {
            continue;
        };
        for op in [Op::Read, Op::Write] {
            let sectors = SectorCount(count);
            let worst = predictor.worst_case(Sector(0)..Sector(whole), op, sectors);
            for start in [0, last / 2 / unit * unit, last] {
                for head in [None, Some(Sector(0)), Some(Sector(capacity - 1))] {
                    let predicted = predictor.predict(head, op, Sector(start), sectors);
                    assert!(
                        (predictor.shortest()..=worst).contains(&predicted),
                        "{op:?} of {count} sectors at {start} from {head:?}: {predicted:?} of {worst:?}"
                    );
                }
            }
        }
    }
}
