//! A volume's map: turns a request to the volume into requests to disks.
//!
//! A map is a snapshot: its size and list of extents never change. The extents themselves change without a
//! new snapshot: their written chunks, and their place after a move ([`crate::extent`]). A new snapshot comes
//! with growing, shrinking and deleting.
//!
//! Deliberately absent: queues. A refused piece ([`Refused::Busy`]) is parked by the engine, which
//! tries again once after parking it (the claim may have gone in between) and then whenever a write
//! of the volume completes or a move of it ends.

use std::ops::Range;
use std::sync::Arc;

use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount};

use crate::chunks::ChunkSet;
use crate::dirty::{Mark, Shared};
use crate::error::{MapError, Refused};
use crate::extent::{Extent, InUse, WriteInUse};
use crate::place::{DiskNumber, Geometry, Place, VolumeId};

/// A snapshot of where a volume is.
#[derive(Clone)]
pub struct VolumeMap {
    size: Bytes,
    extents: Box<[Arc<Extent>]>,
    shared: Arc<Shared>,
}

/// Source of a stretch of a read.
#[derive(Debug)]
pub enum Source {
    /// Never written: zeros, no disk needed.
    Zeros,
    /// Written, but no disk has it any more.
    Lost,
    /// A contiguous stretch of a disk.
    Disk {
        /// The disk.
        disk: DiskNumber,
        /// The first sector.
        start: Sector,
        /// Number of sectors.
        count: SectorCount,
        /// Keep it until the disk has answered.
        in_use: InUse,
    },
}

/// A stretch of a read.
#[derive(Debug)]
pub struct ReadPiece {
    /// Bytes of the request that it fills.
    pub buffer: Range<usize>,
    /// From where.
    pub source: Source,
}

/// A stretch of a write that has not begun: within one extent.
#[derive(Clone, Debug)]
pub struct WriteSpan {
    /// Bytes of the request that it takes.
    pub buffer: Range<usize>,
    extent: Arc<Extent>,
    from: SectorCount,
    /// The chunks of the extent that it replaces.
    whole: Range<u32>,
    geometry: Geometry,
}

/// A stretch of a write, ready to be issued as one request: zeros, then the bytes of the request,
/// then zeros.
#[derive(Debug)]
pub struct WritePiece {
    /// The disk.
    pub disk: DiskNumber,
    /// The first sector, of the leading zeros if there are any.
    pub start: Sector,
    /// Number of sectors, zeros included.
    pub count: SectorCount,
    /// Sectors of zeros before the data.
    pub lead: SectorCount,
    /// Bytes of the request between the zeros.
    pub buffer: Range<usize>,
    /// Sectors of zeros after the data.
    pub tail: SectorCount,
    /// [`WriteInUse::written`] when the disk has answered well; drop it otherwise.
    pub in_use: WriteInUse,
}

/// A stretch of a volume that holds data or does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusRun {
    /// Bytes of the volume.
    pub bytes: Range<u64>,
    /// True if it holds data; otherwise it reads as zeros.
    pub data: bool,
}

