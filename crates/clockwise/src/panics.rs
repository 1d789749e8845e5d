//! Panics of threads: each one is written to the log, and a panic that is not survived ends the server.
//!
//! The hook sees the panics of all threads and tasks. [`engine::panics`] decides which are survived: a panic
//! in a call, a connection or a camera ends only that call, connection or camera.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::panics::is_survived;
use tokio::sync::watch;

/// Number of survived panics since the start.
static SURVIVED: AtomicU64 = AtomicU64::new(0);

/// The first panic that is not survived. It ends the server.
pub(crate) struct Panics(watch::Receiver<Option<String>>);

/// Installs the hook that writes every panic to the log instead of standard error.
pub(crate) fn watch() -> Panics {
    let (report, first) = watch::channel(None);
    std::panic::set_hook(Box::new(move |panic| {
        let what = describe(panic);
        let backtrace = Backtrace::capture();
        let is_survived = is_survived();
        if is_survived {
            SURVIVED.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                "{what}; the call, connection or camera that it served ends, the server continues"
            );
        } else {
            tracing::error!("{what}; the server is ending");
        }
        if backtrace.status() == BacktraceStatus::Captured {
            tracing::error!("{backtrace}");
        }
        if !is_survived {
            report.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(what);
                is_first
            });
        }
    }));
    Panics(first)
}

impl Panics {
    /// Waits for the first panic that is not survived.
    pub(crate) async fn happened(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // The sender is gone: another hook has replaced this one, so no panic will be reported.
            std::future::pending().await
        }
    }

    /// The first panic that is not survived, if there was one.
    pub(crate) fn first(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}

/// Number of survived panics since the start.
pub(crate) fn survived() -> u64 {
    SURVIVED.load(Ordering::Relaxed)
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let place = panic.location().map(ToString::to_string);
    let place = place.as_deref().unwrap_or("an unknown location");
    let what = message(panic.payload());
    format!("thread {name:?} panicked at {place}: {what}")
}

/// The message of a panic.
fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
