//! Planning changes: each is one transaction of the log, in front of it a checkpoint if it lacks room.

use std::collections::BTreeSet;
use std::sync::Arc;

use sched::units::{Bytes, SECTOR_BYTES};

use crate::chunks::ChunkSet;
use crate::dirty::Shared;
use crate::draft::{Draft, Effect};
use crate::error::VolumeError;
use crate::extent::Extent;
use crate::grade::{Grade, Quality};
use crate::image::NodeAt;
use crate::limits::{VOLUME_EXTENTS_MAX, VOLUMES_MAX};
use crate::log::{LogState, log_extents_max, measure, node_blocks};
use crate::map::VolumeMap;
use crate::name;
use crate::node::{Volume, node_of};
use crate::ondisk::change::Change;
use crate::ondisk::payload::GRADES_PER_RECORD;
use crate::ondisk::table::Located;
use crate::place::{DiskNumber, Place, VolumeId};
use crate::placement::Placement;
use crate::pool::{CreateSpec, Phase, PoolState};
use crate::transaction::{Step, Transaction};

impl PoolState {
    pub(crate) fn ready(&self) -> Result<(), VolumeError> {
        match self.phase {
            Phase::Poisoned => Err(VolumeError::Poisoned),
            _ if self.planned.is_some() => Err(VolumeError::Busy),
            Phase::Opened => Err(VolumeError::NotStarted),
            Phase::Started => Ok(()),
        }
    }

    pub(crate) fn draft(&self) -> Draft {
        Draft {
            steps: Vec::new(),
            log: self.log.clone(),
            taken_for_log: Vec::new(),
            taken: Vec::new(),
            checkpoint: None,
            settled: Vec::new(),
            effect: Effect::None,
            generation: self.generation,
            owner: self.owner,
        }
    }

    pub(crate) fn hand_out(&mut self, mut draft: Draft) -> Transaction {
        self.expect_first(&mut draft);
        self.serial += 1;
        let steps = std::mem::take(&mut draft.steps);
        self.planned = Some(draft);
        Transaction {
            steps,
            serial: self.serial,
        }
    }

    /// Appends `changes` to the draft's log and makes them durable. Returns where they are.
    pub(crate) fn log_into(
        &mut self,
        draft: &mut Draft,
        changes: &[Change],
        leave: bool,
    ) -> Result<Vec<Located>, VolumeError> {
        let from = draft.steps.len();
        let appended = self.with_log(draft, |log, fresh, steps| {
            log.append(changes, leave, fresh, steps)
        });
        let located = appended?;
        let written: BTreeSet<DiskNumber> = draft.steps[from..].iter().map(Step::disk).collect();
        draft
            .steps
            .extend(written.into_iter().map(|disk| Step::Flush { disk }));
        Ok(located)
    }

    /// Has the draft's log do something for which it may need further extents.
    pub(crate) fn with_log<T>(
        &mut self,
        draft: &mut Draft,
        act: impl FnOnce(&mut LogState, &mut dyn FnMut() -> Option<Place>, &mut Vec<Step>) -> Option<T>,
    ) -> Result<T, VolumeError> {
        let Draft {
            log,
            steps,
            taken_for_log,
            ..
        } = draft;
        let free = &mut self.free;
        let disk = log.at.place.disk;
        let mut fresh = || {
            let place = free.take_for_metadata(disk)?;
            taken_for_log.push(place);
            Some(place)
        };
        act(log, &mut fresh, steps).ok_or_else(|| {
            let taken = std::mem::take(taken_for_log);
            taken.into_iter().for_each(|place| self.free.give(place));
            self.no_space(0)
        })
    }

    /// Logs `changes`, after a rewrite of everything if the log would take too much otherwise.
    /// `more`: blocks that the volumes' nodes grow by.
    pub(crate) fn change(
        &mut self,
        draft: &mut Draft,
        changes: &[Change],
        more: u64,
    ) -> Result<Vec<Located>, VolumeError> {
        let needed = draft
            .log
            .extents_needed(&measure(changes, self.geometry), false);
        let limit = log_extents_max(self.rewrite_extents(more));
        if needed > 0 && self.metadata.len() as u64 + needed > limit {
            self.checkpoint_into(draft, true, false)?;
        }
        self.log_into(draft, changes, false)
    }

