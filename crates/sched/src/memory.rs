//! Memory shared between clients: guaranteed and revocable buffers (thesis 5.2.4).
//!
//! # Problem
//!
//! Streams need buffers that nobody takes away; caches are the better the more memory they have. One
//! arena is to serve both, and a stream that opens must get its buffers soon, however full the
//! caches are.
//!
//! # Policy
//!
//! A client has a *fixed* part, promised when it joins and never taken, and a *variable* part, which it can
//! be asked to give back. While there is enough, each client gets the variable memory that it wants. When
//! there is not, each client's *fair share* is the memory that it wants, up to a multiple of its fixed part.
//! The multiple is the same for all clients and as large as the memory allows, so the unused part of one
//! client's share goes to the others. (A client without a fixed part gets the memory that all others leave.)
//! Only clients that hold more than their fair share are asked to give back, in proportion to their excess.
//! Memory that is still missing after the grace period is taken.
//!
//! A *reserve* is kept free of variable memory. A client below its fair share and a client that joins are
//! served from it at once, and it is filled up again by asking.
//!
//! # Example
//!
//! An arena of 100, no reserve. A and B have 10 fixed each and want everything: 40 variable each. C joins
//! with 40 fixed: 60 are promised, and of the 40 left A and B each get 20 if C wants nothing, so both
//! are asked for 20, and C has its 40 at the latest when the grace period is over.
//!
//! Deliberately absent: which buffers are whose, and the taking itself; the pool in the engine
//! carries out the [`MemoryAction`]s.

mod balance;

use crate::units::{Bytes, Nanos, Time};
use alloc::collections::{BTreeMap, VecDeque};

/// Names a client of the memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// An action on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryAction {
    /// The client's fixed part is there, all of it.
    GrantFixed {
        /// Whose.
        client: ClientId,
        /// Amount.
        bytes: Bytes,
    },
    /// The client holds this much more variable memory.
    GrantVariable {
        /// Whose.
        client: ClientId,
        /// Amount added.
        bytes: Bytes,
    },
    /// Ask the client to give back this much more variable memory.
    Ask {
        /// Whom.
        client: ClientId,
        /// Amount.
        bytes: Bytes,
        /// When it will be taken otherwise.
        by: Time,
    },
    /// Take this much of the client's variable memory; it counts as given back already.
    Seize {
        /// Whose.
        client: ClientId,
        /// Amount.
        bytes: Bytes,
    },
}

/// Why a client's wish cannot be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The guarantee does not fit beside the others'.
    #[error("{asked:?} of guaranteed memory do not fit; only {available:?} are not promised yet")]
    NotEnough {
        /// Amount asked for.
        asked: Bytes,
        /// Amount that could be promised.
        available: Bytes,
    },
    /// The id is in use.
    #[error("memory client {} exists already", .0.0)]
    Duplicate(ClientId),
    /// There is no such client.
    #[error("there is no memory client {}", .0.0)]
    Unknown(ClientId),
    /// More was given back than was held.
    #[error("{given:?} were returned, but only {held:?} are held")]
    NotHeld {
        /// Amount that was said to be given back.
        given: Bytes,
        /// Amount that was held.
        held: Bytes,
    },
}

/// Variable memory is dealt out and asked for in multiples of this.
pub const MEMORY_UNIT: Bytes = Bytes(4096);

/// A client's part.
#[derive(Clone, Debug, Default)]
struct Share {
    fixed: u64,
    fixed_granted: bool,
    /// Variable memory held, and wanted in all.
    held: u64,
    want: u64,
    /// Requests to give back that it has not met: deadline, amount.
    asked: VecDeque<(Time, u64)>,
    /// Its fair share of variable memory, as of the last balancing.
    fair: u64,
}

impl Share {
    fn asked(&self) -> u64 {
        self.asked.iter().map(|ask| ask.1).sum()
    }

    fn missing(&self) -> u64 {
        let fixed = if self.fixed_granted { 0 } else { self.fixed };
        fixed + self.fair.saturating_sub(self.held)
    }

    /// Memory beyond its fair share that it has not been asked for yet.
    fn excess(&self) -> u64 {
        self.held
            .saturating_sub(self.fair)
            .saturating_sub(self.asked())
    }
}

/// Shares of all clients, and requests to give back.
#[derive(Clone, Debug)]
pub struct MemoryShares {
    arena: u64,
    reserve: u64,
    grace: Nanos,
    free: u64,
    shares: BTreeMap<ClientId, Share>,
    /// Those whose fixed part is not there yet, first come first served.
    joining: VecDeque<ClientId>,
    actions: VecDeque<MemoryAction>,
}

