//! Admitting a stream, and changing its rate, its range and its block.

use std::sync::Arc;

use sched::book;
use sched::disk::TaskKind;
use sched::request::Op as Direction;
use sched::units::{Bytes, BytesPerSecond, Nanos, SECTOR_BYTES, Time};

use super::needs::Path;
use super::reserve::{self, Stream, StreamSpec};
use crate::clock;
use crate::pool::PoolError;
use crate::state::error::host;
use crate::state::pool::admission::need::Need;
use crate::state::pool::admission::{Admission, Ask, Unadmitted};
use crate::state::pool::core::PoolCore;
use crate::state::refusal::{RETRY_REMEDY, Refusal, memory_refusal};
use crate::state::stream::core::{
    BUFFERS_PER_DISK, Span, StreamCore, StreamParts, StreamTask, last_deadline,
};
use crate::state::volume::VolumeCore;
use crate::volume_io::{Client, REQUEST_BYTES_MAX};

/// What to do about a block size that is none.
const BLOCK_REMEDY: &str = "take one such as 256 KiB or 1 MiB, or none: the pool proposes one";

/// What to do about a range that is none.
const RANGE_REMEDY: &str = "give it within the volume's size and in whole sectors of its disks, as all sizes in MiB or GiB are, or grow the volume";

/// What to do about a rate that is none.
const RATE_REMEDY: &str = "ask for the rate at which the bytes come or go, such as 1.2 MB/s";

fn invalid(what: &'static str, reason: impl Into<String>, remedy: &'static str) -> Refusal {
    Refusal::Invalid {
        what,
        reason: reason.into(),
        remedy,
    }
}

/// Admits a stream.
pub(crate) fn open(pool: &Arc<PoolCore>, spec: StreamSpec) -> Result<Stream, Refusal> {
    if pool.is_closed() {
        return Err(PoolError::Closed.into());
    }
    let path = check(pool, &spec)?;
    let volume = Arc::clone(spec.volume.core());
    let disk_count = disks_of(&needs_now(pool, &volume, &path)?);
    // In memory that is in pieces each of them finds one that holds it.
    let account = pool
        .memory
        .open_account_for(
            &spec.name,
            path.block.0 as usize,
            BUFFERS_PER_DISK * disk_count,
        )
        .map_err(memory_refusal)?;
    // A block divided at extents has a request for each; none waits for a place, nor does a flush. Made
    // before anything is reserved: the host may lack a descriptor.
    let in_flight = (BUFFERS_PER_DISK * disk_count) as usize + 1;
    let client = Client::new(&spec.name, Arc::clone(pool), account, None, in_flight)
        .map_err(|error| host("a stream's completion queue", error))?;

    let mut admission = pool.admission.lock();
    // Again: a pool that has been closed meanwhile would promise what nobody serves.
    if pool.is_closed() {
        return Err(PoolError::Closed.into());
    }
    // Under the lock nothing that a reservation forbids can change its place.
    let needs = needs_now(pool, &volume, &path)?;
    if disks_of(&needs) != disk_count {
        let reason = "extents were moved to other disks at this moment";
        return Err(invalid("the volume", reason, RETRY_REMEDY));
    }
    let now = clock::now();
    admission.prune(now);
    let disks = disk_count as usize;
    let (first_release, span) = book_span(spec.span, &needs, path.block, spec.rate, disks, now)?;
    let ask = Ask {
        name: &spec.name,
        needs: &needs,
        block: path.block,
        rate: spec.rate,
        span,
    };
    let tasks = match admission.admit(&pool.disks, ask) {
        Ok(tasks) => tasks,
        Err(unadmitted) => {
            drop(admission);
            return Err(unadmitted.into_refusal(ask));
        }
    };
    join(&mut admission, pool, &tasks, first_release, now)?;
    let core = StreamCore::new(StreamParts {
        key: admission.next_key(),
        name: spec.name.clone(),
        pool: Arc::clone(pool),
        volume,
        range: path.range,
        block: path.block,
        op: path.op,
        wraps: path.wraps,
        span: spec.span,
        rate: spec.rate,
        tasks,
    });
    admission.streams.insert(core.key, Arc::clone(&core));
    thaw(&core);
    drop(admission);
    if let Some(until) = spec.span.and_then(|span| span.until) {
        pool.keeper.close_at(until, &core);
    }
    Ok(reserve::stream(core, client, spec.volume))
}

