//! ANNOUNCE, DESCRIBE and SETUP: what a session is about, and whether the disks carry it.

use std::sync::Arc;

use engine::stream::{Refusal, Stream, StreamSpec};
use rtsp_types::StatusCode;
use rtsp_types::headers::{CONTENT_BASE, CONTENT_TYPE, Transports};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use super::answer::{Answer, answer};
use super::{Asked, Connection, Reserved, Role, Session};
use crate::media::access::Right;
use crate::media::archive::{Archive, ArchiveError, Recording};
use crate::media::archives::OpenError;
use crate::media::description::{self, Description};
use crate::media::play;
use crate::media::roster::{About, Does};
use crate::media::transport::Transport;

/// A player reads a block at least as often, so that playing begins that soon.
const PLAYED_WITHIN: Nanos = Nanos::from_secs(5);

/// What that takes.
pub(super) fn played_at_least(block_bytes: u64) -> BytesPerSecond {
    BytesPerSecond(block_bytes * 1_000_000_000 / PLAYED_WITHIN.get())
}

/// Blocks from which it is known what a recording takes to be played.
const MEASURED_BLOCKS_MIN: u64 = 8;

/// What a path names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) volume: String,
    /// A recording by its number; the newest.
    pub(super) number: Option<u64>,
    /// `live`: from now on.
    pub(super) is_live: bool,
    /// What follows.
    pub(super) rest: String,
}

/// `/VOLUME`, `/VOLUME/7`, `/VOLUME/live`, each with a track behind it or not.
pub(super) fn target(request: &Asked) -> Option<Target> {
    let path = request.request_uri()?.path();
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let volume = parts.next().filter(|volume| !volume.is_empty())?;
    let rest = parts.next().unwrap_or_default();
    let (first, others) = rest.split_once('/').unwrap_or((rest, ""));
    let number = first.parse().ok();
    let is_live = first == "live";
    Some(Target {
        volume: volume.to_owned(),
        number,
        is_live,
        rest: if number.is_some() || is_live {
            others.to_owned()
        } else {
            rest.to_owned()
        },
    })
}

/// Why not, for the peer.
pub(super) fn refused(request: &Asked, refusal: &Refusal) -> Answer {
    let status = match refusal {
        Refusal::Load { .. } | Refusal::Share { .. } | Refusal::Memory { .. } => {
            StatusCode::NotEnoughBandwidth
        }
        Refusal::Invalid { .. } => StatusCode::BadRequest,
        Refusal::Pool(_) => StatusCode::ServiceUnavailable,
    };
    answer(Some(request), status).reason(refusal.to_string())
}

fn unopened(request: &Asked, error: &OpenError) -> Answer {
    let status = match error {
        OpenError::Archive(ArchiveError::Empty(_)) => StatusCode::NotFound,
        OpenError::Archive(
            ArchiveError::Foreign(_) | ArchiveError::Small { .. } | ArchiveError::Busy(_),
        ) => StatusCode::Forbidden,
        OpenError::Archive(_) => StatusCode::InternalServerError,
        OpenError::Pool(engine::pool::PoolError::NoSuchVolume { .. })
        | OpenError::NoRecording { .. } => StatusCode::NotFound,
        OpenError::Pool(_) | OpenError::Memory(_) => StatusCode::ServiceUnavailable,
    };
    answer(Some(request), status).reason(error.to_string())
}

