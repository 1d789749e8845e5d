//! A reservation's share of one disk: a sporadic task.
//!
//! Model (Jeffay, Stanat and Martel 1991; thesis 6.1.2): a task releases requests at least a period
//! apart, each needs the disk for at most the service time, undivided, and is due a period after
//! its release. A periodic server's are containers, which are served in pieces: others may go between two of these.

use crate::units::Nanos;

/// Names a task on one disk. Ids are given by the caller and never used twice on a disk.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct TaskId(pub u64);

/// Worst-case service time C and period T of a task; 0 < C <= T <= [`TaskParams::PERIOD_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskParams {
    service: Nanos,
    period: Nanos,
    longest: Nanos,
}

/// Why a pair of numbers is not a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TaskError {
    /// A request that takes no time needs no reservation.
    #[error("the service time is zero; it must be at least 1 ns")]
    NoService,
    /// Sums of instants and periods would not fit their integers.
    #[error("the period ({period}) is longer than nine years")]
    PeriodTooLong {
        /// The period asked for.
        period: Nanos,
    },
    /// Not even alone on the disk could it meet a deadline.
    #[error("the service time ({service}) is longer than the period ({period})")]
    LongerThanPeriod {
        /// The worst-case service time asked for.
        service: Nanos,
        /// The period asked for.
        period: Nanos,
    },
}

impl TaskParams {
    /// The longest period of a task: 2^58 ns, nine years. Slack and demand are signed 64-bit numbers,
    /// and an instant a few periods ahead must be one as well.
    pub const PERIOD_MAX: Nanos = Nanos(1 << 58);

    /// A task of worst-case service time `service` and period `period`.
    ///
    /// # Errors
    /// When `service` is zero or longer than `period`, or that longer than [`Self::PERIOD_MAX`].
    pub fn new(service: Nanos, period: Nanos) -> Result<Self, TaskError> {
        if service.is_zero() {
            Err(TaskError::NoService)
        } else if period > Self::PERIOD_MAX {
            Err(TaskError::PeriodTooLong { period })
        } else if service > period {
            Err(TaskError::LongerThanPeriod { service, period })
        } else {
            Ok(Self {
                service,
                period,
                longest: service,
            })
        }
    }

    /// The task, served in pieces no longer than `longest`.
    #[must_use]
    pub fn in_pieces(self, longest: Nanos) -> Self {
        Self {
            longest: longest.clamp(Nanos(1), self.service),
            ..self
        }
    }

    /// The longest that it keeps the disk without a break: C, unless it is served in pieces.
    #[must_use]
    pub const fn longest(self) -> Nanos {
        self.longest
    }

    /// The worst-case service time, C.
    #[must_use]
    pub const fn service(self) -> Nanos {
        self.service
    }

    /// The period, T, which is also the relative deadline.
    #[must_use]
    pub const fn period(self) -> Nanos {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_needs_some_time_and_no_more_than_its_period() {
        assert_eq!(
            TaskParams::new(Nanos(0), Nanos(5)),
            Err(TaskError::NoService)
        );
        assert!(TaskParams::new(Nanos(6), Nanos(5)).is_err());
        assert!(TaskParams::new(Nanos(5), Nanos(5)).is_ok());
        let longest = TaskParams::PERIOD_MAX;
        assert!(TaskParams::new(Nanos(1), longest).is_ok());
        assert_eq!(
            TaskParams::new(Nanos(1), longest + Nanos(1)),
            Err(TaskError::PeriodTooLong {
                period: longest + Nanos(1)
            })
        );
    }

    #[test]
    fn a_piece_is_no_longer_than_the_whole() {
        let task = TaskParams::new(Nanos(5), Nanos(9)).expect("a task");
        assert_eq!(task.longest(), Nanos(5));
        for (longest, is) in [(0, 1), (2, 2), (5, 5), (6, 5)] {
            assert_eq!(task.in_pieces(Nanos(longest)).longest(), Nanos(is));
        }
    }
}
