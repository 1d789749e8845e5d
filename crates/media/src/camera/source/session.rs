//! A session with a camera: its packets into blocks, until something ends it.

use std::os::fd::AsFd;

use engine::clock;
use rustix::event::PollFlags;
use sched::units::{Nanos, Time};

use super::camera::{ANSWER_WITHIN, Camera};
use super::{BackOff, Lower, SourceError, State, Worker};
use crate::archive::block::Kind;
use crate::record::RtpRecorder;
use crate::rtsp::input::InputError;
use crate::rtsp::poll::Wait;
use crate::rtsp::receive::{Came, ITEMS_AT_A_TIME, Partial, ReceiveError, Stray, Wakes};
use crate::rtsp::transport::Transport;

/// A session with a camera that was told to send.
pub(super) struct CameraSession<'a> {
    pub(super) worker: &'a Worker,
    pub(super) number: u64,
    /// When something came last, in the session before.
    pub(super) gap: Option<Time>,
    /// How packets are asked for.
    pub(super) lower: Lower,
    /// Packets that had come before.
    pub(super) before: u64,
    /// Packets that had come before, or have been told of.
    pub(super) known: u64,
    pub(super) transports: Vec<Option<Transport>>,
    pub(super) back_off: &'a mut BackOff,
    /// Packets wait in the connection for room.
    pub(super) is_behind: bool,
    /// When it was kept alive last, or told to send.
    pub(super) kept_alive: Time,
    /// What came last that is nothing.
    pub(super) stray: Stray,
    /// Whether there was such, and the log says so.
    pub(super) is_told_of_stray: bool,
}

