//! Live play: packets are sent as they arrive, from memory, without a reservation.
//!
//! A session that names a live stream becomes a *viewer*. PAUSE, and a PLAY of anything but now, need the disks: the
//! viewer becomes a player then, or is refused with the reason and goes on as it was. PLAY of `npt=now-` makes it a
//! viewer again. Several streams are played together as they arrive; sender reports tell how their times relate.

mod sending;

use std::sync::Arc;
use std::time::Duration;

use rtsp_types::headers::{NptRange, NptTime, RANGE, Range, SCALE, Scale as ScaleHeader};
use rtsp_types::{Method, Response, StatusCode};

use super::answer::{Answer, answer};
use super::play_request::speed;
use super::setup::host_refusal;
use super::target::{PlayableRecording, Target, missing_volume, target, unknown_part, unopened};
use super::unwanted::{PlayRefusal, range_error, seconds};
use super::{ClientRequest, Connection, ConnectionError, NextStep, Part, Role, RtspSession, range};
use crate::archive::archives::OpenError;
use crate::archive::start::{self, Place};
use crate::live::LiveFeed;
use crate::rtsp::access::AccessRight;
use crate::session::registry::{Session, SessionSubject, SessionUse};
pub(super) use sending::ViewProgress;
use sending::{ViewEnd, Viewing};

/// A camera that is pulled on demand sends its first key frame within this time, or players are refused.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// A live stream that a session plays.
pub(super) struct ViewedStream {
    pub(super) feed: Arc<LiveFeed>,
    pub(super) member: Arc<Session>,
    /// The number of its first track in the session.
    pub(super) first_track: usize,
}

/// The wish of a PLAY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    /// Packets from now on, as they arrive.
    Now,
    /// Anything else.
    Disks,
}

/// The wish of a PLAY of a live stream. Players request it from 0 as well, because its description has no length.
fn wish(request: &ClientRequest) -> Result<Wish, PlayRefusal> {
    let is_now = match range::requested(request)? {
        None => true,
        Some(Range::Npt(NptRange::From(NptTime::Now))) => true,
        Some(Range::Npt(of)) => range::npt(of) == (Some(0), None),
        Some(_) => false,
    };
    speed(request)?;
    let scale = request.typed_header::<ScaleHeader>();
    let scale = scale.map_err(|_| range_error("invalid Scale header"))?;
    let is_unscaled = scale.is_none_or(|of| f64::from(of) == 1.0);
    Ok(match is_now && is_unscaled {
        true => Wish::Now,
        false => Wish::Disks,
    })
}

/// True if a PLAY requests `npt=now-` at the original scale.
pub(super) fn is_from_now(request: &ClientRequest) -> bool {
    let range = range::requested(request);
    let is_now = matches!(range, Ok(Some(Range::Npt(NptRange::From(NptTime::Now)))));
    is_now && matches!(wish(request), Ok(Wish::Now))
}

