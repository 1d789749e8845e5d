//! Replies to requests.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use engine::stream::Refusal;
use rtsp_types::headers::{CONTENT_TYPE, CSEQ, HeaderName, PUBLIC, SERVER, SESSION, TypedHeader};
use rtsp_types::{Method, Response, ResponseBuilder, StatusCode, Version};

use super::ClientRequest;
use peers::log_throttle::SharedLogThrottle;

/// The supported methods.
const METHODS: &str = "OPTIONS, DESCRIBE, ANNOUNCE, SETUP, PLAY, RECORD, PAUSE, TEARDOWN, GET_PARAMETER, SET_PARAMETER";

/// Characters of a peer's text in a line of the log.
const LOGGED_MAX: usize = 200;

/// Refused requests, which any client can send.
static REFUSED: SharedLogThrottle = SharedLogThrottle::few();

/// Refused reservations, which any client can cause.
pub(super) static UNCARRIED: SharedLogThrottle = SharedLogThrottle::few();

/// A reply that is being built.
pub(super) struct Answer {
    status: StatusCode,
    builder: ResponseBuilder,
    body: Vec<u8>,
    /// The reason of the refusal has been logged.
    is_logged: bool,
}

/// A reply to a request, if the request is known.
pub(super) fn answer(request: Option<&ClientRequest>, status: StatusCode) -> Answer {
    let mut builder = Response::builder(Version::V1_0, status)
        .header(SERVER, concat!("clockwise/", env!("CARGO_PKG_VERSION")));
    if let Some(number) = request.and_then(|request| request.header(&CSEQ)) {
        builder = builder.header(CSEQ, number.as_str());
    }
    if status == StatusCode::MethodNotAllowed || status == StatusCode::MethodNotValidInThisState {
        builder = builder.header(rtsp_types::headers::ALLOW, METHODS);
    }
    Answer {
        status,
        builder,
        body: Vec::new(),
        is_logged: false,
    }
}

/// The reply to a request whose reservation is refused.
pub(super) fn refused(request: &ClientRequest, refusal: &Refusal) -> Answer {
    refused_because(request, refusal, refusal.to_string())
}

/// As [`refused`], with this reason.
pub(super) fn refused_because(request: &ClientRequest, refusal: &Refusal, why: String) -> Answer {
    let status = match refusal {
        Refusal::Load { .. } | Refusal::Share { .. } | Refusal::Memory { .. } => {
            StatusCode::NotEnoughBandwidth
        }
        Refusal::Invalid { .. } => StatusCode::BadRequest,
        Refusal::Pool(_) => StatusCode::ServiceUnavailable,
    };
    answer(Some(request), status).reason(why)
}

/// The reply to OPTIONS.
pub(super) fn options(request: &ClientRequest) -> Answer {
    answer(Some(request), StatusCode::Ok).header(PUBLIC, METHODS)
}

impl Answer {
    pub(super) fn is_ok(&self) -> bool {
        self.status == StatusCode::Ok
    }

    pub(super) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.builder = self.builder.header(name, value.into());
        self
    }

    pub(super) fn typed(mut self, header: &impl TypedHeader) -> Self {
        self.builder = self.builder.typed_header(header);
        self
    }

    pub(super) fn session(self, id: &str, timeout: Duration) -> Self {
        self.header(
            SESSION,
            format!("{id};timeout={}", timeout.as_secs().max(1)),
        )
    }

    /// Adds a body of this media type.
    pub(super) fn body(mut self, kind: &str, body: Vec<u8>) -> Self {
        self.builder = self.builder.header(CONTENT_TYPE, kind);
        self.body = body;
        self
    }

    /// Adds a reason for people, as the body.
    pub(super) fn reason(self, why: impl Into<String>) -> Self {
        let mut why: String = why.into();
        why.push_str("\r\n");
        self.body("text/plain; charset=utf-8", why.into_bytes())
    }

    /// Marks the reason of the refusal as logged.
    pub(super) fn logged(mut self) -> Self {
        self.is_logged = true;
        self
    }

    /// Logs the refusal of a request that begins to record or to play.
    pub(super) fn log(self, peer: SocketAddr, request: &ClientRequest) -> Self {
        let is_refusal = self.status.is_client_error() || self.status.is_server_error();
        let begins = matches!(
            request.method(),
            Method::Announce | Method::Describe | Method::Setup | Method::Record
        );
        if !is_refusal || !begins || self.is_logged {
            return self;
        }
        let Some(untold) = REFUSED.turn(Instant::now()) else {
            return self.logged();
        };
        let method: &str = request.method().into();
        let path = request.request_uri().map_or("*", |uri| uri.path());
        let path: String = path.chars().take(LOGGED_MAX).collect();
        let why = match self.body.is_empty() {
            true => self.status.to_string(),
            false => String::from_utf8_lossy(&self.body).into_owned(),
        };
        let reason: String = why.trim_end().chars().take(LOGGED_MAX).collect();
        tracing::info!(%peer, method, path, status = u16::from(self.status), reason, untold, "a request is refused");
        self.logged()
    }

    /// Adds a reason, and completes the reply.
    pub(super) fn because(self, why: impl Into<String>) -> Response<Vec<u8>> {
        self.reason(why).done()
    }

    pub(super) fn done(self) -> Response<Vec<u8>> {
        self.builder.build(self.body)
    }
}
