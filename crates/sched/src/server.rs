//! Periodic servers: best effort with a reservation (thesis 6.5.4), and the floor.
//!
//! # Model
//!
//! A best-effort client may reserve a slice of disk time in each period: a task of its own, admitted
//! like any other. Its jobs are *containers*. A container is released when the client has a
//! request that may start, though not before the container before it is due, and is due a period
//! later. When its turn comes in order of deadlines the client's requests are served from it, in best-effort
//! order, while the predicted time of the next one fits into the rest of the slice. Time that a request does
//! not use stays in the container. The rest of the slice is forfeited when the next request does not fit, or
//! when the client has none.
//!
//! All the while the client's requests take part in best effort, where slack may serve them sooner.
//! Requests are bound to containers only when they are served, so the remaining ones move up by themselves. A
//! container without requests is withdrawn without effect.
//!
//! The *floor* is the server of best effort without a reservation. It keeps plain best effort from starving
//! when the streams fill the disk. A slice must hold the longest piece of a request, or the
//! container would come and serve nothing.
//!
//! # Lingering
//!
//! A client that sends its next request when it has the answer to the last would get one request
//! out of every container. So after a synchronous request the container waits a little for the next
//! one, at the cost of its own slice ([`LINGER`]). To the others such a wait is a piece of the container: it is
//! taken from the slice, and is no longer than the longest piece that admission counted on.
//!
//! # Example
//!
//! Slice 50 ms, period 1 s, no slack at all; four requests of 20 ms arrive at 0. The container released
//! at 0 serves two of them (the third would not fit in the 10 ms left), that of 1 s the other two. Were
//! there slack for one at 0.5 s, the container of 1 s would have room for another request by then.

use crate::core::{Choice, Core, JobKey};
use crate::disk::TaskKind;
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Time};
use alloc::vec::Vec;

/// Longest wait of a container for the next request of a client that has just been answered: the reaction
/// time of a local client, and a small part of a positioning time.
pub const LINGER: Nanos = Nanos::from_millis(1);

/// The account of best effort without a reservation.
pub(crate) const PLAIN: u32 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Container {
    key: JobKey,
    deadline: Time,
    /// True if anything was served from it.
    touched: bool,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    task: TaskId,
    account: u32,
    slice: Nanos,
    /// The longest that a container keeps the disk without a break, as it was admitted.
    longest: Nanos,
    /// The last container's deadline: the next one is not released before.
    next_release: Time,
    container: Option<Container>,
    /// True if a synchronous request was the last to be served from the container.
    may_linger: bool,
}

/// An open container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) account: u32,
    pub(crate) key: JobKey,
    pub(crate) deadline: Time,
    /// Rest of the slice.
    pub(crate) left: Nanos,
}

/// The periodic servers of one disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    servers: Vec<Server>,
    /// Requests that may start, by account.
    ready: Vec<u32>,
    vacant_accounts: Vec<u32>,
    containers: u64,
}

impl Servers {
    pub(crate) fn new() -> Self {
        let mut made = Self::default();
        made.ready.push(0);
        made
    }

    /// A server joins; the account for its client's requests.
    pub(crate) fn join(
        &mut self,
        task: TaskId,
        kind: TaskKind,
        params: TaskParams,
        first_release: Time,
    ) -> u32 {
        let account = match kind {
            TaskKind::Floor => PLAIN,
            _ => self.vacant_accounts.pop().unwrap_or_else(|| {
                self.ready.push(0);
                self.ready.len() as u32 - 1
            }),
        };
        let (container, may_linger) = (None, false);
        let next_release = first_release;
        self.servers.push(Server {
            task,
            account,
            slice: params.service(),
            longest: params.longest(),
            next_release,
            container,
            may_linger,
        });
        account
    }

    /// A server leaves: its container is withdrawn, or ended if it was used. Its account, which must
    /// have been emptied, is free.
    pub(crate) fn leave(&mut self, now: Time, task: TaskId, core: &mut Core) {
        let Some(place) = self.place(task) else {
            return;
        };
        self.close(now, place, core);
        let server = self.servers.swap_remove(place);
        if server.account != PLAIN {
            self.vacant_accounts.push(server.account);
        }
    }

    pub(crate) fn account(&self, task: TaskId) -> Option<u32> {
        self.place(task).map(|place| self.servers[place].account)
    }

    fn place(&self, task: TaskId) -> Option<usize> {
        self.servers.iter().position(|server| server.task == task)
    }

