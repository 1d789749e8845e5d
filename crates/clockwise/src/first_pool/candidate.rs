//! Drives that a pool could have, and what is on them.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};
use sched::units::{Bytes, SectorCount};
use serde::Serialize;

use crate::device::{Drive, NodeKind, Zoned};
use crate::failure::{Failure, host_failure, io_failure};
use crate::measuring::content;
use crate::quantity::Size;

/// A drive, or another block device that a person names.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The kernel's name.
    pub name: String,
    /// A path that lasts.
    pub path: PathBuf,
    /// Its model; empty if it reports none.
    pub model: String,
    /// Its serial number, or another identity.
    pub serial: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// True for a drive with platters.
    pub is_rotating: Option<bool>,
    /// Its contents, as far as signatures tell.
    contents: Vec<String>,
    /// The reason why a pool cannot have it.
    pub obstacle: Option<String>,
    #[serde(skip)]
    kind: NodeKind,
}

impl Candidate {
    /// The drives with these names or paths; all drives of this host if there are none.
    ///
    /// # Errors
    /// When one is not there, or is named twice.
    pub fn of(names: &[String]) -> Result<Vec<Self>, Failure> {
        let all = Drive::all().map_err(|error| host_failure("list the drives", &error))?;
        let all: Vec<Self> = all.into_iter().map(Self::new).collect();
        if names.is_empty() {
            return Ok(all);
        }
        let one = |name: &String| match name.contains('/') {
            true => Self::at(Path::new(name)),
            false => find(&all, name).cloned(),
        };
        let found: Vec<Self> = names.iter().map(one).collect::<Result<_, _>>()?;
        check_distinct(&found)?;
        Ok(found)
    }

    fn at(path: &Path) -> Result<Self, Failure> {
        let drive = Drive::at(path).map_err(|error| Failure {
            kind: crate::failure::FailureKind::BadInput,
            ..io_failure("find a disk at", path, &error)
        })?;
        if drive.identity.kind == NodeKind::File {
            return Err(Failure::bad_input(format!("{} is no block device", path.display())).help(
                "give a block device, which `clockwise init --list` shows; `--file SIZE` has a disk in a file",
            ));
        }
        Ok(Self::new(drive))
    }

    fn new(drive: Drive) -> Self {
        let obstacle = obstacle(&drive);
        let contents = contents(&drive);
        let kernels = std::fs::canonicalize(&drive.path);
        let kernels = kernels.as_deref().unwrap_or(&drive.path).file_name();
        let identity = drive.identity;
        Self {
            name: kernels.unwrap_or_default().to_string_lossy().into_owned(),
            path: drive.path,
            model: identity.model,
            serial: identity.serial,
            size_bytes: SectorCount(identity.sectors.unwrap_or(0)).bytes().get(),
            is_rotating: identity.rotational,
            contents,
            obstacle,
            kind: identity.kind,
        }
    }

    /// True for a whole device, false for a partition.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.kind == NodeKind::Whole
    }

    /// True if a person who wrote this means this drive.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        let last = self.path.file_name().unwrap_or_default();
        name == self.name || Path::new(name) == self.path || last == name
    }

    /// Its path, model, serial number and size, for the person who decides about its data.
    #[must_use]
    pub fn described(&self) -> String {
        let mut text = format!("{} ({}", self.path.display(), Size(Bytes(self.size_bytes)));
        for part in [Some(&self.model), self.serial.as_ref()]
            .into_iter()
            .flatten()
        {
            if !part.is_empty() {
                text = format!("{text}, {part}");
            }
        }
        text + ")"
    }

    /// Its content in a few words.
    #[must_use]
    pub fn contents_text(&self) -> String {
        match self.contents.is_empty() {
            true => "nothing that is known".to_owned(),
            false => self.contents.join("; "),
        }
    }

    /// Makes sure that a pool can have it.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.obstacle {
            None => Ok(()),
            Some(obstacle) => Err(Failure::bad_input(format!(
                "{} cannot be a disk of the pool: {obstacle}",
                self.path.display()
            ))
            .help("take another disk, or end that; `clockwise init --list` shows the drives")),
        }
    }
}

fn obstacle(drive: &Drive) -> Option<String> {
    let identity = &drive.identity;
    if !identity.users.is_empty() {
        return Some(format!("in use: {}", identity.users.join("; ")));
    }
    if drive.is_read_only {
        return Some("read only".to_owned());
    }
    if identity.zoned == Some(Zoned::HostManaged) {
        return Some("writes only in order (host-managed zones)".to_owned());
    }
    if let Err(denied) = rustix::fs::access(&drive.path, Access::READ_OK | Access::WRITE_OK) {
        return Some(format!("not for this user: {denied}"));
    }
    // The kernel knows of users that are not listed, such as mounts in other namespaces.
    let exclusive = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(&drive.path, exclusive, Mode::empty()) {
        Err(rustix::io::Errno::BUSY) => Some("in use".to_owned()),
        _ => None,
    }
}

fn contents(drive: &Drive) -> Vec<String> {
    let whole = content::known(&drive.path).map(str::to_owned);
    let parts = drive.partitions.iter().filter_map(|part| {
        let name = part.file_name()?.to_string_lossy();
        Some(format!("{name}: {}", content::known(part)?))
    });
    whole.into_iter().chain(parts).collect()
}

/// The drive with this name, path, or last part of its path.
fn find<'a>(drives: &'a [Candidate], name: &str) -> Result<&'a Candidate, Failure> {
    let mut found = drives.iter().filter(|drive| drive.is_called(name));
    found.next().ok_or_else(|| {
        let names: Vec<&str> = drives.iter().map(|drive| drive.name.as_str()).collect();
        let names = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        Failure::bad_input(format!(
            "there is no drive {name:?}; the drives are: {names}"
        ))
        .help("`clockwise init --list` shows them; another block device is given by its path")
    })
}

/// Makes sure that no drive is named twice.
fn check_distinct(drives: &[Candidate]) -> Result<(), Failure> {
    for (index, drive) in drives.iter().enumerate() {
        if drives[..index].iter().any(|other| other.name == drive.name) {
            return Err(Failure::bad_input(format!("{} is named twice", drive.name))
                .help("name each disk once"));
        }
    }
    Ok(())
}
