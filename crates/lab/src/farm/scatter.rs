//! Extents elsewhere than where a pool puts them.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::predict::Predictor;
use sched::units::{Sector, SectorCount};

use super::band::PlacedVolume;
use crate::dice::Dice;

/// Moves every extent to the beginning of the next track behind the one before it. There must be room for
/// that behind the last one.
pub fn align_to_tracks(volumes: &mut [PlacedVolume], disks: usize, predictor: &Predictor) {
    for disk in 0..disks {
        let extents = volumes.iter_mut().flat_map(|volume| &mut volume.extents);
        let mut extents: Vec<_> = extents.filter(|extent| extent.disk == disk).collect();
        extents.sort_unstable_by_key(|extent| extent.sectors.start);
        let mut end = Sector(0);
        for extent in extents {
            let count = extent.sectors.end - extent.sectors.start;
            let from = end.max(extent.sectors.start);
            let track = predictor.track(from).expect("the drive has tracks");
            let start = if track.start == from { from } else { track.end };
            end = start + count;
            extent.sectors = start..end;
        }
    }
}

/// Puts every extent at a random place of its disk.
pub fn shuffle(volumes: &mut [PlacedVolume], disks: usize, capacity: SectorCount, seed: u64) {
    let slot = volumes
        .iter()
        .map(|volume| volume.geometry.extent_sectors())
        .max()
        .unwrap_or_default();
    let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5A0F_F1E5));
    for disk in 0..disks {
        let slots = capacity.get() / slot.get();
        let mut free: Vec<Sector> = (0..slots).map(|index| Sector(index * slot.get())).collect();
        permute(&mut free, dice);
        let mut sizes: Vec<SectorCount> = volumes
            .iter()
            .map(|volume| volume.geometry.extent_sectors())
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes.into_iter().rev() {
            let mut extents: Vec<_> = volumes
                .iter_mut()
                .filter(|volume| volume.geometry.extent_sectors() == size)
                .flat_map(|volume| &mut volume.extents)
                .filter(|extent| extent.disk == disk)
                .collect();
            let in_slot = (slot.get() / size.get()) as usize;
            let taken = free.split_off(free.len() - extents.len().div_ceil(in_slot));
            let mut places: Vec<Sector> = taken
                .into_iter()
                .flat_map(|start| {
                    (0..in_slot as u64).map(move |part| start + SectorCount(part * size.get()))
                })
                .collect();
            permute(&mut places, dice);
            for (extent, start) in extents.iter_mut().zip(places) {
                extent.sectors = start..start + size;
            }
        }
    }
}

/// Fisher and Yates's shuffle.
fn permute<T>(items: &mut [T], dice: &mut Dice) {
    for last in (1..items.len()).rev() {
        items.swap(last, dice.below(last as u64 + 1) as usize);
    }
}
