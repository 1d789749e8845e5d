//! The loop of live play: sends packets as they arrive, and answers requests between them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;

use engine::clock;
use rtsp_types::{Method, StatusCode};
use rustix::event::PollFlags;
use sched::units::{Nanos, Time};

use super::super::answer::{answer, options};
use super::super::burst::PACKETS_MAX;
use super::super::outgoing::{PlayerOutput, SentCounts, Tally};
use super::super::parameters;
use super::super::{ANSWER_WITHIN, ClientRequest, Connection, ConnectionError};
use super::{ViewedStream, Wish, wish};
use crate::live::{LiveOut, LiveReader};
use crate::play::OutPacket;
use crate::rtsp::link::Link;
use crate::rtsp::poll::Wait;
use crate::rtsp::transport::Transport;

/// Times that packets are sent before the next look for requests.
const AT_A_TIME: usize = 8;

/// The end of live play.
pub(super) enum ViewEnd {
    /// The streams have ended.
    Completed,
    /// By PAUSE, TEARDOWN, or a PLAY of something else.
    Requested(Box<ClientRequest>),
    /// With the connection, the server, or the session.
    Closed,
}

impl ViewEnd {
    /// The reason for the log.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Completed => "the stream has ended",
            Self::Requested(request) if *request.method() == Method::Pause => "PAUSE",
            Self::Requested(request) if *request.method() == Method::Teardown => "TEARDOWN",
            Self::Requested(_) => "a new PLAY replaces it",
            Self::Closed => "the connection, the session or the server ended",
        }
    }
}

/// The readers of live streams, and packets that have been taken from them and not sent.
#[derive(Default)]
pub(in crate::rtsp::connection) struct ViewProgress {
    readers: Vec<LiveReader>,
    queue: VecDeque<Queued>,
}

/// A stream and its reader.
struct ViewedReader<'a> {
    stream: &'a ViewedStream,
    reader: LiveReader,
    has_ended: bool,
    /// Media time of the last packet that was sent.
    reached_ns: Option<u64>,
}

/// A packet that waits to be sent, and the number of its stream.
struct Queued {
    stream: usize,
    out: LiveOut,
}

/// Live streams on their way to a player.
pub(super) struct Viewing<'a> {
    readers: Vec<ViewedReader<'a>>,
    queue: VecDeque<Queued>,
    output: PlayerOutput<'a>,
}

impl<'a> Viewing<'a> {
    /// Goes on from `progress`, or begins with the latest key frames if that is empty.
    pub(super) fn new(
        streams: &'a [ViewedStream],
        transports: &'a [Option<Transport>],
        sent: &'a mut [SentCounts],
        progress: ViewProgress,
    ) -> io::Result<Self> {
        let ViewProgress { readers, queue } = progress;
        let mut readers = readers.into_iter();
        let readers = streams.iter().map(|stream| {
            Ok(ViewedReader {
                stream,
                reader: readers.next().map_or_else(|| stream.feed.read(), Ok)?,
                has_ended: false,
                reached_ns: None,
            })
        });
        Ok(Self {
            readers: readers.collect::<io::Result<_>>()?,
            queue,
            output: PlayerOutput::new(transports, sent),
        })
    }

