//! Resizing the ring while it is recorded to and played.
//!
//! The [`growth`](crate::archive::growth) policy decides about the length. This module does the archive's
//! part: the steps of the [`retention_record`](crate::archive::retention_record), and a writer that waits
//! before it uses a place that is about to move.

use super::*;

/// The ring, and the positions of its writer and of its oldest block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingState {
    /// The current geometry.
    pub geometry: Geometry,
    /// The next serial that is handed to the disks.
    pub next: u64,
    /// The first serial that is neither overwritten nor deleted.
    pub oldest: u64,
    /// True while a recording is made.
    pub is_recorded: bool,
}

impl Archive {
    /// The state of the ring, as input of the growth policy.
    #[must_use]
    pub fn ring_state(&self) -> RingState {
        let writer = self.writer();
        let state = self.state();
        RingState {
            geometry: state.geometry,
            next: match state.is_recorded {
                true => writer.next,
                false => state.next,
            },
            oldest: state.deleted.first_kept(state.oldest()),
            is_recorded: state.is_recorded,
        }
    }

    /// Locks changes of the ring's length and the volume's.
    pub fn resizing(&self) -> MutexGuard<'_, ()> {
        // There is no data that could be inconsistent after a panic.
        self.resizing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handle to the stream of the active recording.
    #[must_use]
    pub fn recorder(&self) -> Option<Changer> {
        self.state().recorder.clone()
    }

    /// Sets the schedule that checks of the ring's length are requested from.
    pub(super) fn set_schedule(&mut self, schedule: Arc<RetentionSchedule>) {
        self.schedule = Some(schedule);
    }

    /// Requests a check of the ring's length.
    pub(super) fn request_check(&self) {
        if let Some(schedule) = &self.schedule {
            schedule.look_at(self.volume.name());
        }
    }

    /// Ends a check, and requests the next one for when this serial is handed to the disks; at once if it has
    /// been.
    pub fn request_check_at(&self, serial: Option<u64>) {
        let mut writer = self.writer();
        let is_past = serial.is_some_and(|serial| serial < writer.next);
        self.state().check_at = serial.filter(|_| !is_past);
        writer.is_check_pending = is_past;
        drop(writer);
        self.settled.notify_all();
        if is_past {
            self.request_check();
        }
    }

    /// Ends a check that could not resize the ring: a writer that waits for it continues.
    pub fn finish_check(&self) {
        self.writer().is_check_pending = false;
        self.settled.notify_all();
    }

    /// Resizes the ring durably, and deletes the blocks before the base of the new geometry. The volume must
    /// have room for it. Returns false, without a change, if it is not possible now: a recording is about to
    /// begin, the recorder's stream does not cover the new end, the writer has returned to place 0 since `to`
    /// was computed, or blocks of the previous round are still being written.
    ///
    /// # Errors
    /// When the retention record cannot be written.
    pub fn resize(&self, client: &Client, to: Geometry) -> Result<bool, ArchiveError> {
        let mut record = self.retention_record();
        let mut writer = self.writer();
        let state = self.state();
        // A recording may have begun since the caller looked.
        let end = (to.blocks + 1) * self.header.block_bytes;
        let reaches = |recorder: &Changer| recorder.range().end >= end;
        if state.is_recorded && !state.recorder.as_ref().is_some_and(reaches) {
            return Ok(false);
        }
        let next = match state.is_recorded {
            true => writer.next,
            false => state.next,
        };
        if state.geometry.resized(next, to.blocks) != Some(to) || state.next < to.base {
            return Ok(false);
        }
        let oldest = state.oldest();
        writer.pending = Some(to);
        drop(state);
        drop(writer);
        let mut changed = RetentionRecord {
            geometry: Some(to),
            ..record.clone()
        };
        changed.gone.add(0..to.base.max(oldest));
        let written = self.write_record(client, &mut record, changed);
        if written.is_err() {
            self.writer().pending = None;
            self.settled.notify_all();
        }
        written?;
        drop(record);
        // The resize has succeeded in any case; the volume is not cut before both copies have it.
        if let Err(error) = self.write_geometry_to_both_copies(client) {
            let volume = self.volume.name();
            tracing::warn!(volume, %error, "only one copy of the retention record has the new length of the ring");
        }
        Ok(true)
    }

    /// Writes the geometry to the second copy of the retention record if only one has it. The volume may be
    /// cut only after this: if one copy is damaged later, the other one must not have a longer ring.
    ///
    /// # Errors
    /// When the retention record cannot be written.
    pub fn write_geometry_to_both_copies(&self, client: &Client) -> Result<(), ArchiveError> {
        let mut record = self.retention_record();
        if self.state().is_geometry_in_both_copies {
            return Ok(());
        }
        let unchanged = record.clone();
        self.write_record(client, &mut record, unchanged)
    }
}
