//! What tests reach of this crate that nobody else may: with the feature `testing`.

mod watch;

pub use watch::Watch;

use crate::handoff::Mailbox;

/// The mailbox of a disk's thread, with so many places for letters.
pub struct Letters(Mailbox<u64>);

impl Letters {
    /// An empty one.
    pub fn new(places: u32) -> Self {
        Self(Mailbox::new(places))
    }

    /// Puts that many letters in and takes them out; whether they came in order.
    pub fn pass(&self, letters: u64) -> bool {
        (0..letters).for_each(|letter| self.0.push(letter));
        self.0.take_all().eq(0..letters)
    }
}