    pub(crate) fn no_space(&self, asked: u64) -> VolumeError {
        let bytes = |extents: u64| Bytes(extents.saturating_mul(self.geometry.extent_bytes().0));
        VolumeError::NoSpace {
            asked: bytes(asked),
            free: self.available(),
            good: bytes(self.free.good()),
            reserved: bytes(self.kept(self.rewrite_extents(0)) + self.metadata.len() as u64),
        }
    }

    /// Takes extents for a volume, so that metadata keeps what it needs.
    pub(crate) fn take(
        &mut self,
        placement: &Placement,
        count: u32,
        (after, turn): (Option<DiskNumber>, u64),
        more: u64,
        quality: Quality,
    ) -> Result<Vec<Place>, VolumeError> {
        self.reap();
        let kept = self.kept(self.rewrite_extents(more));
        if self.free.free() < kept.saturating_add(u64::from(count)) {
            return Err(self.no_space(u64::from(count)));
        }
        self.free
            .allocate(self.geometry, placement, count, (after, turn), quality)
    }

    pub(crate) fn extents_for(&self, size: Bytes) -> Result<u32, VolumeError> {
        let max = VOLUME_EXTENTS_MAX;
        let extents = self.geometry.extents_for(size);
        // A size that the pool cannot hold is that before it is anything else.
        if extents > self.free.good() {
            return Err(self.no_space(extents));
        }
        u32::try_from(extents)
            .ok()
            .filter(|extents| *extents <= max)
            .ok_or(VolumeError::TooManyExtents {
                asked: size,
                max,
                extent: self.geometry.extent_bytes(),
            })
    }

    /// Creates a volume; all of it is allocated and reads as zeros. Its number is in
    /// [`crate::Committed::maps`].
    ///
    /// # Errors
    /// Name, size or placement at fault; no room.
    pub fn create(&mut self, spec: &CreateSpec) -> Result<Transaction, VolumeError> {
        self.ready()?;
        self.check_name(&spec.name, None)?;
        let size = whole_sectors(spec.size)?;
        let count = self.extents_for(size)?;
        if self.volumes.len() >= VOLUMES_MAX {
            return Err(VolumeError::TooManyVolumes(VOLUMES_MAX));
        }
        let id = VolumeId(self.next_volume);
        let more = node_blocks(u64::from(count), self.geometry);
        let places = self.take(
            &spec.placement,
            count,
            (None, id.0),
            more,
            Quality::GoodFirst,
        )?;
        let shared = Arc::new(Shared::new(id, self.geometry));
        let map = VolumeMap::new(size, fresh_extents(&places, 0, &shared), shared);
        let changes = node_of(&spec.name, &map);
        let mut draft = self.draft();
        draft.taken = places;
        let located = match self.change(&mut draft, &changes, more) {
            Ok(located) => located,
            Err(error) => return Err(self.give_up(draft, error)),
        };
        let (name, node) = (spec.name.clone(), node_at(&located));
        draft.effect = Effect::Create(
            id,
            Volume {
                name,
                map: Arc::new(map),
                node,
                changed: false,
            },
        );
        Ok(self.hand_out(draft))
    }

