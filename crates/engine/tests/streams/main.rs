//! Reservations: what is admitted, what they keep others from doing, and sessions that record and play
//! through them.

mod admission;
#[path = "../common/mod.rs"]
mod common;
mod reserved;
mod sessions;

use std::sync::Arc;

use engine::front::VolumeOp;
use engine::pool::{Pool, Volume};
use engine::stream::{Refusal, StreamSpec};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

const WRITE: VolumeOp = VolumeOp::Write { durable: false };

fn spec(volume: &Arc<Volume>, op: Op, rate: u64, block: u64) -> StreamSpec {
    StreamSpec {
        name: "camera".into(),
        volume: Arc::clone(volume),
        range: None,
        rate: BytesPerSecond(rate),
        block: Bytes(block),
        op,
        span: None,
        wraps: false,
    }
}

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
