//! Where sectors lie: cylinder, head, and the angle at which they pass.
//!
//! Angles are shares of a revolution in units of 2^-64, so that they wrap as the platters do. A layout only
//! says where a sector would be if it were not remapped; that places of consecutive sectors never go back
//! along a track is enough to find the sectors of a track, and those that lie behind each other, by bisection.

use super::description::{Description, Extent, Layout, Skew};

mod tree;
mod zones;

pub(super) use tree::check as check_tree;
pub(super) use zones::{check as check_zones, sectors as sectors_of_zone};

const PPB: u64 = 1_000_000_000;

/// An angle in units of 2^-64 of a revolution.
pub(super) fn angle_of_ppb(ppb: u64) -> u64 {
    ((u128::from(ppb % PPB) << 64) / u128::from(PPB)) as u64
}

/// The angle of a sector, if so many are on a track.
pub(super) fn sector_width(sectors_per_track: u64) -> u64 {
    // One sector would be the whole revolution, which is 0 in these units: almost all of it.
    u64::MAX / sectors_per_track
}

pub(super) fn angle(skew: Skew, width: u64) -> u64 {
    match skew {
        Skew::Sectors(sectors) => sectors.wrapping_mul(width),
        Skew::Ppb(ppb) => angle_of_ppb(ppb),
    }
}

/// The place of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Home {
    pub(super) cylinder: u64,
    pub(super) head: u64,
    /// Where it begins.
    pub(super) angle: u64,
    pub(super) sectors_per_track: u64,
}

impl Home {
    fn is_on_track_of(&self, other: &Self) -> bool {
        (self.cylinder, self.head) == (other.cylinder, other.head)
    }

    pub(super) fn width(&self) -> u64 {
        sector_width(self.sectors_per_track)
    }
}

/// A layout, ready for use.
#[derive(Clone, Debug)]
pub(super) struct Map {
    sectors: u64,
    shape: Shape,
    /// Remapped sectors in their order, each with its new place.
    remapped: Vec<(u64, Home)>,
}

#[derive(Clone, Debug)]
enum Shape {
    Zones(zones::Zones),
    Extents(Vec<Extent>),
    Tree(tree::Tree),
}

impl Map {
    pub(super) fn new(description: &Description) -> Self {
        let heads = description.mechanics.heads;
        let shape = match &description.layout {
            Layout::Zones {
                order,
                sparing,
                range_cylinders,
                zone,
            } => Shape::Zones(zones::Zones::new(
                *order,
                *sparing,
                *range_cylinders,
                zone,
                heads,
            )),
            Layout::Extents { extent } => Shape::Extents(extent.clone()),
            Layout::Tree {
                track, node, slip, ..
            } => Shape::Tree(tree::Tree::new(track, node, slip)),
        };
        let mut map = Self {
            sectors: description.sectors,
            shape,
            remapped: Vec::new(),
        };
        let mut remapped = match (&map.shape, &description.layout) {
            (Shape::Zones(zones), _) => zones.remapped(),
            (Shape::Tree(tree), Layout::Tree { remap, .. }) => tree.remapped(remap),
            _ => Vec::new(),
        };
        remapped.retain(|(sector, _)| *sector < map.sectors);
        remapped.sort_by_key(|(sector, _)| *sector);
        remapped.dedup_by_key(|(sector, _)| *sector);
        map.remapped = remapped;
        map
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// First sector, first cylinder and cylinders of each zone, if the layout lists them.
    pub(super) fn zones(&self) -> Vec<(u64, u64, u64)> {
        match &self.shape {
            Shape::Zones(zones) => zones.list(),
            Shape::Extents(_) | Shape::Tree(_) => Vec::new(),
        }
    }

    /// The place of a sector if it were not remapped.
    pub(super) fn home(&self, sector: u64) -> Home {
        match &self.shape {
            Shape::Zones(zones) => zones.home(sector),
            Shape::Tree(tree) => tree.home(sector),
            Shape::Extents(extents) => {
                let number = extents.partition_point(|extent| extent.first <= sector);
                let extent = &extents[number.saturating_sub(1)];
                let width = sector_width(extent.sectors_per_track);
                let index = sector.saturating_sub(extent.first);
                Home {
                    cylinder: extent.cylinder,
                    head: extent.head,
                    angle: angle_of_ppb(extent.angle_ppb).wrapping_add(index.wrapping_mul(width)),
                    sectors_per_track: extent.sectors_per_track,
                }
            }
        }
    }

    /// The place of a sector, and how many from it on lie behind each other.
    pub(super) fn place(&self, sector: u64) -> (Home, u64) {
        let next = self.remapped.partition_point(|(of, _)| *of < sector);
        let bound = match self.remapped.get(next) {
            Some((of, place)) if *of == sector => return (*place, 1),
            Some((of, _)) => of - sector,
            None => u64::MAX,
        };
        let home = self.home(sector);
        let width = home.width();
        let bound = bound.min(home.sectors_per_track).min(self.sectors - sector);
        let follows = |count: u64| {
            let other = self.home(sector + count);
            home.is_on_track_of(&other)
                && other.angle == home.angle.wrapping_add(count.wrapping_mul(width))
        };
        (home, prefix(bound, follows))
    }

    /// The first sector of the track of `sector`, and the one after the last.
    pub(super) fn track(&self, sector: u64) -> (u64, u64) {
        let home = self.home(sector);
        let spt = home.sectors_per_track;
        self.around(sector, spt, |other| home.is_on_track_of(&other))
    }

    /// The one after the last sector of the cylinder of `sector`.
    pub(super) fn cylinder_end(&self, sector: u64, heads: u64) -> u64 {
        let home = self.home(sector);
        let most = home.sectors_per_track.saturating_mul(heads);
        self.around(sector, most, |other| other.cylinder == home.cylinder)
            .1
    }

    /// The range of sectors around `sector`, at most `most` to each side, whose homes are `like` its own.
    fn around(&self, sector: u64, most: u64, like: impl Fn(Home) -> bool) -> (u64, u64) {
        let after = prefix(most.min(self.sectors - sector), |count| {
            like(self.home(sector + count))
        });
        let before = prefix(most.min(sector + 1), |count| {
            like(self.home(sector - count))
        });
        (sector + 1 - before, sector + after)
    }
}

/// The number of leading indices below `bound` for which `holds`; index 0 is taken for granted. Once it does
/// not hold it never does again.
fn prefix(bound: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut yes, mut no) = (0, bound.max(1));
    // Most of the time it holds to the end or nearly so.
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if holds(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    no
}
