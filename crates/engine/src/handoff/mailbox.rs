//! Values on their way to one thread, any number of them.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use super::IndexSet;
use crate::sync::AtomicPtr;

struct Node<T> {
    value: T,
    next: *mut Node<T>,
    /// Where it lies in the mailbox; `None` if it has been allocated.
    place: Option<u32>,
}

/// A queue without a bound, linked in one step, all taken in one step. A value that comes while there is
/// a place free takes that, every other is an allocation.
pub(crate) struct Mailbox<T> {
    /// The latest; null if there is none.
    head: AtomicPtr<Node<T>>,
    free: IndexSet,
    places: Box<[UnsafeCell<MaybeUninit<Node<T>>>]>,
}

// SAFETY: a node belongs to whoever took its place from the free ones, until it is linked, and then to
// the one thread that takes it off, until that gives its place back; both steps are a release for whoever
// comes next. So values only move between threads.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Mailbox<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Mailbox<T> {}

impl<T> Mailbox<T> {
    /// An empty mailbox that has room for so many values.
    pub(crate) fn new(places: u32) -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            free: IndexSet::full(0..places),
            places: (0..places)
                .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
                .collect(),
        }
    }

    /// Hands over a value. Tries again only if another value got in between.
    pub(crate) fn push(&self, value: T) {
        let mut next = self.head.load(Ordering::Relaxed);
        let place = self.free.take();
        let node = Node { value, next, place };
        let node = match place {
            // SAFETY: whoever takes a place has it alone; what was there has been moved out.
            #[allow(unsafe_code)]
            Some(place) => unsafe { (*self.places[place as usize].get()).write(node) },
            None => Box::into_raw(Box::new(node)),
        };
        while let Err(now) =
            self.head
                .compare_exchange_weak(next, node, Ordering::Release, Ordering::Relaxed)
        {
            next = now;
            // SAFETY: as long as the node is not linked nobody else has it.
            #[allow(unsafe_code)]
            unsafe {
                (*node).next = next;
            }
        }
    }

    /// Whether there is nothing to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    /// Takes all there are.
    pub(crate) fn take_all(&self) -> Mail<'_, T> {
        let mut mail = Mail {
            first: ptr::null_mut(),
            mailbox: self,
        };
        if self.is_empty() {
            return mail;
        }
        let mut at = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: a node is linked whole and not changed after that, and only one thread takes a
            // head: all nodes behind it are this thread's.
            #[allow(unsafe_code)]
            let next = unsafe { ptr::replace(&raw mut (*at).next, mail.first) };
            mail.first = at;
            at = next;
        }
        mail
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// What was in a mailbox, the first first.
pub(crate) struct Mail<'a, T> {
    first: *mut Node<T>,
    mailbox: &'a Mailbox<T>,
}

impl<T> Iterator for Mail<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: each node is taken off the list once, and its place is not given back before it has
        // been moved out; one without a place came from a box.
        #[allow(unsafe_code)]
        let node = unsafe {
            match (*self.first).place {
                Some(_) => ptr::read(self.first),
                None => *Box::from_raw(self.first),
            }
        };
        if let Some(place) = node.place {
            self.mailbox.free.give(place);
        }
        self.first = node.next;
        Some(node.value)
    }
}

impl<T> Drop for Mail<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
