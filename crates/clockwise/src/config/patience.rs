//! How long the server waits for a disk that does not answer: `[patience]`.

use engine::pool::Patience;
use sched::units::Nanos;
use serde::Deserialize;

use super::head_of;
use crate::failure::{Failure, SourceFile};
use crate::quantity::{self, Span};

/// No disk is called stalled sooner: a retried sector takes that long.
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
    /// What the section says, where it makes sense.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn checked(&self, source: &SourceFile<'_>) -> Result<Patience, Failure> {
        let defaults = Patience::default();
        let patience = Patience {
            stalled_after: self.stalled_after.unwrap_or(defaults.stalled_after),
            give_up_after: self.give_up_after.unwrap_or(defaults.give_up_after),
        };
        if patience.stalled_after < STALLED_AFTER_MIN {
            return Err(source
                .wrong(
                    head_of(source, "patience"),
                    format!(
                        "`stalled_after` is {}, which a disk that is well may take for a request",
                        Span(patience.stalled_after)
                    ),
                )
                .help(format!("give it at least {}", Span(STALLED_AFTER_MIN))));
        }
        if patience.give_up_after <= patience.stalled_after {
            return Err(source
            .wrong(
                head_of(source, "patience"),
                format!(
                    "a disk would be given up after {}, but not said to be stalled before {}",
                    Span(patience.give_up_after),
                    Span(patience.stalled_after)
                ),
            )
            .help(format!(
                "give a `give_up_after` that is longer than `stalled_after` (\"{}\" when absent)",
                Span(defaults.stalled_after)
            )));
        }
        Ok(patience)
    }
}