    /// Ends sending, for now.
    pub(super) fn into_progress(self) -> ViewProgress {
        ViewProgress {
            readers: self.readers.into_iter().map(|of| of.reader).collect(),
            queue: self.queue,
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.output.tally()
    }

    /// Media time of the last packet of each stream that was sent.
    pub(super) fn reached_ns(&self) -> Vec<Option<u64>> {
        self.readers.iter().map(|of| of.reached_ns).collect()
    }

    /// True if packets may be taken from the streams.
    fn has_room(&self) -> bool {
        self.queue.len() < PACKETS_MAX
    }

    /// Takes packets that have arrived. Returns false if no more will follow and all are sent.
    fn take(&mut self) -> bool {
        for (number, of) in self.readers.iter_mut().enumerate() {
            if of.has_ended || self.queue.len() >= PACKETS_MAX {
                continue;
            }
            let batch = of.reader.take(PACKETS_MAX);
            of.has_ended = batch.is_last;
            if batch.missed > 0 {
                of.stream.member.count(|counts| counts.lost += batch.missed);
                let (session, stream) = (of.stream.member.number(), of.stream.feed.name());
                tracing::info!(
                    session,
                    stream,
                    skipped_packets = batch.missed,
                    "a live player is too slow and continues with the latest key frame"
                );
            }
            let first_track = of.stream.first_track;
            let is_played = |out: &LiveOut| {
                let track = first_track + usize::from(out.packet.track);
                self.output.is_played(track)
            };
            let played = batch.packets.into_iter().filter(is_played);
            self.queue.extend(played.map(|out| Queued {
                stream: number,
                out,
            }));
        }
        !self.queue.is_empty() || self.readers.iter().any(|of| !of.has_ended)
    }

    /// The track of a packet in the session.
    fn track(&self, queued: &Queued) -> usize {
        let first = self.readers[queued.stream].stream.first_track;
        first + usize::from(queued.out.packet.track)
    }

    /// Queues a sender report before the next packet of each track, if one is due: packets of several tracks are sent
    /// together.
    fn report(&mut self) {
        let mut told: Vec<usize> = Vec::new();
        for next in &self.queue {
            let track = self.track(next);
            if told.contains(&track) {
                continue;
            }
            told.push(track);
            let begun = self.readers[next.stream].stream.feed.begun();
            let plays_at = begun.saturating_add(Nanos(next.out.media_ns));
            self.output.report(track, &next.out.header, plays_at);
        }
    }

    /// Sends the packets that wait, as far as the peer takes them.
    fn send(&mut self, link: &mut Link) -> io::Result<()> {
        let packets = self.queue.iter().take(PACKETS_MAX).map(|queued| OutPacket {
            track: self.track(queued),
            header: queued.out.header,
            body: &queued.out.packet.body,
        });
        let packets: Vec<_> = packets.collect();
        let count = self.output.send(link, &packets)?;
        drop(packets);
        for Queued { stream, out } in self.queue.drain(..count) {
            let of = &mut self.readers[stream];
            of.reached_ns = Some(out.packet.media_ns);
            of.stream.member.count(|counts| {
                counts.packets += 1;
                counts.bytes += out.packet.len() as u64;
            });
        }
        Ok(())
    }
}

/// Events that live play wakes for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeEvent {
    Socket,
    Writable,
    Stop,
    SessionEnded,
    Packets,
    /// A datagram of the player.
    Datagram,
}

