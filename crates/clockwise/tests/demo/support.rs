//! Demos under test: begun, brought to a moment by what they say, and looked at for what they left.

#![allow(dead_code, reason = "each test uses its part of this")]

pub(crate) mod terminal;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use clockwise::demo::{MOUNT_DEVICES, MOUNT_PROGRAMS};
use rustix::fs::FallocateFlags;
use rustix::process::{Pid, Signal, kill_process};

use testkit::process::{OutputReader, Process, WITHIN};
use testkit::site::{Outcome, clockwise};
use testkit::skip::{have, is_root, skipped, tool};
use testkit::until;

/// Longest demo, from its beginning to its end: several times the minutes of the longest test.
pub(crate) const DEMO_WITHIN: Duration = Duration::from_secs(900);

/// Longest end of a demo after a signal.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A folder for demos. Mounts that a killed or broken demo has left there are taken down before the folder is
/// removed, however the test ends.
pub(crate) struct Scratch(tempfile::TempDir);

/// A folder on a disk: what demos write is too much for a `/tmp` in memory.
pub(crate) fn scratch() -> Scratch {
    Scratch(tempfile::tempdir_in("/var/tmp").expect("a folder"))
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The file system, the device that it is on, the file that the device is on.
        let (fuse, others): (Vec<_>, Vec<_>) = mounts_in(self.path())
            .into_iter()
            .rev()
            .partition(|mount| mount.kind.starts_with("fuse"));
        let unmount = |mount: &Mount| run(tool("umount").arg("--lazy").arg(&mount.place));
        // A mount that cannot be taken down is left; the test that left it has failed already.
        others.iter().for_each(|mount| _ = unmount(mount));
        for device in loops_in(self.path()) {
            run(tool("losetup").arg("--detach").arg(device));
        }
        fuse.iter().for_each(|mount| _ = unmount(mount));
    }
}

/// Something that is mounted.
struct Mount {
    place: String,
    kind: String,
}

/// Mounts inside a folder, in their order.
fn mounts_in(folder: &Path) -> Vec<Mount> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("/proc");
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1).map(str::to_owned);
        Some(Mount {
            place: words.next()?,
            kind: words.next()?,
        })
    });
    let is_inside = |mount: &Mount| is_inside(&mount.place, folder);
    mounts.filter(is_inside).collect()
}

/// Loop devices on files inside a folder.
fn loops_in(folder: &Path) -> Vec<PathBuf> {
    let devices = std::fs::read_dir("/sys/block").expect("/sys").flatten();
    let of_folder = devices.filter(|device| {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| is_inside(file.trim_end(), folder))
    });
    of_folder
        .map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

fn is_inside(path: &str, folder: &Path) -> bool {
    path != folder.as_os_str() && Path::new(path).starts_with(folder)
}

/// A demo with its data under `scratch`, in a session of its own: only the demo gets what is sent to it, and
/// whatever it starts can be told from others even when all that is left of it is its number.
pub(crate) fn demo(scratch: &Path, arguments: &[&str]) -> Command {
    let plain = clockwise();
    let mut command = Command::new("setsid");
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .arg(plain.get_program())
        .args(["demo", "--scratch"])
        .arg(scratch)
        .args(arguments);
    command
}

/// True if a demo mounts a file system here. For root it must, if the devices exist and another file system
/// can be mounted. Otherwise the tests of the mount are skipped.
pub(crate) fn may_mount() -> bool {
    let missing = MOUNT_DEVICES
        .iter()
        .find(|(device, _)| !Path::new(device).exists());
    if let Some((_, obstacle)) = missing {
        skipped(obstacle);
    }
    is_root("mounting a file system")
        && missing.is_none()
        && MOUNT_PROGRAMS.iter().all(|program| have(program))
        && SmallDisk::new(8).is_some()
}

/// Waits for the end of a demo, and returns its exit status and output.
#[track_caller]
pub(crate) fn ended(mut demo: Command) -> Outcome {
    let demo = Process::captured(&mut demo);
    let session = demo.id();
    let outcome: Outcome = demo.output_within(DEMO_WITHIN).into();
    ended_well(session, &outcome.err);
    outcome
}

