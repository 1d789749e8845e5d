//! Sections of the index, read without the rest of their blocks.

use super::*;

/// The end of a block is read in so many bytes, which have the section of nearly every block that has one.
const TAIL_READ_BYTES: u64 = 65_536;

/// What is read is a whole number of these.
const READ_GRAIN_BYTES: u64 = 4_096;

impl Archive {
    /// The section of the index that is in a block, read with as little of that as has it; `None`: it has none, or it is
    /// damaged, or not there any more.
    pub(super) fn read_section(
        &self,
        client: &Client,
        serial: u64,
    ) -> Result<Option<Index>, ArchiveError> {
        let size = self.header.block_bytes;
        let mut tail = self.tail(client, serial, TAIL_READ_BYTES.min(size))?;
        let trailer = Trailer::parse(&tail, size).ok();
        let trailer = trailer.filter(|of| self.is_of(of, serial) && of.has_section());
        let Some(trailer) = trailer else {
            return Ok(None);
        };
        let Some(needed) = trailer.section_bytes() else {
            // One of the first days, which only the checksum of the block is about.
            let block = self.read_block(client, serial)?;
            let block = block.as_deref().and_then(|bytes| Block::parse(bytes).ok());
            return Ok(block.and_then(|block| Index::parse(block.index()).ok()));
        };
        if needed > tail.len() as u64 {
            tail = self.tail(client, serial, needed.next_multiple_of(READ_GRAIN_BYTES))?;
        }
        let section = trailer.section(&tail);
        Ok(section.and_then(Index::parse).ok())
    }

    /// The last bytes of a block.
    fn tail(&self, client: &Client, serial: u64, bytes: u64) -> Result<Vec<u8>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let end = self.range().start + self.offset(serial).get() + self.header.block_bytes;
        let mut tail = vec![0; bytes as usize];
        self.reader(client).read(end - bytes, &mut tail)?;
        Ok(tail)
    }
}
