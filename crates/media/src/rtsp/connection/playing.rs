//! PLAY: packets are sent, each at its due time, until PAUSE, TEARDOWN, silence, or the end of the connection.

mod sending;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use engine::clock;
use engine::event::EventFd;
use engine::stream::BlockReader;
use rtsp_types::headers::{RANGE, RTP_INFO, SCALE, SPEED};
use rtsp_types::{Method, Response, StatusCode};
use rustix::event::PollFlags;
use sched::units::{Nanos, Time};

use super::answer::{Answer, answer, options};
use super::outgoing::{Outgoing, PlayerOutput, SentCounts, Tally, farewell};
use super::parameters::named_part;
use super::play_request::{PartSelection, PlayRequest, Playable, RequestedPart, Terms};
use super::setup::player_rate_min;
use super::target::unknown_part;
use super::unwanted::PlayRefusal;
use super::viewing::is_from_now;
use super::{ClientRequest, Connection, ConnectionError, NextStep, Part, Role, RtspSession};
use crate::archive::ArchiveError;
use crate::archive::block::Kind;
use crate::archive::start::Place;
use crate::play::presentation::{self, DriftFollower, Presentation, media_ns};
use crate::play::{Continuation, FollowingRecordings, Origin, PlayError, Playback, Upcoming};
use crate::rtsp::input::Next;
use crate::rtsp::poll::Wait;
use crate::rtsp::server::Shared;
use crate::rtsp::transport::Transport;
use crate::session::Scale;
use crate::session::demand::PlayerDemand;
use crate::session::negotiation::Negotiation;

/// The end of playing.
enum PlayEnd {
    /// All packets were sent.
    Completed,
    /// By PAUSE or TEARDOWN, with the position of each part.
    Stopped(Box<ClientRequest>, Vec<Option<Place>>),
    /// By another PLAY, with the position of each part, and the state to go on with.
    Replaced(
        Box<ClientRequest>,
        Vec<Option<Place>>,
        Vec<Option<Continuation>>,
    ),
    /// With the connection, the server, or the session.
    Closed,
}

impl PlayEnd {
    /// The reason for the log.
    fn reason(&self) -> &'static str {
        match self {
            Self::Completed => "all packets were sent",
            Self::Stopped(request, _) if *request.method() == Method::Pause => "PAUSE",
            Self::Stopped(..) => "TEARDOWN",
            Self::Replaced(..) => "a new PLAY replaces it",
            Self::Closed => "the connection, the session or the server ended",
        }
    }
}

