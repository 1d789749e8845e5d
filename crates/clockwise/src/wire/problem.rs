//! The problem object of a refused or failed call: what is wrong, where, and what to do.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::pool::{PoolError, TWO_SERVERS_REMEDY};
use engine::stream::{Culprit, CulpritKind, DiskRefusal, Refusal};
use sched::units::{BytesPerSecond, Nanos};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::failure::{Failure, FailureKind, RefusalView};
use crate::quantity::Rate;

/// The media type of errors (RFC 9457).
pub(crate) const PROBLEM_TYPE: &str = "application/problem+json";

/// The rules for names of volumes and streams.
pub(crate) const NAME_HELP: &str =
    "a name has 1 to 255 bytes, no slash, no invisible characters, and not only blanks";

/// A problem after RFC 9457, with members of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The error, in a sentence.
    pub what: String,
    /// The part of the request, or the object that it names.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The remedy.
    pub help: String,
    /// For a refused reservation: its numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<RefusalView>>,
    /// True while the pool is being opened: nothing was done, and the same call works when the pool is open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opening: bool,
}

impl Problem {
    /// A problem with its remedy.
    pub fn new(status: StatusCode, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            status: status.as_u16(),
            what: what.into(),
            place: None,
            help: help.into(),
            refusal: None,
            opening: false,
        }
    }

    /// The answer to every call while the pool is being opened.
    pub(crate) fn opening() -> Self {
        Self {
            opening: true,
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the pool is being opened",
                "repeat the call when the pool is open; the server's log says when that is",
            )
        }
    }

    /// Adds the part of the request, or the object, that is wrong.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// The problem as the failure of a command.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        let is_out_of_memory = self.status == StatusCode::INSUFFICIENT_STORAGE.as_u16();
        let kind = if self.refusal.is_some() || is_out_of_memory {
            FailureKind::Refused
        } else if (400..500).contains(&self.status) && self.status != StatusCode::CONFLICT.as_u16()
        {
            FailureKind::BadInput
        } else {
            FailureKind::Failed
        };
        let what = match &self.place {
            Some(place) => format!("{}: {}", in_options(place), self.what),
            None => self.what,
        };
        Failure {
            kind,
            what,
            place: None,
            help: self.help,
            refusal: self.refusal,
        }
    }
}

/// Members of requests, and the options of the command line for them.
const OPTIONS: [(&str, &str); 8] = [
    ("offset_bytes", "--offset"),
    ("length_bytes", "--length"),
    ("starts_in_ms", "--starts-in"),
    ("ends_in_ms", "--ends-in"),
    ("grow_to_bytes", "--grow-to"),
    ("pool_free_bytes", "--free"),
    ("keep_for_ns", "--keep"),
    ("block_bytes", "--block"),
];

/// The place in a request in terms of the command line.
fn in_options(place: &str) -> String {
    let option = |word| OPTIONS.iter().find(|(member, _)| *member == word);
    let words = place.split(' ');
    let words: Vec<&str> = words
        .map(|word| option(word).map_or(word, |(_, option)| option))
        .collect();
    words.join(" ")
}

