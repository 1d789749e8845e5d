//! Opens the disks that a configuration names, for the server and for the commands that work without one.
//!
//! One process uses a disk at a time. The engine opens devices exclusively, which the kernel refuses while
//! they are mounted or part of another device, and locks files. A second server, or `pool create` beside a
//! server, is therefore refused with the disk's name instead of destroying data.

mod links;
mod profile;

use std::fs::{FileType, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drives::emulator::{DriveControl, DriveOptions, EmulatedDrive, EmulatedLink};
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Disk;
use engine::pool::{Link, PoolDisk};
use engine::uring::UringDisk;
use rustix::fs::FallocateFlags;
use sched::units::Bytes;

pub use self::profile::{Drive, estimate};
use crate::config::{Config, DiskConfig, DiskKind};
use crate::failure::{Failure, FailureDraft, host_help};
use crate::quantity::Size;

/// The treatment of files of the configuration that do not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingFiles {
    /// They are created, with the size in the configuration.
    Make,
    /// They are an error.
    Refuse,
}

/// The open disks of a pool.
pub struct OpenDisks {
    /// The memory for their transfers.
    pub memory: Memory,
    /// The disks, in the configuration's order.
    pub disks: Vec<PoolDisk>,
    /// The drives behind them, in the same order.
    pub drives: Vec<Drive>,
    /// The files that were created for them.
    pub made: CreatedFiles,
    /// Controls of the emulated drives, by the disk's name.
    pub emulated: Vec<(String, DriveControl)>,
    /// Links that they share.
    pub links: Vec<Link>,
}

/// Files that were created for disks. Dropping this removes them, unless [`keep`](Self::keep) is called:
/// after a failure the next attempt would take them for existing disks and ignore a changed size in the
/// configuration.
#[derive(Debug, Default)]
pub struct CreatedFiles(Vec<PathBuf>);

impl CreatedFiles {
    /// Keeps the files: a pool was made on them.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // The file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens the disks of `config`.
///
/// # Errors
/// Reports the first disk that cannot be used, with its place in the configuration.
pub fn open(config: &Config, absent: MissingFiles) -> Result<OpenDisks, Failure> {
    let mut created = CreatedFiles::default();
    let is_missing = config
        .disks
        .iter()
        .map(|disk| prepare(disk, absent, &mut created))
        .collect::<Result<Vec<_>, _>>()?;
    let memory = MemoryConfig {
        lock: config.open.realtime,
        ..MemoryConfig::new(config.memory)
    };
    let memory = Memory::new(&memory).map_err(|error| {
        Failure::failed(error.to_string())
            .help("lower `total` in [memory] to what this machine can spare")
    })?;
    let mut opened = OpenDisks {
        memory,
        disks: Vec::with_capacity(config.disks.len()),
        drives: Vec::with_capacity(config.disks.len()),
        made: created,
        emulated: Vec::new(),
        links: Vec::new(),
    };
    let emulated_links = links::emulated(&config.links);
    for (index, (disk, is_missing)) in config.disks.iter().zip(is_missing).enumerate() {
        let created = is_missing.then_some(&mut opened.made);
        let link = emulated_links.get(&index).cloned();
        let (pool_disk, drive, control) = open_one(disk, created, link, &opened.memory)?;
        let control = control.map(|control| (pool_disk.name.clone(), control));
        opened.emulated.extend(control);
        opened.disks.push(pool_disk);
        opened.drives.push(drive);
    }
    opened.links = links::apply(&config.links, &mut opened.disks)?;
    Ok(opened)
}

/// A setting that has effect only when a pool or a file is created, and that differs from the existing pool
/// or file.
#[derive(Debug)]
pub struct IgnoredSetting {
    /// The disk that the setting belongs to, if it belongs to one.
    pub disk: Option<String>,
    /// The setting, and why it has no effect.
    pub what: String,
    /// The remedy.
    pub remedy: &'static str,
}

const EXTENT_REMEDY: &str = "correct the configuration, or create the pool again (`clockwise pool create --force`), which destroys all data in it";

const SIZE_REMEDY: &str = "remove `size` from the configuration; or remove the file and run `clockwise pool create --force`, which creates the file and the pool again and destroys all data in the pool";

impl std::fmt::Display for IgnoredSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(disk) = &self.disk {
            write!(f, "{disk}: ")?;
        }
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// The settings without effect on an existing pool with extents of size `extent` and its existing files.
#[must_use]
pub fn ignored(config: &Config, extent: Bytes) -> Vec<IgnoredSetting> {
    let wanted = config.extent.filter(|wanted| *wanted != extent);
    let of_pool = wanted.map(|wanted| IgnoredSetting {
        disk: None,
        what: format!(
            "`extent` is {} in the configuration and has no effect: the pool was created with {}",
            Size(wanted),
            Size(extent)
        ),
        remedy: EXTENT_REMEDY,
    });
    let of_disks = config.disks.iter().filter_map(|disk| {
        let (wanted, has) = different_sizes(disk)?;
        Some(IgnoredSetting {
            disk: Some(disk.path.display().to_string()),
            what: format!(
                "`size` is {} in the configuration and has no effect: the file was created with {}",
                Size(wanted),
                Size(has)
            ),
            remedy: SIZE_REMEDY,
        })
    });
    of_pool.into_iter().chain(of_disks).collect()
}

/// The size in the configuration and the size of the disk's file, if they differ.
fn different_sizes(disk: &DiskConfig) -> Option<(Bytes, Bytes)> {
    let has = Bytes(std::fs::metadata(&disk.path).ok()?.len());
    let wanted = disk.size.filter(|wanted| *wanted != has)?;
    Some((wanted, has))
}

fn bad_disk(disk: &DiskConfig, what: impl std::fmt::Display) -> FailureDraft {
    Failure::bad_input(format!("disk {}: {what}", disk.path.display())).at(disk.place.clone())
}

/// The failure to open an existing disk.
fn unusable(disk: &DiskConfig, error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ResourceBusy | ErrorKind::WouldBlock => bad_disk(
            disk,
            "it is in use: another server has it open, it is mounted, it is part of another device, or it is being measured",
        )
        .help("stop that server or unmount the disk; `lsblk` shows how a device is used"),
        ErrorKind::Unsupported => bad_disk(disk, error)
            .help("correct `durability`, or remove it: the server then detects what the disk supports"),
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::ExecutableFileBusy => bad_disk(disk, error).help(host_help(error)),
        ErrorKind::InvalidData => {
            bad_disk(disk, error).help("set the `plant` that the file was created with, or another file")
        }
        _ => {
            bad_disk(disk, error).help("check the path, the cable and the disk; `dmesg` may tell more")
        }
    }
}

