//! The bodies of requests: how long they may be, how many may be on their way, and how long they may take.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sched::units::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Object;
use crate::quantity::Size;
use crate::wire::Problem;

/// How long the body of a request may take to come.
pub(super) const WITHIN: Duration = Duration::from_secs(30);

/// A body of so many bytes is always read.
const SHORT_BYTES: usize = 4 << 10;

/// All longer bodies that are on their way come to no more KiB than these.
const LONG_KIB: usize = 16 << 10;

/// Their places, a KiB each.
static LONG: Semaphore = Semaphore::const_new(LONG_KIB);

/// The value that a body of at most `most` bytes says.
pub(super) async fn read<S: Send + Sync, T: DeserializeOwned>(
    request: Request,
    state: &S,
    most: usize,
    within: Duration,
) -> Result<T, Problem> {
    let _place = place(&request, most)?;
    match tokio::time::timeout(within, value(request, state, most)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body has not come to its end within {within:?}"),
            "send as many bytes as `content-length` says",
        )
        .at(PLACE)),
    }
}

/// Where it is that something is wrong.
const PLACE: &str = "the request's body";

/// A long body takes what it says that it has, or what it may have.
fn place(request: &Request, most: usize) -> Result<Option<SemaphorePermit<'static>>, Problem> {
    let said = request.headers().get(header::CONTENT_LENGTH);
    let said = said.and_then(|of| of.to_str().ok()?.parse::<usize>().ok());
    let bytes = said.unwrap_or(most).min(most);
    if bytes <= SHORT_BYTES {
        return Ok(None);
    }
    let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
    match LONG.try_acquire_many(kib) {
        Ok(place) => Ok(Some(place)),
        Err(_) => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "so many long bodies are on their way to the server that it takes no more of them",
            "send it again when the others have come",
        )
        .at(PLACE)),
    }
}

async fn value<S: Send + Sync, T: DeserializeOwned>(
    request: Request,
    state: &S,
    most: usize,
) -> Result<T, Problem> {
    let (head, body) = request.into_parts();
    let whole = Limited::new(body, most).collect().await;
    let whole = whole.map_err(|error| match error.is::<LengthLimitError>() {
        true => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {}", Size(Bytes(most as u64))),
            "send less: this call takes no more",
        )
        .at(PLACE),
        false => Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the body has not come to its end: {error}"),
            "send as many bytes as `content-length` says",
        )
        .at(PLACE),
    })?;
    let request = Request::from_parts(head, axum::body::Body::from(whole.to_bytes()));
    let Json(Object(value)) = Json::<Object<T>>::from_request(request, state)
        .await
        .map_err(|rejection| bad(&rejection))?;
    Ok(value)
}

fn bad(rejection: &JsonRejection) -> Problem {
    Problem::new(
        rejection.status(),
        rejection.body_text(),
        "GET /v1/openapi.json describes what each call takes",
    )
    .at(PLACE)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::{Body as Bytewise, Bytes, Frame};

    use super::*;

    /// A body that begins and never ends.
    struct Endless(bool);

    impl Bytewise for Endless {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Pending;
            }
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{")))))
        }
    }

    #[test]
    fn half_a_body_is_not_waited_for() {
        let request = axum::http::Request::builder()
            .header("content-type", "application/json")
            .body(axum::body::Body::new(Endless(false)))
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let moment = Duration::from_millis(50);
        let read = runtime.block_on(read::<(), serde_json::Value>(request, &(), 16, moment));
        let problem = read.unwrap_err();
        assert_eq!(problem.status, 408);
        assert!(problem.what.contains("within 50ms"), "{}", problem.what);
    }
}
