//! Drives that are not there: mechanical models of them, and disks that take as long as the models say.
//!
//! | module | what it is |
//! |---|---|
//! | [`plant`] | the mechanical model of a drive: when does a request complete? |
//! | [`disksim`] | plants from the parameter files of DiskSim |
//! | [`link`] | when do the transfers of disks end that share a link? |
//! | [`emulator`] | a disk whose requests complete, in real time, when the model says so |

#![forbid(unsafe_code)]

pub mod disksim;
pub mod emulator;
pub mod link;
pub mod plant;
