//! Requests of a session for another rate, which go on while it moves packets.

use std::sync::Arc;

use engine::stream::{Change, Refusal, StreamChange};
use sched::units::BytesPerSecond;

use crate::session::registry::{Session, SessionUse};

/// The outcome of a request; of a refusal the rate that would fit, if there is one.
pub(crate) type Outcome = Result<(), Option<BytesPerSecond>>;

/// The rate of a session, with at most one request under way.
pub(crate) struct Negotiation {
    member: Arc<Session>,
    /// The requested rate and its change.
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

    /// Requests a rate. The event of the stream's client wakes when there is an [outcome](Self::outcome).
    pub(crate) fn ask(&mut self, rate: BytesPerSecond) -> Outcome {
        let wish = StreamChange {
            rate: Some(rate),
            ..StreamChange::default()
        };
        match self.member.begin(wish) {
            Ok(change) => {
                self.under_way = Some((rate, change));
                Ok(())
            }
            Err(error) => {
                let session = self.member.number();
                tracing::warn!(session, %error, "a session cannot request another rate");
                Err(None)
            }
        }
    }

    /// The outcome of the last request, once.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        let (rate, change) = self.under_way.as_ref()?;
        let changed = change.take()?;
        let rate = *rate;
        self.under_way = None;
        Some(self.report(rate, changed.map(drop)))
    }

    fn report(&self, rate: BytesPerSecond, changed: Result<(), Refusal>) -> Outcome {
        let about = self.member.about();
        let (volume, recording, who) = (&about.volume, about.recording, &about.who);
        let what = match about.does {
            SessionUse::Plays | SessionUse::Watches => "player",
            SessionUse::Records | SessionUse::Pulls | SessionUse::Relays => "recording",
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
                tracing::info!(%who, volume, recording, bytes_per_second = rate, "a {what} needs another rate: reserved");
                Ok(())
            }
            Err(refusal) => {
                tracing::warn!(%who, volume, recording, bytes_per_second = rate, %refusal, "a {what} needs another rate: refused");
                match refusal {
                    Refusal::Load { rate_that_fits, .. } => Err(rate_that_fits),
                    _ => Err(None),
                }
            }
        }
    }
}
