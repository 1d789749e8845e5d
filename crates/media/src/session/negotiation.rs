//! Another rate for a session that turns out to need one, asked for beside what it moves.

use std::sync::Arc;

use engine::stream::{Change, Refusal, Wish};
use sched::units::BytesPerSecond;

use crate::session::registry::{Does, Session};

/// What came of asking: with a refusal, what would fit.
pub(crate) type Outcome = Result<(), Option<BytesPerSecond>>;

/// At most one question under way.
pub(crate) struct Negotiation {
    member: Arc<Session>,
    under_way: Option<(BytesPerSecond, Change)>,
}

impl Negotiation {
    pub(crate) fn new(member: Arc<Session>) -> Self {
        Self {
            member,
            under_way: None,
        }
    }

    pub(crate) fn member(&self) -> &Session {
        &self.member
    }

    /// Asks for that rate; whoever waits for the stream's client is woken when there is an [outcome](Self::outcome).
    pub(crate) fn ask(&mut self, rate: BytesPerSecond) -> Outcome {
        let wish = Wish {
            rate: Some(rate),
            ..Wish::default()
        };
        match self.member.begin(wish) {
            Ok(change) => {
                self.under_way = Some((rate, change));
                Ok(())
            }
            Err(error) => {
                let session = self.member.number();
                tracing::warn!(session, %error, "a session cannot ask for another rate");
                Err(None)
            }
        }
    }

    /// What came of the last question, once.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        let (rate, change) = self.under_way.as_ref()?;
        let changed = change.take()?;
        let rate = *rate;
        self.under_way = None;
        Some(self.tell(rate, changed.map(drop)))
    }

    fn tell(&self, rate: BytesPerSecond, changed: Result<(), Refusal>) -> Outcome {
        let about = self.member.about();
        let (volume, recording, who) = (&about.volume, about.recording, &about.who);
        let what = match about.does {
            Does::Plays => "what is played",
            Does::Records | Does::Pulls => "what is recorded",
        };
        self.member.count(|counts| match &changed {
            Ok(()) => {
                counts.rate_changes += 1;
                counts.refused = None;
            }
            Err(refusal) => counts.refused = Some(refusal.to_string()),
        });
        let rate = rate.0;
        match changed {
            Ok(()) => {
                tracing::info!(%who, volume, recording, bytes_per_second = rate, "{what} takes another rate, and has it now");
                Ok(())
            }
            Err(refusal) => {
                tracing::warn!(%who, volume, recording, bytes_per_second = rate, %refusal, "{what} takes another rate, and does not get it");
                match refusal {
                    Refusal::Load { rate_that_fits, .. } => Err(rate_that_fits),
                    _ => Err(None),
                }
            }
        }
    }
}
