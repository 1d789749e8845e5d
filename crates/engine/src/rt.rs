//! Real-time threads, as far as the host permits.
//!
//! A disk's thread must run at completions and releases, whatever else the host does. It needs SCHED_FIFO,
//! locked memory, no timer slack, and must not wait for the write-back that it serves (PR_SET_IO_FLUSHER).
//! The host may deny each of these, in a container or without root. The thread starts nevertheless, and
//! reports the denied resources in words for the operator.
//!
//! The host's delays are recorded with each request, so that reports can tell the host's lateness from the
//! scheduler's.
//!
//! Deliberately absent: SCHED_DEADLINE. It bounds a thread's use of the processor, which is not scarce here,
//! and it does not permit affinity.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, Pid};

/// Scheduling parameters of a thread.
#[derive(Clone, Debug)]
pub struct ThreadParams {
    /// Its name, for `ps`; the first 15 bytes are shown.
    pub name: String,
    /// SCHED_FIFO priority, 1-99; `None` for the ordinary scheduler.
    pub fifo_priority: Option<u8>,
    /// The processors it may use; `None` for any.
    pub cpus: Option<Vec<usize>>,
    /// It is part of the path of writes to disk, and must not wait for write-back to get memory
    /// (PR_SET_IO_FLUSHER).
    pub io_flusher: bool,
}

impl ThreadParams {
    /// An ordinary thread without special parameters.
    #[must_use]
    pub fn ordinary(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            fifo_priority: None,
            cpus: None,
            io_flusher: false,
        }
    }

    /// A disk's thread: SCHED_FIFO at [`DISPATCHER_FIFO_PRIORITY`], an I/O flusher.
    #[must_use]
    pub fn dispatcher(name: impl Into<String>) -> Self {
        Self {
            fifo_priority: Some(DISPATCHER_FIFO_PRIORITY),
            io_flusher: true,
            ..Self::ordinary(name)
        }
    }
}

/// The priority of disks' threads: above every ordinary thread, below the kernel's interrupt threads (50),
/// which complete the disks' transfers.
pub const DISPATCHER_FIFO_PRIORITY: u8 = 40;

/// Resources that the host denied, in words for the operator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeniedResources(pub Vec<String>);

impl DeniedResources {
    /// True if nothing was denied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn note(&mut self, what: &str, result: io::Result<()>) {
        if let Err(error) = result {
            self.0.push(format!("{what}: {error}"));
        }
    }
}

/// Starts a thread. Returns once it runs, with the resources that it was denied.
///
/// # Errors
/// When no thread can be started.
pub fn spawn<F, R>(params: &ThreadParams, body: F) -> io::Result<(JoinHandle<R>, DeniedResources)>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let (report, reported) = mpsc::sync_channel(1);
    let wanted = params.clone();
    let handle = std::thread::Builder::new()
        .name(params.name.clone())
        .spawn(move || {
            // The parent is waiting on the other end.
            let _ = report.send(apply(&wanted));
            drop(report);
            body()
        })?;
    let denied = reported.recv().unwrap_or_default();
    Ok((handle, denied))
}

/// From `linux/prctl.h`; the libc crate does not have it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

fn apply(params: &ThreadParams) -> DeniedResources {
    let mut denied = DeniedResources::default();
    if let Some(cpus) = &params.cpus {
        let mut set = CpuSet::new();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
            set.set(cpu);
        }
        let result = rustix::thread::sched_setaffinity(None::<Pid>, &set);
        denied.note(
            "run on the chosen processors only",
            result.map_err(io::Error::from),
        );
    }
    if let Some(priority) = params.fifo_priority {
        denied.note(
            "real-time scheduling (SCHED_FIFO, needs CAP_SYS_NICE)",
            set_fifo(priority),
        );
        denied.note("timers without slack", prctl(libc::PR_SET_TIMERSLACK, 1));
    }
    if params.io_flusher {
        let what = "never wait for write-back (PR_SET_IO_FLUSHER, needs CAP_SYS_RESOURCE)";
        denied.note(what, prctl(PR_SET_IO_FLUSHER, 1));
    }
    denied
}

#[allow(unsafe_code)]
fn set_fifo(priority: u8) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: i32::from(priority),
    };
    // SAFETY: `param` is a valid sched_param that outlives the call; pid 0 is the calling thread.
    let result = unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const param,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[allow(unsafe_code)]
fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: the options used here take one integer and access no memory of the process.
    let result = unsafe { libc::prctl(option, value, UNUSED, UNUSED, UNUSED) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Locks all current and future memory of the process into RAM, if there is no limit on locked memory: with a
/// limit, later mappings would fail.
#[must_use]
pub fn lock_process_memory() -> DeniedResources {
    use rustix::mm::MlockAllFlags;
    use rustix::process::{Resource, getrlimit};
    use rustix::thread::{CapabilitySet, capabilities};
    let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    // ONFAULT: pages are locked when they are touched, so that large reservations of address space (thread
    // stacks, allocator arenas) do not occupy memory.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let result = if may || getrlimit(Resource::Memlock).current.is_none() {
        rustix::mm::mlockall(flags)
    } else {
        Err(rustix::io::Errno::PERM)
    };
    let mut denied = DeniedResources::default();
    denied.note(
        "keep memory from being paged out (mlockall, needs CAP_IPC_LOCK or no limit on locked memory)",
        result.map_err(io::Error::from),
    );
    denied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_whatever_it_is_refused() {
        let params = ThreadParams {
            cpus: Some(vec![0]),
            ..ThreadParams::dispatcher("rt-test")
        };
        let (handle, denied) = spawn(&params, || {
            let name = std::thread::current().name().map(str::to_owned);
            (name, rustix::thread::sched_getcpu())
        })
        .unwrap();
        let (name, cpu) = handle.join().unwrap();
        assert_eq!(name.as_deref(), Some("rt-test"));
        assert!(cpu == 0 || denied.0.iter().any(|words| words.contains("processors")));
    }

    #[test]
    fn an_impossible_processor_is_reported() {
        let params = ThreadParams {
            cpus: Some(vec![1000]),
            ..ThreadParams::ordinary("nowhere")
        };
        let (handle, denied) = spawn(&params, || ()).unwrap();
        handle.join().unwrap();
        assert_eq!(denied.0.len(), 1, "{denied:?}");
    }
}
