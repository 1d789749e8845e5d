//! The demo's video: where it comes from, and the streams that record and play it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde::Serialize;
use tokio::runtime::Runtime;

use super::interrupt::Interrupt;
use super::noise;
use super::process::{Ends, is_there, run_until};
use crate::failure::{Failure, host_failure, io_failure};
use crate::print::Output;
use crate::session::data;
use crate::wire::streams::Reserved;

/// Bytes that a client moves at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// A video to record.
#[derive(Clone, Debug)]
pub(super) struct Clip {
    /// Its name.
    pub(super) name: String,
    /// Its contents.
    pub(super) bytes: Arc<Vec<u8>>,
    /// Its path, if it is video.
    pub(super) path: PathBuf,
}

/// Origin of the clips.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct ClipSource {
    /// In words.
    pub what: String,
    /// True if they are real video.
    pub is_video: bool,
}

/// The two clips: those of the shared data, or made by ffmpeg, or bytes that only look the part.
pub(super) fn clips(
    output: &Output,
    runtime: &Runtime,
    interrupt: &Interrupt,
    scratch: &Path,
) -> Result<(Vec<Clip>, ClipSource), Failure> {
    for folder in shared_folders() {
        let video = folder.join("data/video");
        let mut files: Vec<PathBuf> = std::fs::read_dir(&video)
            .map(|entries| {
                entries
                    .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                    .collect()
            })
            .unwrap_or_default();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "mp4"));
        files.sort();
        if files.len() >= 2 {
            let clips = files
                .iter()
                .take(2)
                .map(|file| read_clip(file))
                .collect::<Result<_, _>>()?;
            let what = format!("the recordings in {}", video.display());
            return Ok((
                clips,
                ClipSource {
                    what,
                    is_video: true,
                },
            ));
        }
    }
    if is_there("ffmpeg") {
        let clips = output.step("Generating two clips with ffmpeg", || {
            runtime.block_on(generate_all(interrupt, scratch))
        });
        let source = ClipSource {
            what: "two clips that ffmpeg generated".to_owned(),
            is_video: true,
        };
        return Ok((clips?, source));
    }
    let clips = (0..2u64).map(|number| Clip {
        name: format!("bytes-{number}"),
        bytes: Arc::new(synthetic(number)),
        path: PathBuf::new(),
    });
    let what =
        "synthetic bytes, not video: there is no ../shared/data/video and no ffmpeg".to_owned();
    Ok((
        clips.collect(),
        ClipSource {
            what,
            is_video: false,
        },
    ))
}

fn shared_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("CLOCKWISE_SHARED")
        .map(PathBuf::from)
        .into_iter()
        .collect();
    folders.push(PathBuf::from("../shared"));
    folders
}

fn read_clip(file: &Path) -> Result<Clip, Failure> {
    let bytes = std::fs::read(file).map_err(|error| io_failure("read", file, &error))?;
    if bytes.is_empty() {
        return Err(Failure::failed(format!("{} is empty", file.display()))
            .help("put a video there, or remove it: the demo then generates a clip"));
    }
    let name = file.file_stem().map_or_else(
        || "clip".to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    Ok(Clip {
        name,
        bytes: Arc::new(bytes),
        path: std::path::absolute(file).unwrap_or_else(|_| file.to_owned()),
    })
}

/// Clips that ffmpeg generates, one of each kind.
async fn generate_all(interrupt: &Interrupt, scratch: &Path) -> Result<Vec<Clip>, Failure> {
    let sources = [
        "testsrc2=size=1280x720:rate=25",
        "mandelbrot=size=1280x720:rate=25",
    ];
    let mut clips = Vec::with_capacity(sources.len());
    for (number, source) in sources.into_iter().enumerate() {
        let file = scratch.join(format!("clip-{number}.mp4"));
        let path = file.to_string_lossy();
        let arguments = [
            "-loglevel",
            "error",
            "-nostdin",
            "-f",
            "lavfi",
            "-i",
            source,
            "-t",
            "4",
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-b:v",
            "1200k",
            "-g",
            "25",
            "-bf",
            "0",
            "-y",
            &path,
        ];
        let mut ending = interrupt.as_ending();
        run_until("ffmpeg", arguments, scratch, Ends::WhenTold, &mut ending).await?;
        interrupt.check()?;
        clips.push(read_clip(&file)?);
    }
    Ok(clips)
}

fn synthetic(seed: u64) -> Vec<u8> {
    let bytes = noise(seed).map(|number| (number >> 56) as u8);
    bytes.take(1 << 20).collect()
}

impl Clip {
    /// The first `len` bytes of the clip in a loop.
    pub(super) fn looped(&self, len: usize) -> Vec<u8> {
        self.bytes.iter().copied().cycle().take(len).collect()
    }

    /// Number of `bytes` that differ from the looped clip. They begin `offset` bytes into the loop of its
    /// first `period` bytes.
    pub(super) fn differences(&self, period: u64, offset: u64, bytes: &[u8]) -> u64 {
        let clip = self.bytes.len() as u64;
        let mut wrong = 0;
        let mut done = 0;
        while done < bytes.len() {
            let at = (offset + done as u64) % period;
            let in_clip = (at % clip) as usize;
            let run = (bytes.len() - done)
                .min((period - at) as usize)
                .min(self.bytes.len() - in_clip);
            let (found, wanted) = (
                &bytes[done..done + run],
                &self.bytes[in_clip..in_clip + run],
            );
            if found != wanted {
                wrong += found
                    .iter()
                    .zip(wanted)
                    .filter(|(found, wanted)| found != wanted)
                    .count() as u64;
            }
            done += run;
        }
        wrong
    }
}

/// Counts at the other end of a stream.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Bytes sent or received.
    pub(super) bytes: AtomicU64,
    /// Bytes received that were not those that were recorded.
    pub(super) wrong: AtomicU64,
}

