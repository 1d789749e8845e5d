//! A file system on a volume: the volume is exported by NBD, made a file by `nbdfuse`, a block device
//! by a loop device, an ext4 by `mkfs`, and mounted.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::process::{command, is_there, run};
use crate::failure::{Failure, host_failure, io_failure};

/// Help for an `nbdfuse` that does not work.
const NBDFUSE_HELP: &str =
    "check that /dev/fuse exists and that you may use it; `make setup` as root installs nbdfuse";

/// Longest time until the file of `nbdfuse` exists.
const NBDFUSE_WITHIN: Duration = Duration::from_secs(10);

/// Size of the file on which a mount is tried: enough for an ext4.
const TRIAL_BYTES: u64 = 8 << 20;

/// The programs that a file load on a mounted file system needs.
pub const MOUNT_PROGRAMS: [&str; 9] = [
    "nbdfuse",
    "losetup",
    "mkfs.ext4",
    "mount",
    "umount",
    "fusermount3",
    "git",
    "tar",
    "fio",
];

/// The devices that it needs, and what is said where one is missing.
pub const MOUNT_DEVICES: [(&str, &str); 2] = [
    ("/dev/fuse", "no /dev/fuse"),
    ("/dev/loop-control", "no /dev/loop-control"),
];

/// A file system on a volume. Dropping it unmounts, and leaves nothing behind.
pub(super) struct Mounted {
    folder: PathBuf,
    fuse: PathBuf,
    nbdfuse: Option<Child>,
    device: Option<String>,
    is_mounted: bool,
}

impl Mounted {
    /// The reason why this host cannot mount, if it cannot. Some hosts deny it without a sign, as containers
    /// do whose devices exist. So it is tried, on a small file under `scratch`.
    pub(super) fn obstacle(scratch: &Path) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("no root".to_owned());
        }
        if !MOUNT_PROGRAMS.iter().all(|name| is_there(name)) {
            return Some(
                "a program is missing; `make setup` installs nbdfuse, fuse3, e2fsprogs, git and fio"
                    .to_owned(),
            );
        }
        for (device, missing) in MOUNT_DEVICES {
            if !Path::new(device).exists() {
                return Some(missing.to_owned());
            }
            let opened = File::options().read(true).write(true).open(device);
            if let Err(error) = opened {
                return Some(format!("{device} cannot be used: {error}"));
            }
        }
        let denied = Self::try_on_file(scratch).err()?;
        // A program may say more than one line; the first is what is the matter.
        let reason = denied.what.lines().next().unwrap_or_default();
        Some(reason.trim_end_matches('.').to_owned())
    }

    /// Makes a file system in a small file, mounts it, and takes all of it down again.
    fn try_on_file(scratch: &Path) -> Result<(), Failure> {
        let image = scratch.join("trial");
        let unmade = |error: std::io::Error| io_failure("make", &image, &error);
        let file = File::create_new(&image).map_err(unmade)?;
        let tried = file.set_len(TRIAL_BYTES).map_err(unmade).and_then(|()| {
            let mut mounted = Self::prepare(scratch)?;
            mounted.mount(&image, "off", true)
        });
        let removed = std::fs::remove_file(&image);
        tried.and(removed.map_err(|error| io_failure("remove", &image, &error)))
    }

    /// Mounts the export `uri` under `scratch`, making a file system on it first if `fresh`.
    pub(super) fn new(scratch: &Path, uri: &str, fresh: bool) -> Result<Self, Failure> {
        let mut mounted = Self::prepare(scratch)?;
        mounted.start_nbdfuse(uri)?;
        let image = mounted.fuse.join("volume");
        mounted.mount(&image, "on", fresh)?;
        Ok(mounted)
    }

    /// Makes the folders where it goes.
    fn prepare(scratch: &Path) -> Result<Self, Failure> {
        let mounted = Self {
            folder: scratch.join("files"),
            fuse: scratch.join("fuse"),
            nbdfuse: None,
            device: None,
            is_mounted: false,
        };
        for folder in [&mounted.folder, &mounted.fuse] {
            std::fs::create_dir_all(folder)
                .map_err(|error| io_failure("make the folder", folder, &error))?;
        }
        Ok(mounted)
    }

    /// Makes a file a device, whose direct I/O is `on` or `off`, and mounts the file system on it, which
    /// is made first if `fresh`.
    fn mount(&mut self, image: &Path, direct: &str, fresh: bool) -> Result<(), Failure> {
        let direct = format!("--direct-io={direct}");
        let device = run(
            "losetup",
            ["--find", "--show", &direct, &image.to_string_lossy()],
        )?;
        let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
        self.device = Some(device.clone());
        if fresh {
            run(
                "mkfs.ext4",
                ["-q", "-F", "-E", "nodiscard,lazy_itable_init=1", &device],
            )?;
        }
        let folder = self.folder.to_string_lossy();
        run("mount", ["-t", "ext4", "-o", "noatime", &device, &folder])?;
        self.is_mounted = true;
        Ok(())
    }

    fn start_nbdfuse(&mut self, uri: &str) -> Result<(), Failure> {
        let image = self.fuse.join("volume");
        let failed = |error: std::io::Error| host_failure("run nbdfuse", &error).help(NBDFUSE_HELP);
        let child = command("nbdfuse", [image.to_string_lossy().as_ref(), uri])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        self.nbdfuse = Some(child);
        let begun = Instant::now();
        while !image.exists() {
            let ended = self
                .nbdfuse
                .as_mut()
                .map(Child::try_wait)
                .transpose()
                .map_err(failed)?
                .flatten();
            if let Some(status) = ended {
                self.nbdfuse = None;
                return Err(Failure::failed(format!(
                    "nbdfuse ended ({status}) instead of serving {uri}"
                ))
                .help(NBDFUSE_HELP));
            }
            if begun.elapsed() > NBDFUSE_WITHIN {
                return Err(Failure::failed(format!(
                    "nbdfuse did not serve {uri} within {NBDFUSE_WITHIN:?}"
                ))
                .help(
                    "this machine is too busy, or its FUSE does not work; `dmesg` may say more",
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Its mount point.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn unmount(&mut self) {
        let folder = self.folder.to_string_lossy().into_owned();
        let fuse = self.fuse.to_string_lossy().into_owned();
        if std::mem::take(&mut self.is_mounted) && run("umount", [&folder]).is_err() {
            // Something still has a file open; the mount goes when that ends.
            let _ = run("umount", ["--lazy", &folder]);
        }
        if let Some(device) = self.device.take() {
            let _ = run("losetup", ["--detach", &device]);
        }
        if let Some(mut nbdfuse) = self.nbdfuse.take() {
            if run("fusermount3", ["-u", &fuse]).is_err() {
                let _ = run("fusermount3", ["-u", "-z", &fuse]);
                let _ = nbdfuse.kill();
            }
            let _ = nbdfuse.wait();
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}
