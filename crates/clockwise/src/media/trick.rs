//! Faster than it was, or backwards: from key frame to key frame.
//!
//! A playback holds a reservation for its recording as it is, and that has to do for any scale. So as many blocks are
//! passed over as it takes: the next key frame is the first that is as far away, in the time of the recording, as the
//! blocks of the one before take to be read, times the scale. Which blocks those are the [index](super::index) says,
//! a section at a time, read without a deadline.

use std::sync::Arc;

use engine::front::Client;
use sched::units::{BytesPerSecond, Nanos};

use super::archive::{Archive, ArchiveError, Recording};
use super::index::{Index, Key};

/// How fast a recording is shown, in thousandths of how fast it was; below zero backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Permille(pub i64);

impl Permille {
    /// As it was.
    pub const ONE: Self = Self(1_000);

    /// How much is shown in a time.
    #[must_use]
    pub fn of(self, time: i128) -> i128 {
        time * i128::from(self.0) / 1_000
    }

    /// The time in which so much is shown.
    #[must_use]
    pub fn time_for(self, shown: i128) -> i128 {
        match self.0 {
            0 => 0,
            scale => shown * 1_000 / i128::from(scale),
        }
    }

    /// The rate that it takes, of what takes this as it was.
    #[must_use]
    pub fn of_rate(self, as_it_was: BytesPerSecond) -> BytesPerSecond {
        rate(self.of(i128::from(as_it_was.0)))
    }

    /// What takes this takes so much as it was.
    #[must_use]
    pub fn as_it_was(self, taken: BytesPerSecond) -> BytesPerSecond {
        rate(self.time_for(i128::from(taken.0)))
    }

    /// Whether only key frames are shown.
    #[must_use]
    pub fn is_by_keys(self) -> bool {
        self.0 > 1_000 || self.0 < 0
    }
}

/// The least there is for nothing, and the most there is for more than that.
fn rate(of: i128) -> BytesPerSecond {
    BytesPerSecond(u64::try_from(of.max(1)).unwrap_or(u64::MAX))
}

/// Which way it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To later times.
    Forward,
    /// To earlier ones.
    Back,
}

impl Way {
    /// At that scale.
    #[must_use]
    pub fn of(scale: Permille) -> Self {
        match scale.0 < 0 {
            true => Self::Back,
            false => Self::Forward,
        }
    }

    /// The key frame that is shown first from a time on, if it is in the group that the time is in or in the next one this
    /// way.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn first_key(
        self,
        archive: &Archive,
        client: &Client,
        recording: &Recording,
        from_ns: u64,
    ) -> Result<Option<Key>, ArchiveError> {
        let Some(section) = archive.index_at(client, recording, from_ns)? else {
            return Ok(None);
        };
        let found = self.first(&section, recording, from_ns);
        if found.is_some() {
            return Ok(found);
        }
        let next = self.next(archive, client, recording, &section)?;
        Ok(next.and_then(|next| self.first(&next, recording, from_ns)))
    }

    /// The same of a section: of the frames that it names and knows the ends of.
    fn first(self, section: &Index, recording: &Recording, from_ns: u64) -> Option<Key> {
        let is_it = |key: &&Key| {
            let is_there = key.end.is_some() && key.serial >= recording.first;
            let is_in_time = match self {
                Self::Back => key.media_ns <= from_ns,
                Self::Forward => key.media_ns >= from_ns,
            };
            is_there && is_in_time
        };
        let mut keys = section.keys.iter();
        match self {
            Self::Back => keys.rev().find(is_it).copied(),
            Self::Forward => keys.find(is_it).copied(),
        }
    }

    /// The section of the next group.
    fn next(
        self,
        archive: &Archive,
        client: &Client,
        recording: &Recording,
        section: &Index,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        match self {
            Self::Back => archive.index_before(client, recording, section),
            Self::Forward => archive.index_after(client, recording, section),
        }
    }
}

/// The key frames that are shown, one after another.
#[derive(Debug)]
pub struct Keys<'a> {
    archive: &'a Archive,
    client: &'a Client,
    recording: Recording,
    scale: Permille,
    section: Option<Arc<Index>>,
    /// From when on, or backwards up to when, the next one is; `None`: there is none.
    next_ns: Option<u64>,
}

impl<'a> Keys<'a> {
    /// From that time on.
    #[must_use]
    pub fn new(
        archive: &'a Archive,
        client: &'a Client,
        recording: Recording,
        scale: Permille,
        from_ns: u64,
    ) -> Self {
        Self {
            archive,
            client,
            recording,
            scale,
            section: None,
            next_ns: Some(from_ns),
        }
    }

    /// The next one, if it takes `time_for` a block and so many in all from that on to be read.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn next_key(
        &mut self,
        time_for: impl Fn(u64, u64) -> Nanos,
    ) -> Result<Option<Key>, ArchiveError> {
        let Some(wanted) = self.next_ns else {
            return Ok(None);
        };
        if let Some(now) = self.archive.recording(Some(self.recording.number)) {
            self.recording = now;
        }
        let (archive, client) = (self.archive, self.client);
        if self.section.is_none() {
            self.section = archive.index_at(client, &self.recording, wanted)?;
        }
        let way = Way::of(self.scale);
        while let Some(section) = &self.section {
            if let Some(found) = way.first(section, &self.recording, wanted) {
                self.next_ns = self.after(&found, time_for);
                return Ok(Some(found));
            }
            self.section = way.next(archive, client, &self.recording, section)?;
        }
        self.next_ns = None;
        Ok(None)
    }

    /// Where the one after this is looked for.
    fn after(&self, key: &Key, time_for: impl Fn(u64, u64) -> Nanos) -> Option<u64> {
        let blocks = key.end.unwrap_or(key.serial) - key.serial + 1;
        let read_ns = i128::from(time_for(key.serial, blocks).get());
        // At least another one.
        let apart = match self.scale.of(read_ns) {
            0 => i128::from(self.scale.0.signum()),
            apart => apart,
        };
        u64::try_from(i128::from(key.media_ns) + apart).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_exact() {
        for (scale, shown, time) in [
            (1_000, 7, 7),
            (2_000, 14, 7),
            (500, 7, 14),
            (-4_000, -28, 7),
        ] {
            let scale = Permille(scale);
            assert_eq!(scale.time_for(shown), time);
            assert_eq!(scale.of(time), shown);
        }
        assert!(Permille(1_001).is_by_keys() && Permille(-1).is_by_keys());
        assert!(!Permille(500).is_by_keys() && !Permille::ONE.is_by_keys());
    }
}
