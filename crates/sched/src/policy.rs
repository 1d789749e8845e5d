//! The rules by which best effort may go before real-time requests, by name.

use core::fmt;
use core::str::FromStr;

/// A rule by which best effort may go before real-time requests.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Exact slack with bursts. No admitted request is late.
    #[default]
    Exact,
    /// Delta-L with the corrected definition, charging and replenishment. No admitted request is late.
    DeltaL,
    /// Delta-L as published, faults and all; for comparison. Can be late.
    DeltaLPublished,
    /// Latest start time of what is queued (Symphony), blind to what may still be released; for
    /// comparison. Can be late.
    Lst,
    /// Best effort whenever no released real-time request is queued, however long it takes; for
    /// comparison. Can be late.
    Edf,
}

impl Policy {
    /// All of them, the default first.
    pub const ALL: [Self; 5] = [
        Self::Exact,
        Self::DeltaL,
        Self::DeltaLPublished,
        Self::Lst,
        Self::Edf,
    ];

    /// The name it is asked for by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::DeltaL => "delta-l",
            Self::DeltaLPublished => "delta-l-published",
            Self::Lst => "lst",
            Self::Edf => "edf",
        }
    }

    /// True if no request of an admitted set is ever late under it.
    #[must_use]
    pub const fn guarantees(self) -> bool {
        matches!(self, Self::Exact | Self::DeltaL)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no scheduler has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown scheduler; use exact, delta-l, delta-l-published, lst or edf")]
pub struct UnknownPolicy;

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or(UnknownPolicy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_read_back() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("Exact".parse::<Policy>(), Err(UnknownPolicy));
    }
}
