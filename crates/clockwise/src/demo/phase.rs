//! One run of the demo under one scheduler: serve, prepare, record, play, load, measure, compare.

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::files::{self, FileLoad, Target};
use super::measure::Measured;
use super::mount::Mounted;
use super::plan::RATE;
use super::report::{Phase, Promise, Recording, TooMuch};
use super::stage::{Serving, Stage};
use super::streams::Ended;
use super::text::refusal_text;
use super::volumes::{DESKS_VOLUME, FILES_VOLUME};
use crate::failure::Failure;
use crate::http::view::StatusView;
use crate::session::SessionView;

/// A finished run.
pub(super) struct Run {
    pub(super) phase: Phase,
    pub(super) warnings: Vec<String>,
}

/// Tells the file load to end, and waits for it.
struct Load<'a> {
    runtime: &'a Runtime,
    stop: watch::Sender<bool>,
    task: Option<tokio::task::JoinHandle<Result<FileLoad, Failure>>>,
}

impl<'a> Load<'a> {
    fn start(runtime: &'a Runtime, target: Target, seconds: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self {
            runtime,
            stop,
            task: Some(runtime.spawn(files::load(target, seconds, stopped))),
        }
    }

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

impl Stage<'_> {
    /// Everything of one scheduler, from the start of the server to its end.
    pub(super) fn run(
        &self,
        scheduler: &str,
        seconds: u64,
        is_first: bool,
    ) -> Result<Run, Failure> {
        let mut serving = self.serve(scheduler)?;
        if is_first {
            self.make_volumes(&serving)?;
        }
        let capacity = self.capacity(&serving)?;
        let (mounted, target) = self.make_files(is_first)?;
        self.make_recordings(&serving, scheduler, seconds)?;
        let streams = self.start_streams(&serving, scheduler, &capacity)?;
        let promise = Promise {
            recorded: streams.recorded(),
            played: streams.played(),
            capacity: capacity.iter().sum(),
        };
        self.output.note(&promise.text());
        let too_much = self.ask_too_much(&serving, &capacity, streams.block())?;
        self.output.note(&refusal_text(&too_much));
        let mut load = Load::start(self.runtime, target, seconds);
        let measured = self.measure(&serving, &streams, seconds, &too_much)?;
        let file_load = load.end()?;
        drop(load);
        let ended = self.end_streams(&serving, streams)?;
        let recordings = self.compare_all(&serving, &ended)?;
        drop(mounted);
        let warnings = serving.get::<StatusView>("/v1/status")?.warnings;
        serving.close()?;
        let phase = concluded(promise, measured, &ended, recordings, file_load, too_much);
        Ok(Run { phase, warnings })
    }

    /// What the file load works on, and the mount that it needs.
    fn make_files(&self, is_first: bool) -> Result<(Option<Mounted>, Target), Failure> {
        let mounted = match &self.repository {
            Some(_) => Some(Mounted::new(
                self.scratch,
                &self.uri(FILES_VOLUME),
                is_first,
            )?),
            None => None,
        };
        let folder = mounted.as_ref().map(|mounted| mounted.folder().to_owned());
        let target = Target {
            uri: self.uri(DESKS_VOLUME),
            scratch: self.scratch.to_owned(),
            files: folder.zip(self.repository.clone()),
        };
        self.interrupt.check()?;
        if is_first {
            self.runtime
                .block_on(files::prepare(&target, self.interrupt.as_stop()))?;
            self.interrupt.check()?;
        }
        Ok((mounted, target))
    }

    /// Reads all recordings back.
    fn compare_all(&self, serving: &Serving<'_>, ended: &Ended) -> Result<Vec<Recording>, Failure> {
        let total = ended.recordings.iter().map(|(_, _, bytes)| bytes).sum();
        let bar = self
            .output
            .byte_progress(Some(total), "comparing recordings");
        let compared = ended
            .recordings
            .iter()
            .map(|(volume, clip, bytes)| {
                Ok(Recording {
                    volume: volume.clone(),
                    bytes: *bytes,
                    different: self.compare(serving, volume, clip, *bytes, &bar)?,
                })
            })
            .collect();
        bar.finish_and_clear();
        compared
    }
}

/// All that is known of a run at its end.
fn concluded(
    promise: Promise,
    measured: Measured,
    ended: &Ended,
    recordings: Vec<Recording>,
    file_load: FileLoad,
    too_much: TooMuch,
) -> Phase {
    let sum = |value: fn(&SessionView) -> u64| ended.sessions.iter().map(value).sum();
    let max = |value: fn(&SessionView) -> u64| ended.sessions.iter().map(value).max().unwrap_or(0);
    let status = measured.status;
    Phase {
        scheduler: status.scheduler,
        seconds: measured.seconds,
        promised_bytes_per_second: RATE.get() * (promise.recorded + promise.played),
        promise,
        measured_bytes_per_second: measured.rate,
        block_bytes: max(|session| session.stream.block_bytes),
        blocks: sum(|session| session.stream.blocks),
        misses: sum(|session| session.stream.misses),
        late_net_max_ns: max(|session| session.stream.late_net_max_ns),
        late_max_ns: max(|session| session.stream.late_max_ns),
        overruns: status.disks.iter().map(|disk| disk.overruns).sum(),
        best_effort: status.best_effort,
        disks: status.disks,
        file_load,
        too_much,
        recordings,
        played_bytes: ended.played_bytes,
        played_different: ended.played_different,
    }
}