impl Connection<'_> {
    /// The live streams that a request names, in order; `None` if it names recordings on the disks.
    pub(super) fn live_streams(
        &self,
        request: &ClientRequest,
    ) -> Result<Option<Vec<Arc<LiveFeed>>>, Answer> {
        let target = target(request).ok_or_else(|| missing_volume(request))?;
        if unknown_part(request).is_some() {
            return Ok(None);
        }
        let right = match target.is_live {
            true => AccessRight::Live,
            false => AccessRight::Recordings,
        };
        for volume in &target.volumes {
            self.may(request, right, volume)?;
        }
        let streams = self.shared.archives.live();
        let wanted = |name: &String| streams.want(name, COMES_WITHIN);
        let feeds: Option<Vec<_>> = target.volumes.iter().map(wanted).collect();
        let Some(feeds) = feeds else {
            let mut names = target.volumes.iter();
            // A camera that is pulled on demand, and has sent nothing.
            if let Some(name) =
                names.find(|name| streams.get(name).is_none() && streams.is_known(name))
            {
                let why = format!(
                    "the camera of stream {name:?} sends nothing; `clockwise source show {name}` has the reason"
                );
                return Err(answer(Some(request), StatusCode::NotFound).reason(why));
            }
            return match target.is_live {
                true => Err(self.no_stream(request, &target)),
                false => Ok(None),
            };
        };
        let is_live = target.is_live || feeds.iter().all(|feed| self.is_live_alone(feed, &target));
        if !is_live {
            return Ok(None);
        }
        if let Some(feed) = feeds.iter().find(|feed| !feed.has_picture()) {
            let why = format!(
                "no key frame of stream {:?} has arrived yet: try again",
                feed.name()
            );
            return Err(answer(Some(request), StatusCode::NotFound).reason(why));
        }
        Ok(Some(feeds))
    }

    /// True if nothing of a stream is on the disks, and the path does not name another recording.
    fn is_live_alone(&self, feed: &LiveFeed, target: &Target) -> bool {
        let Some(number) = feed.recording() else {
            return target.number.is_none();
        };
        if target.number.is_some_and(|of| of != number) {
            return false;
        }
        let archive = self.shared.archives.open(feed.name(), None);
        archive.is_ok_and(|of| of.recording(Some(number)).is_none())
    }

    /// The refusal if one of the named streams does not arrive.
    fn no_stream(&self, request: &ClientRequest, target: &Target) -> Answer {
        let streams = self.shared.archives.live();
        let missing = |name: &&String| streams.get(name).is_none();
        let name = target.volumes.iter().find(missing);
        let name = name.map_or("", String::as_str);
        match self.shared.archives.open(name, None) {
            Err(error @ OpenError::Pool(_)) => unopened(request, &error),
            _ => answer(Some(request), StatusCode::NotFound)
                .reason(format!("volume {name:?} is not being recorded")),
        }
    }

    /// DESCRIBE of live streams.
    pub(super) fn describe_live(&self, request: &ClientRequest, feeds: &[Arc<LiveFeed>]) -> Answer {
        let [master, others @ ..] = feeds else {
            return answer(Some(request), StatusCode::NotFound);
        };
        let others = others.iter().map(|feed| feed.description());
        let text = master.description().for_players_with(others, 0, None);
        self.described(request, text)
    }

    /// The role of a session that plays live streams, and the number of its tracks.
    pub(super) fn viewer(
        &self,
        request: &ClientRequest,
        feeds: Vec<Arc<LiveFeed>>,
    ) -> Result<(Role, usize), Answer> {
        let mut tracks = 0;
        let mut streams = Vec::with_capacity(feeds.len());
        for feed in feeds {
            let about = SessionSubject {
                who: self.peer.to_string(),
                does: SessionUse::Watches,
                volume: feed.name().to_owned(),
                recording: feed.recording().unwrap_or(0),
            };
            let member = self.shared.archives.registry().join_live(about);
            let member = member.map_err(|error| host_refusal(request, &error))?;
            let first_track = tracks;
            tracks += feed.description().tracks().len();
            streams.push(ViewedStream {
                feed,
                member,
                first_track,
            });
        }
        Ok((Role::Viewer { streams }, tracks))
    }

    /// Answers PLAY of a session that plays live streams.
    pub(super) fn begin_view(&mut self, request: &ClientRequest) -> (Response<Vec<u8>>, NextStep) {
        let said = self.in_session(request, StatusCode::Ok);
        if let Some(why) = unknown_part(request) {
            let said = self.in_session(request, StatusCode::NotFound);
            return (said.reason(why).done(), NextStep::Read);
        }
        match wish(request) {
            Err(PlayRefusal::Range(why)) => {
                let said = self.in_session(request, StatusCode::InvalidRange);
                (said.reason(why).done(), NextStep::Read)
            }
            Err(PlayRefusal::Archive(error)) => {
                let said = self.in_session(request, StatusCode::InternalServerError);
                (said.reason(error.to_string()).done(), NextStep::Read)
            }
            Ok(Wish::Now) => {
                let said = said.header(RANGE, self.range_now());
                let said = match request.header(&SCALE) {
                    Some(_) => said.header(SCALE, "1.000"),
                    None => said,
                };
                (said.done(), NextStep::View)
            }
            Ok(Wish::Disks) => match self.become_player(request) {
                Ok(()) => self.begin_play(request),
                Err(refused) => (refused.log(self.peer, request).done(), NextStep::Read),
            },
        }
    }

    /// The `Range` of a reply to PLAY of what arrives now.
    fn range_now(&self) -> String {
        let newest_ns = match self.session.as_ref().map(|session| &session.role) {
            Some(Role::Viewer { streams }) => streams.first().map(|of| of.feed.newest_ns()),
            _ => None,
        };
        format!("npt={}-", seconds(newest_ns.unwrap_or(0)))
    }

    /// Makes the session of live streams one that plays their recordings from the disks, with reservations. If it is
    /// refused, the session stays as it is.
    fn become_player(&mut self, request: &ClientRequest) -> Result<(), Answer> {
        let Some(RtspSession {
            role: Role::Viewer { streams },
            ..
        }) = &self.session
        else {
            return Ok(());
        };
        let mut parts = Vec::with_capacity(streams.len());
        for stream in streams {
            parts.push(self.part_of(request, stream)?);
        }
        if let Some(session) = &mut self.session {
            session.role = Role::Player { parts };
        }
        Ok(())
    }

    /// A reservation for the recording of a live stream.
    fn part_of(&self, request: &ClientRequest, stream: &ViewedStream) -> Result<Part, Answer> {
        let feed = &stream.feed;
        self.may(request, AccessRight::Recordings, feed.name())?;
        let refused = |why: &str| {
            let said = self.in_session(request, StatusCode::InvalidRange);
            said.reason(format!("stream {:?} {why}", feed.name()))
        };
        let Some(number) = feed.recording() else {
            return Err(refused(
                "is live only: it cannot be paused or played from an earlier time",
            ));
        };
        let archive = self.shared.archives.open(feed.name(), None);
        let archive = archive.map_err(|error| unopened(request, &error))?;
        let Some(recording) = archive.recording(Some(number)) else {
            return Err(refused("has nothing on the disks yet: try again later"));
        };
        let described = self.shared.archives.describe(&archive, recording);
        let described = described.map_err(|error| unopened(request, &error))?;
        let description = described.description;
        let recorded = PlayableRecording {
            archive,
            recording,
            description: description.unwrap_or_else(|| feed.description().clone()),
        };
        self.part(request, recorded, stream.first_track)
    }

    /// Makes a session that plays recordings one of their live streams, if all of them arrive now. Gives back its
    /// reservations.
    pub(super) fn become_viewer(&mut self, request: &ClientRequest) -> Result<bool, Answer> {
        let Some(RtspSession {
            role: Role::Player { parts },
            ..
        }) = &self.session
        else {
            return Ok(false);
        };
        let streams = self.shared.archives.live();
        let feeds = parts.iter().map(|part| {
            let feed = streams.get(part.archive.volume().name())?;
            let is_it = feed.recording() == Some(part.recording.number) && feed.has_picture();
            is_it.then_some(feed)
        });
        let Some(feeds) = feeds.collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        let (role, _) = self.viewer(request, feeds)?;
        if let Some(session) = &mut self.session {
            session.role = role;
            session.paused = None;
        }
        Ok(true)
    }

    /// Plays live streams until the session does something else; `None` if the connection has ended.
    pub(super) fn view(&mut self) -> Result<Option<NextStep>, ConnectionError> {
        let Some(mut session) = self.session.take() else {
            return Ok(Some(NextStep::Read));
        };
        let mut sent = std::mem::take(&mut session.sent);
        let RtspSession {
            id,
            role: Role::Viewer { streams },
            transports,
            ..
        } = &session
        else {
            return Ok(Some(NextStep::Read));
        };
        let names: Vec<&str> = streams.iter().map(|of| of.feed.name()).collect();
        let names = names.join("+");
        tracing::info!(peer = %self.peer, stream = names, "live play begins");
        let progress = std::mem::take(&mut self.view_progress);
        let mut viewing = Viewing::new(streams, transports, &mut sent, progress)?;
        let (id, streams) = (id.clone(), &names);
        let end = self.send_live(&mut viewing, &id);
        let (tally, reached_ns) = (viewing.tally(), viewing.reached_ns());
        let progress = viewing.into_progress();
        session.sent = sent;
        self.session = Some(session);
        let why: &dyn std::fmt::Display = match &end {
            Ok(end) => &end.reason(),
            Err(error) => error,
        };
        tracing::info!(peer = %self.peer, stream = streams, %why, packets = tally.packets, bytes = tally.bytes, copied_bytes = tally.copied_bytes, "live play ends");
        match end? {
            ViewEnd::Closed => Ok(None),
            ViewEnd::Completed => Ok(Some(NextStep::Read)),
            ViewEnd::Requested(request) => {
                let next = self.leave_view(&request, &reached_ns)?;
                if matches!(next, NextStep::View) {
                    // The request was refused: nothing is sent twice, and nothing is missing.
                    self.view_progress = progress;
                }
                Ok(Some(next))
            }
        }
    }

    /// Answers the request that ended live play.
    fn leave_view(
        &mut self,
        request: &ClientRequest,
        reached_ns: &[Option<u64>],
    ) -> Result<NextStep, ConnectionError> {
        match request.method() {
            Method::Teardown => {
                let said = self.in_session(request, StatusCode::Ok);
                self.session = None;
                self.tell(&said.done())?;
                Ok(NextStep::Read)
            }
            Method::Pause => {
                if self.is_live_only() {
                    self.tell(&self.in_session(request, StatusCode::Ok).done())?;
                    return Ok(NextStep::Read);
                }
                match self.become_player(request) {
                    Ok(()) => {
                        self.pause_at(reached_ns)?;
                        self.tell(&self.in_session(request, StatusCode::Ok).done())?;
                        Ok(NextStep::Read)
                    }
                    Err(refused) => {
                        self.tell(&refused.log(self.peer, request).done())?;
                        Ok(NextStep::View)
                    }
                }
            }
            _ => {
                let (said, next) = self.begin_view(request);
                self.tell(&said)?;
                if matches!(next, NextStep::Read) {
                    // It was refused: live play goes on.
                    let is_viewer =
                        self.is_viewer() || self.become_viewer(request).is_ok_and(|is| is);
                    if is_viewer {
                        return Ok(NextStep::View);
                    }
                }
                Ok(next)
            }
        }
    }

    fn is_viewer(&self) -> bool {
        let role = self.session.as_ref().map(|session| &session.role);
        matches!(role, Some(Role::Viewer { .. }))
    }

    /// True if a stream of the session is not recorded.
    fn is_live_only(&self) -> bool {
        let role = self.session.as_ref().map(|session| &session.role);
        let Some(Role::Viewer { streams }) = role else {
            return false;
        };
        streams.iter().any(|of| of.feed.recording().is_none())
    }

    /// Notes for each part of a player where it was paused: at the last key frame on the disks before these times.
    fn pause_at(&mut self, reached_ns: &[Option<u64>]) -> Result<(), ConnectionError> {
        let Some(RtspSession {
            role: Role::Player { parts },
            ..
        }) = &self.session
        else {
            return Ok(());
        };
        let mut places = Vec::with_capacity(parts.len());
        for (part, reached_ns) in parts.iter().zip(reached_ns) {
            let video = usize::from(part.description.video_track());
            let (archive, client) = (&part.archive, &self.shared.client);
            let (recording, stream) = (&part.recording, Some(&*part.reserved));
            let reached_ns = reached_ns.unwrap_or(0);
            let found = start::start_at(archive, client, recording, reached_ns, video, stream)?;
            places.push(Some(Place {
                recording: recording.number,
                start: found.start,
            }));
        }
        if let Some(session) = &mut self.session {
            session.paused = Some(places);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rtsp_types::Version;

    use super::*;

    #[test]
    fn live_play_begins_now_or_at_zero() {
        let of = |headers: &[(&str, &str)]| {
            let mut request = rtsp_types::Request::builder(Method::Play, Version::V1_0);
            for (name, value) in headers {
                let name = rtsp_types::HeaderName::try_from(*name).unwrap();
                request = request.header(name, *value);
            }
            wish(&request.build(Vec::new())).ok()
        };
        for now in [
            &[][..],
            &[("Range", "npt=now-")],
            &[("Range", "npt=0.000-")],
            &[("Range", "npt=0-"), ("Scale", "1.0")],
        ] {
            assert_eq!(of(now), Some(Wish::Now), "{now:?}");
        }
        for disks in [
            &[("Range", "npt=5-")][..],
            &[("Range", "npt=0-10")],
            &[("Range", "clock=20261128T140000Z-")],
            &[("Scale", "-1")],
        ] {
            assert_eq!(of(disks), Some(Wish::Disks), "{disks:?}");
        }
        assert_eq!(of(&[("Range", "npt=x")]), None);
        assert_eq!(of(&[("Scale", "fast")]), None);
    }
}
