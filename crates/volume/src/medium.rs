//! Reading of a pool's structures: the only call to the outside.

use sched::units::Sector;

/// Disks that can be read before they are a pool. `candidate` counts the disks in the order in which
/// they were given to [`crate::PoolState::open`] or [`crate::check::check`].
///
/// Reads are whole metadata blocks (4 KiB) and start on a multiple of 4 KiB.
pub trait Medium {
    /// Fills `buffer` from `start` of the disk.
    ///
    /// # Errors
    /// The disk's error. A read past the end is an error, too.
    fn read(&mut self, candidate: usize, start: Sector, buffer: &mut [u8]) -> std::io::Result<()>;
}

/// A disk offered for opening or formatting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its name in messages: its path.
    pub name: String,
    /// Its size.
    pub sectors: sched::units::SectorCount,
}
