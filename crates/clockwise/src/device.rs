//! Identity and properties of the device behind a path, as the kernel reports them.
//!
//! Everything is read from `/sys`, `/proc` and udev's data below a root folder, which tests replace. Nothing is
//! asked of the drive itself, so no privilege is needed. A property that the kernel does not report is `None`.
//!
//! The serial number says which drive a profile was measured on. Its sources, in this order:
//!
//! * the drive's own: `device/serial` (NVMe, MMC), `serial` (virtio), the SCSI page 0x80, udev's copy of it;
//! * the identity of a device without hardware of its own: `dm:UUID`, `md:UUID`, `file:PATH` for a loop device,
//!   `kernel:NAME` for another one, such as compressed memory;
//! * `file:PATH` for a file, so for an emulated drive too. A file that is moved is another disk.

mod cable;
mod drives;
mod users;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use cable::cable;
pub use drives::Drive;

/// The identity of a file keeps at most this many bytes of its path, the last ones.
const PATH_BYTES_MAX: usize = 180;

/// The kind of node that a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A whole block device.
    Whole,
    /// A partition of one.
    Partition {
        /// Its first sector of 512 bytes on the device.
        start_sector: u64,
    },
    /// A file on a file system.
    File,
}

/// The zones of a device with regions that are written in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zoned {
    /// It has none.
    No,
    /// It has such zones, and accepts writes in any order.
    HostAware,
    /// It refuses writes out of order.
    HostManaged,
}

/// The write cache as the kernel treats it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteCache {
    /// Volatile: written data needs a flush.
    WriteBack,
    /// None, or one that keeps its data.
    WriteThrough,
}

/// A device, or a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The kind of node.
    pub kind: NodeKind,
    /// The kernel's name of the whole device, such as `sda`; empty for a file.
    pub name: String,
    /// The drive's model; empty if it reports none.
    pub model: String,
    /// The serial number, or the identity of a device without hardware of its own.
    pub serial: Option<String>,
    /// The drive's firmware; empty if it reports none.
    pub firmware: String,
    /// True for a drive with platters.
    pub rotational: Option<bool>,
    /// Its zones.
    pub zoned: Option<Zoned>,
    /// Its write cache.
    pub write_cache: Option<WriteCache>,
    /// True if it writes single requests through its cache.
    pub fua: Option<bool>,
    /// The most requests that the kernel gives it at a time.
    pub queue_depth: Option<u32>,
    /// The unit of addresses.
    pub logical_block_bytes: Option<u64>,
    /// The unit in which the medium is written.
    pub physical_block_bytes: Option<u64>,
    /// The size of the node in sectors of 512 bytes.
    pub sectors: Option<u64>,
    /// Users of it or of a partition of it: mount points, swap, other devices; of a file loop devices. For people.
    pub users: Vec<String>,
}

impl Identity {
    /// The identity of the device or file at `path`.
    ///
    /// # Errors
    /// If nothing is there, or the kernel does not list the device.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::below(Path::new("/"), path)
    }

    /// As [`Identity::of`], with `/sys`, `/proc` and `/run` below `root`.
    fn below(root: &Path, path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if metadata.file_type().is_block_device() {
            let number = metadata.rdev();
            let number = (rustix::fs::major(number), rustix::fs::minor(number));
            return Self::of_device(root, number);
        }
        Ok(Self::of_file(root, &fs::canonicalize(path)?, &metadata))
    }

    fn of_file(root: &Path, path: &Path, metadata: &fs::Metadata) -> Self {
        Self {
            kind: NodeKind::File,
            name: String::new(),
            model: "file".to_owned(),
            serial: Some(identity_of_file(&path.to_string_lossy())),
            firmware: String::new(),
            rotational: None,
            zoned: None,
            write_cache: None,
            fua: None,
            queue_depth: None,
            logical_block_bytes: None,
            physical_block_bytes: None,
            sectors: Some(metadata.len() / 512),
            users: users::loops(root, path, metadata),
        }
    }

    /// The block device with this major and minor number.
    fn of_device(root: &Path, number: (u32, u32)) -> io::Result<Self> {
        let (major, minor) = number;
        let listed = root.join(format!("sys/dev/block/{major}:{minor}"));
        let node = fs::canonicalize(&listed)?;
        let (kind, whole) = match read_number(&node.join("partition")) {
            Some(_) => {
                let start_sector = read_number(&node.join("start")).unwrap_or(0);
                let whole = node.parent().unwrap_or(&node).to_owned();
                (NodeKind::Partition { start_sector }, whole)
            }
            None => (NodeKind::Whole, node.clone()),
        };
        let udev = Udev::of(root, &whole);
        let queue = whole.join("queue");
        let depth = whole.join("device/queue_depth");
        Ok(Self {
            kind,
            name: file_name(&whole),
            model: read_text(&whole.join("device/model"))
                .or_else(|| read_text(&whole.join("dm/name")))
                .or_else(|| udev.value("ID_MODEL"))
                .unwrap_or_default(),
            serial: serial(&whole, &udev),
            firmware: ["device/firmware_rev", "device/rev"]
                .iter()
                .find_map(|name| read_text(&whole.join(name)))
                .or_else(|| udev.value("ID_REVISION"))
                .unwrap_or_default(),
            rotational: read_number(&queue.join("rotational")).map(|value| value != 0),
            zoned: read_text(&queue.join("zoned")).map(|text| match text.as_str() {
                "none" => Zoned::No,
                "host-aware" => Zoned::HostAware,
                _ => Zoned::HostManaged,
            }),
            write_cache: read_text(&queue.join("write_cache")).map(|text| match text.as_str() {
                "write through" => WriteCache::WriteThrough,
                _ => WriteCache::WriteBack,
            }),
            fua: read_number(&queue.join("fua")).map(|value| value != 0),
            queue_depth: read_number(&depth)
                .or_else(|| read_number(&queue.join("nr_requests")))
                .and_then(|depth| u32::try_from(depth).ok()),
            logical_block_bytes: read_number(&queue.join("logical_block_size")),
            physical_block_bytes: read_number(&queue.join("physical_block_size")),
            sectors: read_number(&node.join("size")),
            users: users::users(root, &node),
        })
    }
}

