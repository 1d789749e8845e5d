//! The loop of a player: sends packets, and answers requests between them.

use super::*;

/// Times that packets are sent before the next look for requests.
const AT_A_TIME: usize = 8;

/// BYE is sent this long after the last packet: players that reorder packets keep the last ones for a while, and
/// drop them on a BYE.
const FAREWELL_AFTER: Nanos = Nanos::from_millis(500);

/// Events that a player wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeEvent {
    Socket,
    Writable,
    Stop,
    /// The session was ended.
    SessionEnded,
    Disks,
    Live,
    /// A datagram of the player.
    Datagram,
}

impl Connection<'_> {
    /// Sends until all packets are sent, or playing ends otherwise.
    pub(super) fn send_all_of(
        &mut self,
        out: &mut Outgoing<'_>,
        parts: &[Part],
        live: &[Arc<EventFd>],
        id: &str,
    ) -> Result<PlayEnd, ConnectionError> {
        // Requests that have arrived together with PLAY have been read already.
        let mut has_input = true;
        loop {
            if has_input && !out.output.has_too_many_replies() {
                if let Some(end) = self.answer_while_playing(out, parts, id)? {
                    return self.leave(out, end, parts, id);
                }
                has_input = out.output.has_too_many_replies();
            }
            if clock::now() >= self.heard.saturating_add(self.timeout()) {
                return Err(ConnectionError::Silent(self.timeout()));
            }
            while let Some(said) = out.changes.answered() {
                out.output
                    .queue(said.session(id, self.shared.config.timeout))?;
            }
            let Some(until) = self.send_due_or_farewell(out, parts, id)? else {
                return Ok(PlayEnd::Completed);
            };
            // Requests that wait because there were too many replies are answered at once.
            let until = match has_input && !out.output.has_too_many_replies() {
                true => clock::now(),
                false => until,
            };
            let ready = self.sleep_out(out, parts, live, until)?;
            if ready.contains(&WakeEvent::Stop) {
                return Ok(PlayEnd::Closed);
            }
            if ready.contains(&WakeEvent::SessionEnded) {
                out.output.farewell();
                self.flush(out, parts)?;
                return Ok(PlayEnd::Closed);
            }
            if ready.contains(&WakeEvent::Disks) {
                for reader in out.playback.readers() {
                    reader.drain();
                }
            }
            if ready.contains(&WakeEvent::Live) {
                for live in live {
                    live.drain();
                }
            }
            if ready.contains(&WakeEvent::Writable) {
                out.output.full = None;
            }
            if ready.contains(&WakeEvent::Datagram) {
                self.take_keepalives(out.output.transports);
            }
            if ready.contains(&WakeEvent::Socket) {
                match self.receive(4_096)? {
                    Some(0) => return self.leave(out, PlayEnd::Closed, parts, id),
                    came => has_input |= came.is_some(),
                }
            }
        }
    }

    /// Playing ends: changes are waited for and answered, and the packet that has been sent in part is completed.
    fn leave(
        &mut self,
        out: &mut Outgoing<'_>,
        end: PlayEnd,
        parts: &[Part],
        id: &str,
    ) -> Result<PlayEnd, ConnectionError> {
        out.settle_changes(id, self.shared.config.timeout)?;
        self.flush(out, parts)?;
        Ok(match end {
            PlayEnd::Stopped(request, _) => {
                PlayEnd::Stopped(request, out.playback.positions(parts.len()))
            }
            PlayEnd::Replaced(request, ..) => {
                let positions = out.playback.positions(parts.len());
                let continuations = out.playback.continuations(&positions);
                PlayEnd::Replaced(request, positions, continuations)
            }
            end => end,
        })
    }

    /// As [`send_due`](Self::send_due); sends BYE behind the last packet, or if the volume of a recording has grown.
    fn send_due_or_farewell(
        &mut self,
        out: &mut Outgoing<'_>,
        parts: &[Part],
        id: &str,
    ) -> Result<Option<Time>, ConnectionError> {
        match self.send_due(out) {
            Ok(None) => {
                out.settle_changes(id, self.shared.config.timeout)?;
                out.output.farewell();
                self.flush(out, parts)?;
                Ok(None)
            }
            Err(error @ ConnectionError::Play(PlayError::Grown(_))) => {
                out.output.farewell();
                // As far as the peer takes it: the connection is closed in any case.
                let _ = self.flush(out, parts);
                Err(error)
            }
            until => until,
        }
    }

    /// Sends packets that are due. Returns until when to sleep (`Time::MAX`: until an event); `None` if all packets
    /// are sent.
    fn send_due(&mut self, out: &mut Outgoing<'_>) -> Result<Option<Time>, ConnectionError> {
        for _ in 0..AT_A_TIME {
            if out.output.full.is_some() {
                // Blocks that have been read are taken in all the same: the thread may not sleep before that.
                out.playback.read_ahead()?;
                return Ok(Some(Time::MAX));
            }
            let has_between = out.output.packet_sent == 0 && !out.output.between.is_empty();
            if has_between && !out.output.send_between(&mut self.link)? {
                return Ok(Some(Time::MAX));
            }
            match out.playback.advance(out.output.packet_sent > 0)? {
                Upcoming::Nothing => {
                    let now = clock::now();
                    let farewell_at = now.saturating_add(FAREWELL_AFTER);
                    let farewell_at = *out.farewell_at.get_or_insert(farewell_at);
                    return Ok((now < farewell_at).then_some(farewell_at));
                }
                Upcoming::Unread => return Ok(Some(out.playback.past_end())),
                Upcoming::Packet { due, track, kind } => {
                    if kind != Kind::Rtp || !out.output.is_played(track) {
                        out.playback.done();
                        continue;
                    }
                    let due = due.max(out.output.pace.until());
                    if clock::now() < due {
                        return Ok(Some(due));
                    }
                    out.report(track);
                    if out.output.packet_sent == 0 && !out.output.between.is_empty() {
                        continue;
                    }
                    out.send_due(&mut self.link)?;
                }
            }
        }
        // Looks for events, and goes on.
        Ok(Some(clock::now()))
    }

    /// Sends the rest of a packet that has been sent in part, and all replies and reports.
    fn flush(&mut self, out: &mut Outgoing<'_>, parts: &[Part]) -> Result<(), ConnectionError> {
        let until = clock::now().saturating_add(super::super::ANSWER_WITHIN);
        while out.output.packet_sent > 0 || !out.output.between.is_empty() {
            if let Some(full) = out.output.full {
                let mut wait = Wait::new();
                wait.add(
                    out.output.fd_of(full, &self.link),
                    PollFlags::OUT,
                    WakeEvent::Writable,
                );
                wait.readable(self.shared.stop.as_fd(), WakeEvent::Stop);
                // A session that was ended does not wait for a peer that takes nothing.
                for part in parts {
                    wait.readable(part.member.ends(), WakeEvent::SessionEnded);
                }
                let ready = wait.sleep(true, Some(until))?;
                if !ready.contains(&WakeEvent::Writable) {
                    return Err(match ready.first() {
                        Some(WakeEvent::Stop) => ConnectionError::Stopped,
                        Some(_) => ConnectionError::SessionEnded,
                        None if clock::now() >= until => ConnectionError::Slow,
                        None => continue,
                    });
                }
                out.output.full = None;
            }
            if out.output.packet_sent > 0 {
                out.send_due(&mut self.link)?;
            } else {
                out.output.send_between(&mut self.link)?;
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
    ) -> Result<Vec<WakeEvent>, ConnectionError> {
        let mut wait = Wait::new();
        wait.readable(self.shared.stop.as_fd(), WakeEvent::Stop);
        for part in parts {
            wait.readable(part.member.ends(), WakeEvent::SessionEnded);
        }
        if !out.output.has_too_many_replies() {
            self.link.hear(&mut wait, WakeEvent::Socket);
        }
        for live in live {
            wait.readable(live.as_fd(), WakeEvent::Live);
        }
        for reader in out.playback.readers() {
            wait.readable(reader.event(), WakeEvent::Disks);
        }
        for transport in out.output.transports.iter().flatten() {
            transport.hear(&mut wait, WakeEvent::Datagram);
        }
        if let Some(full) = out.output.full {
            wait.add(
                out.output.fd_of(full, &self.link),
                PollFlags::OUT,
                WakeEvent::Writable,
            );
        }
        let silent = self.heard.saturating_add(self.timeout());
        let due = out.playback.readers().filter_map(BlockReader::next_at);
        let until = due.chain([until, silent]).min();
        Ok(wait.sleep(out.playback.arm(), until)?)
    }

    /// Takes in datagrams, which show that the player is there.
    pub(in crate::rtsp::connection) fn take_keepalives(
        &mut self,
        transports: &[Option<Transport>],
    ) {
        for transport in transports.iter().flatten() {
            if transport.take_keepalives() {
                self.heard = clock::now();
            }
        }
    }

    /// Why a PLAY has to be refused, as far as that is known without reading the recording.
    fn refusal_of_play(
        &self,
        request: &ClientRequest,
        parts: &[Part],
        transports: &[Option<Transport>],
    ) -> Option<String> {
        let first = parts.first()?;
        let of = Playable {
            parts,
            recordings: Vec::new(),
            master: first.archive.recording(Some(first.recording.number))?,
            transports,
            paused: None,
            selection: PartSelection::All,
        };
        match self.terms_within(request, &of) {
            Err(PlayRefusal::Range(why)) => Some(why),
            // Errors of the archive are reported when it is played.
            _ => None,
        }
    }

    /// The next request that has arrived while packets are sent; `None` while the peer does not take the replies.
    pub(in crate::rtsp::connection) fn next_request(
        &mut self,
        output: &PlayerOutput<'_>,
    ) -> Result<Option<Box<ClientRequest>>, ConnectionError> {
        loop {
            // The rest of a packet of the peer may arrive later.
            if output.has_too_many_replies() || (self.skipping > 0 && !self.skip()) {
                return Ok(None);
            }
            match self.input.next_item()? {
                Next::More => return Ok(None),
                Next::Response(_) => {}
                Next::Packet { len, .. } => self.skipping = len,
                Next::Request(request) => {
                    self.heard = clock::now();
                    return Ok(Some(request));
                }
            }
        }
    }

    /// Answers requests while packets are sent, as long as the peer takes the replies.
    fn answer_while_playing(
        &mut self,
        out: &mut Outgoing<'_>,
        parts: &[Part],
        id: &str,
    ) -> Result<Option<PlayEnd>, ConnectionError> {
        loop {
            let Some(request) = self.next_request(&out.output)? else {
                return Ok(None);
            };
            let refused = self.admit(&request)?;
            let in_session = |status| -> Answer {
                answer(Some(&request), status).session(id, self.shared.config.timeout)
            };
            let said = match (refused, request.method()) {
                (Some(refused), _) => refused,
                (None, Method::Teardown | Method::Pause) => {
                    return Ok(Some(PlayEnd::Stopped(request, Vec::new())));
                }
                // A PLAY without headers while playing keeps the session alive (RFC 2326, section 10.5).
                (None, Method::Play)
                    if is_bare(&request) && unknown_part(&request).is_none() && is_there(parts) =>
                {
                    in_session(StatusCode::Ok)
                }
                // A PLAY that is refused does not end what is played.
                (None, Method::Play) => {
                    match self.refusal_of_play(&request, parts, out.output.transports) {
                        Some(why) => in_session(StatusCode::InvalidRange)
                            .reason(why)
                            .log(self.peer, &request),
                        None => {
                            return Ok(Some(PlayEnd::Replaced(request, Vec::new(), Vec::new())));
                        }
                    }
                }
                (None, Method::Options) => options(&request),
                (None, Method::GetParameter | Method::SetParameter) => {
                    let said = match named_part(&request, parts) {
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
            out.output.queue(said)?;
        }
    }
}

/// True if the master has not been deleted.
fn is_there(parts: &[Part]) -> bool {
    let is_there = |of: &Part| of.archive.recording(Some(of.recording.number)).is_some();
    parts.first().is_some_and(is_there)
}

/// True if a PLAY has no header that says what to play.
fn is_bare(request: &ClientRequest) -> bool {
    [RANGE, SCALE, SPEED]
        .iter()
        .all(|name| request.header(name).is_none())
}
