//! Where a recording can be divided: at key frames, one for each so much time of it.
//!
//! Which those are depends on the recording alone and not on where one begins to look, so that whoever asks twice is told
//! the same, also when the oldest part has been overwritten meanwhile.

use std::collections::VecDeque;
use std::ops::Range;

use super::{BEHIND_NS, ExportError, Source};
use crate::archive::block::{Block, Entry, Kind};
use crate::archive::index::{GROUP, Index, Named};
use crate::archive::start;

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
    /// The last one that was found.
    newest: Option<Place>,
    last: Cut,
    /// Whether the first one is where something begins that can be decoded.
    is_begun: bool,
    /// Where the recording ended when all was looked at but for a frame of which no more is known.
    waits_at: Option<u64>,
}

impl Cuts {
    /// Those after the one from which what is shown at a time can be decoded.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn new(source: &mut Source, from_ns: u64, cut_ns: u64) -> Result<Self, ExportError> {
        let track = source.description.video_track();
        let (first, is_key) = source.start(from_ns)?;
        let place = first.place;
        let begins = Place {
            serial: source.recording.first,
            packet: 0,
        };
        let has_keys = source.description.has_video();
        let mut cuts = Self {
            first,
            cut_ns,
            track,
            has_keys,
            // A frame that begins in the block before may be known for a key frame in this one only.
            next: match is_key {
                true => place.serial,
                false => place.serial.saturating_sub(1).max(begins.serial),
            },
            found: VecDeque::new(),
            newest: None,
            last: first,
            is_begun: place != begins && (is_key || !has_keys),
            waits_at: None,
        };
        cuts.begin(source)?;
        Ok(cuts)
    }

    /// Looks for what can be decoded, with which it begins; `false`: there is nothing as yet.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn begin(&mut self, source: &mut Source) -> Result<bool, ExportError> {
        if self.is_begun {
            return Ok(true);
        }
        while self.found.is_empty() && self.look_on(source)? {}
        let Some(first) = self.found.front().copied() else {
            let begins = source.recording.first;
            if self.first.place.serial <= begins {
                // What there is may begin long after what was asked for.
                self.first = Cut {
                    place: Place {
                        serial: begins,
                        packet: 0,
                    },
                    media_ns: source.archive.begins(&source.client, &source.recording)?,
                };
                self.last = self.first;
            }
            return Ok(false);
        };
        self.first = heard_before(source, first, self.track)?;
        self.last = first;
        self.is_begun = true;
        Ok(true)
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

    /// Looks at what there is of the next group; `false`: nothing is that was not seen.
    fn look_on(&mut self, source: &mut Source) -> Result<bool, ExportError> {
        // What has been overwritten meanwhile is not looked at.
        let from = self.next.max(source.recording.first);
        if from >= source.recording.end || self.waits_at == Some(source.recording.end) {
            return Ok(false);
        }
        let end = ((from / GROUP + 1) * GROUP).min(source.recording.end);
        let many = self.found.len();
        self.next = self.look(source, from..end)?;
        Ok(self.next > from || self.found.len() > many)
    }

    fn push(&mut self, found: Cut) {
        if self.newest.is_none_or(|newest| found.place > newest) {
            self.newest = Some(found.place);
            self.found.push_back(found);
        }
    }

    /// Looks at these blocks, which are of one group; the serial of the one to look at next.
    fn look(&mut self, source: &mut Source, blocks: Range<u64>) -> Result<u64, ExportError> {
        if let Some(index) = section(source, blocks.end)? {
            let is_of_track = index.track == self.track && index.named == Named::All;
            if !self.has_keys {
                let records = (index.first..).zip(&index.records);
                let records =
                    records.filter(|(of, record)| *of >= blocks.start && record.packets > 0);
                for (serial, record) in records {
                    self.push(Cut {
                        place: Place { serial, packet: 0 },
                        media_ns: record.media_ns,
                    });
                }
                return Ok(blocks.end);
            }
            if is_of_track && index.first <= blocks.start {
                // What the section names before that may be gone.
                for key in index.keys.iter().filter(|key| key.serial >= blocks.start) {
                    self.push(Cut {
                        place: Place {
                            serial: key.serial,
                            packet: key.packet,
                        },
                        media_ns: key.media_ns,
                    });
                }
                return Ok(blocks.end);
            }
        }
        self.scan(source, blocks)
    }

    /// The same by the blocks themselves.
    fn scan(&mut self, source: &mut Source, blocks: Range<u64>) -> Result<u64, ExportError> {
        let end = blocks.end;
        let mut begun: Option<Cut> = None;
        // A frame that begins in the last one may be known for a key frame in the next.
        let behind = source.recording.end.min(end + 1);
        for serial in blocks.start..behind {
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
                    self.push(Cut {
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
                    self.push(Cut {
                        media_ns: entry.media_ns,
                        ..cut
                    });
                }
            }
        }
        // Of the frame that is recorded just now it may not have been said yet that it is one.
        let open = begun.filter(|_| behind == end);
        self.waits_at = open.map(|_| end);
        Ok(open.map_or(end, |open| open.place.serial))
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

/// How long what lies between two cuts may be.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// In nanoseconds of the recording.
    pub ns: u64,
    /// In bytes of its blocks.
    pub bytes: u64,
}

