//! ANNOUNCE, DESCRIBE and SETUP: what a session is about, and whether the disks carry it.

use std::sync::Arc;
use std::time::Instant;

use engine::stream::{Refusal, StreamSpec};
use rtsp_types::StatusCode;
use rtsp_types::headers::{CONTENT_BASE, CONTENT_TYPE, TRANSPORT, Transports};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::answer::{Answer, UNCARRIED, answer, refused_because};
use super::outgoing::Sent;
use super::target::{Recorded, recorded_to, target, unopened};
use super::{Asked, Connection, Held, Part, Reserved, Role, RtspSession};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::rtsp::access::Right;
use crate::rtsp::transport::{Transport, transports};
use crate::sdp::{self, Description};
use crate::session::rate_from::RateFrom;
use crate::session::registry::{About, Does};

/// A player reads a block at least as often, so that playing begins that soon: GStreamer waits for 5 s by UDP.
const PLAYED_WITHIN: Nanos = Nanos::from_secs(4);

/// What that takes.
pub(super) fn played_at_least(block_bytes: u64) -> BytesPerSecond {
    BytesPerSecond(block_bytes * 1_000_000_000 / PLAYED_WITHIN.get())
}

/// Blocks from which it is known what a recording takes to be played.
const MEASURED_BLOCKS_MIN: u64 = 8;

/// The host has no descriptor for what ends the session.
fn unlisted(request: &Asked, error: &std::io::Error) -> Answer {
    answer(Some(request), StatusCode::ServiceUnavailable).reason(error.to_string())
}

