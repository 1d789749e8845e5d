//! The places of a link that carries fewer disks than it has (thesis 8.1).
//!
//! The first disks of the link have a place each: so many as it carries at their full rate. A disk without a place
//! asks for one, for the predicted time of its next piece. A disk that has one lends it when its slack allows
//! ([`DiskScheduler::lend`](sched::disk::DiskScheduler::lend)), and takes it back when the piece has ended or its
//! time is over, whichever is first. So no disk waits for another one that hangs.
//!
//! An ask is one word, which the lender that grants it changes by compare-and-swap. A loan has a number, so that one
//! that comes back late is not taken for the next. Nothing here waits; a disk whose turn it is gets a ring.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sched::disk::DiskScheduler;
use sched::request::Decision;
use sched::units::{Nanos, Time};

use crate::event::Doorbell;

/// The most disks of a link, as an ask has room for.
pub const LINK_DISKS_MAX: usize = 63;

/// Bits of an ask: the state, the lender, the loan's number, and in nanoseconds the time that is asked for or, of a
/// loan, the last bits of its end.
const STATE: u64 = 0b11;
const LENDER_SHIFT: u32 = 2;
const LOAN_SHIFT: u32 = 8;
const LOAN_MASK: u64 = 0xffff;
const TIME_SHIFT: u32 = 24;
const TIME_MASK: u64 = (1 << (64 - TIME_SHIFT)) - 1;
/// 9 minutes: no place is lent for longer. An end that seems further away has passed.
const TIME_MAX: u64 = TIME_MASK >> 1;

const NONE: u64 = 0;
const ASKED: u64 = 1;
const GRANTED: u64 = 2;

/// The places of a link.
#[derive(Debug)]
pub struct LinkPlaces {
    /// By disk of the link, those with a place first.
    bells: Box<[Arc<Doorbell>]>,
    /// By disk of the link: something has changed for it.
    news: Box<[AtomicBool]>,
    /// By disk without a place.
    asks: Box<[AtomicU64]>,
    /// By disk with a place: the number of the loan that has not come back; zero if there is none.
    out: Box<[AtomicU64]>,
}

impl LinkPlaces {
    /// A link of so many disks, the first `lenders` of which have a place.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(disks: usize, lenders: usize) -> io::Result<Arc<Self>> {
        let bells = (0..disks).map(|_| Doorbell::new().map(Arc::new));
        let bells = bells.collect::<io::Result<Box<[_]>>>()?;
        let borrowers = disks - lenders;
        let none = |count| (0..count).map(|_| AtomicU64::new(NONE)).collect();
        Ok(Arc::new(Self {
            asks: none(borrowers),
            out: none(lenders),
            news: bells.iter().map(|_| AtomicBool::new(false)).collect(),
            bells,
        }))
    }

    fn lenders(&self) -> usize {
        self.out.len()
    }

    fn ring(&self, disk: usize) {
        self.news[disk].store(true, Ordering::Release);
        self.bells[disk].ring();
    }

    /// The end of the link at this disk.
    #[must_use]
    pub fn end(self: &Arc<Self>, disk: usize) -> LinkEnd {
        let places = Arc::clone(self);
        match disk.checked_sub(self.lenders()) {
            None => LinkEnd::Lender(Lender {
                places,
                disk,
                loan: 0,
                lent: None,
                next: 0,
            }),
            Some(borrower) => LinkEnd::Borrower(Borrower {
                places,
                borrower,
                asked: 0,
            }),
        }
    }
}

/// A disk's end of a link that lends places.
#[derive(Debug)]
pub enum LinkEnd {
    /// A disk with a place.
    Lender(Lender),
    /// A disk without one.
    Borrower(Borrower),
}

impl LinkEnd {
    /// The doorbell of the disk.
    pub(super) fn bell(&self) -> Arc<Doorbell> {
        let (places, disk) = self.disk();
        Arc::clone(&places.bells[disk])
    }

    /// The disk is going to look at the link.
    pub fn take_news(&self) {
        let (places, disk) = self.disk();
        places.news[disk].swap(false, Ordering::AcqRel);
    }

    /// True if the link has changed for this disk since [`take_news`](Self::take_news).
    #[must_use]
    pub fn has_news(&self) -> bool {
        let (places, disk) = self.disk();
        places.news[disk].load(Ordering::Acquire)
    }

    fn disk(&self) -> (&LinkPlaces, usize) {
        match self {
            Self::Lender(lender) => (&lender.places, lender.disk),
            Self::Borrower(of) => (&of.places, of.places.lenders() + of.borrower),
        }
    }

    /// The decision of a disk that has nothing on it.
    pub fn decide(&mut self, now: Time, scheduler: &mut DiskScheduler) -> Decision {
        match self {
            Self::Lender(lender) => lender.decide(now, scheduler),
            Self::Borrower(borrower) => borrower.decide(now, scheduler),
        }
    }

    /// The disk does not answer, so its place is free for others, and it needs none. Returns when to look again.
    pub(super) fn lend_unused(&mut self, now: Time) -> Option<Time> {
        match self {
            Self::Lender(lender) => lender
                .lent_until(now)
                .or_else(|| lender.lend(now, |_| true)),
            Self::Borrower(borrower) => {
                borrower.give_back();
                None
            }
        }
    }

