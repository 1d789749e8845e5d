//! The demo's streams: how many admission allows, those that run, and one that is too much.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sched::units::{Bytes, BytesPerSecond};

use super::media::{Clip, Peer};
use super::plan::{CAPACITY_PERCENT, CLIP, DRIVES, PLACES, RATE};
use super::report::TooMuch;
use super::stage::{Serving, Stage};
use super::volumes::{clip_volume, recording_volume};
use crate::failure::{Failure, FailureKind};
use crate::quantity::Rate;
use crate::wire::ask::{ReserveStream, StreamOp};
use crate::wire::streams::{Reserved, SessionView};
use crate::wire::view::StatusView;

/// Longest wait of a reservation for its stream, or for the end of the search for the largest number of
/// streams.
const RESERVATION_WAIT_MS: u64 = 60_000;

/// Longest time until all players play. A player plays its first block a period and a half after it began.
const PLAYING_WITHIN: Duration = Duration::from_secs(30);

/// Interval of looks for that.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Capacity of a drive without other load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    /// Playing streams.
    pub(super) streams: u64,
    /// The share of its time that it has promised then.
    full: f64,
    /// The share that it has promised without any.
    empty: f64,
}

impl Capacity {
    /// Streams that are to run, of those that it carries.
    fn wanted(&self) -> u64 {
        (self.streams * CAPACITY_PERCENT).div_ceil(100)
    }

    /// Number of streams that may be added to a drive with this promised share, up to the share of all wanted
    /// streams.
    fn left(&self, promised: f64) -> usize {
        let each = (self.full - self.empty) / self.streams as f64;
        let left = self.wanted() as f64 - (promised - self.empty) / each;
        left.round().max(0.0) as usize
    }
}

/// A recording under way.
pub(super) struct Recorder {
    peer: Peer,
    pub(super) volume: String,
    pub(super) clip: Clip,
}

/// The streams of a run.
pub(super) struct Streams {
    recorders: Vec<Recorder>,
    players: Vec<Peer>,
    block: Bytes,
}

/// Results of the streams.
pub(super) struct Ended {
    /// Each stream's last report.
    pub(super) sessions: Vec<SessionView>,
    /// Each recording: its volume, what it is of, and its length.
    pub(super) recordings: Vec<(String, Clip, u64)>,
    pub(super) played_bytes: u64,
    pub(super) played_different: u64,
}

/// A stream is over before its time.
pub(super) fn broken(reason: &str) -> Failure {
    Failure::failed(format!("a stream broke: {reason}"))
        .help("the scratch folder may be full; run the demo with --keep to inspect its files")
}

/// The share of its time that a drive has promised.
fn promised(serving: &Serving<'_>, drive: usize) -> Result<f64, Failure> {
    let status: StatusView = serving.get("/v1/status")?;
    let disk = status.disks.get(drive);
    let disk = disk.ok_or_else(|| Failure::bug(format!("there is no drive {drive}")))?;
    Ok(disk.utilization_promised)
}

impl Streams {
    pub(super) fn recorded(&self) -> u64 {
        self.recorders.len() as u64
    }

    pub(super) fn played(&self) -> u64 {
        self.players.len() as u64
    }

    /// The volume and the session of the first recording.
    pub(super) fn first_recording(&self) -> Result<(&str, u64), Failure> {
        let first = self.recorders.first();
        let first = first.ok_or_else(|| Failure::bug("nothing is recorded"))?;
        Ok((&first.volume, first.peer.id))
    }

    /// The size of their blocks, as the pool proposed it.
    pub(super) fn block(&self) -> Bytes {
        self.block
    }

    /// Bytes that the other ends of all streams have sent and received.
    pub(super) fn bytes(&self) -> u64 {
        let recorders = self.recorders.iter().map(|recorder| &recorder.peer);
        recorders
            .chain(&self.players)
            .map(|peer| peer.count.bytes.load(Ordering::Relaxed))
            .sum()
    }

    fn all_play(&self) -> bool {
        self.players
            .iter()
            .all(|player| player.count.bytes.load(Ordering::Relaxed) > 0)
    }
}

