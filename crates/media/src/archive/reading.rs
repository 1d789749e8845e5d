//! Reads of blocks without a deadline.

use super::sections::parse_section;
use super::*;

impl Archive {
    /// Reads a block; `None` if it is damaged or has gone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_block(
        &self,
        client: &Client,
        serial: u64,
    ) -> Result<Option<Vec<u8>>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(client);
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        let size = self.header.block_bytes;
        let mut bytes = vec![0; size as usize];
        if let Err(error) = reader.read((place + 1) * size, &mut bytes) {
            return self.none_if_resized(&reader, error);
        }
        Ok(self.verify_block(&bytes, serial).then_some(bytes))
    }

    /// Reads a block into a buffer of the stream that is to play it, so that it need not be copied; `None` if
    /// it is damaged or has gone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_block_for(
        &self,
        stream: &Stream,
        serial: u64,
    ) -> Result<Option<Buffer>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(stream.client());
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        let size = self.header.block_bytes;
        let buffer = match reader.read_buffer((place + 1) * size, size) {
            Ok(buffer) => buffer,
            Err(error) => return self.none_if_resized(&reader, error),
        };
        let verified = buffer.with(|bytes| self.verify_block(bytes, serial));
        let is_right = verified.map_err(|error| reader.failed(error.into()))?;
        Ok(is_right.then_some(buffer))
    }

    /// Returns true if the bytes are the intact block of this serial. Caches its section of the index.
    fn verify_block(&self, bytes: &[u8], serial: u64) -> bool {
        let block = Block::parse(bytes).ok();
        let Some(block) = block.filter(|block| self.is_of(&block.trailer, serial)) else {
            return false;
        };
        if let Ok(section) = parse_section(block.index(), serial) {
            self.keep(block.trailer.recording, serial, Some(Arc::new(section)));
        }
        true
    }

    /// Calls `reader` with the block in a buffer of [`read_block_for`](Self::read_block_for); `None` if the
    /// block is damaged.
    ///
    /// # Errors
    /// When the buffer's memory was taken back.
    pub fn with_block<R>(
        &self,
        buffer: &Buffer,
        reader: impl FnOnce(&Block<'_>) -> R,
    ) -> Result<Option<R>, ArchiveError> {
        let read = buffer.with(|bytes| Block::parse(bytes).ok().map(|block| reader(&block)));
        read.map_err(|error| ArchiveError::Io {
            volume: self.volume.name().to_owned(),
            error: error.into(),
        })
    }

    /// True if a block that was read has this serial and belongs to this archive.
    #[must_use]
    pub fn is_of(&self, trailer: &Trailer, serial: u64) -> bool {
        trailer.archive == self.header.archive && trailer.serial == serial
    }

    pub(super) fn reader<'a>(&'a self, client: &'a Client) -> Reader<'a> {
        Reader {
            client,
            volume: &self.volume,
            header: self.header,
            geometry: self.geometry(),
        }
    }

    /// A read fails in place of finding nothing if the volume was shrunk after its place was computed: such a
    /// block has gone.
    pub(super) fn none_if_resized<T>(
        &self,
        reader: &Reader<'_>,
        error: ArchiveError,
    ) -> Result<Option<T>, ArchiveError> {
        match self.geometry() == reader.geometry {
            true => Err(error),
            false => Ok(None),
        }
    }

    /// Number of reads without a deadline so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads the trailer of a block; `None` if it is damaged or has gone.
    pub(crate) fn trailer(
        &self,
        client: &Client,
        serial: u64,
    ) -> Result<Option<Trailer>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(client);
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        match reader.trailer_in(place) {
            Ok(found) => Ok(found.filter(|of| of.serial == serial)),
            Err(error) => self.none_if_resized(&reader, error),
        }
    }
}
