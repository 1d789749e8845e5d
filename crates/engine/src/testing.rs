//! Access to private parts for tests, with the feature `testing`.

mod watch;

pub use watch::Watch;

use crate::handoff::Mailbox;

/// A mailbox like that of a disk's thread, with this number of places.
pub struct MailboxProbe(Mailbox<u64>);

impl MailboxProbe {
    /// An empty mailbox.
    pub fn new(places: u32) -> Self {
        Self(Mailbox::new(places))
    }

    /// Pushes `count` values and takes them. Returns true if they came in order.
    pub fn pass(&self, letters: u64) -> bool {
        (0..letters).for_each(|letter| self.0.push(letter));
        self.0.take_all().eq(0..letters)
    }
}
