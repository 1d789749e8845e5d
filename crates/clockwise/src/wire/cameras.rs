//! Cameras: sources with a volume of their own, which the server plans.

use media::camera::inspection::{InspectedTrack, Inspection};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sources::{SourceTransport, SourceView};

/// A camera to add.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddCamera {
    /// Its name, which becomes that of its source and of its volume.
    pub name: String,
    /// Its URL: `rtsp://USER:PASSWORD@HOST/PATH`, or `rtsps` for TLS. The password is never shown again.
    pub url: String,
    /// The volume for its recordings. If it does not exist, it is created; if absent, one is created with the
    /// camera's name.
    #[serde(default)]
    pub volume: Option<String>,
    /// How long recordings are kept; if absent, a week, or as long as half of the pool's free space lasts.
    #[serde(default)]
    pub keep_for_ns: Option<u64>,
    /// The transport of packets. If the camera does not support it, the other transport is used.
    #[serde(default)]
    pub transport: SourceTransport,
    /// The rate to reserve; if absent, the measured rate, which the reservation follows.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
    /// The block size of the volume; if absent, one that suits the rate and the disks.
    #[serde(default)]
    pub block_bytes: Option<u64>,
    /// As of a source.
    #[serde(default)]
    pub certificates: Option<String>,
}

/// A track of a camera.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CameraTrack {
    /// The name of its encoding; empty if it is not known.
    pub encoding: String,
    /// The units of its timestamps per second.
    pub clock_rate: u32,
    /// The width of its pictures, if the camera states it.
    pub width: Option<u16>,
    /// The height of its pictures, if the camera states it.
    pub height: Option<u16>,
    /// The rate of its packets, as measured.
    pub rate_bytes_per_second: u64,
    /// False if the camera refused to send it.
    pub is_recorded: bool,
}

/// The tracks and rate of a camera, and its recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AddedCamera {
    /// The source that records it.
    pub source: SourceView,
    /// Its tracks.
    pub tracks: Vec<CameraTrack>,
    /// The measured rate of all tracks, as it is stored.
    pub measured_bytes_per_second: u64,
    /// The rate that the camera states, and a tenth; it is not used.
    pub stated_bytes_per_second: Option<u64>,
    /// How long recordings are kept; absent for a volume that existed, if nothing was asked for.
    pub keep_for_ns: Option<u64>,
    /// True if nothing was asked for, so that `keep_for_ns` is the default.
    pub is_keep_default: bool,
    /// True if the volume was created.
    pub is_volume_new: bool,
    /// The size of the volume.
    pub volume_bytes: u64,
    /// The block size of the volume.
    pub block_bytes: u64,
}

impl From<&InspectedTrack> for CameraTrack {
    fn from(of: &InspectedTrack) -> Self {
        Self {
            encoding: of.encoding.clone(),
            clock_rate: of.clock_rate,
            width: of.size.map(|(width, _)| width),
            height: of.size.map(|(_, height)| height),
            rate_bytes_per_second: Inspection::track_rate(of).0,
            is_recorded: of.is_recorded,
        }
    }
}
