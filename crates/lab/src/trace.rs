//! Recorded traces of requests to disks: read as a stream, in each of the usual formats, compressed or not.
//!
//! A reader yields a request for every transfer of the trace, in order of time, with times that
//! begin at zero. Requests that are up to a second out of order are put in order. Records that are no
//! transfers (a flush, a discard, an opened file) are counted. A line that is no record of the format is an
//! error that names the line; a [lenient](Reader::lenient) reader counts it and leaves it out.

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

pub(crate) use input::LineInput;
pub use reader::{Place, Reader, TraceError};
pub use writer::{write_disksim, write_file};

/// A transfer that a trace tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// When it was issued; the first request of a trace is issued at zero. In a trace that
    /// [is closed](Timing::Closed), not before the one before it is done and not before this.
    pub at: Time,
    /// Disk of the trace: numbered from zero in order of appearance.
    pub device: u32,
    /// The direction.
    pub op: Op,
    /// Position on the disk, from its beginning.
    pub start: Bytes,
    /// Length, at least a byte.
    pub length: Bytes,
    /// Tells if it was waited for. Where a format does not tell, reads were waited for and writes were not.
    pub urgency: Urgency,
}

/// Meaning of a trace's times.
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
    /// Format of Microsoft Research Cambridge: CSV with times in units of 100 ns.
    Msr,
    /// Format of CloudPhysics' vSCSI traces: CSV with times in us and SCSI operation codes.
    Vscsi,
    /// Output of `blkparse`. Queued requests (`Q`) count, or issued ones (`D`) in a trace without queued
    /// ones.
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
#[error("unknown format `{0}`; use srt, disksim, msr, vscsi, blkparse or iolog")]
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
    /// A summary follows.
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

/// Usual urgency of a transfer, where the format does not tell.
const fn usual_urgency(op: Op) -> Urgency {
    match op {
        Op::Read => Urgency::Sync,
        Op::Write => Urgency::Async,
    }
}
