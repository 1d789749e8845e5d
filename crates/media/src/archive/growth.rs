//! Recording volumes that grow ahead of need and give back what others need.
//!
//! # Policy
//!
//! A volume grows when the writer comes near the end of its ring, in steps of an eighth, as long as it is shorter than it
//! [may be](Keep::grow_to) and the pool keeps what is [left to others](Keep::free). It goes round instead where an eighth of
//! what would be overwritten has gone anyway. It gives back what the pool has too little of when the writer comes to where
//! the ring would end then, and what has never been used when a recording ends.
//!
//! In the first round nothing is lost by any of that. Later it is what lies from the writer on, so a ring becomes longer
//! only when the writer is near its end, and shorter only when it is near its new one ([`geometry`](crate::archive::geometry)).
//!
//! # Steps
//!
//! Longer: the volume grows; the recorder's stream is reserved for it; the ring is longer, durably. Shorter: the ring is
//! shorter, durably; the recorder's stream is reserved for less; the volume is cut. So a crash after each of them leaves a
//! volume that has room for its ring. One with more room than that is cut, or used, when it grows or is trimmed next. A cut waits for
//! players that have reserved what is to go.

use std::time::Duration;

use engine::pool::{Placement, PoolError};
use engine::stream::Wish;
use engine::volume_io::Client;
use sched::units::{Bytes, BytesPerSecond};

use crate::archive::archives::{Archives, OpenError};
use crate::archive::geometry::Geometry;
use crate::archive::retention_record::RetentionLimits;
use crate::archive::{Archive, BLOCKS_MIN, Standing};

/// A ring is made longer so many blocks before its end, or so many seconds, whichever is more.
const AHEAD_BLOCKS: u64 = 16;

/// See [`AHEAD_BLOCKS`].
const AHEAD_SECONDS: u64 = 5;

/// It becomes longer by this part of it, or by what is made before its end, and goes round where this part of it is free.
const PART: u64 = 8;

/// Behind a writer so many places are left when the ring is cut there.
const LEFT_BLOCKS: u64 = 4;

/// Of so many lengths the shortest is taken that cannot be made more even: there is one among as many as there are disks.
const EVEN_AMONG: usize = 64;

/// So many changes are made at one look.
const STEPS_MAX: usize = 4;

/// How long until a look at a volume that leaves something to others, or could not grow.
const AGAIN: Duration = Duration::from_secs(60);

/// The same where players have reserved what is to be cut.
const CUT_AGAIN: Duration = Duration::from_secs(5);

/// What is decided by.
#[derive(Clone, Copy, Debug)]
struct View {
    standing: Standing,
    keep: RetentionLimits,
    /// Blocks that are recorded in [`AHEAD_SECONDS`], and [`AHEAD_BLOCKS`] at least.
    ahead: u64,
    block: u64,
    extent: u64,
    /// How long the volume is.
    volume: u64,
    /// What the pool has free.
    free: u64,
    /// Somebody records, or is about to.
    is_used: bool,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The ring becomes this one, for which the volume has to be so long.
    Longer(Geometry, u64),
    /// The ring becomes this one.
    Shorter(Geometry),
    /// The volume becomes as long as the ring needs.
    Cut,
}

/// What is to be done now, and at which serial to look again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Plan {
    step: Option<Step>,
    look_at: Option<u64>,
}

impl Plan {
    fn now(step: Step) -> Self {
        Self {
            step: Some(step),
            look_at: None,
        }
    }
}

impl View {
    /// How long a volume for so many blocks is, which is whole extents.
    fn needed(&self, blocks: u64) -> u64 {
        ((blocks + 1) * self.block).next_multiple_of(self.extent)
    }

    /// How many blocks so long a volume has room for.
    fn room(&self, volume: u64) -> u64 {
        (volume / self.block).saturating_sub(1)
    }

    fn used(&self) -> u64 {
        self.standing.geometry.used(self.standing.next)
    }

