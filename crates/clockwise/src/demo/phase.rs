//! One run of the demo under one scheduler: serve, prepare, record, play, load, measure, compare.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::front::{Client, ClientOptions};
use engine::pool::{CreateOptions, Pool};
use sched::units::{Bytes, BytesPerSecond};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::files::{self, FileLoad, Mounted, Target};
use super::media::{Clip, Peer};
use super::report::{Phase, Recording, TooMuch, refusal_text};
use super::{DRIVE, DRIVES, Interrupt};
use crate::client::ApiClient;
use crate::cmd::{Output, disk_table, latency_text};
use crate::config::Config;
use crate::disks::{self, Absent};
use crate::failure::{Failure, FailureKind, io_failure};
use crate::http::ask::{CreateVolume, PlacementAsk, ReserveStream, StreamOp};
use crate::http::view::{StatusView, VolumeView};
use crate::quantity::Rate;
use crate::server::{Server, pool_failure};
use crate::session::{Reserved, SessionView};

/// The rate of each stream: a camera of good resolution.
const RATE: BytesPerSecond = BytesPerSecond(2_000_000);

/// The block of each stream.
const BLOCK: Bytes = Bytes::from_mib(1);

/// What each playing stream plays, in a loop.
const CLIP: Bytes = Bytes::from_mib(32);

/// The volume with the file system.
const FILES: Bytes = Bytes(2_000_000_000);

/// The part of the admitted capacity that is used, in percent.
const CAPACITY_PERCENT: u64 = 80;

/// Bytes that are written and compared at a time.
const PIECE: Bytes = Bytes::from_mib(1);

/// How often the picture changes.
const PICTURE_INTERVAL: Duration = Duration::from_secs(1);

/// How long a reservation that only asks what fits may stay.
const PROBE_WAIT_MS: u64 = 60_000;

/// What all runs have in common.
pub(super) struct Stage<'a> {
    pub(super) output: &'a Output,
    pub(super) runtime: &'a Runtime,
    pub(super) interrupt: Interrupt,
    pub(super) scratch: &'a Path,
    pub(super) clips: &'a [Clip],
    pub(super) repository: Option<PathBuf>,
}

/// A finished run.
pub(super) struct Run {
    pub(super) phase: Phase,
    pub(super) warnings: Vec<String>,
}

/// A server that ends cleanly when it is dropped.
struct Serving<'a> {
    runtime: &'a Runtime,
    server: Option<Server>,
}

impl Serving<'_> {
    fn pool(&self) -> Result<&Arc<Pool>, Failure> {
        let server = self
            .server
            .as_ref()
            .ok_or_else(|| Failure::failed("the server has ended"))?;
        Ok(&server.app().pool)
    }

    fn close(&mut self) -> Result<(), Failure> {
        match self.server.take() {
            Some(server) => self.runtime.block_on(server.close()),
            None => Ok(()),
        }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.close() {
            tracing::error!("{}", failure.what);
        }
    }
}

/// Tells the file load to end, and waits for it.
struct Load<'a> {
    runtime: &'a Runtime,
    stop: watch::Sender<bool>,
    task: Option<tokio::task::JoinHandle<Result<FileLoad, Failure>>>,
}

impl Load<'_> {
    fn end(&mut self) -> Result<FileLoad, Failure> {
        self.stop.send_replace(true);
        match self.task.take() {
            Some(task) => self
                .runtime
                .block_on(task)
                .map_err(|error| Failure::failed(format!("the file load failed: {error}")))?,
            None => Err(Failure::failed("the file load has ended")),
        }
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if self.task.is_some() {
            // Its result is of no use any more; that it has ended is.
            let _ = self.end();
        }
    }
}

/// The streams of a run.
struct Streams {
    recorders: Vec<(Peer, String, Clip)>,
    players: Vec<Peer>,
}