impl Source {
    /// Where to begin so that what is shown at a time can be decoded, and whether it can.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub(super) fn start(&self, from_ns: u64) -> Result<(Cut, bool), ExportError> {
        let track = usize::from(self.description.video_track());
        let (archive, client) = (&self.archive, &self.client);
        let found = start::start_at(archive, client, &self.recording, from_ns, track, None)?;
        let first = Cut {
            place: Place {
                serial: found.start.serial,
                packet: found.start.packet as u32,
            },
            media_ns: found.start.media_ns,
        };
        Ok((first, found.is_key))
    }

    /// The first block that is there now, where nothing is about to be written.
    #[must_use]
    pub fn first_there(&self) -> u64 {
        self.archive.first_there(&self.recording)
    }

    /// Where what begins at a cut ends at the latest, if it is to be no longer than that: with the first frame that begins
    /// in a block that is later, or has more before it. `None`: it ends no later with that other one, or no such block is
    /// there yet.
    ///
    /// Where that is depends on where it begins alone, not on what has been recorded since.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn latest(&self, from: Cut, to: Cut, most: Most) -> Result<Option<Cut>, ExportError> {
        let blocks = most.bytes / self.archive.header().block_bytes;
        let by_bytes = from.place.serial + blocks.max(1);
        let end_ns = from.media_ns.saturating_add(most.ns);
        // Packets lie in the order in which they came, which is nearly that of their times.
        if to.media_ns.saturating_add(BEHIND_NS) <= end_ns && to.place.serial < by_bytes {
            return Ok(None);
        }
        let (archive, client) = (&self.archive, &self.client);
        let by_time = archive.block_at(client, &self.recording, end_ns)? + 1;
        let first = by_bytes.min(by_time).max(from.place.serial + 1);
        let track = self.description.video_track();
        // Damaged ones and such that have only parts of a frame are passed over.
        for serial in (first..self.recording.end).take(GROUP as usize) {
            if serial > to.place.serial {
                break;
            }
            let entries = archive.entries(client, &self.recording, serial)?;
            let found = entries.and_then(|entries| first_frame(serial, &entries, track));
            if let Some(cut) = found.filter(|cut| cut.media_ns > from.media_ns) {
                return Ok(Some(cut).filter(|cut| cut.place < to.place));
            }
        }
        Ok(None)
    }
}

/// The packet of a block with which a frame of a track begins first; where the block has nothing of it, the first one.
fn first_frame(serial: u64, entries: &[Entry], track: u8) -> Option<Cut> {
    let packets = (0..).zip(entries).filter(|(_, of)| of.kind == Kind::Rtp);
    let mut of_track = packets.clone().filter(|(_, of)| of.track == track);
    let (packet, entry) = match of_track.clone().next() {
        Some(_) => of_track.find(|(_, of)| of.begins_frame)?,
        None => packets.clone().next()?,
    };
    Some(Cut {
        place: Place { serial, packet },
        media_ns: entry.media_ns,
    })
}
