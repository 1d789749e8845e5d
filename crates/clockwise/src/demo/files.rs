//! Best effort in the demo: a real file system on a volume, and what people do on one.
//!
//! With root the volume is exported by NBD, made a file by `nbdfuse`, a block device by a loop
//! device, an ext4 by `mkfs`, and mounted; then `git clone`, `tar` and `fio` work on it. Without root
//! `fio` reads and writes the export directly.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;

use super::process::{self, End, command, is_there, run, run_until};
use crate::failure::{Failure, io_failure};

/// How long `nbdfuse` may take until its file is there.
const NBDFUSE_WITHIN: Duration = Duration::from_secs(10);

/// Reads and writes a second of `fio`: a busy desk, not a benchmark that fills every gap.
const FIO_IOPS: u32 = 20;

/// Files of the repository that is cloned, and their size: a small project.
const REPOSITORY_FILES: u32 = 400;
const REPOSITORY_FILE_BYTES: usize = 16 << 10;

/// What the programs on the file system did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct FileLoad {
    /// How it was done: `ext4` or `nbd`.
    pub kind: &'static str,
    /// Repositories cloned.
    pub clones: u64,
    /// Archives written.
    pub archives: u64,
    /// Reads and writes that fio completed.
    pub fio_requests: u64,
}

/// A file system on a volume. Dropping it unmounts, and leaves nothing behind.
pub(super) struct Mounted {
    folder: PathBuf,
    fuse: PathBuf,
    nbdfuse: Option<Child>,
    device: Option<String>,
    is_mounted: bool,
}

