//! The samples of a measurement as bytes.
//!
//! ```text
//! header, 64 bytes:
//!   magic "CLKWMEAS", version (u32), effort (u32), seed (u64), capacity in sectors (u64),
//!   hash of the other facts (u64), zeros (16), checksum of the 56 bytes before (u64)
//! then a record of 40 bytes for each sample:
//!   start (u64), count (u32), op (u8), 1 if other requests were served before it (u8), zeros (2),
//!   issued (u64), completed (u64),
//!   error number (i32), checksum of the 36 bytes before (u32)
//! ```
//!
//! Numbers are little-endian; times are nanoseconds. The checksum is FNV-1a, which finds torn records; the file
//! holds nothing that must survive an attacker. Records name their requests, so a measurement that asks for other
//! requests than it did, because the program changed, is told from one that continues.

use sched::request::Op;
use sched::units::{Sector, SectorCount, Time};

use crate::exchange::{Request, Sample};
use crate::facts::{Effort, Facts};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 40;
const MAGIC: &[u8; 8] = b"CLKWMEAS";
const VERSION: u32 = 1;

/// Faults of a file of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogError {
    /// The file is something else.
    #[error("it is not a file of an interrupted measurement")]
    Foreign,
    /// The program is older or newer than the file.
    #[error("it is of version {0}, and this program writes version {VERSION}")]
    Version(u32),
    /// It belongs to another measurement.
    #[error("it is of another drive, or of a measurement with other options")]
    Other,
    /// The header is damaged.
    #[error("its header is damaged")]
    Damaged,
    /// A time is later than any measurement lasts.
    #[error("sample {sample} has a time later than {} days, which no measurement lasts", Sample::TIME_MAX.get() / 86_400_000_000_000)]
    Late {
        /// The number of the sample, from 0.
        sample: usize,
    },
}

fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn fnv_32(bytes: &[u8]) -> u32 {
    let hash = fnv(bytes);
    (hash >> 32) as u32 ^ hash as u32
}

fn facts_hash(facts: &Facts) -> u64 {
    let Facts {
        name,
        capacity: _,
        unit,
        physical,
        request_max,
        writable,
        is_file,
        // It changes instants, which records do not name.
        turnaround: _,
        // It changes sentences alone.
        is_device: _,
    } = facts;
    let mut bytes = name.as_bytes().to_vec();
    for number in [unit.get(), physical.get(), request_max.get()] {
        bytes.extend(number.to_le_bytes());
    }
    for range in writable {
        bytes.extend(range.start.get().to_le_bytes());
        bytes.extend(range.end.get().to_le_bytes());
    }
    bytes.push(u8::from(*is_file));
    fnv(&bytes)
}

/// The header for a measurement.
#[must_use]
pub fn header(facts: &Facts, effort: Effort, seed: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let effort: u32 = match effort {
        Effort::Quick => 0,
        Effort::Normal => 1,
        Effort::Thorough => 2,
    };
    bytes[12..16].copy_from_slice(&effort.to_le_bytes());
    bytes[16..24].copy_from_slice(&seed.to_le_bytes());
    bytes[24..32].copy_from_slice(&facts.capacity.get().to_le_bytes());
    bytes[32..40].copy_from_slice(&facts_hash(facts).to_le_bytes());
    let sum = fnv(&bytes[..56]);
    bytes[56..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The seed in a header, if the file is of this measurement.
///
/// # Errors
/// When it is not, with the reason.
pub fn seed_of(file: &[u8], facts: &Facts, effort: Effort) -> Result<u64, LogError> {
    if file.get(..8).is_none_or(|magic| magic != MAGIC) {
        return Err(LogError::Foreign);
    }
    let Some(bytes) = file.get(..HEADER_BYTES) else {
        return Err(LogError::Damaged);
    };
    let version = u32::from_le_bytes(array(&bytes[8..12]));
    if version != VERSION {
        return Err(LogError::Version(version));
    }
    if u64::from_le_bytes(array(&bytes[56..])) != fnv(&bytes[..56]) {
        return Err(LogError::Damaged);
    }
    let seed = u64::from_le_bytes(array(&bytes[16..24]));
    if bytes != header(facts, effort, seed) {
        return Err(LogError::Other);
    }
    Ok(seed)
}

/// The first `N` bytes of a slice that has as many.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// The record of a sample.
#[must_use]
pub fn record(request: &Request, sample: &Sample) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&request.start.get().to_le_bytes());
    let count = u32::try_from(request.count.get()).unwrap_or(u32::MAX);
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    bytes[12] = u8::from(request.op == Op::Write);
    bytes[13] = u8::from(!sample.alone);
    bytes[16..24].copy_from_slice(&sample.issued.get().to_le_bytes());
    bytes[24..32].copy_from_slice(&sample.completed.get().to_le_bytes());
    bytes[32..36].copy_from_slice(&sample.error.unwrap_or(0).to_le_bytes());
    let sum = fnv_32(&bytes[..36]);
    bytes[36..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A sample with its request, as far as the record says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The direction.
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// The sample.
    pub sample: Sample,
}

impl Recorded {
    /// True if this is the sample of that request.
    #[must_use]
    pub fn answers(&self, request: &Request) -> bool {
        (self.op, self.start, self.count) == (request.op, request.start, request.count)
    }
}

/// The whole records behind the header, up to the first that is torn or damaged.
///
/// # Errors
/// When one of them has a time that no measurement reaches.
pub fn records(file: &[u8]) -> Result<Vec<Recorded>, LogError> {
    let behind = file.get(HEADER_BYTES..).unwrap_or_default();
    let records = behind.chunks_exact(RECORD_BYTES).map_while(parse);
    let checked = records.enumerate().map(|(sample, record)| {
        let is_late = record.sample.completed > Sample::TIME_MAX;
        (!is_late)
            .then_some(record)
            .ok_or(LogError::Late { sample })
    });
    checked.collect()
}

fn parse(bytes: &[u8]) -> Option<Recorded> {
    if u32::from_le_bytes(array(&bytes[36..])) != fnv_32(&bytes[..36]) {
        return None;
    }
    let error = i32::from_le_bytes(array(&bytes[32..36]));
    let issued = Time(u64::from_le_bytes(array(&bytes[16..24])));
    let completed = Time(u64::from_le_bytes(array(&bytes[24..32])));
    Some(Recorded {
        op: if bytes[12] == 0 { Op::Read } else { Op::Write },
        start: Sector(u64::from_le_bytes(array(&bytes[..8]))),
        count: SectorCount(u64::from(u32::from_le_bytes(array(&bytes[8..12])))),
        sample: Sample {
            issued,
            completed: completed.max(issued),
            alone: bytes[13] == 0,
            error: (error != 0).then_some(error),
        },
    })
}
