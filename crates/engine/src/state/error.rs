//! Errors of pool operations, with remedies.

use sched::units::Bytes;
use volume::VolumeError;

use crate::state::request::IoFailure;

/// Remedy for an invalid extent size.
const EXTENT_REMEDY: &str =
    "give a size such as 1 MiB or 64 MiB, or none: the pool then chooses one that suits the drives";

/// A pool operation failed. Nothing has changed unless the variant says so.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No disks were given.
    #[error("a pool needs at least one disk")]
    NoDisks,
    /// The disks do not form a pool: missing, foreign, stale, duplicate, damaged, or of a newer version.
    #[error("{reason}")]
    Disk {
        /// The disk's name as given; empty if several are concerned.
        disk: String,
        /// The disks, and the fault of each.
        reason: String,
        /// The remedy.
        remedy: String,
    },
    /// A disk for a new pool belongs to a pool already.
    #[error("{disk}: belongs to a pool already; its data would be lost")]
    Taken {
        /// The disk, by the name it was given with.
        disk: String,
    },
    /// A disk for a new pool is not empty.
    #[error("{disk}: it has {what} at offset {at}, which would be lost")]
    Occupied {
        /// The disk, by the name it was given with.
        disk: String,
        /// Kind of content, as far as it was recognised.
        what: &'static str,
        /// Offset of the first non-zero byte found in the places of file system and partition signatures.
        at: Bytes,
    },
    /// These disks cannot form a pool of that extent size.
    #[error("{reason}")]
    Unsuited {
        /// The reason.
        reason: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Disks of the pool are missing.
    #[error("pool {pool:?} is incomplete: {missing}")]
    Missing {
        /// The pool's name.
        pool: String,
        /// Which disks, by number and id.
        missing: String,
        /// The remedy.
        remedy: String,
    },
    /// The pool's metadata is unreadable or inconsistent.
    #[error("the pool's metadata: {0}")]
    Metadata(String),
    /// There is no such volume.
    #[error("there is no volume {0:?}")]
    NoSuchVolume(String),
    /// The name is taken.
    #[error("volume {0:?} exists already")]
    VolumeExists(String),
    /// Not a valid name.
    #[error("{name:?} is not a valid volume name: {reason}")]
    BadName {
        /// The name as given.
        name: String,
        /// The rule that it violates.
        reason: String,
    },
    /// Not a valid size for the operation.
    #[error("{what}: {reason}")]
    BadSize {
        /// Which size.
        what: &'static str,
        /// The reason.
        reason: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Not a valid placement in this pool.
    #[error("placement: {0}")]
    BadPlacement(String),
    /// Not enough space where the placement allows extents.
    #[error("{needed} extents ({}) are needed and {free} ({}) are free {place}", size(*.needed, *.extent), size(*.free, *.extent))]
    NoSpace {
        /// Extents needed.
        needed: u64,
        /// Extents free where the placement allows.
        free: u64,
        /// Where: in the pool, or on which disks (by number) and in which runs.
        place: String,
        /// The size of an extent.
        extent: Bytes,
    },
    /// The volume is in use.
    #[error("volume {volume:?} is in use by {}", .users.join(", "))]
    InUse {
        /// The volume.
        volume: String,
        /// Names of its users.
        users: Vec<String>,
    },
    /// An affected part of the volume is being moved.
    #[error("extent {extent} of the volume is being moved")]
    BeingMoved {
        /// Index of the extent within the volume.
        extent: u32,
    },
    /// A reservation forbids it.
    #[error("stream {stream:?} reserves that part of volume {volume:?}: {reason}")]
    Reserved {
        /// The volume.
        volume: String,
        /// The stream.
        stream: String,
        /// The rule that the reservation imposes.
        reason: String,
    },
    /// The volume accepts no more changes after a failure.
    #[error("volume {volume:?} takes no more writes until the pool is opened again: {reason}")]
    Poisoned {
        /// The volume.
        volume: String,
        /// The failure.
        reason: String,
    },
    /// The metadata could not be made durable. After a restart the requested change may or may not be in
    /// effect. Nothing more is changed until the pool is reopened.
    #[error("the pool's metadata cannot be changed any more: {0}")]
    MetadataFailed(String),
    /// Another server has opened the disks; this server writes nothing more to them.
    #[error("{0}; this server has stopped writing to the pool's disks")]
    TakenOver(String),
    /// A disk does not accept metadata writes at the moment.
    #[error("the pool's metadata is frozen, because it could not be written: {reason}; {}", pending(*.is_pending))]
    MetadataFrozen {
        /// The failure.
        reason: String,
        /// True if the change takes effect once the disk accepts the write; otherwise nothing was changed.
        is_pending: bool,
    },
    /// A disk failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// The host refused a resource that the pool needs.
    #[error("{what}: {error}")]
    Host {
        /// The resource.
        what: &'static str,
        /// The host's error.
        error: std::io::Error,
    },
    /// The progress callback stopped the operation.
    #[error("the move was stopped")]
    Stopped,
    /// Not the name of a scheduler.
    #[error("unknown scheduler {0:?}; use exact, delta-l, delta-l-published, lst or edf")]
    NoSuchScheduler(String),
    /// The pool is closed.
    #[error("the pool is closed")]
    Closed,
}

fn pending(is_pending: bool) -> &'static str {
    if is_pending {
        "the change is made as soon as the disk accepts it, unless the server ends before"
    } else {
        "nothing was changed"
    }
}

