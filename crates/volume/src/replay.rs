//! Reading nodes and rolling the log forward.

use std::collections::BTreeSet;

use sched::units::{SECTOR_BYTES, SectorCount};

use crate::identify::Found;
use crate::image::{Image, NodeAt};
use crate::limits::{BLOCK_BYTES, LOG_BLOCKS_DUE, RECORD_BLOCKS_MAX};
use crate::medium::Medium;
use crate::ondisk::change::Change;
use crate::ondisk::record::{Record, RecordError};
use crate::ondisk::table::{Located, Table};
use crate::ondisk::{Owner, Position};
use crate::place::{Geometry, Place, Uuid};
use crate::problem::Problem;

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 16;

/// The window beyond the end of the log, where most likely nothing is found.
const WINDOW_BLOCKS_BEYOND: u32 = 64;

const _: () = assert!(WINDOW_BLOCKS as u64 >= RECORD_BLOCKS_MAX);

/// End of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tail {
    /// The next record goes here.
    pub(crate) at: Position,
    pub(crate) sequence: u64,
    /// The checksum of the last record of this epoch; 0 if there is none.
    pub(crate) previous: u64,
    /// The extents of the log since the table.
    pub(crate) extents: Vec<Place>,
    /// The extent in which the log goes on after the last of them, if that is chosen.
    pub(crate) next: Option<Place>,
    /// Blocks since the table.
    pub(crate) blocks: u64,
    /// A record of a later table was found: the table is lost.
    pub(crate) later_epoch: bool,
}

