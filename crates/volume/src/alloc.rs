//! Free extents, and the choice among them.
//!
//! In memory only: rebuilt at opening from the nodes, the log and the list of bad extents.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use sched::units::SECTOR_BYTES;

use crate::error::VolumeError;
use crate::grade::{Grade, Quality};
use crate::limits::HEADER_BYTES;
use crate::place::{DiskNumber, Geometry, Place};
use crate::placement::{DiskRange, Placement};

/// The free extents of every disk.
#[derive(Clone, Debug)]
pub(crate) struct FreeMap {
    disks: Vec<DiskMap>,
    grades: BTreeMap<Place, Grade>,
}

#[derive(Clone, Debug)]
struct DiskMap {
    used: Vec<u64>,
    /// Extents that count as used where only good ones are wanted.
    slow: Vec<u64>,
    extents: u32,
    free: u32,
}

impl DiskMap {
    fn is_used(&self, extent: u32) -> bool {
        self.used[(extent / 64) as usize] & (1 << (extent % 64)) != 0
    }

    /// A word of the extents that are not to be taken.
    fn taken(&self, word: usize, quality: Quality) -> u64 {
        match quality {
            Quality::GoodFirst => self.used[word],
            Quality::GoodOnly => self.used[word] | self.slow[word],
        }
    }

    /// The first free extent in `range`.
    fn next_free(&self, range: Range<u32>, quality: Quality) -> Option<u32> {
        let mut at = range.start;
        while at < range.end {
            let word = self.taken((at / 64) as usize, quality) >> (at % 64);
            let ones = word.trailing_ones().min(64 - at % 64);
            if ones < 64 - at % 64 {
                return Some(at + ones).filter(|found| *found < range.end);
            }
            at += ones;
        }
        None
    }

    /// The first `run` consecutive free extents in `range`.
    fn first_fit(&self, range: Range<u32>, run: u32, quality: Quality) -> Option<u32> {
        let mut start = self.next_free(range.clone(), quality)?;
        let mut at = start;
        while at < range.end {
            if self.taken((at / 64) as usize, quality) & (1 << (at % 64)) != 0 {
                start = self.next_free(at..range.end, quality)?;
                at = start;
            } else {
                at += 1;
                if at - start == run {
                    return Some(start);
                }
            }
        }
        None
    }
}

impl FreeMap {
    /// All extents of disks of these many are free, but the bad ones.
    pub(crate) fn new(extents: impl Iterator<Item = u32>, grades: BTreeMap<Place, Grade>) -> Self {
        let disk = |extents: u32| {
            let words = vec![0; extents.div_ceil(64) as usize];
            DiskMap {
                slow: words.clone(),
                used: words,
                extents,
                free: extents,
            }
        };
        let mut map = Self {
            disks: extents.map(disk).collect(),
            grades: BTreeMap::new(),
        };
        for (place, grade) in grades {
            map.set_grade(place, grade);
        }
        map
    }

    /// Places with a grade.
    pub(crate) fn grades(&self) -> &BTreeMap<Place, Grade> {
        &self.grades
    }

    pub(crate) fn grade(&self, place: Place) -> Option<Grade> {
        self.grades.get(&place).copied()
    }

    fn is_bad(&self, place: Place) -> bool {
        self.grade(place) == Some(Grade::Bad)
    }

    /// Gives it a grade; a bad one is not free from now on.
    pub(crate) fn set_grade(&mut self, place: Place, grade: Grade) {
        let disk = &mut self.disks[usize::from(place.disk.0)];
        disk.slow[(place.extent / 64) as usize] |= 1 << (place.extent % 64);
        if grade == Grade::Bad {
            self.take(place);
        }
        self.grades.insert(place, grade);
    }

    pub(crate) fn exists(&self, place: Place) -> bool {
        self.disks
            .get(usize::from(place.disk.0))
            .is_some_and(|disk| place.extent < disk.extents)
    }

    pub(crate) fn is_free(&self, place: Place) -> bool {
        self.exists(place) && !self.disks[usize::from(place.disk.0)].is_used(place.extent)
    }

    /// Makes it used. Whether it was free.
    pub(crate) fn take(&mut self, place: Place) -> bool {
        let disk = &mut self.disks[usize::from(place.disk.0)];
        let was_free = !disk.is_used(place.extent);
        disk.used[(place.extent / 64) as usize] |= 1 << (place.extent % 64);
        disk.free -= u32::from(was_free);
        was_free
    }

