//! A stream's tasks in the books and at the dispatchers.

use std::sync::Arc;

use sched::book;
use sched::disk::TaskKind;
use sched::request::Op as Direction;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use super::check::invalid;
use crate::state::pool::admission::Admission;
use crate::state::pool::admission::need::Need;
use crate::state::pool::core::PoolCore;
use crate::state::pool::io::IoCore;
use crate::state::refusal::{RETRY_REMEDY, Refusal};
use crate::state::stream::core::{Span, StreamCore, StreamTask, last_deadline};
use crate::state::volume::VolumeCore;

/// The stream's first release, and its span in the books. The span begins a period earlier, so that it does not
/// begin while an ending stream still works (docs/design/scheduling.md, section 6). It ends a period after the
/// last possible deadline of blocks submitted within the time span, with buffers for `disks` disks.
pub(super) fn book_span(
    span: Option<Span>,
    needs: &[Need],
    block: Bytes,
    rate: BytesPerSecond,
    disks: usize,
    now: Time,
) -> Result<(Time, book::Span), Refusal> {
    let first = span.map_or(now, |span| span.from.max(now));
    // An invalid task is refused by admission later.
    let tasks = needs.iter().flat_map(|need| need.task(block, rate));
    let longest = tasks.map(|task| task.period()).max();
    let longest = longest.unwrap_or(Nanos::ZERO);
    let from = Time(first.0.saturating_sub(longest.0)).max(now);
    let Some(until) = span.and_then(|span| span.until) else {
        return Ok((first, book::Span::since(from)));
    };
    if until <= first {
        return Err(invalid(
            "the time span",
            "it ends before it begins, or is in the past",
            "give a time span that ends after it begins and in the future",
        ));
    }
    let until = last_deadline(until, longest, disks).saturating_add(longest);
    Ok((first, book::Span { from, until }))
}

/// Joins tasks that the books have admitted at the dispatchers, all or none. On failure they are removed from
/// the books. The dispatchers get the smaller delta-L before any task joins.
pub(super) fn join(
    admission: &mut Admission,
    io: &IoCore,
    tasks: &[StreamTask],
    first_release: Time,
    now: Time,
) -> Result<(), Refusal> {
    admission.publish_delta_l(&io.disks, now);
    for (index, task) in tasks.iter().enumerate() {
        let disk = &io.disks[task.disk];
        let joined = disk.join(task.id, task.params, TaskKind::Stream, first_release);
        if let Err(reason) = joined {
            for joined in &tasks[..index] {
                // Nothing has been released, so the share is free at once.
                io.disks[joined.disk].leave(joined.id);
            }
            admission.forget(tasks);
            admission.publish_delta_l(&io.disks, now);
            return Err(Refusal::Invalid {
                what: "the reservation",
                reason: format!("disk {:?}: {reason}", disk.name),
                remedy: RETRY_REMEDY,
            });
        }
    }
    Ok(())
}

/// Thaws the extents of a stream that writes, so that a move does not hold back its writes. The caller holds the
/// admission lock, so no move is about to switch.
pub(super) fn thaw(pool: &PoolCore, volume: &Arc<VolumeCore>, core: &StreamCore) {
    if core.op == Direction::Write {
        volume.map().thaw(core.range());
        volume.retry(&pool.worker);
    }
}