/// The status of an error of the pool: 4xx if the caller can correct it, else 5xx.
fn status_of(error: &PoolError) -> StatusCode {
    match error {
        PoolError::NoSuchVolume(_) => StatusCode::NOT_FOUND,
        PoolError::VolumeExists(_)
        | PoolError::InUse { .. }
        | PoolError::BeingMoved { .. }
        | PoolError::Reserved { .. }
        | PoolError::Taken { .. }
        | PoolError::Occupied { .. }
        | PoolError::Stopped => StatusCode::CONFLICT,
        PoolError::BadName { .. }
        | PoolError::BadSize { .. }
        | PoolError::BadPlacement(_)
        | PoolError::NoSuchScheduler(_)
        | PoolError::NoDisks
        | PoolError::Unsuited { .. }
        | PoolError::NoSpace { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        PoolError::Closed | PoolError::Host { .. } | PoolError::MetadataFrozen { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        PoolError::Poisoned { .. }
        | PoolError::MetadataFailed(_)
        | PoolError::TakenOver(_)
        | PoolError::Disk { .. }
        | PoolError::Missing { .. }
        | PoolError::Metadata(_)
        | PoolError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The remedy for an error of the pool.
fn help_of(error: &PoolError) -> String {
    match error {
        PoolError::NoSuchVolume(_) => "`clockwise volume list` shows the volumes",
        PoolError::VolumeExists(_) => "choose another name, or delete that volume first",
        PoolError::BadName { .. } => NAME_HELP,
        PoolError::BadSize {
            what: what @ "the volume's size",
            remedy,
            ..
        } => {
            return format!(
                "{remedy}; `clockwise volume show` shows {what}, `clockwise pool show` the free space"
            );
        }
        PoolError::BadSize { remedy, .. } | PoolError::Unsuited { remedy, .. } => remedy,
        PoolError::BadPlacement(_) => {
            "`clockwise disk show` lists the disks and their sizes, `clockwise disk show DISK` the zones of one"
        }
        PoolError::NoSuchScheduler(_) => "give one of these, or none for the default, exact",
        PoolError::NoSpace { .. } => {
            "ask for less, allow more disks or zones, or delete or shrink a volume"
        }
        PoolError::InUse { .. } => "end these uses first",
        PoolError::BeingMoved { .. } => {
            "wait until the move has ended, or stop it, and try again"
        }
        PoolError::Reserved { .. } => "end the stream first, or choose a size or an offset that the stream permits",
        PoolError::Stopped => {
            "moved extents stay where they are; request the move again to continue it"
        }
        PoolError::Closed => "the server is ending: start it again with `clockwise serve`",
        PoolError::Poisoned { .. } | PoolError::MetadataFailed(_) => {
            "free some space on the host's file system, or repair the disk, and restart the server; `clockwise pool check` shows details"
        }
        PoolError::TakenOver(_) => TWO_SERVERS_REMEDY,
        PoolError::MetadataFrozen { .. } => {
            "free some space on that disk, or repair it: the metadata then resumes without a restart (`clockwise status` shows it)"
        }
        PoolError::NoDisks => "add at least one disk to the configuration",
        PoolError::Occupied { .. } => {
            "inspect it (`lsblk -f`, `file -s`), and give another disk; --force overwrites it"
        }
        PoolError::Taken { .. } => {
            "`clockwise pool check` shows what is on it; --force overwrites disks of a pool"
        }
        PoolError::Disk { remedy, .. } | PoolError::Missing { remedy, .. } => {
            return format!(
                "{remedy}; `clockwise pool check` shows details (`clockwise pool create` creates a new pool and destroys all data on the disks)"
            );
        }
        PoolError::Metadata(_) => {
            "`clockwise pool check` shows details when no server runs; if no disk has failed or is full, please report its output"
        }
        PoolError::Io(_) => {
            "`clockwise status` shows which disk has failed; the server's log and `dmesg` say why"
        }
        PoolError::Host { .. } => {
            "give the server more memory, descriptors or threads: `ulimit -a` shows its limits"
        }
    }
    .to_owned()
}

impl From<PoolError> for Problem {
    fn from(error: PoolError) -> Self {
        let problem = Self::new(status_of(&error), error.to_string(), help_of(&error));
        match error {
            PoolError::BadName { .. } => problem.at("name"),
            // The place says which size it is, so the sentence need not.
            PoolError::BadSize { what, reason, .. } => Self {
                what: reason,
                ..problem.at(what)
            },
            _ => problem,
        }
    }
}

fn refusal_view(disk: DiskRefusal, rate_that_fits: Option<BytesPerSecond>) -> RefusalView {
    RefusalView {
        disk: disk.disk,
        utilization: disk.utilization,
        service_ns: disk.service_ns,
        period_ns: disk.period_ns,
        refused_by: disk.refused_by,
        interval_ns: disk.interval_ns,
        short_by_ns: disk.short_by_ns,
        task_is: disk.task.as_ref().map(|task| culprit_kind(task).to_owned()),
        task: disk.task.map(|task| task.name),
        utilization_leaving: disk.utilization_leaving,
        leaving_ns: disk.leaving_ns,
        rate_that_fits: rate_that_fits.map(BytesPerSecond::get),
    }
}

fn culprit_kind(task: &Culprit) -> &'static str {
    match task.kind {
        CulpritKind::Floor => "floor",
        CulpritKind::Stream => "stream",
        CulpritKind::Share => "share",
        CulpritKind::Leaving => "leaving",
    }
}

/// The remedies for a refusal: `own`, which changes the request; one against the task at fault; and waiting.
fn remedies(own: &str, disk: &DiskRefusal) -> String {
    let mut help = own.to_owned();
    match &disk.task {
        None => help += ", or end other streams",
        Some(task) => match task.kind {
            CulpritKind::Floor => {
                help += ", or set a shorter `floor_slice` in [scheduler]";
            }
            CulpritKind::Stream => help += &format!(", or end {:?}", task.name),
            CulpritKind::Share => {
                help += &format!(
                    ", or set a shorter `slice` for {:?} in [[nbd.reservation]]",
                    task.name
                );
            }
            CulpritKind::Leaving => {}
        },
    }
    if let Some(remaining) = disk.leaving_ns {
        help += &format!(
            "; or try again in {}, when more disk time is free",
            Nanos(remaining)
        );
    }
    help
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let what = refusal.to_string();
        match refusal {
            Refusal::Load {
                disk,
                rate_that_fits,
            } => {
                let remedies = remedies("use larger blocks", &disk);
                let help = match rate_that_fits {
                    Some(rate) => {
                        format!("ask for at most {}, {remedies}", Rate(rate).rounded_down())
                    }
                    None => remedies,
                };
                Self {
                    refusal: Some(Box::new(refusal_view(*disk, rate_that_fits))),
                    ..Self::new(StatusCode::CONFLICT, what, help)
                }
            }
            Refusal::Share {
                disk,
                period_that_fits,
            } => {
                let remedies = remedies("reserve a shorter slice", &disk);
                let help = match period_that_fits {
                    Some(period) => format!("reserve as much every {period}, {remedies}"),
                    None => remedies,
                };
                Self {
                    refusal: Some(Box::new(refusal_view(*disk, None))),
                    ..Self::new(StatusCode::CONFLICT, what, help)
                }
            }
            Refusal::Invalid {
                what: part,
                reason,
                remedy,
            } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, reason, remedy).at(part),
            Refusal::Memory { .. } => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                what,
                "use smaller blocks, end other streams, or raise the server's memory (`total` in [memory])",
            ),
            Refusal::Pool(error) => Self::from(error),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            // In seconds.
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests;
