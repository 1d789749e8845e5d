//! The atomics of lock-free structures. The modules that use them are compiled a second time by
//! `tests/engine/handoffs`, with the atomics of a model checker.

pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