    /// Makes it free, unless it is bad.
    pub(crate) fn give(&mut self, place: Place) {
        if self.is_bad(place) {
            return;
        }
        let disk = &mut self.disks[usize::from(place.disk.0)];
        debug_assert!(disk.is_used(place.extent), "{place} was free already");
        disk.used[(place.extent / 64) as usize] &= !(1 << (place.extent % 64));
        disk.free += 1;
    }

    pub(crate) fn free(&self) -> u64 {
        self.disks.iter().map(|disk| u64::from(disk.free)).sum()
    }

    pub(crate) fn free_on(&self, disk: DiskNumber) -> u32 {
        self.disks[usize::from(disk.0)].free
    }

    /// Extents in all, the bad ones not counted.
    pub(crate) fn good(&self) -> u64 {
        let all: u64 = self.disks.iter().map(|disk| u64::from(disk.extents)).sum();
        let is_bad = |grade: &&Grade| **grade == Grade::Bad;
        all - self.grades.values().filter(is_bad).count() as u64
    }

    /// An extent for metadata: the last free one, where it is out of the way of fast zones and of runs, of
    /// the disk that has the log, so that no other disk holds it up; where that is full, of the disk with
    /// the most free. A slow one only where no other is left on the disk.
    pub(crate) fn take_for_metadata(&mut self, log: DiskNumber) -> Option<Place> {
        let most = |number: &usize| self.disks[*number].free;
        let number = Some(usize::from(log.0))
            .filter(|number| most(number) > 0)
            .or_else(|| (0..self.disks.len()).rev().max_by_key(most))?;
        let disk = &self.disks[number];
        let last = |quality| {
            let is_free = |extent: &u32| {
                disk.taken((*extent / 64) as usize, quality) & (1 << (*extent % 64)) == 0
            };
            (0..disk.extents).rev().find(is_free)
        };
        let extent = last(Quality::GoodOnly).or_else(|| last(Quality::GoodFirst))?;
        let place = Place {
            disk: DiskNumber(number as u16),
            extent,
        };
        self.take(place);
        Some(place)
    }

    /// Takes up to `count` good free extents of a disk: the first ones behind places that divide it evenly.
    pub(crate) fn take_spread(&mut self, disk: DiskNumber, count: u32) -> Vec<Place> {
        let mut taken = Vec::with_capacity(count as usize);
        for index in 0..u64::from(count) {
            let map = &self.disks[usize::from(disk.0)];
            let middle = u64::from(map.extents) * (2 * index + 1) / (2 * u64::from(count));
            let found = map.next_free(middle as u32..map.extents, Quality::GoodOnly);
            if let Some(extent) = found {
                let place = Place { disk, extent };
                self.take(place);
                taken.push(place);
            }
        }
        taken
    }

    /// Takes `count` extents as `placement` says. The rotation begins with the disk after `after`,
    /// or with the `turn`th. All of them, or none and why. Slow ones are taken last, or not at all.
    pub(crate) fn allocate(
        &mut self,
        geometry: Geometry,
        placement: &Placement,
        count: u32,
        (after, turn): (Option<DiskNumber>, u64),
        quality: Quality,
    ) -> Result<Vec<Place>, VolumeError> {
        let mut lanes = self.lanes(geometry, placement)?;
        let next = after.and_then(|disk| lanes.iter().position(|lane| lane.disk == disk));
        let mut turn = next.map_or((turn % lanes.len() as u64) as usize, |lane| lane + 1);
        let mut taken: Vec<Place> = Vec::with_capacity(count as usize);
        while taken.len() < count as usize {
            let left = count - taken.len() as u32;
            let run = placement.run.min(left);
            let tries = if placement.strict { 1 } else { lanes.len() };
            let mut find = |quality| {
                (turn..turn + tries).find_map(|turn| {
                    let number = turn % lanes.len();
                    let lane = &mut lanes[number];
                    let disk = &self.disks[usize::from(lane.disk.0)];
                    Some((number, lane.first_fit(disk, run, quality)?))
                })
            };
            let found = find(Quality::GoodOnly).or_else(|| match quality {
                Quality::GoodFirst => find(Quality::GoodFirst),
                Quality::GoodOnly => None,
            });
            let Some((number, start)) = found else {
                for place in taken {
                    self.give(place);
                }
                let place = describe(placement, &lanes, turn);
                return Err(VolumeError::NoRoomThere {
                    wanted: count,
                    missing: left,
                    place,
                });
            };
            for extent in start..start + run {
                let place = Place {
                    disk: lanes[number].disk,
                    extent,
                };
                self.take(place);
                taken.push(place);
            }
            turn = number + 1;
        }
        Ok(taken)
    }