impl<'a> Stage<'a> {
    /// The configuration of a run.
    fn config(&self, scheduler: &str) -> Result<Config, Failure> {
        let mut text = format!(
            "[server]\napi = \"api.sock\"\n[nbd]\nunix = \"nbd.sock\"\n[pool]\nname = \"demo\"\n\
             [scheduler]\npolicy = \"{scheduler}\"\n"
        );
        for drive in 0..DRIVES {
            text += &format!(
                "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"{DRIVE}\"\nprofile = \"{DRIVE}\"\n"
            );
        }
        let file = self.scratch.join("clockwise.toml");
        std::fs::write(&file, text).map_err(|error| io_failure("write", &file, &error))?;
        Config::read(&file)
    }

    /// Makes the drives and the pool on them.
    pub(super) fn make_pool(&self) -> Result<(), Failure> {
        let config = self.config("exact")?;
        let opened = disks::open(&config, Absent::Make)?;
        let options = CreateOptions {
            name: config.open.name.clone(),
            ..CreateOptions::default()
        };
        Pool::create(&opened.memory, opened.disks, &options).map_err(pool_failure)
    }

    fn get<T: DeserializeOwned>(&self, client: &ApiClient, path: &str) -> Result<T, Failure> {
        self.runtime.block_on(client.get(path))
    }

    /// Everything of one scheduler, from the start of the server to its end.
    pub(super) fn run(
        &mut self,
        scheduler: &str,
        seconds: u64,
        is_first: bool,
    ) -> Result<Run, Failure> {
        self.interrupt.check()?;
        let config = self.config(scheduler)?;
        let server = self.runtime.block_on(Server::start(&config))?;
        let mut serving = Serving {
            runtime: self.runtime,
            server: Some(server),
        };
        let client = ApiClient::new(&config.api);
        if is_first {
            self.make_volumes(&client, serving.pool()?)?;
        }
        let capacity = self.capacity(&client)?;
        let uri = format!(
            "nbd+unix:///files?socket={}",
            self.scratch.join("nbd.sock").display()
        );
        let mounted = match &self.repository {
            Some(_) => Some(Mounted::new(self.scratch, &uri, is_first)?),
            None => None,
        };
        self.interrupt.check()?;
        let recordings = format!("camera-{scheduler}");
        self.make_recordings(&client, serving.pool()?, &recordings, seconds)?;
        let streams = self.start_streams(&client, &recordings, capacity)?;
        let too_much = self.ask_too_much(&client, capacity)?;
        self.output.note(&refusal_text(&too_much));
        let target = match (&mounted, &self.repository) {
            (Some(mounted), Some(repository)) => Target::FileSystem {
                folder: mounted.folder().to_owned(),
                repository: repository.clone(),
            },
            _ => Target::Export {
                uri,
                scratch: self.scratch.to_owned(),
            },
        };
        let mut load = self.start_load(target, seconds);
        let measured = self.measure(&client, &streams, seconds, &too_much)?;
        let file_load = load.end()?;
        drop(load);
        let phase = self.finish(
            &client,
            serving.pool()?,
            streams,
            measured,
            file_load,
            capacity,
            too_much,
        )?;
        drop(mounted);
        let warnings = self.get::<StatusView>(&client, "/v1/status")?.warnings;
        serving.close()?;
        Ok(Run { phase, warnings })
    }

    fn make_volume(
        &self,
        client: &ApiClient,
        name: &str,
        size: Bytes,
        disk: Option<&str>,
    ) -> Result<(), Failure> {
        let ask = CreateVolume {
            name: name.to_owned(),
            size_bytes: size.get(),
            placement: PlacementAsk {
                disks: disk.map(str::to_owned).into_iter().collect(),
                ..PlacementAsk::default()
            },
        };
        self.runtime
            .block_on(client.post::<_, VolumeView>("/v1/volumes", &ask))
            .map(drop)
    }

