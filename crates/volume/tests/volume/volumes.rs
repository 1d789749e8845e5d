//! Volumes: names and sizes, placement, bad and moving extents, a volume of many extents, lost blocks of
//! metadata, and refusals with their reasons.

mod extents;
mod large;
mod losses;
mod names_and_sizes;
mod placement;

use crate::common::{Durability, Effort, World};
use volume::VolumeId;

fn world(disks: usize, extents: u64) -> World {
    World::new(disks, extents, Durability::Forced, 1, Effort::QUICK)
}

fn places(world: &World, volume: VolumeId) -> Vec<(u16, u32)> {
    world
        .map(volume)
        .places()
        .map(|place| (place.disk.0, place.extent))
        .collect()
}