impl VolumeMap {
    pub(crate) fn new(size: Bytes, extents: Vec<Arc<Extent>>, shared: Arc<Shared>) -> Self {
        shared.make_room(extents.len() as u32);
        Self {
            size,
            extents: extents.into_boxed_slice(),
            shared,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The whole chunks between its end and the end of its last extent.
    pub(crate) fn behind_end(&self) -> ChunkSet {
        let within = self.size.0 % self.geometry().extent_bytes().0;
        if within == 0 {
            return ChunkSet::EMPTY;
        }
        let from = within.div_ceil(self.geometry().chunk_bytes().0) as u32;
        ChunkSet::of(from..self.geometry().chunks())
    }

    /// Clears the bits behind its end, as the records of a growth that is durable now say.
    pub(crate) fn clear_behind_end(&self) {
        let behind = self.behind_end();
        if let Some(last) = self.extents.last().filter(|_| !behind.is_empty()) {
            last.clear(&behind);
        }
    }

    /// Notes that the chunk in which it ends has been written, if it ends within one.
    pub(crate) fn touch_end(&self) {
        let within = self.size.0 % self.geometry().extent_bytes().0;
        let chunk_bytes = self.geometry().chunk_bytes().0;
        if let Some(last) = self
            .extents
            .last()
            .filter(|_| !within.is_multiple_of(chunk_bytes))
        {
            let chunk = (within / chunk_bytes) as u32;
            last.touch(&ChunkSet::of(chunk..chunk + 1));
        }
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> VolumeId {
        self.shared.id()
    }

    /// Its size: whole sectors, not necessarily whole extents.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// The sizes of extents and chunks.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    /// Its extents, in order.
    #[must_use]
    pub fn extents(&self) -> &[Arc<Extent>] {
        &self.extents
    }

    /// The places of its extents now, in order.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.extents.iter().map(|extent| extent.place())
    }

    /// Lets writes begin again to the extents of these bytes that moves have frozen ([`crate::Move::freeze`]).
    /// A move that is about to finish must be kept from that meanwhile.
    pub fn thaw(&self, bytes: Range<u64>) {
        for (index, _) in self.per_extent(bytes.start..bytes.end.min(self.size.0)) {
            let extent = &self.extents[index];
            if extent.is_frozen() {
                extent.thaw();
            }
        }
    }

    /// A mark of the changes so far. A flush takes a mark at its beginning and has to make all changes up to
    /// it durable, by [`crate::PoolState::settle`], unless they [are](Self::is_durable) already.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.shared.now()
    }

    /// True if bits and places up to `mark` are durable, so that a flush need not ask the pool.
    #[must_use]
    pub fn is_durable(&self, mark: Mark) -> bool {
        self.shared.is_durable(mark)
    }

    fn check(&self, offset: u64, length: u64) -> Result<Range<u64>, MapError> {
        if !offset.is_multiple_of(SECTOR_BYTES) || !length.is_multiple_of(SECTOR_BYTES) {
            return Err(MapError::Misaligned { offset, length });
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.size.0 => Ok(offset..end),
            _ => Err(MapError::PastEnd {
                offset,
                length,
                size: self.size.0,
            }),
        }
    }

    /// The pieces of a read of `length` bytes at `offset`, in order. A piece is counted as in use
    /// from the moment it is returned.
    ///
    /// # Errors
    /// Misaligned or past the end. A piece: [`Refused::Gone`] if the volume has meanwhile been cut.
    pub fn reads(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<impl Iterator<Item = Result<ReadPiece, Refused>> + '_, MapError> {
        let range = self.check(offset, length as u64)?;
        Ok(Reads {
            map: self,
            first: range.start,
            at: range.start,
            end: range.end,
        })
    }

    /// The spans of a write of `length` bytes at `offset`, one for each extent, in order.
    ///
    /// # Errors
    /// Misaligned or past the end.
    pub fn writes(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<impl Iterator<Item = WriteSpan> + '_, MapError> {
        let range = self.check(offset, length as u64)?;
        let first = range.start;
        Ok(self.per_extent(range).map(move |(index, part)| {
            let base = index as u64 * self.geometry().extent_bytes().0;
            WriteSpan {
                buffer: (part.start - first) as usize..(part.end - first) as usize,
                extent: Arc::clone(&self.extents[index]),
                from: SectorCount((part.start - base) / SECTOR_BYTES),
                whole: self.whole_chunks(base, &part),
                geometry: self.geometry(),
            }
        }))
    }

    /// The whole chunks in a part of the extent that begins at byte `base`. The last chunk of the volume is whole if the
    /// rest of it lies past the end.
    fn whole_chunks(&self, base: u64, part: &Range<u64>) -> Range<u32> {
        let chunk_bytes = self.geometry().chunk_bytes().0;
        let (from, to) = (part.start - base, part.end - base);
        let covered = if part.end == self.size.0 {
            to.next_multiple_of(chunk_bytes)
        } else {
            to
        };
        from.div_ceil(chunk_bytes) as u32..(covered / chunk_bytes) as u32
    }

    /// Splits a range of the volume at extents.
    fn per_extent(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> + use<> {
        let extent_bytes = self.geometry().extent_bytes().0;
        let mut at = range.start;
        std::iter::from_fn(move || {
            (at < range.end).then(|| {
                let index = at / extent_bytes;
                let part = at..range.end.min((index + 1) * extent_bytes);
                at = part.end;
                (index as usize, part)
            })
        })
    }

    /// Runs of data and of holes in `length` bytes at `offset`, alternating.
    ///
    /// # Errors
    /// Misaligned or past the end.
    pub fn block_status(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<impl Iterator<Item = StatusRun> + '_, MapError> {
        let range = self.check(offset, length)?;
        let mut at = range.start;
        Ok(std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let start = at;
            let (data, mut end) = self.run_at(at, range.end);
            while end < range.end {
                let (next, next_end) = self.run_at(end, range.end);
                if next != data {
                    break;
                }
                end = next_end;
            }
            at = end;
            Some(StatusRun {
                bytes: start..end,
                data,
            })
        }))
    }

    /// True if there is data at `at`, lost data included, and the length of that run in its extent, at most to `end`.
    fn run_at(&self, at: u64, end: u64) -> (bool, u64) {
        let geometry = self.geometry();
        let chunks = self.extents[(at / geometry.extent_bytes().0) as usize].chunks();
        run_of(geometry, &chunks.written.or(&chunks.lost), at, end)
    }

