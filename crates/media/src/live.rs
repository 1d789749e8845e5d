//! Live packets: packets in memory from their arrival on, at least from the latest key frame.
//!
//! A recorder copies each packet once into a [`LiveFeed`], before its block is full. Each player has a
//! [`LiveReader`]: it begins with the latest key frame, and is woken once for all packets that were received
//! together. Packets are shared: no player copies them, and no player reads the disks.
//!
//! A feed keeps the packets since the latest key frame, those of the last two seconds, and at most
//! [`FEED_BYTES_MAX`]. A reader whose next packet has gone continues with the latest key frame, and is told how many
//! packets it missed. So a slow player delays neither the recorder nor other players.
//!
//! The blocks that are being filled are not shared. A block would have to be held back from the disks' buffers for as
//! long as the slowest player needs it; one copy costs less than a tenth of the system call that received the packet.

mod feed;
mod reader;
mod streams;

pub use feed::{FEED_BYTES_MAX, LiveFeed, LivePacket, LiveWriter};
pub use reader::{LiveBatch, LiveOut, LiveReader};
pub use streams::{LiveBusy, LiveDemand, LiveStreams};

#[cfg(test)]
mod tests;
