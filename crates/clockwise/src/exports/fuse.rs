//! Every volume of the pool as a file of a mounted file system (FUSE).
//!
//! | module | what it is |
//! |---|---|
//! | [`Mount`] | the mount, its threads, and their end |
//! | `mount_point` | where it may be mounted, and unmounting |
//! | `filesystem` | what the kernel asks |
//! | `files` | names and numbers of files, and those that are open |
//! | `lane` | requests of one thread to one volume |
//! | `completer` | a thread that answers what the disks complete |
//!
//! The threads of crate `fuser` read the kernel's requests and hand them to the pool; they wait for
//! nothing but memory. Disks that complete at once are answered by the same thread, others by a completer
//! each. There is one copy each way between the crate's buffer and the pool's for a write, and none for a
//! read, whose answer is written from the pool's buffer.

mod completer;
mod files;
mod filesystem;
mod lane;
mod mount_point;

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

/// A user of a volume, as the pool tells it.
pub(crate) const USER: &str = "the FUSE mount";

const OPENER: Opener = Opener {
    user: USER,
    what: "a file that is open",
};

/// The most threads unless the operator says otherwise; beyond, disks are what limits.
const THREADS_MAX_DEFAULT: usize = 4;

/// How long threads may take to see that the mount is gone. They do at once, where this user may end it.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// Where volumes are to be files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FuseConfig {
    /// An empty folder.
    pub mount: PathBuf,
    /// The threads that take requests; `None` is one for each processor, at most four.
    pub threads: Option<usize>,
}

/// The state that all threads share.
#[derive(Debug)]
struct Shared {
    volumes: Arc<Volumes>,
    at: PathBuf,
    /// The number of the mount's device, by which the kernel knows the connection, once it is mounted.
    device: OnceLock<u32>,
    files: Files,
    counters: Counters,
    completers: Vec<Arc<Completer>>,
    /// No more requests are taken.
    is_draining: AtomicBool,
    /// Nothing is waited for any more.
    is_stopped: AtomicBool,
}

/// The volumes of a pool, mounted.
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
                "see that /dev/fuse is there (`modprobe fuse`), and start the server as root, or install fusermount3 \
                 (package fuse3)",
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
                    "volumes are still in use through their mount, such as by a loop device: what they are asked from \
                     here on fails, and the mount is detached"
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
        // From here on a failure drops the mount, which ends the threads that have been started.
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
        let device =
            device.ok_or_else(|| io::Error::other("it is not in the kernel's table of mounts"))?;
        mount.shared.device.get_or_init(|| device);
        // Dropped, it would unmount whatever is at the path by then.
        let _never_dropped = ManuallyDrop::new(session.spawn()?);
        Ok(mount)
    }

    /// The device, while the kernel's requests are taken.
    fn device(&self) -> Option<u32> {
        let is_over = self.session.try_recv() == Err(TryRecvError::Disconnected);
        self.shared.device.get().copied().filter(|_| !is_over)
    }
}

impl Shared {
    /// No thread takes requests any more.
    fn session_ended(&self) {
        let Some(device) = self.device.get() else {
            return;
        };
        if !self.is_draining.load(Ordering::Acquire) {
            tracing::warn!(
                mount = %self.at.display(),
                "volumes are no longer files: somebody has unmounted them or ended their connection; starting the server \
                 again mounts them"
            );
        }
        self.files.stop();
        mount_point::clear(&self.at, *device);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.shared.is_draining.store(true, Ordering::Release);
        self.shared.is_stopped.store(true, Ordering::Release);
        let device = self.device();
        if let Some(device) = device.filter(|_| !self.is_unmounted) {
            mount_point::give_up(&self.shared.at, device);
        }
        self.shared.files.stop();
        self.shared.completers.iter().for_each(|of| of.stop());
        for thread in self.completers.drain(..) {
            // A panic of a thread has been reported by the panic hook.
            let _ = thread.join();
        }
        // Where this user may not end the kernel's connection, its threads end with the process.
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
