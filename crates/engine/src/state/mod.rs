//! The base layer of a pool: what is known of its disks, volumes, streams and requests, and who may change it.

pub(crate) mod charge;
pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod op;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod stream;
pub(crate) mod volume;
pub(crate) mod warning;
