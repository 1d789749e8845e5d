//! Admission of a stream: check, memory, admission test, tasks at the dispatchers.

use std::sync::Arc;

use sched::units::BytesPerSecond;

use super::check::{check, disks_of, invalid, needs_now};
use super::spec::StreamSpec;
use super::tasks::{book_span, join, thaw};
use crate::clock;
use crate::state::error::{PoolError, host};
use crate::state::pool::admission::StreamRequest;
use crate::state::pool::core::PoolCore;
use crate::state::refusal::{RETRY_REMEDY, Refusal, memory_refusal};
use crate::state::stream::core::{BUFFERS_PER_DISK, StreamCore, StreamParts};
use crate::volume_io::client::Client;
use crate::volume_io::stream::{self, Stream};

/// Admits a stream.
pub(crate) fn open(pool: &Arc<PoolCore>, spec: StreamSpec) -> Result<Stream, Refusal> {
    if pool.io.is_closed() {
        return Err(PoolError::Closed.into());
    }
    let path = check(&pool.io, &spec)?;
    let volume = Arc::clone(spec.volume.core());
    let disk_count = disks_of(&needs_now(&pool.io, &volume, &path)?);
    // The fixed part consists of pieces that each hold whole blocks, even in fragmented memory.
    let account = pool
        .io
        .memory
        .open_account_for(
            &spec.name,
            path.block.0 as usize,
            BUFFERS_PER_DISK * disk_count,
        )
        .map_err(memory_refusal)?;
    // All blocks that have buffers may be in flight, and a flush. The client is made before anything is
    // reserved, because the host may be out of descriptors.
    let in_flight = (BUFFERS_PER_DISK * disk_count) as usize + 1;
    let client = Client::new(&spec.name, pool, account, None, in_flight)
        .map_err(|error| host("a stream's completion queue", error))?;

    let mut admission = pool.admission.lock();
    // Checked again under the lock: a pool closed meanwhile must not make reservations.
    if pool.io.is_closed() {
        return Err(PoolError::Closed.into());
    }
    // Under the lock, extents that the reservation will pin cannot move.
    let needs = needs_now(&pool.io, &volume, &path)?;
    if disks_of(&needs) != disk_count {
        let reason = "extents were moved to other disks at this moment";
        return Err(invalid("the volume", reason, RETRY_REMEDY));
    }
    let now = clock::now();
    admission.prune(now);
    let disks = disk_count as usize;
    let (first_release, span) = book_span(spec.span, &needs, path.block, spec.rate, disks, now)?;
    let request = StreamRequest {
        name: &spec.name,
        needs: &needs,
        block: path.block,
        rate: spec.rate,
        span,
    };
    let tasks = match admission.admit(&pool.io.disks, request) {
        Ok(tasks) => tasks,
        Err(refusal) => {
            drop(admission);
            return Err(refusal.into_refusal(request));
        }
    };
    join(&mut admission, &pool.io, &tasks, first_release, now)?;
    let core = StreamCore::new(StreamParts {
        key: admission.next_key(),
        name: spec.name.clone(),
        volume: volume.id,
        volume_name: volume.name.clone(),
        range: path.range,
        block: path.block,
        op: path.op,
        wraps: path.wraps,
        span: spec.span,
        rate: spec.rate,
        tasks,
    });
    admission.streams.insert(core.key, Arc::clone(&core));
    thaw(pool, &volume, &core);
    drop(admission);
    if let Some(until) = spec.span.and_then(|span| span.until) {
        pool.keeper.close_at(until, &core);
    }
    pool.repairs.sweep();
    Ok(stream::stream(Arc::clone(pool), core, client, spec.volume))
}

/// The largest rate below that of `spec` at which it would be admitted now; `None` if there is none.
///
/// # Errors
/// When the stream is invalid at any rate.
pub(crate) fn rate_that_fits(
    pool: &Arc<PoolCore>,
    spec: &StreamSpec,
) -> Result<Option<BytesPerSecond>, Refusal> {
    let path = check(&pool.io, spec)?;
    let needs = needs_now(&pool.io, spec.volume.core(), &path)?;
    let now = clock::now();
    let disks = disks_of(&needs) as usize;
    let (_, span) = book_span(spec.span, &needs, path.block, spec.rate, disks, now)?;
    let books = {
        let mut admission = pool.admission.lock();
        admission.prune(now);
        admission.clone_books()
    };
    Ok(books.into_rate_that_fits(StreamRequest {
        name: &spec.name,
        needs: &needs,
        block: path.block,
        rate: spec.rate,
        span,
    }))
}
