//! The bytes of the NBD protocol: decoding what a client sends, encoding what a server answers.
//!
//! Pure functions on byte slices. All numbers on the wire are big-endian. Everything that a client
//! can send is either decoded, refused with an error that the protocol has a place for, or reported
//! as [`Fatal`]: the stream can no longer be understood and the connection must end.
//!
//! Source: `doc/proto.md` of the NBD project (the names of constants are that document's, less
//! their `NBD_` prefix). Deliberately absent: TLS, oldstyle negotiation, and the experimental
//! extensions (extended headers, resize).

pub mod option;
pub mod reply;
pub mod request;

pub use crate::exports::requests::Errno;

/// The longest string the protocol allows: export names, descriptions, error texts.
pub const STRING_BYTES_MAX: usize = 4096;

/// The most data an option may carry. The largest option with a use here is a meta context request
/// with a name and a few dozen queries.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;

/// The longest option that is skipped and answered with an error; a longer one ends the connection,
/// because nothing honest sends it.
pub const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;

/// The most bytes of options in one handshake: twice what a client sends that lists 8,192 volumes and asks three things about
/// each by a name of 255 bytes.
pub const OPTIONS_BYTES_MAX: u64 = 16 << 20;

/// The most queries that one meta context option may hold.
pub const QUERY_COUNT_MAX: u32 = 64;

/// The largest payload of a read or a write, which is what the protocol tells clients to expect of
/// a server that says nothing.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The longest payload of a refused write that is read and thrown away to keep the connection; a
/// longer one ends it.
pub const PAYLOAD_SKIP_BYTES_MAX: u32 = 64 << 20;

/// The least alignment of requests, the disks' sector. An export whose disks have larger blocks
/// tells its own.
pub const BLOCK_BYTES_MIN: u32 = 512;

/// The largest alignment that the protocol lets a server demand.
pub const BLOCK_BYTES_MIN_MAX: u32 = 64 << 10;

/// The size below which requests are less efficient: the page of most clients, and the smallest
/// chunk in which a volume keeps track of what has been written.
pub const BLOCK_BYTES_PREFERRED: u32 = 4096;

/// The most descriptors in a reply to a block status request. The protocol asks for at most 2^20;
/// the client asks again for the rest.
pub const STATUS_EXTENTS_MAX: usize = 4096;

const _: () = {
    assert!(OPTION_BYTES_MAX as usize > 2 * STRING_BYTES_MAX);
    assert!(OPTION_SKIP_BYTES_MAX > OPTION_BYTES_MAX);
    assert!(PAYLOAD_SKIP_BYTES_MAX >= PAYLOAD_BYTES_MAX);
    assert!(BLOCK_BYTES_PREFERRED.is_multiple_of(BLOCK_BYTES_MIN));
    assert!(PAYLOAD_BYTES_MAX.is_multiple_of(BLOCK_BYTES_PREFERRED));
    assert!(BLOCK_BYTES_MIN as u64 == sched::units::SECTOR_BYTES);
};

/// What an export can do, as told in the handshake (16 bits).
pub mod transmission_flags {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Forced unit access is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium rotates.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// Trim is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write zeroes is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The don't-fragment flag is understood; only with structured replies.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers what was answered on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// The cache command is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The fast zero flag is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// A request that cannot be served, and what the client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The protocol's error number.
    pub errno: Errno,
    /// A sentence for a person, sent where the client negotiated structured replies.
    pub text: &'static str,
}

/// The stream of a client cannot be understood any further: the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fatal {
    /// The client set handshake flags that it was not offered.
    #[error("the client set unknown handshake flags {0:#x}")]
    ClientFlags(u32),
    /// An option did not begin with the magic number.
    #[error("an option began with {0:#018x} instead of the magic number")]
    OptionMagic(u64),
    /// An option said to be longer than anything sensible.
    #[error("option {option} announced {length} bytes")]
    OptionLength {
        /// The option's number.
        option: u32,
        /// The length it announced, in bytes.
        length: u32,
    },
    /// The client sent options without end.
    #[error(
        "more than {} of options in one handshake",
        sched::units::Bytes(OPTIONS_BYTES_MAX)
    )]
    OptionsLength,
    /// `NBD_OPT_EXPORT_NAME`, which has no way to report an error, named nothing that exists.
    #[error("the client asked for an export that does not exist")]
    UnknownExport,
    /// A request did not begin with the magic number.
    #[error("a request began with {0:#010x} instead of the magic number")]
    RequestMagic(u32),
    /// A write announced a payload longer than anything sensible.
    #[error("a write announced {0} bytes")]
    PayloadLength(u32),
}

/// Takes big-endian numbers and byte strings off the front of a slice; `None` when it is too short.
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

    /// A string with its length, 32 bits, before it.
    pub(super) fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