    /// Whether nothing that counts is left of the round before the one that the writer is in.
    fn has_one_round(&self) -> bool {
        let start = self.standing.geometry.round_start(self.standing.next);
        self.standing.oldest >= start
    }

    /// So many blocks of the round before may be lost by a change.
    fn loss_max(&self) -> u64 {
        self.ahead.min(self.standing.geometry.blocks / PART).max(2)
    }

    /// How many bytes the pool has too little for others.
    fn missing(&self) -> u64 {
        let free = self.keep.free.map_or(0, Bytes::get);
        free.saturating_sub(self.free)
    }

    fn plan(&self) -> Plan {
        match self.missing() {
            0 if !self.is_used => self.trim(),
            0 => self.grow(),
            missing => self.give_back(missing),
        }
    }

    /// Where the volume could be shorter than it is without the ring's being so.
    fn cut(&self) -> Plan {
        let blocks = self.standing.geometry.blocks;
        let is_longer = self.volume.next_multiple_of(self.extent) > self.needed(blocks);
        Plan {
            step: is_longer.then_some(Step::Cut),
            look_at: None,
        }
    }

    /// A ring of at least so many blocks, which fill whole extents, if that is shorter.
    fn shorter(&self, blocks: u64) -> Option<Geometry> {
        let Standing { geometry, next, .. } = self.standing;
        let blocks = self.room(self.needed(blocks.max(BLOCKS_MIN)));
        let to = geometry.resized(next, blocks);
        to.filter(|to| to.blocks < geometry.blocks)
    }

    /// What has never been used goes back when nobody records.
    fn trim(&self) -> Plan {
        let Standing { geometry, next, .. } = self.standing;
        let used = self.used();
        let is_its = self.keep.grow_to.is_some() && used > 0;
        if !is_its || !geometry.is_first_round(next) {
            return Plan::default();
        }
        match self.shorter(used) {
            Some(to) => Plan::now(Step::Shorter(to)),
            None => self.cut(),
        }
    }

    /// As many bytes as the pool has too little.
    fn give_back(&self, missing: u64) -> Plan {
        let Standing { geometry, next, .. } = self.standing;
        let used = self.used();
        let near = self.loss_max() + LEFT_BLOCKS;
        let left = match self.is_used {
            true => LEFT_BLOCKS,
            false => 0,
        };
        let volume = self.volume.saturating_sub(missing) / self.extent * self.extent;
        let wanted = self.room(volume).max(BLOCKS_MIN);
        if self.room(self.needed(wanted)) >= geometry.blocks {
            return self.cut();
        }
        match self.shorter(wanted.max(used + left)) {
            Some(to) if self.has_one_round() || to.blocks - used <= near => {
                Plan::now(Step::Shorter(to))
            }
            Some(to) => Plan {
                step: None,
                look_at: Some(next + to.blocks - used - near),
            },
            // In the next round.
            None => Plan {
                look_at: Some(next + geometry.blocks - used + 1),
                ..self.cut()
            },
        }
    }

    /// Longer, if it is time to.
    fn grow(&self) -> Plan {
        let Standing {
            geometry,
            next,
            oldest,
            ..
        } = self.standing;
        let Some(grow_to) = self.keep.grow_to else {
            return Plan::default();
        };
        let left = geometry.blocks - self.used();
        let ahead = match geometry.is_first_round(next) {
            true => self.ahead,
            false => self.loss_max(),
        };
        if left > ahead {
            return Plan {
                step: None,
                look_at: Some(next + left - ahead),
            };
        }
        let start = geometry.round_start(next);
        let is_free = oldest >= start + (geometry.blocks / PART).max(1);
        let step = (geometry.blocks / PART)
            .max(self.ahead)
            .max(self.extent / self.block);
        let has = self.volume.next_multiple_of(self.extent);
        let others = self.keep.free.map_or(0, Bytes::get);
        let may = self.free.saturating_sub(others) / self.extent * self.extent;
        let volume = self
            .needed(geometry.blocks + step)
            .min(has + may)
            .min(grow_to.get())
            .max(self.volume);
        let blocks = self.room(volume).min(self.room(grow_to.get()));
        let to = geometry.resized(next, blocks.max(geometry.blocks));
        match to.filter(|to| to.blocks > geometry.blocks && !is_free) {
            Some(to) => Plan::now(Step::Longer(to, volume)),
            None => self.next_round(),
        }
    }

