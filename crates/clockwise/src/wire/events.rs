//! Events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kind of an event.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A camera does not answer, has gone silent, or cannot be recorded.
    CameraLost,
    /// Its packets arrive again.
    CameraBack,
    /// A disk has missed deadlines, net of the host's own lateness.
    DeadlineMissed,
    /// Requests of a disk took longer than predicted.
    DiskOverruns,
    /// Requests failed on a disk.
    DiskError,
    /// A disk does not answer; its requests wait.
    DiskStalled,
    /// A disk has failed or was given up.
    DiskFailed,
    /// A disk answers again.
    DiskBack,
    /// The pool's metadata cannot be written.
    MetadataFrozen,
    /// It can be written again.
    MetadataResumed,
    /// Less than 5 % of the pool is free for volumes. Comes again after more than 7 % were free.
    SpaceLow,
    /// A recording has begun.
    RecordingBegun,
    /// A recording has ended.
    RecordingEnded,
    /// Events before this one are gone.
    Lost,
}

impl EventKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CameraLost => "camera-lost",
            Self::CameraBack => "camera-back",
            Self::DeadlineMissed => "deadline-missed",
            Self::DiskOverruns => "disk-overruns",
            Self::DiskError => "disk-error",
            Self::DiskStalled => "disk-stalled",
            Self::DiskFailed => "disk-failed",
            Self::DiskBack => "disk-back",
            Self::MetadataFrozen => "metadata-frozen",
            Self::MetadataResumed => "metadata-resumed",
            Self::SpaceLow => "space-low",
            Self::RecordingBegun => "recording-begun",
            Self::RecordingEnded => "recording-ended",
            Self::Lost => "lost",
        }
    }
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Its number. Numbers increase, also over restarts of the server.
    pub id: u64,
    /// The time at which the server noticed it, in nanoseconds since 1970.
    pub at_unix_ns: u64,
    /// Its kind.
    pub kind: EventKind,
    /// A sentence that says what has happened.
    pub what: String,
    /// The camera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub camera: Option<String>,
    /// The volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The number of the recording in that volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<u64>,
    /// The disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Of the kind `lost`: the number of events that are gone, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

impl EventView {
    /// An event that names nothing. Number and time are set when it is emitted.
    #[must_use]
    pub fn new(kind: EventKind, what: String) -> Self {
        Self {
            id: 0,
            at_unix_ns: 0,
            kind,
            what,
            camera: None,
            volume: None,
            recording: None,
            disk: None,
            lost: None,
        }
    }
}
