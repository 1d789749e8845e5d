//! Streams over the data socket.

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
    /// The path of the data socket.
    pub data_socket: String,
    /// The token to send there first, after the word `clockwise-stream`.
    pub token: String,
    /// The reservation.
    pub stream: StreamView,
}

/// The report of a stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Its number.
    pub id: u64,
    /// Its direction.
    pub op: StreamOp,
    /// Its state.
    #[serde(flatten)]
    pub state: SessionState,
    /// The reservation, and the counters of the disks.
    pub stream: StreamView,
    /// The bytes and blocks that were moved so far.
    pub pace: PaceView,
    /// The time from the completion of each block to its deadline, for blocks with a deadline.
    pub margin: LatencyView,
    /// The time from the submission of each block to its completion.
    pub response: LatencyView,
}

/// The state of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum SessionState {
    /// Reserved, and waiting for its data connection.
    Reserved,
    /// It has its data connection, and waits for the start of its time span.
    Planned,
    /// It is moving data.
    Running,
    /// It has ended normally.
    Done,
    /// It was ended by a request.
    Stopped,
    /// It ended with an error.
    Failed(String),
}

/// The counters of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PaceView {
    /// Blocks done.
    pub blocks: u64,
    /// Bytes that were moved over the data connection.
    pub bytes: u64,
    /// Blocks that were late, net of the host's own lateness.
    pub misses: u64,
    /// Blocks that were late, including the host's own lateness.
    pub misses_gross: u64,
    /// The worst lateness of a block, including the host's own.
    pub late_max_ns: u64,
    /// The worst lateness of a block, net of the host's own.
    pub late_net_max_ns: u64,
    /// Number of times that the stream had no block in time: the next block to play was not read yet, or the
    /// block to record was not filled yet.
    #[serde(default)]
    pub underruns: u64,
    /// Number of times that the client, not the disks, was late.
    pub waited_for_peer: u64,
    /// Bytes from the beginning of a recording that survive a power cut or the end of the server.
    #[serde(default)]
    pub durable_bytes: u64,
}

/// The report on one block. Instants are nanoseconds of the server's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    /// Its number in the stream, from 0.
    pub index: u64,
    /// Its offset in the volume, in bytes.
    pub offset: u64,
    /// Bytes of it that belong to the stream.
    pub bytes: u64,
    /// When it was submitted to the disks.
    pub submitted_ns: u64,
    /// Its deadline; absent for a block of holes, which is not read from a disk.
    pub deadline_ns: Option<u64>,
    /// When it was complete.
    pub completed_ns: u64,
    /// Its lateness; 0 if it was in time.
    pub late_ns: u64,
    /// Its lateness, net of the host's own.
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