/// Reads records.
pub(crate) struct Reader<'a> {
    medium: &'a mut dyn Medium,
    disks: &'a [Found],
    pool: Uuid,
    geometry: Geometry,
    window: Vec<u8>,
    window_at: Option<Position>,
    window_blocks: u32,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(medium: &'a mut dyn Medium, disks: &'a [Found]) -> Self {
        let superblock = &disks[0].superblock;
        let (pool, geometry) = (superblock.pool, superblock.geometry);
        Self {
            medium,
            disks,
            pool,
            geometry,
            window: Vec::new(),
            window_at: None,
            window_blocks: WINDOW_BLOCKS,
        }
    }

    fn blocks_per_extent(&self) -> u32 {
        (self.geometry.extent_bytes().0 / BLOCK_BYTES) as u32
    }

    fn exists(&self, at: Position) -> bool {
        let disk = self.disks.get(usize::from(at.place.disk.0));
        disk.is_some_and(|disk| at.place.extent < disk.superblock.extents)
            && at.block < self.blocks_per_extent()
    }

    /// The last block of an extent is only ever a link.
    fn leaves_room_for_link(&self, at: Position, record: &Record) -> bool {
        let is_link = matches!(record.change, Change::Link { .. });
        is_link || at.block + record.blocks < self.blocks_per_extent()
    }

    /// The bytes from `at` on: at least a record's, unless the extent ends.
    fn bytes(&mut self, at: Position) -> Result<&[u8], Problem> {
        let inside = |start: Position| {
            let end = start.block + (self.window.len() as u64 / BLOCK_BYTES) as u32;
            let need = (at.block + RECORD_BLOCKS_MAX as u32).min(self.blocks_per_extent());
            start.place == at.place && start.block <= at.block && need <= end
        };
        if !self.window_at.is_some_and(inside) {
            let is_wide = u64::from(self.window_blocks) > RECORD_BLOCKS_MAX;
            let read = self.read_window(at);
            if read.is_err() && is_wide {
                // Something else in the window may be unreadable.
                self.window_blocks = RECORD_BLOCKS_MAX as u32;
                self.read_window(at)?;
            } else {
                read?;
            }
        }
        let from = self.window_at.map_or(0, |start| at.block - start.block) as usize;
        Ok(&self.window[from * BLOCK_BYTES as usize..])
    }

    fn read_window(&mut self, at: Position) -> Result<(), Problem> {
        let blocks = self.window_blocks.min(self.blocks_per_extent() - at.block);
        self.window
            .resize(blocks as usize * BLOCK_BYTES as usize, 0);
        self.window_at = None;
        let offset = SectorCount(u64::from(at.block) * BLOCK_BYTES / SECTOR_BYTES);
        let start = self.geometry.sector_of(at.place) + offset;
        let disk = &self.disks[usize::from(at.place.disk.0)];
        self.medium
            .read(disk.candidate, start, &mut self.window)
            .map_err(|error| Problem::Unreadable {
                disk: disk.name.clone(),
                at: start.0,
                reason: error.to_string(),
            })?;
        self.window_at = Some(at);
        Ok(())
    }

    fn record(&mut self, at: Position) -> Result<Result<Record, RecordError>, Problem> {
        if !self.exists(at) {
            return Ok(Err(RecordError::NotOne));
        }
        let (pool, geometry) = (self.pool, self.geometry);
        Ok(Record::parse(self.bytes(at)?, &pool, geometry))
    }

    /// The nodes, and the list of grades and losses, that the table locates.
    pub(crate) fn nodes(&mut self, table: &Table, problems: &mut Vec<Problem>) -> Image {
        let mut image = Image {
            next_volume: table.next_volume,
            ..Image::default()
        };
        let disks = self.disks;
        for (volume, located) in &table.nodes {
            let damaged = |what: String| {
                let at = describe(located.position);
                Problem::NodeDamaged {
                    disk: disk_name(disks, located.position),
                    volume: volume.0,
                    at,
                    what,
                }
            };
            let is_it = |change: &Change| change.volume() == Some(*volume);
            let mut apply = |change: &Change, at: Located| {
                if !is_it(change) {
                    return Err("a record of another kind".to_owned());
                }
                image.apply(change, at)?;
                Ok(image.is_whole(*volume))
            };
            match self.follow(*located, &mut apply) {
                Ok(Ok(_)) => {}
                Ok(Err(what)) => problems.push(damaged(what)),
                Err(problem) => problems.push(problem),
            }
        }
        if let Some((count, located)) = table.list {
            let mut found = 0;
            let mut apply = |change: &Change, _: Located| {
                let entries = image.list(change);
                found += entries.ok_or_else(|| "a record of another kind".to_owned())?;
                Ok(found >= count as usize)
            };
            let damaged = |what: String| Problem::BadListDamaged {
                disk: disk_name(disks, located.position),
                at: describe(located.position),
                what,
            };
            match self.follow(located, &mut apply) {
                Ok(Ok(spans)) => {
                    image.list_at = Some((count, NodeAt { located, spans }));
                }
                Ok(Err(what)) => problems.push(damaged(what)),
                Err(problem) => problems.push(problem),
            }
            // The list may be older than the deletion of a volume.
            let Image { volumes, lost, .. } = &mut image;
            lost.retain(|(volume, index), _| {
                volumes
                    .get(volume)
                    .is_some_and(|node| (*index as usize) < node.extents.len())
            });
        }
        image
    }

    /// Gives the records from `start` on, but links, to `apply` until it has enough. Returns the
    /// extents they are in.
    fn follow(
        &mut self,
        start: Located,
        apply: &mut dyn FnMut(&Change, Located) -> Result<bool, String>,
    ) -> Result<Result<Vec<Place>, String>, Problem> {
        let (mut at, mut sequence) = (start.position, start.sequence);
        let mut previous = None;
        let mut spans = Vec::new();
        loop {
            let record = match self.record(at)? {
                Ok(record) => record,
                Err(error) => return Ok(Err(format!("{error} at {}", describe(at)))),
            };
            if record.header.sequence != sequence
                || previous.is_some_and(|sum| sum != record.header.previous)
            {
                return Ok(Err(format!("another record at {}", describe(at))));
            }
            if spans.last() != Some(&at.place) {
                spans.push(at.place);
            }
            let located = Located {
                position: at,
                sequence,
            };
            previous = Some(record.checksum);
            sequence += 1;
            at.block += record.blocks;
            if let Change::Link { to } = record.change {
                at = Position {
                    place: to,
                    block: 0,
                };
                continue;
            }
            match apply(&record.change, located) {
                Ok(true) => return Ok(Ok(spans)),
                Ok(false) => {}
                Err(what) => return Ok(Err(what)),
            }
        }
    }

    /// Applies the transactions that are in the log beyond the table, up to the first that is not
    /// complete. `owner`: of the newest superblock.
    pub(crate) fn roll_forward(
        &mut self,
        table: &Table,
        owner: Owner,
        image: &mut Image,
    ) -> Result<Tail, Problem> {
        let mut tail = Tail {
            at: table.log,
            sequence: table.next_sequence,
            previous: 0,
            extents: vec![table.log.place],
            next: table.next,
            blocks: 0,
            later_epoch: false,
        };
        if !self.exists(table.log) {
            let (at, what) = (describe(table.log), "there is no such place".to_owned());
            return Err(Problem::LogImpossible {
                disk: disk_name(self.disks, table.log),
                at,
                sequence: table.next_sequence,
                what,
            });
        }
        // The additions of a transaction are kept apart until its last record is there.
        let mut ahead = tail.clone();
        let mut pending: Vec<(Change, Located)> = Vec::new();
        while let Ok(record) = self.record(ahead.at)? {
            let header = &record.header;
            let is_next = header.epoch == table.generation
                && header.owner == table.owner
                && header.sequence == ahead.sequence
                && header.previous == ahead.previous
                && header.transaction == tail.sequence
                && self.leaves_room_for_link(ahead.at, &record);
            if !is_next {
                break;
            }
            let located = Located {
                position: ahead.at,
                sequence: ahead.sequence,
            };
            ahead.previous = record.checksum;
            ahead.sequence += 1;
            ahead.at.block += record.blocks;
            ahead.blocks += u64::from(record.blocks);
            ahead.next = header.next;
            if let Change::Link { to } = record.change {
                ahead.at = Position {
                    place: to,
                    block: 0,
                };
                ahead.extents.push(to);
                ahead.next = None;
            }
            pending.push((record.change, located));
            if header.commit {
                apply_transaction(self.disks, image, &mut pending)?;
                tail = ahead.clone();
            }
        }
        self.window_blocks = WINDOW_BLOCKS_BEYOND;
        match self.found_beyond(table, owner, &tail)? {
            None => {}
            Some(Beyond::LaterEpoch) => tail.later_epoch = true,
            Some(Beyond::LaterTransaction) => {
                return Err(Problem::LogDamaged {
                    disk: disk_name(self.disks, tail.at),
                    at: describe(tail.at),
                    sequence: tail.sequence,
                });
            }
        }
        Ok(tail)
    }

    /// Looks for records that were written after what seems to be the end had been made durable: in
    /// this extent, in the one that the log goes on in after it, and so on as long as there are records
    /// that name another.
    ///
    /// In each it looks at the blocks up to one that is [`LOG_BLOCKS_DUE`] behind the last record of this
    /// log. No transaction begins farther behind the table: the log is checkpointed before. A record
    /// that is not of this log, by its owner, says nothing, whoever put it there.
    fn found_beyond(
        &mut self,
        table: &Table,
        owner: Owner,
        tail: &Tail,
    ) -> Result<Option<Beyond>, Problem> {
        let mut looked_at = BTreeSet::from([tail.at.place]);
        let (mut at, mut next) = (tail.at, tail.next);
        loop {
            let mut left = LOG_BLOCKS_DUE;
            while left > 0 && self.exists(at) {
                let is_of_log = |record: &Record| {
                    let header = &record.header;
                    header.epoch >= table.generation
                        && (header.owner == table.owner || header.owner == owner)
                        && header.sequence >= tail.sequence
                };
                let found = match self.record(at) {
                    // A block that was never written may be unreadable. At the end itself it may be the next record.
                    Err(Problem::Unreadable { .. }) if at != tail.at => None,
                    found => found?.ok(),
                };
                let Some(record) = found.filter(is_of_log) else {
                    at.block += 1;
                    left -= 1;
                    continue;
                };
                let header = &record.header;
                if header.epoch > table.generation {
                    return Ok(Some(Beyond::LaterEpoch));
                }
                if header.transaction > tail.sequence {
                    return Ok(Some(Beyond::LaterTransaction));
                }
                // The records of the incomplete transaction.
                at.block += record.blocks;
                left = LOG_BLOCKS_DUE;
                next = match record.change {
                    Change::Link { to } => Some(to),
                    _ => header.next.or(next),
                };
            }
            match next.take() {
                Some(place) if looked_at.insert(place) => at = Position { place, block: 0 },
                _ => return Ok(None),
            }
        }
    }
}

