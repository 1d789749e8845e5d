//! Sessions over RTSP: who records and plays, with what, and how full the buffers are.

use axum::extract::State;
use axum::http::StatusCode;
use engine::stream::{BUFFERS_MAX, Wish};
use media::session::registry::{Does, Session};
use sched::units::{Bytes, BytesPerSecond};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, App, Body, PathPart, Shared, answer};
use crate::wire::Problem;
use crate::wire::sessions::{ChangeSession, RtspSessionView};

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, change, end))
}

/// All sessions that have something reserved, in the order in which they came.
#[utoipa::path(get, path = "/v1/sessions", responses((status = 200, body = Vec<RtspSessionView>)))]
async fn list(state: State<Shared>) -> Answer<Vec<RtspSessionView>> {
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
            format!("there is no session {number}, or not any more"),
            "`clockwise session list` shows those that there are",
        )
    })
}

/// A session.
#[utoipa::path(get, path = "/v1/sessions/{number}", params(("number" = u64, Path)),
    responses((status = 200, body = RtspSessionView), (status = 404, body = Problem)))]
async fn show(state: State<Shared>, PathPart(number): PathPart<u64>) -> Answer<RtspSessionView> {
    answer(state.0, move |app| Ok((&*find(app, number)?).into())).await
}

/// Changes what a session has reserved, all of it or nothing, while its packets go on.
#[utoipa::path(patch, path = "/v1/sessions/{number}", params(("number" = u64, Path)),
    request_body = ChangeSession,
    responses((status = 200, body = RtspSessionView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 507, body = Problem)))]
async fn change(
    state: State<Shared>,
    PathPart(number): PathPart<u64>,
    Body(ask): Body<ChangeSession>,
) -> Answer<RtspSessionView> {
    answer(state.0, move |app| {
        let session = find(app, number)?;
        let buffers = ask.buffers.map(usize::try_from);
        session.change(Wish {
            rate: ask.rate_bytes_per_second.map(BytesPerSecond),
            block: ask.block_bytes.map(Bytes),
            buffers: buffers.map(|count| count.unwrap_or(BUFFERS_MAX + 1)),
            ..Wish::default()
        })?;
        Ok((&*session).into())
    })
    .await
}

/// Ends a session, and answers with it as it was: what was recorded is durable then, and what was reserved is given back as after
/// TEARDOWN. Its connection is closed; who plays is told with RTCP BYE before. One that pulls from a source is the source's to end.
#[utoipa::path(delete, path = "/v1/sessions/{number}", params(("number" = u64, Path)),
    responses((status = 200, body = RtspSessionView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn end(state: State<Shared>, PathPart(number): PathPart<u64>) -> Answer<RtspSessionView> {
    answer(state.0, move |app| {
        let session = find(app, number)?;
        let about = session.about();
        if about.does == Does::Pulls {
            let source = &about.who;
            return Err(Problem::new(
                StatusCode::CONFLICT,
                format!("session {number} is of source {source:?}, which would call its camera again"),
                format!("`clockwise source remove {source}` ends it and forgets the source"),
            ));
        }
        let (who, volume, recording) = (&about.who, &about.volume, about.recording);
        tracing::info!(session = number, %who, volume, recording, "a session is ended from outside");
        let last = RtspSessionView::from(&*session);
        app.archives.registry().end(session);
        Ok(last)
    })
    .await
}
