//! Volumes as block devices for other programs: the interface between the export protocols and the pool.
//!
//! | module | contents |
//! |---|---|
//! | [`nbd`] | a network block device server: every volume is an export |
//! | [`fuse`] | a mounted file system: every volume is a file |
//! | `requests` | the part that all protocols share: requests in parts, their memory, order and errors |
//!
//! A protocol handles its connections and their messages. It implements [`Export`], and is listed in [`Exports::start`]
//! and in [`users_of`]. All access to volumes goes through `requests`.

pub mod fuse;
pub mod nbd;
mod requests;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::pool::{Pool, VolumeInfo};

use crate::failure::Failure;

pub use self::requests::volumes::{ExportReservation, Volumes};

/// A running protocol that exports the volumes of a pool. Dropping it ends the protocol at once, without waiting for
/// requests in flight.
pub trait Export: Send {
    /// Its configuration.
    type Config
    where
        Self: Sized;

    /// Starts serving every volume of a pool, also those that are made later.
    ///
    /// # Errors
    /// If an address or a mount point cannot be used, or the process lacks resources.
    fn start(volumes: Arc<Volumes>, config: &Self::Config) -> Result<Self, Failure>
    where
        Self: Sized;

    /// Addresses and counters.
    fn status(&self) -> ExportStatus;

    /// Ends: refuses new clients and requests, and answers requests in flight for at most the time `within`.
    fn end(self: Box<Self>, within: Duration);
}

/// Addresses of a protocol, and its counters since its start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportStatus {
    /// Name of its section of the configuration.
    pub protocol: &'static str,
    /// Paths and addresses for clients.
    pub at: Vec<String>,
    /// Its TCP address with the actual port, if it has one.
    pub tcp: Option<SocketAddr>,
    /// Present clients: connections or open files.
    pub clients: u64,
    /// Requests answered, errors included.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes read from volumes for clients.
    pub read_bytes: u64,
    /// Bytes written to volumes for clients.
    pub written_bytes: u64,
}

/// Configuration of all protocols.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportsConfig {
    /// NBD, if it is enabled.
    pub nbd: Option<nbd::NbdConfig>,
    /// The mount, if it is enabled.
    pub fuse: Option<fuse::FuseConfig>,
    /// Disk time reserved for exports.
    pub reservations: Vec<ExportReservation>,
}

/// The running protocols.
pub struct Exports {
    volumes: Arc<Volumes>,
    running: Mutex<Vec<Box<dyn Export>>>,
}

impl Exports {
    /// Starts the configured protocols.
    ///
    /// # Errors
    /// The failure of the first that cannot start. Those before it have ended again.
    pub fn start(pool: &Arc<Pool>, config: &ExportsConfig) -> Result<Self, Failure> {
        let volumes = Volumes::new(Arc::clone(pool), &config.reservations);
        let mut running = Vec::new();
        add::<nbd::Server>(&mut running, &volumes, config.nbd.as_ref())?;
        add::<fuse::Mount>(&mut running, &volumes, config.fuse.as_ref())?;
        Ok(Self {
            volumes,
            running: Mutex::new(running),
        })
    }

    /// The status of each protocol; empty after the end.
    #[must_use]
    pub fn status(&self) -> Vec<ExportStatus> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().map(|export| export.status()).collect()
    }

    /// Names of the volumes with reserved disk time, in order. A volume of that name need not exist.
    #[must_use]
    pub fn reserved(&self) -> Vec<String> {
        self.volumes.reserved()
    }

    /// Ends all protocols at the same time. See [`Export::end`].
    pub fn end(&self, within: Duration) {
        let running =
            std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        std::thread::scope(|scope| {
            for export in running {
                let thread = std::thread::Builder::new().name("export-end".into());
                // If the host has no thread, the export is dropped, and so ends at once.
                let _ = thread.spawn_scoped(scope, move || export.end(within));
            }
        });
    }
}

fn add<E: Export + 'static>(
    running: &mut Vec<Box<dyn Export>>,
    volumes: &Arc<Volumes>,
    config: Option<&E::Config>,
) -> Result<(), Failure> {
    if let Some(config) = config {
        running.push(Box::new(E::start(Arc::clone(volumes), config)?));
    }
    Ok(())
}

/// Describes the users of a volume through exports, such as "2 NBD clients". Returns `None` if there are none.
pub(crate) fn users_of(volume: &VolumeInfo) -> Option<String> {
    let count = |user: &str| volume.users.iter().filter(|other| *other == user).count();
    let nbd = match count(nbd::USER) {
        0 => None,
        1 => Some("1 NBD client".to_owned()),
        clients => Some(format!("{clients} NBD clients")),
    };
    let fuse = (count(fuse::USER) > 0).then(|| fuse::USER.to_owned());
    let users = nbd.into_iter().chain(fuse);
    users.reduce(|first, next| format!("{first} and {next}"))
}

impl std::fmt::Debug for Exports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exports")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
