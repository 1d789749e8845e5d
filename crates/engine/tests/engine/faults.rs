//! Disks that fill up, disappear, stop answering or are slow: other disks go on, streams are told, and no
//! data that a flush acknowledged is lost.

mod frozen;
mod real;
mod slow;

use std::fs::File;
use std::sync::Arc;

use engine::pool::{Pool, Volume};
use engine::stream::{PaceError, Recorder, Stop, Stream, StreamSpec};
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{client, stream_spec};

fn stream(pool: &Pool, volume: &Arc<Volume>, op: Op, rate: u64) -> Stream {
    let spec = StreamSpec {
        wraps: true,
        ..stream_spec(volume, op, rate, 65536)
    };
    pool.reserve(spec).unwrap()
}

/// Records zeros until it fails, calling `at_block` after each block; returns the failure.
fn record_until_it_fails(stream: &Stream, mut at_block: impl FnMut(u64)) -> PaceError {
    let zeros = File::open("/dev/zero").unwrap();
    Recorder::new(stream, Bytes::ZERO)
        .run(zeros, &Stop::new().unwrap(), &mut |block| {
            at_block(block.index)
        })
        .unwrap_err()
}

/// Asserts that a volume on a healthy disk takes, keeps and returns data.
fn works(pool: &Pool, volume: &Arc<Volume>, fill: u8) {
    let client = client(pool);
    client.write_at(volume, Bytes(0), &[fill; 65536]).unwrap();
    client.flush(volume).unwrap();
    let mut back = [0; 65536];
    client.read_at(volume, Bytes(0), &mut back).unwrap();
    assert!(back == [fill; 65536]);
}
