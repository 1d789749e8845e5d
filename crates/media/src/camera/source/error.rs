//! Why a source does not record.

use std::io;
use std::net::SocketAddr;

use engine::stream::PaceError;
use rtsp_types::Method;
use sched::units::Nanos;

use super::address::RedirectError;
use super::login::LoginError;
use super::said::may_be_of_transport;
use super::{Lower, REDIRECTS_MAX};
use crate::archive::ArchiveError;
use crate::archive::archives::OpenError;
use crate::record::RecordError;
use crate::rtsp::input::InputError;
use crate::rtsp::receive::ReceiveError;
use crate::sdp::DescriptionError;

/// Why a source does not record at the moment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("it has ended")]
    Stopped,
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("the address of {0} is not known: {1}")]
    Unknown(String, io::Error),
    #[error("{0} cannot be reached: {1}")]
    Connect(SocketAddr, io::Error),
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
    #[error("what it says is not understood: {0}")]
    Input(#[from] InputError),
    #[error("it has not answered within {0}")]
    Late(Nanos),
    #[error("it has closed the connection")]
    Closed,
    #[error("nothing has come from it for {0}")]
    Silent(Nanos),
    #[error("nothing has come from it by {by} for {wait}: {other} is tried next", other = .by.other())]
    SilentBy { by: Lower, wait: Nanos },
    #[error("the server has failed at what it said, and its log tells where; please report it")]
    Failed,
    #[error("it has said that it leaves (RTCP BYE)")]
    Left,
    #[error("it has ended the session (TEARDOWN)")]
    TornDown,
    #[error("it has said that what is asked for is elsewhere from now on (REDIRECT)")]
    SentTo(String),
    #[error("{0:?} is answered with {1} {2}")]
    Status(Method, u16, String),
    #[error("what is asked for is at another URL, as it says, and that is of no use: {0}")]
    Redirected(#[from] RedirectError),
    #[error("it is redirected more than {REDIRECTS_MAX} times")]
    Redirects,
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error("what it describes cannot be recorded: {0}")]
    Description(#[from] DescriptionError),
    #[error(
        "it is this server, and plays there what would be recorded in volume {0:?}: its own recording"
    )]
    Own(String),
    #[error("it describes something else than before")]
    Changed,
    #[error("a track of it is called {0:?}, which is no URL")]
    Control(String),
    #[error("it has chosen a transport that it was not offered")]
    Transport,
    #[error("by {by}, {error}; {other} is tried where that stays so, as with --transport {option}",
        other = .by.other(), option = .by.other().to_string().to_lowercase())]
    NotBy { by: Lower, error: Box<Self> },
    #[error("no pair of UDP ports could be had: {0}")]
    Ports(io::Error),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    Refused(String),
    #[error("the recording: {0}")]
    Record(#[from] PaceError),
}

impl SourceError {
    /// Whether the other transport may do: this one was refused, or another one was chosen.
    pub(super) fn may_be_of_transport(&self) -> bool {
        match self {
            Self::Transport => true,
            Self::Status(Method::Setup, status, _) => may_be_of_transport(*status),
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
    /// What a socket says is of the camera, and ends no recording.
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Pace(error) => error.into(),
            RecordError::Socket(error) => error.into(),
        }
    }
}

impl From<ArchiveError> for SourceError {
    fn from(error: ArchiveError) -> Self {
        Self::Open(error.into())
    }
}
