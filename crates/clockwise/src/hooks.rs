//! Hooks: programs and addresses that get each event.
//!
//! Each hook has a queue in a file ([`queue`]), so that an event that was taken into it is delivered also after a crash,
//! at least once and in order. A delivery ([`deliver`]) that fails is tried again with growing pauses. All hooks run on
//! one thread of their own; nobody who emits an event waits for them.

mod deliver;
mod queue;

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use self::queue::Queue;
use crate::events::{EventReader, Events};
use crate::wire::events::{EventKind, EventView};

/// The first pause after a delivery that failed. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Where events are delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookTarget {
    /// A program and its arguments. It gets the event as JSON on its standard input.
    Run(Vec<String>),
    /// An address that gets the event as JSON with POST.
    Post(hyper::Uri),
}

impl std::fmt::Display for HookTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(words) => write!(f, "run {}", words.join(" ")),
            Self::Post(address) => write!(f, "post {address}"),
        }
    }
}

/// A hook of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookConfig {
    /// The kinds of events that it gets; absent: all.
    pub kinds: Option<Vec<EventKind>>,
    /// Where they are delivered.
    pub target: HookTarget,
}

/// The running hooks. They end when the events do.
pub struct Hooks {
    /// Told when other hooks take their place.
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Hooks {
    /// Starts hooks, whose queues are in the folder `state`.
    ///
    /// # Errors
    /// When the host has no thread or descriptor for them.
    pub fn start(hooks: &[HookConfig], events: &Arc<Events>, state: &Path) -> io::Result<Self> {
        Self::start_after(events.newest(), hooks, events, state)
    }

    /// The highest number of an event in the queues of hooks.
    #[must_use]
    pub fn newest_queued(hooks: &[HookConfig], state: &Path) -> u64 {
        let newest = hooks
            .iter()
            .filter_map(|config| Queue::open(state, &config.target.to_string()).newest());
        newest.max().unwrap_or(0)
    }

    /// Puts other hooks in the place of these. No event is lost in between: a hook that stays finds its queue.
    ///
    /// # Errors
    /// As [`Hooks::start`]; there are no hooks then.
    pub fn replace(
        &mut self,
        hooks: &[HookConfig],
        events: &Arc<Events>,
        state: &Path,
    ) -> io::Result<()> {
        let newest = events.newest();
        self.stop.send_replace(true);
        self.join();
        *self = Self::start_after(newest, hooks, events, state)?;
        Ok(())
    }

    /// Starts hooks for the events after the one with this number.
    fn start_after(
        newest: u64,
        hooks: &[HookConfig],
        events: &Arc<Events>,
        state: &Path,
    ) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        if hooks.is_empty() {
            return Ok(Self { stop, thread: None });
        }
        let hooks = hooks.iter().map(|config| Hook {
            queue: Queue::open(state, &config.target.to_string()),
            config: config.clone(),
            events: events.read(Some(newest)),
            stopped: stopped.clone(),
            failures: 0,
        });
        let hooks: Vec<_> = hooks.collect();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build()?;
        let thread = std::thread::Builder::new().name("hooks".to_owned());
        let thread = thread.spawn(move || {
            let running: Vec<_> = hooks
                .into_iter()
                .map(|hook| runtime.spawn(hook.run()))
                .collect();
            runtime.block_on(async {
                for hook in running {
                    // The panic hook has written a panic to the log.
                    let _ = hook.await;
                }
            });
            // A lookup of a name may last.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Waits until all events are in the queues. The events must have been closed.
    pub fn close(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been logged.
            let _ = thread.join();
        }
    }
}

/// A delivery under way, after its pause.
type Attempt = Pin<Box<dyn Future<Output = Result<u64, String>> + Send>>;

struct Hook {
    config: HookConfig,
    queue: Queue,
    events: EventReader,
    /// Becomes true when another hook takes the place of this one.
    stopped: watch::Receiver<bool>,
    /// Failed deliveries since the last one that succeeded.
    failures: u32,
}

impl Hook {
    /// Takes in events and delivers them, until the events end or another hook takes its place.
    async fn run(mut self) {
        let mut attempt: Option<Attempt> = None;
        loop {
            if attempt.is_none() {
                attempt = self.queue.next().map(|event| self.attempt(event));
            }
            let delivered = async {
                match &mut attempt {
                    Some(attempt) => attempt.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.events.next() => match event {
                    Some(event) => self.take(event),
                    None => return,
                },
                () = stopped(&mut self.stopped) => {
                    while let Some(event) = self.events.next_now() {
                        self.take(event);
                    }
                    return;
                }
                result = delivered => {
                    attempt = None;
                    self.note(result);
                }
            }
        }
    }

    fn take(&mut self, event: EventView) {
        if self.wants(event.kind) {
            self.queue.push(event);
        }
    }

    fn wants(&self, kind: EventKind) -> bool {
        let kinds = self.config.kinds.as_ref();
        kind == EventKind::Lost || kinds.is_none_or(|kinds| kinds.contains(&kind))
    }

    fn attempt(&self, event: EventView) -> Attempt {
        let target = self.config.target.clone();
        let pause = pause_after(self.failures);
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            deliver::deliver(&target, &event).await.map(|()| event.id)
        })
    }

    fn note(&mut self, result: Result<u64, String>) {
        let hook = &self.config.target;
        match result {
            Ok(id) => {
                if self.failures > 0 {
                    tracing::info!(%hook, failures = self.failures, "a hook takes events again");
                }
                self.failures = 0;
                self.queue.delivered(id);
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!(%hook, %error, "a hook has failed; the event is delivered again until the hook takes it");
                }
                self.failures = self.failures.saturating_add(1);
            }
        }
    }
}

/// Returns when it is true.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_stopped| *is_stopped).await.is_err() {
        // Without the sender nothing stops it.
        std::future::pending().await
    }
}

/// The pause before the next delivery.
fn pause_after(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => PAUSE_MIN
            .saturating_mul(1 << (failures - 1).min(16))
            .min(PAUSE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_minutes() {
        let seconds = [0, 1, 2, 3, 9, 10, 1_000].map(|failures| pause_after(failures).as_secs());
        assert_eq!(seconds, [0, 1, 2, 4, 256, 300, 300]);
    }
}
