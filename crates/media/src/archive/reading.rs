//! Blocks that are read without a deadline.

use super::sections::section_of;
use super::*;

impl Archive {
    /// A block of it, read without a deadline; `None`: it is not there any more, or damaged.
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
            return self.unless_cut(&reader, error);
        }
        Ok(self.looked_at(&bytes, serial).then_some(bytes))
    }

    /// The same into one of the buffers of the stream that is to play it, where it stays.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_for(&self, stream: &Stream, serial: u64) -> Result<Option<Buffer>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(stream.client());
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        let size = self.header.block_bytes;
        let buffer = match reader.read_whole((place + 1) * size, size) {
            Ok(buffer) => buffer,
            Err(error) => return self.unless_cut(&reader, error),
        };
        let looked_at = buffer.with(|bytes| self.looked_at(bytes, serial));
        let is_it = looked_at.map_err(|error| reader.failed(error.into()))?;
        Ok(is_it.then_some(buffer))
    }

    /// Whether bytes that were read are the block of this serial, whose section is kept then.
    fn looked_at(&self, bytes: &[u8], serial: u64) -> bool {
        let block = Block::parse(bytes).ok();
        let Some(block) = block.filter(|block| self.is_of(&block.trailer, serial)) else {
            return false;
        };
        if let Ok(section) = section_of(block.index(), serial) {
            self.keep(block.trailer.recording, serial, Some(Arc::new(section)));
        }
        true
    }

    /// What a block says that was read [for a stream](Self::read_for).
    ///
    /// # Errors
    /// When its memory was taken back.
    pub fn look_into<R>(
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

    /// Whether a block that was read is the one of this serial.
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

    /// A place that could not be read has nothing that counts if the ring has become another one meanwhile: the volume
    /// may be shorter.
    pub(super) fn unless_cut<T>(
        &self,
        reader: &Reader<'_>,
        error: ArchiveError,
    ) -> Result<Option<T>, ArchiveError> {
        match self.geometry() == reader.geometry {
            true => Err(error),
            false => Ok(None),
        }
    }

    /// How often it was read without a deadline.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// What the trailer of a block says; `None`: it is not there any more, or damaged.
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
            Err(error) => self.unless_cut(&reader, error),
        }
    }
}
