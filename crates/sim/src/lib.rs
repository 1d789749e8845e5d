//! Mechanical models of drives, virtual time, and the drive emulator.
//!
//! | module | what it is |
//! |---|---|
//! | [`atlas`] | the simulated Quantum Atlas-II beside the measured one |
//! | [`cello`] | best-effort load like that of a server in 1992 |
//! | [`emulator`] | a disk whose requests complete, in real time, when the model says so |
//! | [`plant`] | the mechanical model of a drive: when does a request complete? |
//! | [`run`] | virtual time: the scheduler against a plant |
//! | [`trace`] | requests that others have recorded, in six formats |

#![forbid(unsafe_code)]

pub mod atlas;
pub mod cello;
mod dice;
pub mod emulator;
pub mod plant;
pub mod run;
pub mod trace;