impl Connection<'_> {
    /// Takes a description of what is to be recorded.
    pub(super) fn announce(&mut self, request: &Asked) -> Answer {
        if self.session.is_some() {
            return self.in_session(request, StatusCode::MethodNotValidInThisState);
        }
        let volume = match recorded_to(request) {
            Ok(volume) => volume,
            Err(said) => return said,
        };
        if let Err(said) = self.may(request, Right::Record, &volume) {
            return said;
        }
        let kind = request.header(&CONTENT_TYPE).map(|kind| kind.as_str());
        if kind.is_some_and(|kind| !kind.starts_with("application/sdp")) {
            return answer(Some(request), StatusCode::UnsupportedMediaType);
        }
        let rate = self.shared.config.rate;
        let description = Description::parse(request.body());
        let description = description.and_then(|of| {
            let from = match of.rate() {
                Some(_) => RateFrom::Announced,
                None => RateFrom::AnnouncedDefault,
            };
            Ok((of.needing(rate)?, from))
        });
        let (description, rate_from) = match description {
            Ok(described) => described,
            Err(error) => {
                return answer(Some(request), StatusCode::BadRequest).reason(error.to_string());
            }
        };
        let block = self.shared.config.block;
        let archive = match self.shared.archives.open(&volume, Some(block)) {
            Ok(archive) => archive,
            Err(error) => return unopened(request, &error),
        };
        let tracks = description.tracks().len();
        let role = Role::Publisher {
            archive,
            description: Box::new(description),
            rate_from,
            reserved: None,
        };
        self.begin(request, role, tracks)
    }

    fn begin(&mut self, request: &Asked, role: Role, tracks: usize) -> Answer {
        match session_id() {
            Ok(id) => {
                self.session = Some(RtspSession {
                    id,
                    role,
                    transports: (0..tracks).map(|_| None).collect(),
                    paused: None,
                    sent: vec![Sent::default(); tracks],
                });
                self.in_session(request, StatusCode::Ok)
            }
            Err(error) => {
                answer(Some(request), StatusCode::InternalServerError).reason(error.to_string())
            }
        }
    }

    /// What can be played there.
    pub(super) fn describe(&mut self, request: &Asked) -> Answer {
        let recorded = match self.recorded(request) {
            Ok(recorded) => recorded,
            Err(said) => return said,
        };
        // All of it is as long as the master.
        let [master, others @ ..] = &recorded[..] else {
            return answer(Some(request), StatusCode::NotFound);
        };
        let client = &self.shared.client;
        let extent = match master.archive.extent(client, &master.recording) {
            Ok(extent) => extent,
            Err(error) => return unopened(request, &error.into()),
        };
        let went_on = master.archive.went_on(&master.recording);
        let ends = (!went_on).then_some(behind(extent.end));
        let others = others.iter().map(|of| &of.description);
        let text = master
            .description
            .for_players_with(others, extent.start, ends);
        let base = request
            .request_uri()
            .map(|uri| format!("{}/", uri.as_str().trim_end_matches('/')));
        answer(Some(request), StatusCode::Ok)
            .header(CONTENT_BASE, base.unwrap_or_default())
            .body("application/sdp", text)
    }

    /// Takes a transport for a track; the first one of a session reserves for all of it.
    pub(super) fn set_up(&mut self, request: &Asked) -> Answer {
        let asked = request.header(&TRANSPORT);
        let Some(asked) = asked.and_then(|asked| transports(asked.as_str())) else {
            return answer(Some(request), StatusCode::UnsupportedTransport)
                .reason("the Transport makes no sense");
        };
        let is_new = self.session.is_none();
        if is_new && let Err(said) = self.begin_player(request) {
            return said;
        }
        let said = self.set_up_track(request, &asked);
        // Nothing half reserved stays behind.
        if is_new && !said.is_ok() {
            self.session = None;
        }
        said
    }

    fn set_up_track(&mut self, request: &Asked, asked: &Transports) -> Answer {
        let Some(track) = self.track(request) else {
            return answer(Some(request), StatusCode::NotFound)
                .reason("there is no such track; DESCRIBE or ANNOUNCE say how they are called");
        };
        let taken = |session: &RtspSession| session.transports[track].is_some();
        if self.session.as_ref().is_some_and(taken) {
            return self.in_session(request, StatusCode::MethodNotValidInThisState);
        }
        let is_secure = self.link.is_secure();
        let others = self.session.as_ref().map(|of| &of.transports[..]);
        let others = others.unwrap_or_default();
        let (local, peer) = (self.local.ip(), self.peer.ip());
        let transport = Transport::choose(asked, local, peer, track, others, is_secure);
        let transport = match transport {
            Ok(transport) => transport,
            Err(error) => {
                return answer(Some(request), StatusCode::UnsupportedTransport)
                    .reason(error.to_string());
            }
        };
        if let Err(said) = self.reserve_recording(request) {
            return said;
        }
        let records = !self.is_player();
        let header = match transport.answer(records) {
            Ok(header) => Transports::from(vec![header]),
            Err(error) => {
                return answer(Some(request), StatusCode::InternalServerError)
                    .reason(error.to_string());
            }
        };
        if let Some(session) = &mut self.session {
            session.transports[track] = Some(transport);
        }
        self.in_session(request, StatusCode::Ok).typed(&header)
    }

    /// Which track a request names, by how it was announced or described; the only one is named by the presentation.
    fn track(&self, request: &Asked) -> Option<usize> {
        let session = self.session.as_ref()?;
        let asked = target(request)?.rest;
        let mut named = track_named(session, &asked);
        if named.is_none() && asked.is_empty() {
            // Behind a query that the presentation's URL has many clients write what is below it.
            named = below_query(request).and_then(|below| track_named(session, below));
        }
        let is_nameless = match &session.role {
            Role::Publisher { description, .. } => {
                let mut tracks = description.tracks().iter();
                tracks.all(|track| track.control.is_none())
            }
            Role::Player { .. } => false,
        };
        let only = session.transports.len() == 1 && (asked.is_empty() || is_nameless);
        named.or(only.then_some(0))
    }

    /// A session for who plays without having announced anything: with its reservations.
    fn begin_player(&mut self, request: &Asked) -> Result<(), Answer> {
        let recorded = self.recorded(request)?;
        let is_live = target(request).is_some_and(|target| target.is_live);
        let mut tracks = 0;
        let mut parts = Vec::with_capacity(recorded.len());
        for of in recorded {
            let first_track = tracks;
            tracks += of.description.tracks().len();
            // All or nothing: those before are given back where one is refused.
            parts.push(self.part(request, of, first_track)?);
        }
        let begun = self.begin(request, Role::Player { parts, is_live }, tracks);
        if begun.is_ok() { Ok(()) } else { Err(begun) }
    }

    /// Reserves for playing a recording.
    fn part(
        &self,
        request: &Asked,
        recorded: Recorded,
        first_track: usize,
    ) -> Result<Part, Answer> {
        let Recorded {
            archive,
            recording,
            description,
        } = recorded;
        let (rate, is_guess) = self
            .played_rate(&archive, &recording, &description)
            .map_err(|error| unopened(request, &error.into()))?;
        let at_least = played_at_least(archive.header().block_bytes);
        let from = match is_guess {
            _ if rate < at_least => RateFrom::Soon,
            true => RateFrom::Recorded,
            false => RateFrom::Measured,
        };
        let rate = rate.max(at_least);
        let volume = archive.volume().name();
        let name = format!("rtsp {} plays {volume}", self.peer);
        let reserved = self
            .reserve(&archive, &name, rate, Op::Read)
            .map_err(|error| {
                let refusal = from.refused(rate, &error);
                if let Some(untold) = UNCARRIED.turn(Instant::now()) {
                    tracing::info!(peer = %self.peer, volume, %refusal, untold, "a player is refused");
                }
                refused_because(request, &error, refusal).logged()
            })?;
        let about = About {
            who: self.peer.to_string(),
            does: Does::Plays,
            volume: volume.to_owned(),
            recording: recording.number,
        };
        let member = self.shared.archives.registry().join(about, &reserved);
        let member = member.map_err(|error| unlisted(request, &error))?;
        let sources = sources(description.tracks().len());
        Ok(Part {
            sources: sources.map_err(|error| unlisted(request, &error))?,
            archive,
            recording,
            description,
            reserved,
            member,
            is_guess,
            first_track,
        })
    }

    /// What a recording takes to be played: its blocks over its time, and a tenth, as it may vary; at most what was
    /// reserved for recording it, as its last blocks say it: they were not written faster, whatever their timestamps
    /// say. Of one that has few blocks just that, which is a guess.
    fn played_rate(
        &self,
        archive: &Archive,
        recording: &Recording,
        description: &Description,
    ) -> Result<(BytesPerSecond, bool), ArchiveError> {
        let blocks = recording.end - recording.first;
        let recorded = description.rate().unwrap_or(self.shared.config.rate);
        if blocks < MEASURED_BLOCKS_MIN {
            return Ok((recorded, true));
        }
        let extent = archive.extent(&self.shared.client, recording)?;
        let bytes = u128::from(blocks) * u128::from(archive.header().block_bytes);
        // Of one whose clock has gone back it is not known.
        let length = extent.end.saturating_sub(extent.start);
        if length == 0 {
            return Ok((recorded, true));
        }
        let rate = bytes * 1_100_000_000 / u128::from(length);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        Ok((BytesPerSecond(rate).min(recorded), false))
    }

    fn reserve(
        &self,
        archive: &Archive,
        name: &str,
        rate: BytesPerSecond,
        op: Op,
    ) -> Result<Held, Refusal> {
        let stream = self.shared.archives.pool().reserve(StreamSpec {
            name: name.to_owned(),
            volume: Arc::clone(archive.volume()),
            range: Some(archive.range()),
            rate,
            block: Bytes(archive.header().block_bytes),
            op,
            span: None,
            wraps: true,
        })?;
        Ok(Held(stream))
    }

    /// Reserves for a recording, if that has not been done.
    pub(super) fn reserve_recording(&mut self, request: &Asked) -> Result<(), Answer> {
        let Some(RtspSession {
            role:
                Role::Publisher {
                    archive,
                    description,
                    rate_from,
                    reserved: None,
                },
            ..
        }) = &self.session
        else {
            return Ok(());
        };
        let rate = description.rate().unwrap_or(self.shared.config.rate);
        let archives = &self.shared.archives;
        let writing = archives
            .record(archive)
            .map_err(|error| unopened(request, &error.into()))?;
        let name = format!("rtsp {} records {}", self.peer, archive.volume().name());
        let stream = self
            .reserve(archive, &name, rate, Op::Write)
            .map_err(|error| {
                let volume = archive.volume().name();
                let refusal = rate_from.refused(rate, &error);
                if let Some(untold) = UNCARRIED.turn(Instant::now()) {
                    tracing::info!(peer = %self.peer, volume, %refusal, untold, "a recording is refused");
                }
                refused_because(request, &error, refusal).logged()
            })?;
        let about = About {
            who: self.peer.to_string(),
            does: Does::Records,
            volume: archive.volume().name().to_owned(),
            recording: writing.number(),
        };
        let member = self.shared.archives.registry().join(about, &stream);
        let member = member.map_err(|error| unlisted(request, &error))?;
        if let Some(RtspSession {
            role: Role::Publisher { reserved, .. },
            ..
        }) = &mut self.session
        {
            *reserved = Some(Reserved {
                stream,
                writing,
                member,
            });
        }
        Ok(())
    }
}

