//! A source: a camera that the server pulls on a thread of its own, and the recording made of its packets.
//!
//! ```text
//! connect, OPTIONS, DESCRIBE -> reserve -> SETUP, PLAY -> packets into blocks
//!    ^                                                        |  the connection is lost, or silent
//!    +-------- back-off: 1, 2, 4, 5, 5, ... later 30 s <------+  the recording and its reservation stay
//! ```
//!
//! A camera that has sent packets keeps its reservation until the source is removed or the server ends, so that its
//! recording continues after a reconnect. A camera that has sent none releases it before each pause.
//! If the description has changed after a reconnect, a new recording begins.

mod address;
mod answers;
mod camera_requests;
mod connect;
mod connection;
mod error;
mod fallbacks;
mod inspecting;
mod keep_alive;
mod login;
mod own_host;
mod recording;
mod session;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::clock;
use engine::event::EventFd;
use rustix::event::PollFlags;
use sched::units::{BytesPerSecond, Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::archive::archives::Archives;
use crate::camera::sources::SourcesConfig;
use crate::live::LiveDemand;
use crate::record::{RtpRecorder, Tally};
use crate::rtsp::tls::TrustedCertificates;
pub use address::{Address, AddressError, LowerTransport};
use connect::{WaitFor, Waiter};
pub(crate) use error::SourceError;
use fallbacks::Fallbacks;
pub use login::Credentials;
pub(crate) use login::Login;

/// The first pause before a camera is connected to again. Each further pause is twice as long.
const PAUSE_MIN: Nanos = Nanos::from_secs(1);

/// The longest pause in the first ten minutes: most cameras are back by then.
const PAUSE_MAX_AT_FIRST: Nanos = Nanos::from_secs(5);

/// The longest pause later.
const PAUSE_MAX: Nanos = Nanos::from_secs(30);

/// The time after the first failure in which pauses are short.
const SHORT_PAUSES_WITHIN: Nanos = Nanos::from_secs(600);

/// The use of a source's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceUse {
    /// They are recorded, and can be watched live.
    #[default]
    Record,
    /// They can be watched live, and are not recorded.
    LiveOnly,
    /// As `LiveOnly`; the camera is pulled only while it is watched.
    OnDemand,
}

/// A camera to pull, and the volume to record it in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSpec {
    /// Unique among the sources of the server.
    pub name: String,
    /// The camera's URL and credentials.
    pub address: Address,
    /// The volume that it is recorded in; if it is not recorded, the name of the live stream.
    pub volume: String,
    /// The use of its packets.
    pub used: SourceUse,
    /// The transport to ask for first.
    pub lower: LowerTransport,
    /// The rate to reserve; if absent, the rate of the camera's description.
    pub rate: Option<BytesPerSecond>,
    /// A measured rate with which the reservation begins instead of the description's; it follows the camera.
    pub measured: Option<BytesPerSecond>,
    /// With `rtsps`: the certificates to trust; if absent, those of the host's authorities.
    pub trusted: Option<TrustedCertificates>,
}

/// The state of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// It connects, describes or sets up.
    #[default]
    Connecting,
    /// Packets arrive and are recorded.
    Recording,
    /// An attempt failed; another one follows.
    Waiting,
    /// The disks cannot carry the rate; another attempt follows.
    Refused,
    /// Nobody watches it.
    Idle,
    /// The source was removed, or the server ends.
    Ended,
}

/// The state of a source, and the counts of its newest recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The state.
    pub state: State,
    /// Why the source does not record, or why it uses another transport than it was added with.
    pub reason: Option<String>,
    /// The number of the newest recording.
    pub recording: Option<u64>,
    /// Packets and bytes of that recording.
    pub tally: Tally,
    /// Times that this recording continued after the camera was lost.
    pub gaps: u64,
    /// Total duration of these gaps, in nanoseconds, without a gap that has not ended.
    pub gap_ns: u64,
}

/// The pauses between attempts.
#[derive(Clone, Copy, Debug)]
struct BackOff {
    next: Nanos,
    /// When the first of the attempts failed.
    failing_since: Option<Time>,
}

impl BackOff {
    const fn new() -> Self {
        Self {
            next: PAUSE_MIN,
            failing_since: None,
        }
    }

