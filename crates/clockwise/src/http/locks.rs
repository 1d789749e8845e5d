//! Locks: ranges of times that retention never deletes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use media::archive::locks::LockError;
use media::archive::wall_clock::now_unix_ns;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, Body, PathPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::locks::{LockView, MadeLock, MakeLock};

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(make))
        .routes(routes!(end))
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        let (status, help) = match error {
            LockError::Open(error) => return error.into(),
            LockError::Nothing(_) => (
                StatusCode::NOT_FOUND,
                "`clockwise timeline` shows when something was recorded",
            ),
            LockError::Note(_) => (StatusCode::UNPROCESSABLE_ENTITY, "give a shorter note"),
            LockError::NoLock(_) => (
                StatusCode::NOT_FOUND,
                "`clockwise recording locks` lists the locks",
            ),
        };
        Self::new(status, error.to_string(), help)
    }
}

/// Lists the locks of all volumes.
#[utoipa::path(get, path = "/v1/locks", responses((status = 200, body = Vec<LockView>)))]
async fn list(state: State<SharedApp>) -> Answer<Vec<LockView>> {
    answer(state.0, |app| {
        Ok(app.archives.locks().into_iter().map(Into::into).collect())
    })
    .await
}

/// Locks a range of times of a volume: its blocks are copied into a new volume, which is durable when the answer is
/// sent. Nothing deletes that but `DELETE /v1/locks/{name}`, or its expiry.
#[utoipa::path(post, path = "/v1/volumes/{name}/locks", params(("name" = String, Path)), request_body = MakeLock,
    responses((status = 201, body = MadeLock), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn make(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
    Body(ask): Body<MakeLock>,
) -> Result<(StatusCode, Json<MadeLock>), Problem> {
    let made = answer(state.0, move |app| {
        let now = now_unix_ns();
        let invalid = |what: &str, help: &str| {
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, help))
        };
        let times = ask.from_unix_ns..ask.until_unix_ns;
        if times.is_empty() {
            return invalid("the end is not after the begin", "give a later end");
        }
        if times.end > now {
            return invalid(
                "the end is in the future: only what was recorded can be locked",
                "give an earlier end",
            );
        }
        if ask.expires_unix_ns.is_some_and(|at| at <= now) {
            return invalid("the lock would expire at once", "give a later expiry");
        }
        let (lock, missing_blocks) =
            app.archives
                .lock(&name, times, ask.note, ask.expires_unix_ns)?;
        Ok(MadeLock {
            lock: lock.into(),
            missing_blocks,
        })
    })
    .await?;
    Ok((StatusCode::CREATED, made))
}

/// Ends a lock and deletes its copy. Answers with its last state.
#[utoipa::path(delete, path = "/v1/locks/{name}", params(("name" = String, Path)),
    responses((status = 200, body = LockView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn end(state: State<SharedApp>, PathPart(name): PathPart<String>) -> Answer<LockView> {
    answer(state.0, move |app| Ok(app.archives.unlock(&name)?.into())).await
}
