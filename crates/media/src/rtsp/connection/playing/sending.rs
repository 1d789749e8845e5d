//! The loop of a player: sends packets, and answers requests between them.

use super::*;

/// Packets that are sent before the next look for requests.
const AT_A_TIME: usize = 64;

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
            if has_input && !out.has_too_many_replies() {
                if let Some(end) = self.answer_while_playing(out, parts, id)? {
                    return self.leave(out, end, parts, id);
                }
                has_input = out.has_too_many_replies();
            }
            if clock::now() >= self.heard.saturating_add(self.timeout()) {
                return Err(ConnectionError::Silent(self.timeout()));
            }
            while let Some(said) = out.changes.answered() {
                out.queue(said.session(id, self.shared.config.timeout))?;
            }
            let Some(until) = self.send_due_or_farewell(out, parts, id)? else {
                return Ok(PlayEnd::Completed);
            };
            // Requests that wait because there were too many replies are answered at once.
            let until = match has_input && !out.has_too_many_replies() {
                true => clock::now(),
                false => until,
            };
            let ready = self.sleep_out(out, parts, live, until)?;
            if ready.contains(&WakeEvent::Stop) {
                return Ok(PlayEnd::Closed);
            }
            if ready.contains(&WakeEvent::SessionEnded) {
                out.farewell();
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
                out.full = None;
            }
            if ready.contains(&WakeEvent::Datagram) {
                self.take_keepalives(out.transports);
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
                out.farewell();
                self.flush(out, parts)?;
                Ok(None)
            }
            Err(error @ ConnectionError::Play(PlayError::Grown(_))) => {
                out.farewell();
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
            if out.full.is_some() {
                // Blocks that have been read are taken in all the same: the thread may not sleep before that.
                out.playback.read_ahead()?;
                return Ok(Some(Time::MAX));
            }
            if out.packet_sent == 0 && !out.between.is_empty() && !self.send_between(out)? {
                return Ok(Some(Time::MAX));
            }
            match out.playback.advance(out.packet_sent > 0)? {
                Upcoming::Nothing => {
                    let now = clock::now();
                    let farewell_at = now.saturating_add(FAREWELL_AFTER);
                    let farewell_at = *out.farewell_at.get_or_insert(farewell_at);
                    return Ok((now < farewell_at).then_some(farewell_at));
                }
                Upcoming::Unread => return Ok(Some(out.playback.past_end())),
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
                    if out.packet_sent == 0 && !out.between.is_empty() {
                        continue;
                    }
                    self.send_packet(out, track)?;
                }
            }
        }
        // Looks for events, and goes on.
        Ok(Some(clock::now()))
    }

    fn send_packet(&mut self, out: &mut Outgoing<'_>, track: usize) -> Result<(), ConnectionError> {
        let len = out.playback.packet_len();
        let (sent, full) = match &out.transports[track] {
            Some(Transport::Interleaved { rtp, .. }) => {
                let frame = frame(*rtp, len);
                let link = &mut self.link;
                let sent =
                    out.playback
                        .send(|parts| link.writev(parts), &frame, out.packet_sent)?;
                (sent, Destination::Connection)
            }
            Some(Transport::Udp { rtp, .. }) => {
                let sent = out.playback.send(|parts| datagram(rtp, parts), &[], 0)?;
                (sent, Destination::Track(track))
            }
            None => (None, Destination::Connection),
        };
        let Some((count, all)) = sent else {
            out.full = Some(full);
            return Ok(());
        };
        out.packet_sent += count;
        if full == Destination::Connection && self.link.is_secure() {
            out.note_copied(count);
        }
        if out.packet_sent == all {
            out.packet_sent = 0;
            out.note_sent(track, len);
            out.playback.sent(len);
        } else {
            out.full = Some(full);
        }
        Ok(())
    }

    /// Sends replies and reports; returns true if all of them are sent.
    fn send_between(&mut self, out: &mut Outgoing<'_>) -> Result<bool, ConnectionError> {
        let bytes = out.between.make_contiguous();
        if let Some(count) = self.link.write(bytes)? {
            drop(out.between.drain(..count));
        }
        out.full = (!out.between.is_empty()).then_some(Destination::Connection);
        Ok(out.full.is_none())
    }

    /// Sends the rest of a packet that has been sent in part, and all replies and reports.
    fn flush(&mut self, out: &mut Outgoing<'_>, parts: &[Part]) -> Result<(), ConnectionError> {
        let until = clock::now().saturating_add(super::super::ANSWER_WITHIN);
        while out.packet_sent > 0 || !out.between.is_empty() {
            if let Some(full) = out.full {
                let mut wait = Wait::new();
                wait.add(self.fd_of(full, out), PollFlags::OUT, WakeEvent::Writable);
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
                out.full = None;
            }
            if out.packet_sent > 0 {
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
    ) -> Result<Vec<WakeEvent>, ConnectionError> {
        let mut wait = Wait::new();
        wait.readable(self.shared.stop.as_fd(), WakeEvent::Stop);
        for part in parts {
            wait.readable(part.member.ends(), WakeEvent::SessionEnded);
        }
        if !out.has_too_many_replies() {
            self.link.hear(&mut wait, WakeEvent::Socket);
        }
        for live in live {
            wait.readable(live.as_fd(), WakeEvent::Live);
        }
        for reader in out.playback.readers() {
            wait.readable(reader.event(), WakeEvent::Disks);
        }
        for transport in out.transports.iter().flatten() {
            transport.hear(&mut wait, WakeEvent::Datagram);
        }
        if let Some(full) = out.full {
            wait.add(self.fd_of(full, out), PollFlags::OUT, WakeEvent::Writable);
        }
        let silent = self.heard.saturating_add(self.timeout());
        let due = out.playback.readers().filter_map(BlockReader::next_at);
        let until = due.chain([until, silent]).min();
        Ok(wait.sleep(out.playback.arm(), until)?)
    }

    /// The descriptor of a destination.
    fn fd_of<'b>(&'b self, full: Destination, out: &'b Outgoing<'_>) -> BorrowedFd<'b> {
        let track = match full {
            Destination::Connection => None,
            Destination::Track(track) => out.transports[track].as_ref(),
        };
        match track {
            Some(Transport::Udp { rtp, .. }) => rtp.as_fd(),
            _ => self.link.as_fd(),
        }
    }

    /// Takes in datagrams, which show that the player is there.
    fn take_keepalives(&mut self, transports: &[Option<Transport>]) {
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
            is_live: false,
        };
        match self.terms_within(request, &of) {
            Err(PlayRefusal::Range(why)) => Some(why),
            // Errors of the archive are reported when it is played.
            _ => None,
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
            // The rest of a packet of the peer may arrive later.
            if out.has_too_many_replies() || (self.skipping > 0 && !self.skip()) {
                return Ok(None);
            }
            let request = match self.input.next_item()? {
                Next::More => return Ok(None),
                Next::Response(_) => continue,
                Next::Packet { len, .. } => {
                    self.skipping = len;
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
                    return Ok(Some(PlayEnd::Stopped(request, Vec::new())));
                }
                // A PLAY without headers while playing keeps the session alive (RFC 2326, section 10.5).
                (None, Method::Play)
                    if is_bare(&request) && unknown_part(&request).is_none() && is_there(parts) =>
                {
                    in_session(StatusCode::Ok)
                }
                // A PLAY that is refused does not end what is played.
                (None, Method::Play) => match self.refusal_of_play(&request, parts, out.transports)
                {
                    Some(why) => in_session(StatusCode::InvalidRange)
                        .reason(why)
                        .log(self.peer, &request),
                    None => return Ok(Some(PlayEnd::Replaced(request, Vec::new(), Vec::new()))),
                },
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
            out.queue(said)?;
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

/// Sends a packet by UDP; `None` if the socket takes none now.
fn datagram(socket: &UdpSocket, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    match rustix::io::writev(socket, parts) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
