//! Volumes as block devices for others.

pub mod nbd;
mod requests;
