//! Finding the newest block and the recordings of an archive with few reads.

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

    /// Reads into a buffer of the client.
    pub(super) fn read_buffer(&self, offset: u64, bytes: u64) -> Result<Buffer, ArchiveError> {
        let read = self.client.read(self.volume, Bytes(offset), bytes as usize);
        read.map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: SyncError) -> ArchiveError {
        ArchiveError::Io {
            volume: self.volume.name().to_owned(),
            error,
        }
    }

    /// The retention record, and true if both copies have its geometry.
    pub(super) fn retention_record(&self) -> Result<(RetentionRecord, bool), ArchiveError> {
        let mut copies = vec![0; 2 * COPY_BYTES];
        self.read(COPIES_AT[0], &mut copies)?;
        let (first, second) = copies.split_at(COPY_BYTES);
        let archive = self.header.archive;
        let record = match RetentionRecord::newest(archive, [first, second]) {
            Err(FormatError::Damaged) => {
                let volume = self.volume.name();
                tracing::warn!(
                    volume,
                    "both copies of the retention record are damaged: deleted recordings may be back, and no retention limits are in force"
                );
                self.recover_record()
            }
            found => found.map_err(|error| ArchiveError::Header {
                volume: self.volume.name().to_owned(),
                error,
            }),
        };
        let record = record?;
        let is_geometry_in_both_copies = record.is_geometry_in_both([first, second]);
        Ok((record, is_geometry_in_both_copies))
    }

    fn recover_record(&self) -> Result<RetentionRecord, ArchiveError> {
        let room = (self.volume.size().get() / self.header.block_bytes).saturating_sub(1);
        recover_record(&self.header, room, |place| self.any_trailer_in(place))
    }

    /// The trailer of the block in this place, if the block belongs there by the geometry.
    pub(super) fn trailer_in(&self, place: u64) -> Result<Option<Trailer>, ArchiveError> {
        let found = self.any_trailer_in(place)?;
        Ok(found.filter(|found| self.geometry.place(found.serial) == Some(place)))
    }

    /// The trailer of the block in this place, if the block belongs to the archive.
    fn any_trailer_in(&self, place: u64) -> Result<Option<Trailer>, ArchiveError> {
        let mut bytes = [0; TRAILER_READ_BYTES as usize];
        let size = self.header.block_bytes;
        self.read((place + 2) * size - TRAILER_READ_BYTES, &mut bytes)?;
        let found = Trailer::parse(&bytes, size).ok();
        Ok(found.filter(|found| found.archive == self.header.archive))
    }
}

/// Makes a retention record from blocks when both copies are damaged; `room` is the number of places that the
/// volume has. The ring is as the header says, or, if the blocks contradict that, as long as the volume; then
/// the base is the start of the newest round, and older blocks are lost.
pub(super) fn recover_record<E>(
    header: &Header,
    room: u64,
    mut any_trailer_in: impl FnMut(u64) -> Result<Option<Trailer>, E>,
) -> Result<RetentionRecord, E> {
    let mut record = RetentionRecord {
        archive: header.archive,
        ..RetentionRecord::default()
    };
    let mut base = None;
    for place in 0..room.min(LOOK_BEHIND) {
        let found = any_trailer_in(place)?;
        base = base.max(found.and_then(|found| found.serial.checked_sub(place)));
    }
    let base = base.unwrap_or(0);
    let mut is_resized = room < header.blocks || base % header.blocks != 0;
    for place in header.blocks..room.min(header.blocks + LOOK_BEHIND) {
        is_resized = is_resized || any_trailer_in(place)?.is_some();
    }
    if is_resized {
        record.gone.add(0..base);
        record.geometry = Some(Geometry { base, blocks: room });
    }
    Ok(record)
}

/// The serial of the newest block. `cached` is its serial at an earlier opening, which needs no search if
/// nothing was written since. `serial_in` returns the serial in a place; for a deleted block it is the last
/// one that was there.
pub(super) fn find_newest<E>(
    geometry: &Geometry,
    cached: Option<u64>,
    mut serial_in: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<Option<u64>, E> {
    if let Some(cached) = cached
        && is_newest(geometry, cached, &mut serial_in)?
    {
        return Ok(Some(cached));
    }
    let Geometry { base, blocks } = *geometry;
    // Counted from the base, so that the ring begins with 0.
    let count_in = |place: u64| Ok(serial_in(place)?.and_then(|of| of.checked_sub(base)));
    Ok(find_newest_by_bisection(blocks, count_in)?.map(|count| base + count))
}

/// True if the block of this serial is there, and no newer one is in the places behind it.
fn is_newest<E>(
    geometry: &Geometry,
    serial: u64,
    mut serial_in: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<bool, E> {
    let places = geometry.blocks.min(LOOK_BEHIND + 1);
    for after in serial..serial.saturating_add(places) {
        let place = geometry.place(after);
        let found = place.map_or(Ok(None), &mut serial_in)?;
        let agrees = match after == serial {
            true => found == Some(serial),
            false => found.is_none_or(|found| found < serial),
        };
        if !agrees {
            return Ok(false);
        }
    }
    Ok(true)
}

/// As [`find_newest`] for a ring whose base is 0. In the newest round serials grow with the place up to the
/// newest block.
fn find_newest_by_bisection<E>(
    blocks: u64,
    mut serial_in: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<Option<u64>, E> {
    // Several places at either end of the ring are read, because a block may be damaged or torn.
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

/// All recordings with blocks before `next` that are not deleted, in order. It goes from the newest block
/// backwards, with one read for each recording. When it meets one of `cached`, the recordings at an earlier
/// opening, it takes the rest from there.
pub(super) fn find_recordings<E>(
    next: u64,
    geometry: &Geometry,
    deleted: &DeletedRanges,
    cached: &[Recording],
    mut trailer_in: impl FnMut(u64) -> Result<Option<Trailer>, E>,
) -> Result<Vec<Recording>, E> {
    let oldest = geometry.oldest(next);
    let mut recordings = Vec::new();
    let mut at = next;
    let mut is_cached = false;
    while let Some(serial) = at.checked_sub(1).filter(|serial| *serial >= oldest) {
        if let Some(range) = deleted.range_of(serial) {
            at = range.start;
            continue;
        }
        let before = cached.partition_point(|of| of.end <= at).checked_sub(1);
        let before = before.map(|place| cached[place]);
        if is_cached {
            let Some(of) = before else { break };
            if of.end == at {
                let first = of.first.max(oldest);
                recordings.push(Recording { first, ..of });
                at = first;
            } else {
                // The blocks between are damaged, or their recording was deleted.
                at = of.end;
            }
            continue;
        }
        let found = geometry.place(serial).map_or(Ok(None), &mut trailer_in)?;
        // Damaged blocks are skipped.
        let Some(last) = found.filter(|found| found.serial == serial) else {
            at = serial;
            continue;
        };
        is_cached = before.is_some_and(|of| {
            let is_same = (of.number, of.begun_unix_ns) == (last.recording, last.begun_unix_ns);
            is_same && of.end == at
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
