//! The drives of this host: whole block devices of hardware.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Identity, file_name, partitions, read_number, read_text};

/// Names of udev for a drive that say nothing to people.
const NUMBERS: [&str; 4] = ["wwn-", "nvme-eui.", "nvme-nvme.", "scsi-3"];

/// A drive, or another device that a pool can have as a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Its path: one that stays the same when the kernel counts anew, if udev knows one.
    pub path: PathBuf,
    /// The kernel's description.
    pub identity: Identity,
    /// True if it takes no writes.
    pub is_read_only: bool,
    /// Paths of its partitions.
    pub partitions: Vec<PathBuf>,
}

impl Drive {
    /// The drives of this host, by name. Optical drives, and devices without hardware of their own, are none.
    ///
    /// # Errors
    /// If the kernel lists no devices.
    pub fn all() -> io::Result<Vec<Self>> {
        Self::all_below(Path::new("/"))
    }

    fn all_below(root: &Path) -> io::Result<Vec<Self>> {
        let entries = fs::read_dir(root.join("sys/block"))?;
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        let is_drive = |folder: &&PathBuf| {
            let is_full = read_number(&folder.join("size")).is_some_and(|sectors| sectors > 0);
            is_full && folder.join("device").exists() && !file_name(folder).starts_with("sr")
        };
        let drives = folders.iter().filter(is_drive);
        Ok(drives
            .filter_map(|folder| Self::in_folder(root, folder))
            .collect())
    }

    /// The device at `path`, which may be a partition or one without hardware.
    ///
    /// # Errors
    /// If nothing is there, or it is no block device.
    pub fn at(path: &Path) -> io::Result<Self> {
        let identity = Identity::of(path)?;
        let folder = Path::new("/sys/class/block").join(file_name(&fs::canonicalize(path)?));
        Ok(Self {
            path: path.to_owned(),
            is_read_only: read_number(&folder.join("ro")) == Some(1),
            partitions: paths_of_partitions(&folder),
            identity,
        })
    }

    fn in_folder(root: &Path, folder: &Path) -> Option<Self> {
        let number = read_text(&folder.join("dev"))?;
        let (major, minor) = number.split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        Some(Self {
            path: lasting_path(root, &file_name(folder)),
            identity: Identity::of_device(root, number).ok()?,
            is_read_only: read_number(&folder.join("ro")) == Some(1),
            partitions: paths_of_partitions(folder),
        })
    }
}

fn paths_of_partitions(folder: &Path) -> Vec<PathBuf> {
    let of = |part: &PathBuf| Path::new("/dev").join(file_name(part));
    partitions(folder).iter().map(of).collect()
}

/// The first of udev's names by the drive's model and serial number, or the kernel's name.
fn lasting_path(root: &Path, name: &str) -> PathBuf {
    let links = fs::read_dir(root.join("dev/disk/by-id"));
    let links = links.into_iter().flatten().flatten();
    let is_of_it = |link: &PathBuf| {
        let target = fs::read_link(link).unwrap_or_default();
        let says_nothing = |prefix: &str| file_name(link).starts_with(prefix);
        file_name(&target) == name && !NUMBERS.iter().any(|prefix| says_nothing(prefix))
    };
    let found = links.map(|link| link.path()).filter(is_of_it).min();
    let found = found.map(|link| Path::new("/dev/disk/by-id").join(file_name(&link)));
    found.unwrap_or_else(|| Path::new("/dev").join(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Host;
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn drives_are_listed_by_lasting_names_without_virtual_and_optical_devices() {
        let host = Host::new();
        let root = host.root();
        for (name, number, has_hardware, sectors) in [
            ("sda", "8:0", true, "2048"),
            ("sdb", "8:16", true, "4096"),
            ("sdc", "8:32", true, "0"),
            ("sr0", "11:0", true, "2048"),
            ("loop0", "7:0", false, "2048"),
        ] {
            host.device(
                &format!("x/block/{name}"),
                number,
                &[("size", sectors), ("ro", "0")],
            );
            if has_hardware {
                host.write(&format!("sys/devices/x/block/{name}/device/model"), "M\n");
            }
            let listed = root.join("sys/block");
            fs::create_dir_all(&listed).unwrap();
            let folder = root.join(format!("sys/devices/x/block/{name}"));
            symlink(folder, listed.join(name)).unwrap();
        }
        host.write("sys/devices/x/block/sdb/sdb1/partition", "1\n");
        host.write("sys/devices/x/block/sdb/ro", "1\n");
        let by_id = root.join("dev/disk/by-id");
        fs::create_dir_all(&by_id).unwrap();
        for (link, to) in [
            ("wwn-0x5000", "sdb"),
            ("ata-M_Z1", "sdb"),
            ("ata-M_Z1-part1", "sdb1"),
            ("wwn-0x5001", "sda"),
        ] {
            symlink(format!("../../{to}"), by_id.join(link)).unwrap();
        }
        let drives = Drive::all_below(root).unwrap();
        let [sda, sdb] = &drives[..] else {
            panic!("{drives:?}");
        };
        assert_eq!(sda.path, Path::new("/dev/sda"));
        assert_eq!(sdb.path, Path::new("/dev/disk/by-id/ata-M_Z1"));
        assert_eq!((sda.is_read_only, sdb.is_read_only), (false, true));
        assert_eq!(
            (sdb.identity.model.as_str(), sdb.identity.sectors),
            ("M", Some(4096))
        );
        assert_eq!(sdb.partitions, [Path::new("/dev/sdb1")]);
    }
}
