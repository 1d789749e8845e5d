//! The configuration file, `clockwise.toml`.
//!
//! What a key means is said in `docs/reference/config.md` and in [`EXAMPLE`], which is a complete
//! file. Every error names the file, the line, what is wrong and what would be right; unknown keys
//! are errors, because a misspelt key that is silently ignored is worse than no server.

mod patience;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::disk::Durability;
use engine::pool::{Floor, OpenOptions};
use sched::profile::{DriveProfile, ProfileError};
use sched::units::{Bytes, Nanos};
use serde::Deserialize;
use sim::plant::PlantSpec;
use sim::plant::spec::BUILT_IN;
use toml::Spanned;

use crate::failure::{Failure, Place, SourceFile};
use crate::quantity;

/// A complete configuration with every key, as `clockwise serve --print-example` prints it.
pub const EXAMPLE: &str = include_str!("../../../docs/guide/clockwise.toml");

/// Where the configuration is when nothing else is said.
pub const DEFAULT_PATH: &str = "clockwise.toml";

/// Memory for buffers when nothing else is said.
pub const MEMORY_DEFAULT: Bytes = Bytes::from_mib(256);

/// The names of the schedulers.
pub const SCHEDULERS: [&str; 5] = ["exact", "delta-l", "delta-l-published", "lst", "edf"];

/// What sort of thing a disk of the configuration is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// A block device.
    Block,
    /// A file on a file system of the host.
    File,
    /// A simulated drive, with its data in a sparse file.
    Emulated,
}

/// The engine's word for how writes become durable, as a key of a file.
#[derive(Deserialize)]
#[serde(remote = "Durability", rename_all = "kebab-case")]
enum DurabilityKey {
    WriteThrough,
    Fua,
    Host,
}

