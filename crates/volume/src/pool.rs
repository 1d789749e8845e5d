//! The pool's metadata in memory, and the changes that can be made to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sched::units::{Bytes, SectorCount};

use crate::alloc::FreeMap;
use crate::draft::Draft;
use crate::error::VolumeError;
use crate::extent::Extent;
use crate::grade::Grade;
use crate::image::NodeAt;
use crate::log::{LogState, budget, extents_for_blocks, log_extents_max, node_blocks};
use crate::map::VolumeMap;
use crate::medium::{Candidate, Medium};
use crate::node::Volume;
use crate::ondisk::Owner;
use crate::ondisk::superblock::Superblock;
use crate::open::{Opened, check_owners, newest_superblock, read_pool};
use crate::place::{DiskNumber, Geometry, Place, Uuid, VolumeId};
use crate::placement::{DiskRange, Placement};
use crate::problem::{OpenError, Problem};

/// Specification of a new pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatSpec {
    /// The pool's identity, random.
    pub pool: Uuid,
    /// The disks in the order of their numbers, each with an identity of its own, random.
    pub disks: Vec<(Uuid, Candidate)>,
    /// The size of its extents: a power of two from 64 KiB to 1 GiB.
    pub extent_bytes: Bytes,
}

/// Specification of a new volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateSpec {
    /// Its name: one without a [flaw](crate::name::flaw), not taken.
    pub name: String,
    /// Its size, more than zero; rounded up to whole sectors.
    pub size: Bytes,
    /// Places of its extents.
    pub placement: Placement,
}

/// A disk of an open pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolDisk {
    /// Its number.
    pub number: DiskNumber,
    /// Its identity.
    pub id: Uuid,
    /// Index of the candidate.
    pub candidate: usize,
    /// The name given for it.
    pub name: String,
    /// Its size.
    pub sectors: SectorCount,
    /// The extents on it.
    pub extents: u32,
    /// Those that are free, moves' and quiet-waiting ones not counted.
    pub free: u32,
    /// Those that are bad.
    pub bad: u32,
    /// Those that are slow.
    pub slow: u32,
    /// Those that hold metadata.
    pub metadata: u32,
}

/// Changes of a committed transaction.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    /// Volumes with a new map; `None`: deleted. Install them before anything else is planned.
    pub maps: Vec<(VolumeId, Option<Arc<VolumeMap>>)>,
}

/// An open pool.
///
/// Views are here; [`crate::plan`](self) has the changes and [`crate::commit`](self) their end.
#[derive(Debug)]
pub struct PoolState {
    pub(crate) geometry: Geometry,
    pub(crate) superblocks: Vec<Superblock>,
    /// First block of the table's disk when the pool was opened, if it could be read.
    pub(crate) found: Option<Vec<u8>>,
    given: Vec<(usize, String)>,
    notes: Vec<Problem>,
    pub(crate) volumes: BTreeMap<VolumeId, Volume>,
    pub(crate) next_volume: u64,
    /// Number of entries in the list of grades and losses, and its place; true if they have changed since.
    pub(crate) list_at: Option<(u32, NodeAt)>,
    pub(crate) list_changed: bool,
    /// Extents of which chunks may be lost.
    pub(crate) lost: BTreeSet<(VolumeId, u32)>,
    /// The superblocks' generation.
    pub(crate) generation: u64,
    /// The superblocks' owner.
    pub(crate) owner: Owner,
    pub(crate) log: LogState,
    pub(crate) free: FreeMap,
    /// Extents that hold metadata which the table on disk or the log after it refers to.
    pub(crate) metadata: BTreeSet<Place>,
    /// Extents that no volume has any more, to which requests may still be on their way.
    pub(crate) leaving: Vec<(Place, Arc<Extent>)>,
    /// Extents being moved, by volume and index.
    pub(crate) moving: BTreeMap<(VolumeId, u32), Place>,
    pub(crate) phase: Phase,
    pub(crate) planned: Option<Draft>,
    pub(crate) serial: u64,
}

/// Tells if changes are possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Opened,
    Started,
    Poisoned,
}