impl MemoryShares {
    /// Shares of `arena`, of which `reserve` is kept free so that a client below its fair share is
    /// served at once; `grace` is how long a client has to give back (500 ms in the papers).
    #[must_use]
    pub fn new(arena: Bytes, reserve: Bytes, grace: Nanos) -> Self {
        Self {
            arena: arena.get(),
            reserve: reserve.get().min(arena.get()),
            grace,
            free: arena.get(),
            shares: BTreeMap::new(),
            joining: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// Admits a client with a guaranteed part; [`MemoryAction::GrantFixed`] follows once it is free,
    /// at the latest after the grace period. There is none for a part of nothing.
    ///
    /// # Errors
    /// When the guarantees would not fit together, or the id is in use.
    pub fn join(&mut self, now: Time, client: ClientId, fixed: Bytes) -> Result<(), MemoryError> {
        if self.shares.contains_key(&client) {
            return Err(MemoryError::Duplicate(client));
        }
        let available = self.promisable();
        if fixed > available {
            return Err(MemoryError::NotEnough {
                asked: fixed,
                available,
            });
        }
        let fixed_granted = fixed.is_zero();
        let share = Share {
            fixed: fixed.get(),
            fixed_granted,
            ..Share::default()
        };
        self.shares.insert(client, share);
        if !fixed_granted {
            self.joining.push_back(client);
        }
        self.balance(now);
        Ok(())
    }

    /// Memory that can still be promised to clients: the arena less the reserve and all fixed parts.
    #[must_use]
    pub fn promisable(&self) -> Bytes {
        Bytes(self.arena - self.reserve - self.promised())
    }

    fn promised(&self) -> u64 {
        self.shares.values().map(|share| share.fixed).sum()
    }

    /// The client and all that it held are gone.
    ///
    /// # Errors
    /// When there is no such client.
    pub fn leave(&mut self, now: Time, client: ClientId) -> Result<(), MemoryError> {
        let share = self
            .shares
            .remove(&client)
            .ok_or(MemoryError::Unknown(client))?;
        self.joining.retain(|joining| *joining != client);
        self.free += share.held + if share.fixed_granted { share.fixed } else { 0 };
        self.balance(now);
        Ok(())
    }

    /// The client would like to hold this much variable memory in all, held or not yet.
    ///
    /// # Errors
    /// When there is no such client.
    pub fn want(
        &mut self,
        now: Time,
        client: ClientId,
        variable: Bytes,
    ) -> Result<(), MemoryError> {
        self.share(client)?.want = variable.get().min(u64::MAX - MEMORY_UNIT.get());
        self.balance(now);
        Ok(())
    }

    /// The client gives back variable memory, asked or not, and wants that much less unless asked.
    ///
    /// # Errors
    /// When there is no such client, or it holds less.
    pub fn give_back(
        &mut self,
        now: Time,
        client: ClientId,
        bytes: Bytes,
    ) -> Result<(), MemoryError> {
        let share = self.share(client)?;
        if bytes.get() > share.held {
            return Err(MemoryError::NotHeld {
                given: bytes,
                held: Bytes(share.held),
            });
        }
        share.held -= bytes.get();
        let mut given = bytes.get();
        while let Some(ask) = share.asked.front_mut() {
            let met = ask.1.min(given);
            ask.1 -= met;
            given -= met;
            if ask.1 > 0 {
                break;
            }
            share.asked.pop_front();
        }
        share.want = share.want.saturating_sub(given);
        self.free += bytes.get();
        self.balance(now);
        Ok(())
    }

    /// The time has come to this; takes what was not given back and is still missing.
    pub fn advance(&mut self, now: Time) {
        let mut missing = self.shortage();
        for (client, share) in &mut self.shares {
            let mut overdue = 0;
            while let Some(ask) = share.asked.front().filter(|ask| ask.0 <= now) {
                overdue += ask.1;
                share.asked.pop_front();
            }
            let taken = overdue
                .min(missing)
                .min(share.held.saturating_sub(share.fair));
            if taken > 0 {
                share.held -= taken;
                missing -= taken;
                self.free += taken;
                self.actions.push_back(MemoryAction::Seize {
                    client: *client,
                    bytes: Bytes(taken),
                });
            }
        }
        self.balance(now);
    }

    /// The next thing to do, oldest first.
    pub fn next_action(&mut self) -> Option<MemoryAction> {
        self.actions.pop_front()
    }

    /// When [`MemoryShares::advance`] has to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.shares
            .values()
            .filter_map(|share| share.asked.front())
            .map(|ask| ask.0)
            .min()
    }

    /// Memory that a client holds: (fixed, variable).
    #[must_use]
    pub fn held(&self, client: ClientId) -> Option<(Bytes, Bytes)> {
        let share = self.shares.get(&client)?;
        let fixed = if share.fixed_granted { share.fixed } else { 0 };
        Some((Bytes(fixed), Bytes(share.held)))
    }

    /// A client's fair share of variable memory at present.
    #[must_use]
    pub fn fair_share(&self, client: ClientId) -> Option<Bytes> {
        self.shares.get(&client).map(|share| Bytes(share.fair))
    }

    /// Memory that no client holds.
    #[must_use]
    pub fn free(&self) -> Bytes {
        Bytes(self.free)
    }

    fn share(&mut self, client: ClientId) -> Result<&mut Share, MemoryError> {
        self.shares
            .get_mut(&client)
            .ok_or(MemoryError::Unknown(client))
    }
}

#[cfg(test)]
mod tests;
