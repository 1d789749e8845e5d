//! The track buffer of a stream that reads (thesis 7.2.2).
//!
//! A block mostly ends within a track. On a drive that reads whole tracks, the rest of that track is read with the
//! block, kept in variable memory, and used for the beginning of the next block, which then begins with a track.
//! Otherwise the drive reads the shared track twice: half a rotation for each block.
//!
//! The kept bytes count only while the volume has not changed: [`VolumeCore::content_changes`] is read before the
//! block is submitted and again when the kept bytes are used. It counts each change at its begin and at its end.
//! So if both values are the same, each change had ended before the read began, or is still under way.
//!
//! [`VolumeCore::content_changes`]: crate::state::volume::VolumeCore::content_changes

use std::ops::Range;

use sched::request::Op as Direction;
use sched::units::{SECTOR_BYTES, Sector};

use super::Session;
use crate::buffer::{Buffer, Segments};
use crate::volume_io::stream::Stream;

/// The track buffer of a session.
pub(super) struct TrackBuffer {
    /// The longest track of the stream's disks in bytes; 0 if keeping tracks does not pay there.
    track_bytes: usize,
    /// Absent until it is first needed, and while memory is scarce.
    buffer: Option<Buffer>,
    content: Content,
    /// The end of the last block. A block that begins elsewhere is not read sequentially.
    sequential_at: Option<u64>,
}

/// Content of the buffer.
enum Content {
    Nothing,
    /// It is being filled with the bytes from `from` on, by the block with this index.
    Reading {
        index: u64,
        from: u64,
        changes: u64,
    },
    /// These bytes of the volume.
    Kept {
        bytes: Range<u64>,
        changes: u64,
    },
}

impl TrackBuffer {
    pub(super) fn new(stream: &Stream) -> Self {
        let disks = &stream.pool().io.disks;
        let track = |disk: usize| {
            let predictor = &disks[disk].predictor;
            let track = predictor
                .track(Sector(0))
                .filter(|_| predictor.reads_tracks())?;
            // Tracks do not get longer inwards.
            Some((track.end - track.start).0 * SECTOR_BYTES)
        };
        let tasks = stream.core().tasks();
        let longest = tasks.iter().filter_map(|task| track(task.disk)).max();
        // For blocks of one to two tracks, whole tracks take longer than the blocks alone: docs/results/tracks.md.
        let pays = |track: &u64| stream.op() == Direction::Read && 2 * *track <= stream.buffer().0;
        let longest = longest.filter(pays);
        Self {
            track_bytes: longest.unwrap_or(0) as usize,
            buffer: None,
            content: Content::Nothing,
            sequential_at: None,
        }
    }

    /// The block with this index has been read, with so many bytes after it; `None` if it failed.
    pub(super) fn block_read(&mut self, index: u64, ahead: Option<u64>) {
        let Content::Reading {
            index: of,
            from,
            changes,
        } = self.content
        else {
            return;
        };
        if of != index {
            return;
        }
        self.content = match ahead {
            None | Some(0) => Content::Nothing,
            Some(ahead) => Content::Kept {
                bytes: from..from + ahead,
                changes,
            },
        };
    }

    /// The block with this index was not submitted.
    pub(super) fn not_submitted(&mut self, index: u64) {
        self.block_read(index, None);
    }

    /// Copies kept bytes to the beginning of a block's memory. Returns their number.
    fn copy(&self, offset: u64, memory: &Segments, changes: u64) -> u64 {
        let (Some(buffer), Content::Kept { bytes, changes: at }) = (&self.buffer, &self.content)
        else {
            return 0;
        };
        let end = offset + memory.size() as u64;
        if *at != changes || !bytes.contains(&offset) || bytes.end >= end {
            return 0;
        }
        let kept = (offset - bytes.start) as usize..(bytes.end - bytes.start) as usize;
        let count = kept.len() as u64;
        // The buffer may have been taken back.
        let copied = buffer.with(|content| memory.copy_from(0, &content[kept]));
        copied.map_or(0, |()| count)
    }
}

impl Session<'_> {
    /// Serves the beginning of a block at `offset` of the volume out of the track buffer. Returns the rest of the
    /// block's memory, which begins `kept` bytes later, and the buffer's memory for the rest of the last track.
    pub(super) fn through_track_buffer(
        &mut self,
        offset: u64,
        memory: Segments,
    ) -> (u64, Segments, Option<Segments>) {
        if self.track.track_bytes == 0 {
            return (0, memory, None);
        }
        let changes = self.stream.volume().core().content_changes();
        let end = offset + memory.size() as u64;
        let mut kept = self.track.copy(offset, &memory, changes);
        let memory = match memory.slice(kept as usize..memory.size()) {
            Ok(rest) => rest,
            Err(_) => {
                kept = 0;
                memory
            }
        };
        self.stream.core().stats.note_kept(kept);
        let is_sequential = self.track.sequential_at.replace(end) == Some(offset);
        let is_reading = matches!(self.track.content, Content::Reading { .. });
        if is_reading || !is_sequential {
            return (kept, memory, None);
        }
        self.track.content = Content::Nothing;
        // Returned at once when the memory is scarce; a later block asks again.
        self.track.buffer = self
            .track
            .buffer
            .take()
            .filter(|buffer| !buffer.is_wanted_back());
        if self.track.buffer.is_none() {
            let account = self.stream.client().account();
            self.track.buffer = account.allocate(self.track.track_bytes).ok();
        }
        let buffer = self.track.buffer.as_ref();
        let ahead = buffer.and_then(|buffer| {
            let whole = 0..self.track.track_bytes;
            buffer.segments(Direction::Read, whole).ok()
        });
        if ahead.is_some() {
            self.track.content = Content::Reading {
                index: self.next_index,
                from: end,
                changes,
            };
        }
        (kept, memory, ahead)
    }
}
