//! PLAY: packets go, each when its time has come, until PAUSE, TEARDOWN, silence, or the end of the connection.

mod sending;

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use engine::clock;
use engine::event::EventFd;
use engine::stream::BlockReader;
use rtsp_types::headers::{RANGE, RTP_INFO, SCALE, SPEED};
use rtsp_types::{Method, Response, StatusCode};
use rustix::event::PollFlags;
use rustix::io::Errno;
use sched::units::{Nanos, Time};

use super::answer::{Answer, answer, options};
use super::outgoing::{Full, Outgoing, Sent, Tally, farewell};
use super::parameters::named;
use super::play_request::{PlayRequest, Playable, RequestedPart, Terms};
use super::setup::played_at_least;
use super::target::strange;
use super::unwanted::Unwanted;
use super::{Asked, Connection, Ended, NextStep, Part, Role, RtspSession};
use crate::archive::ArchiveError;
use crate::archive::block::Kind;
use crate::archive::start::Place;
use crate::play::presentation::{self, Following, Presentation, media_ns};
use crate::play::{Continuation, Origin, Others, PlayError, Playback, Upcoming};
use crate::rtsp::input::Next;
use crate::rtsp::poll::Wait;
use crate::rtsp::reports::frame;
use crate::rtsp::server::Shared;
use crate::rtsp::transport::Transport;
use crate::session::Scale;
use crate::session::demand::PlayerDemand;
use crate::session::negotiation::Negotiation;

/// What a request while playing leads to.
enum After {
    Goes,
    /// PAUSE or TEARDOWN, and where each of what is played was.
    Ends(Box<Asked>, Vec<Option<Place>>),
    /// PLAY, where each of what is played was, and how it would have gone on.
    Again(Box<Asked>, Vec<Option<Place>>, Vec<Option<Continuation>>),
    Closed,
}

impl After {
    /// Why nothing is played any more, for the log.
    fn why(&self) -> &'static str {
        match self {
            Self::Goes => "all of it was sent",
            Self::Ends(request, _) if *request.method() == Method::Pause => "it was paused",
            Self::Ends(..) => "it was torn down",
            Self::Again(..) => "something else is asked for",
            Self::Closed => "the connection or the server ends",
        }
    }
}

