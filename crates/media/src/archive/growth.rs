//! Recording volumes that grow ahead of need and give back space that other volumes need.
//!
//! # Policy
//!
//! A volume grows when the writer comes near the end of its ring, by about an eighth, as long as it stays
//! within [`grow_to`](RetentionLimits::grow_to) and leaves [`free`](RetentionLimits::free) in the pool.
//! Instead, the writer returns to place 0 if an eighth of the blocks that it would overwrite is deleted
//! anyway. If the pool has less than `free`, the volume gives back as much when the writer is near the end
//! that the shorter ring will have. When a recording ends in the first round, places that were never used are
//! given back.
//!
//! None of this loses blocks in the first round. Later, a resize loses the blocks of the previous round that
//! lie from the writer on, so a ring grows only when the writer is near its end, and shrinks only when the
//! writer is near the new end ([`geometry`](crate::archive::geometry)).
//!
//! # Steps
//!
//! Growing: the volume grows; the recorder's stream is reserved for it; the ring is resized durably.
//! Shrinking: the ring is resized durably; the recorder's stream is reserved for less; the volume shrinks. So
//! a crash after any step leaves a volume with room for its ring. A volume that is longer than its ring is
//! used or cut at the next change. Cutting waits for players that have reserved the end of the volume.

use std::time::Duration;

use engine::pool::{Placement, PoolError};
use engine::stream::StreamChange;
use engine::volume_io::Client;
use sched::units::{Bytes, BytesPerSecond};

use crate::archive::archives::{Archives, OpenError};
use crate::archive::geometry::Geometry;
use crate::archive::retention_record::RetentionLimits;
use crate::archive::{Archive, BLOCKS_MIN, RingState};

/// The ring grows when the writer is this many blocks before its end, or [`AHEAD_SECONDS`], whichever is
/// more.
const AHEAD_BLOCKS: u64 = 16;

/// See [`AHEAD_BLOCKS`].
const AHEAD_SECONDS: u64 = 5;

/// The ring grows by this part of its length, or by the blocks of [`AHEAD_BLOCKS`] if these are more. It does
/// not grow if this part of the blocks that would be overwritten is deleted.
const PART: u64 = 8;

/// Places that are left for the writer when the ring is shortened.
const LEFT_BLOCKS: u64 = 4;

/// Lengths that are tried to find a balanced ring. There is one among as many lengths as there are disks.
const BALANCED_TRIES: usize = 64;

/// Most changes in one check of a volume.
const STEPS_MAX: usize = 4;

/// Time until the next check of a volume that leaves space to others or could not grow.
const RECHECK: Duration = Duration::from_secs(60);

/// Time until the next attempt to cut a volume of which players have reserved the end.
const RETRY_CUT: Duration = Duration::from_secs(5);

/// Inputs of the plan.
#[derive(Clone, Copy, Debug)]
struct PlanInputs {
    ring: RingState,
    keep: RetentionLimits,
    /// Blocks that are recorded in [`AHEAD_SECONDS`], and at least [`AHEAD_BLOCKS`].
    ahead_blocks: u64,
    block_bytes: u64,
    extent_bytes: u64,
    volume_bytes: u64,
    /// Free bytes of the pool.
    pool_free_bytes: u64,
    /// True while a recording is made or about to be made.
    is_used: bool,
}

/// The next change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Resize the ring to this geometry, after the volume has at least this many bytes.
    Grow(Geometry, u64),
    /// Resize the ring to this geometry.
    Shrink(Geometry),
    /// Shorten the volume to what the ring needs.
    Cut,
}

/// The next change, if any, and the serial at which the recorder requests the next check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Plan {
    step: Option<Step>,
    check_at: Option<u64>,
}

impl Plan {
    fn now(step: Step) -> Self {
        Self {
            step: Some(step),
            check_at: None,
        }
    }
}

impl PlanInputs {
    /// Bytes of whole extents that a ring of this many blocks needs.
    fn needed(&self, blocks: u64) -> u64 {
        ((blocks + 1) * self.block_bytes).next_multiple_of(self.extent_bytes)
    }

