//! Parameters of a stream.

use std::ops::Range;
use std::sync::Arc;

use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

use crate::state::stream::core::Span;
use crate::volume_io::volume::Volume;

/// Parameters of a stream to be reserved.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// A name for people.
    pub name: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// The byte range of the volume that it reads or writes, from and to multiples of the volume's
    /// [alignment](Volume::alignment); `None` is all of it. While the stream is open, every extent of the range is
    /// allocated and stays in place, or moves to an equal or faster place of the same disk.
    pub range: Option<Range<u64>>,
    /// The rate at which blocks are written or read.
    pub rate: BytesPerSecond,
    /// The size of a block, the unit of transfer: a multiple of the volume's
    /// [alignment](Volume::alignment) that divides the extent size or is a multiple of it.
    pub block: Bytes,
    /// Read or write.
    pub op: Op,
    /// The time of the reservation; `None` is from now until it is closed.
    pub span: Option<Span>,
    /// Continue with the first block after the last one, at the same pace: a recording that overwrites itself, or
    /// a clip that is played in a loop.
    pub wraps: bool,
}
