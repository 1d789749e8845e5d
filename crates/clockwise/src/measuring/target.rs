//! The drive to measure: its identity, the conditions of its use, and the way it is opened.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::PlantSpec;
use engine::buffer::Memory;
use engine::disk::Disk;
use engine::uring::{Access, UringDisk};
use measure::facts::{Facts, TURNAROUND};
use sched::units::{SECTOR_BYTES, Sector, SectorCount};

use super::content;
use super::driver::{PLACES, REQUEST_SECTORS_MAX};
use crate::device::{Identity, NodeKind, Zoned};
use crate::failure::{Failure, FailureDraft, host_help};
use crate::quantity::Size;

/// The way to list devices.
const DEVICES_HINT: &str = "`lsblk -o PATH,MODEL,SERIAL` and `ls -l /dev/disk/by-id` list devices";

/// Bytes of a page: a file is written in these.
const PAGE_BYTES: u64 = 4096;

/// The permitted use of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Write anywhere.
    Write,
    /// Read, while no one else uses the drive.
    Read,
    /// Read beside other users.
    ReadShared,
    /// Read, and write what is lent, by way of the server whose pool it is part of.
    Online,
}

/// A drive that may be measured.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path as it was given.
    pub path: PathBuf,
    /// The kernel's description of it.
    pub identity: Identity,
    /// The permitted use.
    pub how: Use,
    /// The model of an emulated drive.
    plant: Option<PlantSpec>,
    /// True for an emulated drive that a server has open. Its model is not known here.
    is_emulated_by_server: bool,
    /// The part of a file that was never written, in percent.
    holes_percent: u64,
}

impl Target {
    /// The drive at `path`, checked. With a plant it is the file of an emulated drive.
    ///
    /// # Errors
    /// When nothing is there, it is part of a drive, in use, or may not be written.
    pub fn of(path: &Path, plant: Option<PlantSpec>, how: Use) -> Result<Self, Failure> {
        let identity = Identity::of(path).map_err(|error| unusable(path, &error))?;
        let target = Self {
            path: path.to_owned(),
            holes_percent: holes_percent(path, &identity, plant.is_some()),
            identity,
            how,
            plant,
            is_emulated_by_server: false,
        };
        target.check()?;
        Ok(target)
    }

    /// The drive at `path`, which is part of the pool of a running server.
    ///
    /// # Errors
    /// When nothing is there, or it is part of a drive.
    pub fn online(path: &Path, is_emulated: bool) -> Result<Self, Failure> {
        let identity = Identity::of(path).map_err(|error| unusable(path, &error))?;
        let target = Self {
            path: path.to_owned(),
            holes_percent: holes_percent(path, &identity, is_emulated),
            identity,
            how: Use::Online,
            plant: None,
            is_emulated_by_server: is_emulated,
        };
        target.check()?;
        Ok(target)
    }

    fn check(&self) -> Result<(), Failure> {
        let identity = &self.identity;
        if let NodeKind::Partition { start_sector } = identity.kind {
            return Err(self
                .bad(format!(
                    "it is a partition of /dev/{}, from sector {start_sector} on; the times of a part do not show the geometry of the drive",
                    identity.name
                ))
                .help(format!(
                    "measure the whole device (`clockwise disk measure /dev/{}`), and give the whole device to the pool: on a partition of a drive with platters its profile is an estimate",
                    identity.name
                )));
        }
        let is_shared = matches!(self.how, Use::ReadShared | Use::Online);
        if !identity.users.is_empty() && !is_shared {
            return Err(self
                .bad(format!("it is in use: {}", identity.users.join("; ")))
                .help("end that use, or measure with `--read-only`, which writes nothing and takes longer times while others use the drive"));
        }
        if identity.zoned == Some(Zoned::HostManaged) && self.how == Use::Write {
            return Err(self
                .bad("it refuses writes out of order (a host-managed zoned drive), so writes at random places cannot be measured, and no pool can be made on it")
                .help("measure its reads, without `--write`"));
        }
        let is_device = identity.kind == NodeKind::Whole;
        if self.plant.is_some() && is_device {
            return Err(self
                .bad("it is a block device, and `--plant` is for the file of an emulated drive")
                .help("leave `--plant` out"));
        }
        Ok(())
    }