    /// Most blocks of a ring in a volume of this size.
    fn blocks_in(&self, volume_bytes: u64) -> u64 {
        (volume_bytes / self.block_bytes).saturating_sub(1)
    }

    fn used(&self) -> u64 {
        self.ring.geometry.used_in_round(self.ring.next)
    }

    /// True if all blocks of the previous round are overwritten or deleted.
    fn is_previous_round_gone(&self) -> bool {
        let start = self.ring.geometry.round_start(self.ring.next);
        self.ring.oldest >= start
    }

    /// Most blocks of the previous round that a resize may lose.
    fn loss_max(&self) -> u64 {
        self.ahead_blocks
            .min(self.ring.geometry.blocks / PART)
            .max(2)
    }

    /// Bytes that the pool lacks for other volumes.
    fn missing(&self) -> u64 {
        let free = self.keep.free.map_or(0, Bytes::get);
        free.saturating_sub(self.pool_free_bytes)
    }

    fn plan(&self) -> Plan {
        match self.missing() {
            0 if !self.is_used => self.trim(),
            0 => self.grow(),
            missing => self.give_back(missing),
        }
    }

    /// Shortens the volume if it is longer than its ring needs.
    fn cut(&self) -> Plan {
        let blocks = self.ring.geometry.blocks;
        let is_longer = self.volume_bytes.next_multiple_of(self.extent_bytes) > self.needed(blocks);
        Plan {
            step: is_longer.then_some(Step::Cut),
            check_at: None,
        }
    }

    /// A ring that fills whole extents and has at least `blocks` blocks, if it is shorter than the current
    /// one.
    fn shorter(&self, blocks: u64) -> Option<Geometry> {
        let RingState { geometry, next, .. } = self.ring;
        let blocks = self.blocks_in(self.needed(blocks.max(BLOCKS_MIN)));
        let to = geometry.resized(next, blocks);
        to.filter(|to| to.blocks < geometry.blocks)
    }

    /// After a recording: gives places back that were never used.
    fn trim(&self) -> Plan {
        let RingState { geometry, next, .. } = self.ring;
        let used = self.used();
        let may_trim = self.keep.grow_to.is_some() && used > 0;
        if !may_trim || !geometry.is_first_round(next) {
            return Plan::default();
        }
        match self.shorter(used) {
            Some(to) => Plan::now(Step::Shrink(to)),
            None => self.cut(),
        }
    }

    /// Gives back the bytes that the pool lacks.
    fn give_back(&self, missing: u64) -> Plan {
        let RingState { geometry, next, .. } = self.ring;
        let used = self.used();
        let near = self.loss_max() + LEFT_BLOCKS;
        let left = match self.is_used {
            true => LEFT_BLOCKS,
            false => 0,
        };
        let volume =
            self.volume_bytes.saturating_sub(missing) / self.extent_bytes * self.extent_bytes;
        let wanted = self.blocks_in(volume).max(BLOCKS_MIN);
        if self.blocks_in(self.needed(wanted)) >= geometry.blocks {
            return self.cut();
        }
        match self.shorter(wanted.max(used + left)) {
            Some(to) if self.is_previous_round_gone() || to.blocks - used <= near => {
                Plan::now(Step::Shrink(to))
            }
            Some(to) => Plan {
                step: None,
                check_at: Some(next + to.blocks - used - near),
            },
            // The writer is behind the new end: in the next round.
            None => Plan {
                check_at: Some(next + geometry.blocks - used + 1),
                ..self.cut()
            },
        }
    }

