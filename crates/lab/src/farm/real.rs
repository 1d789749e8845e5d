//! A farm in real time: the same streams and the same trace, but requests come by the wall clock, each disk
//! is run by the server's own dispatcher on a thread of its own, and emulated drives answer when their models
//! say so.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use drives::emulator::{DriveOptions, EmulatedDrive};
use engine::buffer::{Account, Buffer, Memory, MemoryConfig};
use engine::clock;
use engine::completion::{Completion, CompletionQueue};
use engine::dispatcher::{
    Dispatcher, DispatcherConfig, DispatcherHandle, DispatcherReport, Io, Places, StallLimits,
};
use engine::rt::ThreadParams;
use sched::disk::DiskScheduler;
use sched::request::{Order, Request, RequestId};
use sched::units::{Bytes, Nanos, Time};

use super::feed::{BEST_EFFORT_ID, Feed};
use super::outcome::DiskOutcome;
use super::{FarmOutcome, FarmRun, disk, outcome};

/// Answers that are queued at a time.
const ANSWERS_MAX: usize = 8_192;

/// Memory for best effort in flight on a disk.
const BEST_EFFORT_BYTES: Bytes = Bytes::from_mib(96);

/// Longest wait for answers after the last request. A best-effort request longer than the slack is never
/// served.
const ANSWERS_WITHIN: Nanos = Nanos::from_secs(60);

/// An error of a run in real time, with its place in words.
#[derive(Debug, thiserror::Error)]
#[error("disk {disk}: {error}")]
pub struct RealTimeError {
    /// Whose.
    pub disk: usize,
    /// The error.
    pub error: Box<dyn std::error::Error + Send + Sync>,
}

/// Results of a run in real time.
#[derive(Clone, PartialEq, Debug)]
pub struct RealOutcome {
    /// As in virtual time, without the use of a disk's time. Lateness is net of the host's.
    pub farm: FarmOutcome,
    /// Deadlines missed with the host's lateness.
    pub missed_gross: u64,
    /// Lateness of drives against their models: the worst drive's 99th percentile.
    pub drives_late_p99: Nanos,
    /// Requests that were never served.
    pub unserved: u64,
}

/// A disk's part of it.
struct OfDisk {
    outcome: DiskOutcome,
    report: DispatcherReport,
    late_p99: Nanos,
    unserved: u64,
}

impl FarmRun<'_> {
    /// Runs it by the wall clock, from `begin` on, with the drives' data in `folder`.
    ///
    /// # Errors
    /// Missing resources of the host: files, threads, memory.
    pub fn run_in_real_time(
        &self,
        folder: &Path,
        begin: Time,
    ) -> Result<RealOutcome, RealTimeError> {
        let disks: Vec<Result<OfDisk, RealTimeError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.disks.count)
                .map(|number| {
                    let path = folder.join(format!("disk-{number}"));
                    scope.spawn(move || {
                        let of = run_disk(self, number, &path, begin);
                        of.map_err(|error| RealTimeError {
                            disk: number,
                            error,
                        })
                    })
                })
                .collect();
            let joined = threads.into_iter();
            joined
                .map(|thread| thread.join().expect("a disk does not panic"))
                .collect()
        });
        let disks = disks.into_iter().collect::<Result<Vec<OfDisk>, _>>()?;
        Ok(RealOutcome {
            missed_gross: disks
                .iter()
                .map(|disk| disk.report.counters.missed_gross.count)
                .sum(),
            drives_late_p99: disks
                .iter()
                .map(|disk| disk.late_p99)
                .max()
                .unwrap_or_default(),
            unserved: disks.iter().map(|disk| disk.unserved).sum(),
            farm: outcome::merged(
                self.load,
                self.admitted.streams(),
                disks.into_iter().map(|disk| disk.outcome),
            ),
        })
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn run_disk(of: &FarmRun<'_>, number: usize, path: &Path, begin: Time) -> Result<OfDisk, AnyError> {
    let on_disk = &of.admitted.on_disk[number];
    let options = DriveOptions {
        seed: of.seed_of(number),
        ..DriveOptions::default()
    };
    let drive = EmulatedDrive::create(path, of.disks.plant.clone(), &options)?;
    // Nothing is left behind, however this ends.
    std::fs::remove_file(path)?;
    let control = drive.control();
    let profile = Arc::clone(&of.disks.profile);
    let (dispatcher, _) = Dispatcher::start(DispatcherConfig {
        name: format!("{} {number}", of.config.policy),
        disk: Box::new(drive),
        scheduler: DiskScheduler::new(profile, disk::config(of, number)),
        thread: ThreadParams::dispatcher("disk"),
        places: Places::default(),
        patience: StallLimits::default(),
        link: None,
    })?;
    let handle = dispatcher.handle();
    for task in &on_disk.tasks {
        handle.join(task.id, task.params, task.kind, begin)?;
    }
    let (corrected, published) = of.admitted.delta_l()[number];
    handle.set_delta_l(corrected.value, published.value);
    let (outcome, unserved) = Client::new(of, number, handle.clone(), begin)?.follow()?;
    let report = handle.report()?;
    dispatcher.stop(false);
    Ok(OfDisk {
        outcome,
        report,
        late_p99: control.stats().lateness.p99,
        unserved,
    })
}