/// Checks that a disk is of the configured kind, and creates a missing file if `absent` says so. Returns true
/// if an emulated drive has still to be created.
fn prepare(
    disk: &DiskConfig,
    absent: MissingFiles,
    created: &mut CreatedFiles,
) -> Result<bool, Failure> {
    let kind = match std::fs::metadata(&disk.path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match (disk.kind, absent) {
                (DiskKind::Emulated, MissingFiles::Make) => Ok(true),
                (DiskKind::File, MissingFiles::Make) => {
                    create_file(disk)?;
                    created.0.push(disk.path.clone());
                    Ok(false)
                }
                (DiskKind::Block, _) => Err(bad_disk(disk, "it does not exist").help(
                    "check the cable and the path; `lsblk -o PATH,SERIAL` and `ls -l /dev/disk/by-id` list block devices",
                )),
                (_, MissingFiles::Refuse) => Err(bad_disk(disk, "it does not exist")
                    .help("restore the file, or create a new pool with `clockwise pool create`")),
            };
        }
        Err(error) => return Err(unusable(disk, &error)),
    };
    let is_as_configured = match disk.kind {
        DiskKind::Block => kind.is_block_device(),
        DiskKind::File | DiskKind::Emulated => kind.is_file(),
    };
    if !is_as_configured {
        return Err(wrong_kind(disk, kind));
    }
    if absent == MissingFiles::Make
        && let Some((wanted, has)) = different_sizes(disk)
    {
        let what = format!("the file has {}, but `size` is {}", Size(has), Size(wanted));
        return Err(bad_disk(disk, what).help(
            "remove `size` to use the file as it is, or remove the file to have it created again",
        ));
    }
    Ok(false)
}

/// Checks that a disk is there and of the configured kind, without opening it.
///
/// # Errors
/// When it is not, with its place in the configuration.
pub fn check_kind(disk: &DiskConfig) -> Result<(), Failure> {
    let absent = MissingFiles::Refuse;
    prepare(disk, absent, &mut CreatedFiles::default()).map(drop)
}