    /// The file system's volume, on all drives, and the clips', one on each.
    fn make_volumes(&self, client: &ApiClient, pool: &Arc<Pool>) -> Result<(), Failure> {
        self.output
            .note("Making volumes, and recording the clips to be played ...");
        self.make_volume(client, "files", FILES, None)?;
        let disks: Vec<String> = pool
            .status()
            .disks
            .into_iter()
            .map(|disk| disk.name)
            .collect();
        for (drive, disk) in disks.iter().enumerate() {
            self.make_volume(client, &format!("clips-{drive}"), CLIP, Some(disk))?;
        }
        let filled = std::thread::scope(|scope| {
            let fills: Vec<_> = (0..DRIVES)
                .map(|drive| {
                    let clip = &self.clips[drive % self.clips.len()];
                    scope.spawn(move || self.fill(pool, &format!("clips-{drive}"), clip))
                })
                .collect();
            fills
                .into_iter()
                .map(|fill| fill.join())
                .collect::<Vec<_>>()
        });
        for result in filled {
            result.map_err(|_| Failure::failed("recording a clip failed"))??;
        }
        Ok(())
    }

    fn pool_client(pool: &Pool, name: &str) -> Result<Client, Failure> {
        pool.client(name, ClientOptions::default())
            .map_err(|error| Failure::failed(error.to_string()))
    }

