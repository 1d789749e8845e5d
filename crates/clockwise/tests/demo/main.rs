//! The demo: what it shows, and how it ends.

#[path = "../common/mod.rs"]
mod common;
mod support;

mod damage;
mod ends;
mod promises;
