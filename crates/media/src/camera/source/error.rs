//! Why a source does not record.

use std::io;
use std::net::SocketAddr;

use crate::archive::gap::GapCause;
use engine::stream::PaceError;
use rtsp_types::Method;
use sched::units::Nanos;

use super::LowerTransport;
use super::address::RedirectError;
use super::login::LoginError;
use crate::archive::ArchiveError;
use crate::archive::archives::OpenError;
use crate::live::LiveBusy;
use crate::record::RecordError;
use crate::rtsp::input::InputError;
use crate::rtsp::receive::ReceiveError;
use crate::sdp::DescriptionError;

/// Redirects that are followed in one attempt.
pub(super) const REDIRECTS_MAX: usize = 3;

/// Why a source does not record at the moment. The messages are the `reason` of `source show`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("the source was removed, or the server is shutting down")]
    Stopped,
    #[error("host {0} has no address")]
    NoAddress(String),
    #[error("host {0} was not found: {1}")]
    UnknownHost(String, io::Error),
    #[error("{0} cannot be reached: {1}")]
    Connect(SocketAddr, io::Error),
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
    #[error("the camera's message cannot be parsed: {0}")]
    Input(#[from] InputError),
    #[error("no answer from the camera within {0}")]
    AnswerTimeout(Nanos),
    #[error("the camera closed the connection")]
    Closed,
    #[error("no data from the camera for {0}")]
    Silent(Nanos),
    #[error("nobody watches it")]
    Unwanted,
    #[error("no packets by {by} for {wait}; trying {other} next", other = .by.other())]
    TransportSilent { by: LowerTransport, wait: Nanos },
    #[error("internal error while talking to the camera: please report the panic in the log")]
    Panicked,
    #[error("the camera sent RTCP BYE")]
    Bye,
    #[error("the camera ended the session (TEARDOWN)")]
    TornDown,
    #[error("the camera redirects to another URL (REDIRECT)")]
    Redirect(String),
    #[error("{method} was answered with {1} {2}", method = <&str>::from(.0))]
    Status(Method, u16, String),
    #[error("unusable redirect: {0}")]
    BadRedirect(#[from] RedirectError),
    #[error("redirected more than {REDIRECTS_MAX} times")]
    TooManyRedirects,
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error("the camera's description cannot be recorded: {0}")]
    Description(#[from] DescriptionError),
    #[error(
        "the URL plays volume {0:?} of this server, which would record its own recording: choose another volume"
    )]
    OwnRecording(String),
    #[error("the camera's tracks or formats have changed; a new recording begins")]
    Changed,
    #[error("the camera sends no video: its tracks are {0}")]
    NoVideo(String),
    #[error("the camera calls a track {0:?}, which is not a valid URL")]
    Control(String),
    #[error("the camera chose a transport that was not offered")]
    Transport,
    #[error("by {by}: {error}; {other} is tried if this continues, as with --transport {option}",
        other = .by.other(), option = .by.other().to_string().to_lowercase())]
    TransportRefused {
        by: LowerTransport,
        error: Box<Self>,
    },
    #[error("no free pair of UDP ports: {0}")]
    Ports(io::Error),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    Refused(String),
    #[error("the recording failed: {0}")]
    Record(#[from] PaceError),
    #[error(transparent)]
    Busy(#[from] LiveBusy),
}

impl SourceError {
    /// Why nothing is recorded after this error. Where a host refuses or closes a connection, the network works.
    pub(super) fn gap_cause(&self) -> GapCause {
        match self {
            Self::Stopped | Self::Ports(_) | Self::Panicked => GapCause::Server,
            Self::Record(_) => GapCause::Disk,
            Self::Connect(_, error) | Self::Socket(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                    GapCause::Camera
                }
                _ => GapCause::Network,
            },
            Self::NoAddress(_)
            | Self::UnknownHost(..)
            | Self::AnswerTimeout(_)
            | Self::Silent(_)
            | Self::TransportSilent { .. } => GapCause::Network,
            _ => GapCause::Camera,
        }
    }

    /// True if the other transport may succeed: this one was refused, the camera chose another, or the status names no
    /// other cause, such as the URL, the login or bandwidth.
    pub(super) fn may_be_of_transport(&self) -> bool {
        match self {
            Self::Transport => true,
            Self::Status(Method::Setup, status, _) => {
                matches!(status, 400 | 406 | 461 | 462 | 500 | 501 | 551)
            }
            _ => false,
        }
    }
}

impl From<ReceiveError> for SourceError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Input(error) => error.into(),
            ReceiveError::Socket(error) => error.into(),
            ReceiveError::Record(error) => error.into(),
        }
    }
}

impl From<RecordError> for SourceError {
    /// An error of a socket is the camera's, and does not end the recording.
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Pace(error) => error.into(),
            RecordError::Socket(error) => error.into(),
            RecordError::Busy(error) => error.into(),
        }
    }
}

impl From<ArchiveError> for SourceError {
    fn from(error: ArchiveError) -> Self {
        Self::Open(error.into())
    }
}
