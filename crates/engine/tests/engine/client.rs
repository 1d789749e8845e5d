//! Requests of clients: refusals, order, and failures.

mod answers;
mod failures;
mod refusals;

use std::sync::Arc;
use testkit::disks;

use engine::pool::{Pool, Volume};
use sched::units::Bytes;
use testkit::disks::{MIB, volume_on_two};

/// A volume with its first extent on disk 0 and its second on disk 1, both written.
fn two_disks(pool: &Pool) -> Arc<Volume> {
    let volume = volume_on_two(pool, "v");
    let client = disks::client(pool);
    client
        .write_at(&volume, Bytes(0), &vec![1; 2 * MIB as usize])
        .unwrap();
    client.flush(&volume).unwrap();
    volume
}
