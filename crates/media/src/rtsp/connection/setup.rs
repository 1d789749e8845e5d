//! ANNOUNCE, DESCRIBE and SETUP: the description of a session, its transports, and its reservation.

use std::sync::Arc;
use std::time::Instant;

use engine::stream::{Refusal, StreamSpec};
use rtsp_types::StatusCode;
use rtsp_types::headers::{CONTENT_BASE, CONTENT_TYPE, TRANSPORT, Transports};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos};
use volume::name::flaw;

use super::answer::{Answer, UNCARRIED, answer, refused_because};
use super::outgoing::SentCounts;
use super::target::{PlayableRecording, recorded_to, target, unopened};
use super::{
    ClientRequest, Connection, Part, RecordingDestination, RecordingReservation, ReservedStream,
    Role, RtspSession,
};
use crate::archive::archives::OpenError;
use crate::archive::fitting::block_that_fits;
use crate::archive::{Archive, ArchiveError, Recording};
use crate::rtsp::access::AccessRight;
use crate::rtsp::transport::{Transport, transports};
use crate::sdp::{self, Description};
use crate::session::demand::RateEstimate;
use crate::session::demand::recorder_rate_min;
use crate::session::rate_from::RateFrom;
use crate::session::registry::{SessionSubject, SessionUse};

/// A player reserves at least a block in this time, so that playing begins that soon: by UDP, GStreamer waits for 5 s.
const PLAYED_WITHIN: Nanos = Nanos::from_secs(4);

/// The minimum rate of a player.
pub(super) fn player_rate_min(block_bytes: u64) -> BytesPerSecond {
    BytesPerSecond(block_bytes * 1_000_000_000 / PLAYED_WITHIN.get())
}

/// A recording with this many blocks is long enough for its rate to be measured.
const MEASURED_BLOCKS_MIN: u64 = 8;

/// The refusal if the host has no descriptor or no random numbers for a session.
pub(super) fn host_refusal(request: &ClientRequest, error: &std::io::Error) -> Answer {
    answer(Some(request), StatusCode::ServiceUnavailable).reason(error.to_string())
}

