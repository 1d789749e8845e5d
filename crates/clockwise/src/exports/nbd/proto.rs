//! The wire format of the NBD protocol: decoding a client's messages, encoding the server's.
//!
//! Pure functions on byte slices. All numbers on the wire are big-endian. Each message of a client is decoded, or
//! refused with an error reply, or reported as [`ProtocolError`], after which the connection must end.
//!
//! Source: `doc/proto.md` of the NBD project. Constants have the names of that document without their `NBD_` prefix.
//! Deliberately absent: TLS, oldstyle negotiation, and the experimental extensions (extended headers, resize).

pub mod option;
pub mod reply;
pub mod request;

pub use crate::exports::requests::{Durability, Errno};

/// The longest string of the protocol: export names, descriptions, error texts.
pub const STRING_BYTES_MAX: usize = 4096;

/// The most data of an option. The largest useful option is a meta context request with a name and a few dozen
/// queries.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;

/// The longest option that is skipped and answered with an error. A longer one ends the connection: no correct client
/// sends it.
pub const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;

/// The most bytes of options in one handshake: twice the need of a client that lists 8,192 volumes and sends three
/// options about each, with names of 255 bytes.
pub const OPTIONS_BYTES_MAX: u64 = 16 << 20;

/// The most queries that one meta context option may hold.
pub const QUERY_COUNT_MAX: u32 = 64;

/// The largest payload of a read or a write. It is the protocol's default for servers that announce no limit.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The longest payload of a refused write that is discarded to keep the connection. A longer one ends it.
pub const PAYLOAD_SKIP_BYTES_MAX: u32 = 64 << 20;

/// The least alignment of requests, a sector. An export on disks with larger blocks announces theirs.
pub const BLOCK_BYTES_MIN: u32 = 512;

/// The largest alignment that a server may demand.
pub const BLOCK_BYTES_MIN_MAX: u32 = 64 << 10;

/// The preferred block size: the page of most clients, and the smallest chunk for which a volume records that it has
/// been written.
pub const BLOCK_BYTES_PREFERRED: u32 = 4096;

/// The most extents in a reply to a block status request; the protocol allows 2^20. The client requests the rest
/// separately.
pub const STATUS_EXTENTS_MAX: usize = 4096;

const _: () = {
    assert!(OPTION_BYTES_MAX as usize > 2 * STRING_BYTES_MAX);
    assert!(OPTION_SKIP_BYTES_MAX > OPTION_BYTES_MAX);
    assert!(PAYLOAD_SKIP_BYTES_MAX >= PAYLOAD_BYTES_MAX);
    assert!(BLOCK_BYTES_PREFERRED.is_multiple_of(BLOCK_BYTES_MIN));
    assert!(PAYLOAD_BYTES_MAX.is_multiple_of(BLOCK_BYTES_PREFERRED));
    assert!(BLOCK_BYTES_MIN as u64 == sched::units::SECTOR_BYTES);
};

/// The transmission flags of an export (16 bits).
pub mod transmission_flags {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Forced unit access is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium rotates.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// Trim is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write zeroes is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The don't-fragment flag is supported. Requires structured replies.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the answered writes of all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// The cache command is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The fast zero flag is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// The reply to a request that cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestError {
    /// The protocol's error number.
    pub errno: Errno,
    /// An explanation for the user, which only structured replies can carry.
    pub text: &'static str,
}

/// A violation of the protocol after which the connection must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The client set handshake flags that the server did not offer.
    #[error("the client set unknown handshake flags {0:#x}")]
    ClientFlags(u32),
    /// An option did not begin with the magic number.
    #[error("an option began with {0:#018x} instead of the magic number")]
    OptionMagic(u64),
    /// An option announced more data than the limit.
    #[error("option {option} announced {length} bytes")]
    OptionLength {
        /// The option's number.
        option: u32,
        /// The length it announced, in bytes.
        length: u32,
    },
    /// The client sent too many options.
    #[error(
        "the options of one handshake exceed {}",
        sched::units::Bytes(OPTIONS_BYTES_MAX)
    )]
    OptionsLength,
    /// `NBD_OPT_EXPORT_NAME`, to which there is no error reply, named an export that does not exist.
    #[error("the client asked for an export that does not exist")]
    UnknownExport,
    /// A request did not begin with the magic number.
    #[error("a request began with {0:#010x} instead of the magic number")]
    RequestMagic(u32),
    /// A refused write announced a payload longer than the limit.
    #[error("a write announced {0} bytes")]
    PayloadLength(u32),
}

/// Reads big-endian numbers and byte strings from a slice. Returns `None` if the slice is too short.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string after its length of 32 bits.
    pub(super) fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
