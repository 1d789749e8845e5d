//! Counts of a run.

use sched::units::{Nanos, Time};

use crate::run::Hash;

/// Counts of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskTally {
    /// Its id.
    pub id: u8,
    /// Requests that were done.
    pub done: u64,
    /// Of these, the late ones.
    pub late: u64,
    /// Times at which it has won the bus for data.
    pub bursts: u64,
    /// The sum of its waits for the bus with data.
    pub bus_wait: Nanos,
    /// The longest wait for the bus with a status of PRE-FETCH.
    pub status_wait_max: Nanos,
    /// The most bursts of other disks during one such wait.
    pub status_passed_max: u64,
    /// Seeks, rotations and transfers from the media.
    pub busy: Nanos,
    /// Segments that were overwritten before they were sent.
    pub overwritten: u64,
    /// The longest queue at the host.
    pub queue_max: usize,
}

/// Counts of a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    /// By disk, in order of [`super::Setup::ids`].
    pub disks: Vec<DiskTally>,
    /// The time in which the bus was not free.
    pub bus_busy: Nanos,
    /// The end of the last event.
    pub end: Time,
    /// Covers the time, disk and place of every completed request.
    pub hash: u64,
}

impl Tally {
    /// Requests that were done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.disks.iter().map(|disk| disk.done).sum()
    }

    /// Requests that were late.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.disks.iter().map(|disk| disk.late).sum()
    }

    /// One hash of several channels.
    #[must_use]
    pub fn hash_of(tallies: &[Self]) -> u64 {
        let mut hash = Hash::default();
        tallies.iter().for_each(|tally| hash.add(tally.hash));
        hash.0
    }
}
