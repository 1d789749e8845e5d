//! Demos under test: begun, brought to a moment by what they say, and looked at for what they left.

#![allow(dead_code, reason = "each test uses its part of this")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::common::clockwise;
use super::common::skip::{have, is_root, skipped, tool};

/// How long a demo may take to end when it is told to.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What a demo needs for a file load on a file system.
const MOUNT_TOOLS: [&str; 6] = [
    "nbdfuse",
    "fusermount3",
    "losetup",
    "mkfs.ext4",
    "git",
    "tar",
];

/// A folder on a disk: what demos write is too much for a `/tmp` in memory.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").expect("a folder")
}

/// A demo with its data under `scratch`.
pub(crate) fn demo(scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = clockwise();
    command
        .args(["demo", "--scratch"])
        .arg(scratch)
        .args(arguments);
    command
}

/// Whether a demo mounts a file system here: for root it must, wherever there are the devices for it.
pub(crate) fn may_mount() -> bool {
    let devices = ["/dev/fuse", "/dev/loop-control"];
    rustix::process::geteuid().is_root()
        && devices.iter().all(|device| Path::new(device).exists())
        && MOUNT_TOOLS.iter().all(|tool| have(tool))
}

/// A demo that is ended however the test ends.
pub(crate) struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    said: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The test has failed. Told to end, the demo takes down what it has set up; one that does not
            // is killed.
            let demo = Pid::from_child(&self.child);
            let _ = kill_process(demo, Signal::TERM);
            let (ended, end) = mpsc::channel::<()>();
            let patience = std::thread::spawn(move || {
                if end.recv_timeout(ENDS_WITHIN) == Err(RecvTimeoutError::Timeout) {
                    let _ = kill_process(demo, Signal::KILL);
                }
            });
            self.lines.by_ref().for_each(drop);
            let _ = self.child.wait();
            drop(ended);
            let _ = patience.join();
        }
    }
}

impl Running {
    /// Begins a demo, whose progress is read and whose report is not.
    pub(crate) fn begin(command: Command) -> Self {
        Self::begin_to(command, Stdio::null())
    }

    /// The same with the report going somewhere.
    pub(crate) fn begin_to(mut command: Command, report: Stdio) -> Self {
        command.stdout(report).stderr(Stdio::piped());
        // As a shell does it, so that only the demo gets what is sent to it.
        command.process_group(0);
        let mut child = command.spawn().expect("it runs");
        let errors = child.stderr.take().expect("its errors are piped");
        Self {
            child,
            lines: BufReader::new(errors).lines(),
            said: String::new(),
        }
    }

    /// Waits until it says `moment`.
    #[track_caller]
    pub(crate) fn until(&mut self, moment: &str) {
        loop {
            let Some(Ok(line)) = self.lines.next() else {
                panic!("it ended without {moment:?}: {}", self.said);
            };
            self.said.push_str(&line);
            self.said.push('\n');
            if line.contains(moment) {
                return;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// SIGKILL; its programs may take longer to end than it does.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it ends");
    }

    /// Waits for its end; returns how it ended, and all that it said.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        while let Some(Ok(line)) = self.lines.next() {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        let status = self.child.wait().expect("it ends");
        (status, std::mem::take(&mut self.said))
    }
}

/// Checks that nothing on this machine names the folder any more, and that it is empty.
#[track_caller]
pub(crate) fn nothing_is_left(scratch: &Path) {
    let left = left_in(scratch);
    assert!(left.is_empty(), "{left}");
}

/// What still names the folder, and what is in it.
fn left_in(scratch: &Path) -> String {
    let name = scratch.display().to_string();
    let inside = format!("{name}/");
    let mut left = String::new();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("/proc");
    for mount in mounts.lines().filter(|mount| mount.contains(&inside)) {
        left += &format!("a mount is left: {mount}\n");
    }
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let is_own = entry.file_name().to_string_lossy() == std::process::id().to_string();
        if !is_own && command.contains(&name) {
            left += &format!("a process is left: {command}\n");
        }
    }
    for entry in std::fs::read_dir("/sys/block").expect("/sys").flatten() {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file"));
        if file.is_ok_and(|file| file.contains(&inside)) {
            left += &format!("a loop device is left: {}\n", entry.path().display());
        }
    }
    for entry in std::fs::read_dir(scratch).expect("the folder").flatten() {
        // A file system has the one of its own, and the other is ours.
        if entry.file_name() != "lost+found" && entry.file_name() != "filler" {
            left += &format!("a file is left: {}\n", entry.path().display());
        }
    }
    left
}

/// A small file system in a file, mounted.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// A file system of `mib` MiB. `None`, and the test is skipped, where none can be made.
    pub(crate) fn new(mib: u64) -> Option<Self> {
        if !is_root("mounting a file system") || !have("mkfs.ext4") {
            return None;
        }
        let small = Self { folder: scratch() };
        let image = small.folder.path().join("image");
        let file = std::fs::File::create_new(&image).expect("a file");
        file.set_len(mib << 20).expect("a sparse file");
        std::fs::create_dir(small.path()).expect("a folder");
        // Nothing is kept back for root, who the demo is here.
        let made = run(tool("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        assert!(made, "mkfs.ext4 fails");
        let mount = &mut tool("mount");
        if !run(mount.args(["-o", "loop"]).arg(&image).arg(small.path())) {
            skipped("no loop devices here");
            return None;
        }
        Some(small)
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("mounted")
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) {
        let file = std::fs::File::create_new(self.path().join("filler")).expect("a file");
        let mut taken = 0;
        // What is taken while the demo writes is found to be too much, and halved.
        let mut step = 1 << 30;
        while step >= 4096 {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), taken, step) {
                Ok(()) => taken += step,
                Err(_) => step /= 2,
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It is not mounted where that could not be done; what is, goes even if a test failed.
        run(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

/// Whether a command succeeds.
fn run(command: &mut Command) -> bool {
    let output = command.output();
    output.is_ok_and(|output| output.status.success())
}
