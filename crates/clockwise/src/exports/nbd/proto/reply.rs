//! The transmission phase, server to client: simple replies and structured reply chunks.

use super::{Errno, STRING_BYTES_MAX, option::BASE_ALLOCATION_ID};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;

const FLAG_DONE: u16 = 1 << 0;

const TYPE_NONE: u16 = 0;
const TYPE_OFFSET_DATA: u16 = 1;
const TYPE_OFFSET_HOLE: u16 = 2;
const TYPE_BLOCK_STATUS: u16 = 5;
const TYPE_ERROR: u16 = (1 << 15) | 1;

/// Bytes of a simple reply without its data.
pub const SIMPLE_BYTES: usize = 16;
/// Bytes of a structured reply chunk's header.
pub const CHUNK_BYTES: usize = 20;
/// Bytes in front of the data of a structured read reply.
pub const OFFSET_DATA_BYTES: usize = CHUNK_BYTES + 8;

/// The range is not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// The range reads as zeros.
pub const STATE_ZERO: u32 = 1 << 1;

/// The format of the replies on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyFormat {
    /// Simple replies, which carry no offset and no text.
    Simple,
    /// Structured reply chunks.
    Structured,
}

/// The position of a chunk in its structured reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkPosition {
    /// More chunks follow.
    Inner,
    /// The chunk ends the reply (`NBD_REPLY_FLAG_DONE`).
    Last,
}

impl ChunkPosition {
    const fn flags(self) -> u16 {
        match self {
            Self::Inner => 0,
            Self::Last => FLAG_DONE,
        }
    }
}

/// A reply without the data of a read, which is sent from its own memory.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    length: u8,
}

/// The longest [`ReplyHeader`]: a chunk for a hole.
const HEADER_BYTES_MAX: usize = CHUNK_BYTES + 12;

impl ReplyHeader {
    fn new(parts: &[&[u8]]) -> Self {
        let mut header = Self {
            bytes: [0; HEADER_BYTES_MAX],
            length: 0,
        };
        for part in parts {
            let at = usize::from(header.length);
            header.bytes[at..at + part.len()].copy_from_slice(part);
            header.length += part.len() as u8;
        }
        header
    }

    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

fn chunk_header(flags: u16, kind: u16, cookie: u64, length: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    bytes[..4].copy_from_slice(&STRUCTURED_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A simple reply. The data follows after a successful read.
#[must_use]
pub fn simple(cookie: u64, error: Option<Errno>) -> ReplyHeader {
    let error = error.map_or(0, |errno| errno as u32);
    ReplyHeader::new(&[
        &SIMPLE_MAGIC.to_be_bytes(),
        &error.to_be_bytes(),
        &cookie.to_be_bytes(),
    ])
}

/// The last chunk of a structured reply, without content.
#[must_use]
pub fn done(cookie: u64) -> ReplyHeader {
    ReplyHeader::new(&[&chunk_header(FLAG_DONE, TYPE_NONE, cookie, 0)])
}

/// The header of a chunk with `length` bytes of data at `offset`, which follow it.
#[must_use]
pub fn offset_data(cookie: u64, offset: u64, length: u32, position: ChunkPosition) -> ReplyHeader {
    let header = chunk_header(position.flags(), TYPE_OFFSET_DATA, cookie, length + 8);
    ReplyHeader::new(&[&header, &offset.to_be_bytes()])
}

/// A chunk for `length` zeros at `offset`, which are not sent.
#[must_use]
pub fn offset_hole(cookie: u64, offset: u64, length: u32, position: ChunkPosition) -> ReplyHeader {
    let header = chunk_header(position.flags(), TYPE_OFFSET_HOLE, cookie, 12);
    ReplyHeader::new(&[&header, &offset.to_be_bytes(), &length.to_be_bytes()])
}

/// Appends an error as the last chunk of its reply. `text` is for the user, and is cut at [`STRING_BYTES_MAX`].
pub fn error(out: &mut Vec<u8>, cookie: u64, errno: Errno, text: &str) {
    let mut end = text.len().min(STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text.as_bytes()[..end];
    let length = 6 + text.len();
    out.extend_from_slice(&chunk_header(FLAG_DONE, TYPE_ERROR, cookie, length as u32));
    out.extend_from_slice(&(errno as u32).to_be_bytes());
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}

/// An extent of equal status in a reply to a block status request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusExtent {
    /// Length in bytes, not zero.
    pub length: u32,
    /// Any of [`STATE_HOLE`] and [`STATE_ZERO`].
    pub state: u32,
}

/// Appends the reply to a block status request: at least one extent, the first one at the request's offset.
pub fn block_status(out: &mut Vec<u8>, cookie: u64, extents: &[StatusExtent]) {
    let length = 4 + 8 * extents.len();
    out.extend_from_slice(&chunk_header(
        FLAG_DONE,
        TYPE_BLOCK_STATUS,
        cookie,
        length as u32,
    ));
    out.extend_from_slice(&BASE_ALLOCATION_ID.to_be_bytes());
    for extent in extents {
        out.extend_from_slice(&extent.length.to_be_bytes());
        out.extend_from_slice(&extent.state.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_documented_layout() {
        let bytes = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(simple(9, Some(Errno::Invalid)).as_bytes(), bytes);

        let data = offset_data(9, 512, 4096, ChunkPosition::Last);
        assert_eq!(data.as_bytes().len(), OFFSET_DATA_BYTES);
        assert_eq!(data.as_bytes()[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1]);
        assert_eq!(data.as_bytes()[16..20], [0, 0, 0x10, 8]);
        assert_eq!(data.as_bytes()[20..], [0, 0, 0, 0, 0, 0, 2, 0]);

        let hole = offset_hole(9, 512, 4096, ChunkPosition::Inner);
        assert_eq!(hole.as_bytes()[4..8], [0, 0, 0, 2]);
        assert_eq!(hole.as_bytes().len(), HEADER_BYTES_MAX);
        assert_eq!(done(1).as_bytes()[4..8], [0, 1, 0, 0]);
    }

    #[test]
    fn error_chunk_has_a_text_and_ends_the_reply() {
        let mut out = Vec::new();
        error(&mut out, 3, Errno::Io, "disk 2 failed");
        assert_eq!(out[4..8], [0, 1, 0x80, 1]);
        assert_eq!(out[16..20], [0, 0, 0, 19]);
        assert_eq!(out[20..26], [0, 0, 0, 5, 0, 13]);
        assert_eq!(&out[26..], b"disk 2 failed");
    }

    #[test]
    fn block_status_lists_extents_after_the_context() {
        let mut out = Vec::new();
        let hole = StatusExtent {
            length: 65536,
            state: STATE_HOLE | STATE_ZERO,
        };
        block_status(
            &mut out,
            3,
            &[
                hole,
                StatusExtent {
                    length: 512,
                    state: 0,
                },
            ],
        );
        assert_eq!(out[6..8], [0, 5]);
        assert_eq!(out[16..24], [0, 0, 0, 20, 0, 0, 0, 1]);
        assert_eq!(out[24..], [0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 2, 0, 0, 0, 0, 0]);
    }
}