    /// A piece has ended on the disk.
    pub fn ended(&self) {
        if let Self::Borrower(borrower) = self {
            borrower.give_back();
        }
    }
}

/// A disk that lends its place.
#[derive(Debug)]
pub struct Lender {
    places: Arc<LinkPlaces>,
    disk: usize,
    /// The number of the last loan.
    loan: u64,
    /// Until when the place is lent.
    lent: Option<Time>,
    /// The disk that is looked at first.
    next: usize,
}

impl Lender {
    fn decide(&mut self, now: Time, scheduler: &mut DiskScheduler) -> Decision {
        if let Some(until) = self.lent_until(now) {
            return Decision::Wait { until: Some(until) };
        }
        scheduler.returned(now);
        if scheduler.is_turn_to_lend()
            && let Some(until) = self.lend_in_slack(now, scheduler)
        {
            return Decision::Wait { until: Some(until) };
        }
        let decision = scheduler.decide(now);
        if let Decision::Wait { .. } = decision
            && let Some(until) = self.lend_in_slack(now, scheduler)
        {
            return Decision::Wait { until: Some(until) };
        }
        decision
    }

    /// Until when the place is lent; `None`: it is here.
    fn lent_until(&mut self, now: Time) -> Option<Time> {
        let is_out = self.places.out[self.disk].load(Ordering::Acquire) == self.loan;
        self.lent = self.lent.filter(|until| now < *until && is_out);
        self.lent
    }

    fn lend_in_slack(&mut self, now: Time, scheduler: &mut DiskScheduler) -> Option<Time> {
        let until = self.lend(now, |service| scheduler.lend(now, service));
        if until.is_none() {
            scheduler.returned(now);
        }
        until
    }

    /// Lends the place to a disk whose piece fits. Returns until when.
    fn lend(&mut self, now: Time, mut fits: impl FnMut(Nanos) -> bool) -> Option<Time> {
        let asks = &self.places.asks;
        for step in 0..asks.len() {
            let borrower = (self.next + step) % asks.len();
            let asked = asks[borrower].load(Ordering::Acquire);
            let service = Nanos(asked >> TIME_SHIFT);
            if asked & STATE != ASKED || !fits(service) {
                continue;
            }
            // From 1 to the mask.
            let loan = self.loan % LOAN_MASK + 1;
            self.places.out[self.disk].store(loan, Ordering::Release);
            let until = now + service;
            let granted = (until.get() & TIME_MASK) << TIME_SHIFT
                | loan << LOAN_SHIFT
                | (self.disk as u64) << LENDER_SHIFT
                | GRANTED;
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            if asks[borrower]
                .compare_exchange(asked, granted, success, failure)
                .is_err()
            {
                // Another disk was first, or the ask has changed. Other asks may be left, so look again.
                self.places.ring(self.disk);
                return None;
            }
            self.loan = loan;
            self.next = borrower + 1;
            self.lent = Some(until);
            self.places.ring(self.places.lenders() + borrower);
            return self.lent;
        }
        None
    }
}

/// A disk that borrows a place for each piece.
#[derive(Debug)]
pub struct Borrower {
    places: Arc<LinkPlaces>,
    borrower: usize,
    /// The time of the last ask.
    asked: u64,
}

impl Borrower {
    fn decide(&mut self, now: Time, scheduler: &mut DiskScheduler) -> Decision {
        let piece = scheduler.piece_to_borrow_for(now);
        if piece.is_none_or(|service| self.has_place(now, service)) {
            let decision = scheduler.decide(now);
            if let Decision::Wait { .. } = decision {
                self.give_back();
            }
            return decision;
        }
        Decision::Wait { until: None }
    }

    /// True if the disk has a place for a piece of this time. Otherwise it has asked for one. A place whose time is
    /// over is not here any more.
    fn has_place(&mut self, now: Time, service: Nanos) -> bool {
        let wanted = service.get().min(TIME_MAX);
        let ask = &self.places.asks[self.borrower];
        let mut word = ask.load(Ordering::Acquire);
        loop {
            let left = (word >> TIME_SHIFT).wrapping_sub(now.get()) & TIME_MASK;
            let is_over = left == 0 || left > TIME_MAX;
            match word & STATE {
                GRANTED if self.asked >= wanted && !is_over => return true,
                ASKED if self.asked == wanted => return false,
                GRANTED => {
                    self.give_back();
                    word = NONE;
                }
                _ => {}
            }
            let asked = wanted << TIME_SHIFT | ASKED;
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match ask.compare_exchange(word, asked, success, failure) {
                Ok(_) => break,
                Err(changed) => word = changed,
            }
        }
        self.asked = wanted;
        for lender in 0..self.places.lenders() {
            self.places.ring(lender);
        }
        false
    }

    /// Gives a borrowed place back, and withdraws an ask.
    fn give_back(&self) {
        let word = self.places.asks[self.borrower].swap(NONE, Ordering::AcqRel);
        if word & STATE == GRANTED {
            let lender = (word >> LENDER_SHIFT) as usize & LINK_DISKS_MAX;
            let loan = word >> LOAN_SHIFT & LOAN_MASK;
            // A loan that comes back late is not the one that is out.
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.places.out[lender].compare_exchange(loan, NONE, success, failure);
            self.places.ring(lender);
        }
    }
}

#[cfg(test)]
mod tests;