    /// When the writer is in its first place again, it is looked at again.
    fn next_round(&self) -> Plan {
        let Standing { geometry, next, .. } = self.standing;
        let left = geometry.blocks - self.used();
        Plan {
            step: None,
            look_at: Some(next + left + 1),
        }
    }
}

impl Archives {
    /// Makes an archive as long as it is to be now; when to look at it again, if it is not woken before.
    ///
    /// # Errors
    /// When what is remembered of it cannot be written.
    pub(crate) fn see_to_length(&self, archive: &Archive) -> Result<Option<Duration>, OpenError> {
        let _resizing = archive.resizing();
        self.make_as_long(archive, archive.is_recorded())
    }

    /// The same for who is about to record there, and holds [`Archive::resizing`] until that is known.
    pub(crate) fn make_room(&self, archive: &Archive) {
        if let Err(error) = self.make_as_long(archive, true) {
            let volume = archive.volume().name();
            tracing::warn!(volume, %error, "a recording volume could not be made longer");
        }
    }

    fn make_as_long(
        &self,
        archive: &Archive,
        is_used: bool,
    ) -> Result<Option<Duration>, OpenError> {
        let keep = archive.retention();
        if !keep.changes_length() {
            return Ok(None);
        }
        let client = self.client()?;
        for _ in 0..STEPS_MAX {
            let view = self.view(archive, keep, is_used);
            let mut plan = view.plan();
            if let Some(Step::Longer(to, volume)) = plan.step
                && view.volume >= volume
                && archive.even(to.blocks) <= view.standing.geometry.blocks
            {
                // What it would become longer by would cost more than it is.
                plan = view.next_round();
            }
            if let Some(Step::Shorter(to)) = plan.step {
                // Others get what they need, whatever becomes of the ring.
                let to = match view.missing() {
                    0 => even_from(archive, view.standing, to),
                    _ => Some(to),
                };
                plan = to.map_or_else(|| view.cut(), |to| Plan::now(Step::Shorter(to)));
            }
            let again = match plan.step {
                None => {
                    let (pool, volume) = (self.pool(), archive.volume());
                    let may_grow = keep.grow_to.is_some_and(|most| most > volume.size());
                    // Said once for each recording, when it begins.
                    if is_used && may_grow && pool.free() < pool.extent() {
                        let volume = volume.name();
                        tracing::warn!(
                            volume,
                            "a recording volume does not grow, as the pool is full: the oldest is overwritten"
                        );
                    }
                    archive.look_when_reached(plan.look_at);
                    return Ok(keep.free.map(|_| AGAIN));
                }
                Some(Step::Longer(to, volume)) => {
                    let is_longer = self.lengthen(archive, &client, to, volume)?;
                    (!is_longer).then_some(AGAIN)
                }
                Some(Step::Shorter(to)) => {
                    let is_shorter = archive.resize(&client, to)?;
                    (!is_shorter).then_some(CUT_AGAIN)
                }
                Some(Step::Cut) => (!self.cut(archive, &client)).then_some(CUT_AGAIN),
            };
            if again.is_some() {
                archive.stays();
                return Ok(again);
            }
        }
        Ok(Some(CUT_AGAIN))
    }

