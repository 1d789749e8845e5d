//! The disks that a configuration names, opened: for the server, and for what is done without one.
//!
//! A disk is used by one process at a time: the engine opens devices exclusively, which the kernel
//! refuses while they are mounted or part of something else, and locks files. So a second server, or
//! `pool create` beside a server, is refused by name instead of destroying data.

use std::fs::{FileType, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drives::emulator::{DriveOptions, EmulatedDrive};
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Disk;
use engine::pool::PoolDisk;
use engine::uring::UringDisk;
use rustix::fs::FallocateFlags;
use sched::profile::{DriveKind, DriveProfile};
use sched::units::{Bytes, SectorCount};

use crate::config::{Config, DiskConfig, DiskKind};
use crate::failure::{Failure, Wrong, host_help};
use crate::quantity::Size;

/// Whether files of the configuration that are not there are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// They are made, at the size that the configuration says.
    Make,
    /// They are an error.
    Refuse,
}

/// The disks of a pool, open.
pub struct OpenDisks {
    /// What their transfers are made from.
    pub memory: Memory,
    /// The disks, in the configuration's order.
    pub disks: Vec<PoolDisk>,
    /// Their files that were not there before.
    pub made: Made,
}

/// Files that have been made for disks. Unless they are kept they are removed again: what comes after a
/// failure would otherwise find them, and take them as they are whatever the configuration says by then.
#[derive(Debug, Default)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// They are a pool's disks.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            // Gone already is as well.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens the disks of `config`.
///
/// # Errors
/// The first disk that cannot be used, with its place in the configuration.
pub fn open(config: &Config, absent: Absent) -> Result<OpenDisks, Failure> {
    let mut made = Made::default();
    let to_be_made = config
        .disks
        .iter()
        .map(|disk| prepare(disk, absent, &mut made))
        .collect::<Result<Vec<_>, _>>()?;
    let memory = MemoryConfig {
        lock: config.open.realtime,
        ..MemoryConfig::new(config.memory)
    };
    let memory = Memory::new(&memory).map_err(|error| {
        Failure::failed(error.to_string())
            .help("set `total` in [memory] to what this machine can spare")
    })?;
    let mut opened = OpenDisks {
        memory,
        disks: Vec::with_capacity(config.disks.len()),
        made,
    };
    for (disk, is_to_be_made) in config.disks.iter().zip(to_be_made) {
        let made = is_to_be_made.then_some(&mut opened.made);
        let pool_disk = open_one(disk, made, &opened.memory)?;
        opened.disks.push(pool_disk);
    }
    Ok(opened)
}

/// Something of the configuration that counts when a pool or its file is made, and is not as it was then.
#[derive(Debug)]
pub struct Ignored {
    /// On which disk, if on one.
    pub disk: Option<String>,
    /// What.
    pub what: String,
    /// The remedy.
    pub remedy: &'static str,
}

const EXTENT_REMEDY: &str = "correct the configuration, or make the pool anew (`clockwise pool create --force`), by which all that is in it is lost";

const SIZE_REMEDY: &str = "take `size` out of the configuration; or take the file away and run `clockwise pool create --force`, which makes the file and the pool anew, by which all that is in the pool is lost";

impl std::fmt::Display for Ignored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(disk) = &self.disk {
            write!(f, "{disk}: ")?;
        }
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// The values of the configuration that do not count any more, as the pool has extents of this size and its files are there.
#[must_use]
pub fn ignored(config: &Config, extent: Bytes) -> Vec<Ignored> {
    let wanted = config.extent.filter(|wanted| *wanted != extent);
    let of_pool = wanted.map(|wanted| Ignored {
        disk: None,
        what: format!(
            "`extent` is {} in the configuration and does not count, as the pool was made with {}",
            Size(wanted),
            Size(extent)
        ),
        remedy: EXTENT_REMEDY,
    });
    let of_disks = config.disks.iter().filter_map(|disk| {
        let (wanted, has) = another_size(disk)?;
        Some(Ignored {
            disk: Some(disk.path.display().to_string()),
            what: format!(
                "`size` is {} in the configuration and does not count, as the file was made with {}",
                Size(wanted),
                Size(has)
            ),
            remedy: SIZE_REMEDY,
        })
    });
    of_pool.into_iter().chain(of_disks).collect()
}

