//! The price of a guarantee: streams that admission promises to carry, beside those that a rule for the arm happens to carry.
//!
//! # What is compared
//!
//! Disks, movies, rates and memory are the video server's. It stripes a movie over all disks in units of 128 KB. A stream that
//! has two buffers for each disk, as Clockwise's streams have, would need 4 MB on 16 disks. So the promised layout is another
//! one: the part of a movie that a disk has stays where it is, but a stream plays it as a whole, in blocks of half the stream's
//! buffer, before it goes on to the next disk. At any time a stream reserves one disk; the server's book of reservations knows
//! spans of time.
//!
//! A disk carries streams with movies drawn by lot, as many as admission lets in one after another.
//!
//! # The channel
//!
//! A block is read into the drive's buffer, and sent while the next one is read. Its last segment is there when each other disk
//! of the channel has sent one segment and its own has been sent. That time is taken off each period. The channel is assumed to
//! be faster than its disks together.

mod admission;
mod in_phase;

use sched::units::{Bytes, Nanos};

use super::Server;

pub use admission::{Bounds, Promise};
pub use in_phase::InPhase;

impl Server {
    /// The longest time from the last byte of a segment in a drive's buffer to its last byte in memory, if each other disk of
    /// the channel sends a segment before.
    #[must_use]
    pub fn channel_delay(&self) -> Nanos {
        let bus = &self.bus;
        let ready = self.stripe.drive.buffered_read(u64::MAX);
        let send = bus.rate.period_of(self.stripe.unit).unwrap_or(Nanos::MAX);
        // The status of a PRE-FETCH, the READ, its data and its status.
        let tenures = bus.arbitration * 4 + bus.reconnect * 3 + bus.command + bus.status * 2;
        (tenures + ready + send) * self.ids.len() as u64
    }

    /// The same server with so much buffer for each stream.
    #[must_use]
    pub fn with_buffer(&self, buffer: Bytes) -> Self {
        Self {
            buffer: (buffer.get() / self.stripe.unit.get()) as u32,
            ..self.clone()
        }
    }
}