impl PoolState {
    /// Opens the pool that the disks make up, for reading; [`PoolState::start`] makes it writable.
    ///
    /// # Errors
    /// Each disk that is missing, foreign, stale, double, damaged or of a newer version, by name;
    /// damaged metadata.
    pub fn open(medium: &mut dyn Medium, disks: &[Candidate]) -> Result<Self, OpenError> {
        let opened = read_pool(medium, disks).map_err(|problems| OpenError { problems })?;
        let problems = check_owners(&opened);
        if problems.is_empty() {
            Ok(Self::from_opened(opened))
        } else {
            Err(OpenError { problems })
        }
    }

    fn from_opened(opened: Opened) -> Self {
        let geometry = opened.geometry();
        let Opened {
            disks,
            table,
            image,
            tail,
            metadata,
            notes,
        } = opened;
        let extents = disks.iter().map(|disk| disk.superblock.extents);
        let mut free = FreeMap::new(extents, image.grades);
        let owned = image
            .volumes
            .values()
            .flat_map(|node| node.extents.iter().map(|(place, _)| place));
        for place in owned.chain(&metadata) {
            free.take(*place);
        }
        let newest = newest_superblock(&disks);
        let (generation, owner) = (newest.generation, newest.owner);
        let log = LogState {
            pool: table.pool,
            geometry,
            at: tail.at,
            sequence: tail.sequence,
            previous: tail.previous,
            epoch: table.generation,
            owner: table.owner,
            next: tail.next,
            extents: tail.extents,
            blocks: tail.blocks,
        };
        let lost = image.lost;
        let volumes = image
            .volumes
            .into_iter()
            .map(|(id, node)| (id, Volume::load(id, node, geometry, &lost)));
        let volumes = volumes.collect();
        let lead = usize::from(newest.table_disk.0);
        Self {
            geometry,
            found: disks[lead].first_block.clone(),
            given: disks
                .iter()
                .map(|disk| (disk.candidate, disk.name.clone()))
                .collect(),
            superblocks: disks.into_iter().map(|disk| disk.superblock).collect(),
            notes,
            volumes,
            lost: lost.into_keys().collect(),
            next_volume: image.next_volume,
            list_at: image.list_at,
            list_changed: image.list_changed,
            generation,
            owner,
            log,
            free,
            metadata,
            leaving: Vec::new(),
            moving: BTreeMap::new(),
            phase: Phase::Opened,
            planned: None,
            serial: 0,
        }
    }

    /// Oddities at opening that do no harm: a torn copy of a superblock or table.
    #[must_use]
    pub fn notes(&self) -> &[Problem] {
        &self.notes
    }