impl Connection<'_> {
    /// Answers PLAY.
    pub(super) fn begin_play(&mut self, request: &ClientRequest) -> (Response<Vec<u8>>, NextStep) {
        let becomes_viewer = match is_from_now(request) {
            true => self.become_viewer(request),
            false => Ok(false),
        };
        let role = self.session.as_ref().map(|session| &session.role);
        match becomes_viewer {
            Ok(true) => return self.begin_view(request),
            Ok(false) if matches!(role, Some(Role::Viewer { .. })) => {
                return self.begin_view(request);
            }
            Ok(false) => {}
            Err(refused) => return (refused.done(), NextStep::Read),
        }
        let Some(RtspSession {
            id,
            role: Role::Player { parts },
            ..
        }) = &self.session
        else {
            let said = self.in_session(request, StatusCode::MethodNotValidInThisState);
            return (said.done(), NextStep::Read);
        };
        let said = |status| answer(Some(request), status).session(id, self.shared.config.timeout);
        if let Some(why) = unknown_part(request) {
            return (said(StatusCode::NotFound).because(why), NextStep::Read);
        }
        let playable = match self.playable() {
            Ok(playable) => playable,
            Err((status, why)) => return (said(status).because(why), NextStep::Read),
        };
        let wanted = self
            .terms(request, &playable)
            .and_then(|terms| self.locate(terms, &playable));
        let mut wanted = match wanted {
            Ok(wanted) => wanted,
            Err(PlayRefusal::Range(why)) => {
                return (said(StatusCode::InvalidRange).because(why), NextStep::Read);
            }
            Err(PlayRefusal::Archive(error)) => {
                let said = said(StatusCode::InternalServerError);
                return (said.because(error.to_string()), NextStep::Read);
            }
        };
        let speed = self.reserve_speed(wanted.terms.speed, parts);
        wanted.set_speed(speed);
        let mut said = said(StatusCode::Ok).header(RANGE, wanted.range());
        if let Some(info) = self.rtp_info(request, parts, &mut wanted) {
            said = said.header(RTP_INFO, info);
        }
        if request.header(&SCALE).is_some() {
            said = said.header(SCALE, factor(wanted.terms.scale));
        }
        if let Some(speed) = speed {
            said = said.header(SPEED, factor(speed));
        }
        (said.done(), NextStep::Play(Box::new(wanted)))
    }

    /// The request that goes on with what was played, after another PLAY was refused; `None` if that is impossible.
    fn go_on(
        &self,
        terms: Terms,
        continuations: Vec<Option<Continuation>>,
    ) -> Option<Box<PlayRequest>> {
        let mut of = self.playable().ok()?;
        of.selection = PartSelection::Previous;
        // Without a position it would play from the beginning.
        of.paused?;
        let mut wanted = self.locate(terms.going_on(), &of).ok()?;
        wanted.set_speed(terms.speed);
        wanted.continuations = continuations;
        Some(Box::new(wanted))
    }

    /// The state of the session for a PLAY; or the status and the reason of its refusal.
    fn playable(&self) -> Result<Playable<'_>, (StatusCode, String)> {
        let Some(RtspSession {
            role: Role::Player { parts },
            paused,
            transports,
            ..
        }) = &self.session
        else {
            let why = "no track is set up: send SETUP first".to_owned();
            return Err((StatusCode::MethodNotValidInThisState, why));
        };
        let of_part = |part: &Part| part.archive.recording(Some(part.recording.number));
        let Some(master) = parts.first().and_then(of_part) else {
            let why = match parts.first() {
                Some(Part {
                    archive, recording, ..
                }) => format!(
                    "recording {} in volume {:?} has been deleted",
                    recording.number,
                    archive.volume().name()
                ),
                None => "no track is set up: send SETUP first".to_owned(),
            };
            return Err((StatusCode::NotFound, why));
        };
        // Recordings of other volumes that have been deleted or overwritten are left out.
        let recordings = self.recordings(parts, &master);
        let recordings =
            recordings.map_err(|error| (StatusCode::InternalServerError, error.to_string()))?;
        Ok(Playable {
            parts,
            recordings,
            master,
            transports,
            paused: paused.as_deref(),
            selection: PartSelection::All,
        })
    }

    /// Plays, also what further PLAY requests ask for; returns false if the connection ends.
    pub(super) fn play(&mut self, mut next: NextStep) -> Result<bool, ConnectionError> {
        loop {
            let after = match next {
                NextStep::Play(wanted) => self.play_once(*wanted)?,
                NextStep::View => self.view()?,
                NextStep::Read | NextStep::Record => return Ok(true),
            };
            let Some(after) = after else {
                return Ok(false);
            };
            next = after;
        }
    }

    /// Plays one request to its end; returns `None` if the connection has ended.
    fn play_once(&mut self, wanted: PlayRequest) -> Result<Option<NextStep>, ConnectionError> {
        let Some(mut session) = self.session.take() else {
            return Ok(Some(NextStep::Read));
        };
        session.paused = None;
        let mut sent = std::mem::take(&mut session.sent);
        let RtspSession {
            id,
            role: Role::Player { parts },
            transports,
            ..
        } = &session
        else {
            return Ok(Some(NextStep::Read));
        };
        let volumes = wanted.parts.iter().map(|of| {
            let volume = parts[of.number].archive.volume().name();
            tracing::info!(peer = %self.peer, volume, recording = of.recording.number, "playing begins");
            volume
        });
        let volumes: Vec<&str> = volumes.collect();
        let volume = volumes.join("+");
        let (mut tally, terms) = (Tally::default(), wanted.terms);
        let end = self.move_out(parts, (transports, &mut sent), wanted, id, &mut tally);
        self.log_play_end(&volume, &end, tally);
        session.sent = sent;
        self.leave_playing(end?, session, terms)
    }

    fn log_play_end(&self, volume: &str, end: &Result<PlayEnd, ConnectionError>, tally: Tally) {
        let why: &dyn std::fmt::Display = match end {
            Ok(end) => &end.reason(),
            Err(error) => error,
        };
        let Tally {
            packets,
            bytes,
            copied_bytes,
        } = tally;
        match end {
            Err(ConnectionError::Play(error)) if !matches!(error, PlayError::Socket(_)) => {
                tracing::warn!(peer = %self.peer, volume, %error, packets, bytes, copied_bytes, "playing fails");
            }
            _ => {
                tracing::info!(peer = %self.peer, volume, %why, packets, bytes, copied_bytes, "playing ends");
            }
        }
    }

    /// Answers the request that ended playing; returns `None` if the connection has ended.
    fn leave_playing(
        &mut self,
        end: PlayEnd,
        mut session: RtspSession,
        terms: Terms,
    ) -> Result<Option<NextStep>, ConnectionError> {
        match end {
            PlayEnd::Closed => Ok(None),
            PlayEnd::Completed => {
                self.session = Some(session);
                Ok(Some(NextStep::Read))
            }
            PlayEnd::Stopped(request, positions) => {
                let said = answer(Some(&request), StatusCode::Ok)
                    .session(&session.id, self.shared.config.timeout)
                    .done();
                let is_pause = *request.method() == Method::Pause;
                if is_pause {
                    session.paused = Some(positions);
                    self.session = Some(session);
                } else {
                    drop(session);
                }
                self.tell(&said)?;
                Ok(Some(NextStep::Read))
            }
            PlayEnd::Replaced(request, positions, continuations) => {
                // Without a Range, PLAY goes on from there; a presentation that has ended begins anew.
                session.paused = Some(positions).filter(|of| of.iter().any(Option::is_some));
                self.session = Some(session);
                let (said, next) = self.begin_play(&request);
                self.tell(&said)?;
                if matches!(next, NextStep::Play(_) | NextStep::View) {
                    return Ok(Some(next));
                }
                if let Some(wanted) = self.go_on(terms, continuations) {
                    return Ok(Some(NextStep::Play(wanted)));
                }
                // The previous presentation had ended.
                let session = self.session.as_mut();
                let said = session.map(|of| farewell(&of.transports, &mut of.sent));
                self.send_all(&said.unwrap_or_default())?;
                Ok(Some(NextStep::Read))
            }
        }
    }

    fn move_out(
        &mut self,
        parts: &[Part],
        (transports, sent): (&[Option<Transport>], &mut [SentCounts]),
        wanted: PlayRequest,
        id: &str,
        tally: &mut Tally,
    ) -> Result<PlayEnd, ConnectionError> {
        let listen = |part: &Part| part.archive.listen();
        let live = parts.iter().map(listen).collect::<io::Result<Vec<_>>>()?;
        let shared = self.shared;
        let Some(playback) = presentation(shared, parts, wanted)? else {
            return Ok(PlayEnd::Completed);
        };
        let mut out = Outgoing::new(playback, PlayerOutput::new(transports, sent));
        let end = self.send_all_of(&mut out, parts, &live, id);
        *tally = out.output.tally();
        end
    }
}

