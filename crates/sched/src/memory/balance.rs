//! Balances memory: fair shares, grants, and requests to give back.

use super::{ClientId, MEMORY_UNIT, MemoryAction, MemoryShares, Share};
use crate::units::{Bytes, Time};
use alloc::vec::Vec;

impl MemoryShares {
    /// Deals out what is free and asks for what is missing, after anything has changed.
    pub(super) fn balance(&mut self, now: Time) {
        self.divide();
        self.grant_fixed();
        self.grant_variable();
        self.ask(now);
    }

    /// Missing memory: to fixed parts, to fair shares, and to the reserve.
    pub(super) fn shortage(&self) -> u64 {
        let missing: u64 = self.shares.values().map(Share::missing).sum();
        (missing + self.reserve).saturating_sub(self.free)
    }

    /// Computes fair shares: by rising ratio of what is wanted to the fixed part, each takes what it
    /// wants or its part of what is left, so what the modest leave is the others'.
    fn divide(&mut self) {
        let mut left = self.promisable().get();
        let mut weight = self.promised();
        let mut order: Vec<(ClientId, u64, u64)> = self
            .shares
            .iter()
            .map(|(client, share)| (*client, share.want, share.fixed))
            .collect();
        // want / fixed by cross-multiplication; without a fixed part, last.
        order.sort_by(|(_, want, fixed), (_, other_want, other_fixed)| {
            let (a, b) = (
                u128::from(*want) * u128::from(*other_fixed),
                u128::from(*other_want) * u128::from(*fixed),
            );
            (*fixed == 0).cmp(&(*other_fixed == 0)).then(a.cmp(&b))
        });
        for (client, want, fixed) in order {
            let part = if weight == 0 {
                left
            } else {
                (u128::from(left) * u128::from(fixed) / u128::from(weight)) as u64
            };
            let part = part - part % MEMORY_UNIT.get();
            let fair = want.min(part);
            left -= fair;
            weight -= fixed;
            if let Some(share) = self.shares.get_mut(&client) {
                share.fair = fair;
            }
        }
    }

    fn grant_fixed(&mut self) {
        while let Some(client) = self.joining.front().copied() {
            let Some(share) = self.shares.get_mut(&client) else {
                break;
            };
            if share.fixed > self.free {
                break;
            }
            self.free -= share.fixed;
            share.fixed_granted = true;
            self.joining.pop_front();
            self.actions.push_back(MemoryAction::GrantFixed {
                client,
                bytes: Bytes(share.fixed),
            });
        }
    }

    /// Up to their fair shares, from the reserve if need be, but not from what others wait for to join.
    fn grant_variable(&mut self) {
        if !self.joining.is_empty() {
            return;
        }
        for (client, share) in &mut self.shares {
            let granted = share.fair.saturating_sub(share.held).min(self.free);
            if granted > 0 {
                share.held += granted;
                self.free -= granted;
                self.actions.push_back(MemoryAction::GrantVariable {
                    client: *client,
                    bytes: Bytes(granted),
                });
            }
        }
    }

    /// Asks those above their fair share for what is missing and has not been asked for yet.
    fn ask(&mut self, now: Time) {
        let asked: u64 = self.shares.values().map(Share::asked).sum();
        let mut missing = self.shortage().saturating_sub(asked);
        let mut excess: u64 = self.shares.values().map(Share::excess).sum();
        for (client, share) in &mut self.shares {
            let own = share.excess();
            if missing == 0 || own == 0 {
                continue;
            }
            let part = u128::from(missing) * u128::from(own);
            let part = part.div_ceil(u128::from(excess)) as u64;
            let bytes = part.next_multiple_of(MEMORY_UNIT.get()).min(own);
            (missing, excess) = (missing.saturating_sub(bytes), excess - own);
            let by = now.saturating_add(self.grace);
            share.asked.push_back((by, bytes));
            self.actions.push_back(MemoryAction::Ask {
                client: *client,
                bytes: Bytes(bytes),
                by,
            });
        }
    }
}
