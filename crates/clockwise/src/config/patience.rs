//! The `[patience]` section: how long the server waits for a disk that does not answer.

use engine::pool::StallLimits;
use sched::units::Nanos;
use serde::Deserialize;

use super::header_of;
use crate::failure::{Failure, SourceFile};
use crate::quantity::{self, Span};

/// The shortest `stalled_after`: a healthy disk may take that long to retry a sector.
const STALLED_AFTER_MIN: Nanos = Nanos::from_millis(100);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    #[serde(default, deserialize_with = "quantity::optional_text")]
    stalled_after: Option<Nanos>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    give_up_after: Option<Nanos>,
}

impl Section {
    /// The validated section.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub(super) fn checked(&self, source: &SourceFile<'_>) -> Result<StallLimits, Failure> {
        let defaults = StallLimits::default();
        let patience = StallLimits {
            stalled_after: self.stalled_after.unwrap_or(defaults.stalled_after),
            give_up_after: self.give_up_after.unwrap_or(defaults.give_up_after),
        };
        if patience.stalled_after < STALLED_AFTER_MIN {
            return Err(source
                .bad_input(
                    header_of(source, "patience"),
                    format!(
                        "`stalled_after` is {}, and a healthy disk may take that long for a request",
                        Span(patience.stalled_after)
                    ),
                )
                .help(format!("set it to at least {}", Span(STALLED_AFTER_MIN))));
        }
        if patience.give_up_after <= patience.stalled_after {
            return Err(source
                .bad_input(
                    header_of(source, "patience"),
                    format!(
                        "`give_up_after` is {}, which is not longer than `stalled_after`, {}",
                        Span(patience.give_up_after),
                        Span(patience.stalled_after)
                    ),
                )
                .help(format!(
                    "set a `give_up_after` that is longer than `stalled_after` (default \"{}\")",
                    Span(defaults.stalled_after)
                )));
        }
        Ok(patience)
    }
}
