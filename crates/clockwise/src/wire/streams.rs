//! Streams by the data socket.

use engine::stream::{BlockReport, PaceReport};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ask::StreamOp;
use super::view::{LatencyView, StreamView};

/// A reservation that was granted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reserved {
    /// The session's number.
    pub id: u64,
    /// The socket to connect to.
    pub data_socket: String,
    /// What to send there first, after the words `clockwise-stream`.
    pub token: String,
    /// What was reserved.
    pub stream: StreamView,
}

/// A session, as the API tells of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Its number.
    pub id: u64,
    /// Which way.
    pub op: StreamOp,
    /// What stage it is at.
    #[serde(flatten)]
    pub state: SessionState,
    /// The reservation and what the disks did for it.
    pub stream: StreamView,
    /// What went through; of a session that runs, so far.
    pub pace: PaceView,
    /// How long before its deadline each block was complete that had one.
    pub margin: LatencyView,
    /// From the hand-over of each block to its completion.
    pub response: LatencyView,
}

/// What stage a session is at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum SessionState {
    /// Reserved, and waiting for its byte stream.
    Reserved,
    /// It has its byte stream, and waits for the time that it is reserved for.
    Planned,
    /// Data goes through it.
    Running,
    /// It came to its end.
    Done,
    /// It was ended by request.
    Stopped,
    /// It ended because something went wrong.
    Failed(String),
}

/// What a session did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PaceView {
    /// Blocks done.
    pub blocks: u64,
    /// Bytes that came from the byte stream or went to it.
    pub bytes: u64,
    /// Blocks that were late, net of the host's own lateness.
    pub misses: u64,
    /// Blocks that were late with it.
    pub misses_gross: u64,
    /// The worst lateness of a block.
    pub late_max_ns: u64,
    /// The same net of the host's own lateness.
    pub late_net_max_ns: u64,
    /// How often there was nothing to go on with: a listener without its next block, a block not
    /// filled when its turn came.
    #[serde(default)]
    pub underruns: u64,
    /// How often the byte stream, not the disks, was not ready in time.
    pub waited_for_peer: u64,
    /// Bytes from the beginning of a recording that survive a power cut or the server's death.
    #[serde(default)]
    pub durable_bytes: u64,
}

/// How one block fared. Instants are nanoseconds of the server's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    /// Which block of the session, from 0.
    pub index: u64,
    /// Where in the volume, in bytes.
    pub offset: u64,
    /// How many bytes of it are the stream's.
    pub bytes: u64,
    /// When it was handed to the disks.
    pub submitted_ns: u64,
    /// When it was due; none for a block of holes, which is read from no disk.
    pub deadline_ns: Option<u64>,
    /// When it was complete.
    pub completed_ns: u64,
    /// How much later than due; 0 in time.
    pub late_ns: u64,
    /// The same without the host's own lateness.
    pub late_net_ns: u64,
}

impl From<&BlockReport> for BlockView {
    fn from(block: &BlockReport) -> Self {
        Self {
            index: block.index,
            offset: block.offset,
            bytes: block.bytes,
            submitted_ns: block.submitted.get(),
            deadline_ns: block.deadline.map(sched::units::Time::get),
            completed_ns: block.completed.get(),
            late_ns: block.late.get(),
            late_net_ns: block.late_net.get(),
        }
    }
}

impl From<PaceReport> for PaceView {
    fn from(report: PaceReport) -> Self {
        Self {
            blocks: report.blocks,
            bytes: report.bytes,
            misses: report.misses,
            misses_gross: report.misses_gross,
            late_max_ns: report.late_max.get(),
            late_net_max_ns: report.late_net_max.get(),
            underruns: report.underruns,
            waited_for_peer: report.waited_for_peer,
            durable_bytes: report.durable_bytes,
        }
    }
}