/// A move holds no write back that a stream has reserved. Called under the lock of the admission: none is about to
/// switch.
fn thaw(core: &StreamCore) {
    if core.op == Direction::Write {
        core.volume.map().thaw(core.range());
        core.volume.retry(&core.pool.worker);
    }
}

/// The stream's range ends there from now on. Called under the lock of the admission.
fn set_end(core: &StreamCore, end: u64) {
    let before = core.range().end;
    core.set_end(end);
    if end > before {
        thaw(core);
    }
}

/// The largest rate below that of `spec` at which it would be admitted now, with its block; `None`: none.
///
/// # Errors
/// When it makes no sense at any rate.
pub(crate) fn rate_that_fits(
    pool: &Arc<PoolCore>,
    spec: &StreamSpec,
) -> Result<Option<BytesPerSecond>, Refusal> {
    let path = check(pool, spec)?;
    let needs = needs_now(pool, spec.volume.core(), &path)?;
    let now = clock::now();
    let disks = disks_of(&needs) as usize;
    let (_, span) = book_span(spec.span, &needs, path.block, spec.rate, disks, now)?;
    let books = {
        let mut admission = pool.admission.lock();
        admission.prune(now);
        admission.clone_books()
    };
    Ok(books.into_rate_that_fits(Ask {
        name: &spec.name,
        needs: &needs,
        block: path.block,
        rate: spec.rate,
        span,
    }))
}

/// How many disks there are needs on.
fn disks_of(needs: &[Need]) -> u64 {
    let mut disks: Vec<usize> = needs.iter().map(|need| need.disk).collect();
    disks.dedup();
    disks.len() as u64
}

/// A range to the byte, because that is what is wrong with it.
fn described(range: &std::ops::Range<u64>) -> String {
    format!("from {} B to {} B", range.start, range.end)
}

/// What is wrong with the numbers, or the stream's way through the volume.
fn check(pool: &Arc<PoolCore>, spec: &StreamSpec) -> Result<Path, Refusal> {
    let volume = &spec.volume;
    if !Arc::ptr_eq(volume.pool(), pool) {
        return Err(invalid(
            "the volume",
            "it belongs to another pool",
            "open it in the pool that is to carry the stream",
        ));
    }
    if spec.rate.0 == 0 {
        return Err(invalid(
            "the rate",
            "it must be at least 1 B/s",
            RATE_REMEDY,
        ));
    }
    let grain = volume.alignment().0;
    check_block(pool, grain, spec.block)?;
    let size = volume.size().0;
    let range = spec.range.clone().unwrap_or(0..size / grain * grain);
    check_range(pool, volume.core(), &range)?;
    if spec.op == Direction::Write
        && let Some(reason) = volume.poisoned()
    {
        return Err(PoolError::Poisoned {
            volume: volume.name().to_owned(),
            reason,
        }
        .into());
    }
    Ok(Path {
        range,
        block: spec.block,
        op: spec.op,
        wraps: spec.wraps,
    })
}

/// What is wrong with the size of a block.
fn check_block(pool: &PoolCore, grain: u64, block: Bytes) -> Result<(), Refusal> {
    let extent = pool.geometry.extent_bytes().0;
    let size = block.0;
    let fits = size != 0 && (extent.is_multiple_of(size) || size.is_multiple_of(extent));
    let reason = if !size.is_multiple_of(grain) || !fits {
        format!(
            "{block} ({size} B) is not a multiple of {} that divides the extent size of {} or is a multiple of it",
            Bytes(grain),
            Bytes(extent)
        )
    } else if block > REQUEST_BYTES_MAX {
        format!("{block} is more than the {REQUEST_BYTES_MAX} that a request may have")
    } else {
        return Ok(());
    };
    Err(invalid("the block size", reason, BLOCK_REMEDY))
}

/// What is wrong with another size of a stream's blocks.
pub(super) fn check_other_block(stream: &StreamCore, block: Bytes) -> Result<(), Refusal> {
    if block == stream.block() {
        return Ok(());
    }
    check_block(&stream.pool, stream.buffer.0, block)
}

/// What is wrong with a range.
fn check_range(
    pool: &PoolCore,
    volume: &VolumeCore,
    range: &std::ops::Range<u64>,
) -> Result<(), Refusal> {
    let size = volume.reservable().0;
    let grain = pool.block_bytes.max(SECTOR_BYTES);
    if range.start >= range.end || range.end > size {
        let reason = format!(
            "{} is empty or reaches past the volume's end at {}",
            described(range),
            Bytes(size)
        );
        return Err(invalid("the range", reason, RANGE_REMEDY));
    }
    if !range.start.is_multiple_of(grain) || !range.end.is_multiple_of(grain) {
        return Err(invalid(
            "the range",
            format!(
                "{} is not whole sectors of {}",
                described(range),
                Bytes(grain)
            ),
            RANGE_REMEDY,
        ));
    }
    Ok(())
}

