//! The requests and tasks that a disk's scheduler knows, by number and by name.

use super::{TaskKind, TaskReport};
use crate::request::Urgency;
use crate::request::{Class, Op, Order, Request, RequestId};
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Sector, SectorCount, Time};
use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: Request,
    done: SectorCount,
    submitted: Time,
}

/// Requests in slots; slots are reused, and nothing is allocated after the start.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    slots: HashMap<RequestId, u32, FxBuildHasher>,
}

impl Table {
    pub(super) fn new(slots: usize) -> Self {
        let request = Request {
            id: RequestId(0),
            op: Op::Read,
            start: Sector::ZERO,
            count: SectorCount::ZERO,
            class: Class::BestEffort(Urgency::Async),
            order: Order::default(),
        };
        let empty = Entry {
            request,
            done: SectorCount::ZERO,
            submitted: Time::ZERO,
        };
        Self {
            entries: vec![empty; slots],
            vacant: (0..slots as u32).rev().collect(),
            // Twice the entries: a table this empty cleans up in place and never grows.
            slots: HashMap::with_capacity_and_hasher(2 * slots, FxBuildHasher),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.vacant.is_empty()
    }

    pub(super) fn find(&self, id: RequestId) -> Option<u32> {
        self.slots.get(&id).copied()
    }

    /// A request takes a slot. The table must not be full.
    pub(super) fn insert(&mut self, request: Request, submitted: Time) -> u32 {
        let slot = self
            .vacant
            .pop()
            .expect("the caller has checked that the table is not full");
        self.entries[slot as usize] = Entry {
            request,
            done: SectorCount::ZERO,
            submitted,
        };
        self.slots.insert(request.id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.slots.remove(&self.entries[slot as usize].request.id);
        self.vacant.push(slot);
    }

    pub(super) fn request(&self, slot: u32) -> &Request {
        &self.entries[slot as usize].request
    }

    /// Sectors of a request that are done.
    pub(super) fn done(&self, slot: u32) -> SectorCount {
        self.entries[slot as usize].done
    }

    /// More of a request is done; how much in all.
    pub(super) fn advance(&mut self, slot: u32, count: SectorCount) -> SectorCount {
        let entry = &mut self.entries[slot as usize];
        entry.done += count;
        entry.done
    }

    pub(super) fn submitted(&self, slot: u32) -> Time {
        self.entries[slot as usize].submitted
    }
}

/// A task and what has come of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskState {
    pub(super) id: TaskId,
    pub(super) kind: TaskKind,
    pub(super) params: TaskParams,
    pub(super) leaving: bool,
    pub(super) queued: u64,
    pub(super) completed: u64,
    pub(super) early: u64,
    pub(super) missed: u64,
    pub(super) lateness_max: Nanos,
    pub(super) overruns: u64,
}

impl TaskState {
    pub(super) fn new(id: TaskId, kind: TaskKind, params: TaskParams) -> Self {
        Self {
            id,
            kind,
            params,
            leaving: false,
            queued: 0,
            completed: 0,
            early: 0,
            missed: 0,
            lateness_max: Nanos::ZERO,
            overruns: 0,
        }
    }

    /// C/T in thousand-millionths, rounded up.
    pub(super) fn utilization_ppb(&self) -> u128 {
        let service = u128::from(self.params.service().get()) * 1_000_000_000;
        service.div_ceil(u128::from(self.params.period().get()))
    }

    pub(super) fn report(&self) -> TaskReport {
        TaskReport {
            id: self.id,
            kind: self.kind,
            params: self.params,
            queued: self.queued,
            completed: self.completed,
            early: self.early,
            missed: self.missed,
            lateness_max: self.lateness_max,
            overruns: self.overruns,
        }
    }
}
