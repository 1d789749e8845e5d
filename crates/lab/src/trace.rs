//! Traces of requests to disks, as others have recorded them: read as a stream, whichever of the usual
//! formats they are in and whether compressed or not.
//!
//! A reader yields a request for every transfer of the trace, in order of time, with times that
//! begin at zero. Requests that are up to a second out of order are put in order. What is in a trace and is no
//! transfer (a flush, a discard, an opened file) is counted. What is no record of the format at all is an error
//! that names the line, or is counted and left out if the reader is [lenient](Reader::lenient).

mod formats;
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod number;
mod reader;
mod writer;

use std::fmt;
use std::str::FromStr;

use sched::request::{Op, Urgency};
use sched::units::{Bytes, Time};

pub use reader::{Place, Reader, TraceError};
pub use writer::{write_disksim, write_file};

/// A transfer that a trace tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// When it was issued; the first request of a trace is issued at zero. In a trace that
    /// [is closed](Timing::Closed), not before the one before it is done and not before this.
    pub at: Time,
    /// Which disk of the trace: they are numbered from zero in the order in which they are met.
    pub device: u32,
    /// The direction.
    pub op: Op,
    /// Where on the disk, from its beginning.
    pub start: Bytes,
    /// How much, at least a byte.
    pub length: Bytes,
    /// Whether somebody waited for it. Where a format does not say, a read was waited for and a write
    /// was not.
    pub urgency: Urgency,
}

/// What the times of a trace mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Requests were issued at these times, whatever became of those before them.
    Open,
    /// Each request was issued after the one before it was done; the times are of what was waited in between
    /// alone.
    Closed,
}

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// HP Laboratories' SRT, version 1.x: a header in text, then big-endian records of 56 bytes.
    Srt,
    /// DiskSim's ASCII: time in ms, device, block of 512 bytes, blocks, flags of which 1 is a read.
    Disksim,
    /// That of the traces of Microsoft Research Cambridge: CSV with times in units of 100 ns.
    Msr,
    /// That of the vSCSI traces of CloudPhysics: CSV with times in us and SCSI operation codes.
    Vscsi,
    /// What `blkparse` prints, of which the requests that are queued (`Q`) count, or that are issued (`D`) where
    /// none is queued.
    Blkparse,
    /// An I/O log of fio, version 2 or 3.
    Iolog,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Srt,
        Self::Disksim,
        Self::Msr,
        Self::Vscsi,
        Self::Blkparse,
        Self::Iolog,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Srt => "srt",
            Self::Disksim => "disksim",
            Self::Msr => "msr",
            Self::Vscsi => "vscsi",
            Self::Blkparse => "blkparse",
            Self::Iolog => "iolog",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no format has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no format `{0}`: expected one of srt, disksim, msr, vscsi, blkparse, iolog")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let mut all = Self::ALL.into_iter();
        all.find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// A record of a trace as its format has it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Record<'a> {
    Request(Raw<'a>),
    /// One that the format allows and that is no transfer.
    Other,
    /// One that belongs to no request at all: a heading, an empty line.
    Heading,
    /// What follows is a summary.
    End,
}

/// A request whose time and device are the trace's own.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Raw<'a> {
    at_ns: u64,
    device: &'a str,
    op: Op,
    start_bytes: u64,
    length_bytes: u64,
    urgency: Urgency,
}

/// Whether somebody waited for a transfer, where the format does not say.
const fn usual_urgency(op: Op) -> Urgency {
    match op {
        Op::Read => Urgency::Sync,
        Op::Write => Urgency::Async,
    }
}
