//! What a stream asks for, what it gets, and why it may be refused.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use crate::pool::{PoolError, Volume};
use crate::state::stream::core::StreamCore;
use crate::status::StreamStatus;
use crate::volume_io::Client;

/// From when to when a reservation holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// From when on; an instant that has passed means now.
    pub from: Time,
    /// Until when; `None` is until the stream is closed.
    pub until: Option<Time>,
}

/// A stream that is asked for.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// A name for people.
    pub name: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// The bytes of the volume in which it reads or writes, from and to multiples of the volume's
    /// [alignment](Volume::alignment); `None` is all of it. Every extent of
    /// the range is allocated and stays where it is, or moves to an equal or faster place of the
    /// same disk, while the stream is open.
    pub range: Option<Range<u64>>,
    /// The rate at which blocks are written or read.
    pub rate: BytesPerSecond,
    /// The size of a block, the unit of transfer: a multiple of the volume's
    /// [alignment](Volume::alignment) that divides the extent size or is a multiple of it.
    pub block: Bytes,
    /// Whether it reads or writes.
    pub op: Op,
    /// From when to when; `None` is from now until it is closed.
    pub span: Option<Span>,
    /// Whether the block after the range's last one is its first one again, at the same pace: a
    /// recording that overwrites itself, a clip that is played in a loop.
    pub wraps: bool,
}

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

/// An open reservation: guaranteed bandwidth, with buffers of its own. Dropping it gives it back.
pub struct Stream {
    core: Arc<StreamCore>,
    client: Client,
    volume: Arc<Volume>,
}

impl Stream {
    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.core
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Bytes from the beginning of the recording that is made through it, or was made last, that survive a
    /// power cut.
    #[must_use]
    pub fn durable_bytes(&self) -> u64 {
        self.core.durable_bytes()
    }

    pub(super) fn set_durable(&self, bytes: u64) {
        self.core.evidence.durable_bytes.store(bytes, Relaxed);
    }

    /// The client that holds its buffers (two for every disk it touches) and through which
    /// its blocks are submitted.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The range it is reserved for, in bytes of the volume.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.core.range()
    }

    /// The present size of a block.
    #[must_use]
    pub fn block(&self) -> Bytes {
        self.core.block()
    }

    /// The size of a buffer, which is that of a block as it was reserved at first.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.core.buffer
    }

    /// The present rate.
    #[must_use]
    pub fn rate(&self) -> BytesPerSecond {
        self.core.rate()
    }

    /// How many disks its range lies on.
    #[must_use]
    pub fn disk_count(&self) -> usize {
        self.core.disk_count()
    }

    /// Whether it reads or writes.
    #[must_use]
    pub fn op(&self) -> Op {
        self.core.op
    }

    /// The longest period of its tasks: within it every block that is asked for in time is done.
    #[must_use]
    pub fn longest_period(&self) -> Nanos {
        self.core.longest_period()
    }

    /// From when to when it holds; `None` is from its reservation until it is closed.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.core.span
    }

    /// Whether its first block follows its last.
    #[must_use]
    pub fn wraps(&self) -> bool {
        self.core.wraps
    }

    /// What happened to its blocks so far.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        self.core.status()
    }

    /// Ends the reservation: waits for its blocks in flight, and says what happened to it. Its share
    /// of the disks is free from the last deadline on.
    pub fn close(self) -> StreamStatus {
        self.core.begin_close();
        self.core.wait_left();
        self.core.status()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.core.begin_close();
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("name", &self.core.name)
            .field("rate", &self.core.rate())
            .finish_non_exhaustive()
    }
}

/// Puts a stream together.
pub(crate) fn stream(core: Arc<StreamCore>, client: Client, volume: Arc<Volume>) -> Stream {
    Stream {
        core,
        client,
        volume,
    }
}
