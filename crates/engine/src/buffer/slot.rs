//! The uses of one buffer that are under way, in one atomic word.
//!
//! A buffer allows any number of readers, or one writer, or transfers. A transfer and an access by the
//! processor exclude each other where one changes bytes that the other touches. Transfers do not exclude
//! each other, because the kernel's accesses are outside Rust's memory model. A buffer's memory returns
//! once the buffer has been dropped or revoked *and* no use is left; exactly one thread, which ends the last
//! use, learns that.
//!
//! Data that a transfer has put into a buffer is *unread* until another kind of use begins. A buffer that is
//! to be revoked while it is unread can get a reprieve: nothing more is put into it, and its data can still
//! be used.
//!
//! ```text
//!   63      62      61    59     58     57        56..38             37..19               18..0
//!   revoked dropped freed spared unread exclusive transfers into it  transfers out of it  readers
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use super::BufferError;

/// A kind of use of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// The processor reads it.
    Read,
    /// The processor writes it.
    Exclusive,
    /// A transfer takes data from it, to a disk or socket.
    Source,
    /// A transfer puts data into it, from a disk or socket.
    Fill,
}

const COUNT_BITS: u32 = 19;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const READ: u64 = 1;
const SOURCE: u64 = 1 << COUNT_BITS;
const FILL: u64 = 1 << (2 * COUNT_BITS);
const EXCLUSIVE: u64 = 1 << (3 * COUNT_BITS);
const UNREAD: u64 = 1 << 58;
const SPARED: u64 = 1 << 59;
const FREED: u64 = 1 << 61;
const DROPPED: u64 = 1 << 62;
const REVOKED: u64 = 1 << 63;
const IN_USE: u64 = EXCLUSIVE | (EXCLUSIVE - 1);

const _: () = assert!(EXCLUSIVE < UNREAD);

impl Use {
    const fn unit(self) -> u64 {
        match self {
            Self::Read => READ,
            Self::Exclusive => EXCLUSIVE,
            Self::Source => SOURCE,
            Self::Fill => FILL,
        }
    }

    /// If any of these bits is set, this use conflicts with another.
    const fn conflicts(self) -> u64 {
        match self {
            Self::Read => EXCLUSIVE | (COUNT_MAX * FILL),
            Self::Exclusive => IN_USE,
            Self::Source => EXCLUSIVE,
            Self::Fill => EXCLUSIVE | (COUNT_MAX * READ),
        }
    }

    /// If any of these bits is set, the holder has lost the right to this use.
    const fn barriers(self) -> u64 {
        match self {
            Self::Read | Self::Source => REVOKED | DROPPED,
            Self::Exclusive | Self::Fill => REVOKED | DROPPED | SPARED,
        }
    }

    /// The state after this use has begun.
    const fn begun(self, state: u64) -> u64 {
        match self {
            Self::Fill => (state + FILL) | UNREAD,
            _ => (state + self.unit()) & !UNREAD,
        }
    }

    /// The counter of uses of this kind.
    const fn counter(self) -> u64 {
        match self {
            Self::Exclusive => EXCLUSIVE,
            _ => COUNT_MAX * self.unit(),
        }
    }
}

/// The state of one buffer.
#[derive(Debug, Default)]
pub(crate) struct Slot(AtomicU64);

impl Slot {
    /// Begins a use.
    pub(crate) fn begin(&self, how: Use) -> Result<(), BufferError> {
        let mut state = self.0.load(Ordering::Acquire);
        loop {
            if state & how.barriers() != 0 {
                return Err(BufferError::Revoked);
            }
            if state & how.conflicts() != 0 || state & how.counter() == how.counter() {
                return Err(BufferError::InUse);
            }
            match self.0.compare_exchange_weak(
                state,
                how.begun(state),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => state = now,
            }
        }
    }

