//! Streams that a search puts in phase, to make a rule late at a load that it carries.
//!
//! All streams have one rate and go over the disks in one order, so two streams whose requests meet on a disk meet on every disk
//! until one of them ends. The search delays as few streams as it can, to less than a turn over all disks.

use sched::units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::video::Server;
use crate::video::viewers::{self, Session};

/// Streams in phase.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct InPhase {
    /// All streams.
    pub streams: u32,
    /// The fewest streams in phase that make a request late; `None`: not even all do.
    pub fewest: Option<u32>,
    /// The longest that one of them is delayed.
    pub delay_s: f64,
}

impl Server {
    /// The fewest of so many streams that make a request late if they are in phase.
    #[must_use]
    pub fn in_phase(&self, streams: u32, seed: u64) -> InPhase {
        // One movie each: later ones would not be in phase.
        let server = Self {
            movies: streams,
            ..self.clone()
        };
        let sessions = viewers::sessions(&server, streams, seed);
        let is_late = |count: u32| {
            let (sessions, delay) = server.delayed(&sessions, count as usize);
            let outcome = server.run_sessions(&sessions, streams, seed, true);
            (!outcome.is_smooth()).then_some(delay)
        };
        let mut fewest = None;
        let mut delay = Nanos::ZERO;
        let (mut low, mut high) = (1, streams + 1);
        while low < high {
            let middle = u32::midpoint(low, high);
            match (middle <= streams).then(|| is_late(middle)).flatten() {
                Some(with) => {
                    (fewest, delay) = (Some(middle), with);
                    high = middle;
                }
                None if middle > streams => break,
                None => low = middle + 1,
            }
        }
        InPhase {
            streams,
            fewest,
            delay_s: delay.as_secs_f64(),
        }
    }

    /// The sessions with so many of them in phase, those that the least delay puts in phase; and that delay.
    fn delayed(&self, sessions: &[Session], count: usize) -> (Vec<Session>, Nanos) {
        let disks = u64::from(self.channels) * self.ids.len() as u64;
        let period = self.period().get();
        let turn = period * disks;
        let phase = |session: &Session| {
            let place = u64::from(session.unit) % disks * period;
            (session.start.get() % turn + turn - place) % turn
        };
        let mut by_phase: Vec<(u64, usize)> = (0..)
            .zip(sessions)
            .map(|(of, session)| (phase(session), of))
            .collect();
        by_phase.sort_unstable();
        let all = by_phase.len();
        let at = |place: usize| by_phase[place % all].0 + (place / all) as u64 * turn;
        let span = |first: &usize| at(first + count - 1) - at(*first);
        let first = (0..all).min_by_key(span).unwrap_or_default();
        let mut delayed = sessions.to_vec();
        for place in first..first + count {
            let delay = at(first + count - 1) - at(place);
            let session = &mut delayed[by_phase[place % all].1];
            session.start = Time(session.start.get() + delay);
        }
        (delayed, Nanos(span(&first)))
    }
}
