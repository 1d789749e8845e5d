//! What a stream asks for.

use std::ops::Range;
use std::sync::Arc;

use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

use crate::state::stream::core::Span;
use crate::volume_io::volume::Volume;

/// A stream that is asked for.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// A name for people.
    pub name: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// The bytes of the volume in which it reads or writes, from and to multiples of the volume's
    /// [alignment](Volume::alignment); `None` is all of it. Every extent of
    /// the range is allocated and stays where it is, or moves to an equal or faster place of the
    /// same disk, while the stream is open.
    pub range: Option<Range<u64>>,
    /// The rate at which blocks are written or read.
    pub rate: BytesPerSecond,
    /// The size of a block, the unit of transfer: a multiple of the volume's
    /// [alignment](Volume::alignment) that divides the extent size or is a multiple of it.
    pub block: Bytes,
    /// Whether it reads or writes.
    pub op: Op,
    /// From when to when; `None` is from now until it is closed.
    pub span: Option<Span>,
    /// Whether the block after the range's last one is its first one again, at the same pace: a
    /// recording that overwrites itself, a clip that is played in a loop.
    pub wraps: bool,
}
