//! Reads the bodies of requests, with limits on their length, on the time they take, and on the memory for
//! all of them.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sched::units::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Object, malformed};
use crate::quantity::Size;
use crate::wire::Problem;

/// The maximum time for the body of a request to arrive.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Bodies up to this many bytes need no permit of [`LONG_BODIES`].
const SHORT_BYTES: usize = 4 << 10;

/// The memory for all longer bodies that arrive at the same time, in KiB.
const LONG_KIB: usize = 16 << 10;

/// The memory for longer bodies: one permit is a KiB.
static LONG_BODIES: Semaphore = Semaphore::const_new(LONG_KIB);

/// Reads a JSON object from a body of at most `bytes_max` bytes, within `timeout`.
pub(super) async fn read<S: Send + Sync, T: DeserializeOwned>(
    request: Request,
    state: &S,
    bytes_max: usize,
    timeout: Duration,
) -> Result<T, Problem> {
    let _permit = permit(&request, bytes_max)?;
    match tokio::time::timeout(timeout, value(request, state, bytes_max)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive completely within {timeout:?}"),
            "send as many bytes as `content-length` says",
        )
        .at(PART)),
    }
}

/// The place of a problem with a body.
const PART: &str = "the request's body";

/// Reserves memory for a long body: its declared length, or else the most that it may have.
fn permit(
    request: &Request,
    bytes_max: usize,
) -> Result<Option<SemaphorePermit<'static>>, Problem> {
    let declared = request.headers().get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|of| of.to_str().ok()?.parse::<usize>().ok());
    let bytes = declared.unwrap_or(bytes_max).min(bytes_max);
    if bytes <= SHORT_BYTES {
        return Ok(None);
    }
    let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
    match LONG_BODIES.try_acquire_many(kib) {
        Ok(permit) => Ok(Some(permit)),
        Err(_) => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server is receiving too many long bodies at the same time",
            "send the request again later",
        )
        .at(PART)),
    }
}

async fn value<S: Send + Sync, T: DeserializeOwned>(
    request: Request,
    state: &S,
    bytes_max: usize,
) -> Result<T, Problem> {
    let (head, body) = request.into_parts();
    let whole = Limited::new(body, bytes_max).collect().await;
    let whole = whole.map_err(|error| match error.is::<LengthLimitError>() {
        true => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {}", Size(Bytes(bytes_max as u64))),
            "send a shorter body: this is the limit of this call",
        )
        .at(PART),
        false => Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the body did not arrive completely: {error}"),
            "send as many bytes as `content-length` says",
        )
        .at(PART),
    })?;
    let request = Request::from_parts(head, axum::body::Body::from(whole.to_bytes()));
    let Json(Object(value)) = Json::<Object<T>>::from_request(request, state)
        .await
        .map_err(|rejection: JsonRejection| {
            malformed(PART, rejection.status(), rejection.body_text())
        })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::{Body as Bytewise, Bytes, Frame};

    use super::*;

    /// A body that sends one byte and never ends. The flag is true once that byte is sent.
    struct UnfinishedBody(bool);

    impl Bytewise for UnfinishedBody {
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
    fn unfinished_body_times_out() {
        let request = axum::http::Request::builder()
            .header("content-type", "application/json")
            .body(axum::body::Body::new(UnfinishedBody(false)))
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let timeout = Duration::from_millis(50);
        let read = runtime.block_on(read::<(), serde_json::Value>(request, &(), 16, timeout));
        let problem = read.unwrap_err();
        assert_eq!(problem.status, 408);
        assert!(problem.what.contains("within 50ms"), "{}", problem.what);
    }
}
