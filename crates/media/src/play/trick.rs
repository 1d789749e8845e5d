//! Fast forward and backwards: key frames only.
//!
//! A playback has reserved the rate of its recording, and uses that at any scale. So it skips blocks: the
//! next key frame is the first one whose distance, in media time, is at least the time to read the blocks of
//! the last one, times the scale. The [index](crate::archive::index) names the blocks of key frames; its
//! sections are read without a deadline.

use std::sync::Arc;

use engine::volume_io::Client;
use sched::units::Nanos;

use crate::archive::index::{Index, Key};
use crate::archive::{Archive, ArchiveError, End, Recording};
use crate::session::Scale;

/// Direction of playing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To later times.
    Forward,
    /// To earlier ones.
    Back,
}

impl Direction {
    /// The direction at this scale.
    #[must_use]
    pub fn of(scale: Scale) -> Self {
        match scale.0 < 0 {
            true => Self::Back,
            false => Self::Forward,
        }
    }

    /// The first key frame from a time on in this direction, searched in `groups` groups of blocks from the
    /// group of that time on.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn first_key(
        self,
        archive: &Archive,
        client: &Client,
        recording: &Recording,
        from_ns: u64,
        groups: usize,
    ) -> Result<Option<Key>, ArchiveError> {
        let walk = Walk {
            archive,
            client,
            recording: *recording,
            direction: self,
        };
        let mut next = archive.index_so_far_at(client, recording, from_ns)?;
        for group in 1..=groups {
            let Some(section) = next else { break };
            if let Search::Key(key) = walk.first(&section, from_ns, false) {
                return Ok(Some(key));
            }
            let is_last = group == groups;
            next = if is_last { None } else { walk.next(&section)? };
        }
        Ok(None)
    }
}

/// Result of the search for a key frame in a section of the index.
enum Search {
    Key(Key),
    /// The key frame has not been written up to its end yet.
    NotYet,
    None,
}

/// Walks over the sections of a recording's index.
#[derive(Clone, Copy, Debug)]
struct Walk<'a> {
    archive: &'a Archive,
    client: &'a Client,
    recording: Recording,
    direction: Direction,
}

impl Walk<'_> {
    /// The first key frame of a section from a time on that has been written up to its end. If the recording
    /// `may_come` to have more, the search forward ends at a key frame that has not.
    fn first(&self, section: &Index, from_ns: u64, may_come: bool) -> Search {
        let count = section.keys.len();
        for number in 0..count {
            let key = &section.keys[match self.direction {
                Direction::Back => count - 1 - number,
                Direction::Forward => number,
            }];
            let is_in_time = match self.direction {
                Direction::Back => key.media_ns <= from_ns,
                Direction::Forward => key.media_ns >= from_ns,
            };
            if !is_in_time || key.serial < self.recording.first {
                continue;
            }
            let end = self
                .archive
                .end_of(self.client, &self.recording, section, key);
            match end {
                End::By(end) => {
                    return Search::Key(Key {
                        end: Some(end),
                        ..*key
                    });
                }
                End::NotYet if may_come && self.direction == Direction::Forward => {
                    return Search::NotYet;
                }
                End::NotYet | End::Unknown => {}
            }
        }
        Search::None
    }

    /// The section of the next group in this direction.
    fn next(&self, section: &Index) -> Result<Option<Arc<Index>>, ArchiveError> {
        let (archive, client) = (self.archive, self.client);
        match self.direction {
            Direction::Back => archive.index_before(client, &self.recording, section),
            Direction::Forward => archive.index_after(client, &self.recording, section),
        }
    }
}

/// Chooses the key frames to be sent.
#[derive(Debug)]
pub struct KeyFrames<'a> {
    walk: Walk<'a>,
    scale: Scale,
    section: Option<Arc<Index>>,
    /// A block whose group is searched first.
    near: Option<u64>,
    /// Media time from which on the next one is searched; `None`: there is none.
    next_ns: Option<u64>,
}

impl<'a> KeyFrames<'a> {
    /// Key frames from this media time on, in nanoseconds.
    #[must_use]
    pub fn new(
        archive: &'a Archive,
        client: &'a Client,
        recording: Recording,
        scale: Scale,
        from_ns: u64,
    ) -> Self {
        Self {
            walk: Walk {
                archive,
                client,
                recording,
                direction: Direction::of(scale),
            },
            scale,
            section: None,
            near: None,
            next_ns: Some(from_ns),
        }
    }

    /// Begins the search in the group of this block, whose frames may have earlier times than the block.
    #[must_use]
    pub fn near(mut self, serial: u64) -> Self {
        self.near = Some(serial);
        self
    }

    /// The next key frame. `time_for` gives the time to read a number of blocks from a serial on. While the
    /// recording is being made, there may be another one after `None`.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn next_key(
        &mut self,
        time_for: impl Fn(u64, u64) -> Nanos,
    ) -> Result<Option<Key>, ArchiveError> {
        let Some(wanted) = self.next_ns else {
            return Ok(None);
        };
        let (archive, client) = (self.walk.archive, self.walk.client);
        // Before the recording is looked up, as it may end after that.
        let goes_on = archive.goes_on(&self.walk.recording);
        if let Some(now) = archive.recording(Some(self.walk.recording.number)) {
            self.walk.recording = now;
        }
        let recording = &self.walk.recording;
        // The blocks of the section may have been overwritten.
        let first = recording.first;
        self.section.take_if(|section| section.end() <= first);
        if let Some(near) = self.near.take() {
            self.section = archive.index_so_far_of(client, recording, near)?;
        }
        if self.section.is_none() {
            self.section = archive.index_so_far_at(client, recording, wanted)?;
        }
        while let Some(section) = &self.section {
            match self.walk.first(section, wanted, goes_on) {
                Search::Key(key) => {
                    self.next_ns = self.after(&key, time_for);
                    return Ok(Some(key));
                }
                Search::NotYet => return Ok(None),
                Search::None => {}
            }
            let Some(next) = self.walk.next(section)? else {
                break;
            };
            self.section = Some(next);
        }
        if !goes_on || self.walk.direction == Direction::Back {
            self.next_ns = None;
        }
        Ok(None)
    }

    /// Media time from which on the key frame after this one is searched.
    fn after(&self, key: &Key, time_for: impl Fn(u64, u64) -> Nanos) -> Option<u64> {
        let blocks = key.end.unwrap_or(key.serial) - key.serial + 1;
        let read_ns = i128::from(time_for(key.serial, blocks).get());
        // At least 1 ns on, so that it is another key frame.
        let apart = match self.scale.of(read_ns) {
            0 => i128::from(self.scale.0.signum()),
            apart => apart,
        };
        u64::try_from(i128::from(key.media_ns) + apart).ok()
    }
}
