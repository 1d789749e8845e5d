//! The transmission phase, client to server: request headers.

use super::{Errno, Fatal, PAYLOAD_BYTES_MAX, Refusal, transmission_flags};

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

/// A request's header as it came, its magic number checked and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Modifiers of the command.
    pub flags: u16,
    /// The command.
    pub kind: u16,
    /// The client's name for the request, returned with its reply.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Decodes it.
    ///
    /// # Errors
    /// When it does not begin with the magic number.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, Fatal> {
        let number = |at: usize, count: usize| {
            bytes[at..at + count]
                .iter()
                .fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let magic = number(0, 4) as u32;
        if magic != REQUEST_MAGIC {
            return Err(Fatal::RequestMagic(magic));
        }
        Ok(Self {
            flags: number(4, 2) as u16,
            kind: number(6, 2) as u16,
            cookie: number(8, 8),
            offset: number(16, 8),
            length: number(24, 4) as u32,
        })
    }

    /// How many bytes of payload follow, whatever becomes of the request.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        if self.kind == CMD_WRITE {
            self.length
        } else {
            0
        }
    }
}

/// What was agreed for this connection, as far as requests depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The export's size in bytes, as told to the client.
    pub size_bytes: u64,
    /// What offsets and lengths must be multiples of, in bytes.
    pub block_bytes: u32,
    /// The final transmission flags.
    pub flags: u16,
    /// Whether structured replies were negotiated.
    pub structured: bool,
    /// Whether the client selected `base:allocation`.
    pub block_status: bool,
}

/// A request that can be served: its range is aligned, in the export, and not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read the range.
    Read {
        /// Answer in one piece.
        unfragmented: bool,
    },
    /// Write the payload to the range.
    Write {
        /// Answer when it is durable.
        forced: bool,
    },
    /// Finish what is in flight and end.
    Disconnect,
    /// Make durable what was answered.
    Flush,
    /// The range is no longer needed.
    Trim {
        /// Answer when that is durable.
        forced: bool,
    },
    /// The range will be used soon.
    Cache,
    /// Let the range read as zeros.
    WriteZeroes {
        /// Answer when it is durable.
        forced: bool,
        /// Keep the range's space.
        no_hole: bool,
        /// Refuse if it takes as long as writing.
        fast: bool,
    },
    /// Tell what is allocated.
    BlockStatus {
        /// One descriptor only, not longer than the range.
        one: bool,
    },
    /// A read, write or other ranged request of no length: nothing to do.
    Nothing,
}

const fn refused(errno: Errno, text: &'static str) -> Refusal {
    Refusal { errno, text }
}

/// Decides whether a request can be served on this connection.
///
/// # Errors
/// What the client is told; the connection goes on.
pub fn check(header: &RequestHeader, agreed: &Agreed) -> Result<Command, Refusal> {
    let command = decode_command(header, agreed)?;
    match command {
        Command::Disconnect | Command::Flush => Ok(command),
        _ => {
            check_range(header, agreed)?;
            Ok(if header.length == 0 {
                Command::Nothing
            } else {
                command
            })
        }
    }
}

fn decode_command(header: &RequestHeader, agreed: &Agreed) -> Result<Command, Refusal> {
    let has = |flag| header.flags & flag != 0;
    let offered = |flag| agreed.flags & flag != 0;
    // Forced unit access is accepted with every command, as the protocol demands.
    let (command, allowed) = match header.kind {
        CMD_READ => (
            Command::Read {
                unfragmented: has(FLAG_DF),
            },
            FLAG_DF,
        ),
        CMD_WRITE => (
            Command::Write {
                forced: has(FLAG_FUA),
            },
            0,
        ),
        CMD_DISC => (Command::Disconnect, !0),
        CMD_FLUSH => (Command::Flush, 0),
        CMD_TRIM => (
            Command::Trim {
                forced: has(FLAG_FUA),
            },
            0,
        ),
        CMD_CACHE => (Command::Cache, 0),
        CMD_WRITE_ZEROES => (
            Command::WriteZeroes {
                forced: has(FLAG_FUA),
                no_hole: has(FLAG_NO_HOLE),
                fast: has(FLAG_FAST_ZERO),
            },
            FLAG_NO_HOLE | FLAG_FAST_ZERO,
        ),
        CMD_BLOCK_STATUS if !agreed.block_status => {
            return Err(refused(
                Errno::Invalid,
                "block status needs base:allocation to be selected in the handshake",
            ));
        }
        CMD_BLOCK_STATUS => (
            Command::BlockStatus {
                one: has(FLAG_REQ_ONE),
            },
            FLAG_REQ_ONE,
        ),
        _ => return Err(refused(Errno::Invalid, "unknown command")),
    };
    let mut allowed = allowed | FLAG_FUA;
    if !offered(transmission_flags::SEND_DF) {
        allowed &= !FLAG_DF;
    }
    if !offered(transmission_flags::SEND_FAST_ZERO) {
        allowed &= !FLAG_FAST_ZERO;
    }
    if header.flags & !allowed != 0 {
        return Err(refused(
            Errno::Invalid,
            "a flag that this command does not have",
        ));
    }
    let writes = matches!(
        command,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
    );
    if writes && offered(transmission_flags::READ_ONLY) {
        return Err(refused(Errno::Perm, "the export is read-only"));
    }
    Ok(command)
}

