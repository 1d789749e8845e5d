//! Handing things to and from a thread that must not wait.
//!
//! A real-time thread that spins until an ordinary thread has done its next step may spin for as long
//! as the kernel lets it: the ordinary thread cannot have the processor meanwhile. The usual bounded
//! and segmented lock-free queues have such an instant, because a place in the queue is claimed in one
//! step and filled in another. What is here has none: a step fails only because somebody else's whole
//! operation took effect, so a thread that has lost its processor in the middle of an operation holds
//! up nobody.
//!
//! | type | what goes over | memory |
//! |---|---|---|
//! | [`IndexSet`] | numbers that are free, to whoever wants one | fixed |
//! | [`IndexStack`] | numbers, from many threads to one that takes all there are | fixed |
//! | [`Mailbox`] | values, from many threads to one that takes all there are | fixed, and an allocation for each value beyond |

mod index_set;
mod index_stack;
mod mailbox;

pub(crate) use index_set::IndexSet;
pub(crate) use index_stack::IndexStack;
pub(crate) use mailbox::Mailbox;
