//! The measurement as a machine: samples in, requests out.
//!
//! The procedures are `async` functions that wait for the samples of the requests that they ask for. The compiler
//! makes a state machine of them, and [`Measurement`] moves it on. Nothing here knows a clock, a device or a
//! thread: time is what the samples say. So the same object measures models in virtual time, emulated drives and
//! devices, and the same samples lead to the same requests. An interrupted measurement continues by being given
//! its earlier samples again.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::facts::{Effort, Facts};
use crate::findings::Findings;
use crate::probe::{Port, Probe};
use crate::validate;

/// A request that the measurement wants served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The direction. What is written does not matter.
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// The request is not issued before this instant, and as soon as possible after it.
    pub not_before: Time,
}

/// Times of a served request, on any clock that runs evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When it was given to the drive.
    pub issued: Time,
    /// When it was complete.
    pub completed: Time,
    /// True if the drive served no other request since the one before, so that the head was where that one left it.
    pub alone: bool,
    /// The error number, if it failed.
    pub error: Option<i32>,
}

impl Sample {
    /// Time from issue to completion.
    #[must_use]
    pub fn took(&self) -> Nanos {
        self.completed.saturating_since(self.issued)
    }
}

/// What the measurement wants next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Serve these requests in their order, at most `depth` at a time, and pass on their samples.
    Serve {
        /// The requests; at least one.
        requests: Vec<Request>,
        /// The most requests on the drive at a time.
        depth: u32,
    },
    /// The measurement is over; [`Measurement::result`] has the result.
    Finished,
}

/// How far a measurement is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The present part, in words.
    pub part: &'static str,
    /// Requests served.
    pub served: u64,
    /// Requests still to serve, as far as is known.
    pub left: u64,
    /// The expected time for these.
    pub time_left: Nanos,
}

/// Reasons why a measurement ends without a profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MeasureError {
    /// The drive is too small.
    #[error("the drive has {sectors} sectors; at least {min} are needed to measure it")]
    TooSmall {
        /// Its sectors.
        sectors: u64,
        /// The minimum.
        min: u64,
    },
    /// Requests fail.
    #[error(
        "{failed} of {served} requests failed, the last one at sector {sector} with error {errno}"
    )]
    Failing {
        /// Requests that failed.
        failed: u64,
        /// Requests served.
        served: u64,
        /// Start of the last one that failed.
        sector: u64,
        /// Its error number.
        errno: i32,
    },
    /// The fitted figures are not a profile.
    #[error("the times that were measured do not make a profile: {0}")]
    NoProfile(String),
    /// Validation does not come to an end.
    #[error(
        "the drive's times do not settle: requests exceeded a bound that was widened {0} times"
    )]
    Unsettled(u32),
}

/// A profile and the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The profile.
    pub profile: DriveProfile,
    /// The evidence.
    pub findings: Findings,
}

type Running = Pin<Box<dyn Future<Output = Result<Measured, MeasureError>> + Send>>;

/// A measurement under way.
pub struct Measurement {
    running: Option<Running>,
    port: Arc<Mutex<Port>>,
    result: Option<Result<Measured, MeasureError>>,
}

impl Measurement {
    /// A measurement of the drive of these facts. `seed` decides the random places and waits.
    #[must_use]
    pub fn new(facts: Facts, effort: Effort, seed: u64) -> Self {
        let port = Arc::new(Mutex::new(Port::default()));
        let probe = Probe::new(Arc::clone(&port), facts, effort, seed);
        Self {
            running: Some(Box::pin(validate::measure(probe))),
            port,
            result: None,
        }
    }

    /// Takes the samples of the requests of the last step, in their order, and says what to do next. The first
    /// call takes none.
    ///
    /// # Panics
    /// When the number of samples is not that of the last step's requests.
    pub fn step(&mut self, samples: &[Sample]) -> Step {
        let Some(running) = &mut self.running else {
            return Step::Finished;
        };
        lock(&self.port).answer(samples);
        let mut context = Context::from_waker(Waker::noop());
        match running.as_mut().poll(&mut context) {
            Poll::Ready(result) => {
                self.running = None;
                self.result = Some(result);
                Step::Finished
            }
            Poll::Pending => lock(&self.port).wanted(),
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        lock(&self.port).progress()
    }

    /// The result, once [`Step::Finished`] was returned.
    #[must_use]
    pub fn result(self) -> Option<Result<Measured, MeasureError>> {
        self.result
    }
}

pub(crate) fn lock(port: &Mutex<Port>) -> std::sync::MutexGuard<'_, Port> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}
