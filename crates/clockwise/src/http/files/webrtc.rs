//! WebRTC: playing what arrives now (WHEP, draft-ietf-wish-whep), and publishing (WHIP, RFC 9725).
//!
//! A `POST` with an offer is answered with the answer, and with the URL of the session. A `DELETE` of that URL ends it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use media::webrtc::{OfferError, PublishError, WebRtc, WebRtcAnswer, WebRtcError};

use super::low::patience;
use super::{App, PathPart, SharedApp, plain, run_blocking};
use crate::wire::Problem;

/// The media type of offers and answers.
const SDP: &str = "application/sdp";

/// The most bytes of an offer.
const OFFER_BYTES_MAX: usize = 64 << 10;

/// The browser's address.
#[derive(Clone, Copy, Debug)]
pub struct HttpPeer(pub SocketAddr);

/// The peer of a request on the control socket.
const ON_THIS_HOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl From<WebRtcError> for Problem {
    fn from(error: WebRtcError) -> Self {
        let (status, help) = match &error {
            WebRtcError::Offer(OfferError::NoCodec(_)) => (
                StatusCode::NOT_ACCEPTABLE,
                "play the stream by HLS or RTSP, or set the camera to one of these codecs",
            ),
            WebRtcError::Offer(_) => (
                StatusCode::BAD_REQUEST,
                "send the offer of a browser as it is",
            ),
            WebRtcError::NoStream(_) => (StatusCode::NOT_FOUND, "wait for its camera or publisher"),
            WebRtcError::Reordered(_) => (
                StatusCode::CONFLICT,
                "play the stream by HLS or RTSP, or set the camera to no B frames",
            ),
            WebRtcError::NoPublishers => (
                StatusCode::FORBIDDEN,
                "set `publish = true` under [http]; then publishers need the right to record if there are users",
            ),
            WebRtcError::Publish(PublishError::Refused { status, .. }) => (
                match status {
                    400 => StatusCode::BAD_REQUEST,
                    403 => StatusCode::CONFLICT,
                    404 => StatusCode::NOT_FOUND,
                    _ => StatusCode::SERVICE_UNAVAILABLE,
                },
                "`clockwise volume list` and `clockwise session list` show what there is",
            ),
            WebRtcError::Full | WebRtcError::Host(_) | WebRtcError::Publish(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "repeat the request later")
            }
        };
        Self::new(status, error.to_string(), help)
    }
}

/// The WebRTC service of a server, if it has one.
fn service(app: &App) -> Result<Arc<WebRtc>, Problem> {
    app.media.webrtc().ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "this server has no WebRTC",
            "set `listen` under [http], and `webrtc` not to \"off\"; the log says if its port is taken",
        )
    })
}

/// The offer in a request.
async fn offer(request: Request) -> Result<String, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // Pages of other sites cannot send this type without being asked first (CORS).
    if !kind
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case(SDP))
    {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the body is not of type {SDP}"),
            "send the offer with that content type",
        ));
    }
    let malformed = |what: String| Problem::new(StatusCode::BAD_REQUEST, what, "send an offer");
    let body = axum::body::to_bytes(request.into_body(), OFFER_BYTES_MAX);
    let within = super::super::body::TIMEOUT;
    let bytes = tokio::time::timeout(within, body).await;
    let bytes =
        bytes.map_err(|_| malformed(format!("the offer did not arrive within {within:?}")))?;
    let bytes = bytes.map_err(|error| {
        malformed(format!(
            "the offer is longer than {OFFER_BYTES_MAX} bytes, or is cut off: {error}"
        ))
    })?;
    String::from_utf8(bytes.into()).map_err(|_| malformed("the offer is not text".to_owned()))
}

/// The answer, with the URL of the session.
fn created(answer: WebRtcAnswer, path: &str) -> Response {
    let mut response = (StatusCode::CREATED, plain(SDP, answer.text)).into_response();
    let headers = response.headers_mut();
    let location = HeaderValue::from_str(&format!("{path}/{}", answer.id));
    headers.extend(location.ok().map(|url| (header::LOCATION, url)));
    response
}

/// A player (WHEP).
pub(super) async fn watch(
    State(app): State<SharedApp>,
    PathPart(name): PathPart<String>,
    peer: Option<Extension<HttpPeer>>,
    request: Request,
) -> Result<Response, Problem> {
    let path = request.uri().path().to_owned();
    let offer = offer(request).await?;
    run_blocking(app, move |app| {
        let who = peer.map_or(ON_THIS_HOST, |of| of.0.0).to_string();
        let (_permit, within) = patience();
        let answer = service(app)?.watch(&name, &offer, &who, within)?;
        Ok(created(answer, &path))
    })
    .await
}

/// A publisher (WHIP) whose stream is recorded.
pub(super) async fn record(
    state: State<SharedApp>,
    name: PathPart<String>,
    peer: Option<Extension<HttpPeer>>,
    request: Request,
) -> Result<Response, Problem> {
    publish(state, name, peer, request, false).await
}

/// A publisher (WHIP) whose stream is live only.
pub(super) async fn relay(
    state: State<SharedApp>,
    name: PathPart<String>,
    peer: Option<Extension<HttpPeer>>,
    request: Request,
) -> Result<Response, Problem> {
    publish(state, name, peer, request, true).await
}

async fn publish(
    State(app): State<SharedApp>,
    PathPart(name): PathPart<String>,
    peer: Option<Extension<HttpPeer>>,
    request: Request,
    is_live_only: bool,
) -> Result<Response, Problem> {
    let path = request.uri().path().to_owned();
    let offer = offer(request).await?;
    run_blocking(app, move |app| {
        let peer = peer.map_or(ON_THIS_HOST, |of| of.0.0);
        let answer = service(app)?.publish(&name, is_live_only, &offer, peer)?;
        Ok(created(answer, &path))
    })
    .await
}

/// Ends a session.
pub(super) async fn end(
    State(app): State<SharedApp>,
    PathPart((_, id)): PathPart<(String, String)>,
) -> Result<StatusCode, Problem> {
    match service(&app)?.end(&id) {
        true => Ok(StatusCode::OK),
        false => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "there is no such session",
            "it has ended already",
        )),
    }
}
