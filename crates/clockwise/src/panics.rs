//! Panics of threads: each is told in the log, and what nobody survives ends the server.
//!
//! The hook sees the panics of all threads and tasks, whoever started them and whether or not anybody waits for them.
//! [`engine::panics`] says which are survived: those of a call, a connection or a camera, with which only that ends.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::panics::is_survived;
use tokio::sync::watch;

/// How many have been survived.
static SURVIVED: AtomicU64 = AtomicU64::new(0);

/// What ends the server, once it has happened.
pub(crate) struct Panics(watch::Receiver<Option<String>>);

/// Has every panic from now on told in the log instead of on standard error.
pub(crate) fn watch() -> Panics {
    let (told, first) = watch::channel(None);
    std::panic::set_hook(Box::new(move |panic| {
        let what = describe(panic);
        let backtrace = Backtrace::capture();
        let is_survived = is_survived();
        if is_survived {
            SURVIVED.fetch_add(1, Ordering::Relaxed);
            tracing::error!("{what}; what it worked on ends, the server goes on");
        } else {
            tracing::error!("{what}; the server ends");
        }
        if backtrace.status() == BacktraceStatus::Captured {
            tracing::error!("{backtrace}");
        }
        if !is_survived {
            told.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(what);
                is_first
            });
        }
    }));
    Panics(first)
}

impl Panics {
    /// Waits for the first that nobody survives.
    pub(crate) async fn happened(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // Somebody else's hook took the place of this one: it will not be told.
            std::future::pending().await
        }
    }

    /// The first that nobody survives, if there has been one.
    pub(crate) fn first(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}

/// How many have been survived since the start.
pub(crate) fn survived() -> u64 {
    SURVIVED.load(Ordering::Relaxed)
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let place = panic.location().map(ToString::to_string);
    let place = place.as_deref().unwrap_or("an unknown place");
    let what = said(panic.payload());
    format!("thread {name:?} panicked at {place}: {what}")
}

/// The words of a panic.
fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it does not say why")
}