impl Connection<'_> {
    /// ANNOUNCE: takes the description of a recording.
    pub(super) fn announce(&mut self, request: &ClientRequest) -> Answer {
        if self.session.is_some() {
            return self.in_session(request, StatusCode::MethodNotValidInThisState);
        }
        let (volume, is_live) = match recorded_to(request) {
            Ok(named) => named,
            Err(said) => return said,
        };
        if let Err(said) = self.may(request, AccessRight::Record, &volume) {
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
        let destination = match is_live {
            true => match flaw(&volume) {
                None => RecordingDestination::Live(volume),
                Some(flaw) => {
                    return answer(Some(request), StatusCode::BadRequest).reason(flaw.to_string());
                }
            },
            false => match self.open_to_record(&volume) {
                Ok(archive) => RecordingDestination::Archive(archive),
                Err(error) => return unopened(request, &error),
            },
        };
        let tracks = description.tracks().len();
        let role = Role::Publisher {
            destination,
            description: Box::new(description),
            rate_from,
            reserved: None,
        };
        self.begin(request, role, tracks)
    }

    fn open_to_record(&self, volume: &str) -> Result<Arc<Archive>, OpenError> {
        let block = self.shared.config.block;
        self.shared.archives.open(volume, Some(block))
    }

    fn begin(&mut self, request: &ClientRequest, role: Role, tracks: usize) -> Answer {
        match session_id() {
            Ok(id) => {
                self.session = Some(RtspSession {
                    id,
                    role,
                    transports: (0..tracks).map(|_| None).collect(),
                    paused: None,
                    sent: vec![SentCounts::default(); tracks],
                });
                self.in_session(request, StatusCode::Ok)
            }
            Err(error) => {
                answer(Some(request), StatusCode::InternalServerError).reason(error.to_string())
            }
        }
    }

    /// DESCRIBE: the description of what a URL names.
    pub(super) fn describe(&mut self, request: &ClientRequest) -> Answer {
        match self.live_streams(request) {
            Ok(Some(feeds)) => return self.describe_live(request, &feeds),
            Ok(None) => {}
            Err(said) => return said,
        }
        let recorded = match self.recorded(request) {
            Ok(recorded) => recorded,
            Err(said) => return said,
        };
        // The presentation is as long as the master.
        let [master, others @ ..] = &recorded[..] else {
            return answer(Some(request), StatusCode::NotFound);
        };
        let client = &self.shared.client;
        let extent = match master.archive.extent(client, &master.recording) {
            Ok(extent) => extent,
            Err(error) => return unopened(request, &error.into()),
        };
        let went_on = master.archive.went_on(&master.recording);
        let ends = (!went_on).then_some(next_millisecond(extent.end));
        let others = others.iter().map(|of| &of.description);
        let text = master
            .description
            .for_players_with(others, extent.start, ends);
        self.described(request, text)
    }

    /// The reply with a description.
    pub(super) fn described(&self, request: &ClientRequest, text: Vec<u8>) -> Answer {
        let base = request
            .request_uri()
            .map(|uri| format!("{}/", uri.as_str().trim_end_matches('/')));
        answer(Some(request), StatusCode::Ok)
            .header(CONTENT_BASE, base.unwrap_or_default())
            .body("application/sdp", text)
    }

    /// SETUP: chooses the transport of a track. The first SETUP reserves for all tracks.
    pub(super) fn set_up(&mut self, request: &ClientRequest) -> Answer {
        let asked = request.header(&TRANSPORT);
        let Some(asked) = asked.and_then(|asked| transports(asked.as_str())) else {
            return answer(Some(request), StatusCode::UnsupportedTransport)
                .reason("invalid Transport header");
        };
        let is_new = self.session.is_none();
        if is_new && let Err(said) = self.begin_player(request) {
            return said;
        }
        let said = self.set_up_track(request, &asked);
        // A failed SETUP leaves no session.
        if is_new && !said.is_ok() {
            self.session = None;
        }
        said
    }

    fn set_up_track(&mut self, request: &ClientRequest, asked: &Transports) -> Answer {
        let Some(track) = self.track(request) else {
            return answer(Some(request), StatusCode::NotFound)
                .reason("there is no such track: the description (DESCRIBE or ANNOUNCE) has the URLs of the tracks");
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

    /// The track that a request names as it was announced or described. The URL of the presentation names its only
    /// track.
    fn track(&self, request: &ClientRequest) -> Option<usize> {
        let session = self.session.as_ref()?;
        let asked = target(request)?.rest;
        let mut named = track_named(session, &asked);
        if named.is_none() && asked.is_empty() {
            // Many clients append the track behind the query of the presentation's URL.
            named = below_query(request).and_then(|below| track_named(session, below));
        }
        let has_no_names = match &session.role {
            Role::Publisher { description, .. } => {
                let mut tracks = description.tracks().iter();
                tracks.all(|track| track.control.is_none())
            }
            Role::Player { .. } | Role::Viewer { .. } => false,
        };
        let only = session.transports.len() == 1 && (asked.is_empty() || has_no_names);
        named.or(only.then_some(0))
    }

    /// Begins the session of a player, with its reservations, or of a viewer of live streams.
    fn begin_player(&mut self, request: &ClientRequest) -> Result<(), Answer> {
        let (role, tracks) = match self.live_streams(request)? {
            Some(feeds) => self.viewer(request, feeds)?,
            None => {
                let mut tracks = 0;
                let mut parts = Vec::new();
                for of in self.recorded(request)? {
                    let first_track = tracks;
                    tracks += of.description.tracks().len();
                    // All or nothing: if one is refused, the ones before are given back.
                    parts.push(self.part(request, of, first_track)?);
                }
                (Role::Player { parts }, tracks)
            }
        };
        let begun = self.begin(request, role, tracks);
        if begun.is_ok() { Ok(()) } else { Err(begun) }
    }

    /// Reserves for playing a recording.
    pub(super) fn part(
        &self,
        request: &ClientRequest,
        recorded: PlayableRecording,
        first_track: usize,
    ) -> Result<Part, Answer> {
        let PlayableRecording {
            archive,
            recording,
            description,
        } = recorded;
        let (rate, estimate) = self
            .played_rate(&archive, &recording, &description)
            .map_err(|error| unopened(request, &error.into()))?;
        let at_least = player_rate_min(archive.header().block_bytes);
        let from = match estimate {
            _ if rate < at_least => RateFrom::Soon,
            RateEstimate::Guessed => RateFrom::Recorded,
            RateEstimate::Measured => RateFrom::Measured,
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
        let about = SessionSubject {
            who: self.peer.to_string(),
            does: SessionUse::Plays,
            volume: volume.to_owned(),
            recording: recording.number,
        };
        let member = self.shared.archives.registry().join(about, &reserved);
        let member = member.map_err(|error| host_refusal(request, &error))?;
        let sources = sources(description.tracks().len());
        Ok(Part {
            sources: sources.map_err(|error| host_refusal(request, &error))?,
            archive,
            recording,
            description,
            reserved,
            member,
            estimate,
            first_track,
        })
    }

    /// The rate for playing a recording: the size of its blocks over its length, and a tenth, as it may vary. At
    /// most the rate that was reserved for recording it, according to its last blocks: it was not written faster,
    /// whatever its timestamps say. For a recording with few blocks it is guessed as that rate.
    fn played_rate(
        &self,
        archive: &Archive,
        recording: &Recording,
        description: &Description,
    ) -> Result<(BytesPerSecond, RateEstimate), ArchiveError> {
        let blocks = recording.end - recording.first;
        let recorded = description.rate().unwrap_or(self.shared.config.rate);
        if blocks < MEASURED_BLOCKS_MIN {
            return Ok((recorded, RateEstimate::Guessed));
        }
        let extent = archive.extent(&self.shared.client, recording)?;
        let bytes = u128::from(blocks) * u128::from(archive.header().block_bytes);
        // The length is unknown if the clock has gone back.
        let length = extent.end.saturating_sub(extent.start);
        if length == 0 {
            return Ok((recorded, RateEstimate::Guessed));
        }
        let rate = bytes * 1_100_000_000 / u128::from(length);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        Ok((BytesPerSecond(rate).min(recorded), RateEstimate::Measured))
    }

    fn reserve(
        &self,
        archive: &Archive,
        name: &str,
        rate: BytesPerSecond,
        op: Op,
    ) -> Result<ReservedStream, Refusal> {
        let spec = stream_spec(archive, name, rate, op);
        let stream = self.shared.archives.pool().reserve(spec)?;
        Ok(ReservedStream(stream))
    }

    /// The reply to a publisher whose reservation is refused, with a block size that would fit if there is one. The
    /// publisher cannot choose the size, so the log has the reason, too.
    fn recording_refused(
        &self,
        request: &ClientRequest,
        archive: &Archive,
        (rate, from): (BytesPerSecond, RateFrom),
        error: &Refusal,
    ) -> Answer {
        let mut refusal = from.refused(rate, error);
        if let Refusal::Load { .. } = error {
            let spec = stream_spec(archive, "", rate, Op::Write);
            if let Some(block) = block_that_fits(self.shared.archives.pool(), &spec) {
                refusal += &format!(
                    "; blocks of {block} would fit at that rate: record in another volume with `block` under [rtsp]"
                );
            }
        }
        let volume = archive.volume().name();
        if let Some(untold) = UNCARRIED.turn(Instant::now()) {
            tracing::info!(peer = %self.peer, volume, %refusal, untold, "a recording is refused");
        }
        refused_because(request, error, refusal).logged()
    }

    /// Reserves for a recording, unless that has been done. A stream that is live only needs no reservation.
    pub(super) fn reserve_recording(&mut self, request: &ClientRequest) -> Result<(), Answer> {
        let Some(RtspSession {
            role:
                Role::Publisher {
                    destination,
                    description,
                    rate_from,
                    reserved: None,
                },
            ..
        }) = &self.session
        else {
            return Ok(());
        };
        let name = match destination {
            RecordingDestination::Archive(archive) => archive.volume().name(),
            RecordingDestination::Live(name) => name,
        };
        if let Err(busy) = self.shared.archives.live().is_free(name) {
            return Err(answer(Some(request), StatusCode::Forbidden).reason(busy.to_string()));
        }
        let archive = match destination {
            RecordingDestination::Archive(archive) => archive,
            RecordingDestination::Live(name) => {
                let about = SessionSubject {
                    who: self.peer.to_string(),
                    does: SessionUse::Relays,
                    volume: name.clone(),
                    recording: 0,
                };
                let member = self.shared.archives.registry().join_live(about);
                let member = member.map_err(|error| host_refusal(request, &error))?;
                self.set_reserved(RecordingReservation {
                    disks: None,
                    member,
                });
                return Ok(());
            }
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
                self.recording_refused(request, archive, (rate, *rate_from), &error)
            })?;
        let about = SessionSubject {
            who: self.peer.to_string(),
            does: SessionUse::Records,
            volume: archive.volume().name().to_owned(),
            recording: writing.number(),
        };
        let member = self.shared.archives.registry().join(about, &stream);
        let member = member.map_err(|error| host_refusal(request, &error))?;
        if rate_from.is_guess() {
            member.promise(recorder_rate_min(archive.header().block_bytes).min(rate));
        }
        self.set_reserved(RecordingReservation {
            disks: Some((stream, writing)),
            member,
        });
        Ok(())
    }

    fn set_reserved(&mut self, reservation: RecordingReservation) {
        if let Some(RtspSession {
            role: Role::Publisher { reserved, .. },
            ..
        }) = &mut self.session
        {
            *reserved = Some(reservation);
        }
    }
}

/// The first whole millisecond after a time: a player that requests the whole range of a description gets the last
/// packet, also if it writes times in milliseconds.
fn next_millisecond(media_ns: u64) -> u64 {
    const MILLISECOND: u64 = 1_000_000;
    (media_ns / MILLISECOND + 1).saturating_mul(MILLISECOND)
}

/// 64 random bits in hexadecimal, so that a session identifier cannot be guessed.
fn session_id() -> std::io::Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A random SSRC for each track (RFC 3550, section 8.1).
fn sources(count: usize) -> std::io::Result<Vec<u32>> {
    let mut bytes = vec![0; 4 * count];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let (each, _) = bytes.as_chunks();
    Ok(each.iter().map(|of| u32::from_ne_bytes(*of)).collect())
}

/// The track with this name in the description.
fn track_named(session: &RtspSession, asked: &str) -> Option<usize> {
    let Role::Publisher { description, .. } = &session.role else {
        return (0..session.transports.len()).find(|track| sdp::control(*track) == asked);
    };
    // Encoders whose URL names an application and a stream write both before the track.
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

/// The part of a query behind its last slash.
fn below_query(request: &ClientRequest) -> Option<&str> {
    let query = request.request_uri()?.query()?;
    query.rsplit_once('/').map(|(_, below)| below)
}

/// A stream for all blocks of an archive.
fn stream_spec(archive: &Archive, name: &str, rate: BytesPerSecond, op: Op) -> StreamSpec {
    StreamSpec {
        name: name.to_owned(),
        volume: Arc::clone(archive.volume()),
        range: Some(archive.range()),
        rate,
        block: Bytes(archive.header().block_bytes),
        op,
        span: None,
        wraps: true,
    }
}
