//! A client: an account of buffers and a queue of completions.

use std::sync::Arc;
use std::time::Duration;

use sched::units::{Bytes, Nanos};

use super::share::ReservedShare;
use crate::buffer::Account;
use crate::clock;
use crate::event::EventFd;
use crate::state::charge::Charge;
use crate::state::client::ClientCore;
use crate::state::pool::core::PoolCore;
use crate::state::request::VolumeCompletion;

/// Resources of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Memory reserved for the client. The client is refused if the pool cannot guarantee it.
    pub fixed: Bytes,
    /// The most requests in flight.
    pub in_flight_max: usize,
    /// Disk time for its best-effort requests, shared with other clients that have the same reservation.
    pub reservation: Option<Arc<ReservedShare>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            fixed: Bytes::from_mib(1),
            in_flight_max: 1024,
            reservation: None,
        }
    }
}

/// A user of the pool: its buffers, its requests in flight, its completions.
///
/// Methods take `&self` and may be called from several threads, such as one that submits and one
/// that waits; one thread at a time may wait. Dropping a client with requests in flight lets them
/// finish; their buffers go back when they do.
pub struct Client {
    core: Arc<ClientCore>,
    /// Keeps the reservation alive.
    _reservation: Option<Arc<ReservedShare>>,
}

impl Client {
    /// # Errors
    /// When the process has no descriptors left.
    pub(crate) fn new(
        name: &str,
        pool: &PoolCore,
        account: Account,
        reservation: Option<Arc<ReservedShare>>,
        in_flight_max: usize,
    ) -> std::io::Result<Self> {
        let charge = match &reservation {
            None => Charge::BestEffort,
            Some(share) => Charge::Reserved(Arc::clone(&share.tasks)),
        };
        let of_pool = (Arc::clone(&pool.io), Arc::clone(&pool.worker));
        Ok(Self {
            core: ClientCore::new(name, of_pool, account, charge, in_flight_max)?,
            _reservation: reservation,
        })
    }

    /// The memory account from which the client allocates its buffers.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.core.account
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// A completion, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<VolumeCompletion> {
        let op = self.core.take_finished()?;
        let completion = op.take(&mut op.state.lock());
        self.core.end(&op);
        Some(completion)
    }

    /// The next completion; waits for it at most `timeout` (`None`: without limit). `None` on timeout.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<VolumeCompletion> {
        let until = timeout.map(|timeout| {
            let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            clock::now().saturating_add(Nanos(nanos))
        });
        loop {
            if let Some(completion) = self.poll() {
                return Some(completion);
            }
            if self.arm() {
                let woken = self.event().wait(until);
                self.core.bell().disarm();
                if !woken {
                    return self.poll();
                }
            }
        }
    }

    /// Requests in flight, plus complete ones that have not been taken.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    /// For event loops: announces that the caller is about to sleep on [`event`](Self::event). If it returns
    /// false, the caller must not sleep, because completions are queued. The event fires once.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.core.arm()
    }

    /// Signalled when completions arrive after [`arm`](Self::arm). The caller has to drain it on waking.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        self.core.bell().event()
    }

    pub(crate) fn core(&self) -> &Arc<ClientCore> {
        &self.core
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.core.forget_ops();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.core.name)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