/// Contents beyond the end of a log that should not have ended there.
enum Beyond {
    /// A record of a later table.
    LaterEpoch,
    /// A record that was written when those before it were durable.
    LaterTransaction,
}

fn apply_transaction(
    disks: &[Found],
    image: &mut Image,
    pending: &mut Vec<(Change, Located)>,
) -> Result<(), Problem> {
    let Some((_, last)) = pending.last() else {
        return Ok(());
    };
    let impossible = |at: &Located, what: String| Problem::LogImpossible {
        disk: disk_name(disks, at.position),
        at: describe(at.position),
        sequence: at.sequence,
        what,
    };
    let last = *last;
    let mut touched = BTreeSet::new();
    for (change, located) in pending.drain(..) {
        image
            .apply(&change, located)
            .map_err(|what| impossible(&located, what))?;
        touched.extend(change.volume());
    }
    match touched.into_iter().find(|volume| !image.is_whole(*volume)) {
        Some(volume) => Err(impossible(
            &last,
            format!("volume {} lacks extents", volume.0),
        )),
        None => Ok(()),
    }
}

/// The disk that a position is on, by name; a damaged table may say any number.
fn disk_name(disks: &[Found], at: Position) -> String {
    let number = at.place.disk.0;
    let disk = disks.get(usize::from(number));
    disk.map_or_else(|| format!("disk {number}"), |disk| disk.name.clone())
}

fn describe(at: Position) -> String {
    format!("{} block {}", at.place, at.block)
}
