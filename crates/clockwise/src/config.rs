//! The configuration file, `clockwise.toml`.
//!
//! `docs/reference/config.md` and [`EXAMPLE`], a complete file, describe the keys. Every error names the
//! file, the line, what is wrong and what would be right. Unknown keys are errors: a misspelt key that is
//! silently ignored would do more harm than a server that does not start.

mod disk;
#[doc(hidden)]
pub mod fuzzing;
mod hook;
mod http;
mod link;
mod metrics;
mod patience;
mod reservation;
mod rtsp;
mod sockets;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use engine::pool::{Floor, OpenOptions};
use sched::policy::Policy;
use sched::units::{Bytes, Nanos};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

pub use self::disk::{DiskConfig, DiskKind};
pub use self::http::{HttpConfig, WebRtcConfig};
pub use self::link::{LinkAdmission, LinkConfig};
use crate::exports::ExportsConfig;
use crate::exports::fuse::FuseConfig;
use crate::exports::nbd::NbdConfig;
use crate::failure::{Failure, SourceFile};
use crate::hooks::HookConfig;
use crate::quantity;
use media::MediaConfig;
use media::camera::sources::SourcesConfig;
use media::rtsp::access::AccessConfig;

/// A complete configuration with every key, as `clockwise serve --print-example` prints it.
pub const EXAMPLE: &str = include_str!("../../../docs/guide/clockwise.toml");

/// The path of the configuration in the working folder, which is the default if it exists.
pub const LOCAL_PATH: &str = "clockwise.toml";

/// The path of the configuration of the host's service, which is the default elsewhere.
pub const SYSTEM_PATH: &str = "/etc/clockwise/clockwise.toml";

/// The default path of the configuration: [`LOCAL_PATH`], or [`SYSTEM_PATH`] if only that exists.
#[must_use]
pub fn default_path() -> &'static Path {
    let local = Path::new(LOCAL_PATH);
    let system = Path::new(SYSTEM_PATH);
    match !local.exists() && system.exists() {
        true => system,
        false => local,
    }
}

/// The default memory for buffers.
pub const MEMORY_DEFAULT: Bytes = Bytes::from_mib(256);