    /// The disks of a placement in their rotation, each with where to look on it.
    fn lanes(&self, geometry: Geometry, placement: &Placement) -> Result<Vec<Lane>, VolumeError> {
        if placement.run == 0 {
            return Err(VolumeError::BadPlacement("runs of 0 extents".to_owned()));
        }
        let exists = |disk: DiskNumber| usize::from(disk.0) < self.disks.len();
        let named = placement
            .disks
            .iter()
            .chain(placement.within.iter().map(|range| &range.disk));
        if let Some(disk) = named.into_iter().find(|disk| !exists(**disk)) {
            return Err(VolumeError::NoSuchDisk(*disk));
        }
        let distinct: BTreeSet<DiskNumber> = placement.disks.iter().copied().collect();
        if distinct.len() != placement.disks.len() {
            return Err(VolumeError::BadPlacement(
                "a disk is named twice".to_owned(),
            ));
        }
        let all = (0..self.disks.len()).map(|disk| DiskNumber(disk as u16));
        let disks: Vec<DiskNumber> = if placement.disks.is_empty() {
            all.collect()
        } else {
            placement.disks.clone()
        };
        let lane = |disk: DiskNumber| {
            let end = self.disks[usize::from(disk.0)].extents;
            let ranges: Vec<Range<u32>> = if placement.within.is_empty() {
                std::iter::once(0..end).collect()
            } else {
                let on_it = placement.within.iter().filter(|range| range.disk == disk);
                on_it
                    .map(|range| extents_in(range, geometry, end))
                    .filter(|range| !range.is_empty())
                    .collect()
            };
            Lane {
                disk,
                ranges,
                good: Cursor::default(),
                any: Cursor::default(),
            }
        };
        let lanes: Vec<Lane> = disks
            .into_iter()
            .map(lane)
            .filter(|lane| !lane.ranges.is_empty())
            .collect();
        if lanes.is_empty() {
            return Err(VolumeError::BadPlacement(
                "the range holds no whole extent of any of the disks".to_owned(),
            ));
        }
        Ok(lanes)
    }
}

/// The extents that lie whole in a stretch of a disk.
fn extents_in(range: &DiskRange, geometry: Geometry, end: u32) -> Range<u32> {
    let header = HEADER_BYTES / SECTOR_BYTES;
    let extent = geometry.extent_sectors().0;
    let from = range.start.0.saturating_sub(header).div_ceil(extent);
    let to = range
        .start
        .0
        .saturating_add(range.count.0)
        .saturating_sub(header)
        / extent;
    from.min(u64::from(end)) as u32..to.min(u64::from(end)) as u32
}

/// A disk in a rotation.
struct Lane {
    disk: DiskNumber,
    ranges: Vec<Range<u32>>,
    good: Cursor,
    any: Cursor,
}

/// Where a search goes on. Within one allocation nothing becomes free, so the search for runs of one
/// length goes on where it left off.
#[derive(Default)]
struct Cursor {
    range: usize,
    from: u32,
    run: u32,
}

impl Lane {
    fn first_fit(&mut self, disk: &DiskMap, run: u32, quality: Quality) -> Option<u32> {
        let cursor = match quality {
            Quality::GoodOnly => &mut self.good,
            Quality::GoodFirst => &mut self.any,
        };
        if cursor.run != run {
            *cursor = Cursor {
                run,
                ..Cursor::default()
            };
        }
        while let Some(range) = self.ranges.get(cursor.range) {
            let rest = range.start.max(cursor.from)..range.end;
            if let Some(start) = disk.first_fit(rest, run, quality) {
                cursor.from = start + run;
                return Some(start);
            }
            cursor.range += 1;
            cursor.from = 0;
        }
        None
    }
}

fn describe(placement: &Placement, lanes: &[Lane], turn: usize) -> String {
    let mut text = String::from("on disk");
    let strict = placement.strict && lanes.len() > 1;
    let names: Vec<String> = if strict {
        vec![lanes[turn % lanes.len()].disk.0.to_string()]
    } else {
        lanes.iter().map(|lane| lane.disk.0.to_string()).collect()
    };
    if names.len() > 1 {
        text.push('s');
    }
    text = format!("{text} {}", names.join(", "));
    if strict {
        text.push_str(", whose turn it is");
    }
    if !placement.within.is_empty() {
        text.push_str(", within the given range");
    }
    if placement.run > 1 {
        text = format!("{text}, in runs of {}", placement.run);
    }
    text
}
