//! Sessions over RTSP: the peers that record and play, their reservations, and how full their buffers are.

use axum::extract::State;
use axum::http::StatusCode;
use engine::stream::{BUFFERS_MAX, StreamChange};
use media::session::registry::{Session, SessionUse};
use sched::units::{Bytes, BytesPerSecond};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, App, Body, PathPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::sessions::{ChangeSession, RtspSessionView};

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, change, end))
}

/// All sessions with a reservation, the oldest first.
#[utoipa::path(get, path = "/v1/sessions", responses((status = 200, body = Vec<RtspSessionView>)))]
async fn list(state: State<SharedApp>) -> Answer<Vec<RtspSessionView>> {
    answer(state.0, |app| {
        let all = app.archives.registry().all();
        Ok(all.iter().map(|of| RtspSessionView::from(&**of)).collect())
    })
    .await
}

fn find(app: &App, number: u64) -> Result<std::sync::Arc<Session>, Problem> {
    app.archives.registry().get(number).ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no session {number}, or it has ended"),
            "`clockwise session list` shows the sessions",
        )
    })
}

/// One session.
#[utoipa::path(get, path = "/v1/sessions/{number}", params(("number" = u64, Path)),
    responses((status = 200, body = RtspSessionView), (status = 404, body = Problem)))]
async fn show(state: State<SharedApp>, PathPart(number): PathPart<u64>) -> Answer<RtspSessionView> {
    answer(state.0, move |app| Ok((&*find(app, number)?).into())).await
}

/// Changes the reservation of a session while its packets flow. Either everything is changed or nothing.
#[utoipa::path(patch, path = "/v1/sessions/{number}", params(("number" = u64, Path)),
    request_body = ChangeSession,
    responses((status = 200, body = RtspSessionView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 507, body = Problem)))]
async fn change(
    state: State<SharedApp>,
    PathPart(number): PathPart<u64>,
    Body(ask): Body<ChangeSession>,
) -> Answer<RtspSessionView> {
    answer(state.0, move |app| {
        let session = find(app, number)?;
        let buffers = ask.buffers.map(usize::try_from);
        session.change(StreamChange {
            rate: ask.rate_bytes_per_second.map(BytesPerSecond),
            block: ask.block_bytes.map(Bytes),
            buffers: buffers.map(|count| count.unwrap_or(BUFFERS_MAX + 1)),
            ..StreamChange::default()
        })?;
        Ok((&*session).into())
    })
    .await
}

/// Ends a session, and answers with its last state. Its recording is durable then, its reservation is
/// released as after TEARDOWN, and its connection is closed; a player gets RTCP BYE first. A session that
/// pulls from a source cannot be ended here, but with its source.
#[utoipa::path(delete, path = "/v1/sessions/{number}", params(("number" = u64, Path)),
    responses((status = 200, body = RtspSessionView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn end(state: State<SharedApp>, PathPart(number): PathPart<u64>) -> Answer<RtspSessionView> {
    answer(state.0, move |app| {
        let session = find(app, number)?;
        let about = session.about();
        if about.does == SessionUse::Pulls {
            let source = &about.who;
            return Err(Problem::new(
                StatusCode::CONFLICT,
                format!("session {number} belongs to source {source:?}, which would connect to its camera again"),
                format!("`clockwise source remove {source}` ends the session and removes the source"),
            ));
        }
        let (who, volume, recording) = (&about.who, &about.volume, about.recording);
        tracing::info!(session = number, %who, volume, recording, "a session is ended through the API");
        let last = RtspSessionView::from(&*session);
        app.archives.registry().end(session);
        Ok(last)
    })
    .await
}