fn durability<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Durability>, D::Error> {
    DurabilityKey::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Server,
    #[serde(default)]
    nbd: Nbd,
    #[serde(default)]
    pool: PoolSection,
    #[serde(default)]
    memory: Memory,
    #[serde(default)]
    scheduler: Scheduler,
    #[serde(default)]
    patience: patience::Section,
    #[serde(default)]
    disk: Vec<Spanned<DiskSection>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Server {
    api: PathBuf,
    data: Option<PathBuf>,
    permissions: Spanned<String>,
    realtime: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            api: PathBuf::from("/run/clockwise/api.sock"),
            data: None,
            permissions: Spanned::new(0..0, "0660".to_owned()),
            realtime: true,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Nbd {
    unix: Option<PathBuf>,
    tcp: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PoolSection {
    name: Option<String>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    extent: Option<Bytes>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Memory {
    #[serde(default, deserialize_with = "quantity::optional_text")]
    total: Option<Bytes>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Scheduler {
    policy: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    floor: Option<f64>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    floor_slice: Option<Nanos>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    floor_period: Option<Nanos>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskSection {
    path: Spanned<PathBuf>,
    kind: DiskKind,
    profile: Option<Spanned<String>>,
    outstanding: Option<Spanned<u32>>,
    #[serde(default, deserialize_with = "durability")]
    durability: Option<Durability>,
    plant: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    size: Option<Bytes>,
}

/// A disk of the configuration.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The device, or the file with its data.
    pub path: PathBuf,
    /// What it is.
    pub kind: DiskKind,
    /// Its profile, if the configuration names one.
    pub profile: Option<Arc<DriveProfile>>,
    /// Requests it is given at a time, if the configuration says so.
    pub outstanding: Option<u32>,
    /// How its writes must become durable, if the configuration says so; another way is an error.
    pub durability: Option<Durability>,
    /// For an emulated drive: the mechanical model.
    pub plant: Option<PlantSpec>,
    /// For a file that is to be made: its size.
    pub size: Option<Bytes>,
    /// Where the configuration names it.
    pub place: Place,
}

/// A configuration that makes sense.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket of the control API.
    pub api: PathBuf,
    /// The socket where streams connect for their data.
    pub data: PathBuf,
    /// The permissions of all sockets.
    pub permissions: u32,
    /// The unix socket of the block export, if there is to be one.
    pub nbd_unix: Option<PathBuf>,
    /// The TCP address of the block export, if there is to be one.
    pub nbd_tcp: Option<std::net::SocketAddr>,
    /// The extent size, for `pool create`.
    pub extent: Option<Bytes>,
    /// Memory for buffers, in all.
    pub memory: Bytes,
    /// How to open the pool.
    pub open: OpenOptions,
    /// The pool's disks, in order.
    pub disks: Vec<DiskConfig>,
}

impl Config {
    /// Reads and checks a configuration. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The first thing that is wrong, with the place.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let source = SourceFile::read(path).map_err(|failure| {
            failure.help("write one with: clockwise serve --print-example > clockwise.toml")
        })?;
        Self::from_source(&source)
    }

    fn from_source(source: &SourceFile<'_>) -> Result<Self, Failure> {
        let file: File = source.parse().map_err(|failure| {
            failure.help("`clockwise serve --print-example` prints a file with every key")
        })?;
        let folder = source.path.parent().unwrap_or(Path::new(""));
        let disks = disks(source, folder, file.disk)?;
        let api = folder.join(&file.server.api);
        Ok(Self {
            data: file
                .server
                .data
                .map_or_else(|| api.with_file_name("data.sock"), |data| folder.join(data)),
            permissions: permissions(source, &file.server.permissions)?,
            nbd_unix: file.nbd.unix.map(|unix| folder.join(unix)),
            nbd_tcp: file
                .nbd
                .tcp
                .as_ref()
                .map(|address| tcp(source, address))
                .transpose()?,
            extent: file.pool.extent,
            memory: file.memory.total.unwrap_or(MEMORY_DEFAULT),
            open: OpenOptions {
                patience: file.patience.checked(source)?,
                ..open_options(
                    source,
                    &file.scheduler,
                    file.pool.name,
                    file.server.realtime,
                )?
            },
            api,
            disks,
        })
    }
}

fn permissions(source: &SourceFile<'_>, text: &Spanned<String>) -> Result<u32, Failure> {
    match u32::from_str_radix(text.get_ref(), 8) {
        Ok(mode @ 0..=0o777) => Ok(mode),
        _ => Err(source
            .wrong(
                text.span(),
                format!("`{}` is not a file's permissions", text.get_ref()),
            )
            .help("write three octal digits as chmod takes them, such as \"0660\"")),
    }
}

/// An address; a port alone is on the loopback address, because there is no access rule on TCP.
fn tcp(source: &SourceFile<'_>, text: &Spanned<String>) -> Result<std::net::SocketAddr, Failure> {
    if let Ok(port) = text.get_ref().parse::<u16>() {
        return Ok((std::net::Ipv4Addr::LOCALHOST, port).into());
    }
    text.get_ref().parse().map_err(|_| {
        source
            .wrong(text.span(), format!("`{}` is not an address and a port", text.get_ref()))
            .help("write a port, such as \"10809\", for this host alone, or an address and a port, such as \"192.0.2.1:10809\" or \"[::1]:10809\"")
    })
}

fn open_options(
    source: &SourceFile<'_>,
    scheduler: &Scheduler,
    name: Option<String>,
    realtime: bool,
) -> Result<OpenOptions, Failure> {
    let defaults = OpenOptions::default();
    if let Some(policy) = &scheduler.policy
        && !SCHEDULERS.contains(&policy.get_ref().as_str())
    {
        return Err(source
            .wrong(
                policy.span(),
                format!("there is no scheduler `{}`", policy.get_ref()),
            )
            .help(format!("the schedulers are {}", SCHEDULERS.join(", "))));
    }
    let floor = match (
        scheduler.floor,
        scheduler.floor_slice,
        scheduler.floor_period,
    ) {
        (None, None, None) => defaults.floor,
        (Some(0.0), None, None) => Floor::None,
        (Some(share), None, None) => Floor::Share {
            permille: (share * 1000.0).round().max(1.0) as u32,
        },
        (None, Some(slice), Some(period)) if slice <= period => Floor::Server { slice, period },
        _ => {
            return Err(source
                .wrong(head_of(source, "scheduler"), "the floor is given by halves, or twice")
                .help("give `floor` as a share, or `floor_slice` and a `floor_period` that is not shorter"));
        }
    };
    Ok(OpenOptions {
        name: name.unwrap_or(defaults.name),
        scheduler: scheduler
            .policy
            .as_ref()
            .map_or(defaults.scheduler, |policy| policy.get_ref().clone()),
        floor,
        realtime,
        ..defaults
    })
}

/// Where a section's head stands.
fn head_of(source: &SourceFile<'_>, name: &str) -> std::ops::Range<usize> {
    let head = format!("[{name}]");
    source
        .text
        .find(&head)
        .map_or(0..0, |at| at..at + head.len())
}

fn disks(
    source: &SourceFile<'_>,
    folder: &Path,
    sections: Vec<Spanned<DiskSection>>,
) -> Result<Vec<DiskConfig>, Failure> {
    if sections.is_empty() {
        return Err(source
            .wrong(0..0, "no disks are named")
            .help("add a [[disk]] with at least `path` and `kind`"));
    }
    let mut seen = HashMap::new();
    let mut disks = Vec::with_capacity(sections.len());
    for section in sections {
        let span = section.get_ref().path.span();
        let disk = disk(source, folder, section)?;
        // Two names of one device are found by what they lead to; one that is missing has no other name.
        let real = std::fs::canonicalize(&disk.path).unwrap_or_else(|_| disk.path.clone());
        if let Some(first) = seen.insert(real, span.start) {
            let line = source.text[..first].matches('\n').count() + 1;
            return Err(source
                .wrong(
                    span,
                    format!(
                        "{} is named twice; the first is in line {line}",
                        disk.path.display()
                    ),
                )
                .help("take one of them out"));
        }
        disks.push(disk);
    }
    Ok(disks)
}

fn disk(
    source: &SourceFile<'_>,
    folder: &Path,
    section: Spanned<DiskSection>,
) -> Result<DiskConfig, Failure> {
    let whole = section.span();
    let section = section.into_inner();
    let emulated = section.kind == DiskKind::Emulated;
    if let (Some(plant), false) = (&section.plant, emulated) {
        return Err(source
            .wrong(plant.span(), "`plant` is for emulated drives")
            .help("write kind = \"emulated\", or take `plant` out"));
    }
    if section.plant.is_none() && emulated {
        return Err(source
            .wrong(
                whole,
                "an emulated drive needs a `plant`, the model it behaves as",
            )
            .help("such as plant = \"hdd-8tb-7200\""));
    }
    if section.size.is_some() && section.kind != DiskKind::File {
        return Err(source
            .wrong(
                whole,
                "`size` is for disks in files; a drive has the size it has",
            )
            .help("take `size` out"));
    }
    if let Some(outstanding) = &section.outstanding
        && !(1..=OUTSTANDING_MAX).contains(outstanding.get_ref())
    {
        return Err(source
            .wrong(
                outstanding.span(),
                format!(
                    "`outstanding` is {}; it must be 1 to {OUTSTANDING_MAX}",
                    outstanding.get_ref()
                ),
            )
            .help("take it out: the profile says how many there were when it was measured"));
    }
    let profile = section
        .profile
        .as_ref()
        .map(|name| profile(source, folder, name))
        .transpose()?;
    let place = Place::new(source.path, &source.text, section.path.span());
    Ok(DiskConfig {
        place,
        path: folder.join(section.path.into_inner()),
        kind: section.kind,
        profile: profile.map(Arc::new),
        outstanding: section.outstanding.map(Spanned::into_inner),
        durability: section.durability,
        plant: section
            .plant
            .as_ref()
            .map(|name| plant(source, folder, name))
            .transpose()?,
        size: section.size,
    })
}

/// More requests at a time than any drive profile was measured with.
const OUTSTANDING_MAX: u32 = 256;

/// A built-in mechanical model by its name, or one in a file of its own.
fn plant(
    source: &SourceFile<'_>,
    folder: &Path,
    name: &Spanned<String>,
) -> Result<PlantSpec, Failure> {
    let text = name.get_ref();
    if !is_file_name(text) {
        return PlantSpec::built_in(text).ok_or_else(|| {
            source
                .wrong(name.span(), format!("no drive model is called `{text}`"))
                .help(format!(
                    "name a built-in one ({}), or a file that ends in .toml",
                    BUILT_IN.join(", ")
                ))
        });
    }
    let path = folder.join(text);
    let file = SourceFile::read(&path)
        .map_err(|failure| source.wrong(name.span(), failure.what).help(failure.help))?;
    PlantSpec::parse(&file.text).map_err(|error| {
        source
            .wrong(name.span(), format!("{}: {error}", path.display()))
            .help("correct that file, or name a built-in model")
    })
}

/// Whether a name means a file, not something that is built in.
fn is_file_name(text: &str) -> bool {
    text.ends_with(".toml") || text.contains('/')
}

/// A shipped profile by its name, or one in a file of its own.
fn profile(
    source: &SourceFile<'_>,
    folder: &Path,
    name: &Spanned<String>,
) -> Result<DriveProfile, Failure> {
    let text = name.get_ref();
    if !is_file_name(text) {
        return DriveProfile::shipped(text).map_err(|error| {
            source
                .wrong(name.span(), error.to_string())
                .help("name a shipped profile, or a file that ends in .toml")
        });
    }
    let path = folder.join(text);
    let file = SourceFile::read(&path)
        .map_err(|failure| source.wrong(name.span(), failure.what).help(failure.help))?;
    DriveProfile::from_toml(&file.text).map_err(|error| {
        match error {
            ProfileError::Toml(error) => {
                file.wrong(error.span().unwrap_or(0..0), error.message().trim_end())
            }
            other => file.wrong(0..0, other.to_string()),
        }
        .help("docs/reference/profile.md describes every key of a profile")
    })
}