    /// Grows the ring if the writer is near its end.
    fn grow(&self) -> Plan {
        let RingState {
            geometry,
            next,
            oldest,
            ..
        } = self.ring;
        let Some(grow_to) = self.keep.grow_to else {
            return Plan::default();
        };
        let left = geometry.blocks - self.used();
        let ahead = match geometry.is_first_round(next) {
            true => self.ahead_blocks,
            false => self.loss_max(),
        };
        if left > ahead {
            return Plan {
                step: None,
                check_at: Some(next + left - ahead),
            };
        }
        let start = geometry.round_start(next);
        let is_next_part_free = oldest >= start + (geometry.blocks / PART).max(1);
        let step = (geometry.blocks / PART)
            .max(self.ahead_blocks)
            .max(self.extent_bytes / self.block_bytes);
        let current = self.volume_bytes.next_multiple_of(self.extent_bytes);
        let reserve = self.keep.free.map_or(0, Bytes::get);
        let available =
            self.pool_free_bytes.saturating_sub(reserve) / self.extent_bytes * self.extent_bytes;
        let volume = self
            .needed(geometry.blocks + step)
            .min(current + available)
            .min(grow_to.get())
            .max(self.volume_bytes);
        let blocks = self.blocks_in(volume).min(self.blocks_in(grow_to.get()));
        let to = geometry.resized(next, blocks.max(geometry.blocks));
        match to.filter(|to| to.blocks > geometry.blocks && !is_next_part_free) {
            Some(to) => Plan::now(Step::Grow(to, volume)),
            None => self.wait_for_next_round(),
        }
    }

    /// Checks again when the writer has returned to place 0.
    fn wait_for_next_round(&self) -> Plan {
        let RingState { geometry, next, .. } = self.ring;
        let left = geometry.blocks - self.used();
        Plan {
            step: None,
            check_at: Some(next + left + 1),
        }
    }
}

impl Archives {
    /// Grows or shrinks a recording volume as far as its limits ask for it. Returns the time until the next
    /// check, if one is needed without a request.
    ///
    /// # Errors
    /// When the retention record cannot be written.
    pub(crate) fn adjust_length(&self, archive: &Archive) -> Result<Option<Duration>, OpenError> {
        let _resizing = archive.resizing();
        self.adjust_length_locked(archive, archive.is_recorded())
    }

    /// Grows a volume that is about to be recorded to. The caller holds [`Archive::resizing`] until the
    /// archive counts as recorded to.
    pub(crate) fn make_room(&self, archive: &Archive) {
        if let Err(error) = self.adjust_length_locked(archive, true) {
            let volume = archive.volume().name();
            tracing::warn!(volume, %error, "recording volume could not be resized before the recording");
        }
    }

