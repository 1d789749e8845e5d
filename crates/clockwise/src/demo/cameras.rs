//! The demo's cameras: ffmpeg publishes the clips over RTSP in a loop, and plays what it publishes while that is recorded.
//!
//! A camera and its player hold reservations like the other streams, and take about as much of a drive as one of those.
//! At the end each frame that was played, and each that was recorded, is compared with the clip's.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sched::units::Bytes;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::plan::{CAMERA_BYTES, DRIVES, RECORDINGS_AT};
use super::process::{End, Ending, Ends, is_there, run_until};
use super::stage::{Serving, Stage};
use crate::failure::{Failure, io_failure};
use crate::http::recordings::RecordingView;
use crate::http::view::StatusView;

/// How long a camera may take until its first block is on the drives, and a player until it shows something.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// How often is looked whether they have.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The last frames may not have come whole when a program is ended.
const CUT_SHORT: usize = 4;

/// What came of the cameras.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Filmed {
    /// Blocks that were recorded and played while it was measured.
    pub blocks: u64,
    /// Of these, later than promised, net of the host's own lateness.
    pub misses: u64,
    /// Frames that were recorded.
    pub recorded_frames: u64,
    /// Frames of these that are not those that were published.
    pub recorded_different: u64,
    /// Frames that were played.
    pub played_frames: u64,
    /// Frames of these that are not those that were published.
    pub played_different: u64,
}

impl Filmed {
    /// The same, with how its blocks fared.
    pub(super) fn with_blocks(self, status: &StatusView) -> Self {
        let streams = || {
            status
                .streams
                .iter()
                .filter(|of| of.volume.starts_with(VOLUMES))
        };
        Self {
            blocks: streams().map(|of| of.blocks).sum(),
            misses: streams().map(|of| of.misses).sum(),
            ..self
        }
    }

    /// Frames that are not what they should be.
    pub(super) fn different(&self) -> u64 {
        self.recorded_different + self.played_different
    }
}

/// What the volumes of cameras begin with.
const VOLUMES: &str = "rtsp-";

/// The volume of a camera.
fn volume(scheduler: &str, number: usize) -> String {
    format!("{VOLUMES}{number}-{scheduler}")
}

/// A program that runs until it is told to end, which it is at the latest when this is dropped.
struct Program {
    runtime: Handle,
    ending: watch::Sender<Ending>,
    task: Option<JoinHandle<Result<End, Failure>>>,
}

impl Program {
    fn is_over(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// How it ended, when it has.
    fn wait(&mut self) -> Result<(), Failure> {
        match self.task.take().map(|task| self.runtime.block_on(task)) {
            None | Some(Ok(Ok(_))) => Ok(()),
            Some(Ok(Err(failure))) => Err(failure),
            Some(Err(error)) => Err(Failure::bug(format!("a program was lost: {error}"))),
        }
    }

    /// Ends it, and waits until it has.
    fn end(mut self) -> Result<(), Failure> {
        self.ending.send_replace(Ending::AtOnce);
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.ending.send_replace(Ending::AtOnce);
        // Its result is of no use any more; that it has ended is.
        let _ = self.wait();
    }
}

/// A camera, and who plays what it records.
struct Camera {
    volume: String,
    publisher: Program,
    player: Program,
    /// Sums of the frames that were played.
    shown: PathBuf,
    clip: PathBuf,
}

/// The cameras of a run. Dropping them tells the programs to end, and they do.
pub(super) struct Cameras {
    cameras: Vec<Camera>,
}

impl Cameras {
    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.cameras.len() as u64
    }
}

/// How ffmpeg is called.
const QUIET: [&str; 5] = ["-nostdin", "-hide_banner", "-loglevel", "error", "-y"];

/// What makes it print a sum of each frame.
const SUMS: [&str; 8] = [
    "-map",
    "0:v:0",
    "-fps_mode",
    "passthrough",
    "-flush_packets",
    "1",
    "-f",
    "framemd5",
];

