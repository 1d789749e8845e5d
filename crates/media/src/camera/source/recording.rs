//! One recording of a camera, over as many sessions as it takes.

use std::sync::Arc;

use engine::clock;
use engine::stream::{PaceReport, Refusal, Stream, StreamSpec};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Time};

use super::address::{LowerTransport, RedirectError};
use super::connection::{CameraConnection, Described};
use super::error::REDIRECTS_MAX;
use super::login::LoginError;
use super::session::CameraSession;
use super::{BackOff, SourceError, State, Worker};
use crate::archive::fitting::block_that_fits;
use crate::archive::{ActiveRecording, Archive};
use crate::record::{RecordError, RtpRecorder, Tally};
use crate::rtsp::receive::StrayBytes;
use crate::rtsp::transport::Transport;
use crate::sdp::Description;
use crate::session::demand::recorder_rate_min;
use crate::session::rate_from::RateFrom;
use crate::session::registry::{SessionSubject, SessionUse};

impl Worker {
    /// Makes one recording, and returns why it ended.
    pub(super) fn record(&self, back_off: &mut BackOff) -> SourceError {
        let begun = self.describe(None).and_then(|(camera, described)| {
            let (reserved, writing, description) = self.reserve(described)?;
            let prepared = self.set_up(camera, description, None)?;
            let recorded = prepared
                .description
                .clone()
                .with_just(&prepared.is_recorded())?;
            Ok((prepared, recorded, reserved, writing))
        });
        let (prepared, recorded, reserved, writing) = match begun {
            Ok(begun) => begun,
            Err(error) => return error,
        };
        let Reserved { stream, promised } = reserved;
        let number = writing.number();
        let about = SessionSubject {
            who: self.spec.name.clone(),
            does: SessionUse::Pulls,
            volume: self.spec.volume.clone(),
            recording: number,
        };
        let member = match self.archives.registry().join(about, &stream) {
            Ok(member) => member,
            Err(error) => return error.into(),
        };
        member.promise(promised);
        let mut recorder =
            match RtpRecorder::new(&stream, writing, &recorded, member, self.archives.live()) {
                Ok(recorder) => recorder,
                Err(error) => return error.into(),
            };
        recorder.follow();
        let ended = self.sessions(&mut recorder, number, prepared, back_off);
        recorder.lose(ended.gap_cause());
        let received = recorder.tally();
        let finished = recorder.finish();
        stream.close();
        self.archives.looks().look_at(&self.spec.volume);
        self.report_end(number, received, ended, finished)
    }

