//! What a camera sends, found by receiving from it for some seconds.

use sched::units::{BytesPerSecond, Nanos};

use crate::archive::block::ENTRY_BYTES;
use crate::camera::source::LowerTransport;

/// A camera is measured for this time from its first packet on.
pub const MEASURED_FOR: Nanos = Nanos::from_secs(5);

/// A track of a camera.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectedTrack {
    /// The name of its encoding; empty if it is not known.
    pub encoding: String,
    /// Units of its timestamps per second.
    pub clock_rate: u32,
    /// Width and height of its pictures in pixels, if the description has them.
    pub size: Option<(u16, u16)>,
    /// True if it is recorded: the camera did not refuse it.
    pub is_recorded: bool,
    /// What arrived of it.
    pub received: Received,
}

/// Packets that arrived, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Packets.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// What a camera sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// Its tracks.
    pub tracks: Vec<InspectedTrack>,
    /// The transport by which packets arrived.
    pub lower: LowerTransport,
    /// The rate that its description states.
    pub stated: Option<BytesPerSecond>,
}

impl Inspection {
    fn rate(bytes: u64) -> BytesPerSecond {
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(MEASURED_FOR.get());
        BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// The rate of a track.
    #[must_use]
    pub fn track_rate(track: &InspectedTrack) -> BytesPerSecond {
        Self::rate(track.received.bytes)
    }

    /// The rate of all packets with their entries in blocks.
    #[must_use]
    pub fn stored_rate(&self) -> BytesPerSecond {
        let stored =
            |of: &InspectedTrack| of.received.bytes + of.received.packets * ENTRY_BYTES as u64;
        Self::rate(self.tracks.iter().map(stored).sum())
    }
}

/// Why a camera cannot be recorded, and what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InspectionRemedy {
    /// Correct the URL, the login or another option.
    Input(&'static str),
    /// Something about the camera or the network.
    Camera(&'static str),
}

/// Why a camera cannot be recorded.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct InspectionError {
    /// The error.
    pub what: String,
    /// What to do.
    pub remedy: InspectionRemedy,
}
