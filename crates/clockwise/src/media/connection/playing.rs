//! PLAY: packets go, each when its time has come, until PAUSE, TEARDOWN, silence, or the end of the connection.

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
use super::outgoing::{Full, Outgoing, Tally};
use super::parameters::named;
use super::setup::played_at_least;
use super::target::strange;
use super::wanted::{Playable, Unwanted, Wanted, WantedPart};
use super::{Asked, Connection, Ended, Part, Role, Session, Then};
use crate::media::archive::ArchiveError;
use crate::media::block::Kind;
use crate::media::demand::PlayerDemand;
use crate::media::input::Next;
use crate::media::negotiation::Negotiation;
use crate::media::play::{Origin, Others, PlayError, Playback, Upcoming};
use crate::media::poll::Wait;
use crate::media::presentation::{self, Following, Presentation, media_ns};
use crate::media::reports::frame;
use crate::media::server::Shared;
use crate::media::start::Place;
use crate::media::transport::Transport;
use crate::media::trick::Permille;

/// Packets that are sent before requests have their turn.
const AT_A_TIME: usize = 64;

/// Players that sort packets by their numbers keep the last ones for a while, and drop them if they are told of the end
/// then.
const FAREWELL_AFTER: Nanos = Nanos::from_millis(500);

/// What a playback wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wakes {
    Socket,
    Writable,
    Stop,
    /// Somebody has ended the session.
    Told,
    Disks,
    Live,
    /// Somebody who plays has said something by UDP.
    Heard(usize),
}

/// What a request while playing leads to.
enum After {
    Goes,
    /// PAUSE or TEARDOWN, and where each of what is played was.
    Ends(Box<Asked>, Vec<Option<Place>>),
    Again(Box<Asked>),
    Closed,
}

impl After {
    /// Why nothing is played any more, for the log.
    fn why(&self) -> &'static str {
        match self {
            Self::Goes => "all of it was sent",
            Self::Ends(request, _) if *request.method() == Method::Pause => "it was paused",
            Self::Ends(..) => "it was torn down",
            Self::Again(_) => "something else is asked for",
            Self::Closed => "the connection or the server ends",
        }
    }
}

