//! What the API answers when it does not do what it was asked: what, where, what to do.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::pool::PoolError;
use engine::stream::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::failure::{Failure, FailureKind};
use crate::quantity::Rate;
use crate::session::SessionError;

/// Why a reservation was refused: which disk, which condition, under what load, and what would fit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalView {
    /// The first disk that refused.
    pub disk: String,
    /// The load already promised on it, of 1.
    pub utilization: f64,
    /// The worst-case service time of a block there.
    pub service_ns: u64,
    /// How often a block would fall on it.
    pub period_ns: u64,
    /// Which condition of the admission test failed: `utilization` or `blocking`.
    pub refused_by: String,
    /// At which interval length.
    pub interval_ns: Option<u64>,
    /// By how much.
    pub short_by_ns: Option<u64>,
    /// The task that could not be served, by its stream's name.
    pub task: Option<String>,
    /// The largest rate of this stream that all the disks would carry now.
    pub rate_that_fits: Option<u64>,
}

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
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// For a reservation that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<RefusalView>>,
}

impl Problem {
    /// A problem without more to say.
    pub fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Self {
            status: status.as_u16(),
            what: what.into(),
            place: None,
            help: None,
            refusal: None,
        }
    }

    /// The same, of a part of the request or a thing.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// The same, with what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// As a command's failure.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        let kind = if self.refusal.is_some() {
            FailureKind::Refused
        } else if (400..500).contains(&self.status) && self.status != StatusCode::CONFLICT.as_u16()
        {
            FailureKind::BadInput
        } else {
            FailureKind::Failed
        };
        let what = match &self.place {
            Some(place) => format!("{place}: {}", self.what),
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

impl From<PoolError> for Problem {
    fn from(error: PoolError) -> Self {
        let what = error.to_string();
        match &error {
            PoolError::NoSuchVolume(_) => Self::new(StatusCode::NOT_FOUND, what)
                .help("`clockwise volume list` shows which there are"),
            PoolError::VolumeExists(_) => Self::new(StatusCode::CONFLICT, what)
                .help("choose another name, or delete that volume first"),
            PoolError::BadName { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, what)
                .at("name")
                .help("a name has 1 to 255 bytes, no slash and no control characters"),
            PoolError::BadSize { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, what).help(
                "`clockwise volume show` has its present size, `clockwise pool show` what is free",
            ),
            PoolError::BadPlacement(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, what)
                .help("`clockwise disk show` lists the disks and their sizes"),
            PoolError::NoSuchScheduler(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, what),
            PoolError::NoSpace { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, what)
                .help("ask for less, allow more disks or zones, or delete or shrink a volume"),
            PoolError::InUse { .. } => Self::new(StatusCode::CONFLICT, what)
                .help("end those uses first, then do this again"),
            PoolError::BeingMoved { .. } => Self::new(StatusCode::CONFLICT, what)
                .help("wait until the move has ended, or stop it, and do this again"),
            PoolError::Reserved { .. } => Self::new(StatusCode::CONFLICT, what)
                .help("end the stream first, or ask for what it allows"),
            PoolError::Stopped => Self::new(StatusCode::CONFLICT, what),
            PoolError::Closed => Self::new(StatusCode::SERVICE_UNAVAILABLE, what),
            PoolError::Poisoned { .. } | PoolError::MetadataFailed(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, what).help(
                    "restart the server; if it happens again, `clockwise pool check` says more",
                )
            }
            PoolError::NoDisks
            | PoolError::Disk { .. }
            | PoolError::Missing { .. }
            | PoolError::Metadata(_)
            | PoolError::Io(_)
            | PoolError::Host { .. } => Self::new(StatusCode::INTERNAL_SERVER_ERROR, what),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let what = refusal.to_string();
        match refusal {
            Refusal::Load {
                disk,
                rate_that_fits,
            } => Self {
                refusal: Some(Box::new(RefusalView {
                    disk: disk.disk,
                    utilization: disk.utilization,
                    service_ns: disk.service_ns,
                    period_ns: disk.period_ns,
                    refused_by: disk.refused_by,
                    interval_ns: disk.interval_ns,
                    short_by_ns: disk.short_by_ns,
                    task: disk.task,
                    rate_that_fits: rate_that_fits.map(|rate| rate.get()),
                })),
                ..Self::new(StatusCode::CONFLICT, what).help(match rate_that_fits {
                    Some(rate) => format!(
                        "ask for at most {}, use larger blocks, or end other streams",
                        Rate(rate)
                    ),
                    None => "end other streams, or use larger blocks".to_owned(),
                })
            },
            Refusal::Invalid { what: part, reason } => {
                let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, reason).at(part);
                match part {
                    "the block size" => {
                        problem.help("take one such as 256KiB or 1MiB, or none: the pool proposes one")
                    }
                    "the range" => problem.help(
                        "sizes in KiB, MiB or GiB are whole sectors; `clockwise volume show` tells the volume's",
                    ),
                    _ => problem,
                }
            }
            Refusal::Memory { .. } => Self::new(StatusCode::INSUFFICIENT_STORAGE, what)
                .help("use smaller blocks, end other streams, or give the server more memory"),
            Refusal::Pool(error) => Self::from(error),
        }
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        let status = match error {
            SessionError::Unknown(_) => StatusCode::NOT_FOUND,
            SessionError::Token | SessionError::Ended(_) => StatusCode::CONFLICT,
            SessionError::Closing => StatusCode::SERVICE_UNAVAILABLE,
        };
        let problem = Self::new(status, error.to_string());
        match error {
            SessionError::Unknown(_) | SessionError::Ended(_) => {
                problem.help("`clockwise stream list` shows which there are")
            }
            SessionError::Token | SessionError::Closing => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}
