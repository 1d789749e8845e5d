//! Sessions over RTSP.

use media::session::registry::{Counts, Does, Session};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A session that has something reserved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RtspSessionView {
    /// Its number, from 1, in this server.
    pub number: u64,
    /// Who is at the other end: an address, or the name of a source.
    pub who: String,
    /// What it does.
    pub does: Does,
    /// The volume.
    pub volume: String,
    /// The recording in it.
    pub recording: u64,
    /// What is reserved.
    pub rate_bytes_per_second: u64,
    /// What was asked for at first, or by somebody since. A recorder that meets more has more, for a while; a player that
    /// plays faster than it was has that much more.
    pub asked_bytes_per_second: u64,
    /// The size of a block of the disks, what is written or read at a time.
    pub block_bytes: u64,
    /// The size of a buffer, which is that of a block of the volume.
    pub buffer_bytes: u64,
    /// Buffers that nobody else may use.
    pub buffers: u64,
    /// What it has counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Blocks that were written or read.
    pub blocks: u64,
    /// Of a recording, bytes of its blocks since RECORD, or since a source began, that survive SIGKILL and power cuts.
    pub durable_bytes: u64,
    /// Deadlines of them that were missed, net of the host's own lateness.
    pub misses: u64,
}

impl From<&Session> for RtspSessionView {
    fn from(of: &Session) -> Self {
        let (about, status) = (of.about(), of.status());
        Self {
            number: of.number(),
            who: about.who.clone(),
            does: about.does,
            volume: about.volume.clone(),
            recording: about.recording,
            rate_bytes_per_second: status.rate_bytes_per_second,
            asked_bytes_per_second: of.promised().0,
            block_bytes: status.block_bytes,
            buffer_bytes: of.changer().buffer().0,
            buffers: of.changer().buffers() as u64,
            counts: of.counts(),
            blocks: status.blocks,
            durable_bytes: of.changer().durable_bytes(),
            misses: status.misses,
        }
    }
}

/// What a session is to have reserved from now on; what is absent stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeSession {
    /// The rate.
    pub rate_bytes_per_second: Option<u64>,
    /// What is written or read at a time: one of the volume's blocks, or several where that divides the extent size or is a
    /// multiple of it. Buffers for that are added if none are asked for.
    pub block_bytes: Option<u64>,
    /// Buffers that nobody else may use: for two blocks at least for each disk that it touches, 64 at most.
    pub buffers: Option<u64>,
}