    /// Writes the looped clip to a volume, best effort.
    fn fill(&self, pool: &Arc<Pool>, volume: &str, clip: &Clip) -> Result<(), Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::failed(format!("recording {volume}: {error}"));
        let client = Self::pool_client(pool, "demo")?;
        let open = pool.open_volume(volume).map_err(|error| failed(&error))?;
        let content = clip.looped(CLIP.get() as usize);
        for (index, piece) in content.chunks(PIECE.get() as usize).enumerate() {
            self.interrupt.check()?;
            client
                .write_at(&open, Bytes(index as u64 * PIECE.get()), piece)
                .map_err(|error| failed(&error))?;
        }
        client.flush(&open).map_err(|error| failed(&error))
    }

    /// A volume for each clip that is to be recorded, each on a drive of its own.
    fn make_recordings(
        &self,
        client: &ApiClient,
        pool: &Arc<Pool>,
        name: &str,
        seconds: u64,
    ) -> Result<(), Failure> {
        let disks: Vec<String> = pool
            .status()
            .disks
            .into_iter()
            .map(|disk| disk.name)
            .collect();
        // What is recorded while other streams start and the picture is taken down comes on top.
        let size = Bytes(
            RATE.get()
                .saturating_mul(seconds.saturating_mul(2).saturating_add(60)),
        );
        for number in 0..self.clips.len() {
            self.make_volume(
                client,
                &format!("{name}-{number}"),
                size,
                Some(&disks[number % disks.len()]),
            )?;
        }
        Ok(())
    }

    fn reserve(
        &self,
        client: &ApiClient,
        op: StreamOp,
        volume: &str,
        name: String,
        rate: BytesPerSecond,
    ) -> Result<Reserved, Failure> {
        let ask = ReserveStream {
            name: Some(name),
            volume: volume.to_owned(),
            op,
            rate_bytes_per_second: rate.get(),
            block_bytes: Some(BLOCK.get()),
            offset_bytes: 0,
            length_bytes: (op == StreamOp::Play).then_some(CLIP.get()),
            limit_bytes: None,
            wraps: op == StreamOp::Play,
            connect_within_ms: Some(PROBE_WAIT_MS),
        };
        self.runtime.block_on(client.post("/v1/streams", &ask))
    }

    fn end(&self, client: &ApiClient, id: u64) -> Result<SessionView, Failure> {
        self.runtime
            .block_on(client.delete(&format!("/v1/streams/{id}")))
    }

    /// How many streams each drive admits, found by asking until it refuses.
    fn capacity(&self, client: &ApiClient) -> Result<u64, Failure> {
        let mut reserved = Vec::new();
        let mut total = 0;
        for drive in 0..DRIVES {
            loop {
                let name = format!("probe-{}", reserved.len());
                match self.reserve(
                    client,
                    StreamOp::Play,
                    &format!("clips-{drive}"),
                    name,
                    RATE,
                ) {
                    Ok(stream) => reserved.push(stream.id),
                    Err(failure) if failure.kind == FailureKind::Refused => break,
                    Err(failure) => return Err(failure),
                }
            }
            total += reserved.len() as u64;
            for id in reserved.drain(..) {
                self.end(client, id)?;
            }
        }
        if total < DRIVES as u64 {
            return Err(Failure::failed("the drives carry no stream at all")
                .help("is their profile the right one?"));
        }
        Ok(total)
    }

    fn start_streams(
        &self,
        client: &ApiClient,
        recordings: &str,
        capacity: u64,
    ) -> Result<Streams, Failure> {
        let wanted = (capacity * CAPACITY_PERCENT / 100).max(self.clips.len() as u64) as usize;
        self.output.note(&format!(
            "Admission allows {capacity} streams of {}; {wanted} of them run, {} recording.",
            Rate(RATE),
            self.clips.len()
        ));
        let mut streams = Streams {
            recorders: Vec::new(),
            players: Vec::new(),
        };
        for (number, clip) in self.clips.iter().enumerate() {
            let volume = format!("{recordings}-{number}");
            let reserved = self.reserve(
                client,
                StreamOp::Record,
                &volume,
                format!("record {}", clip.name),
                RATE,
            )?;
            streams
                .recorders
                .push((Peer::record(&reserved, clip)?, volume, clip.clone()));
        }
        for number in self.clips.len()..wanted {
            self.interrupt.check()?;
            let drive = number % DRIVES;
            let clip = &self.clips[drive % self.clips.len()];
            let name = format!("play {} {number}", clip.name);
            let reserved = self.reserve(
                client,
                StreamOp::Play,
                &format!("clips-{drive}"),
                name,
                RATE,
            )?;
            streams
                .players
                .push(Peer::play(&reserved, clip, CLIP.get())?);
        }
        Ok(streams)
    }

    /// Asks for more than what is left of a drive.
    fn ask_too_much(&self, client: &ApiClient, capacity: u64) -> Result<TooMuch, Failure> {
        let left = capacity - capacity * CAPACITY_PERCENT / 100;
        let rate = BytesPerSecond(RATE.get() * (left + 1));
        match self.reserve(
            client,
            StreamOp::Play,
            "clips-0",
            "one too many".to_owned(),
            rate,
        ) {
            Err(failure) if failure.kind == FailureKind::Refused => Ok(TooMuch {
                rate_bytes_per_second: rate.get(),
                answer: failure.what,
                refusal: failure.refusal.map(|refusal| *refusal),
            }),
            Err(failure) => Err(failure),
            Ok(_) => Err(Failure::failed(format!(
                "{} more fit, though admission said less",
                Rate(rate)
            ))),
        }
    }

    fn start_load(&self, target: Target, seconds: u64) -> Load<'a> {
        let (stop, stopped) = watch::channel(false);
        let task = self.runtime.spawn(files::load(target, seconds, stopped));
        Load {
            runtime: self.runtime,
            stop,
            task: Some(task),
        }
    }

    /// Shows the picture until the time is over.
    fn measure(
        &mut self,
        client: &ApiClient,
        streams: &Streams,
        seconds: u64,
        too_much: &TooMuch,
    ) -> Result<Measured, Failure> {
        let begun = Instant::now();
        let before = streams.bytes();
        let mut status: StatusView = self.runtime.block_on(client.post("/v1/window", &()))?;
        let end = Duration::from_secs(seconds);
        while begun.elapsed() < end {
            let left = end.saturating_sub(begun.elapsed()).min(PICTURE_INTERVAL);
            self.interrupt.wait(self.runtime, left)?;
            status = self.get(client, "/v1/status")?;
            self.output
                .picture(|| picture(&status, begun.elapsed(), seconds, too_much));
        }
        let elapsed = begun.elapsed().as_secs_f64();
        Ok(Measured {
            status,
            seconds: elapsed,
            rate: (streams.bytes() - before) as f64 / elapsed,
        })
    }

    /// Ends the streams, compares what they recorded and played.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the report")]
    fn finish(
        &self,
        client: &ApiClient,
        pool: &Arc<Pool>,
        streams: Streams,
        measured: Measured,
        file_load: FileLoad,
        capacity: u64,
        too_much: TooMuch,
    ) -> Result<Phase, Failure> {
        let mut sessions = Vec::new();
        let (mut played_bytes, mut played_different) = (0, 0);
        let promised = RATE.get() * (streams.recorders.len() + streams.players.len()) as u64;
        let (recorded, played) = (streams.recorders.len() as u64, streams.players.len() as u64);
        for player in streams.players {
            sessions.push(self.end(client, player.id)?);
            let count = Arc::clone(&player.count);
            drop(player);
            played_bytes += count.bytes.load(Ordering::Relaxed);
            played_different += count.wrong.load(Ordering::Relaxed);
        }
        let mut recordings = Vec::new();
        for (recorder, volume, clip) in streams.recorders {
            recorder.finish();
            let session = self.end(client, recorder.id)?;
            drop(recorder);
            let bytes = session.pace.bytes;
            sessions.push(session);
            let different = self.compare(pool, &volume, &clip, bytes)?;
            recordings.push(Recording {
                volume,
                bytes,
                different,
            });
        }
        if let Some(reason) = sessions
            .iter()
            .find_map(|session| session.stream.failed.clone())
        {
            return Err(Failure::failed(format!("a stream broke: {reason}")));
        }
        let sum = |value: fn(&SessionView) -> u64| sessions.iter().map(value).sum();
        let max = |value: fn(&SessionView) -> u64| sessions.iter().map(value).max().unwrap_or(0);
        Ok(Phase {
            scheduler: measured.status.scheduler.clone(),
            seconds: measured.seconds,
            recorded,
            played,
            capacity,
            promised_bytes_per_second: promised,
            measured_bytes_per_second: measured.rate,
            blocks: sum(|session| session.stream.blocks),
            misses: sum(|session| session.stream.misses),
            late_net_max_ns: max(|session| session.stream.late_net_max_ns),
            late_max_ns: max(|session| session.stream.late_max_ns),
            early: sum(|session| session.stream.early),
            overruns: measured.status.disks.iter().map(|disk| disk.overruns).sum(),
            best_effort: measured.status.best_effort,
            disks: measured.status.disks,
            file_load,
            too_much,
            recordings,
            played_bytes,
            played_different,
        })
    }

    /// Reads a recording back, best effort, and counts the bytes that are not those of the clip.
    fn compare(
        &self,
        pool: &Arc<Pool>,
        volume: &str,
        clip: &Clip,
        len: u64,
    ) -> Result<u64, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::failed(format!("reading {volume}: {error}"));
        let client = Self::pool_client(pool, "demo")?;
        let open = pool.open_volume(volume).map_err(|error| failed(&error))?;
        let mut piece = vec![0; PIECE.get() as usize];
        let mut different = 0;
        let mut offset = 0;
        while offset < len {
            self.interrupt.check()?;
            client
                .read_at(&open, Bytes(offset), &mut piece)
                .map_err(|error| failed(&error))?;
            let some = (len - offset).min(PIECE.get()) as usize;
            different += clip.differences(u64::MAX, offset, &piece[..some]);
            offset += PIECE.get();
        }
        Ok(different)
    }
}

/// What the run measured while it ran.
struct Measured {
    status: StatusView,
    seconds: f64,
    rate: f64,
}

impl Streams {
    fn bytes(&self) -> u64 {
        let recorders = self.recorders.iter().map(|(peer, ..)| peer);
        recorders
            .chain(&self.players)
            .map(|peer| peer.count.bytes.load(Ordering::Relaxed))
            .sum()
    }
}

fn picture(status: &StatusView, elapsed: Duration, seconds: u64, too_much: &TooMuch) -> String {
    let blocks: u64 = status.streams.iter().map(|stream| stream.blocks).sum();
    let misses: u64 = status.streams.iter().map(|stream| stream.misses).sum();
    let rate: u64 = status
        .streams
        .iter()
        .map(|stream| stream.rate_bytes_per_second)
        .sum();
    format!(
        "scheduler {}   {:.0} of {seconds} s   {} streams, {} promised\n\n{}\n\n\
         blocks {blocks}   deadlines missed {misses}\nbest effort: {}\n\n{}",
        status.scheduler,
        elapsed.as_secs_f64(),
        status.streams.len(),
        Rate(BytesPerSecond(rate)),
        disk_table(status),
        latency_text(&status.best_effort),
        refusal_text(too_much),
    )
}
