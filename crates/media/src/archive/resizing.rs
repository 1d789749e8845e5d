//! A ring that becomes longer or shorter, while it is recorded to and played.
//!
//! What is decided elsewhere ([`growth`](crate::archive::growth)) is done here as far as the archive goes: the steps of
//! [`keeping`](crate::archive::keeping), and a writer that is held up where it would use a place that is about to be
//! another one.

use super::*;

/// How far an archive has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The ring.
    pub geometry: Geometry,
    /// The next serial that is handed to the disks.
    pub next: u64,
    /// The first serial that counts.
    pub oldest: u64,
    /// Whether somebody records.
    pub is_recorded: bool,
}

impl Archive {
    /// How far it has come.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let writer = self.writer();
        let state = self.state();
        Standing {
            geometry: state.geometry,
            next: match state.is_recorded {
                true => writer.next,
                false => state.next,
            },
            oldest: state.gone.after(state.oldest()),
            is_recorded: state.is_recorded,
        }
    }

    /// Held by who makes it longer or shorter: nobody else does meanwhile.
    pub fn resizing(&self) -> MutexGuard<'_, ()> {
        // It guards nothing that could be half changed.
        self.resizing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of who records.
    #[must_use]
    pub fn recorder(&self) -> Option<Changer> {
        self.state().recorder.clone()
    }

    /// These look at it when it is asked for.
    pub fn looked_at_by(&mut self, looks: Arc<RetentionSchedule>) {
        self.looks = Some(looks);
    }

    /// It is looked at now.
    pub(super) fn look(&self) {
        if let Some(looks) = &self.looks {
            looks.look_at(self.volume.name());
        }
    }

    /// It is looked at when this serial is handed to the disks; at once if it has been.
    pub fn look_when_reached(&self, serial: Option<u64>) {
        let mut writer = self.writer();
        let is_past = serial.is_some_and(|serial| serial < writer.next);
        self.state().look_at = serial.filter(|_| !is_past);
        writer.is_looked_at = is_past;
        drop(writer);
        self.settled.notify_all();
        if is_past {
            self.look();
        }
    }

    /// It could not be made longer: who comes to its end goes round.
    pub fn stays(&self) {
        self.writer().is_looked_at = false;
        self.settled.notify_all();
    }

    /// Makes the ring another one, durably; whether that could be. What its geometry says does not count is gone. It cannot
    /// be while somebody is about to record, or does through a stream that does not reach so far; where the writer has come
    /// around since it was decided; and while blocks of the round before are on their way.
    ///
    /// The volume has to have room for it.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn resize(&self, client: &Client, to: Geometry) -> Result<bool, ArchiveError> {
        let mut kept = self.kept();
        let mut writer = self.writer();
        let state = self.state();
        // Somebody else may have begun to record since that was reserved for.
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
            ..kept.clone()
        };
        changed.gone.add(0..to.base.max(oldest));
        let written = self.write(client, &mut kept, changed);
        if written.is_err() {
            self.writer().pending = None;
            self.settled.notify_all();
        }
        written?;
        drop(kept);
        // It is another one, whatever becomes of that; a volume is not cut before both copies say so.
        if let Err(error) = self.keep_ring_twice(client) {
            let volume = self.volume.name();
            tracing::warn!(volume, %error, "only one copy of what is kept says how long the ring has become");
        }
        Ok(true)
    }

    /// Has both copies of what is kept say how long the ring is, if one does not. After that the volume may be cut: with
    /// either of them damaged the other one does not say that it is longer.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn keep_ring_twice(&self, client: &Client) -> Result<(), ArchiveError> {
        let mut kept = self.kept();
        if self.state().is_ring_twice {
            return Ok(());
        }
        let again = kept.clone();
        self.write(client, &mut kept, again)
    }
}