    /// Forgets what the whole chunks of `length` bytes at `offset` hold: they read as zeros from now
    /// on, and after a crash if the volume has been flushed since. Costs nothing on a disk. Parts of
    /// chunks at either end keep what they hold.
    ///
    /// # Errors
    /// Misaligned or past the end.
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), MapError> {
        self.zero(offset, length).map(|_| ())
    }

    /// Makes `length` bytes at `offset` read as zeros, except for what is returned: at most two
    /// ranges of bytes of the volume, parts of chunks that hold data or have lost it, where zeros have to be written.
    ///
    /// # Errors
    /// Misaligned or past the end.
    pub fn zero(&self, offset: u64, length: u64) -> Result<Vec<Range<u64>>, MapError> {
        let range = self.check(offset, length)?;
        let geometry = self.geometry();
        let (extent_bytes, chunk_bytes) = (geometry.extent_bytes().0, geometry.chunk_bytes().0);
        let mut left = Vec::new();
        for (index, part) in self.per_extent(range) {
            let base = index as u64 * extent_bytes;
            let extent = &self.extents[index];
            let (from, to) = (part.start - base, part.end - base);
            let whole = self.whole_chunks(base, &part);
            if whole.start < whole.end {
                extent.clear(&ChunkSet::of(whole.clone()));
            }
            let whole = u64::from(whole.start)..u64::from(whole.end);
            let chunks = extent.chunks();
            let filled = chunks.written.or(&chunks.lost);
            let mut edge = |bytes: Range<u64>| {
                if bytes.start < bytes.end && filled.has((bytes.start / chunk_bytes) as u32) {
                    left.push(base + bytes.start..base + bytes.end);
                }
            };
            if whole.start < whole.end {
                edge(from..whole.start * chunk_bytes);
                edge(whole.end * chunk_bytes..to);
            } else {
                let middle = (whole.start * chunk_bytes).min(to);
                edge(from..middle);
                edge(middle..to);
            }
        }
        Ok(left)
    }
}

/// True if there is data at byte `at` of a volume with these written chunks of its extent, and the length of
/// that run in the extent, at most to `end`.
fn run_of(geometry: Geometry, written: &ChunkSet, at: u64, end: u64) -> (bool, u64) {
    let (extent_bytes, chunk_bytes) = (geometry.extent_bytes().0, geometry.chunk_bytes().0);
    let chunk = (at % extent_bytes / chunk_bytes) as u32;
    let run_end = written.run_end(chunk, geometry.chunks());
    let run_end = at - at % extent_bytes + u64::from(run_end) * chunk_bytes;
    (written.has(chunk), run_end.min(end))
}

impl std::fmt::Debug for VolumeMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "map of volume {}: {} bytes in {} extents",
            self.volume().0,
            self.size.0,
            self.extents.len()
        )
    }
}

struct Reads<'a> {
    map: &'a VolumeMap,
    first: u64,
    at: u64,
    end: u64,
}

impl Iterator for Reads<'_> {
    type Item = Result<ReadPiece, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let geometry = self.map.geometry();
        let extent_bytes = geometry.extent_bytes().0;
        let from = self.at;
        let extent = &self.map.extents[(from / extent_bytes) as usize];
        let (place, chunks, in_use) = match extent.begin_read() {
            Ok(begun) => begun,
            Err(refused) => {
                self.at = self.end;
                return Some(Err(refused));
            }
        };
        let (data, to) = run_of(geometry, &chunks.written, from, self.end);
        let (is_lost, to) = if data || chunks.lost.is_empty() {
            (false, to)
        } else {
            run_of(geometry, &chunks.lost, from, to)
        };
        self.at = to;
        let buffer = (from - self.first) as usize..(to - self.first) as usize;
        let source = if data {
            Source::Disk {
                disk: place.disk,
                start: geometry.sector_of(place) + SectorCount(from % extent_bytes / SECTOR_BYTES),
                count: SectorCount((to - from) / SECTOR_BYTES),
                in_use,
            }
        } else if is_lost {
            Source::Lost
        } else {
            Source::Zeros
        };
        Some(Ok(ReadPiece { buffer, source }))
    }
}

impl WriteSpan {
    /// Number of the extent in its volume.
    #[must_use]
    pub fn extent(&self) -> u32 {
        self.extent.index()
    }

    /// The chunks of the extent that it replaces.
    #[must_use]
    pub fn whole(&self) -> ChunkSet {
        ChunkSet::of(self.whole.clone())
    }

    /// Begins it: claims the chunks that it is the first to write, and widens it over them.
    ///
    /// # Errors
    /// [`Refused::Busy`]: park it and try again, see the module. [`Refused::Gone`]: the volume has
    /// been cut; fail the request as past the end. [`Refused::Lost`]: it would replace a lost chunk in part.
    pub fn begin(&self) -> Result<WritePiece, Refused> {
        let chunk = self.geometry.chunk_sectors().0;
        let count = (self.buffer.end - self.buffer.start) as u64 / SECTOR_BYTES;
        let (from, to) = (self.from.0, self.from.0 + count);
        let chunks = (from / chunk) as u32..to.div_ceil(chunk) as u32;
        let (place, in_use) = self
            .extent
            .begin_write(chunks.clone(), self.whole.clone())?;
        let start = if in_use.is_first(chunks.start) {
            u64::from(chunks.start) * chunk
        } else {
            from
        };
        let end = if in_use.is_first(chunks.end - 1) {
            u64::from(chunks.end) * chunk
        } else {
            to
        };
        Ok(WritePiece {
            disk: place.disk,
            start: self.geometry.sector_of(place) + SectorCount(start),
            count: SectorCount(end - start),
            lead: SectorCount(from - start),
            buffer: self.buffer.clone(),
            tail: SectorCount(end - to),
            in_use,
        })
    }
}
