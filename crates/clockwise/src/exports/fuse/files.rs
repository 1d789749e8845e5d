//! Inode numbers of files, and the files that are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use engine::pool::Volume;
use engine::volume_io::Client;

use super::completer::Completer;
use super::volume_queue::VolumeQueue;
use super::{OPENER, Shared};
use crate::exports::requests::volumes::OpenError;

/// Inode number of the directory.
pub(super) const ROOT: u64 = 1;

/// Files that have been looked up, and files that are open. A name keeps its inode number until the mount ends.
#[derive(Debug, Default)]
pub(super) struct Files {
    inodes: Mutex<Inodes>,
    /// Open volumes by inode number, each with the number of its open files.
    open: RwLock<HashMap<u64, (Arc<OpenVolume>, usize)>>,
    /// Serializes the first opening of volumes, which may wait for memory.
    opening: Mutex<()>,
    open_count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inodes {
    numbers: HashMap<String, u64>,
    /// Names by inode number, from `ROOT + 1` on.
    names: Vec<String>,
}

/// An open volume, which all its open files share.
#[derive(Debug)]
pub(super) struct OpenVolume {
    pub(super) volume: Arc<Volume>,
    /// One for each thread.
    queues: Vec<RegisteredQueue>,
}

/// A queue with the completer that answers its completions.
#[derive(Debug)]
struct RegisteredQueue {
    queue: Arc<VolumeQueue>,
    completer: Arc<Completer>,
    id: u64,
}

impl Drop for RegisteredQueue {
    fn drop(&mut self) {
        self.completer.remove(self.id);
    }
}

thread_local! {
    static THREAD_NUMBER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl OpenVolume {
    fn open(name: &str, shared: &Arc<Shared>) -> Result<Self, OpenError> {
        let volume = shared.volumes.open(name, &OPENER)?;
        let completers = &shared.completers;
        let clients = shared
            .volumes
            .clients(name, "fuse", &OPENER, completers.len())?;
        let queue = |(client, completer): (Client, &Arc<Completer>)| {
            let queue = VolumeQueue::new(Arc::clone(shared), client, Arc::clone(&volume));
            let queue = Arc::new(queue);
            let id = completer.add(&queue);
            let id = id.map_err(|error| OpenError::Refused(error.to_string()))?;
            Ok(RegisteredQueue {
                queue,
                completer: Arc::clone(completer),
                id,
            })
        };
        let queues = clients.into_iter().zip(completers).map(queue);
        let queues = queues.collect::<Result<_, _>>()?;
        Ok(Self { volume, queues })
    }

    /// The queue of the calling thread.
    pub(super) fn queue(&self) -> &VolumeQueue {
        let number = THREAD_NUMBER.with(|number| *number);
        &self.queues[number % self.queues.len()].queue
    }
}

impl Files {
    /// The inode number of a name. A new name gets a new number.
    pub(super) fn inode_of(&self, name: &str) -> u64 {
        let mut inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inode) = inodes.numbers.get(name) {
            return *inode;
        }
        inodes.names.push(name.to_owned());
        let inode = ROOT + inodes.names.len() as u64;
        inodes.numbers.insert(name.to_owned(), inode);
        inode
    }

    pub(super) fn name_of(&self, inode: u64) -> Option<String> {
        let inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(inode.checked_sub(ROOT + 1)?).ok()?;
        inodes.names.get(index).cloned()
    }

    pub(super) fn get(&self, inode: u64) -> Option<Arc<OpenVolume>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&inode).map(|(volume, _)| Arc::clone(volume))
    }

    /// Opens a file.
    pub(super) fn open(
        &self,
        inode: u64,
        shared: &Arc<Shared>,
    ) -> Result<Arc<OpenVolume>, OpenError> {
        if let Some(volume) = self.reopen(inode) {
            return Ok(volume);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have opened the volume meanwhile.
        if let Some(volume) = self.reopen(inode) {
            return Ok(volume);
        }
        let name = self.name_of(inode);
        let name = name.ok_or_else(|| OpenError::Unknown("there is no such file".to_owned()))?;
        let volume = Arc::new(OpenVolume::open(&name, shared)?);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(inode, (Arc::clone(&volume), 1));
        self.open_count.fetch_add(1, Ordering::Relaxed);
        Ok(volume)
    }

    /// Opens a file of a volume that is open already.
    fn reopen(&self, inode: u64) -> Option<Arc<OpenVolume>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let (volume, count) = open.get_mut(&inode)?;
        *count += 1;
        self.open_count.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(volume))
    }

    /// Closes a file.
    pub(super) fn close(&self, inode: u64) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let Some((_, count)) = open.get_mut(&inode) else {
            return;
        };
        *count -= 1;
        let last = if *count == 0 {
            open.remove(&inode)
        } else {
            None
        };
        self.open_count.fetch_sub(1, Ordering::Relaxed);
        // The volume is closed without the lock.
        drop(open);
        drop(last);
    }

    /// Number of open files.
    pub(super) fn open_count(&self) -> usize {
        self.open_count.load(Ordering::Relaxed)
    }

    fn queues(&self) -> Vec<Arc<VolumeQueue>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let queues = open.values().flat_map(|(volume, _)| &volume.queues);
        queues
            .map(|registered| Arc::clone(&registered.queue))
            .collect()
    }

    /// Waits until all requests have been answered, at most until `until`.
    pub(super) fn drain(&self, until: Instant) {
        self.queues().iter().for_each(|queue| queue.drain(until));
    }

    /// Wakes all threads that wait, and closes all files.
    pub(super) fn stop(&self) {
        self.queues().iter().for_each(|queue| queue.wake());
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let closed = std::mem::take(&mut *open);
        self.open_count.store(0, Ordering::Relaxed);
        drop(open);
        drop(closed);
    }
}