    fn adjust_length_locked(
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
            let inputs = self.plan_inputs(archive, keep, is_used);
            let mut plan = inputs.plan();
            if let Some(Step::Grow(to, volume)) = plan.step
                && inputs.volume_bytes >= volume
                && archive.balanced(to.blocks) <= inputs.ring.geometry.blocks
            {
                // Balancing would take back all that the ring gains.
                plan = inputs.wait_for_next_round();
            }
            if let Some(Step::Shrink(to)) = plan.step {
                // Space that others lack is given back even if the ring becomes unbalanced.
                let to = match inputs.missing() {
                    0 => shortest_balanced(archive, inputs.ring, to),
                    _ => Some(to),
                };
                plan = to.map_or_else(|| inputs.cut(), |to| Plan::now(Step::Shrink(to)));
            }
            let again = match plan.step {
                None => {
                    let (pool, volume) = (self.pool(), archive.volume());
                    let may_grow = keep.grow_to.is_some_and(|max| max > volume.size());
                    // `is_used` is true while the volume is recorded, so the warning may repeat.
                    if is_used && may_grow && pool.free() < pool.extent() {
                        let volume = volume.name();
                        tracing::warn!(
                            volume,
                            "recording volume does not grow because the pool is full; the oldest blocks are overwritten"
                        );
                    }
                    archive.request_check_at(plan.check_at);
                    return Ok(keep.free.map(|_| RECHECK));
                }
                Some(Step::Grow(to, volume)) => {
                    let is_done = self.lengthen(archive, &client, to, volume)?;
                    (!is_done).then_some(RECHECK)
                }
                Some(Step::Shrink(to)) => {
                    let is_done = archive.resize(&client, to)?;
                    (!is_done).then_some(RETRY_CUT)
                }
                Some(Step::Cut) => (!self.cut(archive, &client)).then_some(RETRY_CUT),
            };
            if again.is_some() {
                archive.finish_check();
                return Ok(again);
            }
        }
        Ok(Some(RETRY_CUT))
    }

    fn plan_inputs(&self, archive: &Archive, keep: RetentionLimits, is_used: bool) -> PlanInputs {
        let block_bytes = archive.header().block_bytes;
        let ring = archive.ring_state();
        let rate = archive.recorder().map_or(BytesPerSecond(0), |of| of.rate());
        PlanInputs {
            ring,
            keep,
            ahead_blocks: (rate.0 * AHEAD_SECONDS / block_bytes).max(AHEAD_BLOCKS),
            block_bytes,
            extent_bytes: self.pool().extent().get(),
            volume_bytes: archive.volume().size().get(),
            pool_free_bytes: self.pool().free().get(),
            is_used: is_used || ring.is_recorded,
        }
    }

    /// Grows the volume, the recorder's reservation and the ring. Returns false if the pool or the disks have
    /// no room; then the ring stays as it is.
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
                tracing::warn!(volume = name, %error, "recording volume cannot grow; the oldest blocks are overwritten");
                return Ok(false);
            }
        }
        // The disks of the new extents are known only after the volume has grown.
        let balanced = archive.balanced(to.blocks);
        if balanced <= archive.geometry().blocks {
            // A resize would lose blocks and gain none. The room is used when the volume grows next.
            return Ok(true);
        }
        let to = Geometry {
            blocks: balanced,
            ..to
        };
        let end = Bytes((to.blocks + 1) * archive.header().block_bytes);
        let wish = StreamChange {
            end: Some(end),
            ..StreamChange::default()
        };
        let changed = archive
            .recorder()
            .map_or(Ok(()), |of| of.change(wish).map(drop));
        if let Err(refusal) = changed {
            tracing::warn!(volume = name, %refusal, "recording volume cannot grow, because the new part cannot be reserved for the recording; the oldest blocks are overwritten");
            self.cut(archive, client);
            return Ok(false);
        }
        let is_done = archive.resize(client, to)?;
        if is_done {
            tracing::info!(
                volume = name,
                blocks = to.blocks,
                "recording volume has grown"
            );
        }
        Ok(is_done)
    }

    /// Shortens the volume to the end of the ring. Returns false if it has to be tried again.
    fn cut(&self, archive: &Archive, client: &Client) -> bool {
        let name = archive.volume().name();
        let end = Bytes(archive.range().end);
        if let Some(recorder) = archive.recorder()
            && recorder.range().end > end.get()
        {
            let wish = StreamChange {
                end: Some(end),
                ..StreamChange::default()
            };
            if let Err(refusal) = recorder.change(wish) {
                tracing::warn!(volume = name, %refusal, "recording volume returns no space, because the recording's reservation cannot be reduced");
                return false;
            }
        }
        let size = end.get().next_multiple_of(self.pool().extent().get());
        if archive.volume().size().get() <= size {
            return true;
        }
        if let Err(error) = archive.write_geometry_to_both_copies(client) {
            tracing::warn!(volume = name, %error, "recording volume returns no space, because its retention record cannot be written");
            return false;
        }
        match self.pool().shrink(name, Bytes(size)) {
            Ok(_) => {
                tracing::info!(volume = name, size = %Bytes(size), "recording volume has returned space");
                true
            }
            Err(error @ PoolError::Reserved { .. }) => {
                tracing::debug!(volume = name, %error, "recording volume returns space later, when its players have ended");
                false
            }
            Err(error) => {
                tracing::warn!(volume = name, %error, "recording volume cannot return space");
                false
            }
        }
    }
}

/// The shortest balanced ring of at least `to.blocks` blocks, if it is shorter than the current one; see
/// [`Archive::balanced`].
fn shortest_balanced(archive: &Archive, ring: RingState, to: Geometry) -> Option<Geometry> {
    let RingState { geometry, next, .. } = ring;
    let lengths = to.blocks..geometry.blocks;
    let mut tried = lengths.clone().take(BALANCED_TRIES);
    let blocks = tried.find(|blocks| archive.balanced(*blocks) == *blocks);
    // More lengths than were tried: rather shrink unbalanced than not at all.
    let is_any = lengths.count() > BALANCED_TRIES;
    let blocks = blocks.or(is_any.then_some(to.blocks))?;
    geometry.resized(next, blocks)
}

#[cfg(test)]
mod tests;
