//! The demo's cameras: ffmpeg publishes the clips over RTSP in a loop, and plays what it publishes while that
//! is recorded.
//!
//! Cameras and players hold reservations like the other streams, which fill what they leave of the drives. At
//! the end each frame that was played, and each that was recorded, is compared with the clip's, as it is
//! encoded: two processors could not decode them all while they emulate drives.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sched::units::Bytes;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::plan::{CAMERAS_PER_DRIVE, DRIVES, RECORDINGS_AT, camera_bytes};
use super::process::{End, Ending, Ends, is_there, run_until};
use super::stage::{Serving, Stage};
use crate::client::ApiClient;
use crate::failure::{Failure, io_failure};
use crate::wire::recordings::RecordingView;
use crate::wire::view::{StatusView, StreamView};

/// Longest time until a camera's first block is on the drives, and until a player shows something.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// Interval of looks for that.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The last frames may not have come whole when a program is ended.
const CUT_SHORT: usize = 4;

/// Results of the cameras.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Filmed {
    /// Bandwidth promised to cameras and players.
    pub promised_bytes_per_second: u64,
    /// Blocks that were recorded and played while it was measured.
    pub blocks: u64,
    /// Number of late ones, net of the host's own lateness.
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
    /// Adds the results of its blocks.
    pub(super) fn with_blocks(self, status: &StatusView) -> Self {
        let streams = || status.streams.iter().filter(|of| is_filmed(of));
        Self {
            promised_bytes_per_second: streams().map(|of| of.rate_bytes_per_second).sum(),
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

/// Prefix of the cameras' volumes.
const VOLUMES: &str = "rtsp-";

/// True for streams of cameras and their players.
pub(super) fn is_filmed(stream: &StreamView) -> bool {
    stream.volume.starts_with(VOLUMES)
}

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

    /// Checks if it has ended.
    fn wait(&mut self) -> Result<(), Failure> {
        match self.task.take().map(|task| self.runtime.block_on(task)) {
            None | Some(Ok(Ok(_))) => Ok(()),
            Some(Ok(Err(failure))) => Err(failure),
            Some(Err(error)) => Err(Failure::bug(format!(
                "the task of a program failed: {error}"
            ))),
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
    /// Number of cameras.
    pub(super) fn count(&self) -> u64 {
        self.cameras.len() as u64
    }
}

/// Options of every ffmpeg.
const QUIET: [&str; 5] = ["-nostdin", "-hide_banner", "-loglevel", "error", "-y"];

/// Options that print a checksum of each H.264 frame, as it is encoded: without parameters (7, 8) and
/// delimiters (9), which lie before frames in one format and beside them in another, and without its time.
const SUMS: [&str; 10] = [
    "-map",
    "0:v:0",
    "-c",
    "copy",
    "-bsf:v",
    "h264_mp4toannexb,filter_units=remove_types=7|8|9,setts=ts=N",
    "-flush_packets",
    "1",
    "-f",
    "framemd5",
];

impl Stage<'_> {
    /// True if there are to be cameras: ffmpeg, and clips that are video.
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
                    .help("run the demo with --keep to inspect its files"));
            }
            if begun.elapsed() > BEGINS_WITHIN {
                return Err(
                    Failure::failed(format!("{what} took more than {BEGINS_WITHIN:?}"))
                        .help("this machine is too slow for the demo, or too busy"),
                );
            }
            self.interrupt.wait(self.runtime, LOOK_INTERVAL)?;
        }
        Ok(())
    }

    /// Number of cameras.
    pub(super) fn cameras(&self) -> usize {
        match self.has_cameras() {
            true => CAMERAS_PER_DRIVE * DRIVES,
            false => 0,
        }
    }

    /// Begins to publish the clips, as many on each drive, and to play what is recorded of them.
    pub(super) fn start_cameras(
        &self,
        serving: &Serving<'_>,
        scheduler: &str,
        seconds: u64,
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
        for number in 0..self.cameras() {
            let clip = &self.clips[number % self.clips.len()];
            let volume = volume(scheduler, number);
            // Behind what the other recordings need.
            let from = Bytes(RECORDINGS_AT.get() + super::plan::PLACE_STEP.get() / 4);
            let disk = std::slice::from_ref(&drives[number % DRIVES]);
            serving.make_volume(&volume, camera_bytes(seconds), disk, from)?;
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
        let mut ended = Vec::new();
        for camera in cameras.cameras {
            camera.publisher.end()?;
            camera.player.end()?;
            ended.push((camera.volume, camera.shown, camera.clip));
        }
        self.interrupt.check()?;
        // All at once: they are on several drives.
        let compared: Vec<_> = std::thread::scope(|scope| {
            let comparing: Vec<_> = ended
                .iter()
                .map(|(volume, shown, clip)| {
                    let api = &serving.api;
                    scope.spawn(move || self.compare_camera(api, volume, shown, clip))
                })
                .collect();
            comparing.into_iter().map(|thread| thread.join()).collect()
        });
        let mut filmed = Filmed::default();
        for one in compared {
            let one = one.map_err(|_| Failure::bug("comparing frames failed"))??;
            filmed.recorded_frames += one.recorded_frames;
            filmed.recorded_different += one.recorded_different;
            filmed.played_frames += one.played_frames;
            filmed.played_different += one.played_different;
        }
        Ok(filmed)
    }

    /// Compares what was played and what was recorded of a camera.
    fn compare_camera(
        &self,
        api: &ApiClient,
        volume: &str,
        shown: &Path,
        clip: &Path,
    ) -> Result<Filmed, Failure> {
        let wanted = self.sums_of(clip, &format!("{volume}.clip"))?;
        let (played_frames, played_different) = compared(&sums_in(shown)?, &wanted);
        let file = self.export(api, volume)?;
        let sums = self.sums_of(&file, &format!("{volume}.sums"))?;
        let (recorded_frames, recorded_different) = compared(&sums, &wanted);
        Ok(Filmed {
            recorded_frames,
            recorded_different,
            played_frames,
            played_different,
            ..Filmed::default()
        })
    }

    /// Writes a camera's recording to a file.
    fn export(&self, api: &ApiClient, volume: &str) -> Result<PathBuf, Failure> {
        let path = self.scratch.join(format!("{volume}.mp4"));
        let failed = |error: std::io::Error| io_failure("write", &path, &error);
        let mut file = std::fs::File::create(&path).map_err(failed)?;
        let recorded = format!("/media/{volume}/1/recording.mp4?stream=true");
        let download = api.download(&recorded, |bytes| {
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

/// Number of frames without the last one, and number of those that differ from the clip in a loop.
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
