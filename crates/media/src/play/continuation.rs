//! What was played goes on in another playback, as if nothing had been asked for meanwhile.

use std::collections::VecDeque;

use super::numbering::Numbers;
use super::{Ask, Playback};
use crate::play::trick::NextKey;

/// Of what is shown by key frames, what has not been sent.
#[derive(Clone, Debug)]
struct Unsent {
    /// Blocks of key frames that were chosen.
    asks: VecDeque<Ask>,
    /// The block and the packet in it to go on with, within a key frame.
    within: Option<(u64, usize)>,
    next: NextKey,
}

/// How what was sent of a playback goes on in another one of the same, which begins where it was.
#[derive(Clone, Debug)]
pub(crate) struct Continuation {
    numbers: Numbers,
    /// Of which recording what follows is.
    recording: u64,
    /// The time of the packet that was sent last.
    reached_ns: Option<u64>,
    /// What is passed over, from when that is shown on with which it goes on.
    passes: Option<i128>,
    unsent: Option<Unsent>,
}

impl Playback<'_> {
    /// How it goes on in another one that begins with that time of the recording.
    pub(crate) fn continuation(&self, from_ns: u64) -> Continuation {
        let from = self.shown_at(from_ns);
        Continuation {
            numbers: Numbers::new(&self.numbering, from),
            recording: self.shown,
            reached_ns: self.reached_ns,
            passes: self.passes_to.map(|to| to - from),
            unsent: self.unsent(),
        }
    }

    /// Goes on as the one did that it begins behind.
    pub(crate) fn continuing(mut self, of: Continuation, from_ns: u64) -> Self {
        let from = self.shown_at(from_ns);
        self.numbering = of.numbers.going_on(from);
        if of.recording != self.shown {
            return self;
        }
        self.reached_ns = of.reached_ns;
        self.passes_to = of.passes.map(|passes| from + passes);
        if let (Some(unsent), Some(keys)) = (of.unsent, &mut self.keys) {
            keys.go_on(unsent.next);
            if let Some((_, Some(key))) = unsent.asks.back() {
                (self.next_ask, self.skip) = (key.serial, key.packet as usize);
            }
            self.parts = unsent.asks;
            self.within = unsent.within;
        }
        self
    }

    fn unsent(&self) -> Option<Unsent> {
        let keys = self.keys.as_ref()?;
        let shown = self.archive.recording(Some(self.shown))?;
        let current = self.current.as_ref().and_then(|of| {
            let (packet, ..) = of.packets.front()?;
            Some((of.serial, of.key, *packet))
        });
        let now = current.map(|(serial, key, _)| (serial, key));
        let chosen = self.asked.iter().chain(&self.beyond).chain(&self.parts);
        let asks = now.into_iter().chain(chosen.copied());
        // What is of another one, which is read already, is chosen anew.
        let is_read = self.recording.number == self.shown;
        let is_shown = |(serial, _): &Ask| (shown.first..shown.end).contains(serial);
        Some(Unsent {
            asks: asks.filter(is_shown).collect(),
            within: match current {
                Some((serial, _, packet)) => Some((serial, packet)),
                None => self.within,
            },
            next: if is_read { keys.next() } else { NextKey::NONE },
        })
    }
}