    /// Sends the camera's packets to those that watch them, and returns why that ended.
    pub(super) fn relay(&self, back_off: &mut BackOff) -> SourceError {
        let prepared = self.describe(None).and_then(|(camera, description)| {
            let prepared = self.set_up(camera, description, None)?;
            let relayed = prepared.description.clone();
            Ok((relayed.with_just(&prepared.is_recorded())?, prepared))
        });
        let (relayed, prepared) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return error,
        };
        let streams = self.archives.live();
        let mut recorder = match RtpRecorder::live_only(&self.spec.volume, &relayed, streams) {
            Ok(recorder) => recorder,
            Err(error) => return error.into(),
        };
        recorder.follow();
        let ended = self.sessions(&mut recorder, 0, prepared, back_off);
        self.status_mut().tally = recorder.tally();
        ended
    }

    /// Logs the end of a recording that had `received` so much, and returns why it ended.
    fn report_end(
        &self,
        number: u64,
        received: Tally,
        ended: SourceError,
        finished: Result<(PaceReport, Tally), RecordError>,
    ) -> SourceError {
        // The first failure is the cause; the end may succeed after it if no block was left to write.
        let failed: Option<&dyn std::fmt::Display> = match (&ended, &finished) {
            (SourceError::Record(_), _) => Some(&ended),
            (_, Err(error)) => Some(error),
            _ => None,
        };
        if let Some(error) = failed {
            tracing::warn!(
                source = %self.spec.name, volume = self.spec.volume, recording = number, packets = received.packets, bytes = received.bytes,
                %error, "recording of a source failed: packets received since the last durable block may be lost"
            );
        }
        match finished {
            Ok((report, tally)) => {
                self.status_mut().tally = tally;
                tracing::info!(
                    source = %self.spec.name, volume = self.spec.volume, recording = number, packets = tally.packets, reports = tally.reports,
                    bytes = tally.bytes, lost = tally.lost, lost_without_buffer = tally.lost_without_buffer, duplicates = tally.duplicates,
                    strangers = tally.strangers, too_long = tally.too_long, copied_bytes = tally.copied_bytes,
                    blocks = report.blocks, missed = report.misses, "recording of a source ended"
                );
                ended
            }
            Err(_) if matches!(ended, SourceError::Stopped) => ended,
            Err(error) => error.into(),
        }
    }

    /// Runs sessions until none can continue this recording, and returns why.
    fn sessions(
        &self,
        recorder: &mut RtpRecorder<'_>,
        number: u64,
        first: PreparedCamera,
        back_off: &mut BackOff,
    ) -> SourceError {
        let (description, is_recorded) = (first.description.clone(), first.is_recorded());
        let mut first = Some(first);
        loop {
            let prepared = first
                .take()
                .map_or_else(|| self.reconnect(recorder, &description, &is_recorded), Ok);
            let error = match prepared {
                Ok(prepared) => self.session(recorder, number, prepared, back_off),
                Err(error) => error,
            };
            recorder.lose(error.gap_cause());
            let is_over = matches!(
                error,
                SourceError::Stopped
                    | SourceError::Record(_)
                    | SourceError::Changed
                    | SourceError::Unwanted
            );
            // A camera that has sent nothing must not hold a reservation.
            if is_over || recorder.heard().is_none() {
                return error;
            }
            if self.is_unwanted(recorder) {
                return SourceError::Unwanted;
            }
            if let Err(error) = self.pause(&error, back_off, Some(recorder)) {
                return error;
            }
            // Writes a block that has been open for long.
            recorder.has_room(false);
        }
    }

    /// Connects and asks for the description, following redirects.
    pub(super) fn describe(
        &self,
        recorder: Option<&mut RtpRecorder<'_>>,
    ) -> Result<(CameraConnection, Description), SourceError> {
        self.status_mut().state = State::Connecting;
        let mut waiter = self.waiter(recorder);
        let volume = &self.spec.volume;
        let redirect = self.fallbacks().redirect.take();
        let mut address = match redirect {
            Some(to) => to?,
            None => self.spec.address.clone(),
        };
        for _ in 0..=REDIRECTS_MAX {
            let trusted = self.spec.trusted.as_ref();
            let mut camera = CameraConnection::connect(&address, trusted, &mut waiter)?;
            if camera.is_at(&self.own) && address.plays(volume) {
                return Err(SourceError::OwnRecording(volume.clone()));
            }
            let keep_alive = self.fallbacks().keep_alive();
            let described = camera.describe(keep_alive, &mut waiter);
            let is_withheld =
                address.credentials().is_none() && self.spec.address.credentials().is_some();
            match described {
                Ok(Described::Tracks(description)) => return Ok((camera, *description)),
                Ok(Described::Redirect(to)) => address = camera.redirected(&to)?,
                Err(SourceError::Login(LoginError::NoCredentials)) if is_withheld => {
                    return Err(RedirectError::Login(address.shown().to_owned()).into());
                }
                Err(error) => return Err(error),
            }
            if address.is_secure() && self.spec.lower == LowerTransport::Udp {
                return Err(RedirectError::Udp(address.shown().to_owned()).into());
            }
            tracing::info!(source = %self.spec.name, to = %address.shown(), "source is redirected");
        }
        Err(SourceError::TooManyRedirects)
    }

    /// Reserves the rate for a description. The description that is returned states that rate.
    fn reserve(
        &self,
        description: Description,
    ) -> Result<(Reserved, ActiveRecording, Description), SourceError> {
        let (rate, from) = match (self.spec.rate, self.spec.measured, description.rate()) {
            (Some(rate), ..) => (rate, RateFrom::SourceOption),
            (None, Some(rate), _) => (rate, RateFrom::CameraMeasured),
            (None, None, Some(rate)) => (rate, RateFrom::CameraSays),
            (None, None, None) => (self.config.rate, RateFrom::CameraDefault),
        };
        let archive = self
            .archives
            .open(&self.spec.volume, Some(self.config.block))?;
        let writing = self.archives.record(&archive)?;
        let least = recorder_rate_min(archive.header().block_bytes).min(rate);
        let stream = match self.stream(&archive, rate) {
            // A guess that does not fit is no reason to record nothing.
            Err(Refusal::Load {
                rate_that_fits: Some(fits),
                ..
            }) if from.is_guess() && fits >= least => self.stream(&archive, fits),
            stream => stream,
        };
        let stream = stream.map_err(|refusal| self.refused(&archive, (rate, from), &refusal))?;
        let description = match from {
            RateFrom::CameraSays => description.needing(rate)?,
            _ => description.needing_just(stream.rate())?,
        };
        let promised = match from.is_guess() {
            true => least,
            false => rate,
        };
        Ok((Reserved { stream, promised }, writing, description))
    }

    /// A refusal in words, with a block size that would fit if there is one.
    fn refused(
        &self,
        archive: &Archive,
        (rate, from): (BytesPerSecond, RateFrom),
        refusal: &Refusal,
    ) -> SourceError {
        let mut text = from.refused(rate, refusal);
        if let Refusal::Load { .. } = refusal {
            let spec = self.stream_spec(archive, rate);
            if let Some(block) = block_that_fits(self.archives.pool(), &spec) {
                text += &format!(
                    "; blocks of {block} would fit at that rate: record in another volume with `--block` of `camera add`, or `block` under [rtsp]"
                );
            }
        }
        SourceError::Refused(text)
    }

    fn stream(&self, archive: &Archive, rate: BytesPerSecond) -> Result<Stream, Refusal> {
        self.archives
            .pool()
            .reserve(self.stream_spec(archive, rate))
    }

    fn stream_spec(&self, archive: &Archive, rate: BytesPerSecond) -> StreamSpec {
        StreamSpec {
            name: format!("source {} records {}", self.spec.name, self.spec.volume),
            volume: Arc::clone(archive.volume()),
            range: Some(archive.range()),
            rate,
            block: Bytes(archive.header().block_bytes),
            op: Op::Write,
            span: None,
            wraps: true,
        }
    }

    /// Prepares another session for the same recording.
    ///
    /// # Errors
    /// [`SourceError::Changed`] if the description or the tracks that the camera sets up differ.
    fn reconnect(
        &self,
        recorder: &mut RtpRecorder<'_>,
        description: &Description,
        is_recorded: &[bool],
    ) -> Result<PreparedCamera, SourceError> {
        let (camera, described) = self.describe(Some(recorder))?;
        if !description.is_like(&described) {
            return Err(SourceError::Changed);
        }
        let prepared = self.set_up(camera, described, Some(recorder))?;
        match prepared.is_recorded() == is_recorded {
            true => Ok(prepared),
            false => Err(SourceError::Changed),
        }
    }

    /// Sends SETUP for each track.
    fn set_up(
        &self,
        mut camera: CameraConnection,
        description: Description,
        recorder: Option<&mut RtpRecorder<'_>>,
    ) -> Result<PreparedCamera, SourceError> {
        let mut waiter = self.waiter(recorder);
        let lower = self.fallbacks().transport(camera.is_secure());
        let transports = camera.set_up(&description, lower, &mut waiter);
        let transports = transports.map_err(|error| match error.may_be_of_transport() {
            true if !camera.is_secure() => {
                self.fallbacks().transport_refused(lower, &error);
                let error = Box::new(error);
                SourceError::TransportRefused { by: lower, error }
            }
            _ => error,
        })?;
        Ok(PreparedCamera {
            camera,
            description,
            transports,
            lower,
        })
    }

    /// Runs one session from PLAY on, and returns why it ended.
    fn session(
        &self,
        recorder: &mut RtpRecorder<'_>,
        number: u64,
        prepared: PreparedCamera,
        back_off: &mut BackOff,
    ) -> SourceError {
        let PreparedCamera {
            mut camera,
            description,
            transports,
            lower,
        } = prepared;
        let began = clock::now();
        let gap_began = recorder.heard();
        if gap_began.is_some() {
            recorder.restart();
        }
        if let Err(error) = camera.play(&description, &mut self.waiter(Some(recorder))) {
            return error;
        }
        let mut session = CameraSession {
            worker: self,
            number,
            gap_began,
            lower,
            packets_before: recorder.tally().packets,
            packets_noted: recorder.tally().packets,
            // The recorder numbers only the tracks that are recorded.
            transports: transports.into_iter().flatten().map(Some).collect(),
            back_off,
            is_behind: false,
            kept_alive: clock::now(),
            stray: StrayBytes::default(),
            is_stray_logged: false,
        };
        let Err(error) = session.move_packets(recorder, &mut camera);
        self.learn(&session, &camera, began, &error);
        camera.tear_down();
        session.receive_rest(recorder, &mut camera, error)
    }

    /// Updates the fallbacks after a session that began at `began` and ended with `error`.
    fn learn(
        &self,
        session: &CameraSession<'_>,
        camera: &CameraConnection,
        began: Time,
        error: &SourceError,
    ) {
        match error {
            SourceError::TransportSilent { by, .. } => {
                self.fallbacks().switch_transport(*by, error);
            }
            SourceError::Redirect(to) => {
                self.fallbacks().redirect = Some(camera.redirected(to));
            }
            SourceError::Closed
            | SourceError::Socket(_)
            | SourceError::Silent(_)
            | SourceError::TornDown
            | SourceError::Status(..)
                if session.has_packets() =>
            {
                let age = clock::now().saturating_since(began);
                let is_tried = camera.is_kept_alive();
                let mut fallbacks = self.fallbacks();
                fallbacks.session_ended(age, camera.timeout(), is_tried);
            }
            _ => {}
        }
    }
}

/// The reservation of a recording.
struct Reserved {
    stream: Stream,
    /// The rate below which the reservation never goes.
    promised: BytesPerSecond,
}

/// A camera after SETUP, before PLAY.
struct PreparedCamera {
    camera: CameraConnection,
    description: Description,
    /// For each track of the description; `None` if the camera refused it.
    transports: Vec<Option<Transport>>,
    /// The transport that was asked for.
    lower: LowerTransport,
}

impl PreparedCamera {
    /// For each track of the description: true if it is recorded.
    fn is_recorded(&self) -> Vec<bool> {
        self.transports.iter().map(Option::is_some).collect()
    }
}
