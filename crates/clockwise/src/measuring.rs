//! Measures a drive of this machine: everything around the pure procedure of crate `measure`.
//!
//! | module | content |
//! |---|---|
//! | [`content`] | what is on it, by known signatures |
//! | [`target`] | the device, file or emulated drive: its identity, the conditions of its use, the way it is opened |
//! | [`driver`] | serves the requests of a measurement in real time |
//! | [`samples`] | the file of samples, from which an interrupted measurement continues |
//! | [`settings`] | settings of the drive that are changed for the measurement and restored |
//! | [`smart`] | the drive's report about itself |
//! | [`evidence`] | all results, and the profile with its origin |
//! | [`summary`] | the findings in plain words |
//! | [`report`] | the findings as a page |
//!
//! Left out: estimates of times that cannot be measured. A report names the assumptions.

pub mod content;
pub mod driver;
pub mod evidence;
pub mod report;
pub mod samples;
pub mod settings;
pub mod smart;
pub mod summary;
pub mod target;