/// The minimum memory for buffers: enough for the pool's own transfers, a move of extents, and a few clients.
pub const MEMORY_MIN: Bytes = Bytes::from_mib(4);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Server,
    #[serde(default)]
    nbd: Nbd,
    #[serde(default)]
    fuse: Fuse,
    #[serde(default)]
    rtsp: rtsp::Section,
    #[serde(default)]
    http: http::Section,
    #[serde(default)]
    access: AccessSection,
    #[serde(default)]
    metrics: metrics::Section,
    #[serde(default)]
    pool: PoolSection,
    #[serde(default)]
    memory: Memory,
    #[serde(default)]
    scheduler: Scheduler,
    #[serde(default)]
    patience: patience::Section,
    #[serde(default)]
    hook: Vec<Spanned<hook::Section>>,
    #[serde(default)]
    disk: Vec<Spanned<disk::Section>>,
    #[serde(default)]
    link: Vec<link::Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Server {
    api: Spanned<PathBuf>,
    data: Option<Spanned<PathBuf>>,
    permissions: Spanned<String>,
    realtime: bool,
    state: Option<PathBuf>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            api: Spanned::new(0..0, PathBuf::from("/run/clockwise/api.sock")),
            data: None,
            permissions: Spanned::new(0..0, "0660".to_owned()),
            realtime: true,
            state: None,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Nbd {
    unix: Option<Spanned<PathBuf>>,
    tcp: Option<Spanned<String>>,
    #[serde(default)]
    reservation: Vec<reservation::Section>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Fuse {
    mount: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct AccessSection {
    accounts: Option<PathBuf>,
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
    #[serde(default, deserialize_with = "memory_total")]
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

/// Parses the memory for buffers, which must be at least [`MEMORY_MIN`].
fn memory_total<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
    let total: Bytes = quantity::text(deserializer)?;
    if total < MEMORY_MIN {
        return Err(D::Error::custom(format_args!(
            "`total` is {total}; the server itself needs at least {MEMORY_MIN}, and each stream needs more"
        )));
    }
    Ok(Some(total))
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket of the control API.
    pub api: PathBuf,
    /// The socket for the data connections of streams.
    pub data: PathBuf,
    /// The folder of statistics that outlive the server.
    pub state: PathBuf,
    /// The permissions of all socket files.
    pub permissions: u32,
    /// The export of volumes as block devices.
    pub exports: ExportsConfig,
    /// The RTSP service, if it is enabled.
    pub rtsp: Option<MediaConfig>,
    /// Access rules for RTSP and HTTP; without them everyone may do everything.
    pub access: Option<AccessConfig>,
    /// Settings for pulling from cameras.
    pub sources: SourcesConfig,
    /// The HTTP service for browsers, if it is enabled.
    pub http: Option<HttpConfig>,
    /// Programs and addresses that get events.
    pub hooks: Vec<HookConfig>,
    /// The address of metrics by TCP, if they are served there.
    pub metrics: Option<SocketAddr>,
    /// The extent size, for `pool create`.
    pub extent: Option<Bytes>,
    /// Total memory for buffers.
    pub memory: Bytes,
    /// Options to open the pool.
    pub open: OpenOptions,
    /// The pool's disks, in order.
    pub disks: Vec<DiskConfig>,
    /// Links that disks share.
    pub links: Vec<LinkConfig>,
    /// The file as it was read, to find what has changed in another one.
    pub(crate) sections: toml::Table,
}

impl Config {
    /// Reads and validates a configuration. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The first error in the file, with its place.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let source = SourceFile::read(path).map_err(|failure| {
            failure.help(if path.exists() {
                "give a configuration file that this user may read"
            } else {
                "`clockwise init` makes one with a pool on this host's disks, and `clockwise serve --print-example > clockwise.toml` one to try"
            })
        })?;
        Self::from_source(&source)
    }

    pub(crate) fn from_source(source: &SourceFile<'_>) -> Result<Self, Failure> {
        let file: File = source.parse().map_err(|failure| {
            failure.help("`clockwise serve --print-example` prints a file with every key")
        })?;
        let sections = source.parse().map_err(|failure| {
            failure.help("`clockwise serve --print-example` prints a file with every key")
        })?;
        let folder = source.path.parent().unwrap_or(Path::new(""));
        let disks = disk::disks(source, folder, file.disk)?;
        let links = link::links(source, folder, file.link, &disks)?;
        let is_exported =
            file.nbd.unix.is_some() || file.nbd.tcp.is_some() || file.fuse.mount.is_some();
        let reservations = reservation::reservations(source, file.nbd.reservation, is_exported)?;
        let sockets = sockets::sockets(
            source,
            folder,
            file.server.api,
            file.server.data,
            file.nbd.unix,
        )?;
        let rtsp::Checked {
            served,
            access,
            pulled,
        } = file.rtsp.checked(source, folder)?;
        let accounts = file.access.accounts.map(|file| folder.join(file));
        let access = match (access, accounts) {
            (None, None) => None,
            (access, accounts) => Some(AccessConfig {
                accounts,
                ..access.unwrap_or_default()
            }),
        };
        let http = file.http.checked(source, folder, served.as_ref())?;
        let fuse = file.fuse.mount.map(|mount| FuseConfig {
            mount: folder.join(mount),
            threads: None,
        });
        let permissions = permissions(source, &file.server.permissions)?;
        let nbd_tcp = file.nbd.tcp.as_ref();
        let nbd_tcp = nbd_tcp.map(|address| tcp(source, address)).transpose()?;
        let is_nbd = sockets.nbd.is_some() || nbd_tcp.is_some();
        let nbd = is_nbd.then(|| NbdConfig {
            unix: sockets.nbd,
            unix_mode: permissions,
            tcp: nbd_tcp,
            ..NbdConfig::default()
        });
        Ok(Self {
            api: sockets.api,
            data: sockets.data,
            state: folder.join(file.server.state.unwrap_or_default()),
            exports: ExportsConfig {
                nbd,
                fuse,
                reservations,
            },
            permissions,
            rtsp: served,
            access,
            sources: pulled,
            http,
            hooks: hook::hooks(source, file.hook)?,
            metrics: file.metrics.checked(source)?,
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
            disks,
            links,
            sections,
        })
    }

    /// Sections that differ between two configurations, without those that a running server can take over.
    #[must_use]
    pub fn changed_for_restart(&self, new: &Self) -> Vec<String> {
        let fixed = |config: &Self| {
            let mut sections = config.sections.clone();
            sections.remove("hook");
            if let Some(rtsp) = sections.get_mut("rtsp").and_then(toml::Value::as_table_mut) {
                for taken_over in ["permit", "rate", "block", "timeout"] {
                    rtsp.remove(taken_over);
                }
                if self.has_users() && new.has_users() {
                    rtsp.remove("users");
                }
            }
            sections
        };
        let (old, new) = (fixed(self), fixed(new));
        let names = old
            .keys()
            .chain(new.keys().filter(|name| !old.contains_key(*name)));
        names
            .filter(|name| old.get(*name) != new.get(*name))
            .cloned()
            .collect()
    }

    /// True if there is a users file.
    pub(crate) fn has_users(&self) -> bool {
        self.access.as_ref().is_some_and(|of| of.users.is_some())
    }
}