fn size(extents: u64, extent: Bytes) -> Bytes {
    Bytes(extents.saturating_mul(extent.0))
}

impl PoolError {
    /// Turns frozen metadata into a failure: a pool that cannot start is not retried.
    pub(crate) fn of_start(self) -> Self {
        match self {
            Self::MetadataFrozen { reason, .. } => Self::MetadataFailed(reason),
            other => other,
        }
    }

    /// Translates an error of a planned change. `extent_bytes` is the pool's extent size.
    pub(crate) fn from_plan(error: VolumeError, extent_bytes: Bytes) -> Self {
        let extents = |bytes: Bytes| bytes.0 / extent_bytes.0.max(1);
        let text = error.to_string();
        match error {
            VolumeError::NameTaken(name) => Self::VolumeExists(name),
            VolumeError::BadName { name, reason } => Self::BadName {
                name,
                reason: reason.to_owned(),
            },
            VolumeError::NoSpace { asked, free, .. } => Self::NoSpace {
                needed: asked.0.div_ceil(extent_bytes.0.max(1)),
                free: extents(free),
                place: "in the pool".to_owned(),
                extent: extent_bytes,
            },
            VolumeError::NoRoomThere {
                wanted,
                missing,
                place,
            } => Self::NoSpace {
                needed: u64::from(wanted),
                free: u64::from(wanted.saturating_sub(missing)),
                place,
                extent: extent_bytes,
            },
            VolumeError::BeingMoved { extent } => Self::BeingMoved { extent },
            VolumeError::SizeZero | VolumeError::SizeOverflows(_) => Self::BadSize {
                what: "the volume's size",
                reason: text,
                remedy: "ask for at least one byte and no more than the pool has free",
            },
            VolumeError::WrongDirection { .. } => Self::BadSize {
                what: "the volume's size",
                reason: text,
                remedy: "grow it to a larger size, or shrink it to a smaller one",
            },
            VolumeError::TooManyExtents { .. } => Self::BadSize {
                what: "the volume's size",
                reason: text,
                remedy: "ask for less, or make a pool of larger extents",
            },
            VolumeError::BadExtentSize(_) => Self::BadSize {
                what: "the extent size",
                reason: text,
                remedy: EXTENT_REMEDY,
            },
            VolumeError::TooManyVolumes(_) => Self::BadSize {
                what: "the number of volumes",
                reason: text,
                remedy: "delete a volume that is not needed any more",
            },
            VolumeError::BadPlacement(_)
            | VolumeError::NoSuchDisk(_)
            | VolumeError::NoSuchPlace(_)
            | VolumeError::NoSuchExtent { .. } => Self::BadPlacement(text),
            VolumeError::BadDiskCount { .. } => Self::Unsuited {
                reason: text,
                remedy: "name fewer disks, and make another pool of the other disks",
            },
            VolumeError::PoolTooSmall { .. } | VolumeError::DiskTooSmall { .. } => Self::Unsuited {
                reason: text,
                remedy: "use smaller extents, such as `--extent 1MiB` (the minimum is 64KiB), or larger disks",
            },
            VolumeError::DiskTooLarge { .. } => Self::Unsuited {
                reason: text,
                remedy: "use larger extents",
            },
            VolumeError::Poisoned => Self::MetadataFailed(text),
            _ => Self::Metadata(text),
        }
    }
}

/// The host refused `what`.
pub(crate) fn host(what: &'static str, error: std::io::Error) -> PoolError {
    PoolError::Host { what, error }
}

/// `stream` reserves that part of `volume`.
pub(crate) fn reserved(volume: &str, stream: String, reason: &str) -> PoolError {
    PoolError::Reserved {
        volume: volume.to_owned(),
        stream,
        reason: reason.to_owned(),
    }
}