    /// A request of the account may start.
    pub(crate) fn made_ready(&mut self, now: Time, account: u32, core: &mut Core) {
        self.ready[account as usize] += 1;
        if self.ready[account as usize] == 1 {
            self.refresh_account(now, account, core);
        }
    }

    /// A request of the account is taken, or gone.
    pub(crate) fn made_unready(&mut self, now: Time, account: u32, core: &mut Core) {
        self.ready[account as usize] -= 1;
        if self.ready[account as usize] == 0 {
            self.refresh_account(now, account, core);
        }
    }

    fn refresh_account(&mut self, now: Time, account: u32, core: &mut Core) {
        if let Some(place) = self
            .servers
            .iter()
            .position(|server| server.account == account)
        {
            self.refresh(now, now, place, core);
        }
    }

    /// Releases the containers whose time has come, as of when it came. To be called before anything else
    /// that happens at `now`. When the next one's will.
    pub(crate) fn advance(&mut self, now: Time, core: &mut Core) -> Option<Time> {
        let mut next: Option<Time> = None;
        for place in 0..self.servers.len() {
            let since = self.servers[place].next_release.min(now);
            self.refresh(now, since, place, core);
            let server = &self.servers[place];
            if server.container.is_none() && self.ready[server.account as usize] > 0 {
                next = Some(next.map_or(server.next_release, |next| next.min(server.next_release)));
            }
        }
        next
    }

    /// Opens a container that is due and has been needed `since` then, withdraws one that is not needed after all.
    fn refresh(&mut self, now: Time, since: Time, place: usize, core: &mut Core) {
        let server = &mut self.servers[place];
        let ready = self.ready[server.account as usize];
        match server.container {
            None if ready > 0 && now >= server.next_release => {
                let key = JobKey(self.containers);
                if let Ok(window) = core.arrived(now, since, server.task, key, server.slice) {
                    self.containers += 1;
                    let deadline = window.deadline;
                    server.container = Some(Container {
                        key,
                        deadline,
                        touched: false,
                    });
                    server.may_linger = false;
                }
            }
            Some(container) if ready == 0 && !container.touched => self.close(now, place, core),
            _ => {}
        }
    }

    /// The container of a server whose turn it is.
    pub(crate) fn open(&self, task: TaskId, core: &Core) -> Option<Open> {
        let server = &self.servers[self.place(task)?];
        let Container { key, deadline, .. } = server.container?;
        let left = core.remaining(task, key)?;
        Some(Open {
            account: server.account,
            key,
            deadline,
            left,
        })
    }

    /// Something is served from the container.
    pub(crate) fn touch(&mut self, task: TaskId, synchronous: bool) {
        if let Some(place) = self.place(task) {
            let server = &mut self.servers[place];
            server.may_linger = synchronous;
            if let Some(container) = &mut server.container {
                container.touched = true;
            }
        }
    }

    /// Time that the server's empty container may wait for its client's next request; once.
    pub(crate) fn linger(&mut self, task: TaskId) -> Option<Nanos> {
        let place = self.place(task)?;
        let server = &mut self.servers[place];
        let empty = self.ready[server.account as usize] == 0;
        let wait = LINGER.min(server.longest);
        (empty && core::mem::take(&mut server.may_linger)).then_some(wait)
    }

    /// Notices that the core has spent a server's container to the last.
    pub(crate) fn settle(&mut self, task: TaskId, core: &Core) {
        let Some(place) = self.place(task) else {
            return;
        };
        let server = &mut self.servers[place];
        if let Some(container) = server.container
            && core.remaining(task, container.key).is_none()
        {
            server.next_release = container.deadline;
            server.container = None;
        }
    }

    /// The container of a server has had its turn, and is over.
    pub(crate) fn end(&mut self, now: Time, task: TaskId, core: &mut Core) {
        if let Some(place) = self.place(task) {
            if let Some(container) = &mut self.servers[place].container {
                container.touched = true;
            }
            self.close(now, place, core);
        }
    }

    fn close(&mut self, now: Time, place: usize, core: &mut Core) {
        let server = &mut self.servers[place];
        let Some(container) = server.container.take() else {
            return;
        };
        if container.touched || !core.withdraw(now, server.task, container.key) {
            core.end_job(now, server.task, container.key);
            server.next_release = container.deadline;
        }
    }

    /// The server of a choice, if the choice is a container.
    pub(crate) fn is_server(&self, choice: Choice) -> Option<TaskId> {
        match choice {
            Choice::RealTime(task, _) | Choice::Early(task, _) => self.place(task).map(|_| task),
            _ => None,
        }
    }
}