fn permissions(source: &SourceFile<'_>, text: &Spanned<String>) -> Result<u32, Failure> {
    match u32::from_str_radix(text.get_ref(), 8) {
        Ok(mode @ 0..=0o777) => Ok(mode),
        _ => Err(source
            .bad_input(
                text.span(),
                format!("`{}` is not a set of file permissions", text.get_ref()),
            )
            .help("write three octal digits as chmod takes them, such as \"0660\"")),
    }
}

/// Parses an address with a port. A port alone is on the loopback address, because TCP has no access rules.
fn tcp(source: &SourceFile<'_>, text: &Spanned<String>) -> Result<SocketAddr, Failure> {
    if let Ok(port) = text.get_ref().parse::<u16>() {
        return Ok((std::net::Ipv4Addr::LOCALHOST, port).into());
    }
    text.get_ref().parse().map_err(|_| {
        source
            .bad_input(text.span(), format!("`{}` is not an address and a port", text.get_ref()))
            .help("write a port, such as \"10809\", to listen on this host only, or an address and a port, such as \"192.0.2.1:10809\" or \"[::1]:10809\"")
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
        && policy.get_ref().parse::<Policy>().is_err()
    {
        return Err(source
            .bad_input(
                policy.span(),
                format!("no scheduler is called `{}`", policy.get_ref()),
            )
            .help(format!(
                "the schedulers are {}",
                Policy::ALL.map(Policy::name).join(", ")
            )));
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
                .bad_input(header_of(source, "scheduler"), "the floor is given incompletely or twice")
                .help("set either `floor`, a share, or both `floor_slice` and a `floor_period` that is not shorter than it"));
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

/// The canonical form of a path. For a path that does not exist, only its folder is resolved.
fn canonical(path: &Path) -> PathBuf {
    let of_folder = || {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    let there = std::fs::canonicalize(path).ok();
    there.or_else(of_folder).unwrap_or_else(|| path.to_owned())
}

/// The place of the header of a section.
fn header_of(source: &SourceFile<'_>, name: &str) -> std::ops::Range<usize> {
    let head = format!("[{name}]");
    source
        .text
        .find(&head)
        .map_or(0..0, |at| at..at + head.len())
}
