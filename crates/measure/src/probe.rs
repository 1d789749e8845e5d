//! The procedures' side of the machine: they ask for requests and wait for the samples.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::exchange::{MeasureError, Progress, Request, Sample, Step};
use crate::facts::{Effort, Facts};
use crate::findings::FailedRequest;

/// A drive of which more requests than this fail cannot be measured.
const FAILED_MAX: u64 = 200;
/// Failed requests that a report lists.
const FAILED_LISTED: usize = 50;

/// State that machine and procedures share.
#[derive(Debug, Default)]
pub(crate) struct Port {
    wanted: Vec<Request>,
    depth: u32,
    samples: Option<Vec<Sample>>,
    progress: Progress,
    /// Sum of the times of all samples, for the expected time.
    busy: Nanos,
}

impl Port {
    /// Passes samples on to the procedure that waits for them.
    pub(crate) fn answer(&mut self, samples: &[Sample]) {
        assert_eq!(
            samples.len(),
            self.wanted.len(),
            "a sample for each request of the last step"
        );
        self.progress.served += samples.len() as u64;
        self.progress.left = self.progress.left.saturating_sub(samples.len() as u64);
        if let (Some(first), Some(last)) = (samples.first(), samples.last()) {
            let took = last.completed.saturating_since(first.issued);
            self.busy = self.busy.saturating_add(took);
        }
        self.wanted.clear();
        self.samples = Some(samples.to_vec());
    }

    pub(crate) fn wanted(&self) -> Step {
        Step::Serve {
            requests: self.wanted.clone(),
            depth: self.depth,
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let mean = self.busy.get() / self.progress.served.max(1);
        Progress {
            time_left: Nanos(mean.saturating_mul(self.progress.left)),
            ..self.progress.clone()
        }
    }
}

pub(crate) fn lock(port: &Mutex<Port>) -> MutexGuard<'_, Port> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks for requests. One procedure at a time uses it.
pub(crate) struct Probe {
    port: Arc<Mutex<Port>>,
    pub(crate) facts: Facts,
    pub(crate) effort: Effort,
    random: Xoshiro256PlusPlus,
    now: Time,
    served: u64,
    after_others: u64,
    failed: u64,
    pub(crate) failures: Vec<FailedRequest>,
}

impl Probe {
    pub(crate) fn new(port: Arc<Mutex<Port>>, facts: Facts, effort: Effort, seed: u64) -> Self {
        Self {
            port,
            facts,
            effort,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: Time::ZERO,
            served: 0,
            after_others: 0,
            failed: 0,
            failures: Vec::new(),
        }
    }

    /// Completion of the last request.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Number of requests so far.
    pub(crate) fn served(&self) -> u64 {
        self.served
    }

    /// Number of requests so far that came after those of others.
    pub(crate) fn after_others(&self) -> u64 {
        self.after_others
    }

    /// Announces a part that needs about so many requests, and how many all parts behind it need.
    pub(crate) fn begin(&self, part: &'static str, requests: u64, later: u64) {
        let mut port = lock(&self.port);
        port.progress.part = part;
        port.progress.left = requests + later;
    }

    /// Serves requests, at most `depth` at a time. A sample may be of a failed request.
    pub(crate) async fn serve(
        &mut self,
        requests: &[Request],
        depth: u32,
    ) -> Result<Vec<Sample>, MeasureError> {
        {
            let mut port = lock(&self.port);
            port.wanted.clear();
            port.wanted.extend_from_slice(requests);
            port.depth = depth;
            port.samples = None;
        }
        let samples = poll_fn(|_| match lock(&self.port).samples.take() {
            Some(samples) => Poll::Ready(samples),
            None => Poll::Pending,
        })
        .await;
        for (request, sample) in requests.iter().zip(&samples) {
            self.served += 1;
            self.after_others += u64::from(!sample.alone);
            self.now = self.now.max(sample.completed);
            if let Some(errno) = sample.error {
                self.note_failure(*request, errno)?;
            }
        }
        Ok(samples)
    }

    fn note_failure(&mut self, request: Request, errno: i32) -> Result<(), MeasureError> {
        self.failed += 1;
        if self.failures.len() < FAILED_LISTED {
            self.failures.push(FailedRequest {
                op: request.op,
                start: request.start,
                count: request.count,
                errno,
            });
        }
        if self.failed > FAILED_MAX {
            return Err(MeasureError::Failing {
                failed: self.failed,
                served: self.served,
                sector: request.start.get(),
                errno,
            });
        }
        Ok(())
    }

    /// Number of requests that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Serves one request that is issued at `not_before` or as soon as possible after it.
    pub(crate) async fn one(
        &mut self,
        op: Op,
        start: Sector,
        count: SectorCount,
        not_before: Time,
    ) -> Result<Sample, MeasureError> {
        let request = Request {
            op,
            start,
            count,
            not_before,
        };
        let samples = self.serve(&[request], 1).await?;
        Ok(samples[0])
    }

    /// Reads one unit at `start`, at once.
    pub(crate) async fn read(&mut self, start: Sector) -> Result<Sample, MeasureError> {
        let unit = self.facts.unit;
        self.one(Op::Read, start, unit, self.now).await
    }

    /// A random number below `end`; 0 for 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.random.next_u64()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A random place for `count` sectors, aligned to `align` sectors.
    pub(crate) fn place(&mut self, within: &Range<Sector>, count: u64, align: u64) -> Sector {
        let first = within.start.get().next_multiple_of(align);
        let room = within.end.get().saturating_sub(first).saturating_sub(count);
        Sector(first + self.below(room / align + 1) * align)
    }

    /// A random place for a write of `count` sectors, in proportion to the writable ranges; `None` if none has room.
    pub(crate) fn writable_place(&mut self, count: u64, align: u64) -> Option<Sector> {
        let room = |range: &Range<Sector>| {
            let first = range.start.get().next_multiple_of(align);
            (range.end.get()).saturating_sub(first + count.saturating_sub(1))
        };
        let total: u64 = self.facts.writable.iter().map(room).sum();
        let mut at = self.below(total);
        for range in self.facts.writable.clone() {
            if at < room(&range) {
                return Some(self.place(&range, count, align));
            }
            at -= room(&range);
        }
        None
    }

    /// True if all these sectors may be written.
    pub(crate) fn is_writable(&self, start: Sector, count: u64) -> bool {
        let end = start.get() + count;
        let holds = |range: &Range<Sector>| range.start <= start && end <= range.end.get();
        self.facts.writable.iter().any(holds)
    }

    /// Sectors of the shortest request that costs no more than its transfer.
    pub(crate) fn whole(&self) -> SectorCount {
        self.facts.physical.max(self.facts.unit)
    }

    /// `sector` rounded down to a whole physical sector, within the drive.
    pub(crate) fn whole_at(&self, sector: u64) -> Sector {
        let whole = self.whole().get();
        let last = self.facts.capacity.get() - whole;
        Sector(sector.min(last) / whole * whole)
    }

    /// `sector` rounded down to the unit, within the drive.
    pub(crate) fn aligned(&self, sector: u64) -> Sector {
        let unit = self.facts.unit.get();
        let last = self.facts.capacity.get() - unit;
        Sector(sector.min(last) / unit * unit)
    }
}