impl Connection<'_> {
    /// Sends packets until the streams, or live play, end.
    pub(super) fn send_live(
        &mut self,
        viewing: &mut Viewing<'_>,
        id: &str,
    ) -> Result<ViewEnd, ConnectionError> {
        let mut has_input = true;
        loop {
            if has_input && !viewing.output.has_too_many_replies() {
                if let Some(request) = self.answer_while_viewing(viewing, id)? {
                    self.flush_live(viewing)?;
                    return Ok(ViewEnd::Requested(request));
                }
                has_input = viewing.output.has_too_many_replies();
            }
            if clock::now() >= self.heard.saturating_add(self.timeout()) {
                return Err(ConnectionError::Silent(self.timeout()));
            }
            let Some(until) = self.send_arrived(viewing)? else {
                viewing.output.farewell();
                self.flush_live(viewing)?;
                return Ok(ViewEnd::Completed);
            };
            let until = match has_input && !viewing.output.has_too_many_replies() {
                true => clock::now(),
                false => until,
            };
            let ready = self.sleep_live(viewing, until)?;
            if ready.contains(&WakeEvent::Stop) {
                return Ok(ViewEnd::Closed);
            }
            if ready.contains(&WakeEvent::SessionEnded) {
                viewing.output.farewell();
                self.flush_live(viewing)?;
                return Ok(ViewEnd::Closed);
            }
            if ready.contains(&WakeEvent::Writable) {
                viewing.output.full = None;
            }
            if ready.contains(&WakeEvent::Datagram) {
                self.take_keepalives(viewing.output.transports);
            }
            if ready.contains(&WakeEvent::Socket) {
                match self.receive(4_096)? {
                    Some(0) => return Ok(ViewEnd::Closed),
                    came => has_input |= came.is_some(),
                }
            }
        }
    }

    /// Sends packets that have arrived. Returns until when to sleep (`Time::MAX`: until an event); `None` if the
    /// streams have ended and all is sent.
    fn send_arrived(&mut self, viewing: &mut Viewing<'_>) -> Result<Option<Time>, ConnectionError> {
        for _ in 0..AT_A_TIME {
            if viewing.output.full.is_some() {
                return Ok(Some(Time::MAX));
            }
            if viewing.output.packet_sent == 0 {
                viewing.report();
                let has_between = !viewing.output.between.is_empty();
                if has_between && !viewing.output.send_between(&mut self.link)? {
                    return Ok(Some(Time::MAX));
                }
            }
            let paced_until = viewing.output.pace.until();
            if clock::now() < paced_until && !viewing.queue.is_empty() {
                return Ok(Some(paced_until));
            }
            if viewing.queue.is_empty() {
                if !viewing.take() {
                    return Ok(None);
                }
                if viewing.queue.is_empty() {
                    return Ok(Some(Time::MAX));
                }
                continue;
            }
            viewing.send(&mut self.link)?;
        }
        Ok(Some(clock::now()))
    }

    /// Sends the rest of a packet that has been sent in part, and all replies and reports.
    fn flush_live(&mut self, viewing: &mut Viewing<'_>) -> Result<(), ConnectionError> {
        let until = clock::now().saturating_add(ANSWER_WITHIN);
        while viewing.output.packet_sent > 0 || !viewing.output.between.is_empty() {
            if let Some(full) = viewing.output.full {
                let mut wait = Wait::new();
                let fd = viewing.output.fd_of(full, &self.link);
                wait.add(fd, PollFlags::OUT, WakeEvent::Writable);
                wait.readable(self.shared.stop.as_fd(), WakeEvent::Stop);
                let ready = wait.sleep(true, Some(until))?;
                if ready.contains(&WakeEvent::Stop) {
                    return Err(ConnectionError::Stopped);
                }
                if ready.is_empty() && clock::now() >= until {
                    return Err(ConnectionError::Slow);
                }
                viewing.output.full = None;
            }
            if viewing.output.packet_sent > 0 {
                viewing.send(&mut self.link)?;
            } else {
                viewing.output.send_between(&mut self.link)?;
            }
        }
        Ok(())
    }

    fn sleep_live(
        &self,
        viewing: &Viewing<'_>,
        until: Time,
    ) -> Result<Vec<WakeEvent>, ConnectionError> {
        let mut wait = Wait::new();
        wait.readable(self.shared.stop.as_fd(), WakeEvent::Stop);
        let output = &viewing.output;
        if !output.has_too_many_replies() {
            self.link.hear(&mut wait, WakeEvent::Socket);
        }
        for of in &viewing.readers {
            wait.readable(of.stream.member.ends(), WakeEvent::SessionEnded);
            // The event stays signalled until packets are taken.
            if !of.has_ended && viewing.has_room() && output.full.is_none() {
                wait.readable(of.reader.event(), WakeEvent::Packets);
            }
        }
        for transport in output.transports.iter().flatten() {
            transport.hear(&mut wait, WakeEvent::Datagram);
        }
        if let Some(full) = output.full {
            let fd = output.fd_of(full, &self.link);
            wait.add(fd, PollFlags::OUT, WakeEvent::Writable);
        }
        let silent = self.heard.saturating_add(self.timeout());
        Ok(wait.sleep(true, Some(until.min(silent)))?)
    }

    /// Answers requests while packets are sent; `Some` if one ends live play, which is answered later.
    fn answer_while_viewing(
        &mut self,
        viewing: &mut Viewing<'_>,
        id: &str,
    ) -> Result<Option<Box<ClientRequest>>, ConnectionError> {
        loop {
            let Some(request) = self.next_request(&viewing.output)? else {
                return Ok(None);
            };
            let refused = self.admit(&request)?;
            let in_session =
                |status| answer(Some(&request), status).session(id, self.shared.config.timeout);
            let said = match (refused, request.method()) {
                (Some(refused), _) => refused,
                (None, Method::Teardown | Method::Pause) => return Ok(Some(request)),
                // It keeps the session alive.
                (None, Method::Play) if matches!(wish(&request), Ok(Wish::Now)) => {
                    in_session(StatusCode::Ok)
                }
                (None, Method::Play) => return Ok(Some(request)),
                (None, Method::Options) => options(&request),
                (None, Method::GetParameter | Method::SetParameter) => {
                    let said = parameters::without_reservation(&request);
                    said.session(id, self.shared.config.timeout)
                }
                (None, _) => {
                    let said = in_session(StatusCode::MethodNotValidInThisState);
                    said.log(self.peer, &request)
                }
            };
            viewing.output.queue(said)?;
        }
    }
}
