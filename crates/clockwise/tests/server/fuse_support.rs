//! A server whose volumes are mounted, and what is done with them. Everything is undone when it is dropped,
//! so also when a test panics.

#![allow(dead_code, reason = "each test uses its part of this")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use testkit::process::{Process, WITHIN};
use testkit::site::{Outcome, Serve, Site, outcome};
use testkit::skip::{have, is_root, skipped, tool};
use testkit::until;

use rustix::io::Errno;

/// The number of an error.
pub(crate) fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// Size of the disk: room for the smallest file system of each kind.
const DISK_MIB: u64 = 768;

/// True if volumes can be mounted here. Otherwise the test is skipped.
pub(crate) fn may_mount() -> bool {
    if !Path::new("/dev/fuse").exists() {
        skipped("there is no /dev/fuse");
        return false;
    }
    is_root("mounting volumes")
}

/// A site with a mount point.
pub(crate) struct Mounted {
    pub(crate) site: Site,
    pub(crate) server: Option<Serve>,
}

impl Mounted {
    /// A pool, mounted, with these volumes (name, MiB). `None` where nothing can be mounted.
    pub(crate) fn new(volumes: &[(&str, u64)]) -> Option<Self> {
        Self::with("64MiB", volumes)
    }

    /// As `new`, with this much memory.
    pub(crate) fn with(memory: &str, volumes: &[(&str, u64)]) -> Option<Self> {
        may_mount().then(|| {
            let mut mounted = Self::configured(memory);
            mounted.site.run(&["pool", "create"]).done();
            mounted.serve();
            for (name, mib) in volumes {
                mounted.create(name, *mib);
            }
            mounted
        })
    }

    /// A mount point, and a pool that is to be made.
    pub(crate) fn configured(memory: &str) -> Self {
        let site = Site::new(0);
        let text = format!(
            "[server]\napi = \"api.sock\"\nrealtime = false\n[nbd]\nunix = \"nbd.sock\"\n[fuse]\nmount = \"volumes\"\n\
             [pool]\nextent = \"1MiB\"\n[memory]\ntotal = \"{memory}\"\n\
             [[disk]]\npath = \"disk\"\nkind = \"file\"\nsize = \"{DISK_MIB}MiB\"\n"
        );
        std::fs::write(site.config(), text).expect("the configuration can be written");
        std::fs::create_dir(site.path("volumes")).expect("a mount point");
        Self { site, server: None }
    }

    #[track_caller]
    pub(crate) fn serve(&mut self) {
        self.server = Some(self.site.serve());
    }

    /// Ends the server in order; its log.
    #[track_caller]
    pub(crate) fn end(&mut self) -> String {
        let server = self.server.take().expect("a server");
        let (code, log) = server.terminate();
        assert_eq!(code, Some(0), "{log}");
        log
    }

    #[track_caller]
    pub(crate) fn create(&self, name: &str, mib: u64) {
        let size = format!("{mib}MiB");
        let create = ["volume", "create", name, "--size", &size];
        self.site.run(&create).done();
    }

    pub(crate) fn mount(&self) -> PathBuf {
        self.site.path("volumes")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.mount().join(name)
    }

    /// Opens a volume for reading and writing.
    #[track_caller]
    pub(crate) fn open(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.open(self.file(name)).expect("it can be opened")
    }

    /// The names that are there.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.mount()).expect("the mount is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A server that is killed leaves a mount, which is in the way of the folder's removal.
        drop(self.server.take());
        while is_mounted(&self.mount()) && unmount_lazily(&self.mount()).code == 0 {}
    }
}

fn unmount_lazily(at: &Path) -> Outcome {
    outcome(tool("umount").arg("--lazy").arg(at))
}

/// True if something is mounted there, by the kernel's table.
pub(crate) fn is_mounted(at: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    let at = at.canonicalize().unwrap_or_else(|_| at.to_owned());
    let field = format!(" {} ", at.display());
    table.lines().any(|line| line.contains(&field))
}

/// True if the mount there has that source.
pub(crate) fn is_mounted_from(at: &Path, source: &str) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    let at = at.canonicalize().unwrap_or_else(|_| at.to_owned());
    let field = format!(" {} ", at.display());
    let last = table.lines().rfind(|line| line.contains(&field));
    last.is_some_and(|line| line.contains(&format!(" {source} ")))
}

/// Opens a file in such a way.
pub(crate) fn open_with(path: &Path, flags: rustix::fs::OFlags) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(flags.bits() as i32).open(path)
}

pub(crate) fn read_at(file: &File, offset: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    file.read_exact_at(&mut data, offset)
        .expect("it can be read");
    data
}

/// Runs a program that must succeed; what it printed.
#[track_caller]
pub(crate) fn run(name: &str, arguments: &[&str]) -> String {
    outcome(tool(name).args(arguments)).done().out
}

/// Runs a command when dropped, to undo what another did.
pub(crate) struct Undo(pub(crate) &'static str, pub(crate) Vec<String>);

impl Undo {
    pub(crate) fn new(name: &'static str, arguments: &[&str]) -> Self {
        Self(name, arguments.iter().map(|of| (*of).to_owned()).collect())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // It may have been undone already.
        let undone = Process::captured(tool(self.0).args(&self.1));
        let _ = undone.try_output(WITHIN);
    }
}

/// A loop device on a file with direct I/O, and what detaches it. `None`, and the test is skipped, where there
/// is none.
pub(crate) fn attach(file: &Path) -> Option<(String, Undo)> {
    if !have("losetup") {
        return None;
    }
    let mut attach = tool("losetup");
    attach
        .args(["--find", "--show", "--direct-io=on"])
        .arg(file);
    let attached = outcome(&mut attach);
    if attached.code != 0 {
        skipped(&attached.err);
        return None;
    }
    let device = attached.out.trim().to_owned();
    let undo = Undo("losetup", vec!["--detach".into(), device.clone()]);
    Some((device, undo))
}

/// Detaches a device and waits until it is: the kernel does so when its last user has closed it. It is not undone
/// then once more, when the device may be another test's.
pub(crate) fn detach(device: &str, undo: Undo) {
    run("losetup", &["--detach", device]);
    std::mem::forget(undo);
    let name = device.trim_start_matches("/dev/");
    let backing = format!("/sys/block/{name}/loop/backing_file");
    until("the loop device is free", || !Path::new(&backing).exists());
}

/// Mounts a device at a folder of the site; `None` where the kernel lacks such a file system.
pub(crate) fn mount(site: &Site, kind: &str, device: &str) -> Option<(PathBuf, Undo)> {
    let known = std::fs::read_to_string("/proc/filesystems").expect("the kernel says so");
    let folder = site.path("mounted");
    std::fs::create_dir_all(&folder).expect("a folder");
    let shown = folder.display().to_string();
    let mounted = outcome(tool("mount").args(["-t", kind, device, &shown]));
    let is_known = known.lines().any(|line| line.trim().ends_with(kind));
    if mounted.code != 0 && !is_known {
        skipped(&format!("this kernel has no {kind}"));
        return None;
    }
    let _ = mounted.done();
    let undo = Undo("umount", vec![shown]);
    Some((folder, undo))
}
