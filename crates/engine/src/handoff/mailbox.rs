//! Values on their way to one thread, any number of them.

use std::marker::PhantomData;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::sync::AtomicPtr;

struct Node<T> {
    value: T,
    next: *mut Node<T>,
}

/// A queue without a bound: an allocation for each value, linked in one step, all taken in one step.
pub(crate) struct Mailbox<T> {
    /// The latest; null if there is none.
    head: AtomicPtr<Node<T>>,
    /// Shared, it moves values from thread to thread and lends none, as a lock would.
    _moves: PhantomData<Mutex<T>>,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            _moves: PhantomData,
        }
    }

    /// Hands over a value. Tries again only if another value got in between.
    pub(crate) fn push(&self, value: T) {
        let mut next = self.head.load(Ordering::Relaxed);
        let node = Box::into_raw(Box::new(Node { value, next }));
        while let Err(now) =
            self.head
                .compare_exchange_weak(next, node, Ordering::Release, Ordering::Relaxed)
        {
            next = now;
            // SAFETY: the node came from a box, and as long as it is not linked nobody else has it.
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
    pub(crate) fn take_all(&self) -> Mail<T> {
        let mut mail = Mail {
            first: ptr::null_mut(),
            _owns: PhantomData,
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
pub(crate) struct Mail<T> {
    first: *mut Node<T>,
    _owns: PhantomData<T>,
}

impl<T> Iterator for Mail<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: the node came from a box, and each is taken off the list once.
        #[allow(unsafe_code)]
        let node = unsafe { Box::from_raw(self.first) };
        self.first = node.next;
        Some(node.value)
    }
}

impl<T> Drop for Mail<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