    fn bad(&self, what: impl std::fmt::Display) -> FailureDraft {
        Failure::bad_input(format!("{}: {what}", self.path.display()))
    }

    /// The kernel's name of a device, or the name of a file.
    #[must_use]
    pub fn name(&self) -> String {
        if !self.identity.name.is_empty() {
            return self.identity.name.clone();
        }
        self.last_part()
    }

    /// The last part of the path that was given.
    fn last_part(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// The names that a person may type for it.
    #[must_use]
    pub fn names(&self) -> String {
        let (name, last) = (self.name(), self.last_part());
        if name == last {
            name
        } else {
            format!("{name} or {last}")
        }
    }

    /// Its path, model, serial number and size, for the person who decides about its data.
    #[must_use]
    pub fn described(&self) -> String {
        let serial = match &self.identity.serial {
            Some(serial) if self.is_device() => format!(", serial number {serial}"),
            _ => String::new(),
        };
        let bytes = SectorCount(self.identity.sectors.unwrap_or(0)).bytes();
        format!(
            "{} ({}{serial}, {})",
            self.path.display(),
            self.model(),
            Size(bytes)
        )
    }

    /// Its content, as far as a signature tells.
    #[must_use]
    pub fn content(&self) -> Option<&'static str> {
        content::known(&self.path)
    }

    /// The part of a file that was never written, in percent; 0 for a device and an emulated drive.
    #[must_use]
    pub fn holes_percent(&self) -> u64 {
        self.holes_percent
    }

    /// True if a person who wrote this means this drive.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        name == self.name() || Path::new(name) == self.path || name == self.last_part()
    }

    /// The model, for people and for the profile; never empty.
    #[must_use]
    pub fn model(&self) -> String {
        if let Some(plant) = &self.plant {
            return format!("{} (emulated)", plant.name());
        }
        if self.is_emulated_by_server {
            return "emulated drive".to_owned();
        }
        match self.identity.model.trim() {
            "" => self.name(),
            model => model.to_owned(),
        }
    }

    /// True for a block device.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.identity.kind == NodeKind::Whole
    }

    /// True for an emulated drive.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.plant.is_some() || self.is_emulated_by_server
    }

    /// True if it may turn.
    #[must_use]
    pub fn may_rotate(&self) -> bool {
        self.is_emulated() || (self.is_device() && self.identity.rotational != Some(false))
    }

    /// Opens it.
    ///
    /// # Errors
    /// When it cannot be opened, or another program uses it.
    pub fn open(&self, memory: &Memory) -> Result<Box<dyn Disk>, Failure> {
        let failed = |error: io::Error| unusable(&self.path, &error);
        if let Some(plant) = &self.plant {
            let options = DriveOptions::default();
            let drive = EmulatedDrive::open(&self.path, plant.clone(), &options).map_err(failed)?;
            return Ok(Box::new(drive));
        }
        let access = match self.how {
            Use::Write => Access::Exclusive,
            Use::Read => Access::ExclusiveReads,
            // A server has the drive: others may only read it.
            Use::ReadShared | Use::Online => Access::SharedReads,
        };
        let disk = UringDisk::open_for(&self.path, memory, PLACES, None, access).map_err(failed)?;
        Ok(Box::new(disk))
    }

    /// The physical sector of a device, as the kernel reports it.
    #[must_use]
    pub fn physical_of_device(&self) -> Option<SectorCount> {
        let bytes = self
            .identity
            .physical_block_bytes
            .filter(|_| self.is_device());
        bytes.map(|bytes| SectorCount((bytes / SECTOR_BYTES).max(1)))
    }

    /// The facts that a measurement has to know.
    #[must_use]
    pub fn facts(&self, disk: &dyn Disk) -> Facts {
        let sectors = |bytes: u64| SectorCount((bytes / SECTOR_BYTES).max(1));
        let unit = sectors(u64::from(disk.block_bytes()));
        let physical = match &self.plant {
            Some(plant) => SectorCount(plant.physical_sectors()),
            None if self.is_device() => {
                sectors(self.identity.physical_block_bytes.unwrap_or(SECTOR_BYTES))
            }
            None => sectors(PAGE_BYTES),
        };
        let capacity = SectorCount(disk.capacity().get() / unit.get() * unit.get());
        let writable = match self.how {
            Use::Write => vec![Sector(0)..Sector(capacity.get())],
            Use::Read | Use::ReadShared | Use::Online => Vec::new(),
        };
        Facts {
            name: self.model(),
            capacity,
            unit,
            physical: physical.max(unit),
            request_max: REQUEST_SECTORS_MAX,
            writable,
            is_file: !self.is_device() && !self.is_emulated(),
            is_device: self.is_device(),
            turnaround: TURNAROUND,
        }
    }
}

