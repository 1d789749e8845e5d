//! Streams: admission, the operations that reservations prevent, and sessions that record and play.

mod admission;
mod ahead;
mod blocks;
mod kept;
mod longer;
mod ranges;
mod reserved;
mod sessions;
mod tracks;

use engine::pool::Pool;
use engine::stream::{Refusal, StreamSpec};

fn refused(pool: &Pool, spec: StreamSpec) -> Refusal {
    match pool.reserve(spec) {
        Ok(stream) => panic!("{stream:?} was admitted"),
        Err(refusal) => refusal,
    }
}

fn rate_that_fits(refusal: &Refusal) -> u64 {
    match refusal {
        Refusal::Load { rate_that_fits, .. } => rate_that_fits.unwrap().0,
        other => panic!("{other}"),
    }
}