/// The size that the configuration says and the one that a disk's file has, where these differ.
fn another_size(disk: &DiskConfig) -> Option<(Bytes, Bytes)> {
    let has = Bytes(std::fs::metadata(&disk.path).ok()?.len());
    let wanted = disk.size.filter(|wanted| *wanted != has)?;
    Some((wanted, has))
}

fn wrong(disk: &DiskConfig, what: impl std::fmt::Display) -> Wrong {
    Failure::bad_input(format!("disk {}: {what}", disk.path.display())).at(disk.place.clone())
}

/// The failure to open a disk that is there.
fn unusable(disk: &DiskConfig, error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ResourceBusy | ErrorKind::WouldBlock => wrong(
            disk,
            "it is in use: by another server, or mounted, or part of another device",
        )
        .help("end that server, or unmount it; `lsblk` shows who holds a device"),
        ErrorKind::Unsupported => wrong(disk, error)
            .help("correct `durability`, or leave it out: the server finds out what the disk does"),
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::ExecutableFileBusy => wrong(disk, error).help(host_help(error)),
        ErrorKind::InvalidData => {
            wrong(disk, error).help("name the `plant` that it was made with, or another file")
        }
        _ => {
            wrong(disk, error).help("check the path, the cable and the disk; `dmesg` may say more")
        }
    }
}

/// Checks that a disk is what the configuration says, and makes its file if that is wanted. Whether
/// an emulated drive is still to be made.
fn prepare(disk: &DiskConfig, absent: Absent, made: &mut Made) -> Result<bool, Failure> {
    let is_block = disk.kind == DiskKind::Block;
    let kind = match std::fs::metadata(&disk.path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match (disk.kind, absent) {
                (DiskKind::Emulated, Absent::Make) => Ok(true),
                (DiskKind::File, Absent::Make) => {
                    make_file(disk)?;
                    made.0.push(disk.path.clone());
                    Ok(false)
                }
                (DiskKind::Block, _) => Err(wrong(disk, "it is not there").help(
                    "check the cable and the path; `lsblk -o PATH,SERIAL` lists block devices",
                )),
                (_, Absent::Refuse) => Err(wrong(disk, "it is not there")
                    .help("bring it back, or make a new pool with `clockwise pool create`")),
            };
        }
        Err(error) => return Err(unusable(disk, &error)),
    };
    let is_as_said = if is_block {
        kind.is_block_device()
    } else {
        kind.is_file()
    };
    if !is_as_said {
        return Err(unlike(disk, kind, is_block));
    }
    if absent == Absent::Make
        && let Some((wanted, has)) = another_size(disk)
    {
        let what = format!(
            "it is there with {}, and `size` says {}",
            Size(has),
            Size(wanted)
        );
        return Err(wrong(disk, what).help(
            "take `size` out to use the file as it is, or take the file away: it is made anew then",
        ));
    }
    Ok(false)
}

/// The failure of a disk that is something else than the configuration says.
fn unlike(disk: &DiskConfig, kind: FileType, is_block: bool) -> Failure {
    let (wanted, another) = if is_block {
        (
            "a block device",
            "name one of those that `lsblk -o PATH,SERIAL` lists",
        )
    } else {
        (
            "a file",
            "name a file, or one that is not there yet: `clockwise pool create` makes it",
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
    wrong(disk, format!("it is {is}, not {wanted}")).help(help)
}

/// A file with all its space: a disk that runs out of it later would have to fail writes.
fn make_file(disk: &DiskConfig) -> Result<(), Failure> {
    let size = disk.size.ok_or_else(|| {
        wrong(
            disk,
            "it is not there, and the configuration does not say how large to make it",
        )
        .help("add size = \"100GiB\", or make the file yourself")
    })?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&disk.path)
        .map_err(|error| not_made(disk, &error))?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size.get()).map_err(|error| {
        // A half-made file would be taken for a disk the next time; there was none before.
        let _ = std::fs::remove_file(&disk.path);
        not_made(disk, &error.into())
    })
}

fn not_made(disk: &DiskConfig, error: &io::Error) -> Failure {
    let help = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => host_help(error),
        _ => "see that its folder is there, may be written and has room for `size`",
    };
    wrong(disk, format!("cannot make it: {error}")).help(help)
}

