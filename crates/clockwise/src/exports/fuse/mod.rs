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
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
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
    at: PathBuf,
    /// The number of the mount's device, by which the kernel knows the connection.
    device: Option<u32>,
    /// Ends when the mount has.
    session: Option<JoinHandle<()>>,
    is_unmounted: bool,
    session_ended: mpsc::Receiver<()>,
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
        let at = self.is_mounted().then(|| self.at.display().to_string());
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
        if self.is_mounted() {
            match mount_point::unmount(&self.at) {
                Ok(()) => {
                    self.is_unmounted = true;
                    return;
                }
                Err(error) => tracing::warn!(
                    mount = %self.at.display(),
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
            files: Files::default(),
            counters: Counters::default(),
            completers,
            is_draining: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        });
        let (ended, session_ended) = mpsc::channel();
        // From here on a failure drops the mount, which ends the threads that have been started.
        let mut mount = Self {
            shared,
            at: at.to_owned(),
            device: None,
            session: None,
            is_unmounted: false,
            session_ended,
            completers: Vec::new(),
        };
        for (number, completer) in mount.shared.completers.iter().enumerate() {
            let completer = Arc::clone(completer);
            let thread = std::thread::Builder::new().name(format!("fuse-done-{number}"));
            mount
                .completers
                .push(thread.spawn(move || completer.run())?);
        }
        let files = VolumesAsFiles::new(Arc::clone(&mount.shared));
        let session = Session::new(files, at, &options(count))?;
        mount.device = mount_point::device(at);
        let (shared, path) = (Arc::clone(&mount.shared), at.to_owned());
        let thread = std::thread::Builder::new().name("fuse".into());
        mount.session = Some(thread.spawn(move || {
            let result = session.run();
            if !shared.is_draining.load(Ordering::Acquire) {
                tracing::warn!(
                    mount = %path.display(),
                    error = result.err().map(|error| error.to_string()),
                    "volumes are no longer files: somebody has unmounted them; starting the server again mounts them"
                );
            }
            // Nobody waits for it when the mount has been given up.
            let _ = ended.send(());
        })?);
        Ok(mount)
    }

    /// Whether nobody has unmounted it.
    fn is_mounted(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| !session.is_finished())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.shared.is_draining.store(true, Ordering::Release);
        self.shared.is_stopped.store(true, Ordering::Release);
        if !self.is_unmounted && self.is_mounted() {
            mount_point::give_up(&self.at, self.device);
        }
        self.shared.files.stop();
        self.shared.completers.iter().for_each(|of| of.stop());
        for thread in self.completers.drain(..) {
            // A panic of a thread has been reported by the panic hook.
            let _ = thread.join();
        }
        // Where this user may not end the kernel's connection, its threads end with the process.
        if let Some(session) = self.session.take()
            && self.session_ended.recv_timeout(ENDED_WITHIN).is_ok()
        {
            let _ = session.join();
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