/// The presentation of a request, with the streams of the session.
fn presentation<'b>(
    shared: &'b Shared,
    parts: &'b [Part],
    wanted: PlayRequest,
) -> Result<Option<Presentation<'b>>, PlayError> {
    let PlayRequest {
        parts: of_parts,
        first_unix_ns,
        mut continuations,
        ..
    } = wanted;
    // A read takes up to a period of the disks. If the first block has been read already, each further one is
    // requested a block's period earlier: playing begins earlier by that, or by the length of the first block if
    // that is shorter.
    let waits = of_parts.iter().map(|of| {
        let stream = &parts[of.number].reserved;
        let period = |of| stream.rate().period_of(of).unwrap_or(Nanos::ZERO);
        let buffer = period(stream.buffer());
        let sooner = of.lasts(first_unix_ns).min(buffer);
        // With longer blocks of the disks the first block may be the last buffer of one.
        let later = period(stream.block()).saturating_sub(buffer);
        let waits = stream.longest_period().saturating_add(later);
        waits.saturating_sub(sooner)
    });
    let at = clock::now().saturating_add(waits.max().unwrap_or(Nanos::ZERO));
    let mut played = Vec::with_capacity(of_parts.len());
    for of in of_parts {
        let Part {
            archive,
            description,
            reserved,
            member,
            estimate,
            first_track,
            ..
        } = &parts[of.number];
        let (buffer, block) = (reserved.buffer().get(), reserved.block().get());
        let recorded = description.rate().unwrap_or(shared.config.rate);
        let demand = PlayerDemand::new(buffer, *estimate, recorded, player_rate_min(block));
        let origin = Origin {
            at,
            media_ns: media_ns(first_unix_ns, of.begun_ns),
        };
        let first_ns = origin.media_ns;
        let client = &shared.client;
        let others = others(shared, parts, &of);
        let (recording, found, manner) = (of.recording, of.found, of.manner);
        let from_ns = found.start.media_ns;
        let playback = Playback::new(reserved, archive, client, recording, found, manner, origin)?;
        let playback = match others {
            Some(others) => playback.going_on(others),
            None => playback,
        };
        let playback = match continuations.get_mut(of.number).and_then(Option::take) {
            Some(continuation) => playback.continuing(continuation, from_ns),
            None => playback,
        };
        played.push(presentation::Part {
            playback: playback.following(demand, Negotiation::new(Arc::clone(member))),
            number: of.number,
            first_track: *first_track,
            tracks: description.tracks().len(),
            begun_ns: of.begun_ns,
            drift: DriftFollower::new(of.drift, first_ns),
        });
    }
    Ok(Presentation::new(played, first_unix_ns))
}

/// The recordings of a volume that are played after the first one; `None` for the master, which is played alone.
fn others<'b>(
    shared: &'b Shared,
    parts: &'b [Part],
    of: &RequestedPart,
) -> Option<FollowingRecordings<'b>> {
    let (first, last) = of.numbers?;
    let (master, part) = (parts.first()?, parts.get(of.number)?);
    Some(FollowingRecordings {
        client: &shared.client,
        description: &part.description,
        master: (&master.archive, master.recording),
        first,
        last,
        sources: &part.sources,
    })
}

/// A factor in the format of headers.
fn factor(of: Scale) -> String {
    format!("{:.3}", of.0 as f64 / 1_000.0)
}

impl From<ArchiveError> for ConnectionError {
    fn from(error: ArchiveError) -> Self {
        Self::Play(PlayError::Archive(error))
    }
}
