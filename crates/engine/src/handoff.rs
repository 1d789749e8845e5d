//! Passing values between threads, some of which must not wait.
//!
//! A real-time thread that spins until an ordinary thread has done its next step may spin for as long as the
//! kernel lets it, because the ordinary thread cannot get the processor. The usual bounded and segmented
//! lock-free queues have such moments: a slot is claimed in one step and filled in another. The types here
//! have none. A step fails only if another thread's whole operation took effect. So a thread that loses its
//! processor within an operation delays no other thread.
//!
//! | type | use | memory |
//! |---|---|---|
//! | [`IndexSet`] | free numbers, for any thread | fixed |
//! | [`IndexStack`] | numbers, from many threads to one that takes all | fixed |
//! | [`Mailbox`] | values, from many threads to one that takes all | fixed, and an allocation for each value beyond |

mod index_set;
mod index_stack;
mod mailbox;

pub(crate) use index_set::IndexSet;
pub(crate) use index_stack::IndexStack;
pub(crate) use mailbox::Mailbox;
