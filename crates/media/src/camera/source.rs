//! A source: a camera that the server pulls from, and the recording that is made of it.
//!
//! ```text
//! connect, OPTIONS, DESCRIBE -> reserve -> SETUP, PLAY -> packets into blocks
//!    ^                                                        |  the connection is lost, or silent
//!    +------------------- back-off: 1 s, 2 s, ... 30 s <------+  the recording and its reservation stay
//! ```
//!
//! What is reserved is held from before the first packet until the source is removed or the server ends, so that a
//! camera that starts anew finds its place. A camera that has sent nothing holds nothing. One that describes something else
//! when it is back has a new recording.

mod address;
mod alive;
mod asked;
mod camera;
mod error;
mod habits;
mod login;
mod own;
mod reach;
mod said;
mod session;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::clock;
use engine::event::EventFd;
use engine::stream::{Refusal, Stream, StreamSpec};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use crate::archive::archives::Archives;
use crate::archive::{Archive, Writing};
use crate::camera::sources::SourcesConfig;
use crate::record::{RtpRecorder, Tally};
use crate::rtsp::receive::Stray;
use crate::rtsp::tls::Trusted;
use crate::rtsp::transport::Transport;
use crate::sdp::Description;
use crate::session::rate_from::RateFrom;
use crate::session::registry::{About, Does};
use address::RedirectError;
pub use address::{Address, AddressError, Lower};
use camera::{Camera, Shows};
pub(crate) use error::SourceError;
use habits::Habits;
pub use login::Credentials;
pub(crate) use login::Login;
use login::LoginError;
use reach::Meanwhile;
use session::CameraSession;

/// The first pause before a camera is tried again; each is twice as long as the one before.
const PAUSE_MIN: Nanos = Nanos::from_secs(1);

/// The longest one.
const PAUSE_MAX: Nanos = Nanos::from_secs(30);

/// How often a camera may say that what is asked for is elsewhere.
const REDIRECTS_MAX: usize = 3;

/// What is to be pulled, and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSpec {
    /// Its name.
    pub name: String,
    /// The camera.
    pub address: Address,
    /// The volume that it is recorded in.
    pub volume: String,
    /// How packets come.
    pub lower: Lower,
    /// What is reserved; what the camera says it needs when absent.
    pub rate: Option<BytesPerSecond>,
    /// By which certificates it is believed, with `rtsps`; by those of the host's authorities when absent.
    pub trusted: Option<Trusted>,
}

/// What a source does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// It asks its camera.
    #[default]
    Connecting,
    /// Packets come and are recorded.
    Recording,
    /// Something failed, and is tried again.
    Waiting,
    /// The disks cannot carry it; that is tried again as well.
    Refused,
    /// It has ended.
    Ended,
}

/// What a source does, and has done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// What it does.
    pub state: State,
    /// Why it does not record, or in another way than it was asked to; empty before anything has failed.
    pub reason: Option<String>,
    /// The recording that it makes or made last.
    pub recording: Option<u64>,
    /// What has come into that.
    pub tally: Tally,
    /// How often that recording went on after its camera was lost.
    pub gaps: u64,
    /// How long nothing came because of that, in nanoseconds; one that goes on is not counted yet.
    pub gap_ns: u64,
}

/// The pauses between attempts.
#[derive(Clone, Copy, Debug)]
struct BackOff(Nanos);

impl BackOff {
    const fn new() -> Self {
        Self(PAUSE_MIN)
    }

