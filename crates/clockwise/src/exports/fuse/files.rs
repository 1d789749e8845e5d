//! Names and numbers of files, and the files that are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use engine::pool::Volume;
use engine::volume_io::Client;

use super::completer::Completer;
use super::lane::Lane;
use super::{OPENER, Shared};
use crate::exports::requests::volumes::OpenError;

/// The number of the folder.
pub(super) const ROOT: u64 = 1;

/// Files that have been looked up, and those that are open. A name keeps its number for as long as the
/// mount is there.
#[derive(Debug, Default)]
pub(super) struct Files {
    names: Mutex<Names>,
    open: RwLock<HashMap<u64, (Arc<Opened>, usize)>>,
    /// One is opened at a time: that may wait for memory, and others go on meanwhile.
    opening: Mutex<()>,
    clients: AtomicUsize,
}

#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<String, u64>,
    /// By number, from the first after the folder's on.
    names: Vec<String>,
}

/// A volume that is open, once for all who have opened it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) volume: Arc<Volume>,
    /// One for each thread.
    lanes: Vec<Watched>,
}

/// A lane, and who answers what is completed there.
#[derive(Debug)]
struct Watched {
    lane: Arc<Lane>,
    completer: Arc<Completer>,
    number: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.completer.remove(self.number);
    }
}

thread_local! {
    static LANE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Opened {
    /// The lane of this thread.
    pub(super) fn lane(&self) -> &Lane {
        let number = LANE.with(|number| *number);
        &self.lanes[number % self.lanes.len()].lane
    }
}

impl Files {
    /// The number of a name.
    pub(super) fn number_of(&self, name: &str) -> u64 {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = names.numbers.get(name) {
            return *number;
        }
        names.names.push(name.to_owned());
        let number = ROOT + names.names.len() as u64;
        names.numbers.insert(name.to_owned(), number);
        number
    }

    /// The name of a number.
    pub(super) fn name_of(&self, number: u64) -> Option<String> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(number.checked_sub(ROOT + 1)?).ok()?;
        names.names.get(index).cloned()
    }

    /// The open volume of a number.
    pub(super) fn get(&self, number: u64) -> Option<Arc<Opened>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).map(|(opened, _)| Arc::clone(opened))
    }

    /// Opens the volume of a number once more.
    pub(super) fn open(&self, number: u64, shared: &Arc<Shared>) -> Result<Arc<Opened>, OpenError> {
        if let Some(opened) = self.once_more(number) {
            return Ok(opened);
        }
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have opened it meanwhile.
        if let Some(opened) = self.once_more(number) {
            return Ok(opened);
        }
        let name = self.name_of(number);
        let name = name.ok_or_else(|| OpenError::Unknown("there is no such file".to_owned()))?;
        let opened = Arc::new(opened(&name, shared)?);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, (Arc::clone(&opened), 1));
        self.clients.fetch_add(1, Ordering::Relaxed);
        Ok(opened)
    }

    fn once_more(&self, number: u64) -> Option<Arc<Opened>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let (opened, count) = open.get_mut(&number)?;
        *count += 1;
        self.clients.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(opened))
    }

    /// Closes it once.
    pub(super) fn close(&self, number: u64) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let Some((_, count)) = open.get_mut(&number) else {
            return;
        };
        *count -= 1;
        let last = if *count == 0 {
            open.remove(&number)
        } else {
            None
        };
        self.clients.fetch_sub(1, Ordering::Relaxed);
        drop(open);
        drop(last);
    }

    /// How many files are open.
    pub(super) fn open_count(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    fn lanes(&self) -> Vec<Arc<Lane>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let lanes = open.values().flat_map(|(opened, _)| &opened.lanes);
        lanes.map(|watched| Arc::clone(&watched.lane)).collect()
    }

    /// Waits until all requests are answered, or it is that late.
    pub(super) fn drain(&self, until: Instant) {
        self.lanes().iter().for_each(|lane| lane.drain(until));
    }

    /// Nothing is waited for any more, and nothing is open.
    pub(super) fn stop(&self) {
        self.lanes().iter().for_each(|lane| lane.wake());
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let closed = std::mem::take(&mut *open);
        self.clients.store(0, Ordering::Relaxed);
        drop(open);
        drop(closed);
    }
}

fn opened(name: &str, shared: &Arc<Shared>) -> Result<Opened, OpenError> {
    let volume = shared.volumes.open(name, &OPENER)?;
    let completers = &shared.completers;
    let clients = shared
        .volumes
        .clients(name, "fuse", &OPENER, completers.len())?;
    let lane = |(client, completer): (Client, &Arc<Completer>)| {
        let lane = Arc::new(Lane::new(Arc::clone(shared), client, Arc::clone(&volume)));
        let number = completer.add(&lane);
        let number = number.map_err(|error| OpenError::Refused(error.to_string()))?;
        Ok(Watched {
            lane,
            completer: Arc::clone(completer),
            number,
        })
    };
    let lanes = clients.into_iter().zip(completers).map(lane);
    let lanes = lanes.collect::<Result<_, _>>()?;
    Ok(Opened { volume, lanes })
}
