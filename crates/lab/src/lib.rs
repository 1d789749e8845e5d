//! Schedulers on modelled drives: virtual time, farms of disks, traces, and the experiments of the papers.
//!
//! | module | what it is |
//! |---|---|
//! | [`adversary`] | schedulers against tasks that do all they may to be late |
//! | [`arms`] | schedulers of the arm from the literature on video servers |
//! | [`atlas`] | the simulated Quantum Atlas-II beside the measured one |
//! | [`cello`] | best-effort load like that of a server in 1992 |
//! | [`channel`] | a SCSI channel with its drives |
//! | [`chart`] | pictures of curves |
//! | [`demerit`] | the distance of two distributions of times |
//! | [`experiment`] | experiments that a file describes |
//! | [`farm`] | several disks with volumes, streams and traces on them |
//! | [`host_bus`] | adapters, PCI and memory, with strings of drives |
//! | [`measure`] | plants measured in virtual time |
//! | [`replay`] | measured traces against a plant |
//! | [`run`] | virtual time: the scheduler against a plant |
//! | [`sweep`] | many runs at a time, kept |
//! | [`thesis`] | the experiments of the thesis |
//! | [`trace`] | requests that others have recorded, in six formats |
//! | [`tracks`] | sequential reads with and without the rest of a track |
//! | [`video`] | a video server of several channels |

#![forbid(unsafe_code)]

pub mod adversary;
pub mod arms;
pub mod atlas;
pub mod cello;
pub mod channel;
pub mod chart;
pub mod demerit;
mod dice;
pub mod experiment;
pub mod farm;
pub mod host_bus;
pub mod measure;
pub mod replay;
pub mod run;
pub mod sweep;
pub mod thesis;
pub mod trace;
pub mod tracks;
pub mod video;
