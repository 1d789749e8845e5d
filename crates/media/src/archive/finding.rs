//! What is in an archive, found by reading little of it.

use engine::volume_io::SyncError;

use super::*;

/// Reads a volume without a deadline.
pub(super) struct Reader<'a> {
    pub(super) client: &'a Client,
    pub(super) volume: &'a Volume,
    pub(super) header: Header,
    pub(super) geometry: Geometry,
}

impl Reader<'_> {
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), ArchiveError> {
        let read = self.client.read_at(self.volume, Bytes(offset), out);
        read.map_err(|error| self.failed(error))
    }

    /// The same into a buffer of the client's.
    pub(super) fn read_whole(&self, offset: u64, bytes: u64) -> Result<Buffer, ArchiveError> {
        let read = self.client.read(self.volume, Bytes(offset), bytes as usize);
        read.map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: SyncError) -> ArchiveError {
        ArchiveError::Io {
            volume: self.volume.name().to_owned(),
            error,
        }
    }

    /// What is remembered of it, and whether both copies say how long the ring is.
    pub(super) fn kept(&self) -> Result<(RetentionRecord, bool), ArchiveError> {
        let mut copies = vec![0; 2 * COPY_BYTES];
        self.read(COPIES_AT[0], &mut copies)?;
        let (first, second) = copies.split_at(COPY_BYTES);
        let archive = self.header.archive;
        let kept = match RetentionRecord::newest(archive, [first, second]) {
            Err(FormatError::Damaged) => {
                let volume = self.volume.name();
                tracing::warn!(
                    volume,
                    "what was deleted there, and how long recordings are kept, is damaged in both copies and forgotten"
                );
                self.without_copies()
            }
            found => found.map_err(|error| ArchiveError::Header {
                volume: self.volume.name().to_owned(),
                error,
            }),
        };
        let kept = kept?;
        let is_ring_twice = kept.is_ring_twice([first, second]);
        Ok((kept, is_ring_twice))
    }

    fn without_copies(&self) -> Result<RetentionRecord, ArchiveError> {
        let room = (self.volume.size().get() / self.header.block_bytes).saturating_sub(1);
        recovered(&self.header, room, |place| self.any_trailer_in(place))
    }

    /// The trailer of the block in this place, if there is one of the archive.
    pub(super) fn trailer_in(&self, place: u64) -> Result<Option<Trailer>, ArchiveError> {
        let found = self.any_trailer_in(place)?;
        Ok(found.filter(|found| self.geometry.place(found.serial) == Some(place)))
    }

    /// The same of whatever serial.
    fn any_trailer_in(&self, place: u64) -> Result<Option<Trailer>, ArchiveError> {
        let mut bytes = [0; TRAILER_READ_BYTES as usize];
        let size = self.header.block_bytes;
        self.read((place + 2) * size - TRAILER_READ_BYTES, &mut bytes)?;
        let found = Trailer::parse(&bytes, size).ok();
        Ok(found.filter(|found| found.archive == self.header.archive))
    }
}

/// What blocks say of a ring of which nothing else does, in a volume with room for so many: that it is the header's; or it
/// has the round of those in the first places and is as long as the volume, and then what is of the round before is lost.
pub(super) fn recovered<E>(
    header: &Header,
    room: u64,
    mut any_trailer_in: impl FnMut(u64) -> Result<Option<Trailer>, E>,
) -> Result<RetentionRecord, E> {
    let mut kept = RetentionRecord {
        archive: header.archive,
        ..RetentionRecord::default()
    };
    let mut base = None;
    for place in 0..room.min(LOOK_BEHIND) {
        let found = any_trailer_in(place)?;
        base = base.max(found.and_then(|found| found.serial.checked_sub(place)));
    }
    let base = base.unwrap_or(0);
    let mut is_other = room < header.blocks || base % header.blocks != 0;
    for place in header.blocks..room.min(header.blocks + LOOK_BEHIND) {
        is_other = is_other || any_trailer_in(place)?.is_some();
    }
    if is_other {
        kept.gone.add(0..base);
        kept.geometry = Some(Geometry { base, blocks: room });
    }
    Ok(kept)
}