impl Connection<'_> {
    /// Takes a description of what is to be recorded.
    pub(super) fn announce(&mut self, request: &Asked) -> Answer {
        if self.session.is_some() {
            return self.in_session(request, StatusCode::MethodNotValidInThisState);
        }
        let Some(target) = target(request) else {
            return answer(Some(request), StatusCode::NotFound)
                .reason("name a volume: rtsp://HOST/VOLUME");
        };
        if let Err(said) = self.may(request, Right::Record, &target.volume) {
            return said;
        }
        let kind = request.header(&CONTENT_TYPE).map(|kind| kind.as_str());
        if kind.is_some_and(|kind| !kind.starts_with("application/sdp")) {
            return answer(Some(request), StatusCode::UnsupportedMediaType);
        }
        let rate = self.shared.config.rate;
        let description = Description::parse(request.body());
        let description = match description.and_then(|of| of.needing(rate)) {
            Ok(description) => description,
            Err(error) => {
                return answer(Some(request), StatusCode::BadRequest).reason(error.to_string());
            }
        };
        let block = self.shared.config.block;
        let archive = match self.shared.archives.open(&target.volume, Some(block)) {
            Ok(archive) => archive,
            Err(error) => return unopened(request, &error),
        };
        let tracks = description.tracks().len();
        let role = Role::Publisher {
            archive,
            description: Box::new(description),
            reserved: None,
        };
        self.begin(request, role, tracks)
    }

    fn begin(&mut self, request: &Asked, role: Role, tracks: usize) -> Answer {
        match session_id() {
            Ok(id) => {
                self.session = Some(Session {
                    id,
                    role,
                    transports: (0..tracks).map(|_| None).collect(),
                    paused: None,
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
        let (archive, recording, description) = match self.recorded(request) {
            Ok(recorded) => recorded,
            Err(said) => return said,
        };
        let is_going_on = archive.is_recorded()
            && archive
                .recording(None)
                .is_some_and(|newest| newest.number == recording.number);
        let extent = match play::extent(&archive, &self.shared.client, &recording) {
            Ok(extent) => extent,
            Err(error) => return unopened(request, &error.into()),
        };
        let length = (!is_going_on).then_some(behind(extent.end));
        let base = request
            .request_uri()
            .map(|uri| format!("{}/", uri.as_str().trim_end_matches('/')));
        answer(Some(request), StatusCode::Ok)
            .header(CONTENT_BASE, base.unwrap_or_default())
            .body("application/sdp", description.for_players(length))
    }

    /// The recording that a request names.
    fn recorded(&self, request: &Asked) -> Result<(Arc<Archive>, Recording, Description), Answer> {
        let missing = |why: String| answer(Some(request), StatusCode::NotFound).reason(why);
        let target = target(request)
            .ok_or_else(|| missing("name a volume: rtsp://HOST/VOLUME".to_owned()))?;
        self.may(request, Right::Play, &target.volume)?;
        let archive = self.shared.archives.open(&target.volume, None);
        let archive = archive.map_err(|error| unopened(request, &error))?;
        let recording = archive.recording(target.number).ok_or_else(|| {
            let which = target.number.map_or("recording".to_owned(), |number| {
                format!("recording {number}")
            });
            missing(format!("there is no {which} in volume {:?}", target.volume))
        })?;
        if target.is_live && !archive.is_recorded() {
            return Err(missing(format!(
                "nobody records in volume {:?}",
                target.volume
            )));
        }
        let described = self.shared.archives.describe(&archive, recording);
        let described = described.map_err(|error| unopened(request, &error))?;
        match described.description {
            Some(description) => Ok((archive, recording, description)),
            None => Err(missing(format!(
                "the last blocks of recording {} in volume {:?} are damaged",
                recording.number, target.volume
            ))),
        }
    }

    /// Takes a transport for a track; the first one of a session reserves for all of it.
    pub(super) fn set_up(&mut self, request: &Asked) -> Answer {
        let asked = match request.typed_header::<Transports>() {
            Ok(Some(asked)) => asked,
            _ => return answer(Some(request), StatusCode::UnsupportedTransport),
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
        let taken = |session: &Session| session.transports[track].is_some();
        if self.session.as_ref().is_some_and(taken) {
            return self.in_session(request, StatusCode::MethodNotValidInThisState);
        }
        let is_secure = self.link.is_secure();
        let transport = Transport::choose(asked, self.local.ip(), self.peer.ip(), track, is_secure);
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
        let named = match &session.role {
            Role::Publisher { description, .. } => description.tracks().iter().position(|track| {
                let control = track.control.as_deref();
                control.is_some_and(|control| {
                    let control = control.trim_start_matches('/');
                    control == asked || control.ends_with(&format!("/{asked}")) && !asked.is_empty()
                })
            }),
            Role::Player { .. } => {
                (0..session.transports.len()).find(|track| description::control(*track) == asked)
            }
        };
        let only = session.transports.len() == 1 && asked.is_empty();
        named.or(only.then_some(0))
    }

    /// A session for who plays without having announced anything: with its reservation.
    fn begin_player(&mut self, request: &Asked) -> Result<(), Answer> {
        let (archive, recording, description) = self.recorded(request)?;
        let is_live = target(request).is_some_and(|target| target.is_live);
        let (rate, is_guess) = self
            .played_rate(&archive, &recording, &description)
            .map_err(|error| unopened(request, &error.into()))?;
        let rate = rate.max(played_at_least(archive.header().block_bytes));
        let name = format!("rtsp {} plays {}", self.peer, archive.volume().name());
        let reserved = self
            .reserve(&archive, &name, rate, Op::Read)
            .map_err(|refusal| {
                tracing::info!(peer = %self.peer, %refusal, "a player is refused");
                refused(request, &refusal)
            })?;
        let tracks = description.tracks().len();
        let about = About {
            who: self.peer.to_string(),
            does: Does::Plays,
            volume: archive.volume().name().to_owned(),
            recording: recording.number,
        };
        let member = self.shared.archives.roster().join(about, &reserved);
        let role = Role::Player {
            archive,
            recording,
            description: Box::new(description),
            reserved,
            member,
            is_guess,
            is_live,
        };
        let begun = self.begin(request, role, tracks);
        if begun.is_ok() { Ok(()) } else { Err(begun) }
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
        let extent = play::extent(archive, &self.shared.client, recording)?;
        let bytes = u128::from(blocks) * u128::from(archive.header().block_bytes);
        let length = u128::from(extent.end - extent.start).max(1);
        let rate = bytes * 1_100_000_000 / length;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        Ok((BytesPerSecond(rate).min(recorded), false))
    }

    fn reserve(
        &self,
        archive: &Archive,
        name: &str,
        rate: BytesPerSecond,
        op: Op,
    ) -> Result<Stream, Refusal> {
        self.shared.archives.pool().reserve(StreamSpec {
            name: name.to_owned(),
            volume: Arc::clone(archive.volume()),
            range: Some(archive.range()),
            rate,
            block: Bytes(archive.header().block_bytes),
            op,
            span: None,
            wraps: true,
        })
    }

    /// Reserves for a recording, if that has not been done.
    pub(super) fn reserve_recording(&mut self, request: &Asked) -> Result<(), Answer> {
        let Some(Session {
            role:
                Role::Publisher {
                    archive,
                    description,
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
            .map_err(|refusal| {
                tracing::info!(peer = %self.peer, %refusal, "a recording is refused");
                refused(request, &refusal)
            })?;
        let about = About {
            who: self.peer.to_string(),
            does: Does::Records,
            volume: archive.volume().name().to_owned(),
            recording: writing.number(),
        };
        let member = self.shared.archives.roster().join(about, &stream);
        if let Some(Session {
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
