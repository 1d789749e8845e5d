//! The transmission phase, client to server: request headers.

use super::reply::ReplyFormat;
use super::{
    Durability, Errno, PAYLOAD_BYTES_MAX, ProtocolError, RequestError, STATUS_EXTENTS_MAX,
    transmission_flags,
};

const REQUEST_MAGIC: u32 = 0x2560_9513;

/// Bytes of a request's header.
pub const REQUEST_BYTES: usize = 28;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;
const CMD_TRIM: u16 = 4;
const CMD_CACHE: u16 = 5;
const CMD_WRITE_ZEROES: u16 = 6;
const CMD_BLOCK_STATUS: u16 = 7;

const FLAG_FUA: u16 = 1 << 0;
const FLAG_NO_HOLE: u16 = 1 << 1;
const FLAG_DF: u16 = 1 << 2;
const FLAG_REQ_ONE: u16 = 1 << 3;
const FLAG_FAST_ZERO: u16 = 1 << 4;

/// A request's header as received. Only its magic number has been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Command flags.
    pub flags: u16,
    /// The request type.
    pub kind: u16,
    /// The client's identifier of the request, which its reply repeats.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// If it does not begin with the magic number.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, ProtocolError> {
        let number = |at: usize, count: usize| {
            bytes[at..at + count]
                .iter()
                .fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let magic = number(0, 4) as u32;
        if magic != REQUEST_MAGIC {
            return Err(ProtocolError::RequestMagic(magic));
        }
        Ok(Self {
            flags: number(4, 2) as u16,
            kind: number(6, 2) as u16,
            cookie: number(8, 8),
            offset: number(16, 8),
            length: number(24, 4) as u32,
        })
    }

    /// Number of payload bytes that follow the header, also if the request is refused.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        if self.kind == CMD_WRITE {
            self.length
        } else {
            0
        }
    }
}

/// The result of the negotiation, as far as requests depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransmissionParameters {
    /// The export's size in bytes, as sent to the client.
    pub size_bytes: u64,
    /// Alignment of offsets and lengths in bytes.
    pub block_bytes: u32,
    /// The final transmission flags.
    pub flags: u16,
    /// The format of replies.
    pub reply_format: ReplyFormat,
    /// True if the client selected `base:allocation`, which block status requests need.
    pub has_base_allocation: bool,
}

/// The number of chunks in which a read may be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragmentation {
    /// Any number.
    Allowed,
    /// One: the client set `NBD_CMD_FLAG_DF`.
    Forbidden,
}

/// A valid request. Its range is aligned, inside the export, and not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read the range.
    Read(Fragmentation),
    /// Write the payload to the range.
    Write(Durability),
    /// Finish what is in flight and end.
    Disconnect,
    /// Make all answered writes durable.
    Flush,
    /// Discard the range.
    Trim(Durability),
    /// Prefetch the range.
    Cache,
    /// Let the range read as zeros.
    WriteZeroes {
        /// Durability of the zeros.
        durability: Durability,
        /// Keep the range's space.
        no_hole: bool,
        /// Refuse if it takes as long as writing.
        fast: bool,
    },
    /// Send the allocation status of the range.
    BlockStatus {
        /// The most extents in the reply.
        extents_max: usize,
    },
    /// A request for a range of no length, which needs no work.
    Empty,
}

const fn refused(errno: Errno, text: &'static str) -> RequestError {
    RequestError { errno, text }
}

/// Validates a request for this connection.
///
/// # Errors
/// The error for the client. The connection continues.
pub fn check(
    header: &RequestHeader,
    parameters: &TransmissionParameters,
) -> Result<Command, RequestError> {
    let command = decode_command(header, parameters)?;
    match command {
        Command::Disconnect | Command::Flush => Ok(command),
        _ => {
            check_range(header, parameters)?;
            Ok(if header.length == 0 {
                Command::Empty
            } else {
                command
            })
        }
    }
}

