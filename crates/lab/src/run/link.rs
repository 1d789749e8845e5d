//! Disks that share a link, in virtual time.
//!
//! Each disk is that of a run of its own, but its transfers end when a [`Link`] has carried them. On a link with fewer
//! places than disks the server's own code exchanges the places ([`LinkPlaces`]). Sources in closed loops are left out.

use std::io;
use std::iter::Peekable;
use std::sync::Arc;

use drives::link::{Link, Transfer, TransferId};
use drives::plant::{Breakdown, Plant};
use engine::dispatcher::{LinkEnd, LinkPlaces};
use sched::disk::DiskScheduler;
use sched::request::{Decision, Dispatch, Order, Request, RequestId};
use sched::units::{BytesPerSecond, Nanos, Time};

use super::account::Account;
use super::outcome::Tally;
use super::{BEST_EFFORT_ID, Experiment, Outcome, RunError, SOURCE_SHIFT, Script, admit};

/// Disks on a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkedRun<'a> {
    /// The disks, with profiles for the link. Those with a place of their own come first.
    pub disks: &'a [Experiment],
    /// The rate of the link.
    pub rate: BytesPerSecond,
    /// The number of places. The other disks borrow one for each piece; they have no streams.
    pub places: usize,
}

/// Results of a run of several disks.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkedOutcome {
    /// The results of each disk.
    pub disks: Vec<Outcome>,
    /// The most disks that had a request at a time.
    pub busy_max: usize,
}

/// Why disks on a link were not run.
#[derive(Debug, thiserror::Error)]
pub enum LinkedError {
    /// One of the disks.
    #[error("disk {index}: {error}")]
    Disk {
        /// Its index.
        index: usize,
        /// Why.
        error: RunError,
    },
    /// The places need descriptors, which the process lacks.
    #[error("cannot make the places of the link: {0}")]
    Places(#[from] io::Error),
}

impl LinkedRun<'_> {
    /// Runs all disks to the end.
    ///
    /// # Errors
    /// When streams are not admitted, or the process has no descriptors left.
    pub fn run(&self) -> Result<LinkedOutcome, LinkedError> {
        let lends = self.places < self.disks.len();
        let places = lends.then(|| LinkPlaces::new(self.disks.len(), self.places));
        let places = places.transpose()?;
        let mut disks = Vec::with_capacity(self.disks.len());
        for (index, experiment) in self.disks.iter().enumerate() {
            let end = places.as_ref().map(|places| places.end(index));
            let disk = LinkedDisk::new(experiment, end);
            disks.push(disk.map_err(|error| LinkedError::Disk { index, error })?);
        }
        let mut link = Link::new(self.rate);
        let (mut now, mut busy_max) = (Time::ZERO, 0);
        while let Some(next) = disks.iter_mut().filter_map(|of| of.next_at(&link)).min() {
            now = next;
            disks
                .iter_mut()
                .for_each(|disk| disk.deliver(now, &mut link));
            disks
                .iter_mut()
                .for_each(|disk| disk.decide(now, &mut link));
            while let Some(disk) = disks.iter_mut().find(|disk| disk.has_news()) {
                disk.decide(now, &mut link);
            }
            busy_max = busy_max.max(disks.iter().filter(|disk| disk.busy.is_some()).count());
        }
        let outcomes = disks.into_iter().map(|disk| disk.outcome(now));
        Ok(LinkedOutcome {
            disks: outcomes.collect(),
            busy_max,
        })
    }
}

/// The request on a disk.
struct Busy {
    dispatch: Dispatch,
    breakdown: Breakdown,
    transfer: TransferId,
}

struct LinkedDisk<'a> {
    script: Peekable<Script<'a>>,
    issued: u64,
    plant: Plant,
    scheduler: DiskScheduler,
    end: Option<LinkEnd>,
    busy: Option<Busy>,
    look_at: Option<Time>,
    account: Account,
    tally: Tally,
}

