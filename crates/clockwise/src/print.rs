//! Output of the commands: tables, sentences and pictures for people, JSON for programs.

mod latency;
mod output;
mod picture;
mod warnings;

pub(crate) use latency::{latency, slack, span};
pub use output::{Format, Output};
pub(crate) use output::{counted, list, missed, percent, short, table};
pub(crate) use picture::{picture, wrapped};
pub(crate) use warnings::{lines as warning_lines, of_disk as warnings_of_disk};