fn decode_command(
    header: &RequestHeader,
    parameters: &TransmissionParameters,
) -> Result<Command, RequestError> {
    let has = |flag| header.flags & flag != 0;
    let durability = if has(FLAG_FUA) {
        Durability::BeforeReply
    } else {
        Durability::AfterFlush
    };
    let (command, allowed) = match header.kind {
        CMD_READ => {
            let fragmentation = if has(FLAG_DF) {
                Fragmentation::Forbidden
            } else {
                Fragmentation::Allowed
            };
            (Command::Read(fragmentation), FLAG_DF)
        }
        CMD_WRITE => (Command::Write(durability), 0),
        CMD_DISC => (Command::Disconnect, !0),
        CMD_FLUSH => (Command::Flush, 0),
        CMD_TRIM => (Command::Trim(durability), 0),
        CMD_CACHE => (Command::Cache, 0),
        CMD_WRITE_ZEROES => {
            let command = Command::WriteZeroes {
                durability,
                no_hole: has(FLAG_NO_HOLE),
                fast: has(FLAG_FAST_ZERO),
            };
            (command, FLAG_NO_HOLE | FLAG_FAST_ZERO)
        }
        CMD_BLOCK_STATUS if !parameters.has_base_allocation => {
            return Err(refused(
                Errno::Invalid,
                "block status needs base:allocation to be selected in the handshake",
            ));
        }
        CMD_BLOCK_STATUS => {
            let extents_max = if has(FLAG_REQ_ONE) {
                1
            } else {
                STATUS_EXTENTS_MAX
            };
            (Command::BlockStatus { extents_max }, FLAG_REQ_ONE)
        }
        _ => return Err(refused(Errno::Invalid, "unknown command")),
    };
    check_flags(header, parameters, allowed)?;
    let writes = matches!(
        command,
        Command::Write(_) | Command::Trim(_) | Command::WriteZeroes { .. }
    );
    if writes && parameters.flags & transmission_flags::READ_ONLY != 0 {
        return Err(refused(Errno::Perm, "the export is read-only"));
    }
    Ok(command)
}

/// Refuses flags that the command does not have (it has those in `allowed`) or that were not negotiated.
fn check_flags(
    header: &RequestHeader,
    parameters: &TransmissionParameters,
    allowed: u16,
) -> Result<(), RequestError> {
    let is_offered = |flag| parameters.flags & flag != 0;
    // The protocol demands that every command accepts forced unit access.
    let mut allowed = allowed | FLAG_FUA;
    if !is_offered(transmission_flags::SEND_DF) {
        allowed &= !FLAG_DF;
    }
    if !is_offered(transmission_flags::SEND_FAST_ZERO) {
        allowed &= !FLAG_FAST_ZERO;
    }
    if header.flags & !allowed != 0 {
        return Err(refused(
            Errno::Invalid,
            "the command does not support this flag",
        ));
    }
    Ok(())
}

