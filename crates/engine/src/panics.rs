//! Which panics a program survives.
//!
//! A panic of a thread ends what others rely on: a disk's dispatcher, a worker, a lock's holder in the middle of a change.
//! So a panic ends the program, in order, unless the code that is running has said beforehand that nothing but its own work
//! is lost with it ([`survive`], [`surviving`]). The panic hook of the program asks [`is_survived`], on the thread that
//! panics and before anything is unwound.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

thread_local! {
    static IS_SURVIVED: Cell<bool> = const { Cell::new(false) };
}

/// Gives the thread its mark back, also when it panics.
struct Mark(bool);

impl Mark {
    fn set(is_survived: bool) -> Self {
        Self(IS_SURVIVED.replace(is_survived))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        IS_SURVIVED.set(self.0);
    }
}

/// Does work whose panic nobody else notices: what it has changed is its own, or is as it was for whoever looks.
///
/// # Errors
/// When it panicked.
pub fn survive<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        let _mark = Mark::set(true);
        work()
    }))
}

/// The same for a task, whose panic its runtime catches.
pub async fn surviving<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    std::future::poll_fn(move |context| -> Poll<F::Output> {
        let _mark = Mark::set(true);
        task.as_mut().poll(context)
    })
    .await
}

/// Does work that others rely on, for whoever runs it: its panic is caught here, and ends the program all the same.
pub(crate) fn shared<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        let _mark = Mark::set(false);
        work()
    }))
}

/// Marks what follows, as long as it is held, as work that others rely on: a panic in it ends the program.
#[must_use]
pub(crate) fn vital() -> impl Drop {
    Mark::set(false)
}

/// Whether a panic of this thread, just now, would be survived.
#[must_use]
pub fn is_survived() -> bool {
    IS_SURVIVED.try_with(Cell::get).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_survived_where_that_was_said_and_nowhere_within() {
        assert!(!is_survived());
        let seen = survive(|| {
            let within = shared(is_survived);
            let vital = vital();
            assert!(!is_survived());
            drop(vital);
            assert!(shared(|| panic!("a test panics")).is_err());
            (is_survived(), within.expect("it does not panic"))
        });
        assert_eq!(seen.expect("it does not panic"), (true, false));
        assert!(survive(|| panic!("a test panics")).is_err());
        assert!(!is_survived());
    }

    #[test]
    fn a_task_is_marked_while_it_runs_and_its_thread_is_not_afterwards() {
        let mut is_first = true;
        let task = std::future::poll_fn(move |_| {
            if std::mem::take(&mut is_first) {
                return Poll::Pending;
            }
            Poll::Ready(is_survived())
        });
        let mut task = pin!(surviving(task));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        assert!(!is_survived());
        assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(true));
        assert!(!is_survived());
    }
}
