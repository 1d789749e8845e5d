//! Volumes as block devices for others: the port between the protocols that export them and the pool.
//!
//! | module | what it is |
//! |---|---|
//! | [`nbd`] | a network block device server: every volume is an export |
//! | [`fuse`] | a mounted file system: every volume is a file |
//! | `requests` | what any of them needs of a volume: requests divided, their memory, order and errors |
//!
//! A protocol has its connections, and what is said on them. It implements [`Export`], and is known to the
//! server by being in [`Exports::start`] and in [`users_of`]. Everything about a volume it leaves to
//! `requests`.

pub mod fuse;
pub mod nbd;
mod requests;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::pool::{Pool, VolumeInfo};

use crate::failure::Failure;

pub use self::requests::volumes::{ExportReservation, Volumes};

/// A protocol that exports the volumes of a pool, while it runs. Dropping it ends it at once, without
/// waiting for requests in flight.
pub trait Export: Send {
    /// What the operator says about it.
    type Config
    where
        Self: Sized;

    /// Starts serving every volume of a pool, those included that are made later.
    ///
    /// # Errors
    /// When it cannot be reached where it is to be.
    fn start(volumes: Arc<Volumes>, config: &Self::Config) -> Result<Self, Failure>
    where
        Self: Sized;

    /// Where it is reached, and what it has done.
    fn status(&self) -> ExportStatus;

    /// Takes no more clients and requests, answers those in flight as far as that is done `within` this
    /// time, and ends.
    fn end(self: Box<Self>, within: Duration);
}

/// Where a protocol is reached, and what it has done since it was started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportStatus {
    /// Its section of the configuration.
    pub protocol: &'static str,
    /// Where it is reached: paths and addresses.
    pub at: Vec<String>,
    /// Its TCP address, if it has one, with the port that was taken.
    pub tcp: Option<SocketAddr>,
    /// Clients that it has now: connections, or files that are open.
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

/// Which protocols there are to be, and what all of them share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportsConfig {
    /// How NBD is served, if it is to be.
    pub nbd: Option<nbd::NbdConfig>,
    /// Where volumes are mounted as files, if they are to be.
    pub fuse: Option<fuse::FuseConfig>,
    /// Disk time reserved for exports.
    pub reservations: Vec<ExportReservation>,
}

/// The protocols that run.
pub struct Exports {
    volumes: Arc<Volumes>,
    running: Mutex<Vec<Box<dyn Export>>>,
}

impl Exports {
    /// Starts those that are configured.
    ///
    /// # Errors
    /// The first that cannot start; those before it have ended again.
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

    /// Each one's state; none once they have ended.
    #[must_use]
    pub fn status(&self) -> Vec<ExportStatus> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().map(|export| export.status()).collect()
    }

    /// The volumes that disk time is reserved for, by name, whether or not there are such.
    #[must_use]
    pub fn reserved(&self) -> Vec<String> {
        self.volumes.reserved()
    }

    /// Ends all of them at the same time, each as [`Export::end`] says.
    pub fn end(&self, within: Duration) {
        let running =
            std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        std::thread::scope(|scope| {
            for export in running {
                let thread = std::thread::Builder::new().name("export-end".into());
                // Where the host has no thread for it, the export is dropped, and so ends at once.
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

/// Who uses a volume through its exports, in words, such as "2 NBD clients"; `None` if nobody does.
pub(crate) fn users_of(volume: &VolumeInfo) -> Option<String> {
    let count = |user: &str| volume.users.iter().filter(|of| *of == user).count();
    let nbd = match count(nbd::USER) {
        0 => None,
        1 => Some("1 NBD client".to_owned()),
        clients => Some(format!("{clients} NBD clients")),
    };
    let fuse = (count(fuse::USER) > 0).then(|| fuse::USER.to_owned());
    let words = nbd.into_iter().chain(fuse);
    words.reduce(|first, next| format!("{first} and {next}"))
}

impl std::fmt::Debug for Exports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exports")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
