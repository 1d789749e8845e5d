//! An unbounded queue of values on their way to one thread.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use super::IndexSet;
use crate::sync::AtomicPtr;

struct Node<T> {
    value: T,
    next: *mut Node<T>,
    /// Its place in the mailbox; `None` if it was allocated.
    place: Option<u32>,
}

/// An unbounded queue; values are linked in one step, and all are taken in one step. A value uses a free
/// place if there is one, otherwise an allocation.
pub(crate) struct Mailbox<T> {
    /// The latest value; null if empty.
    head: AtomicPtr<Node<T>>,
    free: IndexSet,
    places: Box<[UnsafeCell<MaybeUninit<Node<T>>>]>,
}

// SAFETY: a node belongs to the thread that took its place from the free set, until the node is linked; and
// then to the thread that takes it off, until that thread returns the place. Both steps are a release for the
// next owner. So values only move between threads.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Mailbox<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Mailbox<T> {}

impl<T> Mailbox<T> {
    /// An empty mailbox with places for this number of values.
    pub(crate) fn new(places: u32) -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            free: IndexSet::full(0..places),
            places: (0..places)
                .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
                .collect(),
        }
    }

    /// Pushes a value. Retries only if another push took effect in between.
    pub(crate) fn push(&self, value: T) {
        let mut next = self.head.load(Ordering::Relaxed);
        let place = self.free.take();
        let node = Node { value, next, place };
        let node = match place {
            // SAFETY: the thread that took a place owns it exclusively; its previous value has been moved out.
            #[allow(unsafe_code)]
            Some(place) => unsafe { (*self.places[place as usize].get()).write(node) },
            None => Box::into_raw(Box::new(node)),
        };
        while let Err(now) =
            self.head
                .compare_exchange_weak(next, node, Ordering::Release, Ordering::Relaxed)
        {
            next = now;
            // SAFETY: until the node is linked this thread owns it exclusively.
            #[allow(unsafe_code)]
            unsafe {
                (*node).next = next;
            }
        }
    }

    /// True if the mailbox is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    /// Takes all values.
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
            // SAFETY: a node is complete when it is linked, and not changed after that. Only one thread takes
            // a head, so all nodes behind it belong to this thread.
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

/// Values taken from a mailbox, the oldest first.
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
        // SAFETY: each node is taken off the list once, and its place is returned only after the node has
        // been moved out. A node without a place came from a box.
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