impl Stage<'_> {
    /// Whether there are to be cameras: ffmpeg, and clips that are video.
    pub(super) fn has_cameras(&self) -> bool {
        self.is_video && is_there("ffmpeg")
    }

    fn program(&self, arguments: Vec<String>) -> Program {
        let (ending, mut told) = watch::channel(Ending::NotYet);
        let folder = self.scratch.to_owned();
        let runtime = self.runtime.handle().clone();
        let task = runtime.spawn(async move {
            run_until("ffmpeg", arguments, &folder, Ends::WhenTold, &mut told).await
        });
        Program {
            runtime,
            ending,
            task: Some(task),
        }
    }

    /// Waits until something is so; a program that has ended by then says why.
    fn until(
        &self,
        what: &str,
        program: &mut Program,
        is_so: impl Fn() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        while !is_so()? {
            if program.is_over() {
                program.wait()?;
                return Err(Failure::failed(format!("ffmpeg ended before {what}"))
                    .help("run the demo with --keep to look at what it worked on"));
            }
            if begun.elapsed() > BEGINS_WITHIN {
                return Err(
                    Failure::failed(format!("{what} took more than {BEGINS_WITHIN:?}"))
                        .help("this machine is too slow for the demo, or very busy"),
                );
            }
            self.interrupt.wait(self.runtime, LOOK_INTERVAL)?;
        }
        Ok(())
    }

    /// Begins to publish the clips, each to a volume on a drive of its own, and to play what is recorded of them.
    pub(super) fn start_cameras(
        &self,
        serving: &Serving<'_>,
        scheduler: &str,
    ) -> Result<Option<Cameras>, Failure> {
        let Some(address) = serving.rtsp().filter(|_| self.has_cameras()) else {
            return Ok(None);
        };
        let drives = serving.drives();
        let text = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let mut publishing = Vec::new();
        for (number, clip) in self.clips.iter().enumerate() {
            let volume = volume(scheduler, number);
            // Behind what the other recordings need.
            let from = Bytes(RECORDINGS_AT.get() + super::plan::PLACE_STEP.get() / 4);
            let disk = std::slice::from_ref(&drives[number % DRIVES]);
            serving.make_volume(&volume, CAMERA_BYTES, disk, from)?;
            let url = format!("rtsp://{address}/{volume}");
            let path = clip.path.display().to_string();
            let again = [
                "-re",
                "-stream_loop",
                "-1",
                "-i",
                &path,
                "-map",
                "0:v:0",
                "-c",
                "copy",
            ];
            let to = ["-f", "rtsp", "-rtsp_transport", "tcp", &url];
            let program = self.program([text(&QUIET), text(&again), text(&to)].concat());
            publishing.push((volume, url, program, clip.path.clone()));
        }
        let mut cameras = Vec::new();
        for (number, (volume, url, mut publisher, clip)) in publishing.into_iter().enumerate() {
            let listed = format!("/v1/volumes/{volume}/recordings");
            self.until("a camera is recorded", &mut publisher, || {
                let recordings: Vec<RecordingView> = serving.get(&listed)?;
                Ok(recordings.first().is_some_and(|of| of.blocks > 0))
            })?;
            let shown = self.scratch.join(format!("shown-{number}-{scheduler}"));
            let path = shown.display().to_string();
            let url = format!("{url}/1");
            let from = ["-rtsp_transport", "tcp", "-i", &url];
            let arguments = [text(&QUIET), text(&from), text(&SUMS), text(&[&path])].concat();
            let player = self.program(arguments);
            cameras.push(Camera {
                volume,
                publisher,
                player,
                shown,
                clip,
            });
        }
        for camera in &mut cameras {
            let shown = camera.shown.clone();
            self.until("a player plays", &mut camera.player, || {
                Ok(!sums_in(&shown)?.is_empty())
            })?;
        }
        Ok(Some(Cameras { cameras }))
    }

    /// Ends the cameras and compares what was played and what was recorded.
    pub(super) fn end_cameras(
        &self,
        serving: &Serving<'_>,
        cameras: Cameras,
    ) -> Result<Filmed, Failure> {
        let mut filmed = Filmed::default();
        for camera in cameras.cameras {
            let Camera {
                volume,
                publisher,
                player,
                shown,
                clip,
            } = camera;
            publisher.end()?;
            player.end()?;
            self.interrupt.check()?;
            let wanted = self.sums_of(&clip, &format!("{volume}.clip"))?;
            let (frames, different) = compared(&sums_in(&shown)?, &wanted);
            filmed.played_frames += frames;
            filmed.played_different += different;
            let file = self.export(serving, &volume)?;
            let (frames, different) =
                compared(&self.sums_of(&file, &format!("{volume}.sums"))?, &wanted);
            filmed.recorded_frames += frames;
            filmed.recorded_different += different;
        }
        Ok(filmed)
    }

    /// What a camera recorded, as a file.
    fn export(&self, serving: &Serving<'_>, volume: &str) -> Result<PathBuf, Failure> {
        let path = self.scratch.join(format!("{volume}.mp4"));
        let failed = |error: std::io::Error| io_failure("write", &path, &error);
        let mut file = std::fs::File::create(&path).map_err(failed)?;
        let recorded = format!("/media/{volume}/1/recording.mp4?stream=true");
        let download = serving.api.download(&recorded, |bytes| {
            std::io::Write::write_all(&mut file, bytes).map_err(failed)
        });
        self.runtime.block_on(download)?;
        Ok(path)
    }

    /// The sums of all frames of a file.
    fn sums_of(&self, file: &Path, name: &str) -> Result<Vec<String>, Failure> {
        let to = self.scratch.join(name);
        let (from, path) = (file.display().to_string(), to.display().to_string());
        let words = [&QUIET[..], &["-i", &from], &SUMS, &[&path]].concat();
        let arguments: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let mut ending = self.interrupt.as_ending();
        let run = run_until(
            "ffmpeg",
            arguments,
            self.scratch,
            Ends::WhenTold,
            &mut ending,
        );
        self.runtime.block_on(run)?;
        self.interrupt.check()?;
        sums_in(&to)
    }
}

/// The sums that ffmpeg has written to a file; none if it has not begun.
fn sums_in(file: &Path) -> Result<Vec<String>, Failure> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| io_failure("read", file, &error))?,
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sums = lines.filter_map(|line| line.split(',').nth(5));
    Ok(sums.map(|sum| sum.trim().to_owned()).collect())
}

/// How many frames there are but for the last, and how many of these are not those of the clip in a loop.
fn compared(got: &[String], clip: &[String]) -> (u64, u64) {
    let got = &got[..got.len().saturating_sub(CUT_SHORT)];
    let wanted = clip.iter().cycle();
    let different = got.iter().zip(wanted).filter(|(got, wanted)| got != wanted);
    let different = match clip {
        [] => got.len(),
        _ => different.count(),
    };
    (got.len() as u64, different as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_compared_with_those_of_the_clip_in_a_loop() {
        let of = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
        assert_eq!(compared(&of("abcabcabca"), &of("abc")), (6, 0));
        assert_eq!(compared(&of("abxabcabca"), &of("abc")), (6, 1));
        assert_eq!(compared(&of("abcab"), &[]), (1, 1));
        assert_eq!(compared(&[], &of("abc")), (0, 0));
    }
}
