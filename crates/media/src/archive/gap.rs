//! Gaps: times in which nothing was recorded, and why.
//!
//! A block begins behind each gap of a recording. Its trailer has the cause and the end of what was recorded before,
//! and the [index](super::index) names the gaps of all earlier blocks. The last block of a recording says why the
//! recording ended. The first block of the next one says it too, because the last one may not have been written.

/// Why nothing was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GapCause {
    /// Unknown, as in recordings of earlier versions.
    #[default]
    Unknown,
    /// The camera or publisher ended it, or closed its connection.
    Camera,
    /// Nothing arrived, or the connection failed.
    Network,
    /// The server ended, or an operator ended the session.
    Server,
    /// A disk failed.
    Disk,
}

impl GapCause {
    /// All causes, by their codes on the disk.
    const ALL: [Self; 5] = [
        Self::Unknown,
        Self::Camera,
        Self::Network,
        Self::Server,
        Self::Disk,
    ];

    /// Its code on the disk.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The cause with this code; unknown if a later version has written it.
    #[must_use]
    pub fn of_code(code: u8) -> Self {
        Self::ALL
            .get(usize::from(code))
            .copied()
            .unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Camera => "camera",
            Self::Network => "network",
            Self::Server => "server",
            Self::Disk => "disk",
        }
    }
}

/// The gap before a block that does not continue the previous one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GapBefore {
    /// Why nothing was recorded.
    pub cause: GapCause,
    /// The latest media time before it, in nanoseconds; 0 if it is the first block of its recording.
    pub last_before_ns: u64,
}

/// A gap within a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gap {
    /// Serial of the first block after it.
    pub serial: u64,
    /// The latest time before it, in nanoseconds of the recording's time.
    pub last_before_ns: u64,
    /// When the first packet after it is to be played, in nanoseconds of the recording's time.
    pub first_after_ns: u64,
    /// Why nothing was recorded.
    pub cause: GapCause,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_code() {
        for cause in GapCause::ALL {
            assert_eq!(GapCause::of_code(cause.code()), cause);
        }
        assert_eq!(GapCause::of_code(9), GapCause::Unknown);
    }
}