fn check_range(
    header: &RequestHeader,
    parameters: &TransmissionParameters,
) -> Result<(), RequestError> {
    if !header
        .offset
        .is_multiple_of(u64::from(parameters.block_bytes))
        || !header.length.is_multiple_of(parameters.block_bytes)
    {
        return Err(refused(
            Errno::Invalid,
            "offset and length must be multiples of the minimum block size",
        ));
    }
    let end = header.offset.checked_add(u64::from(header.length));
    if end.is_none_or(|end| end > parameters.size_bytes) {
        let errno = match header.kind {
            CMD_WRITE | CMD_WRITE_ZEROES => Errno::NoSpace,
            _ => Errno::Invalid,
        };
        return Err(refused(errno, "the range exceeds the end of the export"));
    }
    let carries_payload = matches!(header.kind, CMD_READ | CMD_WRITE);
    if carries_payload && header.length > PAYLOAD_BYTES_MAX {
        return Err(refused(
            Errno::Invalid,
            "the payload is longer than the maximum, 32 MiB",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: TransmissionParameters = TransmissionParameters {
        size_bytes: 1 << 20,
        block_bytes: 512,
        flags: transmission_flags::HAS_FLAGS
            | transmission_flags::SEND_DF
            | transmission_flags::SEND_FAST_ZERO,
        reply_format: ReplyFormat::Structured,
        has_base_allocation: true,
    };

    fn header(kind: u16, flags: u16, offset: u64, length: u32) -> RequestHeader {
        RequestHeader {
            flags,
            kind,
            cookie: 7,
            offset,
            length,
        }
    }

    #[test]
    fn request_header_has_the_documented_layout() {
        let mut bytes = [0u8; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
        bytes[5] = 1;
        bytes[7] = 6;
        bytes[15] = 9;
        bytes[22] = 2;
        bytes[26] = 4;
        let expected = RequestHeader {
            flags: 1,
            kind: 6,
            cookie: 9,
            offset: 512,
            length: 1024,
        };
        assert_eq!(RequestHeader::decode(&bytes), Ok(expected));
        bytes[0] = 0;
        assert!(RequestHeader::decode(&bytes).is_err());
    }

    #[test]
    fn ranges_are_checked_for_alignment_and_size() {
        let errno = |kind, offset, length| {
            check(&header(kind, 0, offset, length), &PARAMETERS).map_err(|refusal| refusal.errno)
        };
        assert_eq!(
            errno(CMD_WRITE, 0, 512),
            Ok(Command::Write(Durability::AfterFlush))
        );
        assert_eq!(errno(CMD_READ, 1, 512), Err(Errno::Invalid));
        assert_eq!(errno(CMD_READ, 512, 511), Err(Errno::Invalid));
        assert_eq!(errno(CMD_READ, (1 << 20) - 512, 1024), Err(Errno::Invalid));
        assert_eq!(errno(CMD_WRITE, (1 << 20) - 512, 1024), Err(Errno::NoSpace));
        assert_eq!(
            errno(CMD_WRITE_ZEROES, u64::MAX - 511, 512),
            Err(Errno::NoSpace)
        );
        assert_eq!(
            errno(CMD_TRIM, u64::MAX - 1023, 1 << 31),
            Err(Errno::Invalid)
        );
        assert_eq!(errno(CMD_READ, 1 << 20, 0), Ok(Command::Empty));
        assert_eq!(errno(CMD_FLUSH, 0, 0), Ok(Command::Flush));
        let coarse = TransmissionParameters {
            block_bytes: 4096,
            ..PARAMETERS
        };
        assert!(check(&header(CMD_READ, 0, 4096, 512), &coarse).is_err());
        assert!(check(&header(CMD_READ, 0, 4096, 4096), &coarse).is_ok());
    }

    #[test]
    fn payload_size_is_limited_and_other_lengths_are_not() {
        let parameters = TransmissionParameters {
            size_bytes: 1 << 40,
            ..PARAMETERS
        };
        let at = |kind, length| check(&header(kind, 0, 0, length), &parameters).is_ok();
        assert!(at(CMD_READ, PAYLOAD_BYTES_MAX));
        assert!(!at(CMD_READ, PAYLOAD_BYTES_MAX + 512));
        assert!(!at(CMD_WRITE, PAYLOAD_BYTES_MAX + 512));
        assert!(at(CMD_WRITE_ZEROES, u32::MAX - 511));
        assert!(at(CMD_TRIM, u32::MAX - 511));
    }

    #[test]
    fn unknown_commands_and_flags_are_refused() {
        let errno = |parameters: &TransmissionParameters, kind, flags| {
            check(&header(kind, flags, 0, 512), parameters).map_err(|refusal| refusal.errno)
        };
        assert_eq!(errno(&PARAMETERS, 8, 0), Err(Errno::Invalid));
        assert_eq!(errno(&PARAMETERS, CMD_WRITE, FLAG_DF), Err(Errno::Invalid));
        assert_eq!(errno(&PARAMETERS, CMD_READ, 1 << 9), Err(Errno::Invalid));
        assert_eq!(
            errno(&PARAMETERS, CMD_READ, FLAG_FUA | FLAG_DF),
            Ok(Command::Read(Fragmentation::Forbidden))
        );
        let plain = TransmissionParameters {
            flags: 1,
            reply_format: ReplyFormat::Simple,
            has_base_allocation: false,
            ..PARAMETERS
        };
        assert_eq!(errno(&plain, CMD_READ, FLAG_DF), Err(Errno::Invalid));
        assert_eq!(
            errno(&plain, CMD_WRITE_ZEROES, FLAG_FAST_ZERO),
            Err(Errno::Invalid)
        );
        assert_eq!(errno(&plain, CMD_BLOCK_STATUS, 0), Err(Errno::Invalid));
        let read_only = TransmissionParameters {
            flags: transmission_flags::READ_ONLY,
            ..PARAMETERS
        };
        assert_eq!(errno(&read_only, CMD_TRIM, 0), Err(Errno::Perm));
        assert_eq!(
            errno(&read_only, CMD_READ, 0),
            Ok(Command::Read(Fragmentation::Allowed))
        );
    }
}
