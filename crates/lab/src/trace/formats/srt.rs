//! HP Laboratories' SRT traces (Ruemmler & Wilkes, "UNIX disk access patterns", 1993): a header in text that
//! ends with a form feed, then records of big-endian words of 32 bits.

use sched::request::{Op, Urgency};

use crate::trace::number::times;
use crate::trace::{Raw, Record};

/// First bytes of the header.
pub(in crate::trace) const MAGIC: &[u8] = b"$$TR_IOREC";

/// Last byte of the header.
pub(in crate::trace) const HEADER_END: u8 = 0x0C;

/// Longer than any header.
pub(in crate::trace) const HEADER_BYTES_MAX: usize = 1 << 20;

/// A record of version 4, the only one there is a trace of.
pub(in crate::trace) const RECORD_BYTES: usize = 56;

/// Records of version 4 of one request each, in the upper and the lower half of the word.
const SHORT_IO_4: u32 = 4 << 16 | 1;

/// The block numbers are of sectors of this length.
const SECTOR_BYTES: u64 = 256;

/// The disk within a device number of HP-UX: below it is the section, above it the driver, and blocks are numbered
/// from the beginning of the disk whatever the section.
const UNIT_SHIFT: u32 = 8;
const UNIT_MASK: u32 = 0xFF;

/// Flags, of HP-UX's buffer headers.
const READ: u32 = 1;
const ASYNC: u32 = 0x100;

/// The words of a record that count here. Between and after them are when it was started and done,
/// the driver, the cylinder, what file it was of and how long the queue.
const LENGTH: usize = 0;
const KIND: usize = 1;
const SECONDS: usize = 2;
const MICROSECONDS: usize = 3;
const SIZE: usize = 6;
const BLOCK: usize = 7;
const DEVICE: usize = 8;
const FLAGS: usize = 11;

/// Reads a record. The name of its device is written to `device`.
pub(in crate::trace) fn record<'a>(
    bytes: &[u8; RECORD_BYTES],
    device: &'a mut String,
) -> Result<Record<'a>, String> {
    let word = |index: usize| {
        let at = index * 4;
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    if word(LENGTH) != RECORD_BYTES as u32 || word(KIND) != SHORT_IO_4 {
        return Err(format!(
            "it is of {} bytes and of kind {:#x}; only those of {RECORD_BYTES} bytes and of kind {SHORT_IO_4:#x} are known",
            word(LENGTH),
            word(KIND)
        ));
    }
    if word(MICROSECONDS) >= 1_000_000 {
        return Err(format!("{} us are more than a second", word(MICROSECONDS)));
    }
    let seconds_ns = times(u64::from(word(SECONDS)), 1_000_000_000, "time")?;
    let unit = word(DEVICE) >> UNIT_SHIFT & UNIT_MASK;
    device.clear();
    device.push_str(&unit.to_string());
    let flags = word(FLAGS);
    Ok(Record::Request(Raw {
        at_ns: seconds_ns + u64::from(word(MICROSECONDS)) * 1_000,
        device,
        op: if flags & READ == 0 {
            Op::Write
        } else {
            Op::Read
        },
        start_bytes: u64::from(word(BLOCK)) * SECTOR_BYTES,
        length_bytes: u64::from(word(SIZE)),
        urgency: if flags & ASYNC == 0 {
            Urgency::Sync
        } else {
            Urgency::Async
        },
    }))
}