/// Checks what holds of every demo that came to its end, whatever ended it.
#[track_caller]
fn ended_well(session: u32, said: &str) {
    assert!(!said.contains("panicked"), "{said}");
    // The first process of this machine waits for orphans.
    let what = "the end of every process of a demo, with somebody having waited for it";
    until(what, || !has_processes(session));
}

/// True if there is a process of this session, also an ended one that is not waited for.
fn has_processes(session: u32) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let mut stats = processes.filter_map(|entry| {
        // An entry that is no process has none, and a process may end meanwhile.
        std::fs::read_to_string(entry.path().join("stat")).ok()
    });
    stats.any(|stat| {
        // Its name, in brackets, may be anything; after that come its state, parent, group and session.
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
        let of_it = fields.and_then(|fields| fields.split(' ').nth(3));
        of_it.and_then(|number| number.parse().ok()) == Some(session)
    })
}

/// A demo that is ended however the test ends.
pub(crate) struct Running {
    child: Process,
    errors: BufReader<OutputReader<ChildStderr>>,
    said: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The test has failed. Told to end, the demo takes down what it has set up; one that does not
            // is killed.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            self.errors.get_mut().give(ENDS_WITHIN);
            let _ = std::io::copy(&mut self.errors, &mut std::io::sink());
        }
    }
}

impl Running {
    /// Begins a demo, whose progress is read and whose report is not.
    pub(crate) fn begin(command: Command) -> Self {
        Self::begin_to(command, Stdio::null())
    }

    /// As `begin`, with the report going somewhere else.
    pub(crate) fn begin_to(mut command: Command, report: Stdio) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(report)
            .stderr(Stdio::piped());
        let mut child = Process::spawn(&mut command);
        let errors = child.stderr.take().expect("its errors are piped");
        Self {
            child,
            errors: BufReader::new(OutputReader::new(errors, DEMO_WITHIN)),
            said: String::new(),
        }
    }

    /// The next line that it says; `None` at its end.
    #[track_caller]
    fn line(&mut self, awaited: &str) -> Option<String> {
        let mut line = String::new();
        let length = self.errors.read_line(&mut line);
        let length =
            length.unwrap_or_else(|error| panic!("{error}, with {awaited:?} in it: {}", self.said));
        self.said.push_str(&line);
        (length > 0).then_some(line)
    }

    /// Waits until it says `moment`.
    #[track_caller]
    pub(crate) fn until(&mut self, moment: &str) {
        while let Some(line) = self.line(moment) {
            if line.contains(moment) {
                return;
            }
        }
        panic!("it ended without {moment:?}: {}", self.said);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// SIGKILL; its programs may take longer to end than it does.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait();
    }

    /// Waits for its end; returns how it ended, and all that it said.
    #[track_caller]
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        while self.line("its end").is_some() {}
        let status = self.child.wait();
        ended_well(self.child.id(), &self.said);
        (status, std::mem::take(&mut self.said))
    }
}

/// Checks that nothing on this machine names the folder any more, and that it is empty.
#[track_caller]
pub(crate) fn nothing_is_left(scratch: &Path) {
    let left = left_in(scratch);
    assert!(left.is_empty(), "{left}");
}

/// Processes and mounts that still name the folder, and its contents.
fn left_in(scratch: &Path) -> String {
    let name = scratch.display().to_string();
    let mut left = String::new();
    for mount in mounts_in(scratch) {
        left += &format!("a mount is left: {} ({})\n", mount.place, mount.kind);
    }
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let is_own = entry.file_name().to_string_lossy() == std::process::id().to_string();
        if !is_own && command.contains(&name) {
            left += &format!("a process is left: {command}\n");
        }
    }
    for device in loops_in(scratch) {
        left += &format!("a loop device is left: {}\n", device.display());
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
    folder: Scratch,
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
        // If the demo's own writes make this too much, the size is halved.
        let mut step = 1 << 30;
        while step >= 4096 {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), taken, step) {
                Ok(()) => taken += step,
                Err(_) => step /= 2,
            }
        }
    }
}

/// True if a command succeeds.
fn run(command: &mut Command) -> bool {
    let output = Process::captured(command).try_output(WITHIN);
    output.is_ok_and(|output| output.status.success())
}
