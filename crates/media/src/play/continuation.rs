//! Continues a playback in another one, with packet numbers that go on.
//!
//! A PLAY request that is refused while a recording is played leaves the playback where it was. Faster or
//! backwards, key frames may be sent twice or left out then, as with PAUSE and PLAY.

use super::Playback;
use super::numbering::Numbers;

/// State of a playback that another one of the same recording takes over.
#[derive(Clone, Debug)]
pub(crate) struct Continuation {
    numbers: Numbers,
    /// Number of the recording that was being sent.
    recording: u64,
    /// Media time of the last packet sent.
    reached_ns: Option<u64>,
    /// End of what is passed over, from the time at which the other playback begins.
    passes_ns: Option<i128>,
}

impl Playback<'_> {
    /// The state for a playback that begins at this time of the recording.
    pub(crate) fn continuation(&self, from_ns: u64) -> Continuation {
        let from = self.shown_at(from_ns);
        Continuation {
            numbers: Numbers::new(&self.numbering, from),
            recording: self.shown,
            reached_ns: self.reached_ns,
            passes_ns: self.passes_to.map(|to| to - from),
        }
    }

    /// Takes over the state; this playback begins at that time of the recording.
    pub(crate) fn continuing(mut self, of: Continuation, from_ns: u64) -> Self {
        let from = self.shown_at(from_ns);
        self.numbering = of.numbers.going_on(from);
        if of.recording == self.shown {
            self.reached_ns = of.reached_ns;
            self.passes_to = of.passes_ns.map(|passes| from + passes);
        }
        self
    }
}
