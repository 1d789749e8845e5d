//! Results of the demo as values, for programs and for [`super::text`].

use serde::Serialize;

use super::cameras::Filmed;
use super::failing_place::FailingPlace;
use super::files::FileLoad;
use super::media::ClipSource;
use crate::failure::RefusalView;
use crate::wire::view::{DiskView, LatencyView, WarningView};

/// A recording, compared with what was sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Recording {
    /// The volume.
    pub volume: String,
    /// Bytes recorded.
    pub bytes: u64,
    /// Bytes on the volume that are not those that were sent.
    pub different: u64,
}

/// The stream that was one too many.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct TooMuch {
    /// The rate that was asked for.
    pub rate_bytes_per_second: u64,
    /// The server's answer.
    pub answer: String,
    /// In numbers.
    pub refusal: Option<RefusalView>,
}

/// Kind of streams with reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Promise {
    /// Streams of bytes that record.
    pub recorded: u64,
    /// Streams of bytes that play.
    pub played: u64,
    /// Cameras that record over RTSP, each with a player.
    pub cameras: u64,
    /// Streams of bytes that the disks would have carried without the cameras, as admission found.
    pub capacity: u64,
}

/// A run under one scheduler.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Phase {
    /// The scheduler.
    pub scheduler: String,
    /// Length of the measurement.
    pub seconds: f64,
    /// Its streams.
    #[serde(flatten)]
    pub promise: Promise,
    /// Bandwidth promised to all of them.
    pub promised_bytes_per_second: u64,
    /// Bandwidth that they got.
    pub measured_bytes_per_second: f64,
    /// The size of their blocks, as the pool proposed it.
    pub block_bytes: u64,
    /// Blocks moved.
    pub blocks: u64,
    /// Blocks later than promised, net of the host's own lateness.
    pub misses: u64,
    /// Blocks later than promised with it.
    pub misses_gross: u64,
    /// The worst lateness, net of the host's own.
    pub late_net_max_ns: u64,
    /// The worst lateness.
    pub late_max_ns: u64,
    /// Requests that took longer than predicted, net of the host's own lateness.
    pub overruns: u64,
    /// Best-effort latency of all requests, as the disks' queues saw it.
    pub best_effort: LatencyView,
    /// The disks at the end of the run.
    pub disks: Vec<DiskView>,
    /// Load of the programs on the file system meanwhile.
    pub file_load: FileLoad,
    /// The stream that was refused.
    pub too_much: TooMuch,
    /// Recordings, compared.
    pub recordings: Vec<Recording>,
    /// Recordings of cameras over RTSP and the players' output, if there were any.
    pub filmed: Option<Filmed>,
    /// The place that failed after the measurement, in the run that counts.
    pub failing_place: Option<FailingPlace>,
    /// Bytes played.
    pub played_bytes: u64,
    /// Bytes played that are not those that were recorded.
    pub played_different: u64,
}

impl Phase {
    /// Bytes that are not what they should be.
    pub(super) fn different(&self) -> u64 {
        let recorded = self.recordings.iter().map(|recording| recording.different);
        self.played_different + recorded.sum::<u64>()
    }
}

/// The whole demo.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Report {
    /// Folder of the data.
    pub scratch: String,
    /// True if that still exists.
    pub scratch_is_kept: bool,
    /// The drives.
    pub drives: String,
    /// Origin of the clips.
    pub clips: ClipSource,
    /// Load on the drives, in words.
    pub load: Vec<String>,
    /// Why the file load was not on a mounted file system, if it was not.
    pub file_load_note: Option<String>,
    /// Faults of this machine.
    pub warnings: Vec<WarningView>,
    /// The run that counts, and the one beside it.
    pub phases: Vec<Phase>,
    /// True if every promise was kept and every byte is right.
    pub is_kept: bool,
}
