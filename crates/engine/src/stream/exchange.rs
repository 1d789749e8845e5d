//! Replacing a stream's tasks when its rate, range or block size changes.

use std::sync::Arc;

use sched::book;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use super::check::{RATE_REMEDY, check_range, described, disks_of, invalid, needs_now};
use super::needs::Path;
use super::tasks::{book_span, join, thaw};
use crate::clock;
use crate::state::pool::admission::need::Need;
use crate::state::pool::admission::{Admission, AdmissionRefusal, StreamRequest};
use crate::state::pool::core::PoolCore;
use crate::state::refusal::Refusal;
use crate::state::stream::core::{StreamCore, StreamTask};
use crate::state::volume::VolumeCore;

/// A reservation, its pool and its volume.
#[derive(Clone, Copy)]
pub(super) struct StreamContext<'a> {
    pub(super) pool: &'a PoolCore,
    pub(super) volume: &'a Arc<VolumeCore>,
    pub(super) core: &'a Arc<StreamCore>,
}

/// The parameters of a stream after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamParameters {
    pub(super) rate: BytesPerSecond,
    /// End of its range, in bytes of the volume.
    pub(super) end: u64,
    pub(super) block: Bytes,
}

/// Changes the rate, the end of the range and the block size of a stream.
///
/// Tasks leave and join on each disk. First the new tasks are tested, on copies of the books, as if they took
/// the old ones' place at once; then they fit from any later time at which the old ones' shares are free.
/// Blocks are held back meanwhile. That costs nothing: the dispatcher removes a task only when nothing of it
/// is queued, and the next block could not be released before the last deadline of the old task, which is
/// when the new one begins.
pub(super) fn change(of: StreamContext<'_>, to: StreamParameters) -> Result<(), Refusal> {
    check_changed(of, to)?;
    of.core.pause();
    let result = change_paused(of, to);
    of.core.resume();
    result.map_err(|failure| failure.into_refusal(of.core, to))
}

/// Tests a change. Returns the longest of the new periods.
pub(super) fn try_change(of: StreamContext<'_>, to: StreamParameters) -> Result<Nanos, Refusal> {
    check_changed(of, to)?;
    let mut admission = of.pool.admission.lock();
    let test_in_copy = test_in_copy(of, to, &mut admission, clock::now());
    drop(admission);
    let test_in_copy = test_in_copy.map_err(|failure| failure.into_refusal(of.core, to))?;
    let tasks = test_in_copy
        .needs
        .iter()
        .flat_map(|need| need.task(to.block, to.rate));
    let longest = tasks.map(|task| task.period()).max();
    Ok(longest.unwrap_or(Nanos::ZERO))
}

fn check_changed(of: StreamContext<'_>, to: StreamParameters) -> Result<(), Refusal> {
    if to.rate.0 == 0 {
        return Err(invalid(
            "the rate",
            "it must be at least 1 B/s",
            RATE_REMEDY,
        ));
    }
    let range = of.core.range().start..to.end;
    check_range(&of.pool.io, of.volume, &range)
}

/// The reason why a change was not made.
enum ChangeFailure {
    Refused(Refusal),
    /// The disks cannot carry it. A fitting rate is searched after the stream has been resumed.
    NotAdmitted {
        refusal: Box<AdmissionRefusal>,
        needs: Vec<Need>,
        span: book::Span,
    },
}

impl ChangeFailure {
    fn into_refusal(self, stream: &StreamCore, to: StreamParameters) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::NotAdmitted {
                refusal,
                needs,
                span,
            } => refusal.into_refusal(stream_request(stream, &needs, to, span)),
        }
    }
}

impl From<Refusal> for ChangeFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn stream_request<'a>(
    stream: &'a StreamCore,
    needs: &'a [Need],
    to: StreamParameters,
    span: book::Span,
) -> StreamRequest<'a> {
    StreamRequest {
        name: &stream.name,
        needs,
        block: to.block,
        rate: to.rate,
        span,
    }
}

