//! Opening an archive, and making one of a blank volume.

use super::*;

/// Contents of an archive when it was opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArchiveContents {
    recordings: Arc<[Recording]>,
    /// Serial of the newest block.
    newest: Option<u64>,
}

impl Archive {
    /// The contents, which save a search when the archive is opened again.
    pub(crate) fn contents(&self) -> ArchiveContents {
        let state = self.state();
        ArchiveContents {
            recordings: state.recordings.as_slice().into(),
            newest: state.next.checked_sub(1),
        }
    }

    /// True if a volume begins with an archive's header, even a damaged one or one of a later version.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_archive(client: &Client, volume: &Volume) -> Result<bool, ArchiveError> {
        let bytes = Self::read_header(client, volume)?;
        Ok(!matches!(Header::parse(&bytes), Err(FormatError::NotOne)))
    }

    /// The first bytes of a volume.
    pub(super) fn read_header(
        client: &Client,
        volume: &Volume,
    ) -> Result<[u8; HEADER_BYTES], ArchiveError> {
        let mut bytes = [0; HEADER_BYTES];
        Self::read_start(client, volume, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `to` from the start of the volume. What is behind the end of a smaller volume stays as it is.
    fn read_start(client: &Client, volume: &Volume, to: &mut [u8]) -> Result<(), ArchiveError> {
        let (size, alignment) = (volume.size().get(), volume.alignment().get());
        let whole = usize::try_from(size - size % alignment).unwrap_or(usize::MAX);
        let available = to.len().min(whole);
        let read = client.read_at(volume, Bytes::ZERO, &mut to[..available]);
        read.map_err(|error| ArchiveError::Io {
            volume: volume.name().to_owned(),
            error,
        })
    }

    /// True if nothing is written in a volume. Zeros in its first chunk count as nothing written: a crash may
    /// have left them while an archive was being made, and a chunk is the smallest unit that the pool's bits
    /// describe.
    fn is_blank(client: &Client, volume: &Volume) -> Result<bool, ArchiveError> {
        let size = volume.size().get();
        // The volume is one run of the same state, or a written run and then a hole; anything else is not
        // blank.
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
        Self::read_start(client, volume, &mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Opens the archive in a volume.
    ///
    /// # Errors
    /// When the volume is blank or has other content.
    pub fn open(client: &Client, volume: Arc<Volume>) -> Result<Self, ArchiveError> {
        Self::open_cached(client, volume, |_| ArchiveContents::default())
    }

    /// As [`open`](Self::open); `cached` returns the contents of an earlier opening that apply to the
    /// retention record.
    pub(crate) fn open_cached(
        client: &Client,
        volume: Arc<Volume>,
        cached: impl FnOnce(&RetentionRecord) -> ArchiveContents,
    ) -> Result<Self, ArchiveError> {
        let name = || volume.name().to_owned();
        let bytes = Self::read_header(client, &volume)?;
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
        let (record, is_geometry_in_both_copies) = reader.retention_record()?;
        let geometry = record.geometry.unwrap_or(reader.geometry);
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
            Ok(found.or_else(|| record.gone.last_in_place(place, &geometry)))
        };
        let cached = cached(&record);
        let newest = find_newest(&geometry, cached.newest, serial_in)?;
        let next = newest.map_or(0, |newest| newest + 1).max(record.gone.end());
        let trailer_in = |place| reader.trailer_in(place);
        let (deleted, before) = (&record.gone, &cached.recordings);
        let recordings = find_recordings(next, &geometry, deleted, before, trailer_in)?;
        let archive = Self::new(volume, header, record, next, recordings);
        archive.state().is_geometry_in_both_copies = is_geometry_in_both_copies;
        Ok(archive)
    }

    /// Makes an archive of an earlier version one of this version, before a block of this version is written there:
    /// programs that do not know such blocks refuse it from then on. All that changes lies in one sector, so the header
    /// is never torn.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(crate) fn upgrade(&self, client: &Client) -> Result<(), ArchiveError> {
        if Header::is_of_this_version(&Self::read_header(client, &self.volume)?) {
            return Ok(());
        }
        let written = client.write_at(&self.volume, Bytes::ZERO, &self.header.encode());
        let written = written.and_then(|()| client.flush(&self.volume));
        written.map_err(|error| ArchiveError::Io {
            volume: self.volume.name().to_owned(),
            error,
        })
    }

    fn new(
        volume: Arc<Volume>,
        header: Header,
        record: RetentionRecord,
        next: u64,
        recordings: Vec<Recording>,
    ) -> Self {
        let state = State {
            next,
            recordings,
            is_recorded: false,
            number: 0,
            last_number: record.last_number,
            deleted: record.gone.clone(),
            is_geometry_in_both_copies: true,
            geometry: record.geometry.unwrap_or(Geometry::new(header.blocks)),
            last_begin: None,
            recorder: None,
            check_at: None,
            blocks_max: blocks_max(record.keep, &header),
            sections: Sections::default(),
            so_far: VecDeque::new(),
            caches: HashMap::new(),
            listeners: Listeners::default(),
            last_end: None,
            described: None,
        };
        Self {
            volume,
            header,
            state: Mutex::new(state),
            retention_record: Mutex::new(record),
            writer: Mutex::new(Writer {
                next,
                is_check_pending: false,
                pending: None,
            }),
            settled: Condvar::new(),
            resizing: Mutex::default(),
            schedule: None,
            reads: AtomicU64::new(0),
        }
    }

    /// As [`open`](Self::open), but a blank volume becomes an archive with blocks of this size.
    ///
    /// # Errors
    /// When the volume has other content or is too small.
    pub fn open_or_create(
        client: &Client,
        volume: Arc<Volume>,
        block: Bytes,
    ) -> Result<Self, ArchiveError> {
        Self::open_or_create_cached(client, volume, block, |_| ArchiveContents::default())
    }

    /// As [`open_or_create`](Self::open_or_create), with `cached` as of [`open_cached`](Self::open_cached).
    pub(crate) fn open_or_create_cached(
        client: &Client,
        volume: Arc<Volume>,
        block: Bytes,
        cached: impl FnOnce(&RetentionRecord) -> ArchiveContents,
    ) -> Result<Self, ArchiveError> {
        match Self::open_cached(client, Arc::clone(&volume), cached) {
            Err(ArchiveError::Empty(_)) => {}
            other => return other,
        }
        debug_assert!(BLOCK_BYTES.contains(&block.get()) && block.get().is_power_of_two());
        let blocks = balanced(&volume, volume.size().get() / block.get(), block.get());
        if blocks < BLOCKS_MIN {
            return Err(ArchiveError::Small {
                volume: volume.name().to_owned(),
                block,
                needed: Bytes((BLOCKS_MIN + 1) * block.get()),
            });
        }
        let mut archive = [0; 16];
        // Random: blocks that an earlier archive left on the volume must not count.
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
        let record = RetentionRecord {
            archive,
            ..RetentionRecord::default()
        };
        Ok(Self::new(volume, header, record, 0, Vec::new()))
    }
}
