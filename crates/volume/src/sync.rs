//! The atomics of what is shared without a lock. The modules that use them are compiled a second time
//! by `tests/volume/interleavings`, against those of a model checker.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
