//! Reasons for refusing a reservation.

use sched::units::{Bytes, BytesPerSecond, Nanos};

use crate::buffer::MemoryError;
use crate::state::error::{PoolError, host};

/// Kind of a task that keeps another one from being admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CulpritKind {
    /// The best-effort floor of the disk.
    Floor,
    /// A stream.
    Stream,
    /// Disk time that is reserved for a best-effort client, such as an export.
    Share,
    /// A stream or share that has ended or changed; it holds its share until its last deadline.
    Leaving,
}

/// A task that keeps another one from being admitted: one of its requests takes so long that requests
/// with shorter periods would be late.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Culprit {
    /// The name of the stream or client, or of the floor.
    pub name: String,
    /// Its kind.
    pub kind: CulpritKind,
}

/// The reason why a disk cannot carry its part of a reservation.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DiskRefusal {
    /// The disk's name.
    pub disk: String,
    /// The admitted utilisation of the disk, as a fraction of 1.
    pub utilization: f64,
    /// The worst-case service time of a block there, in nanoseconds.
    pub service_ns: u64,
    /// The period between such blocks, in nanoseconds.
    pub period_ns: u64,
    /// The failed condition of the admission test: `utilization` or `blocking`.
    pub refused_by: String,
    /// The length of the interval in which it fails, in nanoseconds.
    pub interval_ns: Option<u64>,
    /// Missing time in that interval, in nanoseconds.
    pub short_by_ns: Option<u64>,
    /// The task at fault, if it is not the requested one.
    pub task: Option<Culprit>,
    /// Utilisation of streams and exports that have ended; each keeps its share until its last deadline.
    pub utilization_leaving: f64,
    /// Time until all of that is free, in nanoseconds.
    pub leaving_ns: Option<u64>,
}

/// Remedy when a concurrent change got in the way.
pub(crate) const RETRY_REMEDY: &str = "try again: another change was in progress";

/// The reason why a reservation is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The disks cannot carry a stream.
    #[error("{}", refused(.disk, *.rate_that_fits))]
    Load {
        /// The first disk that refused.
        disk: Box<DiskRefusal>,
        /// The largest rate of this stream that all the disks would carry now.
        rate_that_fits: Option<BytesPerSecond>,
    },
    /// The disks cannot carry disk time for best effort.
    #[error("{}", share_refused(.disk, *.period_that_fits))]
    Share {
        /// The first disk that refused; its service time is the slice.
        disk: Box<DiskRefusal>,
        /// The shortest period in which all disks would carry such a slice, rounded up to whole microseconds,
        /// or to whole milliseconds from one second on.
        period_that_fits: Option<Nanos>,
    },
    /// A parameter of the stream is invalid.
    #[error("{what}: {reason}")]
    Invalid {
        /// The parameter.
        what: &'static str,
        /// The fault.
        reason: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Not enough memory can be guaranteed for its buffers.
    #[error(
        "the stream needs {} of reserved buffers, but only {} can be guaranteed", Bytes(*.needed), Bytes(*.available)
    )]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The pool operation failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

fn refused(disk: &DiskRefusal, fits: Option<BytesPerSecond>) -> String {
    let text = unfit(disk, "a block that takes up to");
    match fits {
        // Rounded down, so that the rate in the message does fit.
        Some(rate) => format!(
            "{text}; {:.3} MB/s would fit",
            (rate.0 / 1_000) as f64 / 1e3
        ),
        None => text + "; no rate would fit",
    }
}

fn share_refused(disk: &DiskRefusal, fits: Option<Nanos>) -> String {
    let text = unfit(disk, "a slice of");
    match fits {
        Some(period) => format!("{text}; such a slice every {period} would fit"),
        None => text + "; no slice of that length would fit",
    }
}

/// Describes a refusal; `what` names the job whose service time is in it.
pub(crate) fn unfit(disk: &DiskRefusal, what: &str) -> String {
    let mut text = format!(
        "disk {:?} cannot carry it: it has promised {:.1} % of its time, and {what} {} every {} is refused by the {} condition",
        disk.disk,
        disk.utilization * 100.0,
        Nanos(disk.service_ns),
        Nanos(disk.period_ns),
        disk.refused_by,
    );
    if let (Some(interval), Some(short)) = (disk.interval_ns, disk.short_by_ns) {
        text += &format!(" (short by {} in {})", Nanos(short), Nanos(interval));
    }
    if let Some(task) = &disk.task {
        text += &match task.kind {
            CulpritKind::Floor => " because of the floor of best effort".to_owned(),
            CulpritKind::Stream | CulpritKind::Share => format!(" because of {:?}", task.name),
            CulpritKind::Leaving => {
                format!(" because of the share that {:?} still holds", task.name)
            }
        };
    }
    if let Some(remaining) = disk.leaving_ns {
        text += &format!(
            "; {:.1} % is still held by reservations that have ended, and is free in {}",
            disk.utilization_leaving * 100.0,
            Nanos(remaining)
        );
    }
    text
}

pub(crate) fn memory_refusal(error: MemoryError) -> Refusal {
    match error {
        MemoryError::TooMuch { asked, available } => Refusal::Memory {
            needed: asked.0,
            available: available.0,
        },
        MemoryError::Host(reason) => {
            Refusal::Pool(host("setting up memory", std::io::Error::other(reason)))
        }
        other => Refusal::Invalid {
            what: "memory",
            reason: other.to_string(),
            remedy: "try again when others have released memory, or give the server more memory",
        },
    }
}
