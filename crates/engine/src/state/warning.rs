//! Warnings for operators.

use std::fmt;

use serde::Serialize;

/// A condition that an operator should know of, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Warning {
    /// The condition.
    pub what: String,
    /// Names of the disks and parts of the host concerned; empty if it is the whole pool.
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
