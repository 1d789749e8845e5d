//! Faster than it was, or backwards: from key frame to key frame.
//!
//! A playback holds a reservation for its recording as it is, and that has to do for any scale. So as many blocks are
//! passed over as it takes: the next key frame is the first that is as far away, in the time of the recording, as the
//! blocks of the one before take to be read, times the scale. Which blocks those are the [index](crate::archive::index) says,
//! a section at a time, read without a deadline.

use std::sync::Arc;

use engine::volume_io::Client;
use sched::units::Nanos;

use crate::archive::index::{Index, Key};
use crate::archive::{Archive, ArchiveError, End, Recording};
use crate::session::Scale;

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
    pub fn of(scale: Scale) -> Self {
        match scale.0 < 0 {
            true => Self::Back,
            false => Self::Forward,
        }
    }

    /// The key frame that is shown first from a time on, if it begins in the group that the time is in or in the next ones
    /// this way, so many in all.
    ///
    /// # Errors
    /// When the index cannot be read.
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
            way: self,
        };
        let mut next = archive.index_so_far_at(client, recording, from_ns)?;
        for group in 1..=groups {
            let Some(section) = next else { break };
            if let First::Key(key) = walk.first(&section, from_ns, false) {
                return Ok(Some(key));
            }
            let is_last = group == groups;
            next = if is_last { None } else { walk.next(&section)? };
        }
        Ok(None)
    }
}

/// What a section says of the next one to be shown.
enum First {
    Key(Key),
    /// It is not there yet up to its end.
    NotYet,
    None,
}

/// From section to section of a recording.
#[derive(Clone, Copy, Debug)]
struct Walk<'a> {
    archive: &'a Archive,
    client: &'a Client,
    recording: Recording,
    way: Way,
}

impl Walk<'_> {
    /// The first key frame from a time on that a section names and that is there up to its end. Forward, none behind one that
    /// may still come to be is there yet.
    fn first(&self, section: &Index, from_ns: u64, may_come: bool) -> First {
        let count = section.keys.len();
        for number in 0..count {
            let key = &section.keys[match self.way {
                Way::Back => count - 1 - number,
                Way::Forward => number,
            }];
            let is_in_time = match self.way {
                Way::Back => key.media_ns <= from_ns,
                Way::Forward => key.media_ns >= from_ns,
            };
            if !is_in_time || key.serial < self.recording.first {
                continue;
            }
            let end = self
                .archive
                .end_of(self.client, &self.recording, section, key);
            match end {
                End::By(end) => {
                    return First::Key(Key {
                        end: Some(end),
                        ..*key
                    });
                }
                End::NotYet if may_come && self.way == Way::Forward => return First::NotYet,
                End::NotYet | End::Unknown => {}
            }
        }
        First::None
    }

    /// The section of the next group.
    fn next(&self, section: &Index) -> Result<Option<Arc<Index>>, ArchiveError> {
        let (archive, client) = (self.archive, self.client);
        match self.way {
            Way::Back => archive.index_before(client, &self.recording, section),
            Way::Forward => archive.index_after(client, &self.recording, section),
        }
    }
}

/// Where the next key frame is looked for.
#[derive(Clone, Copy, Debug)]
pub struct NextKey {
    /// The block whose group is looked in first.
    near: Option<u64>,
    /// From when on, or backwards up to when, it is; `None`: there is none.
    ns: Option<u64>,
}

impl NextKey {
    /// There is none.
    pub const NONE: Self = Self {
        near: None,
        ns: None,
    };
}

/// The key frames that are shown, one after another.
#[derive(Debug)]
pub struct Keys<'a> {
    walk: Walk<'a>,
    scale: Scale,
    section: Option<Arc<Index>>,
    next: NextKey,
}

impl<'a> Keys<'a> {
    /// From that time on.
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
                way: Way::of(scale),
            },
            scale,
            section: None,
            next: NextKey {
                near: None,
                ns: Some(from_ns),
            },
        }
    }

    /// Begins in the group of that block, whose times may be earlier than when it begins.
    #[must_use]
    pub fn near(mut self, serial: u64) -> Self {
        self.next.near = Some(serial);
        self
    }

    /// Where the next one is looked for.
    #[must_use]
    pub fn next(&self) -> NextKey {
        let first = self.walk.recording.first;
        let looked_in = self.section.as_ref().map(|of| of.first.max(first));
        NextKey {
            near: self.next.near.or(looked_in),
            ..self.next
        }
    }

    /// Goes on where others were.
    pub fn go_on(&mut self, next: NextKey) {
        self.next = next;
    }

    /// The next one, if it takes `time_for` a block and so many in all from that on to be read. Of a recording that goes on
    /// there may be another one later.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn next_key(
        &mut self,
        time_for: impl Fn(u64, u64) -> Nanos,
    ) -> Result<Option<Key>, ArchiveError> {
        let Some(wanted) = self.next.ns else {
            return Ok(None);
        };
        let (archive, client) = (self.walk.archive, self.walk.client);
        // It may end meanwhile.
        let goes_on = archive.goes_on(&self.walk.recording);
        if let Some(now) = archive.recording(Some(self.walk.recording.number)) {
            self.walk.recording = now;
        }
        let recording = &self.walk.recording;
        // What it is about may be overwritten.
        let first = recording.first;
        self.section.take_if(|section| section.end() <= first);
        if let Some(near) = self.next.near.take() {
            self.section = archive.index_so_far_of(client, recording, near)?;
        }
        if self.section.is_none() {
            self.section = archive.index_so_far_at(client, recording, wanted)?;
        }
        while let Some(section) = &self.section {
            match self.walk.first(section, wanted, goes_on) {
                First::Key(key) => {
                    self.next.ns = self.after(&key, time_for);
                    return Ok(Some(key));
                }
                First::NotYet => return Ok(None),
                First::None => {}
            }
            let Some(next) = self.walk.next(section)? else {
                break;
            };
            self.section = Some(next);
        }
        if !goes_on || self.walk.way == Way::Back {
            self.next.ns = None;
        }
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
