//! A mounted file system (FUSE): every volume of the pool is a file.
//!
//! | module | contents |
//! |---|---|
//! | [`Mount`] | the mount, its threads, and their end |
//! | `mount_point` | checks of the mount point, and unmounting |
//! | `filesystem` | the kernel's requests |
//! | `files` | inode numbers, and files that are open |
//! | `volume_queue` | requests of one thread to one volume |
//! | `completer` | a thread that answers completions |
//!
//! The threads of crate `fuser` read the kernel's requests and submit them to the pool. They wait only for memory. The
//! same thread answers for disks that complete at once, and a completer for each thread answers for the others. A write
//! is copied once, from the buffer of that crate to one of the pool. A read is not copied: its reply is sent from the
//! pool's buffer.

mod completer;
mod files;
mod filesystem;
mod mount_point;
mod volume_queue;

use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, Session, SessionACL};

use self::completer::Completer;
use self::files::Files;
use self::filesystem::VolumesAsFiles;
use super::requests::counters::Counters;
use super::requests::volumes::{Opener, Volumes};
use super::{Export, ExportStatus};
use crate::failure::Failure;

/// The name of the mount in the pool's list of users of a volume.
pub(crate) const USER: &str = "the FUSE mount";

const OPENER: Opener = Opener {
    user: USER,
    memory_owner: "an open file",
};

/// The most threads by default. With more threads the disks are the limit.
const THREADS_MAX_DEFAULT: usize = 4;

/// Time for the threads to notice the end of the mount. They notice it at once if this user may end the connection.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// Configuration of the mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FuseConfig {
    /// The mount point, an empty directory.
    pub mount: PathBuf,
    /// Number of threads that take requests; `None` is one for each processor, at most four.
    pub threads: Option<usize>,
}

/// The state that all threads share.
#[derive(Debug)]
struct Shared {
    volumes: Arc<Volumes>,
    at: PathBuf,
    /// The minor number of the mount's device, which names the kernel's connection. Set once it is mounted.
    device: OnceLock<u32>,
    files: Files,
    counters: Counters,
    completers: Vec<Arc<Completer>>,
    /// New requests are refused.
    is_draining: AtomicBool,
    /// Threads no longer wait for memory or slots.
    is_stopped: AtomicBool,
}

/// The mounted volumes of a pool.
#[derive(Debug)]
pub struct Mount {
    shared: Arc<Shared>,
    is_unmounted: bool,
    /// Disconnected when the threads that take requests have ended.
    session: mpsc::Receiver<()>,
    completers: Vec<JoinHandle<()>>,
}

impl Export for Mount {
    type Config = FuseConfig;

    fn start(volumes: Arc<Volumes>, config: &FuseConfig) -> Result<Self, Failure> {
        let at = mount_point::prepare(&config.mount)?;
        Self::start_at(volumes, &at, config.threads).map_err(|error| {
            Failure::failed(format!("cannot mount at {}: {error}", at.display())).help(
                "load the kernel module (`modprobe fuse` makes /dev/fuse), and start the server as root or install \
                 fusermount3 (package fuse3)",
            )
        })
    }

    fn status(&self) -> ExportStatus {
        let sum = self.shared.counters.sum();
        let at = self.device().map(|_| self.shared.at.display().to_string());
        ExportStatus {
            protocol: "fuse",
            at: at.into_iter().collect(),
            tcp: None,
            clients: self.shared.files.open_count() as u64,
            requests: sum.requests,
            errors: sum.errors,
            read_bytes: sum.read_bytes,
            written_bytes: sum.written_bytes,
        }
    }

    fn end(mut self: Box<Self>, within: Duration) {
        self.shared.is_draining.store(true, Ordering::Release);
        if let Some(device) = self.device() {
            match mount_point::unmount(&self.shared.at, device) {
                Ok(()) => {
                    self.is_unmounted = true;
                    return;
                }
                Err(error) => tracing::warn!(
                    mount = %self.shared.at.display(),
                    open = self.shared.files.open_count(),
                    %error,
                    "volumes are still in use through their mount, such as by a loop device: further requests fail, and \
                     the mount is detached"
                ),
            }
        }
        self.shared.files.drain(Instant::now() + within);
    }
}

impl Mount {
    fn start_at(volumes: Arc<Volumes>, at: &Path, threads: Option<usize>) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = threads
            .unwrap_or(processors.min(THREADS_MAX_DEFAULT))
            .max(1);
        let completers: Vec<_> = (0..count)
            .map(|_| Completer::new().map(Arc::new))
            .collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared {
            volumes,
            at: at.to_owned(),
            device: OnceLock::new(),
            files: Files::default(),
            counters: Counters::default(),
            completers,
            is_draining: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        });
        let (alive, session) = mpsc::channel();
        // A failure below drops the mount, which ends the threads that have been started.
        let mut mount = Self {
            shared,
            is_unmounted: false,
            session,
            completers: Vec::new(),
        };
        for (number, completer) in mount.shared.completers.iter().enumerate() {
            let completer = Arc::clone(completer);
            let thread = std::thread::Builder::new().name(format!("fuse-done-{number}"));
            mount
                .completers
                .push(thread.spawn(move || completer.run())?);
        }
        let files = VolumesAsFiles::new(Arc::clone(&mount.shared), alive);
        let session = Session::new(files, at, &options(count))?;
        let device = mount_point::device(at);
        let device = device
            .ok_or_else(|| io::Error::other("the mount is not in the kernel's table of mounts"))?;
        mount.shared.device.get_or_init(|| device);
        // Dropping it would unmount any later mount at this path.
        let _never_dropped = ManuallyDrop::new(session.spawn()?);
        Ok(mount)
    }

    /// The device, while the threads take the kernel's requests.
    fn device(&self) -> Option<u32> {
        let is_over = self.session.try_recv() == Err(TryRecvError::Disconnected);
        self.shared.device.get().copied().filter(|_| !is_over)
    }
}

impl Shared {
    /// Handles the end of the session, after which no thread takes requests.
    fn session_ended(&self) {
        let Some(device) = self.device.get() else {
            return;
        };
        if !self.is_draining.load(Ordering::Acquire) {
            tracing::warn!(
                mount = %self.at.display(),
                "the mount of the volumes has ended: another process has unmounted it or ended its connection; restart the \
                 server to mount it again"
            );
        }
        self.files.stop();
        mount_point::detach_dead(&self.at, *device);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.shared.is_draining.store(true, Ordering::Release);
        self.shared.is_stopped.store(true, Ordering::Release);
        let device = self.device();
        if let Some(device) = device.filter(|_| !self.is_unmounted) {
            mount_point::force_unmount(&self.shared.at, device);
        }
        self.shared.files.stop();
        self.shared
            .completers
            .iter()
            .for_each(|completer| completer.stop());
        for thread in self.completers.drain(..) {
            // A panic of a thread has been reported by the panic hook.
            let _ = thread.join();
        }
        // If this user may not end the kernel's connection, its threads end with the process.
        if device.is_some() {
            let _ = self.session.recv_timeout(ENDED_WITHIN);
        }
    }
}

fn options(threads: usize) -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::FSName(mount_point::SOURCE.into()),
        MountOption::CUSTOM(format!("subtype={}", mount_point::SOURCE)),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
        MountOption::NoAtime,
    ];
    options.acl = SessionACL::Owner;
    options.n_threads = Some(threads);
    options.clone_fd = true;
    options
}
