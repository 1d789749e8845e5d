//! Where a recording can be divided: at key frames, one for each so much time of it.
//!
//! Which those are depends on the recording alone and not on where one begins to look, so that whoever asks twice is told
//! the same, also when the oldest part has been overwritten meanwhile.

use std::collections::VecDeque;

use super::super::block::{Block, Kind};
use super::super::index::{GROUP, Index, Named};
use super::super::start;
use super::{ExportError, Source};

/// A packet's place in a recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place {
    /// The serial of its block.
    pub serial: u64,
    /// Its number in that.
    pub packet: u32,
}

/// Where a recording can be divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// The packet with which the key frame begins.
    pub place: Place,
    /// When it is to be played, in nanoseconds of the recording.
    pub media_ns: u64,
}

/// Finds one after another.
#[derive(Debug)]
pub struct Cuts {
    first: Cut,
    /// One is given for each of these.
    cut_ns: u64,
    track: u8,
    /// Whether there are frames that need others.
    has_keys: bool,
    /// The serial of the block after those that were looked at.
    next: u64,
    found: VecDeque<Cut>,
    last: Cut,
}

impl Cuts {
    /// Those after the one from which what is shown at a time can be decoded.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn new(source: &mut Source, from_ns: u64, cut_ns: u64) -> Result<Self, ExportError> {
        let track = source.description.video_track();
        let (archive, client) = (&source.archive, &source.client);
        let start = start::start_at(
            archive,
            client,
            &source.recording,
            from_ns,
            usize::from(track),
            None,
        )?
        .start;
        let place = Place {
            serial: start.serial,
            packet: start.packet as u32,
        };
        let first = Cut {
            place,
            media_ns: start.media_ns,
        };
        let mut cuts = Self {
            first,
            cut_ns,
            track,
            has_keys: source.description.has_video(),
            next: place.serial,
            found: VecDeque::new(),
            last: first,
        };
        // What begins later than what is asked for begins with what can be decoded there.
        let begins = Place {
            serial: source.recording.first,
            packet: 0,
        };
        if place == begins {
            while cuts.found.is_empty() && cuts.look_on(source)? {}
            cuts.first = cuts.found.front().copied().unwrap_or(first);
            cuts.last = cuts.first;
            cuts.first = heard_before(source, cuts.first, track)?;
        }
        Ok(cuts)
    }

    /// The one before all others.
    #[must_use]
    pub fn first(&self) -> Cut {
        self.first
    }

    /// The next one.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn next_cut(&mut self, source: &mut Source) -> Result<Option<Cut>, ExportError> {
        loop {
            while let Some(found) = self.found.pop_front() {
                let is_new = found.media_ns / self.cut_ns > self.last.media_ns / self.cut_ns;
                if is_new && found.place > self.last.place {
                    self.last = found;
                    return Ok(Some(found));
                }
            }
            if !self.look_on(source)? {
                return Ok(None);
            }
        }
    }

    /// Looks at what there is of the next group; `false`: nothing is.
    fn look_on(&mut self, source: &mut Source) -> Result<bool, ExportError> {
        if self.next >= source.recording.end {
            return Ok(false);
        }
        let end = ((self.next / GROUP + 1) * GROUP).min(source.recording.end);
        self.look(source, end)?;
        self.next = end;
        Ok(true)
    }

    /// Looks at the blocks up to this one, which are of one group.
    fn look(&mut self, source: &mut Source, end: u64) -> Result<(), ExportError> {
        if let Some(index) = section(source, end)? {
            let is_of_track = index.track == self.track && index.named == Named::All;
            if !self.has_keys {
                let records = (index.first..).zip(&index.records);
                let is_there = |serial: u64| serial >= self.next;
                let records = records.filter(|(of, record)| is_there(*of) && record.packets > 0);
                self.found.extend(records.map(|(serial, record)| Cut {
                    place: Place { serial, packet: 0 },
                    media_ns: record.media_ns,
                }));
                return Ok(());
            }
            if is_of_track && index.first <= self.next.max(source.recording.first) {
                // What the section names before that may be gone.
                let keys = index.keys.iter().filter(|key| key.serial >= self.next);
                self.found.extend(keys.map(|key| Cut {
                    place: Place {
                        serial: key.serial,
                        packet: key.packet,
                    },
                    media_ns: key.media_ns,
                }));
                return Ok(());
            }
        }
        self.scan(source, end)
    }

    /// The same by the blocks themselves.
    fn scan(&mut self, source: &mut Source, end: u64) -> Result<(), ExportError> {
        let mut begun: Option<Cut> = None;
        // A frame that begins in the last one may be known for a key frame in the next.
        let behind = source.recording.end.min(end + 1);
        for serial in self.next..behind {
            if !source.load(serial)? {
                continue;
            }
            let Some(block) = source
                .kept
                .as_ref()
                .and_then(|(_, bytes)| Block::parse(bytes).ok())
            else {
                continue;
            };
            if !self.has_keys {
                if serial < end {
                    self.found.push_back(Cut {
                        place: Place { serial, packet: 0 },
                        media_ns: block.trailer.media_ns,
                    });
                }
                continue;
            }
            for number in 0..block.len() {
                let Some((entry, _)) = block.packet(number) else {
                    continue;
                };
                if entry.kind != Kind::Rtp || entry.track != self.track {
                    continue;
                }
                if entry.begins_frame {
                    begun = (serial < end).then_some(Cut {
                        place: Place {
                            serial,
                            packet: number as u32,
                        },
                        media_ns: entry.media_ns,
                    });
                }
                if entry.is_key
                    && let Some(cut) = begun.take()
                {
                    self.found.push_back(cut);
                }
            }
        }
        Ok(())
    }
}

/// The beginning of a recording, with the sound that came before its first picture.
fn heard_before(source: &mut Source, first: Cut, track: u8) -> Result<Cut, ExportError> {
    let serial = source.recording.first;
    if first.place.serial != serial || !source.load(serial)? {
        return Ok(first);
    }
    let Some(block) = source
        .kept
        .as_ref()
        .and_then(|(_, bytes)| Block::parse(bytes).ok())
    else {
        return Ok(first);
    };
    let before = (0..first.place.packet as usize).filter_map(|number| block.packet(number));
    let is_seen = before
        .clone()
        .any(|(entry, _)| entry.track == track && entry.kind == Kind::Rtp);
    let all = (0..block.len()).filter_map(|number| block.packet(number));
    let heard = all.filter(|(entry, _)| entry.kind == Kind::Rtp);
    let earliest = heard.map(|(entry, _)| entry.media_ns).min();
    Ok(match is_seen {
        // What cannot be decoded is before it.
        true => first,
        false => Cut {
            place: Place { serial, packet: 0 },
            media_ns: earliest.unwrap_or(first.media_ns).min(first.media_ns),
        },
    })
}

/// The section of the index about the blocks of a group up to `end`, if there is one.
fn section(source: &Source, end: u64) -> Result<Option<std::sync::Arc<Index>>, ExportError> {
    match end.checked_sub(1) {
        Some(last) => Ok(source
            .archive
            .section(&source.client, &source.recording, last)?),
        None => Ok(None),
    }
}
