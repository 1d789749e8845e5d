//! The measurement as a machine: samples in, requests out.
//!
//! The procedures are `async` functions that wait for the samples of the requests that they ask for. The compiler
//! makes a state machine of them, and [`Measurement`] moves it on. Nothing here knows a clock, a device or a
//! thread: time is what the samples say. So the same object measures models in virtual time, emulated drives and
//! devices, and the same samples lead to the same requests. An interrupted measurement continues by being given
//! its earlier samples again.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

pub use crate::exchange::{MeasureError, Measured, Progress, Request, Sample, Step};
use crate::facts::{Effort, Facts};
use crate::probe::{Port, Probe, lock};
use crate::validate;

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