fn holes_percent(path: &Path, identity: &Identity, is_emulated: bool) -> u64 {
    if identity.kind == NodeKind::File && !is_emulated {
        content::holes_percent(path)
    } else {
        0
    }
}

/// The failure to use what is at `path`.
fn unusable(path: &Path, error: &io::Error) -> Failure {
    let at = path.display();
    let draft = |what: &str| Failure::bad_input(format!("{at}: {what}"));
    match error.kind() {
        ErrorKind::NotFound => draft("it does not exist").help(format!(
            "check {}the path; {DEVICES_HINT}",
            if path.starts_with("/dev") { "the cable and " } else { "" }
        )),
        ErrorKind::ResourceBusy | ErrorKind::WouldBlock => draft(
            "it is in use: a server has it open, it is mounted, it is part of another device, or it is being measured",
        )
        .help("end that use, or measure with `--read-only`; a disk of a running server is measured with `--online`; `lsblk` shows how a device is used"),
        ErrorKind::InvalidData => draft(&error.to_string())
            .help("give the `--plant` that the file was made with, or leave it out to measure the file itself"),
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::ExecutableFileBusy => draft(&error.to_string()).help(host_help(error)),
        _ => draft(&error.to_string())
            .help(format!("give a whole block device, or a file; {DEVICES_HINT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with another identity.
    fn target(how: Use, change: impl FnOnce(&mut Identity)) -> Target {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut identity = Identity::of(file.path()).unwrap();
        identity.kind = NodeKind::Whole;
        identity.name = "sdq".to_owned();
        change(&mut identity);
        Target {
            path: PathBuf::from("/dev/disk/by-id/ata-X"),
            identity,
            how,
            plant: None,
            is_emulated_by_server: false,
            holes_percent: 0,
        }
    }

    #[test]
    fn partition_is_refused_with_the_name_of_its_device() {
        for how in [Use::Write, Use::Read, Use::ReadShared] {
            let partition = target(how, |identity| {
                identity.kind = NodeKind::Partition { start_sector: 2048 };
            });
            let failure = partition.check().unwrap_err();
            assert!(
                failure.what.contains("a partition of /dev/sdq"),
                "{failure:?}"
            );
            assert!(
                failure.help.contains("disk measure /dev/sdq"),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn used_drive_is_measured_by_reads_beside_its_users_alone() {
        let used = |how| {
            target(how, |identity| {
                identity.users = vec!["sdq1 is mounted at /srv".to_owned()];
            })
        };
        for how in [Use::Write, Use::Read] {
            let failure = used(how).check().unwrap_err();
            assert!(failure.what.contains("mounted at /srv"), "{failure:?}");
        }
        assert_eq!(used(Use::ReadShared).check(), Ok(()));
    }

    #[test]
    fn writes_to_a_host_managed_drive_are_refused() {
        let zoned = |how| {
            target(how, |identity| {
                identity.zoned = Some(Zoned::HostManaged);
            })
        };
        assert!(zoned(Use::Write).check().is_err());
        assert_eq!(zoned(Use::Read).check(), Ok(()));
    }

    #[test]
    fn drive_is_called_by_its_name_or_its_path() {
        let drive = target(Use::Read, |_| {});
        assert!(drive.is_called("sdq") && drive.is_called("ata-X"));
        assert!(drive.is_called("/dev/disk/by-id/ata-X"));
        assert_eq!(drive.names(), "sdq or ata-X");
        assert!(!drive.is_called("sdr") && !drive.is_called(""));
    }
}