/// A stream's other end, a thread of its own. Dropping it ends the stream.
pub(super) struct Peer {
    connection: UnixStream,
    thread: Option<JoinHandle<()>>,
    /// Its counts.
    pub(super) count: Arc<Count>,
    /// The session's number.
    pub(super) id: u64,
}

impl Peer {
    fn start(
        reserved: &Reserved,
        work: impl FnOnce(&UnixStream, &Count) + Send + 'static,
    ) -> Result<Self, Failure> {
        let connection = data::connect(Path::new(&reserved.data_socket), &reserved.token)?;
        let failed = |error: std::io::Error| host_failure("start a stream", &error);
        let count = Arc::<Count>::default();
        let (theirs, counting) = (connection.try_clone().map_err(failed)?, Arc::clone(&count));
        let thread = std::thread::Builder::new()
            .name("media".to_owned())
            .spawn(move || work(&theirs, &counting))
            .map_err(failed)?;
        Ok(Self {
            connection,
            thread: Some(thread),
            count,
            id: reserved.id,
        })
    }

    /// Sends the clip in a loop until the stream is ended.
    pub(super) fn record(reserved: &Reserved, clip: &Clip) -> Result<Self, Failure> {
        let bytes = Arc::clone(&clip.bytes);
        Self::start(reserved, move |mut connection, count| {
            for chunk in std::iter::repeat_with(|| bytes.chunks(CHUNK_BYTES)).flatten() {
                // The stream is over when nobody takes any more.
                if connection.write_all(chunk).is_err() {
                    return;
                }
                count.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
        })
    }

    /// Receives and compares until the stream is ended. The stream plays the first `period` bytes of
    /// the looped clip, in a loop.
    pub(super) fn play(reserved: &Reserved, clip: &Clip, period: u64) -> Result<Self, Failure> {
        let clip = clip.clone();
        Self::start(reserved, move |mut connection, count| {
            let mut buffer = vec![0; CHUNK_BYTES];
            while let Ok(received @ 1..) = connection.read(&mut buffer) {
                let before = count.bytes.fetch_add(received as u64, Ordering::Relaxed);
                let wrong = clip.differences(period, before, &buffer[..received]);
                count.wrong.fetch_add(wrong, Ordering::Relaxed);
            }
        })
    }

    /// Sends no more; what was sent is recorded.
    pub(super) fn finish(&self) {
        // A stream that is over has nothing to be shut.
        let _ = self.connection.shutdown(Shutdown::Write);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.connection.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn played_bytes_are_compared_across_every_seam() {
        let clip = Clip {
            path: PathBuf::new(),
            name: "c".to_owned(),
            bytes: Arc::new((0..7).collect()),
        };
        let content = clip.looped(16);
        let played: Vec<u8> = content.iter().copied().cycle().take(100).collect();
        for offset in 0..40 {
            assert_eq!(
                clip.differences(16, offset, &played[offset as usize..]),
                0,
                "offset {offset}"
            );
        }
        let mut wrong = played.clone();
        wrong[33] ^= 1;
        wrong[99] ^= 1;
        assert_eq!(clip.differences(16, 0, &wrong), 2);
    }
}