impl Mounted {
    /// Whether this can be done here, and if not, why.
    pub(super) fn obstacle() -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("no root");
        }
        let needed = [
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
        if !needed.iter().all(|name| is_there(name)) {
            return Some(
                "a program is missing; `make setup` brings nbdfuse, fuse3, e2fsprogs, git and fio",
            );
        }
        (!Path::new("/dev/fuse").exists()).then_some("no /dev/fuse")
    }

    /// Mounts the export `uri` under `scratch`, making a file system on it first if `fresh`.
    pub(super) fn new(scratch: &Path, uri: &str, fresh: bool) -> Result<Self, Failure> {
        let mut mounted = Self {
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
        mounted.start_nbdfuse(uri)?;
        let image = mounted.fuse.join("volume");
        let device = run(
            "losetup",
            [
                "--find",
                "--show",
                "--direct-io=on",
                &image.to_string_lossy(),
            ],
        )?;
        let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
        mounted.device = Some(device.clone());
        if fresh {
            run(
                "mkfs.ext4",
                ["-q", "-F", "-E", "nodiscard,lazy_itable_init=1", &device],
            )?;
        }
        run(
            "mount",
            [
                "-t",
                "ext4",
                "-o",
                "noatime",
                &device,
                &mounted.folder.to_string_lossy(),
            ],
        )?;
        mounted.is_mounted = true;
        Ok(mounted)
    }

    fn start_nbdfuse(&mut self, uri: &str) -> Result<(), Failure> {
        let image = self.fuse.join("volume");
        let failed =
            |error: std::io::Error| Failure::failed(format!("cannot run nbdfuse: {error}"));
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
                )));
            }
            if begun.elapsed() > NBDFUSE_WITHIN {
                return Err(Failure::failed(format!(
                    "nbdfuse did not serve {uri} within {NBDFUSE_WITHIN:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Where it is mounted.
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

/// Makes a repository to clone.
pub(super) fn make_repository(scratch: &Path) -> Result<PathBuf, Failure> {
    let folder = scratch.join("repository");
    let failed = |error: std::io::Error| io_failure("make the repository", &folder, &error);
    for number in 0..REPOSITORY_FILES {
        let file = folder.join(format!("part-{:02}/file-{number:03}.txt", number % 20));
        std::fs::create_dir_all(file.parent().unwrap_or(&folder)).map_err(failed)?;
        // Text that does not compress to nothing: a linear congruential sequence in letters.
        let mut state = u64::from(number) + 1;
        let text: Vec<u8> = (0..REPOSITORY_FILE_BYTES)
            .map(|index| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if index % 72 == 71 {
                    b'\n'
                } else {
                    b'a' + ((state >> 33) % 26) as u8
                }
            })
            .collect();
        std::fs::write(&file, text).map_err(failed)?;
    }
    let path = folder.to_string_lossy().into_owned();
    let git = |arguments: &[&str]| {
        let identity = [
            "-C",
            &path,
            "-c",
            "user.name=demo",
            "-c",
            "user.email=demo@localhost",
        ];
        run(
            "git",
            identity
                .iter()
                .chain(arguments)
                .copied()
                .collect::<Vec<_>>(),
        )
    };
    git(&["init", "--quiet"])?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "--message", "files"])?;
    Ok(folder)
}

/// Clones, archives and deletes until `stop`.
async fn churn(
    repository: PathBuf,
    folder: PathBuf,
    mut stop: watch::Receiver<bool>,
) -> Result<(u64, u64), Failure> {
    let (mut clones, mut archives) = (0, 0);
    let clone = folder.join("clone").to_string_lossy().into_owned();
    let archive = folder.join("archive.tar").to_string_lossy().into_owned();
    let source = format!("file://{}", repository.display());
    // A run before this one was ended in the middle of something.
    if run_until("rm", ["-rf", &clone, &archive], &folder, &mut stop)
        .await?
        .is_stopped()
    {
        return Ok((clones, archives));
    }
    loop {
        if run_until(
            "git",
            ["clone", "--quiet", &source, &clone],
            &folder,
            &mut stop,
        )
        .await?
        .is_stopped()
        {
            break;
        }
        clones += 1;
        if run_until(
            "tar",
            ["--create", "--file", &archive, "clone"],
            &folder,
            &mut stop,
        )
        .await?
        .is_stopped()
        {
            break;
        }
        archives += 1;
        if run_until("sync", ["--file-system", &archive], &folder, &mut stop)
            .await?
            .is_stopped()
            || run_until("rm", ["-rf", &clone, &archive], &folder, &mut stop)
                .await?
                .is_stopped()
        {
            break;
        }
    }
    Ok((clones, archives))
}

/// Runs fio until its time is over or `stop`, and counts what it completed.
async fn fio(
    target: Vec<String>,
    folder: PathBuf,
    seconds: u64,
    mut stop: watch::Receiver<bool>,
) -> Result<u64, Failure> {
    let mut arguments: Vec<String> = [
        "--name=desk",
        "--rw=randrw",
        "--bs=4k",
        "--iodepth=4",
        "--size=16m",
        "--time_based",
        "--output-format=json",
        "--randrepeat=1",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--runtime={seconds}"));
    arguments.push(format!("--rate_iops={FIO_IOPS},{FIO_IOPS}"));
    arguments.extend(target);
    match run_until("fio", arguments, &folder, &mut stop).await? {
        End::Stopped(text) | End::Done(text) => Ok(fio_requests(&text)),
    }
}

fn fio_requests(text: &str) -> u64 {
    let start = text.find('{').unwrap_or(0);
    let report: serde_json::Value = serde_json::from_str(&text[start..]).unwrap_or_default();
    ["read", "write"]
        .iter()
        .filter_map(|op| report["jobs"][0][op]["total_ios"].as_u64())
        .sum()
}

/// What there is to load.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A mounted file system, and the repository to clone onto it.
    FileSystem {
        folder: PathBuf,
        repository: PathBuf,
    },
    /// An export, read and written as it is.
    Export { uri: String, scratch: PathBuf },
}

/// Loads `target` for `seconds`, or until `stop`.
pub(super) async fn load(
    target: Target,
    seconds: u64,
    stop: watch::Receiver<bool>,
) -> Result<FileLoad, Failure> {
    match target {
        Target::FileSystem { folder, repository } => {
            let file = format!("--filename={}", folder.join("fio.data").display());
            let options = vec![
                "--ioengine=libaio".to_owned(),
                "--direct=1".to_owned(),
                file,
            ];
            let (fio, churned) = tokio::join!(
                fio(options, folder.clone(), seconds, stop.clone()),
                churn(repository, folder, stop)
            );
            let (clones, archives) = churned?;
            Ok(FileLoad {
                kind: "ext4",
                clones,
                archives,
                fio_requests: fio?,
            })
        }
        Target::Export { uri, scratch } => {
            let options = vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")];
            let fio_requests = fio(options, scratch, seconds, stop).await?;
            Ok(FileLoad {
                kind: "nbd",
                fio_requests,
                ..FileLoad::default()
            })
        }
    }
}

/// What is missing for any file load at all.
pub(super) fn require_fio() -> Result<(), Failure> {
    if process::is_there("fio") {
        return Ok(());
    }
    Err(
        Failure::failed("fio is not installed, and without it there is no file load to show")
            .help("install it: apt-get install fio, or `make setup` as root"),
    )
}
