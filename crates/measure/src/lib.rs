//! Measures a drive through its block interface and fits a drive profile to the times.
//!
//! # Problem
//!
//! A guarantee is no better than the drive profile behind it. Manufacturers do not publish what a profile needs,
//! and drives of one model differ. So the profile is measured: from the times of requests alone, because that is
//! all that the block interface shows (thesis 4.3, 7.2 and 8.4).
//!
//! # The parts
//!
//! | module | content |
//! |---|---|
//! | [`machine`] | [`Measurement`]: completed requests in, the next requests out; no clock and no I/O |
//! | `exchange` | the types that it exchanges with its driver |
//! | [`facts`] | what is known of the drive before, and how much time the measurement may take |
//! | `rotation` | the period of rotation, from reads of the same sector |
//! | `track` | boundaries of tracks, sectors on a track and skews, from the angles of sectors |
//! | `zones` | zones and heads from tracks; rates where tracks cannot be told apart |
//! | `reach` | the longest time until the head is on another track and has settled |
//! | `seeks` | seeks by distance, and what writes take longer |
//! | `flat` | drives without rotation: overhead and rate by queue depth |
//! | `fit` | a profile from the parts, and the model that covers all samples with the shortest predictions |
//! | `validate` | requests of the server's kinds; an excess widens the profile and starts the count again |
//! | [`findings`] | all results, for a report |
//! | `notes` | sentences about them |
//! | [`log`] | the samples as bytes, so that an interrupted measurement continues |
//!
//! # A drive with noise
//!
//! Estimates of geometry compare angles with the boundary between two possible values, which are far apart, and
//! read again where a time fits neither. Bounds take the slowest sample that is less than a rotation later than
//! others of its kind. Later ones are counted as late requests. Whatever a bound does not cover is covered in the
//! end by calibration and validation, which make all requests longer.
//!
//! # Left out
//!
//! Average service times and anything from which a drive could be simulated. Requests are never discarded, and the
//! drive's settings are the caller's business.
//!
//! Sources: Worthington et al., On-line extraction of SCSI disk drive parameters (1995), for angles and switches;
//! thesis 4.3 for the list of what matters.

#![forbid(unsafe_code)]

mod exchange;
pub mod facts;
pub mod findings;
mod fit;
mod flat;
pub mod log;
pub mod machine;
mod notes;
mod probe;
mod reach;
mod rotation;
mod seeks;
mod stats;
mod track;
mod validate;
mod zones;

pub use facts::{Effort, Facts};
pub use findings::{Findings, Method};
pub use machine::{Measurement, Progress, Request, Sample, Step};