fn open_one(
    disk: &DiskConfig,
    made: Option<&mut Made>,
    memory: &Memory,
) -> Result<PoolDisk, Failure> {
    let opened: Box<dyn Disk> = match disk.kind {
        DiskKind::Block | DiskKind::File => {
            let places = disk
                .outstanding
                .or(disk.profile.as_ref().map(|profile| profile.outstanding()))
                .unwrap_or(1);
            let open = || UringDisk::open_as(&disk.path, memory, places as usize, disk.durability);
            Box::new(once_released(open).map_err(|error| unusable(disk, &error))?)
        }
        DiskKind::Emulated => emulated(disk, made)?,
    };
    let (profile, profile_is_measured) = profile(disk, opened.capacity())?;
    Ok(PoolDisk {
        name: disk.path.display().to_string(),
        disk: opened,
        profile,
        profile_is_measured,
    })
}

/// How long a disk may stay in use after its last user has ended.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// Opens a disk, trying again for a while when it is in use: the kernel takes a ring of a process
/// that has ended apart in its own time, and with it the ring's hold on the disk, so that a server
/// that is started again at once would find its own disks in use. There is no event to wait for.
fn once_released<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error)
                if error.kind() == ErrorKind::ResourceBusy && begun.elapsed() < RELEASE_WITHIN =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// An emulated drive; one that is new is noted in `made`.
fn emulated(disk: &DiskConfig, made: Option<&mut Made>) -> Result<Box<dyn Disk>, Failure> {
    let plant = disk.plant.clone().ok_or_else(|| {
        wrong(disk, "it has no plant").help("name the model that it behaves as with `plant`")
    })?;
    let options = DriveOptions::default();
    let drive = if made.is_some() {
        EmulatedDrive::create(&disk.path, plant, &options)
    } else {
        EmulatedDrive::open(&disk.path, plant, &options)
    }
    .map_err(|error| unusable(disk, &error))?;
    if let Some(Made(paths)) = made {
        paths.push(disk.path.clone());
    }
    if disk
        .durability
        .is_some_and(|wanted| wanted != drive.durability())
    {
        return Err(wrong(
            disk,
            "an emulated drive has no cache: its writes are written through",
        )
        .help("write durability = \"write-through\", or leave it out"));
    }
    Ok(Box::new(drive))
}

/// What to do about a disk that no profile can be guessed for.
const PROFILE_HELP: &str = "name a `profile` that was measured on it";

/// The profile to go by, and whether it was measured on this disk: the one that the configuration names, or a
/// cautious one by kind; at the depth that the configuration says.
fn profile(disk: &DiskConfig, capacity: SectorCount) -> Result<(Arc<DriveProfile>, bool), Failure> {
    let profile = match &disk.profile {
        Some(profile) => Arc::clone(profile),
        None => {
            let kind = match disk.kind {
                DiskKind::File => DriveKind::File,
                DiskKind::Emulated => DriveKind::Rotating,
                DiskKind::Block if is_rotational(&disk.path) => DriveKind::Rotating,
                DiskKind::Block => DriveKind::SolidState,
            };
            Arc::new(
                DriveProfile::conservative(kind, capacity)
                    .map_err(|error| wrong(disk, error).help(PROFILE_HELP))?,
            )
        }
    };
    let is_measured =
        profile.measured() && (!disk.profile_is_shipped || is_emulated_as(disk, &profile));
    let Some(outstanding) = disk.outstanding else {
        return Ok((profile, is_measured));
    };
    // Fewer than there were when it was measured: no request takes longer then.
    let mut spec = profile.spec().clone();
    spec.outstanding = outstanding;
    let shallower = DriveProfile::new(spec).map_err(|error| {
        wrong(disk, error).help("take `outstanding` out, or name another profile")
    })?;
    Ok((Arc::new(shallower), is_measured))
}

/// Whether a disk is an emulated drive of the model that a profile is of. A shipped profile was measured
/// on such a drive if at all, and nobody knows what a device or a file is.
fn is_emulated_as(disk: &DiskConfig, profile: &DriveProfile) -> bool {
    let plant = disk
        .plant
        .as_ref()
        .filter(|_| disk.kind == DiskKind::Emulated);
    plant.is_some_and(|plant| plant.name() == profile.name())
}

/// Whether the kernel takes a block device to have platters; partitions ask their disk. A device
/// that does not say is taken to have them: the cautious guess.
fn is_rotational(path: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else {
        return true;
    };
    let device = metadata.rdev();
    let folder = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|name| std::fs::read_to_string(Path::new(&folder).join(name)).ok())
        .is_none_or(|text| text.trim() != "0")
}
