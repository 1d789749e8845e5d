//! Streams: guaranteed bandwidth for a range of a volume.
//!
//! [`Pool::reserve`](crate::pool::Pool::reserve) turns a [`StreamSpec`] into tasks on the disks of its range
//! and admits all of them or none. The [`Stream`] is then a client with buffers of its own, whose blocks have
//! deadlines. [`Recorder`] and [`Player`] move a byte stream through it. With [`BlockWriter`] and
//! [`BlockReader`] a caller with an event loop of its own fills and uses the blocks itself.

mod blocks;
mod buffers;
mod change;
mod check;
mod exchange;
pub mod needs;
pub(crate) mod open;
mod pace;
mod play;
mod reader;
mod record;
mod session;
pub(crate) mod spec;
mod tasks;

pub use crate::state::refusal::{Culprit, CulpritKind, DiskRefusal, Refusal};
pub use crate::state::stream::core::Span;
pub use crate::volume_io::stream::Stream;
pub use blocks::BlockWriter;
pub use buffers::{BlockBuffer, BufferUse};
pub use change::{BUFFERS_MAX, Change, ChangeResult, Changer, StreamChange};
pub use pace::{BlockReport, PaceError, PaceReport, Stop};
pub use play::Player;
pub use reader::{BlockReader, ReadBlock};
pub use record::Recorder;
pub use spec::StreamSpec;