    /// True if a step of a transaction has failed.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.phase == Phase::Poisoned
    }

    /// The pool's identity.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.log.pool
    }

    /// The sizes of extents and chunks.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The disks, by number.
    #[must_use]
    pub fn disks(&self) -> Vec<PoolDisk> {
        let on = |places: &BTreeSet<Place>, disk: DiskNumber| {
            places.iter().filter(|place| place.disk == disk).count() as u32
        };
        let graded = |disk: DiskNumber, bad: bool| {
            let here = self.grades().filter(|(place, _)| place.disk == disk);
            here.filter(|(_, grade)| (*grade == Grade::Bad) == bad)
                .count() as u32
        };
        let disk = |(superblock, (candidate, name)): (&Superblock, &(usize, String))| PoolDisk {
            number: superblock.number,
            id: superblock.disk(),
            candidate: *candidate,
            name: name.clone(),
            sectors: superblock.sectors,
            extents: superblock.extents,
            free: self.free.free_on(superblock.number),
            bad: graded(superblock.number, true),
            slow: graded(superblock.number, false),
            metadata: on(&self.metadata, superblock.number),
        };
        self.superblocks.iter().zip(&self.given).map(disk).collect()
    }

    /// Extents with a grade, by place.
    pub fn grades(&self) -> impl Iterator<Item = (Place, Grade)> + '_ {
        self.free
            .grades()
            .iter()
            .map(|(place, grade)| (*place, *grade))
    }

    /// The grade of an extent; `None`: it is good.
    #[must_use]
    pub fn grade_of(&self, place: Place) -> Option<Grade> {
        self.free.grade(place)
    }

    /// Space that could still be allocated to volumes: free extents less those kept for metadata.
    #[must_use]
    pub fn available(&self) -> Bytes {
        let kept = self.kept(self.rewrite_extents(0));
        Bytes(self.free.free().saturating_sub(kept) * self.geometry.extent_bytes().0)
    }

    /// R, the extents that rewriting all nodes takes at worst, with `more` blocks of nodes added.
    pub(crate) fn rewrite_extents(&self, more: u64) -> u64 {
        let node = |volume: &Volume| node_blocks(volume.map.extents().len() as u64, self.geometry);
        let nodes: u64 = self.volumes.values().map(node).sum();
        let grades = node_blocks(self.free.grades().len() as u64, self.geometry);
        let losses = self.lost.len() as u64;
        extents_for_blocks(nodes + grades + losses + more, self.geometry)
    }

    /// The free extents that are kept for metadata, given R.
    pub(crate) fn kept(&self, rewrite: u64) -> u64 {
        budget(rewrite) - (self.metadata.len() as u64).min(log_extents_max(rewrite))
    }

    /// The volumes, by number, with their names.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &Arc<VolumeMap>)> + '_ {
        self.volumes
            .values()
            .map(|volume| (volume.name.as_str(), &volume.map))
    }

    /// The volume of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<VolumeId> {
        self.volumes
            .iter()
            .find(|(_, volume)| volume.name == name)
            .map(|(id, _)| *id)
    }

    /// A volume's name and map.
    ///
    /// # Errors
    /// No such volume.
    pub fn volume(&self, volume: VolumeId) -> Result<(&str, &Arc<VolumeMap>), VolumeError> {
        let found = self
            .volumes
            .get(&volume)
            .ok_or(VolumeError::NoSuchVolume(volume))?;
        Ok((found.name.as_str(), &found.map))
    }

    /// Length of a volume's runs: neighbouring extents on one disk before the next disk's turn. It is not
    /// recorded; the first two runs tell. It is 1 if they differ or there is only one.
    ///
    /// # Errors
    /// No such volume.
    pub fn run_of(&self, volume: VolumeId) -> Result<u32, VolumeError> {
        let (_, map) = self.volume(volume)?;
        let mut lengths = [0_u32; 2];
        let mut run = 0;
        let mut before: Option<Place> = None;
        for place in map.places() {
            match before {
                None => {}
                Some(before) if place.disk == before.disk && place.extent == before.extent + 1 => {}
                Some(_) if run == 1 => break,
                Some(before) if place.disk == before.disk => return Ok(1),
                Some(_) => run = 1,
            }
            lengths[run] += 1;
            before = Some(place);
        }
        // The second may be the volume's end, and short.
        let [first, second] = lengths;
        let is_end = (first + second) as usize == map.extents().len();
        let is_run = second > 0 && (second == first || (is_end && second < first));
        Ok(if is_run { first } else { 1 })
    }

    /// A placement that keeps to what a volume has: its disks in their rotation, strictly, in runs
    /// of the same length, and of the stretches given for each disk (its zones) those that it uses.
    ///
    /// # Errors
    /// No such volume.
    pub fn placement_like(
        &self,
        volume: VolumeId,
        zones: &[DiskRange],
    ) -> Result<Placement, VolumeError> {
        let (_, map) = self.volume(volume)?;
        let mut disks: Vec<DiskNumber> = Vec::new();
        let mut used: BTreeSet<usize> = BTreeSet::new();
        for place in map.places() {
            if !disks.contains(&place.disk) {
                disks.push(place.disk);
            }
            let start = self.geometry.sector_of(place);
            let end = start + self.geometry.extent_sectors();
            let touches = |zone: &DiskRange| {
                zone.disk == place.disk
                    && zone.start < end
                    && start < zone.start.saturating_add(zone.count)
            };
            used.extend(
                zones
                    .iter()
                    .enumerate()
                    .filter(|(_, zone)| touches(zone))
                    .map(|(index, _)| index),
            );
        }
        let within = used.into_iter().map(|index| zones[index]).collect();
        Ok(Placement {
            disks,
            within,
            run: self.run_of(volume)?,
            strict: true,
        })
    }
}
