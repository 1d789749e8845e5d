//! One run of the demo under one scheduler: serve, prepare, record, play, load, measure, compare.

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::cameras::{Cameras, is_filmed};
use super::files::{self, FileLoad, Target};
use super::interrupt::Interrupt;
use super::measure::Measured;
use super::mount::Mounted;
use super::plan::RATE;
use super::process::{Ending, told_to_end};
use super::report::{Phase, Promise, Recording, TooMuch};
use super::stage::{Serving, Stage};
use super::streams::Ended;
use super::text::refusal_text;
use super::volumes::{DESKS_VOLUME, FILES_VOLUME};
use crate::failure::Failure;
use crate::wire::view::{StatusView, StreamView, WarningView};

/// A finished run.
pub(super) struct Run {
    pub(super) phase: Phase,
    pub(super) warnings: Vec<WarningView>,
}

/// Tells the file load to end, and waits for it.
struct Load<'a> {
    runtime: &'a Runtime,
    ending: watch::Sender<Ending>,
    task: Option<tokio::task::JoinHandle<Result<FileLoad, Failure>>>,
}

impl<'a> Load<'a> {
    fn start(runtime: &'a Runtime, target: Target, seconds: u64) -> Self {
        let (ending, ended) = watch::channel(Ending::NotYet);
        Self {
            runtime,
            ending,
            task: Some(runtime.spawn(files::load(target, seconds, ended))),
        }
    }

    /// Ends it with what it has to say, unless somebody wants it to be gone.
    fn end(mut self, interrupt: &Interrupt) -> Result<FileLoad, Failure> {
        self.ending.send_replace(Ending::WithReport);
        let Some(mut task) = self.task.take() else {
            return Err(Failure::bug("the file load has ended"));
        };
        let mut interrupted = interrupt.as_ending();
        let result = self.runtime.block_on(async {
            tokio::select! {
                result = &mut task => result,
                () = told_to_end(&mut interrupted) => {
                    self.ending.send_replace(Ending::AtOnce);
                    task.await
                }
            }
        });
        interrupt.check()?;
        result.map_err(|error| Failure::bug(format!("the file load failed: {error}")))?
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.ending.send_replace(Ending::AtOnce);
        if let Some(task) = self.task.take() {
            // Its result is of no use any more; that it has ended is.
            let _ = self.runtime.block_on(task);
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
        } else {
            let text = format!("The same with scheduler {scheduler}, for {seconds} s ...");
            self.output.note(&text);
        }
        let output = self.output;
        let capacity = output.step("Asking admission how many streams fit", || {
            self.capacity(&serving)
        })?;
        let (mounted, target) =
            output.step("Preparing the file load", || self.make_files(is_first))?;
        self.make_recordings(&serving, scheduler, seconds)?;
        let cameras = match self.has_cameras() {
            true => output.step(
                "Starting cameras: ffmpeg publishes over RTSP, and plays the recordings",
                || self.start_cameras(&serving, scheduler, seconds),
            )?,
            false => None,
        };
        let filming = cameras.as_ref().map_or(0, Cameras::count);
        let streams = output.step("Starting the streams", || {
            self.start_streams(&serving, scheduler, &capacity)
        })?;
        let promise = Promise {
            recorded: streams.recorded(),
            played: streams.played(),
            cameras: filming,
            capacity: capacity.iter().map(|of| of.streams).sum(),
        };
        let too_much = self.ask_too_much(&serving, &capacity, streams.block())?;
        if is_first {
            output.note(&promise.text());
            output.note(&refusal_text(&too_much));
        }
        let load = Load::start(self.runtime, target, seconds);
        let measured = self.measure(&serving, &streams, seconds, &too_much)?;
        let file_load = load.end(&self.interrupt)?;
        let place = is_first.then(|| self.fail_place(&serving, &streams, &measured.status));
        let place = place.transpose()?;
        let ended = self.end_streams(&serving, streams)?;
        let recordings = self.compare_all(&serving, &ended)?;
        let filmed = cameras.map(|cameras| self.end_cameras(&serving, cameras));
        let filmed = filmed.transpose()?;
        let filmed = filmed.map(|filmed| filmed.with_blocks(&measured.status));
        drop(mounted);
        let warnings = serving.get::<StatusView>("/v1/status")?.warnings;
        serving.close()?;
        let phase = Phase {
            filmed,
            failing_place: place
                .map(|place| place.with_streams(&measured.status, &ended, &recordings)),
            ..concluded(promise, measured, &ended, recordings, file_load, too_much)
        };
        Ok(Run { phase, warnings })
    }

    /// Makes the targets of the file load, and the mount that it needs.
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
                .block_on(files::prepare(&target, self.interrupt.as_ending()))?;
            self.interrupt.check()?;
        }
        Ok((mounted, target))
    }

    /// Reads all recordings back.
    fn compare_all(&self, serving: &Serving<'_>, ended: &Ended) -> Result<Vec<Recording>, Failure> {
        self.output.note("Comparing the recordings ...");
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
    let status = measured.status;
    let streams = || status.streams.iter().filter(|of| !is_filmed(of));
    let sum = |value: fn(&StreamView) -> u64| streams().map(value).sum();
    let max = |value: fn(&StreamView) -> u64| streams().map(value).max().unwrap_or(0);
    Phase {
        scheduler: status.scheduler,
        seconds: measured.seconds,
        promised_bytes_per_second: RATE.get() * (promise.recorded + promise.played),
        promise,
        measured_bytes_per_second: measured.rate,
        block_bytes: max(|of| of.block_bytes),
        blocks: sum(|of| of.blocks),
        misses: sum(|of| of.misses),
        misses_gross: sum(|of| of.misses_gross),
        late_net_max_ns: max(|of| of.late_net_max_ns),
        late_max_ns: max(|of| of.late_max_ns),
        overruns: status.disks.iter().map(|disk| disk.overruns).sum(),
        best_effort: status.best_effort,
        disks: status.disks,
        file_load,
        too_much,
        recordings,
        filmed: None,
        failing_place: None,
        played_bytes: ended.played_bytes,
        played_different: ended.played_different,
    }
}
