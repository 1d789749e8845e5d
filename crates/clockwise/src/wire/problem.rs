//! What the API answers when it does not do what it was asked: what, where, what to do.

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

/// What errors are sent as (RFC 9457).
pub(crate) const PROBLEM_TYPE: &str = "application/problem+json";

/// What a name of a volume or a stream is.
pub(crate) const NAME_HELP: &str =
    "a name has 1 to 255 bytes, not blanks alone, no slash, and no characters that are not seen";

/// A problem, after RFC 9457, with members in this project's words.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The HTTP status, again.
    pub status: u16,
    /// What is wrong, in a sentence.
    pub what: String,
    /// Where: the part of the request, or the thing it names.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The remedy.
    pub help: String,
    /// For a reservation that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<RefusalView>>,
    /// Whether the pool is still being opened: nothing was done, and the same call is answered when it is open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opening: bool,
}

impl Problem {
    /// What is wrong, and what to do about it.
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
                "ask again when it is open: the server's log says when that is",
            )
        }
    }

    /// The same, of a part of the request or a thing.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// As a command's failure.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        let is_of_memory = self.status == StatusCode::INSUFFICIENT_STORAGE.as_u16();
        let kind = if self.refusal.is_some() || is_of_memory {
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

/// What members of requests are called on the command line.
const OPTIONS: [(&str, &str); 6] = [
    ("offset_bytes", "--offset"),
    ("length_bytes", "--length"),
    ("starts_in_ms", "--starts-in"),
    ("ends_in_ms", "--ends-in"),
    ("grow_to_bytes", "--grow-to"),
    ("pool_free_bytes", "--free"),
];

/// A place in a request as somebody knows it who has written a command line.
fn in_options(place: &str) -> String {
    let option = |word| OPTIONS.iter().find(|(member, _)| *member == word);
    let words = place.split(' ');
    let said: Vec<&str> = words
        .map(|word| option(word).map_or(word, |(_, option)| option))
        .collect();
    said.join(" ")
}

/// The status of a problem with a pool: 4xx what the caller can put right, 5xx what it cannot.
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

/// What to do about a problem with a pool.
fn help_of(error: &PoolError) -> String {
    match error {
        PoolError::NoSuchVolume(_) => "`clockwise volume list` shows which there are",
        PoolError::VolumeExists(_) => "choose another name, or delete that volume first",
        PoolError::BadName { .. } => NAME_HELP,
        PoolError::BadSize {
            what: what @ "the volume's size",
            remedy,
            ..
        } => {
            return format!(
                "{remedy}; `clockwise volume show` tells {what}, `clockwise pool show` what is free"
            );
        }
        PoolError::BadSize { remedy, .. } | PoolError::Unsuited { remedy, .. } => remedy,
        PoolError::BadPlacement(_) => {
            "`clockwise disk show` lists the disks and their sizes, `clockwise disk show DISK` the zones of one"
        }
        PoolError::NoSuchScheduler(_) => "name one of those, or none: it is exact then",
        PoolError::NoSpace { .. } => {
            "ask for less, allow more disks or zones, or delete or shrink a volume"
        }
        PoolError::InUse { .. } => "end those uses first, then do this again",
        PoolError::BeingMoved { .. } => {
            "wait until the move has ended, or stop it, and do this again"
        }
        PoolError::Reserved { .. } => "end the stream first, or ask for what it allows",
        PoolError::Stopped => {
            "what has been moved stays where it is; ask for the move again to go on with it"
        }
        PoolError::Closed => "the server is ending: start it again with `clockwise serve`",
        PoolError::Poisoned { .. } | PoolError::MetadataFailed(_) => {
            "make room on the host's file system, or mend the disk, and start the server again; `clockwise pool check` says more"
        }
        PoolError::TakenOver(_) => TWO_SERVERS_REMEDY,
        PoolError::MetadataFrozen { .. } => {
            "make room on that disk, or mend it: the metadata goes on by itself then, without a restart (`clockwise status` shows it)"
        }
        PoolError::NoDisks => "name at least one disk in the configuration",
        PoolError::Occupied { .. } => {
            "see what it is (`lsblk -f`, `file -s`), and name another disk; --force takes it all the same"
        }
        PoolError::Taken { .. } => {
            "`clockwise pool check` says what is on it; --force takes disks of a pool all the same"
        }
        PoolError::Disk { remedy, .. } | PoolError::Missing { remedy, .. } => {
            return format!(
                "{remedy}; `clockwise pool check` says more (`clockwise pool create` makes a new pool, and all that is on the disks is lost)"
            );
        }
        PoolError::Metadata(_) => {
            "`clockwise pool check` says more when no server runs; where no disk has failed or is full, please report what it says"
        }
        PoolError::Io(_) => {
            "`clockwise status` shows which disk has failed, and the server's log and `dmesg` why"
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
            // Which size is the place; then it need not be said in the sentence.
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
        task_is: disk.task.as_ref().map(|task| kind(task).to_owned()),
        task: disk.task.map(|task| task.name),
        utilization_leaving: disk.utilization_leaving,
        leaving_ns: disk.leaving_ns,
        rate_that_fits: rate_that_fits.map(BytesPerSecond::get),
    }
}

fn kind(task: &Culprit) -> &'static str {
    match task.kind {
        CulpritKind::Floor => "floor",
        CulpritKind::Stream => "stream",
        CulpritKind::Share => "share",
        CulpritKind::Leaving => "leaving",
    }
}

/// What helps beside another number, which is `own`: against the task at fault, and with patience.
fn remedies(own: &str, disk: &DiskRefusal) -> String {
    let mut help = own.to_owned();
    match &disk.task {
        None => help += ", or end other streams",
        Some(task) => match task.kind {
            CulpritKind::Floor => {
                help += ", or give the floor a shorter `floor_slice` (in [scheduler])";
            }
            CulpritKind::Stream => help += &format!(", or end {:?}", task.name),
            CulpritKind::Share => {
                help += &format!(
                    ", or give {:?} a shorter `slice` (in [[nbd.reservation]])",
                    task.name
                );
            }
            CulpritKind::Leaving => {}
        },
    }
    if let Some(remaining) = disk.leaving_ns {
        help += &format!("; or ask again in {}, when more is free", Nanos(remaining));
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
                "use smaller blocks, end other streams, or give the server more memory (`total` in [memory])",
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