/// What a stream needs of the disks as the volume is now, which may have become shorter since the stream was checked.
fn needs_now(pool: &Arc<PoolCore>, volume: &VolumeCore, path: &Path) -> Result<Vec<Need>, Refusal> {
    let map = volume.map();
    let size = volume.reservable().min(map.size());
    if path.range.end > size.0 {
        let reason = format!(
            "{} reaches past the volume's end, which has just become {size}",
            described(&path.range),
        );
        return Err(invalid("the range", reason, RANGE_REMEDY));
    }
    Ok(path.needs(&map, &pool.disks))
}

/// The stream's first release, and its span in the books: from a period before that, so that it does
/// not begin where a stream ends that is still at work (docs/design/scheduling.md, section 6), until a
/// period after the last deadline that blocks submitted in it can have, if it has buffers for so many disks.
fn book_span(
    span: Option<Span>,
    needs: &[Need],
    block: Bytes,
    rate: BytesPerSecond,
    disks: usize,
    now: Time,
) -> Result<(Time, book::Span), Refusal> {
    let first = span.map_or(now, |span| span.from.max(now));
    // A need that is no task is refused by admission.
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
            "it ends before it begins, or has passed",
            "give one that ends after it begins and after now",
        ));
    }
    let until = last_deadline(until, longest, disks).saturating_add(longest);
    Ok((first, book::Span { from, until }))
}

/// Has tasks that the books have admitted join at the dispatchers, all or none: where one does not, the
/// books are without them again. The dispatchers go by the smaller delta-L before any of them joins.
fn join(
    admission: &mut Admission,
    pool: &PoolCore,
    tasks: &[StreamTask],
    first_release: Time,
    now: Time,
) -> Result<(), Refusal> {
    admission.tell_delta_l(&pool.disks, now);
    for (index, task) in tasks.iter().enumerate() {
        let disk = &pool.disks[task.disk];
        let joined = disk.join(task.id, task.params, TaskKind::Stream, first_release);
        if let Err(reason) = joined {
            for joined in &tasks[..index] {
                // Nothing has been released; its share is free at once.
                pool.disks[joined.disk].leave(joined.id);
            }
            admission.forget(tasks);
            admission.tell_delta_l(&pool.disks, now);
            return Err(Refusal::Invalid {
                what: "the reservation",
                reason: format!("disk {:?}: {reason}", disk.name),
                remedy: RETRY_REMEDY,
            });
        }
    }
    Ok(())
}

/// What a stream is to have from now on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) rate: BytesPerSecond,
    /// Where its range ends, in bytes of the volume.
    pub(super) end: u64,
    pub(super) block: Bytes,
}

/// Changes the rate of a stream, where its range ends and how long its blocks are.
///
/// A leave and a join on each disk. Whether the new tasks fit is tested first, on copies of the
/// books, as if they took the old ones' place at once; then they fit from whatever instant on the
/// old ones' shares are free. Blocks are held back meanwhile: the dispatcher lets a task leave only
/// when nothing of it is queued, and the next block could not be released before the last deadline
/// of the old task, which is when the new one begins.
pub(super) fn change(stream: &Arc<StreamCore>, to: Changed) -> Result<(), Refusal> {
    check_changed(stream, to)?;
    stream.pause();
    let result = change_paused(stream, to);
    stream.resume();
    result.map_err(|unchanged| unchanged.into_refusal(stream, to))
}

/// Whether it could be changed so now, which is for how long the longest of its new periods would be.
pub(super) fn try_change(stream: &Arc<StreamCore>, to: Changed) -> Result<Nanos, Refusal> {
    check_changed(stream, to)?;
    let pool = &stream.pool;
    let mut admission = pool.admission.lock();
    let tried = tried(stream, to, &mut admission, clock::now());
    drop(admission);
    let tried = tried.map_err(|unchanged| unchanged.into_refusal(stream, to))?;
    let tasks = tried
        .needs
        .iter()
        .flat_map(|need| need.task(to.block, to.rate));
    let longest = tasks.map(|task| task.period()).max();
    Ok(longest.unwrap_or(Nanos::ZERO))
}

