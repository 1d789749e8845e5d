//! A volume becomes an archive, or is found to be one.

use super::*;

/// What was in an archive when it was opened last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    recordings: Arc<[Recording]>,
    /// The serial of its newest block.
    newest: Option<u64>,
}

impl Archive {
    /// What is in it, for who opens it again.
    pub(crate) fn before(&self) -> Before {
        let state = self.state();
        Before {
            recordings: state.recordings.as_slice().into(),
            newest: state.next.checked_sub(1),
        }
    }

    /// Whether a volume is one for recordings, whatever has become of them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_in(client: &Client, volume: &Volume) -> Result<bool, ArchiveError> {
        let bytes = Self::head(client, volume)?;
        Ok(!matches!(Header::parse(&bytes), Err(FormatError::NotOne)))
    }

    /// What a volume begins with.
    pub(super) fn head(
        client: &Client,
        volume: &Volume,
    ) -> Result<[u8; HEADER_BYTES], ArchiveError> {
        let mut bytes = [0; HEADER_BYTES];
        Self::read_head(client, volume, &mut bytes)?;
        Ok(bytes)
    }

    /// Of a volume that has less there are zeros behind its end, so that it is not taken for an archive.
    fn read_head(client: &Client, volume: &Volume, to: &mut [u8]) -> Result<(), ArchiveError> {
        let (size, alignment) = (volume.size().get(), volume.alignment().get());
        let whole = usize::try_from(size - size % alignment).unwrap_or(usize::MAX);
        let there = to.len().min(whole);
        let read = client.read_at(volume, Bytes::ZERO, &mut to[..there]);
        read.map_err(|error| ArchiveError::Io {
            volume: volume.name().to_owned(),
            error,
        })
    }

    /// Whether nothing was written to a volume, or what was is discarded. Zeros in its first chunk, which is what is told
    /// of at least, are nothing: they may be what a crash has left of an archive that was being made.
    fn is_blank(client: &Client, volume: &Volume) -> Result<bool, ArchiveError> {
        let size = volume.size().get();
        // More than this is no whole volume, or more than a chunk at its beginning.
        let runs = volume.block_status(0..size, 2);
        let written = match &runs[..] {
            [all] if all.bytes.end == size => (!all.hole).then_some(&all.bytes),
            [first, rest] if rest.bytes.end == size && rest.hole => Some(&first.bytes),
            _ => return Ok(false),
        };
        let Some(written) = written else {
            return Ok(true);
        };
        if written.end > CHUNK_BYTES_MAX {
            return Ok(false);
        }
        let mut bytes = vec![0; written.end as usize];
        Self::read_head(client, volume, &mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// What has been recorded in a volume.
    ///
    /// # Errors
    /// When that is nothing, or something else.
    pub fn open(client: &Client, volume: Arc<Volume>) -> Result<Self, ArchiveError> {
        Self::open_again(client, volume, |_| Before::default())
    }

    /// The same, of which it may be known what was there before, which is not looked for again.
    pub(crate) fn open_again(
        client: &Client,
        volume: Arc<Volume>,
        known: impl FnOnce(&RetentionRecord) -> Before,
    ) -> Result<Self, ArchiveError> {
        let name = || volume.name().to_owned();
        let bytes = Self::head(client, &volume)?;
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(FormatError::NotOne) if Self::is_blank(client, &volume)? => {
                return Err(ArchiveError::Empty(name()));
            }
            Err(FormatError::NotOne) => return Err(ArchiveError::Foreign(name())),
            Err(error) => {
                return Err(ArchiveError::Header {
                    volume: name(),
                    error,
                });
            }
        };
        let reader = Reader {
            client,
            volume: &volume,
            header,
            geometry: Geometry::new(header.blocks),
        };
        let (kept, is_ring_twice) = reader.kept()?;
        let geometry = kept.geometry.unwrap_or(reader.geometry);
        let blocks = geometry.blocks.checked_add(1);
        let needed = blocks.and_then(|blocks| blocks.checked_mul(header.block_bytes));
        let needed = Bytes(needed.unwrap_or(u64::MAX));
        if volume.size() < needed {
            return Err(ArchiveError::Short {
                volume: name(),
                size: volume.size(),
                needed,
            });
        }
        let reader = Reader { geometry, ..reader };
        let serial_in = |place: u64| {
            let found = reader.trailer_in(place)?.map(|of| of.serial);
            Ok(found.or_else(|| kept.gone.in_place(place, &geometry)))
        };
        let known = known(&kept);
        let newest = newest(&geometry, known.newest, serial_in)?;
        let next = newest.map_or(0, |newest| newest + 1).max(kept.gone.end());
        let trailer_in = |place| reader.trailer_in(place);
        let recordings = recordings(next, &geometry, &kept.gone, &known.recordings, trailer_in)?;
        let archive = Self::new(volume, header, kept, next, recordings);
        archive.state().is_ring_twice = is_ring_twice;
        Ok(archive)
    }

    fn new(
        volume: Arc<Volume>,
        header: Header,
        kept: RetentionRecord,
        next: u64,
        recordings: Vec<Recording>,
    ) -> Self {
        let state = State {
            next,
            recordings,
            is_recorded: false,
            number: 0,
            last_number: kept.last_number,
            gone: kept.gone.clone(),
            is_ring_twice: true,
            geometry: kept.geometry.unwrap_or(Geometry::new(header.blocks)),
            begun: None,
            recorder: None,
            look_at: None,
            most: blocks_of(kept.keep, &header),
            sections: Sections::default(),
            so_far: VecDeque::new(),
            known: HashMap::new(),
            listeners: Listeners::default(),
        };
        Self {
            volume,
            header,
            state: Mutex::new(state),
            kept: Mutex::new(kept),
            writer: Mutex::new(Writer {
                next,
                is_looked_at: false,
                pending: None,
            }),
            settled: Condvar::new(),
            resizing: Mutex::default(),
            looks: None,
            reads: AtomicU64::new(0),
        }
    }

    /// The same, which makes a blank volume one with blocks of this size.
    ///
    /// # Errors
    /// When it holds something else, or has no room.
    pub fn open_or_create(
        client: &Client,
        volume: Arc<Volume>,
        block: Bytes,
    ) -> Result<Self, ArchiveError> {
        Self::open_or_create_again(client, volume, block, |_| Before::default())
    }

    /// The same, of which it may be known what was there before.
    pub(crate) fn open_or_create_again(
        client: &Client,
        volume: Arc<Volume>,
        block: Bytes,
        known: impl FnOnce(&RetentionRecord) -> Before,
    ) -> Result<Self, ArchiveError> {
        match Self::open_again(client, Arc::clone(&volume), known) {
            Err(ArchiveError::Empty(_)) => {}
            other => return other,
        }
        debug_assert!(BLOCK_BYTES.contains(&block.get()) && block.get().is_power_of_two());
        let blocks = even(&volume, volume.size().get() / block.get(), block.get());
        if blocks < BLOCKS_MIN {
            return Err(ArchiveError::Small {
                volume: volume.name().to_owned(),
                block,
                needed: Bytes((BLOCKS_MIN + 1) * block.get()),
            });
        }
        let mut archive = [0; 16];
        // A number that nobody else has: without one, what was there before could be taken for its blocks.
        let random = rustix::rand::getrandom(&mut archive, rustix::rand::GetRandomFlags::empty());
        debug_assert_eq!(random, Ok(16));
        let header = Header {
            archive,
            block_bytes: block.get(),
            blocks,
        };
        let failed = |error| ArchiveError::Io {
            volume: volume.name().to_owned(),
            error,
        };
        let written = client.write_at(&volume, Bytes::ZERO, &header.encode());
        written.map_err(failed)?;
        client.flush(&volume).map_err(failed)?;
        let kept = RetentionRecord {
            archive,
            ..RetentionRecord::default()
        };
        Ok(Self::new(volume, header, kept, 0, Vec::new()))
    }
}