/// The serial number of a whole device.
fn serial(whole: &Path, udev: &Udev) -> Option<String> {
    let own = ["device/serial", "serial"]
        .iter()
        .find_map(|name| read_text(&whole.join(name)));
    let scsi = || unit_serial(&fs::read(whole.join("device/vpd_pg80")).ok()?);
    let of_udev = || {
        ["ID_SERIAL_SHORT", "ID_SCSI_SERIAL", "ID_SERIAL"]
            .iter()
            .find_map(|key| udev.value(key))
    };
    let named = |prefix: &str, name: &str| {
        let text = read_text(&whole.join(name))?;
        Some(format!("{prefix}:{text}"))
    };
    let backing = || {
        let path = read_text(&whole.join("loop/backing_file"))?;
        Some(identity_of_file(&path))
    };
    own.or_else(scsi)
        .or_else(of_udev)
        .or_else(|| named("dm", "dm/uuid"))
        .or_else(|| named("md", "md/uuid"))
        .or_else(backing)
        .or_else(|| {
            let is_virtual = whole.to_string_lossy().contains("/devices/virtual/");
            is_virtual.then(|| format!("kernel:{}", file_name(whole)))
        })
}

/// The serial number in the SCSI page 0x80: a header of four bytes, whose last two are the length, then the text.
fn unit_serial(page: &[u8]) -> Option<String> {
    let header: [u8; 4] = page.get(..4)?.try_into().ok()?;
    if header[1] != 0x80 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let text = page.get(4..)?;
    let text = text.get(..length).unwrap_or(text);
    cleaned(&String::from_utf8_lossy(text))
}

/// The identity of a file: the last part of its path, if that is long.
fn identity_of_file(path: &str) -> String {
    let path = cleaned(path).unwrap_or_default();
    let mut begin = path.len().saturating_sub(PATH_BYTES_MAX);
    while !path.is_char_boundary(begin) {
        begin += 1;
    }
    format!("file:{}", &path[begin..])
}

/// A text without surrounding blanks and control characters; `None` if nothing is left.
fn cleaned(text: &str) -> Option<String> {
    let printable = |char: char| if char.is_control() { ' ' } else { char };
    let text: String = text.chars().map(printable).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn read_text(path: &Path) -> Option<String> {
    cleaned(&String::from_utf8_lossy(&fs::read(path).ok()?))
}

fn read_number(path: &Path) -> Option<u64> {
    read_text(path)?.parse().ok()
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The folders of a device's partitions.
fn partitions(whole: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(whole).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.join("partition").exists())
        .collect();
    found.sort();
    found
}

/// The properties that udev keeps of a device: lines `E:KEY=VALUE`.
struct Udev(String);

impl Udev {
    fn of(root: &Path, node: &Path) -> Self {
        let text = read_text(&node.join("dev")).and_then(|number| {
            fs::read(root.join("run/udev/data").join(format!("b{number}"))).ok()
        });
        Self(String::from_utf8_lossy(&text.unwrap_or_default()).into_owned())
    }

    fn value(&self, key: &str) -> Option<String> {
        let of_key = |line: &str| {
            let value = line.strip_prefix("E:")?.strip_prefix(key)?;
            cleaned(value.strip_prefix('=')?)
        };
        self.0.lines().find_map(of_key)
    }
}

#[cfg(test)]
mod tests;