    fn view(&self, archive: &Archive, keep: RetentionLimits, is_used: bool) -> View {
        let block = archive.header().block_bytes;
        let standing = archive.standing();
        let rate = archive.recorder().map_or(BytesPerSecond(0), |of| of.rate());
        View {
            standing,
            keep,
            ahead: (rate.0 * AHEAD_SECONDS / block).max(AHEAD_BLOCKS),
            block,
            extent: self.pool().extent().get(),
            volume: archive.volume().size().get(),
            free: self.pool().free().get(),
            is_used: is_used || standing.is_recorded,
        }
    }

    /// Whether it is longer then. It goes on as it is where the pool or the disks do not carry it.
    fn lengthen(
        &self,
        archive: &Archive,
        client: &Client,
        to: Geometry,
        volume: u64,
    ) -> Result<bool, OpenError> {
        let name = archive.volume().name();
        if archive.volume().size().get() < volume {
            let grown = self.pool().grow(name, Bytes(volume), &Placement::default());
            if let Err(error) = grown {
                tracing::warn!(volume = name, %error, "a recording volume does not grow: the oldest is overwritten");
                return Ok(false);
            }
        }
        // Where it then lies is known now.
        let even = archive.even(to.blocks);
        if even <= archive.geometry().blocks {
            // A change of the ring would lose blocks for nothing. The volume has room for it when it grows again.
            return Ok(true);
        }
        let to = Geometry { blocks: even, ..to };
        let end = Bytes((to.blocks + 1) * archive.header().block_bytes);
        let wish = Wish {
            end: Some(end),
            ..Wish::default()
        };
        let changed = archive
            .recorder()
            .map_or(Ok(()), |of| of.change(wish).map(drop));
        if let Err(refusal) = changed {
            tracing::warn!(volume = name, %refusal, "what a recording volume could grow by cannot be reserved: the oldest is overwritten");
            self.cut(archive, client);
            return Ok(false);
        }
        let is_longer = archive.resize(client, to)?;
        if is_longer {
            tracing::info!(
                volume = name,
                blocks = to.blocks,
                "a recording volume has grown"
            );
        }
        Ok(is_longer)
    }

    /// Cuts the volume behind the ring; whether that could be.
    fn cut(&self, archive: &Archive, client: &Client) -> bool {
        let name = archive.volume().name();
        let end = Bytes(archive.range().end);
        if let Some(recorder) = archive.recorder()
            && recorder.range().end > end.get()
        {
            let wish = Wish {
                end: Some(end),
                ..Wish::default()
            };
            if let Err(refusal) = recorder.change(wish) {
                tracing::warn!(volume = name, %refusal, "a recording keeps its reservation of what is to be given back");
                return false;
            }
        }
        let size = end.get().next_multiple_of(self.pool().extent().get());
        if archive.volume().size().get() <= size {
            return true;
        }
        if let Err(error) = archive.keep_ring_twice(client) {
            tracing::warn!(volume = name, %error, "a recording volume gives nothing back");
            return false;
        }
        match self.pool().shrink(name, Bytes(size)) {
            Ok(_) => {
                tracing::info!(volume = name, size = %Bytes(size), "a recording volume has given space back");
                true
            }
            Err(error @ PoolError::Reserved { .. }) => {
                tracing::debug!(volume = name, %error, "a recording volume gives space back later");
                false
            }
            Err(error) => {
                tracing::warn!(volume = name, %error, "a recording volume gives nothing back");
                false
            }
        }
    }
}

/// The shortest ring from this one on, if it is shorter than it is, that takes no more of the disks where it begins anew.
fn even_from(archive: &Archive, standing: Standing, to: Geometry) -> Option<Geometry> {
    let Standing { geometry, next, .. } = standing;
    let lengths = to.blocks..geometry.blocks;
    let mut even = lengths.clone().take(EVEN_AMONG);
    let blocks = even.find(|blocks| archive.even(*blocks) == *blocks);
    let is_any = lengths.count() > EVEN_AMONG;
    let blocks = blocks.or(is_any.then_some(to.blocks))?;
    geometry.resized(next, blocks)
}

#[cfg(test)]
mod tests;