    /// The pause after an attempt that failed now.
    fn next(&mut self, now: Time) -> Nanos {
        let since = *self.failing_since.get_or_insert(now);
        let max = match now < since.saturating_add(SHORT_PAUSES_WITHIN) {
            true => PAUSE_MAX_AT_FIRST,
            false => PAUSE_MAX,
        };
        let pause = self.next.min(max);
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

/// A source at work. One thread runs it; others read its status and stop it.
pub(crate) struct Worker {
    pub(crate) spec: SourceSpec,
    config: SourcesConfig,
    archives: Arc<Archives>,
    /// The addresses at which this server listens for RTSP.
    own: Arc<[SocketAddr]>,
    /// Signalled when the source is to end, and never drained.
    stop: EventFd,
    /// Signalled when reserved disk time becomes free.
    freed: Arc<EventFd>,
    status: Mutex<Status>,
    fallbacks: Mutex<Fallbacks>,
    /// Of a source that is pulled on demand.
    demand: Option<Arc<LiveDemand>>,
}

impl Worker {
    pub(crate) fn new(
        spec: SourceSpec,
        config: SourcesConfig,
        archives: Arc<Archives>,
        own: Arc<[SocketAddr]>,
    ) -> io::Result<Self> {
        let demand = match spec.used {
            SourceUse::OnDemand => Some(archives.live().offer(&spec.volume)?),
            SourceUse::Record | SourceUse::LiveOnly => None,
        };
        Ok(Self {
            demand,
            fallbacks: Mutex::new(Fallbacks::new(spec.lower)),
            spec,
            config,
            freed: archives.pool().freed_time()?,
            archives,
            own,
            stop: EventFd::new()?,
            status: Mutex::default(),
        })
    }

    fn status_mut(&self) -> MutexGuard<'_, Status> {
        // A status is valid after a panic at any point.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only the source's own thread locks this.
    fn fallbacks(&self) -> MutexGuard<'_, Fallbacks> {
        self.fallbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> Status {
        self.status_mut().clone()
    }

    /// Asks the source to end. Its thread returns when all received packets are durable.
    pub(crate) fn stop(&self) {
        self.stop.signal();
    }

    /// Pulls the camera until [`Worker::stop`].
    pub(crate) fn run(&self) {
        let mut back_off = BackOff::new();
        loop {
            // What becomes free from now on may be needed for this attempt.
            self.freed.drain();
            if self.await_demand().is_err() {
                break;
            }
            let error = catch_panic(|| match self.spec.used {
                SourceUse::Record => self.record(&mut back_off),
                SourceUse::LiveOnly | SourceUse::OnDemand => self.relay(&mut back_off),
            });
            if matches!(error, SourceError::Unwanted) {
                back_off = BackOff::new();
                continue;
            }
            if matches!(error, SourceError::Stopped)
                || self.pause(&error, &mut back_off, None).is_err()
            {
                break;
            }
        }
        self.status_mut().state = State::Ended;
    }

    /// Sleeps until the stream is wanted, if it is pulled on demand.
    fn await_demand(&self) -> Result<(), SourceError> {
        let Some(demand) = &self.demand else {
            return Ok(());
        };
        while !demand.is_recent() {
            (self.status_mut().state, self.status_mut().reason) = (State::Idle, None);
            let wanted = WaitFor::Fd(demand.event(), PollFlags::IN);
            self.waiter(None).sleep(Some(wanted), Time::MAX)?;
            demand.drain();
        }
        Ok(())
    }

    /// True if the camera is pulled on demand, and nobody has watched or wanted it for a while.
    fn is_unwanted(&self, recorder: &RtpRecorder<'_>) -> bool {
        let Some(demand) = &self.demand else {
            return false;
        };
        if recorder.watchers() > 0 {
            demand.note_watched();
        }
        !demand.is_recent()
    }

    /// Publishes the error as the reason, and sleeps until the next attempt.
    fn pause(
        &self,
        error: &SourceError,
        back_off: &mut BackOff,
        recorder: Option<&mut RtpRecorder<'_>>,
    ) -> Result<(), SourceError> {
        let pause = match error {
            // The camera has answered: only the recording is another one.
            SourceError::Changed => Nanos::ZERO,
            _ => back_off.next(clock::now()),
        };
        let (name, camera) = (&self.spec.name, self.spec.address.shown());
        tracing::warn!(source = %name, %camera, %error, again_in = %pause, "source does not record");
        {
            let mut status = self.status_mut();
            status.reason = Some(error.to_string());
            status.state = match error {
                SourceError::Refused(_) => State::Refused,
                _ => State::Waiting,
            };
        }
        let until = clock::now().saturating_add(pause);
        let mut waiter = self.waiter(recorder);
        let SourceError::Refused(_) = error else {
            return waiter.sleep(None, until).map(drop);
        };
        let freed = WaitFor::Fd(self.freed.as_fd(), PollFlags::IN);
        if waiter.sleep(Some(freed), until)? {
            // Several reservations may end at once.
            let soon = clock::now().saturating_add(PAUSE_MIN);
            waiter.sleep(None, soon.min(until))?;
        }
        Ok(())
    }

    fn waiter<'w, 's>(&'w self, recorder: Option<&'w mut RtpRecorder<'s>>) -> Waiter<'w, 's> {
        Waiter {
            stop: &self.stop,
            recorder,
        }
    }
}

/// Turns a panic into an error: no answer of a camera may end its source.
fn catch_panic(work: impl FnOnce() -> SourceError) -> SourceError {
    // All state that others read is valid after a panic.
    engine::panics::survive(work).unwrap_or(SourceError::Panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_an_error_of_the_source() {
        assert!(matches!(catch_panic(|| SourceError::Bye), SourceError::Bye));
        let said = [1, 2];
        let fails = || match said.iter().sum::<i32>() {
            3 => panic!("a test panics"),
            _ => SourceError::Bye,
        };
        assert!(matches!(catch_panic(fails), SourceError::Panicked));
    }

    #[test]
    fn pauses_are_short_for_ten_minutes() {
        let mut back_off = BackOff::new();
        let mut next = |at_s: u64| back_off.next(Time(at_s * 1_000_000_000)).get() / 1_000_000_000;
        let first = [7, 8, 10, 14, 19, 24, 606].map(&mut next);
        assert_eq!(first, [1, 2, 4, 5, 5, 5, 5]);
        assert_eq!([607, 617, 647].map(next), [10, 20, 30]);
    }
}
