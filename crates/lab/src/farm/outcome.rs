//! Results of a run on several disks.

use std::collections::BTreeMap;

use sched::units::{Nanos, Time};

use super::Stream;
use super::load::{Load, Traced, WHOLE};
use crate::run::{DiskAccount, Hash, Latencies, LatencySummary, StreamOutcome};

/// Latencies of the requests that were issued in a slot of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    /// Number of values.
    pub count: u64,
    /// All their latencies together.
    pub sum: Nanos,
    /// The worst.
    pub max: Nanos,
}

impl Slot {
    fn add(&mut self, latency: Nanos) {
        self.count += 1;
        self.sum += latency;
        self.max = self.max.max(latency);
    }
}

/// Results of a source of best effort.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SourceOutcome {
    /// From issue to completion.
    pub latency: LatencySummary,
    /// By the slot in which they were issued, if that was asked for.
    pub slots: Vec<Slot>,
}

/// Results of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct FarmOutcome {
    /// Per stream.
    pub streams: Vec<StreamOutcome>,
    /// Per source of best effort.
    pub sources: Vec<SourceOutcome>,
    /// All best effort together.
    pub best_effort: LatencySummary,
    /// Per disk.
    pub disks: Vec<DiskAccount>,
    /// The most requests that clients held back at a time because a disk's queue was full.
    pub waiting_max: u64,
    /// Requests of best effort for which there never was enough slack.
    pub unserved: u64,
    /// Per disk, the slack each time it was looked at, from zero on; `None` where nothing limits it.
    pub slack: Vec<Vec<Option<Nanos>>>,
    /// Covers every dispatch and completion on every disk: equal for equal runs.
    pub hash: u64,
}

impl FarmOutcome {
    /// Deadlines missed by all streams together.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.streams.iter().map(|stream| stream.missed).sum()
    }

    /// The worst lateness of all streams.
    #[must_use]
    pub fn lateness_max(&self) -> Nanos {
        let worst = self.streams.iter().map(|stream| stream.lateness_max).max();
        worst.unwrap_or_default()
    }
}

/// A part of a request that lies on several extents, served.
#[derive(Clone, Copy, Debug)]
struct PartDone {
    request: u32,
    source: u16,
    issued: Time,
    done: Time,
}

/// A source's latencies as they come.
#[derive(Clone)]
struct Source {
    latencies: Latencies,
    slots: Vec<Slot>,
}

impl Source {
    fn new() -> Self {
        Self {
            latencies: Latencies::new(),
            slots: Vec::new(),
        }
    }

    fn served(&mut self, issued: Time, done: Time, slot: Option<Nanos>) {
        let latency = done - issued;
        self.latencies.record(latency);
        if let Some(slot) = slot {
            let index = (issued.get() / slot.get().max(1)) as usize;
            if self.slots.len() <= index {
                self.slots.resize(index + 1, Slot::default());
            }
            self.slots[index].add(latency);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        if self.slots.len() < other.slots.len() {
            self.slots.resize(other.slots.len(), Slot::default());
        }
        for (slot, more) in self.slots.iter_mut().zip(&other.slots) {
            slot.count += more.count;
            slot.sum += more.sum;
            slot.max = slot.max.max(more.max);
        }
    }
}

/// Results of a disk.
pub(super) struct DiskOutcome {
    pub(super) account: DiskAccount,
    pub(super) waiting_max: u64,
    pub(super) slack: Vec<Option<Nanos>>,
    /// By lane on the disk: the stream, and what came of its requests here.
    lanes: Vec<(usize, StreamOutcome)>,
    sources: Vec<Source>,
    parts: Vec<PartDone>,
    slot: Option<Nanos>,
}

impl DiskOutcome {
    pub(super) fn new(sources: usize, streams: Vec<usize>, slot: Option<Nanos>) -> Self {
        Self {
            account: DiskAccount::default(),
            waiting_max: 0,
            slack: Vec::new(),
            lanes: streams
                .into_iter()
                .map(|stream| (stream, StreamOutcome::default()))
                .collect(),
            sources: vec![Source::new(); sources],
            parts: Vec::new(),
            slot,
        }
    }

    pub(super) fn block(&mut self, lane: usize, lateness: Nanos) {
        self.lanes[lane].1.served(lateness);
    }

    pub(super) fn best_effort(&mut self, traced: &Traced, now: Time) {
        if traced.part_of == WHOLE {
            self.sources[usize::from(traced.source)].served(traced.at, now, self.slot);
        } else {
            self.parts.push(PartDone {
                request: traced.part_of,
                source: traced.source,
                issued: traced.at,
                done: now,
            });
        }
    }
}

/// Puts together what came of the disks.
pub(super) fn merged(
    load: &Load,
    streams: &[Stream],
    disks: impl Iterator<Item = DiskOutcome>,
) -> FarmOutcome {
    let mut sources = vec![Source::new(); load.sources];
    let mut of_streams = vec![StreamOutcome::default(); streams.len()];
    let mut accounts = Vec::new();
    let mut hash = Hash::default();
    let mut waiting_max = 0;
    let mut parts: BTreeMap<u32, PartDone> = BTreeMap::new();
    let mut slot = None;
    let mut slack = Vec::new();
    for disk in disks {
        slot = slot.or(disk.slot);
        hash.add(disk.account.hash);
        accounts.push(disk.account);
        waiting_max = waiting_max.max(disk.waiting_max);
        slack.push(disk.slack);
        for (stream, outcome) in disk.lanes {
            of_streams[stream].add(&outcome);
        }
        for (source, more) in sources.iter_mut().zip(&disk.sources) {
            source.merge(more);
        }
        for part in disk.parts {
            let last = parts.entry(part.request).or_insert(part);
            last.done = last.done.max(part.done);
        }
    }
    for part in parts.values() {
        sources[usize::from(part.source)].served(part.issued, part.done, slot);
    }
    let mut all = Latencies::new();
    for source in &sources {
        all.add(&source.latencies);
    }
    let best_effort = all.summary();
    FarmOutcome {
        streams: of_streams,
        best_effort,
        unserved: load.requests.saturating_sub(best_effort.count),
        slack,
        sources: sources
            .into_iter()
            .map(|source| SourceOutcome {
                latency: source.latencies.summary(),
                slots: source.slots,
            })
            .collect(),
        disks: accounts,
        waiting_max,
        hash: hash.0,
    }
}