impl CameraSession<'_> {
    /// Receives until something ends it.
    pub(super) fn move_packets(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        camera: &mut Camera,
    ) -> Result<std::convert::Infallible, SourceError> {
        let mut partial = None;
        loop {
            tape.advance()?;
            let has_room = tape.has_room(self.is_by_udp());
            let ready = self.sleep(tape, camera, has_room)?;
            if ready.contains(&Wakes::Disks) {
                tape.writer().drain();
            }
            if ready.contains(&Wakes::Stop) {
                return Err(SourceError::Stopped);
            }
            for of in &ready {
                if let Wakes::Track(track, kind) = of {
                    camera
                        .receiver()
                        .udp(tape, &self.transports, *track, *kind)?;
                }
            }
            let received = match ready.contains(&Wakes::Socket) {
                true => self.receive(tape, camera, &mut partial),
                false => Ok(()),
            };
            self.note(tape);
            received?;
            if has_room && !self.is_behind {
                camera.report(tape, &self.transports, clock::now());
            }
            let is_quiet = !ready.iter().any(Wakes::is_of_packets);
            let over_at = self.over_at(tape, has_room);
            if is_quiet && over_at.is_some_and(|at| clock::now() >= at) {
                return Err(SourceError::Left);
            }
            // Who waits for a buffer is not listened to.
            if !has_room || self.is_behind {
                camera.waits();
            }
            self.keep_time(tape, camera)?;
        }
    }

    /// Receives what lies in its sockets when it has ended: nothing of it comes in the next one's. Why it has ended then.
    pub(super) fn receive_rest(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        camera: &mut Camera,
        error: SourceError,
    ) -> SourceError {
        if let SourceError::Record(_) = error {
            return error;
        }
        tape.cut();
        let stops = [self.worker.stop.as_fd()];
        let rest = camera.receiver().rest(tape, &self.transports, &stops);
        self.note(tape);
        match rest {
            Ok(()) => error,
            Err(failed) => failed.into(),
        }
    }

    fn sleep(
        &self,
        tape: &RtpRecorder<'_>,
        camera: &Camera,
        has_room: bool,
    ) -> Result<Vec<Wakes>, SourceError> {
        let mut wait = Wait::new();
        wait.readable(self.worker.stop.as_fd(), Wakes::Stop);
        wait.readable(tape.writer().event(), Wakes::Disks);
        wait.readable(tape.writer().memory_event(), Wakes::Disks);
        if has_room || self.is_by_udp() {
            camera.link().hear(&mut wait, Wakes::Socket);
        }
        // It may have been read already.
        if self.is_behind && has_room {
            wait.at_once(Wakes::Socket);
        }
        for (track, transport) in self.transports.iter().enumerate() {
            if let Some(Transport::Udp { rtp, rtcp, .. }) = transport
                && has_room
                && !tape.is_receiving()
            {
                wait.readable(rtp.as_fd(), Wakes::Track(track, Kind::Rtp));
                wait.readable(rtcp.as_fd(), Wakes::Track(track, Kind::Rtcp));
            }
        }
        let silent = camera.heard.saturating_add(self.silence());
        let due = camera.answers_by().or(self.keep_alive_at(camera));
        let report_at = match has_room && !self.is_behind {
            true => camera.reports_at(),
            false => Some(Time::MAX),
        };
        if report_at.is_none() {
            wait.add(camera.link().as_fd(), PollFlags::OUT, Wakes::Writable);
        }
        let next = tape.writer().next_at();
        let until = [next, due, report_at, self.over_at(tape, has_room)]
            .into_iter()
            .flatten();
        let until = until.fold(silent, Time::min);
        Ok(wait.sleep(tape.writer().arm(), Some(until))?)
    }

    /// Whether something may come by UDP, whatever it was asked for.
    fn is_by_udp(&self) -> bool {
        let is_udp = |of: &Option<Transport>| matches!(of, Some(Transport::Udp { .. }));
        self.transports.iter().any(is_udp)
    }

    /// Whether packets have come.
    pub(super) fn has_come(&self) -> bool {
        self.known > self.before
    }

    /// How long nothing may come. The first packet comes soon by UDP, unless something on the way lets none through.
    fn silence(&self) -> Nanos {
        let timeout = self.worker.config.timeout;
        match self.is_by_udp() && !self.has_come() && !self.worker.habits().is_proven() {
            true => timeout.min(ANSWER_WITHIN),
            false => timeout,
        }
    }

    /// When it has left, as far as it says; not while something of it waits to be received.
    fn over_at(&self, tape: &RtpRecorder<'_>, has_room: bool) -> Option<Time> {
        tape.over_at()
            .filter(|_| has_room && !self.is_behind && !tape.is_receiving())
    }

    /// Receives what has come in the connection.
    fn receive(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        camera: &mut Camera,
        partial: &mut Option<Partial>,
    ) -> Result<(), SourceError> {
        let mut items = ITEMS_AT_A_TIME;
        loop {
            let mut receiver = camera.receiver();
            let mut came = receiver.search(tape, &self.transports, &mut self.stray)?;
            if came.is_none() {
                came = match receiver.between(tape, &self.transports, partial, &mut items) {
                    // Some send what is nothing between their packets.
                    Err(ReceiveError::Input(InputError::Syntax | InputError::Tls)) => {
                        receiver.pass_stray(tape, &mut self.stray)?;
                        None
                    }
                    came => Some(came?),
                };
                if came.is_none() && !std::mem::replace(&mut self.is_told_of_stray, true) {
                    let (spec, camera) = (&self.worker.spec, self.worker.spec.address.shown());
                    tracing::warn!(source = %spec.name, %camera, "what comes between the packets of a source is no RTSP, and is passed over");
                }
            }
            match came {
                None => {}
                Some(Came::Response(said)) => {
                    camera.answered(*said, &mut self.worker.meanwhile(Some(tape)))?;
                }
                Some(Came::Request(request)) => {
                    camera.is_asked(&request, &mut self.worker.meanwhile(Some(tape)))?;
                }
                Some(came @ (Came::Nothing | Came::NoRoom | Came::More)) => {
                    self.is_behind = !matches!(came, Came::Nothing);
                    return Ok(());
                }
                Some(Came::End) => return Err(SourceError::Closed),
            }
        }
    }

    /// Tells of what has come.
    fn note(&mut self, tape: &RtpRecorder<'_>) {
        let tally = tape.tally();
        let mut now = self.worker.now();
        now.tally = tally;
        if tally.packets == self.known {
            return;
        }
        self.known = tally.packets;
        if now.state == State::Recording {
            return;
        }
        now.state = State::Recording;
        now.reason = {
            let mut habits = self.worker.habits();
            habits.proves();
            habits.otherwise()
        };
        *self.back_off = BackOff::new();
        let (source, recording) = (&self.worker.spec.name, self.number);
        let gap = self.gap.take().zip(tape.heard());
        match gap.map(|(from, to)| to.saturating_since(from)) {
            None => {
                now.recording = Some(recording);
                (now.gaps, now.gap_ns) = (0, 0);
                tracing::info!(%source, volume = self.worker.spec.volume, recording, "a recording of a source begins");
            }
            Some(gap) => {
                now.gaps += 1;
                now.gap_ns = now.gap_ns.saturating_add(gap.get());
                tracing::warn!(%source, recording, %gap, "a recording of a source goes on after a gap");
            }
        }
    }

    /// When the session is to be kept alive; not before what has been said is taken: packets are received meanwhile.
    fn keep_alive_at(&self, camera: &Camera) -> Option<Time> {
        // Its timeout may be another one since: the answer to PLAY may be the only one that says it.
        let at = self.kept_alive.saturating_add(camera.keep_alive_interval());
        camera.reports_at().map(|_| at)
    }

    /// Keeps the session alive, and looks whether the camera is.
    fn keep_time(
        &mut self,
        tape: &mut RtpRecorder<'_>,
        camera: &mut Camera,
    ) -> Result<(), SourceError> {
        let now = clock::now();
        let silence = self.silence();
        if now >= camera.heard.saturating_add(silence) {
            let is_known = self.has_come() || self.worker.habits().is_proven();
            return Err(match is_known || camera.is_secure() {
                true => SourceError::Silent(silence),
                false => SourceError::SilentBy {
                    by: self.lower,
                    wait: silence,
                },
            });
        }
        if let Some(until) = camera.answers_by() {
            let mut meanwhile = self.worker.meanwhile(Some(tape));
            return match now < until {
                true => Ok(()),
                false => camera.goes_without_answer(self.has_come(), &mut meanwhile),
            };
        }
        if self.keep_alive_at(camera).is_some_and(|at| now >= at) {
            camera.keep_alive(&mut self.worker.meanwhile(Some(tape)))?;
            self.kept_alive = now;
        }
        Ok(())
    }
}