fn check_changed(stream: &StreamCore, to: Changed) -> Result<(), Refusal> {
    if to.rate.0 == 0 {
        return Err(invalid(
            "the rate",
            "it must be at least 1 B/s",
            RATE_REMEDY,
        ));
    }
    let range = stream.range().start..to.end;
    check_range(&stream.pool, &stream.volume, &range)
}

/// Why a rate and a range stay.
enum Unchanged {
    Refused(Refusal),
    /// What would fit is searched when the stream goes on.
    Unfit {
        unadmitted: Box<Unadmitted>,
        needs: Vec<Need>,
        span: book::Span,
    },
}

impl Unchanged {
    fn into_refusal(self, stream: &StreamCore, to: Changed) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Unfit {
                unadmitted,
                needs,
                span,
            } => unadmitted.into_refusal(ask_of(stream, &needs, to, span)),
        }
    }
}

impl From<Refusal> for Unchanged {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn ask_of<'a>(stream: &'a StreamCore, needs: &'a [Need], to: Changed, span: book::Span) -> Ask<'a> {
    Ask {
        name: &stream.name,
        needs,
        block: to.block,
        rate: to.rate,
        span,
    }
}

/// What a change would take, which the books have room for.
struct Tried {
    needs: Vec<Need>,
    first_release: Time,
    span: book::Span,
    old: Vec<StreamTask>,
}

/// Tests in copies of the books whether a change fits.
fn tried(
    stream: &StreamCore,
    to: Changed,
    admission: &mut Admission,
    now: Time,
) -> Result<Tried, Unchanged> {
    let pool = &stream.pool;
    let path = Path {
        range: stream.range().start..to.end,
        block: to.block,
        op: stream.op,
        wraps: stream.wraps,
    };
    // Under the lock: of a stream that closes only now, the keeper has what is reserved here leave.
    if stream.is_closing() || pool.is_closed() {
        return Err(invalid("the stream", "it is closed", "reserve a new one").into());
    }
    let needs = needs_now(pool, &stream.volume, &path)?;
    let disks = disks_of(&needs) as usize;
    if disks > stream.disks_max {
        let reason = format!(
            "{} lies on {disks} disks, and the stream has buffers for {}",
            described(&path.range),
            stream.disks_max
        );
        return Err(invalid("the range", reason, "reserve a new stream").into());
    }
    admission.prune(now);
    let old = stream.tasks();
    // A change soon after another: the old tasks themselves begin only when those before have left.
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
    let ask = ask_of(stream, &needs, to, span);
    match admission.test_change(&pool.disks, ask, &old) {
        Ok(()) => Ok(Tried {
            needs,
            first_release,
            span,
            old,
        }),
        Err(unadmitted) => Err(Unchanged::Unfit {
            unadmitted,
            needs,
            span,
        }),
    }
}

fn change_paused(stream: &Arc<StreamCore>, to: Changed) -> Result<(), Unchanged> {
    let pool = &stream.pool;
    let mut admission = pool.admission.lock();
    let now = clock::now();
    let Tried {
        needs,
        first_release,
        span,
        old,
    } = tried(stream, to, &mut admission, now)?;
    let mut free_from = vec![now; pool.disks.len()];
    for task in &old {
        // A dispatcher that has stopped has no schedule to keep free.
        let free = pool.disks[task.disk].leave(task.id).unwrap_or(now);
        admission.ended(task.disk, task.id, free);
        free_from[task.disk] = free_from[task.disk].max(free);
    }
    let latest = free_from.iter().copied().max().unwrap_or(now);
    let span = book::Span {
        from: span.from.max(latest),
        until: span.until.max(latest.saturating_add(Nanos(1))),
    };
    let first_release = first_release.max(latest);
    let admitted = admission.admit(&pool.disks, ask_of(stream, &needs, to, span));
    let result = match admitted {
        Ok(tasks) => join(&mut admission, pool, &tasks, first_release, now)
            .map(|()| {
                stream.set_tasks(tasks, to.rate, to.block);
                set_end(stream, to.end);
            })
            .map_err(Unchanged::Refused),
        Err(unadmitted) => Err(Unchanged::Unfit {
            unadmitted,
            needs,
            span,
        }),
    };
    if result.is_err() {
        // It has no share of any disk any more: what there was is on its way out.
        stream.set_tasks(Vec::new(), stream.rate(), stream.block());
    }
    drop(admission);
    pool.keeper.freed_at(latest);
    if result.is_err() {
        stream.begin_close();
    }
    result
}
