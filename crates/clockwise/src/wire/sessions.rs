//! Sessions over RTSP.

use engine::stream::Changer;
use media::session::registry::{Counts, Session, SessionUse};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RtspSessionView {
    /// Its number, from 1, unique until the server ends.
    pub number: u64,
    /// The peer: an address, or the name of a source.
    pub who: String,
    /// Its activity.
    pub does: SessionUse,
    /// The volume, or the name of a stream that is live only.
    pub volume: String,
    /// The number of the recording in that volume; 0 of a stream that is live only.
    pub recording: u64,
    /// The reserved rate; 0 of a session that plays or sends a live stream: it has no reservation.
    pub rate_bytes_per_second: u64,
    /// The requested rate: the first one, or the one last set by a user. A recorder that receives more than
    /// that reserves more for a while; a player at a higher speed reserves proportionally more. Where no rate was
    /// stated, the least that is kept: a block in a minute.
    pub asked_bytes_per_second: u64,
    /// The size of a block, the unit in which the disks are written or read.
    pub block_bytes: u64,
    /// The size of a buffer, equal to that of a block of the volume.
    pub buffer_bytes: u64,
    /// Buffers that are reserved for it.
    pub buffers: u64,
    /// Its counters.
    #[serde(flatten)]
    pub counts: Counts,
    /// Blocks that were written or read.
    pub blocks: u64,
    /// Bytes that survive SIGKILL and power cuts, since RECORD or since the source began; 0 for a player.
    pub durable_bytes: u64,
    /// Missed deadlines of blocks, net of the host's own lateness.
    pub misses: u64,
}

impl From<&Session> for RtspSessionView {
    fn from(of: &Session) -> Self {
        let (about, status) = (of.about(), of.status());
        let status = status.as_ref();
        let changer = of.changer();
        Self {
            number: of.number(),
            who: about.who.clone(),
            does: about.does,
            volume: about.volume.clone(),
            recording: about.recording,
            rate_bytes_per_second: status.map_or(0, |of| of.rate_bytes_per_second),
            asked_bytes_per_second: of.promised().0,
            block_bytes: status.map_or(0, |of| of.block_bytes),
            buffer_bytes: changer.map_or(0, |of| of.buffer().0),
            buffers: changer.map_or(0, |of| of.buffers() as u64),
            counts: of.counts(),
            blocks: status.map_or(0, |of| of.blocks),
            durable_bytes: changer.map_or(0, Changer::durable_bytes),
            misses: status.map_or(0, |of| of.misses),
        }
    }
}

/// A change of a session's reservation. Absent members stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeSession {
    /// The rate.
    pub rate_bytes_per_second: Option<u64>,
    /// The size of a block: one block of the volume, or several if their size divides the extent size or is a
    /// multiple of the extent size. Buffers for that are added unless a number of buffers is given.
    pub block_bytes: Option<u64>,
    /// Buffers that are reserved for it: for at least two blocks on each disk of the volume, and at most 64.
    pub buffers: Option<u64>,
}