/// The serial of the newest block of a ring, given those of what is in each place; or, if it was known before, and is still
/// there, and nothing newer is where that would be, that.
pub(super) fn newest<E>(
    geometry: &Geometry,
    known: Option<u64>,
    mut serial_in: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<Option<u64>, E> {
    if let Some(known) = known
        && is_newest(geometry, known, &mut serial_in)?
    {
        return Ok(Some(known));
    }
    let Geometry { base, blocks } = *geometry;
    let count_in = |place: u64| Ok(serial_in(place)?.and_then(|of| of.checked_sub(base)));
    Ok(newest_of(blocks, count_in)?.map(|count| base + count))
}

/// Whether a block is there, and none behind it.
fn is_newest<E>(
    geometry: &Geometry,
    serial: u64,
    mut serial_in: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<bool, E> {
    let places = geometry.blocks.min(LOOK_BEHIND + 1);
    for behind in serial..serial.saturating_add(places) {
        let place = geometry.place(behind);
        let found = place.map_or(Ok(None), &mut serial_in)?;
        let is_it = match behind == serial {
            true => found == Some(serial),
            false => found.is_none_or(|found| found < serial),
        };
        if !is_it {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The same of a ring that begins with 0.
fn newest_of<E>(
    blocks: u64,
    mut serial_in: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<Option<u64>, E> {
    // What begins or ends the ring may be damaged, was being overwritten, or has been deleted.
    let mut first = None;
    for place in 0..blocks.min(LOOK_BEHIND) {
        first = first.max(serial_in(place)?);
    }
    let mut last = None;
    for place in blocks - blocks.min(LOOK_BEHIND)..blocks {
        last = last.max(serial_in(place)?);
    }
    let Some(first) = first else {
        return Ok(last);
    };
    let round = first / blocks;
    if last.is_some_and(|last| last / blocks > round) {
        return Ok(last);
    }
    let mut in_round = |place: u64| {
        let of = serial_in(place)?;
        Ok(of.filter(|of| of / blocks == round))
    };
    let (mut newest, mut from, mut to) = (first, first % blocks, blocks);
    loop {
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            match in_round(middle)? {
                Some(of) => (newest, from) = (of, middle),
                None => to = middle,
            }
        }
        let mut further = None;
        for place in (from + 1)..blocks.min(from + 1 + LOOK_BEHIND) {
            further = in_round(place)?.map(|of| (of, place));
            if further.is_some() {
                break;
            }
        }
        match further {
            Some((of, place)) => (newest, from, to) = (of, place, blocks),
            None => return Ok(Some(newest)),
        }
    }
}

/// All recordings up to the block before `next` that were not deleted as a whole, in order. Behind one of those that were
/// there when they were looked for before is the rest of these, which is not looked for again.
pub(super) fn recordings<E>(
    next: u64,
    geometry: &Geometry,
    gone: &Gone,
    known: &[Recording],
    mut trailer_in: impl FnMut(u64) -> Result<Option<Trailer>, E>,
) -> Result<Vec<Recording>, E> {
    let oldest = geometry.oldest(next);
    let mut recordings = Vec::new();
    let mut at = next;
    let mut is_known = false;
    while let Some(serial) = at.checked_sub(1).filter(|serial| *serial >= oldest) {
        if let Some(range) = gone.range_of(serial) {
            at = range.start;
            continue;
        }
        let before = known.partition_point(|of| of.end <= at).checked_sub(1);
        let before = before.map(|place| known[place]);
        if is_known {
            let Some(of) = before else { break };
            if of.end == at {
                let first = of.first.max(oldest);
                recordings.push(Recording { first, ..of });
                at = first;
            } else {
                // Blocks that were damaged, or were passed over as they had gone.
                at = of.end;
            }
            continue;
        }
        let found = geometry.place(serial).map_or(Ok(None), &mut trailer_in)?;
        // Blocks that are damaged are passed over.
        let Some(last) = found.filter(|found| found.serial == serial) else {
            at = serial;
            continue;
        };
        is_known = before.is_some_and(|of| {
            let is_it = (of.number, of.begun_unix_ns) == (last.recording, last.begun_unix_ns);
            is_it && of.end == at
        });
        let first = last.first.max(oldest);
        recordings.push(Recording {
            number: last.recording,
            first,
            end: serial + 1,
            begun_unix_ns: last.begun_unix_ns,
        });
        at = first;
    }
    recordings.reverse();
    Ok(recordings)
}