impl Connection<'_> {
    /// Whether it can be played from there, and that it is.
    pub(super) fn begin_play(&mut self, request: &Asked) -> (Response<Vec<u8>>, Then) {
        let Some(Session {
            id,
            role: Role::Player { parts, is_live },
            paused,
            transports,
        }) = &self.session
        else {
            let said = self.in_session(request, StatusCode::MethodNotValidInThisState);
            return (said.done(), Then::Next);
        };
        let said = |status| answer(Some(request), status).session(id, self.shared.config.timeout);
        if let Some(why) = strange(request) {
            return (said(StatusCode::NotFound).because(why), Then::Next);
        }
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
            return (said(StatusCode::NotFound).because(why), Then::Next);
        };
        // What of the others has been deleted or overwritten is not played any more.
        let recordings = match self.recordings(parts, &master) {
            Ok(recordings) => recordings,
            Err(error) => {
                let said = said(StatusCode::InternalServerError);
                return (said.because(error.to_string()), Then::Next);
            }
        };
        let of = Playable {
            parts,
            recordings,
            master,
            transports,
            paused: paused.as_deref(),
            is_live: *is_live,
        };
        let mut wanted = match self.wanted(request, &of) {
            Ok(wanted) => wanted,
            Err(Unwanted::Range(why)) => {
                return (said(StatusCode::InvalidRange).because(why), Then::Next);
            }
            Err(Unwanted::Archive(error)) => {
                let said = said(StatusCode::InternalServerError);
                return (said.because(error.to_string()), Then::Next);
            }
        };
        let speed = self.speed(request, parts);
        for part in &mut wanted.parts {
            part.manner.speed = speed.unwrap_or(Permille::ONE);
        }
        let mut said = said(StatusCode::Ok).header(RANGE, wanted.range());
        if let Some(info) = self.rtp_info(request, parts, &mut wanted) {
            said = said.header(RTP_INFO, info);
        }
        if request.header(&SCALE).is_some() {
            said = said.header(SCALE, factor(wanted.scale));
        }
        if let Some(speed) = speed {
            said = said.header(SPEED, factor(speed));
        }
        (said.done(), Then::Play(Box::new(wanted)))
    }

    /// Plays, and what is asked for instead while it does; whether the connection goes on.
    pub(super) fn play(&mut self, wanted: Box<Wanted>) -> Result<bool, Ended> {
        let mut next = Some(wanted);
        while let Some(wanted) = next {
            match self.play_once(*wanted)? {
                None => return Ok(false),
                Some(Then::Play(again)) => next = Some(again),
                Some(Then::Next | Then::Record) => next = None,
            }
        }
        Ok(true)
    }

    /// Plays; what follows, `None`: the connection has ended.
    fn play_once(&mut self, wanted: Wanted) -> Result<Option<Then>, Ended> {
        let Some(mut session) = self.session.take() else {
            return Ok(Some(Then::Next));
        };
        session.paused = None;
        let Session {
            id,
            role: Role::Player { parts, .. },
            transports,
            ..
        } = &session
        else {
            return Ok(Some(Then::Next));
        };
        let volumes = wanted.parts.iter().map(|of| {
            let volume = parts[of.number].archive.volume().name();
            tracing::info!(peer = %self.peer, volume, recording = of.recording.number, "playing begins");
            volume
        });
        let volumes: Vec<&str> = volumes.collect();
        let mut tally = Tally::default();
        let after = self.move_out(parts, transports, wanted, id, &mut tally);
        let why: &dyn std::fmt::Display = match &after {
            Ok(after) => &after.why(),
            Err(error) => error,
        };
        let Tally {
            packets,
            bytes,
            copied_bytes,
        } = tally;
        tracing::info!(peer = %self.peer, volume = volumes.join("+"), %why, packets, bytes, copied_bytes, "playing ends");
        match after? {
            After::Closed => Ok(None),
            After::Goes => {
                self.session = Some(session);
                Ok(Some(Then::Next))
            }
            After::Ends(request, positions) => {
                let said = answer(Some(&request), StatusCode::Ok)
                    .session(id, self.shared.config.timeout)
                    .done();
                let is_pause = *request.method() == Method::Pause;
                if is_pause {
                    session.paused = Some(positions);
                    self.session = Some(session);
                } else {
                    drop(session);
                }
                self.tell(&said)?;
                Ok(Some(Then::Next))
            }
            After::Again(request) => {
                self.session = Some(session);
                let (said, then) = self.begin_play(&request);
                self.tell(&said)?;
                Ok(Some(then))
            }
        }
    }

    fn move_out(
        &mut self,
        parts: &[Part],
        transports: &[Option<Transport>],
        wanted: Wanted,
        id: &str,
        tally: &mut Tally,
    ) -> Result<After, Ended> {
        let listen = |part: &Part| part.archive.listen();
        let live = parts.iter().map(listen).collect::<io::Result<Vec<_>>>()?;
        let shared = self.shared;
        let Some(playback) = presentation(shared, parts, wanted)? else {
            return Ok(After::Goes);
        };
        let mut out = Outgoing::new(playback, transports);
        let after = self.send_all_of(&mut out, parts, &live, id);
        *tally = out.tally();
        after
    }

    /// Sends until all has gone, or something else is to be done.
    fn send_all_of(
        &mut self,
        out: &mut Outgoing<'_>,
        parts: &[Part],
        live: &[Arc<EventFd>],
        id: &str,
    ) -> Result<After, Ended> {
        // What has come with PLAY has been read already.
        let mut is_asked = true;
        loop {
            if is_asked && !out.has_answers_enough() {
                match self.asked_while_playing(out, parts, id)? {
                    After::Goes => is_asked = out.has_answers_enough(),
                    other => return self.leave(out, other, parts.len(), id),
                }
            }
            if clock::now() >= self.heard.saturating_add(self.timeout()) {
                return Err(Ended::Silent(self.timeout()));
            }
            while let Some(said) = out.changes.answered() {
                out.say(said.session(id, self.shared.config.timeout))?;
            }
            let until = match self.send_due(out) {
                Err(error @ Ended::Play(PlayError::Grown(_))) => {
                    out.farewell();
                    // As far as it is taken; it is closed in any case.
                    let _ = self.flush(out);
                    return Err(error);
                }
                until => until?,
            };
            let Some(until) = until else {
                // All of it has gone: what comes next is for the session.
                out.settle_changes(id, self.shared.config.timeout)?;
                out.farewell();
                self.flush(out)?;
                return Ok(After::Goes);
            };
            // What was asked before the answers to what is older had gone.
            let until = match is_asked && !out.has_answers_enough() {
                true => clock::now(),
                false => until,
            };
            let ready = self.sleep_out(out, parts, live, until)?;
            if ready.contains(&Wakes::Stop) {
                return Ok(After::Closed);
            }
            if ready.contains(&Wakes::Told) {
                out.farewell();
                self.flush(out)?;
                return Ok(After::Closed);
            }
            if ready.contains(&Wakes::Disks) {
                for reader in out.playback.readers() {
                    reader.drain();
                }
            }
            if ready.contains(&Wakes::Live) {
                for live in live {
                    live.drain();
                }
            }
            if ready.contains(&Wakes::Writable) {
                out.full = None;
            }
            for of in &ready {
                if let Wakes::Heard(track) = of {
                    self.hear(out.transports, *track);
                }
            }
            if ready.contains(&Wakes::Socket) {
                match self.receive(4_096)? {
                    Some(0) => return self.leave(out, After::Closed, parts.len(), id),
                    came => is_asked |= came.is_some(),
                }
            }
        }
    }

    /// Nothing more is played: what was asked for before is answered, and what has begun to go has gone.
    fn leave(
        &mut self,
        out: &mut Outgoing<'_>,
        after: After,
        parts: usize,
        id: &str,
    ) -> Result<After, Ended> {
        out.settle_changes(id, self.shared.config.timeout)?;
        self.flush(out)?;
        Ok(match after {
            After::Ends(request, _) => After::Ends(request, out.playback.positions(parts)),
            after => after,
        })
    }

    /// Sends what is due; until when to sleep then, which is for ever for `Time::MAX`. `None`: nothing more is to be
    /// sent.
    fn send_due(&mut self, out: &mut Outgoing<'_>) -> Result<Option<Time>, Ended> {
        for _ in 0..AT_A_TIME {
            if out.full.is_some() {
                // Blocks that come meanwhile are taken in all the same: nobody may sleep before that.
                out.playback.read_ahead()?;
                return Ok(Some(Time::MAX));
            }
            if out.gone == 0 && !out.between.is_empty() && !self.send_between(out)? {
                return Ok(Some(Time::MAX));
            }
            match out.playback.advance(out.gone > 0)? {
                Upcoming::Nothing => {
                    let now = clock::now();
                    let over = *out.over.get_or_insert(now.saturating_add(FAREWELL_AFTER));
                    return Ok((now < over).then_some(over));
                }
                Upcoming::Unread => return Ok(Some(Time::MAX)),
                Upcoming::Packet { due, track, kind } => {
                    let is_played =
                        kind == Kind::Rtp && out.transports.get(track).is_some_and(Option::is_some);
                    if !is_played {
                        out.playback.done();
                        continue;
                    }
                    if clock::now() < due {
                        return Ok(Some(due));
                    }
                    out.report(track);
                    if out.gone == 0 && !out.between.is_empty() {
                        continue;
                    }
                    self.send_packet(out, track)?;
                }
            }
        }
        // Others have their turn, and then it goes on.
        Ok(Some(clock::now()))
    }

    fn send_packet(&mut self, out: &mut Outgoing<'_>, track: usize) -> Result<(), Ended> {
        let len = out.playback.packet_len();
        let (sent, full) = match &out.transports[track] {
            Some(Transport::Interleaved { rtp, .. }) => {
                let frame = frame(*rtp, len);
                let link = &mut self.link;
                let sent = out
                    .playback
                    .send(|parts| link.writev(parts), &frame, out.gone)?;
                (sent, Full::Connection)
            }
            Some(Transport::Udp { rtp, .. }) => {
                let sent = out.playback.send(|parts| datagram(rtp, parts), &[], 0)?;
                (sent, Full::Track(track))
            }
            None => (None, Full::Connection),
        };
        let Some((count, all)) = sent else {
            out.full = Some(full);
            return Ok(());
        };
        out.gone += count;
        if full == Full::Connection && self.link.is_secure() {
            out.note_copied(count);
        }
        if out.gone == all {
            out.gone = 0;
            out.note(track, len);
            out.playback.sent(len);
        } else {
            out.full = Some(full);
        }
        Ok(())
    }

    /// Sends what goes between packets; whether all of it has gone.
    fn send_between(&mut self, out: &mut Outgoing<'_>) -> Result<bool, Ended> {
        let bytes = out.between.make_contiguous();
        if let Some(count) = self.link.write(bytes)? {
            drop(out.between.drain(..count));
        }
        out.full = (!out.between.is_empty()).then_some(Full::Connection);
        Ok(out.full.is_none())
    }

    /// Before something else is said: the rest of a packet that has begun, and what goes between.
    fn flush(&mut self, out: &mut Outgoing<'_>) -> Result<(), Ended> {
        let until = clock::now().saturating_add(super::ANSWER_WITHIN);
        while out.gone > 0 || !out.between.is_empty() {
            if let Some(full) = out.full {
                let mut wait = Wait::new();
                wait.add(self.what_is(full, out), PollFlags::OUT, Wakes::Writable);
                if wait.sleep(true, Some(until))?.is_empty() && clock::now() >= until {
                    return Err(Ended::Slow);
                }
                out.full = None;
            }
            if out.gone > 0 {
                let track = out.playback.track();
                self.send_packet(out, track)?;
            } else {
                self.send_between(out)?;
            }
        }
        Ok(())
    }

    fn sleep_out(
        &self,
        out: &Outgoing<'_>,
        parts: &[Part],
        live: &[Arc<EventFd>],
        until: Time,
    ) -> Result<Vec<Wakes>, Ended> {
        let mut wait = Wait::new();
        wait.readable(self.shared.stop.as_fd(), Wakes::Stop);
        for part in parts {
            wait.readable(part.member.ends(), Wakes::Told);
        }
        if !out.has_answers_enough() {
            self.link.hear(&mut wait, Wakes::Socket);
        }
        for live in live {
            wait.readable(live.as_fd(), Wakes::Live);
        }
        for reader in out.playback.readers() {
            wait.readable(reader.event(), Wakes::Disks);
        }
        for (track, transport) in out.transports.iter().enumerate() {
            if let Some(Transport::Udp { rtcp, rtp, .. }) = transport {
                wait.readable(rtcp.as_fd(), Wakes::Heard(track));
                wait.readable(rtp.as_fd(), Wakes::Heard(track));
            }
        }
        if let Some(full) = out.full {
            wait.add(self.what_is(full, out), PollFlags::OUT, Wakes::Writable);
        }
        let silent = self.heard.saturating_add(self.timeout());
        let due = out.playback.readers().filter_map(BlockReader::next_at);
        let until = due.chain([until, silent]).min();
        Ok(wait.sleep(out.playback.arm(), until)?)
    }

    /// What takes no more.
    fn what_is<'b>(&'b self, full: Full, out: &'b Outgoing<'_>) -> BorrowedFd<'b> {
        let track = match full {
            Full::Connection => None,
            Full::Track(track) => out.transports[track].as_ref(),
        };
        match track {
            Some(Transport::Udp { rtp, .. }) => rtp.as_fd(),
            _ => self.link.as_fd(),
        }
    }

    /// Who plays by UDP says that it is there.
    fn hear(&mut self, transports: &[Option<Transport>], track: usize) {
        let Some(Transport::Udp { rtp, rtcp, .. }) = &transports[track] else {
            return;
        };
        let mut scratch = [0; 2_048];
        for socket in [rtp, rtcp] {
            while socket.recv(&mut scratch).is_ok() {
                self.heard = clock::now();
            }
        }
    }

    /// What is asked for while packets go, as long as the answers are taken.
    fn asked_while_playing(
        &mut self,
        out: &mut Outgoing<'_>,
        parts: &[Part],
        id: &str,
    ) -> Result<After, Ended> {
        loop {
            if out.has_answers_enough() {
                return Ok(After::Goes);
            }
            let request = match self.input.next_item()? {
                Next::More => return Ok(After::Goes),
                Next::Response(_) => continue,
                Next::Packet { len, .. } => {
                    if !self.discard(len)? {
                        return Ok(After::Closed);
                    }
                    continue;
                }
                Next::Request(request) => request,
            };
            self.heard = clock::now();
            let refused = self.admit(&request)?;
            let in_session = |status| -> Answer {
                answer(Some(&request), status).session(id, self.shared.config.timeout)
            };
            let said = match (refused, request.method()) {
                (Some(refused), _) => refused,
                (None, Method::Teardown | Method::Pause) => {
                    return Ok(After::Ends(request, Vec::new()));
                }
                (None, Method::Play) => return Ok(After::Again(request)),
                (None, Method::Options) => options(&request),
                (None, Method::GetParameter | Method::SetParameter) => {
                    let said = match named(&request, parts) {
                        Ok(member) => out.changes.ask(request, member),
                        Err(said) => Some(said),
                    };
                    match said {
                        Some(said) => said.session(id, self.shared.config.timeout),
                        None => continue,
                    }
                }
                (None, _) => {
                    in_session(StatusCode::MethodNotValidInThisState).log(self.peer, &request)
                }
            };
            out.say(said)?;
        }
    }
}

/// What is wanted, of what is reserved.
fn presentation<'b>(
    shared: &'b Shared,
    parts: &'b [Part],
    wanted: Wanted,
) -> Result<Option<Presentation<'b>>, PlayError> {
    let Wanted {
        parts: of_parts,
        first_unix_ns,
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
        let playback = Playback::new(reserved, archive, client, recording, found, manner, origin)?;
        let playback = match others {
            Some(others) => playback.going_on(others),
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
fn others<'b>(shared: &'b Shared, parts: &'b [Part], of: &WantedPart) -> Option<Others<'b>> {
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

/// Sends a packet by UDP; `None`: not now.
fn datagram(socket: &UdpSocket, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    match rustix::io::writev(socket, parts) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A factor as headers have it.
fn factor(of: Permille) -> String {
    format!("{:.3}", of.0 as f64 / 1_000.0)
}

impl From<ArchiveError> for Ended {
    fn from(error: ArchiveError) -> Self {
        Self::Play(PlayError::Archive(error))
    }
}
