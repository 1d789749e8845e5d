//! A host bus: transactions between adapters and memory, in integer nanoseconds.
//!
//! An adapter has a FIFO that its channel fills or drains. When a burst is in it, or has room in it, the adapter asks for
//! the bus and holds it for one transaction ([`bus`]). [`times`] has the times of transactions. [`packets`] sends packets
//! through memory, [`strings`] has SCSI strings with drives ([`drive`]) on adapters, and [`periodic`] adapters that ask at
//! fixed times. All of them are [`bus::Masters`]: the bus alone decides who is next, so a run is the same for any number of
//! threads. `docs/design/host-bus.md` states sources and assumptions.

pub mod bus;
pub mod drive;
pub mod packets;
pub mod periodic;
mod spec;
pub mod strings;
pub mod times;

pub use drive::{Mechanics, Places};
pub use packets::Packets;
pub use spec::{Adapter, Arbitration, HostBus, HostBusError};
pub use strings::{Measured, Scsi, Strings, StringsError};
pub use times::{Direction, Times, Transaction};