/// The first whole millisecond behind a time: who asks for all that a description tells gets the last packet too, also
/// if he says no more than milliseconds.
fn behind(media_ns: u64) -> u64 {
    const MILLISECOND: u64 = 1_000_000;
    (media_ns / MILLISECOND + 1).saturating_mul(MILLISECOND)
}

/// 64 random bits, as text: nobody guesses somebody else's session.
fn session_id() -> std::io::Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An SSRC for each of so many tracks: random, as they are (RFC 3550, section 8.1).
fn sources(count: usize) -> std::io::Result<Vec<u32>> {
    let mut bytes = vec![0; 4 * count];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let (each, _) = bytes.as_chunks();
    Ok(each.iter().map(|of| u32::from_ne_bytes(*of)).collect())
}

/// The track that is called so in its description.
fn track_named(session: &RtspSession, asked: &str) -> Option<usize> {
    let Role::Publisher { description, .. } = &session.role else {
        return (0..session.transports.len()).find(|track| sdp::control(*track) == asked);
    };
    // Encoders that name an application and a stream have both before the track.
    let ends = |long: &str, short: &str| {
        let before = long.strip_suffix(short).filter(|_| !short.is_empty());
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    description.tracks().iter().position(|track| {
        let control = track.control.as_deref().unwrap_or_default();
        let control = control.trim_start_matches('/');
        ends(control, asked) || ends(asked, control)
    })
}

/// What is behind the last slash of a query.
fn below_query(request: &Asked) -> Option<&str> {
    let query = request.request_uri()?.query()?;
    query.rsplit_once('/').map(|(_, below)| below)
}
