//! Real file systems and block devices that go wrong: what a test needs of root, undone when dropped.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::skip::{have, is_root, skipped, tool};

/// Runs a program; what it said if it failed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = tool(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {arguments:?}: {}", said.trim()))
}

/// A small file system in memory.
pub struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// `None`, and the test is skipped, where the host does not permit it.
    pub fn mount(bytes: u64) -> Option<Self> {
        if !is_root("mounting") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let at = folder.path().to_str().unwrap();
        match run("mount", &["-t", "tmpfs", "-o", &size, "none", at]) {
            Ok(_) => Some(Self(folder)),
            Err(error) => {
                skipped(&error);
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Gives it another size.
    pub fn resize(&self, bytes: u64) {
        let size = format!("remount,size={bytes}");
        run("mount", &["-o", &size, self.path().to_str().unwrap()]).unwrap();
    }

    /// A sparse file.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        path
    }

    /// Takes all the room that is left but for so many bytes.
    pub fn fill_up(&self, but: u64) {
        let mut ballast = std::fs::File::create(self.path().join("ballast")).unwrap();
        let page = [1; 4096];
        while ballast.write_all(&page).is_ok() {}
        let size = ballast.metadata().unwrap().len();
        ballast.set_len(size.saturating_sub(but)).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: what a failed test still has open must not keep it.
        let _ = run("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

/// A file system in memory that says so to nobody and has no direct I/O: an overlay on a ramfs.
pub struct Indirect(tempfile::TempDir);

impl Indirect {
    /// `None`, and the test is skipped, where the host does not permit it.
    pub fn mount() -> Option<Self> {
        if !is_root("mounting") {
            return None;
        }
        // Undone when dropped, also if the second mount is refused.
        let host = Self(tempfile::tempdir().unwrap());
        let [below, above] = ["below", "above"].map(|name| host.0.path().join(name));
        let mount = || -> Result<(), String> {
            std::fs::create_dir(&below).unwrap();
            std::fs::create_dir(&above).unwrap();
            run("mount", &["-t", "ramfs", "none", below.to_str().unwrap()])?;
            let [lower, upper, work] = ["lower", "upper", "work"].map(|name| below.join(name));
            for folder in [&lower, &upper, &work] {
                std::fs::create_dir(folder).unwrap();
            }
            let options = format!(
                "lowerdir={},upperdir={},workdir={}",
                lower.display(),
                upper.display(),
                work.display()
            );
            let above = above.to_str().unwrap();
            run("mount", &["-t", "overlay", "-o", &options, "none", above]).map(drop)
        };
        match mount() {
            Ok(()) => Some(host),
            Err(error) => {
                skipped(&error);
                None
            }
        }
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("above")
    }
}

impl Drop for Indirect {
    fn drop(&mut self) {
        for name in ["above", "below"] {
            let folder = self.0.path().join(name);
            // The file system may not be mounted.
            let _ = run("umount", &["-l", folder.to_str().unwrap()]);
        }
    }
}

/// A block device over a file.
pub struct Loop {
    device: PathBuf,
    file: PathBuf,
}

impl Loop {
    /// `None`, and the test is skipped, where the host does not permit it.
    pub fn attach(file: &Path, sector_bytes: u32) -> Option<Self> {
        if !is_root("attaching a block device") || !have("losetup") {
            return None;
        }
        let sector = sector_bytes.to_string();
        let path = file.to_str().unwrap();
        let arguments = ["--find", "--show", "--sector-size", &sector, path];
        match run("losetup", &arguments) {
            Ok(device) => Some(Self {
                device: device.into(),
                file: file.to_owned(),
            }),
            Err(error) => {
                skipped(&error);
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.device
    }

    /// The medium goes away under whoever uses the device: every transfer fails from now on.
    pub fn tear_off(&self) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&self.file)
            .unwrap();
        file.set_len(0).unwrap();
        run(
            "losetup",
            &["--set-capacity", self.device.to_str().unwrap()],
        )
        .unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", self.device.to_str().unwrap()]);
    }
}
