//! Events as they happen, as server-sent events (HTML Living Standard, section 9.2).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use hyper::body::{Bytes, Frame};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::files::StillAdmitted;
use super::{QueryPart, SharedApp};
use crate::events::EventReader;
use crate::wire::events::EventView;

/// After this time without an event a comment is sent, by which either side notices that the other one is gone.
const COMMENT_AFTER: Duration = Duration::from_secs(15);

/// The request header with the number of the last event that the client has got.
const LAST_EVENT_ID: &str = "last-event-id";

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new().routes(routes!(follow))
}

/// Where to begin.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FollowQuery {
    /// Begin after the event with this number; 0 is the oldest one that is kept. The header `Last-Event-ID` does the same.
    #[serde(default)]
    after: Option<u64>,
}

/// Events as they happen, as server-sent events: `id`, `event` (the kind), and `data`, an event as JSON. Without a number
/// to begin after, those from now on.
#[utoipa::path(get, path = "/v1/events", params(FollowQuery),
    responses((status = 200, body = EventView, content_type = "text/event-stream")))]
async fn follow(
    state: State<SharedApp>,
    QueryPart(query): QueryPart<FollowQuery>,
    headers: HeaderMap,
    still: Option<Extension<StillAdmitted>>,
) -> Response {
    let last = headers
        .get(LAST_EVENT_ID)
        .and_then(|of| of.to_str().ok()?.parse().ok());
    let reader = state.0.events.read(last.or(query.after));
    let mut response = Response::new(Body::new(EventBody {
        next: next(reader, still.map(|of| of.0)),
    }));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The next piece of a body, and what the pieces after it need. It is the last one if the client may not follow any more.
type NextPiece =
    Pin<Box<dyn Future<Output = Option<(Bytes, EventReader, Option<StillAdmitted>)>> + Send>>;

fn next(mut reader: EventReader, still: Option<StillAdmitted>) -> NextPiece {
    Box::pin(async move {
        let piece = match tokio::time::timeout(COMMENT_AFTER, reader.next()).await {
            Ok(event) => message(&event?),
            Err(_) => ":\n\n".to_owned(),
        };
        let may_follow = still.as_ref().is_none_or(StillAdmitted::holds);
        may_follow.then(|| (piece.into(), reader, still))
    })
}

fn message(event: &EventView) -> String {
    // Serialization of plain members does not fail, and JSON has no line feeds.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!(
        "id: {}\nevent: {}\ndata: {data}\n\n",
        event.id,
        event.kind.name()
    )
}

/// A body that takes one event at a time, when the client has room for it.
struct EventBody {
    next: NextPiece,
}

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.next.as_mut().poll(context).map(|piece| {
            let (piece, reader, still) = piece?;
            self.next = next(reader, still);
            Some(Ok(Frame::data(piece)))
        })
    }
}