/// The failure of a disk that is not of the configured kind.
fn wrong_kind(disk: &DiskConfig, kind: FileType) -> Failure {
    let (wanted, another) = if disk.kind == DiskKind::Block {
        (
            "a block device",
            "give one of the devices that `lsblk -o PATH,SERIAL` and `ls -l /dev/disk/by-id` list",
        )
    } else {
        (
            "a file",
            "give a file; `clockwise pool create` creates one that does not exist",
        )
    };
    let (is, help) = if kind.is_block_device() {
        ("a block device", "write kind = \"block\" for a device")
    } else if kind.is_file() {
        ("a file", "write kind = \"file\" for a file")
    } else if kind.is_dir() {
        ("a folder", another)
    } else if kind.is_fifo() {
        ("a pipe", another)
    } else if kind.is_char_device() {
        ("a character device", another)
    } else {
        ("a socket", another)
    };
    bad_disk(disk, format!("it is {is}, not {wanted}")).help(help)
}

/// Creates a file with all of its space allocated: writes to a disk that runs out of space would fail.
fn create_file(disk: &DiskConfig) -> Result<(), Failure> {
    let size = disk.size.ok_or_else(|| {
        bad_disk(
            disk,
            "it does not exist, and the configuration gives no size for it",
        )
        .help("add a size, such as size = \"100GiB\", or create the file yourself")
    })?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&disk.path)
        .map_err(|error| not_created(disk, &error))?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size.get()).map_err(|error| {
        // The next attempt would take a file without all of its space for a disk.
        let _ = std::fs::remove_file(&disk.path);
        not_created(disk, &error.into())
    })
}

fn not_created(disk: &DiskConfig, error: &io::Error) -> Failure {
    let help = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => host_help(error),
        _ => "check that its folder exists, is writable and has room for `size`",
    };
    bad_disk(disk, format!("cannot create it: {error}")).help(help)
}

fn open_one(
    disk: &DiskConfig,
    created: Option<&mut CreatedFiles>,
    link: Option<Arc<EmulatedLink>>,
    memory: &Memory,
) -> Result<(PoolDisk, Drive, Option<DriveControl>), Failure> {
    let mut control = None;
    let opened: Box<dyn Disk> = match disk.kind {
        DiskKind::Block | DiskKind::File => {
            let places = disk
                .outstanding
                .or(disk.profile.as_ref().map(|profile| profile.outstanding()))
                .unwrap_or(1);
            let open = || UringDisk::open_as(&disk.path, memory, places as usize, disk.durability);
            Box::new(retry_while_busy(open).map_err(|error| unusable(disk, &error))?)
        }
        DiskKind::Emulated => {
            let drive = emulated(disk, created, link)?;
            control = Some(drive.control());
            Box::new(drive)
        }
    };
    let chosen = profile::choose(disk, opened.capacity())?;
    let pool_disk = PoolDisk {
        name: disk.path.display().to_string(),
        disk: opened,
        profile: chosen.profile,
        profile_is_measured: chosen.is_measured,
    };
    Ok((pool_disk, chosen.drive, control))
}

/// The maximum time that a disk stays busy after its last user has ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens a disk, and retries for [`RELEASE_TIMEOUT`] while it is busy. After a process has ended, the kernel
/// takes its io_uring ring apart asynchronously, and the ring holds the disk until then. Without retries, a
/// server that is restarted at once would find its own disks busy. The kernel offers no event to wait for.
fn retry_while_busy<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error)
                if error.kind() == ErrorKind::ResourceBusy && begun.elapsed() < RELEASE_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Opens an emulated drive, or creates it and adds it to `created`.
fn emulated(
    disk: &DiskConfig,
    created: Option<&mut CreatedFiles>,
    link: Option<Arc<EmulatedLink>>,
) -> Result<EmulatedDrive, Failure> {
    let plant = disk.plant.clone().ok_or_else(|| {
        bad_disk(disk, "it has no `plant`").help("set `plant` to the drive model to emulate")
    })?;
    let options = DriveOptions {
        link,
        ..DriveOptions::default()
    };
    let drive = if created.is_some() {
        EmulatedDrive::create(&disk.path, plant, &options)
    } else {
        EmulatedDrive::open(&disk.path, plant, &options)
    }
    .map_err(|error| unusable(disk, &error))?;
    if let Some(CreatedFiles(paths)) = created {
        paths.push(disk.path.clone());
    }
    if disk
        .durability
        .is_some_and(|wanted| wanted != drive.durability())
    {
        return Err(bad_disk(
            disk,
            "an emulated drive has no write cache, so its writes are always written through",
        )
        .help("write durability = \"write-through\", or remove it"));
    }
    Ok(drive)
}