impl Stage<'_> {
    fn reserve(
        &self,
        serving: &Serving<'_>,
        op: StreamOp,
        volume: &str,
        name: String,
    ) -> Result<Reserved, Failure> {
        self.reserve_at(serving, op, volume, name, RATE, None)
    }

    /// Reserves at another rate, and with a block of a given size.
    fn reserve_at(
        &self,
        serving: &Serving<'_>,
        op: StreamOp,
        volume: &str,
        name: String,
        rate: BytesPerSecond,
        block: Option<Bytes>,
    ) -> Result<Reserved, Failure> {
        let ask = ReserveStream {
            name: Some(name),
            volume: volume.to_owned(),
            op,
            rate_bytes_per_second: rate.get(),
            block_bytes: block.map(Bytes::get),
            offset_bytes: 0,
            length_bytes: (op == StreamOp::Play).then_some(CLIP.get()),
            limit_bytes: None,
            wraps: op == StreamOp::Play,
            starts_in_ms: None,
            ends_in_ms: None,
            connect_within_ms: Some(RESERVATION_WAIT_MS),
            force: false,
        };
        self.runtime.block_on(serving.api.post("/v1/streams", &ask))
    }

    /// Reserves a playing stream, the `number`th of a drive: they take its places in turn.
    fn reserve_player(
        &self,
        serving: &Serving<'_>,
        drive: usize,
        number: usize,
    ) -> Result<Reserved, Failure> {
        let volume = clip_volume(drive, number % PLACES);
        let name = format!("play {} {drive}.{number}", self.clip_of(drive).name);
        self.reserve(serving, StreamOp::Play, &volume, name)
    }

    /// Ends sessions, all at once: each waits for its blocks on their way.
    fn end(&self, serving: &Serving<'_>, ids: &[u64]) -> Result<Vec<SessionView>, Failure> {
        self.runtime.block_on(async {
            let ends: Vec<_> = ids
                .iter()
                .map(|id| {
                    let (api, path) = (serving.api.clone(), format!("/v1/streams/{id}"));
                    tokio::spawn(async move { api.delete::<SessionView>(&path).await })
                })
                .collect();
            let mut sessions = Vec::with_capacity(ends.len());
            for end in ends {
                sessions.push(
                    end.await.map_err(|error| {
                        Failure::bug(format!("ending a stream failed: {error}"))
                    })??,
                );
            }
            Ok(sessions)
        })
    }

    /// Number of playing streams that each drive admits without other load, found by reserving until it
    /// refuses.
    pub(super) fn capacity(&self, serving: &Serving<'_>) -> Result<Vec<Capacity>, Failure> {
        let mut capacity = Vec::new();
        for drive in 0..DRIVES {
            let empty = promised(serving, drive)?;
            let mut reserved = Vec::new();
            loop {
                self.interrupt.check()?;
                match self.reserve_player(serving, drive, reserved.len()) {
                    Ok(stream) => reserved.push(stream.id),
                    Err(failure) if failure.kind == FailureKind::Refused => break,
                    Err(failure) => return Err(failure),
                }
            }
            let full = promised(serving, drive)?;
            self.end(serving, &reserved)?;
            if reserved.is_empty() {
                return Err(Failure::failed("the drives carry no stream at all")
                    .help("check the profile of the drives"));
            }
            capacity.push(Capacity {
                streams: reserved.len() as u64,
                full,
                empty,
            });
        }
        Ok(capacity)
    }

    /// Reserves all streams, then begins all of them at once, and returns when all play. They fill the drives
    /// up to the part of what admission allows that is to be used; what has been promised already, as to
    /// cameras, counts.
    pub(super) fn start_streams(
        &self,
        serving: &Serving<'_>,
        scheduler: &str,
        capacity: &[Capacity],
    ) -> Result<Streams, Failure> {
        let mut reserved = Vec::new();
        for (number, clip) in self.clips.iter().enumerate() {
            let volume = recording_volume(scheduler, number);
            let name = format!("record {}", clip.name);
            let stream = self.reserve(serving, StreamOp::Record, &volume, name)?;
            reserved.push((stream, Some(volume), clip));
        }
        for (drive, fits) in capacity.iter().enumerate() {
            for number in 0..fits.left(promised(serving, drive)?) {
                self.interrupt.check()?;
                let stream = self.reserve_player(serving, drive, number)?;
                reserved.push((stream, None, self.clip_of(drive)));
            }
        }
        let mut streams = Streams {
            recorders: Vec::new(),
            players: Vec::new(),
            block: Bytes::ZERO,
        };
        for (stream, recorded_to, clip) in reserved {
            streams.block = streams.block.max(Bytes(stream.stream.block_bytes));
            match recorded_to {
                Some(volume) => streams.recorders.push(Recorder {
                    peer: Peer::record(&stream, clip)?,
                    volume,
                    clip: clip.clone(),
                }),
                None => streams.players.push(Peer::play(&stream, clip, CLIP.get())?),
            }
        }
        self.wait_until_playing(&streams)?;
        Ok(streams)
    }

    fn wait_until_playing(&self, streams: &Streams) -> Result<(), Failure> {
        let begun = std::time::Instant::now();
        while !streams.all_play() {
            if begun.elapsed() > PLAYING_WITHIN {
                return Err(Failure::failed(format!(
                    "some streams did not play within {PLAYING_WITHIN:?} after their start"
                ))
                .help("this machine is too slow for the demo, or too busy"));
            }
            self.interrupt.wait(self.runtime, LOOK_INTERVAL)?;
        }
        // All have begun with their first block; now all have it.
        self.interrupt.wait(self.runtime, LOOK_INTERVAL)
    }

    /// Asks for a stream that takes more than what is left of a drive, in blocks of the same size.
    pub(super) fn ask_too_much(
        &self,
        serving: &Serving<'_>,
        capacity: &[Capacity],
        block: Bytes,
    ) -> Result<TooMuch, Failure> {
        let left = capacity[0].streams - capacity[0].wanted();
        let rate = BytesPerSecond(RATE.get() * (left + 2));
        let name = "one too many".to_owned();
        // The place with the slowest service: whatever the others take, it does not fit there.
        let volume = clip_volume(0, PLACES - 1);
        match self.reserve_at(serving, StreamOp::Play, &volume, name, rate, Some(block)) {
            Err(failure) if failure.kind == FailureKind::Refused => Ok(TooMuch {
                rate_bytes_per_second: rate.get(),
                answer: failure.what,
                refusal: failure.refusal.map(|refusal| *refusal),
            }),
            Err(failure) => Err(failure),
            Ok(_) => Err(Failure::bug(format!(
                "{} more streams fit than admission allows",
                Rate(rate)
            ))),
        }
    }

    /// Ends all streams, and counts what came of them.
    pub(super) fn end_streams(
        &self,
        serving: &Serving<'_>,
        streams: Streams,
    ) -> Result<Ended, Failure> {
        for recorder in &streams.recorders {
            recorder.peer.finish();
        }
        let recorders = streams.recorders.iter().map(|recorder| recorder.peer.id);
        let players = streams.players.iter().map(|player| player.id);
        let ids: Vec<u64> = recorders.chain(players).collect();
        let sessions = self.end(serving, &ids)?;
        if let Some(reason) = sessions
            .iter()
            .find_map(|session| session.stream.failed.clone())
        {
            return Err(broken(&reason));
        }
        let mut ended = Ended {
            recordings: Vec::new(),
            played_bytes: 0,
            played_different: 0,
            sessions,
        };
        for (recorder, session) in streams.recorders.into_iter().zip(&ended.sessions) {
            let Recorder { peer, volume, clip } = recorder;
            drop(peer);
            ended.recordings.push((volume, clip, session.pace.bytes));
        }
        for player in streams.players {
            let count = Arc::clone(&player.count);
            // The other end has counted everything when its thread has ended.
            drop(player);
            ended.played_bytes += count.bytes.load(Ordering::Relaxed);
            ended.played_different += count.wrong.load(Ordering::Relaxed);
        }
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_fill_what_cameras_leave() {
        let drive = Capacity {
            streams: 31,
            full: 0.98,
            empty: 0.05,
        };
        assert_eq!((drive.wanted(), drive.left(0.05)), (25, 25));
        assert_eq!(drive.left(0.05 + 6.0 * 0.03), 19);
        assert_eq!((drive.left(0.8), drive.left(0.97)), (0, 0));
    }
}