/// A client of a disk. It submits requests when they are due, and takes the answers.
struct Client<'a> {
    feed: Feed<'a>,
    disk: DispatcherHandle,
    account: Account,
    answers: CompletionQueue,
    in_flight: HashMap<u64, Buffer>,
    outcome: DiskOutcome,
    begin: Time,
}

impl<'a> Client<'a> {
    fn new(
        of: &FarmRun<'a>,
        number: usize,
        disk: DispatcherHandle,
        begin: Time,
    ) -> Result<Self, AnyError> {
        let lanes = &of.admitted.on_disk[number].streams;
        let streams = of.admitted.streams();
        let blocks = lanes.iter().map(|lane| {
            let stream = &streams[lane.stream];
            stream.track.block.get() * u64::from(stream.depth + 1)
        });
        let share = Bytes(blocks.sum::<u64>() + BEST_EFFORT_BYTES.get());
        let memory = Memory::new(&MemoryConfig {
            lock: false,
            ..MemoryConfig::new(Bytes(share.get() / 16 * 17))
        })?;
        let lanes = lanes.iter().map(|lane| lane.stream).collect();
        Ok(Self {
            feed: Feed::new(of, number),
            disk,
            account: memory.open_account("farm", share)?,
            answers: CompletionQueue::new(ANSWERS_MAX)?,
            in_flight: HashMap::new(),
            outcome: DiskOutcome::new(of.load.sources, lanes, of.slot),
            begin,
        })
    }

    /// The time of the farm at an instant.
    fn since_begin(&self, at: Time) -> Time {
        Time::ZERO + at.saturating_since(self.begin)
    }

    fn follow(mut self) -> Result<(DiskOutcome, u64), AnyError> {
        let mut last = self.begin;
        loop {
            let until = match self.feed.next_at() {
                Some(at) => {
                    last = self.begin + (at - Time::ZERO);
                    last
                }
                None if self.in_flight.is_empty() => break,
                None => last.saturating_add(ANSWERS_WITHIN),
            };
            if let Some(answer) = self.answers.wait(Some(until)) {
                self.answered(&answer)?;
                continue;
            }
            let now = self.since_begin(clock::now());
            let mut asked = false;
            while let Some(request) = self.feed.next(now) {
                self.submit(&request)?;
                asked = true;
            }
            if !asked && self.feed.next_at().is_none() {
                break;
            }
        }
        let unserved = self.in_flight.len() as u64;
        Ok((self.outcome, unserved))
    }

    fn submit(&mut self, request: &Request) -> Result<(), AnyError> {
        let bytes = request.count.bytes().get() as usize;
        let buffer = self.account.allocate(bytes)?;
        let token = request.id.0;
        let io = Io {
            account: self.account.id(),
            op: request.op,
            start: request.start,
            count: request.count,
            class: request.class,
            order: Order::default(),
            durable: false,
            segments: buffer.segments(request.op, 0..bytes)?,
            target: self.answers.target(token)?,
        };
        self.in_flight.insert(token, buffer);
        self.disk.submit(io)?;
        Ok(())
    }

    fn answered(&mut self, answer: &Completion) -> Result<(), AnyError> {
        answer.result?;
        self.in_flight.remove(&answer.token);
        let timing = &answer.timing;
        let id = RequestId(answer.token);
        let done = self.since_begin(timing.completed);
        if id.0 & BEST_EFFORT_ID == 0 {
            let lane = Feed::lane_of(id);
            self.outcome.block(lane, timing.lateness());
            self.feed.had(lane, self.since_begin(clock::now()));
        } else {
            let traced = self.feed.traced((id.0 & !BEST_EFFORT_ID) as usize);
            self.outcome.best_effort(traced, done);
        }
        Ok(())
    }
}