impl<'a> LinkedDisk<'a> {
    fn new(experiment: &'a Experiment, end: Option<LinkEnd>) -> Result<Self, RunError> {
        let profile = Arc::clone(&experiment.profile);
        let mut scheduler = DiskScheduler::new(profile, experiment.config.clone());
        admit(experiment, &mut scheduler)?;
        Ok(Self {
            script: Script::new(experiment).peekable(),
            issued: 0,
            plant: Plant::new(experiment.plant.clone(), experiment.seed),
            scheduler,
            end,
            busy: None,
            look_at: None,
            account: Account::default(),
            tally: Tally::new(experiment.streams.len()),
        })
    }

    fn next_at(&mut self, link: &Link) -> Option<Time> {
        let asked = self.script.peek().map(|(at, _)| *at);
        let done = match &self.busy {
            Some(busy) => Some(link.due(busy.transfer)),
            None => self.look_at,
        };
        [asked, done].into_iter().flatten().min()
    }

    /// True if the disk is free and its link has changed for it.
    fn has_news(&self) -> bool {
        self.busy.is_none() && self.end.as_ref().is_some_and(LinkEnd::has_news)
    }

    /// Everything of this instant, the end of a request too.
    fn deliver(&mut self, now: Time, link: &mut Link) {
        let is_over = |busy: &mut Busy| link.due(busy.transfer) <= now;
        if let Some(busy) = self.busy.take_if(is_over) {
            link.finish(busy.transfer, now);
            if let Some(end) = &self.end {
                end.ended();
            }
            let completed = self.scheduler.completed(now, busy.dispatch.id);
            let completed = completed.expect("the scheduler knows what it has dispatched");
            let Busy {
                dispatch,
                breakdown,
                ..
            } = &busy;
            self.account.completed(now, dispatch, breakdown, &completed);
            self.tally.completed(now, &completed);
        }
        while let Some((_, wanted)) = self.script.next_if(|(at, _)| *at <= now) {
            self.issued += 1;
            let kind = match wanted.class.of_stream() {
                Some(task) => task.0 << SOURCE_SHIFT,
                None => BEST_EFFORT_ID,
            };
            let request = Request {
                id: RequestId(kind | self.issued),
                op: wanted.op,
                start: wanted.start,
                count: wanted.count,
                class: wanted.class,
                order: Order::default(),
            };
            self.submit(now, request);
        }
    }

    fn submit(&mut self, now: Time, request: Request) {
        match self.scheduler.submit(now, request) {
            Ok(()) => self.tally.taken(request.class),
            Err(error) => self.tally.refused(error),
        }
    }

    /// Asks what to do, if the disk is free, and does it.
    fn decide(&mut self, now: Time, link: &mut Link) {
        if self.busy.is_some() {
            return;
        }
        let decision = match &mut self.end {
            None => self.scheduler.decide(now),
            Some(end) => {
                end.take_news();
                end.decide(now, &mut self.scheduler)
            }
        };
        self.look_at = match decision {
            Decision::Wait { until } => until.map(|until| until.max(now + Nanos(1))),
            Decision::Issue(dispatch) => {
                self.busy = Some(self.begin(now, dispatch, link));
                None
            }
        };
    }

    fn begin(&mut self, now: Time, dispatch: Dispatch, link: &mut Link) -> Busy {
        let Dispatch {
            op, start, count, ..
        } = dispatch;
        let service = self.plant.service(now, op, start, count);
        self.account.dispatched(now, &dispatch);
        let transfer = Transfer {
            op,
            start: Time(service.completed.get() - service.breakdown.transfer.get()),
            end: service.completed,
            bytes: count.bytes(),
            rotation: self.plant.spec().rotation(),
        };
        Busy {
            dispatch,
            breakdown: service.breakdown,
            transfer: link.begin(now, transfer),
        }
    }

    fn outcome(mut self, ended: Time) -> Outcome {
        let report = self.scheduler.report(ended);
        self.tally.outcome(ended, self.account.ended(ended), report)
    }
}