    fn next(&mut self) -> Nanos {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

/// A source at work.
pub(crate) struct Worker {
    pub(crate) spec: SourceSpec,
    config: SourcesConfig,
    archives: Arc<Archives>,
    /// Where this server itself is.
    own: Arc<[SocketAddr]>,
    /// Signalled when it is to end, and never drained.
    stop: EventFd,
    status: Mutex<Status>,
    habits: Mutex<Habits>,
}

impl Worker {
    pub(crate) fn new(
        spec: SourceSpec,
        config: SourcesConfig,
        archives: Arc<Archives>,
        own: Arc<[SocketAddr]>,
    ) -> io::Result<Self> {
        Ok(Self {
            habits: Mutex::new(Habits::new(spec.lower)),
            spec,
            config,
            archives,
            own,
            stop: EventFd::new()?,
            status: Mutex::default(),
        })
    }

    fn now(&self) -> MutexGuard<'_, Status> {
        // Numbers are numbers after any panic.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the camera; nobody else's thread looks at it.
    fn habits(&self) -> MutexGuard<'_, Habits> {
        self.habits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> Status {
        self.now().clone()
    }

    /// Tells it to end; it does so as soon as what has come is durable.
    pub(crate) fn stop(&self) {
        self.stop.signal();
    }

    /// Pulls until it is told to end.
    pub(crate) fn run(&self) {
        let mut back_off = BackOff::new();
        loop {
            let error = surviving(|| self.record(&mut back_off));
            if matches!(error, SourceError::Stopped)
                || self.pause(&error, &mut back_off, None).is_err()
            {
                break;
            }
        }
        self.now().state = State::Ended;
    }

    /// Says why it does not record, and sleeps for a while.
    fn pause(
        &self,
        error: &SourceError,
        back_off: &mut BackOff,
        tape: Option<&mut RtpRecorder<'_>>,
    ) -> Result<(), SourceError> {
        let pause = match error {
            // Known already: it goes on at once.
            SourceError::Changed => Nanos::ZERO,
            _ => back_off.next(),
        };
        let (name, camera) = (&self.spec.name, self.spec.address.shown());
        tracing::warn!(source = %name, %camera, %error, again_in = %pause, "nothing comes from a source");
        {
            let mut now = self.now();
            now.reason = Some(error.to_string());
            now.state = match error {
                SourceError::Refused(_) => State::Refused,
                _ => State::Waiting,
            };
        }
        let until = clock::now().saturating_add(pause);
        self.meanwhile(tape).sleep(None, until).map(drop)
    }

    fn meanwhile<'w, 's>(&'w self, tape: Option<&'w mut RtpRecorder<'s>>) -> Meanwhile<'w, 's> {
        Meanwhile {
            stop: &self.stop,
            tape,
        }
    }

    /// Connects, and asks what there is.
    fn describe(
        &self,
        tape: Option<&mut RtpRecorder<'_>>,
    ) -> Result<(Camera, Description), SourceError> {
        self.now().state = State::Connecting;
        let mut meanwhile = self.meanwhile(tape);
        let volume = &self.spec.volume;
        let mut address = self.spec.address.clone();
        let sent_to = self.habits().sent_to.take();
        if let Some(to) = sent_to {
            address = to?;
        }
        for _ in 0..=REDIRECTS_MAX {
            let trusted = self.spec.trusted.as_ref();
            let mut camera = Camera::connect(&address, trusted, &mut meanwhile)?;
            if camera.is_at(&self.own) && address.plays(volume) {
                return Err(SourceError::Own(volume.clone()));
            }
            let keeps_otherwise = self.habits().keeps_otherwise;
            let shown = camera.describe(keeps_otherwise, &mut meanwhile);
            let is_withheld =
                address.credentials().is_none() && self.spec.address.credentials().is_some();
            match shown {
                Ok(Shows::Tracks(description)) => return Ok((camera, *description)),
                Ok(Shows::Elsewhere(to)) => address = camera.redirected(&to)?,
                Err(SourceError::Login(LoginError::Nobody)) if is_withheld => {
                    return Err(RedirectError::Login(address.shown().to_owned()).into());
                }
                Err(error) => return Err(error),
            }
            if address.is_secure() && self.spec.lower == Lower::Udp {
                return Err(RedirectError::Udp(address.shown().to_owned()).into());
            }
            tracing::info!(source = %self.spec.name, to = %address.shown(), "a source is redirected");
        }
        Err(SourceError::Redirects)
    }

    /// What is reserved for what a camera describes, and the description that says so.
    fn reserve(
        &self,
        description: Description,
    ) -> Result<(Stream, Writing, Description), SourceError> {
        let (rate, from) = match (self.spec.rate, description.rate()) {
            (Some(rate), _) => (rate, RateFrom::SourceOption),
            (None, Some(rate)) => (rate, RateFrom::CameraSays),
            (None, None) => (self.config.rate, RateFrom::CameraDefault),
        };
        let description = match self.spec.rate {
            Some(rate) => description.needing_just(rate)?,
            None => description.needing(rate)?,
        };
        let archive = self
            .archives
            .open(&self.spec.volume, Some(self.config.block))?;
        let writing = self.archives.record(&archive)?;
        let stream = self.stream(&archive, rate);
        let stream =
            stream.map_err(|refusal| SourceError::Refused(from.refused(rate, &refusal)))?;
        Ok((stream, writing, description))
    }

    fn stream(&self, archive: &Archive, rate: BytesPerSecond) -> Result<Stream, Refusal> {
        self.archives.pool().reserve(StreamSpec {
            name: format!("source {} records {}", self.spec.name, self.spec.volume),
            volume: Arc::clone(archive.volume()),
            range: Some(archive.range()),
            rate,
            block: Bytes(archive.header().block_bytes),
            op: Op::Write,
            span: None,
            wraps: true,
        })
    }

    /// Makes one recording, over as many sessions with the camera as it takes; why it has ended.
    fn record(&self, back_off: &mut BackOff) -> SourceError {
        let begun = self.describe(None).and_then(|(camera, described)| {
            let (stream, writing, description) = self.reserve(described)?;
            let ready = self.set_up(camera, description, None)?;
            let recorded = ready.description.clone().with_just(&ready.is_recorded())?;
            Ok((ready, recorded, stream, writing))
        });
        let (ready, recorded, stream, writing) = match begun {
            Ok(begun) => begun,
            Err(error) => return error,
        };
        let number = writing.number();
        let about = About {
            who: self.spec.name.clone(),
            does: Does::Pulls,
            volume: self.spec.volume.clone(),
            recording: number,
        };
        let member = match self.archives.registry().join(about, &stream) {
            Ok(member) => member,
            Err(error) => return error.into(),
        };
        let mut tape = match RtpRecorder::new(&stream, writing, &recorded, member) {
            Ok(tape) => tape,
            Err(error) => return error.into(),
        };
        tape.follow();
        let ended = self.sessions(&mut tape, number, ready, back_off);
        // Whatever ended it: what has come is written, and durable.
        let received = tape.tally();
        let finished = tape.finish();
        stream.close();
        self.archives.looks().look_at(&self.spec.volume);
        // The first is the cause; where nothing was left to be written, the last knows nothing of it.
        let failed: Option<&dyn std::fmt::Display> = match (&ended, &finished) {
            (SourceError::Record(_), _) => Some(&ended),
            (_, Err(error)) => Some(error),
            _ => None,
        };
        if let Some(error) = failed {
            tracing::warn!(
                source = %self.spec.name, volume = self.spec.volume, recording = number, packets = received.packets, bytes = received.bytes,
                %error, "a recording of a source fails: what was durable before is kept, and what came since may be lost"
            );
        }
        match finished {
            Ok((report, tally)) => {
                self.now().tally = tally;
                tracing::info!(
                    source = %self.spec.name, volume = self.spec.volume, recording = number, packets = tally.packets, reports = tally.reports,
                    bytes = tally.bytes, lost = tally.lost, lost_without_buffer = tally.lost_without_buffer, duplicates = tally.duplicates,
                    strangers = tally.strangers, too_long = tally.too_long, copied_bytes = tally.copied_bytes,
                    blocks = report.blocks, missed = report.misses, "a recording of a source ended"
                );
                ended
            }
            Err(_) if matches!(ended, SourceError::Stopped) => ended,
            Err(error) => error.into(),
        }
    }

    /// Session after session, until there can be none that belongs to the same recording.
    fn sessions(
        &self,
        tape: &mut RtpRecorder<'_>,
        number: u64,
        first: Ready,
        back_off: &mut BackOff,
    ) -> SourceError {
        let (description, is_recorded) = (first.description.clone(), first.is_recorded());
        let mut first = Some(first);
        loop {
            let ready = first
                .take()
                .map_or_else(|| self.again(tape, &description, &is_recorded), Ok);
            let error = match ready {
                Ok(ready) => self.session(tape, number, ready, back_off),
                Err(error) => error,
            };
            let is_over = matches!(
                error,
                SourceError::Stopped | SourceError::Record(_) | SourceError::Changed
            );
            // A camera that has sent nothing holds nothing.
            if is_over || tape.heard().is_none() {
                return error;
            }
            if let Err(error) = self.pause(&error, back_off, Some(tape)) {
                return error;
            }
            // What lies in a block for long is written.
            tape.has_room(false);
        }
    }

    /// The camera, once more, if it still shows the same.
    fn again(
        &self,
        tape: &mut RtpRecorder<'_>,
        description: &Description,
        is_recorded: &[bool],
    ) -> Result<Ready, SourceError> {
        let (camera, described) = self.describe(Some(tape))?;
        if !description.is_like(&described) {
            return Err(SourceError::Changed);
        }
        let ready = self.set_up(camera, described, Some(tape))?;
        match ready.is_recorded() == is_recorded {
            true => Ok(ready),
            false => Err(SourceError::Changed),
        }
    }

    /// Has a camera get ready.
    fn set_up(
        &self,
        mut camera: Camera,
        description: Description,
        tape: Option<&mut RtpRecorder<'_>>,
    ) -> Result<Ready, SourceError> {
        let mut meanwhile = self.meanwhile(tape);
        let lower = self.habits().lower(camera.is_secure());
        let transports = camera.set_up(&description, lower, &mut meanwhile);
        let transports = transports.map_err(|error| match error.may_be_of_transport() {
            true if !camera.is_secure() => {
                self.habits().is_refused(lower, &error);
                let error = Box::new(error);
                SourceError::NotBy { by: lower, error }
            }
            _ => error,
        })?;
        Ok(Ready {
            camera,
            description,
            transports,
            lower,
        })
    }

    /// Takes in what the end of a session that began at a time shows of its camera.
    fn learn(
        &self,
        session: &CameraSession<'_>,
        camera: &Camera,
        began: Time,
        error: &SourceError,
    ) {
        match error {
            SourceError::SilentBy { by, .. } => self.habits().goes_otherwise(*by, error),
            SourceError::SentTo(to) => {
                self.habits().sent_to = Some(camera.redirected(to));
            }
            SourceError::Closed
            | SourceError::Socket(_)
            | SourceError::Silent(_)
            | SourceError::TornDown
            | SourceError::Status(..)
                if session.has_come() =>
            {
                let age = clock::now().saturating_since(began);
                let is_tried = camera.is_kept_alive();
                let mut habits = self.habits();
                habits.session_ended(age, camera.timeout(), is_tried);
            }
            _ => {}
        }
    }

    /// A session with a camera, from PLAY on; why it has ended.
    fn session(
        &self,
        tape: &mut RtpRecorder<'_>,
        number: u64,
        ready: Ready,
        back_off: &mut BackOff,
    ) -> SourceError {
        let Ready {
            mut camera,
            description,
            transports,
            lower,
        } = ready;
        let began = clock::now();
        let gap = tape.heard();
        if gap.is_some() {
            tape.restart();
        }
        if let Err(error) = camera.play(&description, &mut self.meanwhile(Some(tape))) {
            return error;
        }
        let mut session = CameraSession {
            worker: self,
            number,
            gap,
            lower,
            before: tape.tally().packets,
            known: tape.tally().packets,
            // Those that are recorded.
            transports: transports.into_iter().flatten().map(Some).collect(),
            back_off,
            is_behind: false,
            kept_alive: clock::now(),
            stray: Stray::default(),
            is_told_of_stray: false,
        };
        let error = match session.move_packets(tape, &mut camera) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        self.learn(&session, &camera, began, &error);
        camera.tear_down();
        session.receive_rest(tape, &mut camera, error)
    }
}

/// A camera that can be told to send.
struct Ready {
    camera: Camera,
    description: Description,
    /// Of each track that it describes; `None`: it refuses that.
    transports: Vec<Option<Transport>>,
    /// How its packets are asked for.
    lower: Lower,
}

impl Ready {
    /// Which of its tracks are recorded.
    fn is_recorded(&self) -> Vec<bool> {
        self.transports.iter().map(Option::is_some).collect()
    }
}

/// Does what ends with an error, also where the server fails at it: a camera is called again whatever it has said.
fn surviving(work: impl FnOnce() -> SourceError) -> SourceError {
    // What it has changed is its own, or is as it was for whoever looks.
    engine::panics::survive(work).unwrap_or(SourceError::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_camera_is_called_again_whatever_it_has_said() {
        assert!(matches!(surviving(|| SourceError::Left), SourceError::Left));
        let said = [1, 2];
        let fails = || match said.iter().sum::<i32>() {
            3 => panic!("a test panics"),
            _ => SourceError::Left,
        };
        assert!(matches!(surviving(fails), SourceError::Failed));
    }

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let mut back_off = BackOff::new();
        let pauses: Vec<u64> = (0..7)
            .map(|_| back_off.next().get() / 1_000_000_000)
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }
}