fn check_range(header: &RequestHeader, agreed: &Agreed) -> Result<(), Refusal> {
    if !header.offset.is_multiple_of(u64::from(agreed.block_bytes))
        || !header.length.is_multiple_of(agreed.block_bytes)
    {
        return Err(refused(
            Errno::Invalid,
            "offset and length must be multiples of the minimum block size",
        ));
    }
    let end = header.offset.checked_add(u64::from(header.length));
    if end.is_none_or(|end| end > agreed.size_bytes) {
        let errno = match header.kind {
            CMD_WRITE | CMD_WRITE_ZEROES => Errno::NoSpace,
            _ => Errno::Invalid,
        };
        return Err(refused(errno, "the range goes past the end of the export"));
    }
    let carries_payload = matches!(header.kind, CMD_READ | CMD_WRITE);
    if carries_payload && header.length > PAYLOAD_BYTES_MAX {
        return Err(refused(
            Errno::Invalid,
            "longer than the maximum payload, 32 MiB",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREED: Agreed = Agreed {
        size_bytes: 1 << 20,
        block_bytes: 512,
        flags: transmission_flags::HAS_FLAGS
            | transmission_flags::SEND_DF
            | transmission_flags::SEND_FAST_ZERO,
        structured: true,
        block_status: true,
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
    fn a_request_has_the_documented_layout() {
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
    fn ranges_are_aligned_and_in_the_export() {
        let errno = |kind, offset, length| {
            check(&header(kind, 0, offset, length), &AGREED).map_err(|refusal| refusal.errno)
        };
        assert_eq!(
            errno(CMD_WRITE, 0, 512),
            Ok(Command::Write { forced: false })
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
        assert_eq!(errno(CMD_READ, 1 << 20, 0), Ok(Command::Nothing));
        assert_eq!(errno(CMD_FLUSH, 0, 0), Ok(Command::Flush));
        let coarse = Agreed {
            block_bytes: 4096,
            ..AGREED
        };
        assert!(check(&header(CMD_READ, 0, 4096, 512), &coarse).is_err());
        assert!(check(&header(CMD_READ, 0, 4096, 4096), &coarse).is_ok());
    }

    #[test]
    fn a_payload_has_a_largest_size_and_other_commands_do_not() {
        let agreed = Agreed {
            size_bytes: 1 << 40,
            ..AGREED
        };
        let at = |kind, length| check(&header(kind, 0, 0, length), &agreed).is_ok();
        assert!(at(CMD_READ, PAYLOAD_BYTES_MAX));
        assert!(!at(CMD_READ, PAYLOAD_BYTES_MAX + 512));
        assert!(!at(CMD_WRITE, PAYLOAD_BYTES_MAX + 512));
        assert!(at(CMD_WRITE_ZEROES, u32::MAX - 511));
        assert!(at(CMD_TRIM, u32::MAX - 511));
    }

    #[test]
    fn commands_and_flags_that_were_not_offered_are_refused() {
        let errno = |agreed: &Agreed, kind, flags| {
            check(&header(kind, flags, 0, 512), agreed).map_err(|refusal| refusal.errno)
        };
        assert_eq!(errno(&AGREED, 8, 0), Err(Errno::Invalid));
        assert_eq!(errno(&AGREED, CMD_WRITE, FLAG_DF), Err(Errno::Invalid));
        assert_eq!(errno(&AGREED, CMD_READ, 1 << 9), Err(Errno::Invalid));
        assert_eq!(
            errno(&AGREED, CMD_READ, FLAG_FUA | FLAG_DF),
            Ok(Command::Read { unfragmented: true })
        );
        let plain = Agreed {
            flags: 1,
            structured: false,
            block_status: false,
            ..AGREED
        };
        assert_eq!(errno(&plain, CMD_READ, FLAG_DF), Err(Errno::Invalid));
        assert_eq!(
            errno(&plain, CMD_WRITE_ZEROES, FLAG_FAST_ZERO),
            Err(Errno::Invalid)
        );
        assert_eq!(errno(&plain, CMD_BLOCK_STATUS, 0), Err(Errno::Invalid));
        let read_only = Agreed {
            flags: transmission_flags::READ_ONLY,
            ..AGREED
        };
        assert_eq!(errno(&read_only, CMD_TRIM, 0), Err(Errno::Perm));
        assert_eq!(
            errno(&read_only, CMD_READ, 0),
            Ok(Command::Read {
                unfragmented: false
            })
        );
    }
}
