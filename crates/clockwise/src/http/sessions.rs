//! Sessions over RTSP: who records and plays, with what, and how full the buffers are.

use axum::extract::State;
use axum::http::StatusCode;
use engine::stream::{BUFFERS_MAX, Wish};
use sched::units::{Bytes, BytesPerSecond};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, App, Body, PathPart, Problem, Shared, answer};
use media::session::roster::{Counts, Does, Member};

/// A session that has something reserved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RtspSessionView {
    /// Its number, from 1, in this server.
    pub number: u64,
    /// Who is at the other end: an address, or the name of a source.
    pub who: String,
    /// What it does.
    pub does: Does,
    /// The volume.
    pub volume: String,
    /// The recording in it.
    pub recording: u64,
    /// What is reserved.
    pub rate_bytes_per_second: u64,
    /// What was asked for at first, or by somebody since. A recorder that meets more has more, for a while; a player that
    /// plays faster than it was has that much more.
    pub asked_bytes_per_second: u64,
    /// The size of a block of the disks, what is written or read at a time.
    pub block_bytes: u64,
    /// The size of a buffer, which is that of a block of the volume.
    pub buffer_bytes: u64,
    /// Buffers that nobody else may use.
    pub buffers: u64,
    /// What it has counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Blocks that were written or read.
    pub blocks: u64,
    /// Of a recording, bytes of its blocks since RECORD, or since a source began, that survive SIGKILL and power cuts.
    pub durable_bytes: u64,
    /// Deadlines of them that were missed, net of the host's own lateness.
    pub misses: u64,
}

impl From<&Member> for RtspSessionView {
    fn from(of: &Member) -> Self {
        let (about, status) = (of.about(), of.status());
        Self {
            number: of.number(),
            who: about.who.clone(),
            does: about.does,
            volume: about.volume.clone(),
            recording: about.recording,
            rate_bytes_per_second: status.rate_bytes_per_second,
            asked_bytes_per_second: of.promised().0,
            block_bytes: status.block_bytes,
            buffer_bytes: of.changer().buffer().0,
            buffers: of.changer().buffers() as u64,
            counts: of.counts(),
            blocks: status.blocks,
            durable_bytes: of.changer().durable_bytes(),
            misses: status.misses,
        }
    }
}

/// What a session is to have reserved from now on; what is absent stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeSession {
    /// The rate.
    pub rate_bytes_per_second: Option<u64>,
    /// What is written or read at a time: one of the volume's blocks, or several where that divides the extent size or is a
    /// multiple of it. Buffers for that are added if none are asked for.
    pub block_bytes: Option<u64>,
    /// Buffers that nobody else may use: for two blocks at least for each disk that it touches, 64 at most.
    pub buffers: Option<u64>,
}

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, change, end))
}

/// All sessions that have something reserved, in the order in which they came.
#[utoipa::path(get, path = "/v1/sessions", responses((status = 200, body = Vec<RtspSessionView>)))]
async fn list(state: State<Shared>) -> Answer<Vec<RtspSessionView>> {
    answer(state.0, |app| {
        let all = app.archives.roster().all();
        Ok(all.iter().map(|of| RtspSessionView::from(&**of)).collect())
    })
    .await
}

fn find(app: &App, number: u64) -> Result<std::sync::Arc<Member>, Problem> {
    app.archives.roster().get(number).ok_or_else(|| {
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
        app.archives.roster().end(session);
        Ok(last)
    })
    .await
}
