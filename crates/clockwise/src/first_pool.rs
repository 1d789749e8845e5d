//! The first pool of a host: the drives that it could have, and the configuration that will name them.

mod candidate;
mod config_file;

pub use candidate::Candidate;
pub use config_file::{ConfigFile, NewDisk, give_to_owner_of_folder, share};