impl Connection<'_> {
    /// Whether it can be played from there, and that it is.
    pub(super) fn begin_play(&mut self, request: &Asked) -> (Response<Vec<u8>>, NextStep) {
        let Some(RtspSession {
            id,
            role: Role::Player { parts, .. },
            ..
        }) = &self.session
        else {
            let said = self.in_session(request, StatusCode::MethodNotValidInThisState);
            return (said.done(), NextStep::Read);
        };
        let said = |status| answer(Some(request), status).session(id, self.shared.config.timeout);
        if let Some(why) = strange(request) {
            return (said(StatusCode::NotFound).because(why), NextStep::Read);
        }
        let of = match self.playable() {
            Ok(of) => of,
            Err((status, why)) => return (said(status).because(why), NextStep::Read),
        };
        let wanted = self
            .terms(request, &of)
            .and_then(|terms| self.wanted(terms, &of));
        let mut wanted = match wanted {
            Ok(wanted) => wanted,
            Err(Unwanted::Range(why)) => {
                return (said(StatusCode::InvalidRange).because(why), NextStep::Read);
            }
            Err(Unwanted::Archive(error)) => {
                let said = said(StatusCode::InternalServerError);
                return (said.because(error.to_string()), NextStep::Read);
            }
        };
        let speed = self.speed(wanted.terms.speed, parts);
        wanted.plays_at(speed);
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

    /// What was played goes on as it was, where what was asked for instead cannot be; `None`: nor can that.
    fn go_on(
        &self,
        terms: Terms,
        continuations: Vec<Option<Continuation>>,
    ) -> Option<Box<PlayRequest>> {
        let mut of = self.playable().ok()?;
        of.is_as_it_was = true;
        // Without it that would be the beginning.
        of.paused?;
        let mut wanted = self.wanted(terms.going_on(), &of).ok()?;
        wanted.plays_at(terms.speed);
        wanted.continuations = continuations;
        Some(Box::new(wanted))
    }

    /// What of the session can be played now.
    fn playable(&self) -> Result<Playable<'_>, (StatusCode, String)> {
        let Some(RtspSession {
            role: Role::Player { parts, is_live },
            paused,
            transports,
            ..
        }) = &self.session
        else {
            let why = "nothing is set up".to_owned();
            return Err((StatusCode::MethodNotValidInThisState, why));
        };
        let of_part = |part: &Part| part.archive.recording(Some(part.recording.number));
        let Some(master) = parts.first().and_then(of_part) else {
            let why = match parts.first() {
                Some(Part {
                    archive, recording, ..
                }) => format!(
                    "recording {} in volume {:?} is not there any more",
                    recording.number,
                    archive.volume().name()
                ),
                None => "nothing is set up".to_owned(),
            };
            return Err((StatusCode::NotFound, why));
        };
        // What of the others has been deleted or overwritten is not played any more.
        let recordings = self.recordings(parts, &master);
        let recordings =
            recordings.map_err(|error| (StatusCode::InternalServerError, error.to_string()))?;
        Ok(Playable {
            parts,
            recordings,
            master,
            transports,
            paused: paused.as_deref(),
            is_as_it_was: false,
            is_live: *is_live,
        })
    }

    /// Plays, and what is asked for instead while it does; whether the connection goes on.
    pub(super) fn play(&mut self, wanted: Box<PlayRequest>) -> Result<bool, Ended> {
        let mut next = Some(wanted);
        while let Some(wanted) = next {
            match self.play_once(*wanted)? {
                None => return Ok(false),
                Some(NextStep::Play(again)) => next = Some(again),
                Some(NextStep::Read | NextStep::Record) => next = None,
            }
        }
        Ok(true)
    }

    /// Plays; what follows, `None`: the connection has ended.
    fn play_once(&mut self, wanted: PlayRequest) -> Result<Option<NextStep>, Ended> {
        let Some(mut session) = self.session.take() else {
            return Ok(Some(NextStep::Read));
        };
        session.paused = None;
        let mut sent = std::mem::take(&mut session.sent);
        let RtspSession {
            id,
            role: Role::Player { parts, .. },
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
        let (mut tally, terms) = (Tally::default(), wanted.terms);
        let after = self.move_out(parts, (transports, &mut sent), wanted, id, &mut tally);
        let why: &dyn std::fmt::Display = match &after {
            Ok(after) => &after.why(),
            Err(error) => error,
        };
        let Tally {
            packets,
            bytes,
            copied_bytes,
        } = tally;
        let volume = volumes.join("+");
        match &after {
            Err(Ended::Play(error)) if !matches!(error, PlayError::Socket(_)) => {
                tracing::warn!(peer = %self.peer, volume, %error, packets, bytes, copied_bytes, "playing fails");
            }
            _ => {
                tracing::info!(peer = %self.peer, volume, %why, packets, bytes, copied_bytes, "playing ends");
            }
        }
        match after? {
            After::Closed => Ok(None),
            After::Goes => {
                session.sent = sent;
                self.session = Some(session);
                Ok(Some(NextStep::Read))
            }
            After::Ends(request, positions) => {
                let said = answer(Some(&request), StatusCode::Ok)
                    .session(id, self.shared.config.timeout)
                    .done();
                let is_pause = *request.method() == Method::Pause;
                if is_pause {
                    (session.paused, session.sent) = (Some(positions), sent);
                    self.session = Some(session);
                } else {
                    drop(session);
                }
                self.tell(&said)?;
                Ok(Some(NextStep::Read))
            }
            After::Again(request, positions, continuations) => {
                // Without a Range it goes on from there; what has ended begins anew.
                session.paused = Some(positions).filter(|of| of.iter().any(Option::is_some));
                session.sent = sent;
                self.session = Some(session);
                let (said, then) = self.begin_play(&request);
                self.tell(&said)?;
                if matches!(then, NextStep::Play(_)) {
                    return Ok(Some(then));
                }
                if let Some(wanted) = self.go_on(terms, continuations) {
                    return Ok(Some(NextStep::Play(wanted)));
                }
                // It had come to its end, and that was all.
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
        (transports, sent): (&[Option<Transport>], &mut [Sent]),
        wanted: PlayRequest,
        id: &str,
        tally: &mut Tally,
    ) -> Result<After, Ended> {
        let listen = |part: &Part| part.archive.listen();
        let live = parts.iter().map(listen).collect::<io::Result<Vec<_>>>()?;
        let shared = self.shared;
        let Some(playback) = presentation(shared, parts, wanted)? else {
            return Ok(After::Goes);
        };
        let mut out = Outgoing::new(playback, transports, sent);
        let after = self.send_all_of(&mut out, parts, &live, id);
        *tally = out.tally();
        after
    }
}

/// What is wanted, of what is reserved.
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
    // What is read is there after a period of the disks. The first block is there already, so that each one behind it is
    // asked for a block's period earlier than if it were not: so much earlier playing begins, or what that block lasts.
    let waits = of_parts.iter().map(|of| {
        let stream = &parts[of.number].reserved;
        let period = |of| stream.rate().period_of(of).unwrap_or(Nanos::ZERO);
        let buffer = period(stream.buffer());
        let sooner = of.lasts(first_unix_ns).min(buffer);
        // Of a longer block of the disks it may have no more than its last one to go on with.
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
            is_guess,
            first_track,
            ..
        } = &parts[of.number];
        let (buffer, block) = (reserved.buffer().get(), reserved.block().get());
        let recorded = description.rate().unwrap_or(shared.config.rate);
        let demand = PlayerDemand::new(buffer, *is_guess, recorded, played_at_least(block));
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
            drift: Following::new(of.drift, first_ns),
        });
    }
    Ok(Presentation::new(played, first_unix_ns))
}

/// What of a volume is played behind what is wanted of it: the master is played alone.
fn others<'b>(shared: &'b Shared, parts: &'b [Part], of: &RequestedPart) -> Option<Others<'b>> {
    let (first, last) = of.numbers?;
    let (master, part) = (parts.first()?, parts.get(of.number)?);
    Some(Others {
        client: &shared.client,
        description: &part.description,
        master: (&master.archive, master.recording),
        first,
        last,
        sources: &part.sources,
    })
}

/// A factor as headers have it.
fn factor(of: Scale) -> String {
    format!("{:.3}", of.0 as f64 / 1_000.0)
}

impl From<ArchiveError> for Ended {
    fn from(error: ArchiveError) -> Self {
        Self::Play(PlayError::Archive(error))
    }
}