    pub(crate) fn none_moving(&self, volume: VolumeId, from: u32) -> Result<(), VolumeError> {
        match self
            .moving
            .range((volume, from)..=(volume, u32::MAX))
            .next()
        {
            Some(((_, extent), _)) => Err(VolumeError::BeingMoved { extent: *extent }),
            None => Ok(()),
        }
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// The name is taken or not a name.
    pub fn rename(&mut self, volume: VolumeId, name: &str) -> Result<Transaction, VolumeError> {
        self.ready()?;
        self.volume(volume)?;
        self.check_name(name, Some(volume))?;
        let changes = [Change::Rename {
            volume,
            name: name.to_owned(),
        }];
        let mut draft = self.draft();
        if let Err(error) = self.change(&mut draft, &changes, 0) {
            return Err(self.give_up(draft, error));
        }
        draft.effect = Effect::Rename(volume, name.to_owned());
        Ok(self.hand_out(draft))
    }

    /// Deletes a volume.
    ///
    /// # Errors
    /// No such volume; an extent of it is being moved.
    pub fn delete(&mut self, volume: VolumeId) -> Result<Transaction, VolumeError> {
        self.ready()?;
        self.volume(volume)?;
        self.none_moving(volume, 0)?;
        let mut draft = self.draft();
        if let Err(error) = self.change(&mut draft, &[Change::Delete { volume }], 0) {
            return Err(self.give_up(draft, error));
        }
        draft.effect = Effect::Delete(volume);
        Ok(self.hand_out(draft))
    }

    /// Gives extents a grade, where that is worse than the one they have. Nothing is placed on a bad one from now
    /// on; a volume keeps its data there until it is moved away.
    ///
    /// # Errors
    /// No such place; none of the grades is worse; a bad extent cannot be spared.
    pub fn set_grades(&mut self, grades: &[(Place, Grade)]) -> Result<Transaction, VolumeError> {
        self.ready()?;
        let mut worse: Vec<(Place, Grade)> = Vec::new();
        for (place, grade) in grades {
            if !self.free.exists(*place) {
                return Err(VolumeError::NoSuchPlace(*place));
            }
            if self.free.grade(*place) < Some(*grade) {
                worse.push((*place, *grade));
            }
        }
        if worse.is_empty() {
            return Err(VolumeError::NoWorse);
        }
        let more = node_blocks(worse.len() as u64, self.geometry);
        // Metadata gives its extents back, and counts on having them again.
        let is_counted_on = |(place, grade): &&(Place, Grade)| {
            *grade == Grade::Bad && (self.free.is_free(*place) || self.metadata.contains(place))
        };
        let spared = worse.iter().filter(is_counted_on).count() as u64;
        if self.free.free() < self.kept(self.rewrite_extents(more)) + spared {
            return Err(self.no_space(spared));
        }
        let mut draft = self.draft();
        let changes = worse.chunks(GRADES_PER_RECORD).map(|part| Change::Grades {
            places: part.to_vec(),
        });
        let changes: Vec<Change> = changes.collect();
        if let Err(error) = self.change(&mut draft, &changes, more) {
            return Err(self.give_up(draft, error));
        }
        draft.effect = Effect::Grades(worse);
        Ok(self.hand_out(draft))
    }

    fn check_name(&self, name: &str, of: Option<VolumeId>) -> Result<(), VolumeError> {
        let Some(reason) = name::flaw(name) else {
            return match self.find(name) {
                Some(other) if Some(other) != of => Err(VolumeError::NameTaken(name.to_owned())),
                _ => Ok(()),
            };
        };
        Err(VolumeError::BadName {
            name: name.to_owned(),
            reason,
        })
    }
}

pub(crate) fn node_at(located: &[Located]) -> NodeAt {
    let mut spans: Vec<Place> = located.iter().map(|at| at.position.place).collect();
    spans.dedup();
    NodeAt {
        located: located[0],
        spans,
    }
}

pub(crate) fn fresh_extents(places: &[Place], from: u32, shared: &Arc<Shared>) -> Vec<Arc<Extent>> {
    let fresh = |(index, place): (u32, &Place)| {
        Arc::new(Extent::new(
            index,
            *place,
            &ChunkSet::EMPTY,
            Arc::clone(shared),
        ))
    };
    (from..).zip(places).map(fresh).collect()
}

pub(crate) fn whole_sectors(size: Bytes) -> Result<Bytes, VolumeError> {
    let rounded = size.0.checked_next_multiple_of(SECTOR_BYTES);
    match rounded {
        Some(0) => Err(VolumeError::SizeZero),
        Some(bytes) => Ok(Bytes(bytes)),
        None => Err(VolumeError::SizeOverflows(size)),
    }
}
