//! Why a reservation is refused.

use sched::units::{Bytes, BytesPerSecond, Nanos};

use crate::buffer::MemoryError;
use crate::state::error::{PoolError, host};

/// What a task is that keeps another one from being admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CulpritKind {
    /// What best effort keeps of the disk.
    Floor,
    /// A stream.
    Stream,
    /// Disk time that is reserved for a best-effort client, such as an export.
    Share,
    /// What a stream had before it ended or changed, or a share: held until its last deadline.
    Leaving,
}

/// A task that keeps another one from being admitted: one request of it takes so long that those with
/// shorter periods would be late.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Culprit {
    /// The name of the stream or client; of the floor, what it is called.
    pub name: String,
    /// What it is.
    pub kind: CulpritKind,
}

/// Why a disk's part of a reservation does not fit.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DiskRefusal {
    /// The disk's name.
    pub disk: String,
    /// The load already promised on it, of 1.
    pub utilization: f64,
    /// The worst-case service time of a block there, in nanoseconds.
    pub service_ns: u64,
    /// How often a block would fall on it, in nanoseconds.
    pub period_ns: u64,
    /// Which condition of the admission test failed: `utilization` or `blocking`.
    pub refused_by: String,
    /// At which interval length, in nanoseconds.
    pub interval_ns: Option<u64>,
    /// By how much, in nanoseconds.
    pub short_by_ns: Option<u64>,
    /// The task at fault, if it is not the one asked for.
    pub task: Option<Culprit>,
    /// The part of the load that is still being given back by streams and exports that have ended: each
    /// keeps its share until its last deadline.
    pub utilization_leaving: f64,
    /// In how many nanoseconds all of that is free.
    pub leaving_ns: Option<u64>,
}

/// What to do when things were changing just then.
pub(crate) const RETRY_REMEDY: &str = "ask again: something else was being changed at this moment";

/// Why a reservation is refused.
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
        /// The shortest period in which all the disks would carry such a slice now, rounded up to whole
        /// microseconds, from a second on to whole milliseconds.
        period_that_fits: Option<Nanos>,
    },
    /// The numbers make no stream.
    #[error("{what}: {reason}")]
    Invalid {
        /// Which number.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Not enough memory can be guaranteed for its buffers.
    #[error(
        "the stream needs {} of buffers that nobody else may use; {} can be guaranteed", Bytes(*.needed), Bytes(*.available)
    )]
    Memory {
        /// What it needs, in bytes.
        needed: u64,
        /// What there is, in bytes.
        available: u64,
    },
    /// The pool could not do it.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

fn refused(disk: &DiskRefusal, fits: Option<BytesPerSecond>) -> String {
    let text = unfit(disk, "a block that takes up to");
    match fits {
        // Rounded down: what is said to fit does.
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
        Some(period) => format!("{text}; as much every {period} would fit"),
        None => text + "; no slice as long would fit",
    }
}

/// What does not fit on a disk, and why.
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
            CulpritKind::Leaving => format!(" because of what {:?} still holds", task.name),
        };
    }
    if let Some(remaining) = disk.leaving_ns {
        text += &format!(
            "; {:.1} % is still being given back by what has ended, all of it in {}",
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
            remedy: "try again when others have given memory back, or give the server more",
        },
    }
}
