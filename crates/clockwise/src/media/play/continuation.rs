//! What was played goes on in another playback, as if nothing had been asked for meanwhile.

use std::collections::VecDeque;

use super::numbering::Numbers;
use super::{Ask, Playback};
use crate::media::trick::NextKey;

/// Of what is shown by key frames, what has not been sent.
#[derive(Clone, Debug)]
struct Unsent {
    /// Of which recording.
    recording: u64,
    /// Blocks of key frames that were chosen.
    asks: VecDeque<Ask>,
    /// The block and the packet in it to go on with, within a key frame.
    within: Option<(u64, usize)>,
    next: NextKey,
}

/// How what was sent of a playback goes on in another one of the same, which begins where it was.
#[derive(Clone, Debug)]
pub(in crate::media) struct Continuation {
    numbers: Numbers,
    unsent: Option<Unsent>,
}

impl Playback<'_> {
    /// How it goes on in another one that begins with that time of the recording.
    pub(in crate::media) fn continuation(&self, from_ns: u64) -> Continuation {
        Continuation {
            numbers: Numbers::new(&self.numbering, self.shown_at(from_ns)),
            unsent: self.unsent(),
        }
    }

    /// Goes on as the one did that it begins behind.
    pub(in crate::media) fn continuing(mut self, of: Continuation, from_ns: u64) -> Self {
        let Continuation { numbers, unsent } = of;
        self.numbering = numbers.going_on(self.shown_at(from_ns));
        if let Some(unsent) = unsent.filter(|of| of.recording == self.recording.number)
            && let Some(keys) = &mut self.keys
        {
            keys.go_on(unsent.next);
            self.parts = unsent.asks;
            self.within = unsent.within;
        }
        self
    }

    fn unsent(&self) -> Option<Unsent> {
        let keys = self.keys.as_ref()?;
        // Where another one is read already, that is chosen anew.
        let shown = self.archive.recording(Some(self.shown))?;
        let is_read = self.recording.number == self.shown;
        let current = self.current.as_ref().and_then(|of| {
            let (packet, ..) = of.packets.front()?;
            Some((of.serial, of.key, *packet))
        });
        let now = current.map(|(serial, key, _)| (serial, key));
        let chosen = self.asked.iter().chain(&self.beyond).chain(&self.parts);
        let asks = now.into_iter().chain(chosen.copied());
        let is_shown = |(serial, _): &Ask| (shown.first..shown.end).contains(serial);
        Some(Unsent {
            recording: self.shown,
            asks: asks.filter(is_shown).collect(),
            within: match current {
                Some((serial, _, packet)) => Some((serial, packet)),
                None => self.within,
            },
            next: if is_read { keys.next() } else { NextKey::NONE },
        })
    }
}