/// A tested change that fits.
struct TestedChange {
    needs: Vec<Need>,
    first_release: Time,
    span: book::Span,
    old: Vec<StreamTask>,
}

/// Tests in copies of the books if a change fits.
fn test_in_copy(
    of: StreamContext<'_>,
    to: StreamParameters,
    admission: &mut Admission,
    now: Time,
) -> Result<TestedChange, ChangeFailure> {
    let (io, stream) = (&of.pool.io, of.core);
    let path = Path {
        range: stream.range().start..to.end,
        block: to.block,
        op: stream.op,
        wraps: stream.wraps,
    };
    // Checked under the lock: if the stream closes later, the keeper releases whatever is reserved here.
    if stream.is_closing() || io.is_closed() {
        return Err(invalid("the stream", "it is closed", "reserve a new stream").into());
    }
    let needs = needs_now(io, of.volume, &path)?;
    let disks = disks_of(&needs) as usize;
    if disks > stream.disks_max {
        let reason = format!(
            "{} lies on {disks} disks, but the stream has buffers for only {}",
            described(&path.range),
            stream.disks_max
        );
        return Err(invalid("the range", reason, "reserve a new stream").into());
    }
    admission.prune(now);
    let old = stream.tasks();
    // If this change follows another closely, the old tasks may not have begun yet.
    let earliest = old.iter().filter_map(|task| admission.begins(task));
    let earliest = earliest.max().unwrap_or(now).max(now);
    let (first_release, span) = book_span(
        stream.span,
        &needs,
        path.block,
        to.rate,
        stream.disks_max,
        earliest,
    )?;
    let request = stream_request(stream, &needs, to, span);
    match admission.test_change(&io.disks, request, &old) {
        Ok(()) => Ok(TestedChange {
            needs,
            first_release,
            span,
            old,
        }),
        Err(refusal) => Err(ChangeFailure::NotAdmitted {
            refusal,
            needs,
            span,
        }),
    }
}

fn change_paused(of: StreamContext<'_>, to: StreamParameters) -> Result<(), ChangeFailure> {
    let (pool, stream) = (of.pool, of.core);
    let io = &pool.io;
    let mut admission = pool.admission.lock();
    let now = clock::now();
    let TestedChange {
        needs,
        first_release,
        span,
        old,
    } = test_in_copy(of, to, &mut admission, now)?;
    let mut free_from = vec![now; io.disks.len()];
    for task in &old {
        // A stopped dispatcher has no schedule, so the share is free at once.
        let free = io.disks[task.disk].leave(task.id).unwrap_or(now);
        admission.ended(task.disk, task.id, free);
        free_from[task.disk] = free_from[task.disk].max(free);
    }
    let latest = free_from.iter().copied().max().unwrap_or(now);
    let span = book::Span {
        from: span.from.max(latest),
        until: span.until.max(latest.saturating_add(Nanos(1))),
    };
    let first_release = first_release.max(latest);
    let admitted = admission.admit(&io.disks, stream_request(stream, &needs, to, span));
    let result = match admitted {
        Ok(tasks) => join(&mut admission, io, &tasks, first_release, now)
            .map(|()| {
                stream.set_tasks(tasks, to.rate, to.block);
                set_end(of, to.end);
            })
            .map_err(ChangeFailure::Refused),
        Err(refusal) => Err(ChangeFailure::NotAdmitted {
            refusal,
            needs,
            span,
        }),
    };
    if result.is_err() {
        // The old tasks have left and no new ones joined, so the stream has no share on any disk.
        stream.set_tasks(Vec::new(), stream.rate(), stream.block());
    }
    drop(admission);
    pool.keeper.freed_at(latest);
    if result.is_err() {
        pool.keeper.begin_close(stream);
    }
    result
}

/// Sets the end of the stream's range. The caller holds the admission lock.
fn set_end(of: StreamContext<'_>, end: u64) {
    let before = of.core.range().end;
    of.core.set_end(end);
    if end > before {
        thaw(of.pool, of.volume, of.core);
    }
}
