//! The panics that the process survives.
//!
//! A panic may end a thread that others rely on: a disk's dispatcher, a worker, the holder of a lock within a
//! change. So a panic ends the process, in order, unless the running code has declared before that only its
//! own work is lost ([`survive`], [`surviving`]). The process's panic hook calls [`is_survived`], on the
//! panicking thread and before unwinding.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

thread_local! {
    static IS_SURVIVED: Cell<bool> = const { Cell::new(false) };
}

/// Restores the thread's mark when dropped, also by a panic.
struct SurvivalMark(bool);

impl SurvivalMark {
    fn set(is_survived: bool) -> Self {
        Self(IS_SURVIVED.replace(is_survived))
    }
}

impl Drop for SurvivalMark {
    fn drop(&mut self) {
        IS_SURVIVED.set(self.0);
    }
}

/// Runs work whose panic affects nothing else: its changes are its own, or are consistent for others.
///
/// # Errors
/// When it panicked.
pub fn survive<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        let _mark = SurvivalMark::set(true);
        work()
    }))
}

/// Marks a task whose panic its runtime catches, as [`survive`] does.
pub async fn surviving<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    std::future::poll_fn(move |context| -> Poll<F::Output> {
        let _mark = SurvivalMark::set(true);
        task.as_mut().poll(context)
    })
    .await
}

/// Runs work that others rely on, on a borrowing thread. Its panic is caught here, but still ends the process.
pub(crate) fn shared<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        let _mark = SurvivalMark::set(false);
        work()
    }))
}

/// Marks the following code, until the result is dropped, as work that others rely on: a panic in it ends the
/// process.
#[must_use]
pub(crate) fn vital() -> impl Drop {
    SurvivalMark::set(false)
}

/// True if a panic of this thread at this point would be survived.
#[must_use]
pub fn is_survived() -> bool {
    IS_SURVIVED.try_with(Cell::get).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_survived_only_where_that_was_declared() {
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
