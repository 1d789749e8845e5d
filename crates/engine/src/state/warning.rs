//! What is not as it should be.

use std::fmt;

use serde::Serialize;

/// Something that is not as it should be, in words for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Warning {
    /// What.
    pub what: String,
    /// The disks and parts of the host that it is about, by name; none if it is the whole pool.
    pub concerns: Vec<String>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.concerns.as_slice() {
            [] => Ok(()),
            concerns => write!(f, " ({})", concerns.join(", ")),
        }
    }
}