    /// Begins one more use of a kind that the caller already has. Succeeds even while the buffer is being
    /// revoked, because revocation waits for the caller anyway.
    pub(crate) fn begin_again(&self, how: Use) -> Result<(), BufferError> {
        debug_assert!(matches!(how, Use::Source | Use::Fill));
        let result = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                debug_assert!(state & how.counter() != 0, "nothing to repeat");
                (state & how.counter() != how.counter()).then(|| state + how.unit())
            });
        result.map(|_| ()).map_err(|_| BufferError::InUse)
    }

    /// Turns the caller's exclusive use into a transfer out of the buffer, even while the buffer is being
    /// revoked.
    pub(crate) fn turn_to_source(&self) {
        let before = self.0.fetch_sub(EXCLUSIVE - SOURCE, Ordering::AcqRel);
        debug_assert!(before & EXCLUSIVE != 0, "nothing to turn");
    }

    /// Ends a use. True: it was the last use, and the caller must return the memory.
    #[must_use]
    pub(crate) fn end(&self, how: Use) -> bool {
        let before = self.0.fetch_sub(how.unit(), Ordering::AcqRel);
        debug_assert!(
            before & how.counter() != 0,
            "the end of a use that did not begin"
        );
        let state = before - how.unit();
        state & (REVOKED | DROPPED) != 0 && state & IN_USE == 0 && self.free()
    }

    /// Revokes the buffer. True: it is unused, and the caller must return the memory; otherwise the thread that
    /// ends the last use does.
    #[must_use]
    pub(crate) fn revoke(&self) -> bool {
        let before = self.0.fetch_or(REVOKED, Ordering::AcqRel);
        before & IN_USE == 0 && self.free()
    }

    /// Records that the holder has dropped it. The result is as for [`Slot::revoke`].
    #[must_use]
    pub(crate) fn drop_handle(&self) -> bool {
        let before = self.0.fetch_or(DROPPED, Ordering::AcqRel);
        before & IN_USE == 0 && self.free()
    }

    /// True if it has been revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.0.load(Ordering::Acquire) & REVOKED != 0
    }

    /// Grants a reprieve if data that a transfer puts or has put into it is unread. Returns true if it did.
    #[must_use]
    pub(crate) fn spare(&self) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                (state & (UNREAD | REVOKED | DROPPED) == UNREAD).then_some(state | SPARED)
            })
            .is_ok()
    }

    /// True if its holder should drop it: it has been revoked, or will be.
    pub(crate) fn is_wanted_back(&self) -> bool {
        self.0.load(Ordering::Acquire) & (REVOKED | SPARED) != 0
    }

    /// True if data that a transfer puts or has put into it has not been used.
    pub(crate) fn is_unread(&self) -> bool {
        self.0.load(Ordering::Acquire) & UNREAD != 0
    }

    /// True if a transfer into it is under way.
    pub(crate) fn is_being_filled(&self) -> bool {
        self.0.load(Ordering::Acquire) & Use::Fill.counter() != 0
    }

    /// Resets it for another buffer.
    pub(crate) fn recycle(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// True if the caller is the one that returns the memory.
    fn free(&self) -> bool {
        // No use can begin any more, so once there is none, there never will be.
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                (state & (IN_USE | FREED) == 0).then_some(state | FREED)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    const ALL: [Use; 4] = [Use::Read, Use::Exclusive, Use::Source, Use::Fill];

    #[test]
    fn uses_exclude_each_other_as_documented() {
        let compatible = |a, b| {
            use Use::{Fill, Read, Source};
            matches!(
                (a, b),
                (Read, Read) | (Read, Source) | (Source, Read) | (Source | Fill, Source | Fill)
            )
        };
        for first in ALL {
            for second in ALL {
                let slot = Slot::default();
                slot.begin(first).unwrap();
                assert_eq!(
                    slot.begin(second).is_ok(),
                    compatible(first, second),
                    "{first:?} then {second:?}"
                );
            }
        }
    }

    #[test]
    fn memory_goes_back_once_when_the_last_use_ends() {
        for how in ALL {
            let slot = Slot::default();
            slot.begin(how).unwrap();
            assert!(!slot.revoke());
            assert_eq!(slot.begin(how), Err(BufferError::Revoked));
            assert!(slot.end(how));
            assert!(!slot.drop_handle());
        }
        let idle = Slot::default();
        assert!(idle.drop_handle());
    }

    #[test]
    fn exclusive_use_turns_into_a_source_without_a_gap() {
        let slot = Slot::default();
        slot.begin(Use::Exclusive).unwrap();
        assert!(!slot.revoke());
        slot.turn_to_source();
        assert_eq!(slot.begin_again(Use::Source), Ok(()));
        assert!(!slot.end(Use::Source));
        assert!(slot.end(Use::Source));
    }

    #[test]
    fn a_count_that_is_full_is_refused_and_does_not_spill() {
        let slot = Slot(AtomicU64::new(COUNT_MAX * SOURCE));
        assert_eq!(slot.begin(Use::Source), Err(BufferError::InUse));
        assert_eq!(slot.begin_again(Use::Source), Err(BufferError::InUse));
        assert!(slot.begin(Use::Read).is_ok());
    }

    #[test]
    fn threads_that_end_together_hand_back_once() {
        const ROUNDS: usize = if cfg!(miri) { 20 } else { 2_000 };
        for _ in 0..ROUNDS {
            let slot = Arc::new(Slot::default());
            let handed_back = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..3)
                .map(|index| {
                    let (slot, handed_back) = (Arc::clone(&slot), Arc::clone(&handed_back));
                    if index < 2 {
                        slot.begin(Use::Source).unwrap();
                    }
                    std::thread::spawn(move || {
                        let last = if index < 2 {
                            slot.end(Use::Source)
                        } else {
                            slot.revoke()
                        };
                        handed_back.fetch_add(usize::from(last), Ordering::Relaxed);
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(handed_back.load(Ordering::Relaxed), 1);
        }
    }
}
