//! What a run has shown.

use serde::{Deserialize, Serialize};

use super::Server;
use crate::channel::Tally;

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The number of viewers.
    pub streams: u32,
    /// Requests that were done.
    pub requests: u64,
    /// Of these, the late ones.
    pub late: u64,
    /// The simulated time.
    pub seconds: f64,
    /// The share of time in which a bus was not free. The end of a run, with few viewers left, counts too.
    pub bus_busy: f64,
    /// The share of time in which a disk was seeking, waiting for the platter or reading.
    pub disk_busy: f64,
    /// By id, from high to low priority.
    pub ids: Vec<IdOutcome>,
    /// Covers every completion.
    pub hash: String,
}

/// The disks of an id, on all channels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IdOutcome {
    /// The id.
    pub id: u8,
    /// Requests that were done.
    pub requests: u64,
    /// The late ones.
    pub late: u64,
    /// The mean wait of a request for the bus, with data.
    pub bus_wait_ms: f64,
    /// The longest wait for the bus with the status of a PRE-FETCH.
    pub status_wait_max_ms: f64,
    /// The most bursts of other disks during one such wait.
    pub status_passed_max: u64,
}

impl Outcome {
    /// Of the channels that were run.
    pub(super) fn new(server: &Server, streams: u32, tallies: Vec<Tally>) -> Self {
        let seconds: f64 = tallies
            .iter()
            .map(|tally| tally.end.get() as f64 / 1e9)
            .sum();
        // A run without streams takes no time.
        let all = seconds.max(f64::MIN_POSITIVE);
        let bus: f64 = tallies
            .iter()
            .map(|tally| tally.bus_busy.as_secs_f64())
            .sum();
        let disks = || tallies.iter().flat_map(|tally| &tally.disks);
        let disk: f64 = disks().map(|disk| disk.busy.as_secs_f64()).sum();
        let mut ids: Vec<u8> = server.ids.clone();
        ids.sort_by_key(|id| crate::channel::priority(*id));
        let of_id = |id: u8| {
            let of = || disks().filter(move |disk| disk.id == id);
            let requests: u64 = of().map(|disk| disk.done).sum();
            let wait: f64 = of().map(|disk| disk.bus_wait.as_millis_f64()).sum();
            let status = of().map(|disk| disk.status_wait_max).max();
            IdOutcome {
                id,
                requests,
                late: of().map(|disk| disk.late).sum(),
                bus_wait_ms: wait / requests.max(1) as f64,
                status_wait_max_ms: status.unwrap_or_default().as_millis_f64(),
                status_passed_max: of().map(|disk| disk.status_passed_max).max().unwrap_or(0),
            }
        };
        Self {
            streams,
            requests: tallies.iter().map(Tally::done).sum(),
            late: tallies.iter().map(Tally::late).sum(),
            seconds: seconds / tallies.len().max(1) as f64,
            bus_busy: bus / all,
            disk_busy: disk / all / server.ids.len() as f64,
            ids: ids.into_iter().map(of_id).collect(),
            hash: format!("{:016x}", Tally::hash_of(&tallies)),
        }
    }

    /// True if no request was late.
    #[must_use]
    pub fn is_smooth(&self) -> bool {
        self.late == 0
    }
}
