//! Cuts: the key frames at which a recording is divided, one for each interval of time.
//!
//! The cuts depend on the recording alone and not on where the search begins. So each request gets the same
//! cuts, also after the oldest part has been overwritten.

use std::collections::VecDeque;
use std::ops::Range;

use super::{ExportError, Source};
use crate::archive::block::{Block, Entry, Kind};
use crate::archive::index::{GROUP, Index, KeyCoverage};
use crate::archive::start;

/// The position of a packet in a recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place {
    /// Serial of its block.
    pub serial: u64,
    /// Its number in the block.
    pub packet: u32,
}

/// A position at which a recording can be divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// The first packet of the key frame.
    pub place: Place,
    /// Time of the key frame, in nanoseconds of the recording's time.
    pub media_ns: u64,
}

/// Finds one cut after another.
#[derive(Debug)]
pub struct Cuts {
    first: Cut,
    /// There is one cut for each interval of this length.
    cut_ns: u64,
    track: u8,
    /// True if there are frames that depend on others.
    has_keys: bool,
    /// Serial of the next block to search.
    next: u64,
    /// Groups that begin at or after this serial are not searched.
    limit: u64,
    found: VecDeque<Cut>,
    /// The last cut that was found.
    newest: Option<Place>,
    /// The last cut that was returned.
    last: Cut,
    /// True if `first` is a position that can be decoded.
    is_begun: bool,
    /// End of the recording at the last search, if all was searched but a frame of which the rest is not
    /// recorded yet.
    waits_at: Option<u64>,
}

impl Cuts {
    /// The cuts after the position from which this time can be decoded.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn new(source: &mut Source, from_ns: u64, cut_ns: u64) -> Result<Self, ExportError> {
        Self::up_to(source, from_ns, cut_ns, u64::MAX)
    }

    /// As [`new`](Self::new), and groups of blocks that begin at or after the serial `limit` are not searched.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub(super) fn up_to(
        source: &mut Source,
        from_ns: u64,
        cut_ns: u64,
        limit: u64,
    ) -> Result<Self, ExportError> {
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
            // A frame that begins in the previous block may be marked as a key frame only in this one.
            next: match is_key {
                true => place.serial,
                false => place.serial.saturating_sub(1).max(begins.serial),
            },
            limit,
            found: VecDeque::new(),
            newest: None,
            last: first,
            is_begun: place != begins && (is_key || !has_keys),
            waits_at: None,
        };
        cuts.begin(source)?;
        Ok(cuts)
    }

    /// Searches for the first position that can be decoded; `false` if none is recorded yet.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn begin(&mut self, source: &mut Source) -> Result<bool, ExportError> {
        if self.is_begun {
            return Ok(true);
        }
        while self.found.is_empty() && self.search_next_group(source)? {}
        let Some(first) = self.found.front().copied() else {
            let begins = source.recording.first;
            if self.first.place.serial <= begins {
                // The remaining part may begin long after the time that was asked for.
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
        self.first = with_audio_before(source, first, self.track)?;
        self.last = first;
        self.is_begun = true;
        Ok(true)
    }

    /// The position before all cuts.
    #[must_use]
    pub fn first(&self) -> Cut {
        self.first
    }

    /// The next cut, if one is recorded already.
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
            if !self.search_next_group(source)? {
                return Ok(None);
            }
        }
    }

    /// Searches the recorded part of the next group; `false` if there is nothing new.
    fn search_next_group(&mut self, source: &mut Source) -> Result<bool, ExportError> {
        // Blocks that were overwritten since are skipped.
        let from = self.next.max(source.recording.first);
        let end = source.recording.end.min(self.limit);
        if from >= end || self.waits_at == Some(source.recording.end) {
            return Ok(false);
        }
        let end = ((from / GROUP + 1) * GROUP).min(source.recording.end);
        let count = self.found.len();
        self.next = self.search(source, from..end)?;
        Ok(self.next > from || self.found.len() > count)
    }

    fn push(&mut self, found: Cut) {
        if self.newest.is_none_or(|newest| found.place > newest) {
            self.newest = Some(found.place);
            self.found.push_back(found);
        }
    }

    /// Searches these blocks of one group by the index, if possible. Returns the serial of the next block to
    /// search.
    fn search(&mut self, source: &mut Source, blocks: Range<u64>) -> Result<u64, ExportError> {
        if let Some(index) = section(source, blocks.end)? {
            let has_all_keys = index.track == self.track && index.named == KeyCoverage::All;
            if !self.has_keys {
                let records = (index.first..).zip(&index.records);
                let records =
                    records.filter(|(of, record)| blocks.contains(of) && record.packets > 0);
                for (serial, record) in records {
                    self.push(Cut {
                        place: Place { serial, packet: 0 },
                        media_ns: record.media_ns,
                    });
                }
                return Ok(blocks.end);
            }
            if has_all_keys && index.first <= blocks.start {
                // Earlier keys of the section may be overwritten.
                for key in index.keys.iter().filter(|key| blocks.contains(&key.serial)) {
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

    /// As [`search`](Self::search), by the packets of the blocks.
    fn scan(&mut self, source: &mut Source, blocks: Range<u64>) -> Result<u64, ExportError> {
        let end = blocks.end;
        let mut begun: Option<Cut> = None;
        // A frame that begins in the last block may be marked as a key frame in the next one.
        let scan_end = source.recording.end.min(end + 1);
        for serial in blocks.start..scan_end {
            if !source.load(serial)? {
                continue;
            }
            let Some(block) = source
                .loaded
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
        // The last frame may be marked as a key frame by a packet that is not recorded yet.
        let open = begun.filter(|_| scan_end == end);
        self.waits_at = open.map(|_| end);
        Ok(open.map_or(end, |open| open.place.serial))
    }
}

/// The first cut of a recording, moved to the start of its block if only audio precedes the picture.
fn with_audio_before(source: &Source, first: Cut, track: u8) -> Result<Cut, ExportError> {
    let serial = source.recording.first;
    if first.place.serial != serial {
        return Ok(first);
    }
    let (archive, client) = (&source.archive, &source.client);
    let lead = archive.lead(client, &source.recording, first.place.packet, track)?;
    Ok(match lead {
        Some(lead) if !lead.has_track => Cut {
            place: Place { serial, packet: 0 },
            media_ns: lead
                .earliest_ns
                .unwrap_or(first.media_ns)
                .min(first.media_ns),
        },
        // Frames that cannot be decoded precede it, or the block is damaged.
        _ => first,
    })
}

/// The section of the index about the blocks of a group up to `end`, also one in the making.
fn section(source: &Source, end: u64) -> Result<Option<std::sync::Arc<Index>>, ExportError> {
    match end.checked_sub(1) {
        Some(last) => {
            Ok(source
                .archive
                .index_so_far_of(&source.client, &source.recording, last)?)
        }
        None => Ok(None),
    }
}

impl Source {
    /// The position from which a time can be decoded, and true if it is a key frame.
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

    /// Serial of the first remaining block that is not about to be overwritten.
    #[must_use]
    pub fn first_there(&self) -> u64 {
        self.archive.first_there(&self.recording)
    }
}

/// The first packet in a block that begins a frame of a track; the first RTP packet if the block has none of
/// the track.
pub(super) fn first_frame(serial: u64, entries: &[Entry], track: u8) -> Option<Cut> {
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
