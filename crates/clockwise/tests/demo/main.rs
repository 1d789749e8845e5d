//! The demo: what it shows, and how it ends.

mod support;

mod damage;
mod ends;
mod promises;
