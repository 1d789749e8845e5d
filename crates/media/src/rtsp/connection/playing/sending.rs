//! What goes while something is played, and what is asked for meanwhile.

use super::*;

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
    Heard,
}

impl Connection<'_> {
    /// Sends until all has gone, or something else is to be done.
    pub(super) fn send_all_of(
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
                    other => return self.leave(out, other, parts, id),
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
                    let _ = self.flush(out, parts);
                    return Err(error);
                }
                until => until?,
            };
            let Some(until) = until else {
                // All of it has gone: what comes next is for the session.
                out.settle_changes(id, self.shared.config.timeout)?;
                out.farewell();
                self.flush(out, parts)?;
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
                self.flush(out, parts)?;
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
            if ready.contains(&Wakes::Heard) {
                self.hear(out.transports);
            }
            if ready.contains(&Wakes::Socket) {
                match self.receive(4_096)? {
                    Some(0) => return self.leave(out, After::Closed, parts, id),
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
        parts: &[Part],
        id: &str,
    ) -> Result<After, Ended> {
        out.settle_changes(id, self.shared.config.timeout)?;
        self.flush(out, parts)?;
        Ok(match after {
            After::Ends(request, _) => After::Ends(request, out.playback.positions(parts.len())),
            After::Again(request, ..) => {
                let positions = out.playback.positions(parts.len());
                let continuations = out.playback.continuations(&positions);
                After::Again(request, positions, continuations)
            }
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
    fn flush(&mut self, out: &mut Outgoing<'_>, parts: &[Part]) -> Result<(), Ended> {
        let until = clock::now().saturating_add(super::super::ANSWER_WITHIN);
        while out.gone > 0 || !out.between.is_empty() {
            if let Some(full) = out.full {
                let mut wait = Wait::new();
                wait.add(self.what_is(full, out), PollFlags::OUT, Wakes::Writable);
                wait.readable(self.shared.stop.as_fd(), Wakes::Stop);
                // Who is ended is told so, if that is taken.
                for part in parts {
                    wait.readable(part.member.ends(), Wakes::Told);
                }
                let ready = wait.sleep(true, Some(until))?;
                if !ready.contains(&Wakes::Writable) {
                    return Err(match ready.first() {
                        Some(Wakes::Stop) => Ended::Stopped,
                        Some(_) => Ended::Over,
                        None if clock::now() >= until => Ended::Slow,
                        None => continue,
                    });
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
        for transport in out.transports.iter().flatten() {
            transport.hear(&mut wait, Wakes::Heard);
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
    fn hear(&mut self, transports: &[Option<Transport>]) {
        for transport in transports.iter().flatten() {
            if transport.has_said() {
                self.heard = clock::now();
            }
        }
    }

    /// Why nothing that a PLAY asks for can be played, as far as that is known at once.
    fn senseless(
        &self,
        request: &Asked,
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
            is_as_it_was: false,
            is_live: false,
        };
        match self.terms_within(request, &of) {
            Err(Unwanted::Range(why)) => Some(why),
            // Who plays it says what there is of it.
            _ => None,
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
            // A packet may come in pieces, which others do not wait for.
            if out.has_answers_enough() || (self.passing > 0 && !self.pass()) {
                return Ok(After::Goes);
            }
            let request = match self.input.next_item()? {
                Next::More => return Ok(After::Goes),
                Next::Response(_) => continue,
                Next::Packet { len, .. } => {
                    self.passing = len;
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
                // Nothing else is asked for than what is done, to see whether somebody is there (RFC 2326, section 10.5).
                (None, Method::Play)
                    if is_bare(&request) && strange(&request).is_none() && is_there(parts) =>
                {
                    in_session(StatusCode::Ok)
                }
                // What makes no sense does not end what is played.
                (None, Method::Play) => match self.senseless(&request, parts, out.transports) {
                    Some(why) => in_session(StatusCode::InvalidRange)
                        .reason(why)
                        .log(self.peer, &request),
                    None => return Ok(After::Again(request, Vec::new(), Vec::new())),
                },
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

/// Whether what is played has not been deleted.
fn is_there(parts: &[Part]) -> bool {
    let is_there = |of: &Part| of.archive.recording(Some(of.recording.number)).is_some();
    parts.first().is_some_and(is_there)
}

/// Whether a PLAY says nothing of what is to be played.
fn is_bare(request: &Asked) -> bool {
    [RANGE, SCALE, SPEED]
        .iter()
        .all(|name| request.header(name).is_none())
}

/// Sends a packet by UDP; `None`: not now.
fn datagram(socket: &UdpSocket, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    match rustix::io::writev(socket, parts) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
