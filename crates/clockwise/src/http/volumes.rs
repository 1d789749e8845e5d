//! Volumes: create, show, resize, move, delete.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use engine::pool::{VolumeInfo, VolumeSpec};
use media::archive::ArchiveError;
use media::archive::archives::OpenError;
use sched::units::Bytes;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::losses::{self, Harm};
use super::{Answer, App, Body, PathPart, QueryPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::ask::{
    CreateVolume, Direction, MoveProgress, MoveVolume, PlacementAsk, ResizeVolume,
};
use crate::wire::view::{PlaceView, VolumeView};

/// The most runs of extents in one answer.
const PLACES_PAGE_MAX: usize = 4096;

/// A running move.
#[derive(Debug, Default)]
pub struct Move {
    done: AtomicU64,
    total: AtomicU64,
    is_stopped: AtomicBool,
}

impl Move {
    /// Stops it after the present extent.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn progress(&self) -> MoveProgress {
        MoveProgress {
            done: self.done.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
        }
    }
}

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, resize, delete))
        .routes(routes!(places))
        .routes(routes!(move_progress, move_extents, move_stop))
}

/// All volumes, by name.
#[utoipa::path(get, path = "/v1/volumes", responses((status = 200, body = Vec<VolumeView>)))]
async fn list(state: State<SharedApp>) -> Answer<Vec<VolumeView>> {
    answer(state.0, |app| {
        let volumes = app.pool.volumes().into_iter();
        Ok(volumes.map(|info| with_move(app, info.into())).collect())
    })
    .await
}

/// Creates a volume. It is durable when the answer is sent.
#[utoipa::path(post, path = "/v1/volumes", request_body = CreateVolume,
    responses((status = 201, body = VolumeView), (status = 409, body = Problem), (status = 422, body = Problem)))]
async fn create(
    state: State<SharedApp>,
    Body(ask): Body<CreateVolume>,
) -> Result<(StatusCode, Json<VolumeView>), Problem> {
    let created = answer(state.0, move |app| {
        let spec = VolumeSpec {
            name: ask.name,
            size: Bytes(ask.size_bytes),
            placement: ask.placement.placement(),
        };
        Ok(VolumeView::from(app.pool.create_volume(&spec)?))
    })
    .await?;
    Ok((StatusCode::CREATED, created))
}

/// One volume.
#[utoipa::path(get, path = "/v1/volumes/{name}", params(("name" = String, Path)),
    responses((status = 200, body = VolumeView), (status = 404, body = Problem)))]
async fn show(state: State<SharedApp>, PathPart(name): PathPart<String>) -> Answer<VolumeView> {
    answer(state.0, move |app| {
        Ok(with_move(app, app.pool.volume_info(&name)?.into()))
    })
    .await
}

/// The volume with the progress of its move, if it is being moved.
pub(super) fn with_move(app: &App, volume: VolumeView) -> VolumeView {
    let moving = moves(app).get(&volume.name).map(|of| of.progress());
    VolumeView { moving, ..volume }
}

/// The start of a page of places.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PlacesQuery {
    /// A byte offset in the volume; the page begins with the extent that contains it (default 0).
    #[serde(default)]
    from: u64,
}

/// Where the extents of a volume lie, in the volume's order: at most 4,096 runs of neighbouring extents.
#[utoipa::path(get, path = "/v1/volumes/{name}/places", params(("name" = String, Path), PlacesQuery),
    responses((status = 200, body = Vec<PlaceView>), (status = 404, body = Problem)))]
async fn places(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
    QueryPart(query): QueryPart<PlacesQuery>,
) -> Answer<Vec<PlaceView>> {
    answer(state.0, move |app| {
        let runs = app.pool.volume_places(&name, query.from, PLACES_PAGE_MAX)?;
        Ok(runs.into_iter().map(PlaceView::from).collect())
    })
    .await
}

/// Grows or shrinks a volume, also while it is in use. A shrink that would lose data is refused unless it is
/// forced.
#[utoipa::path(patch, path = "/v1/volumes/{name}", params(("name" = String, Path)), request_body = ResizeVolume,
    responses((status = 200, body = VolumeView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn resize(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
    Body(ask): Body<ResizeVolume>,
) -> Answer<VolumeView> {
    answer(state.0, move |app| {
        let present = app.pool.volume_info(&name)?.size_bytes;
        let direction = ask.direction.unwrap_or(if ask.size_bytes < present {
            Direction::Shrink
        } else {
            Direction::Grow
        });
        if direction == Direction::Shrink && ask.placement != PlacementAsk::default() {
            return Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!(
                    "a placement is given, but volume {name:?} shrinks, which places no extents"
                ),
                "omit `placement`, or move the volume with POST to its `move`",
            ));
        }
        let size = Bytes(ask.size_bytes);
        Ok(VolumeView::from(match direction {
            Direction::Grow => app.pool.grow(&name, size, &ask.placement.placement())?,
            Direction::Shrink => shrink(app, &name, size, ask.force)?,
        }))
    })
    .await
}

/// Shrinks a volume. Data is lost only by force.
fn shrink(app: &App, name: &str, size: Bytes, is_forced: bool) -> Result<VolumeInfo, Problem> {
    let volume = app.pool.open_volume_for(name, "a shrink")?;
    // For an invalid size the pool returns the error and cuts nothing.
    if size > Bytes::ZERO && size < volume.size() {
        let whole = size
            .get()
            .checked_next_multiple_of(volume.alignment().get());
        let size = whole.map_or(size, Bytes);
        losses::refuse(app, &volume, Harm::Cuts(size), is_forced)?;
    }
    drop(volume);
    Ok(app.pool.shrink(name, size)?)
}

/// Deletes a volume that is not in use, with all data in it. The caller names the volume, so no force is
/// needed.
#[utoipa::path(delete, path = "/v1/volumes/{name}", params(("name" = String, Path)),
    responses((status = 200, body = VolumeView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn delete(state: State<SharedApp>, PathPart(name): PathPart<String>) -> Answer<VolumeView> {
    answer(state.0, move |app| {
        let last = app.pool.volume_info(&name)?;
        if let Some(of) = app.archives.lock_of(&name)? {
            let error = ArchiveError::Locked {
                volume: name,
                note: of.lock.note,
            };
            return Err(OpenError::from(error).into());
        }
        app.pool.delete_volume(&name)?;
        Ok(VolumeView::from(last))
    })
    .await
}

fn moves(app: &App) -> MutexGuard<'_, std::collections::BTreeMap<String, Arc<Move>>> {
    app.moves.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_move(name: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("volume {name:?} is not being moved"),
        "POST to the same path begins a move",
    )
}

/// The progress of a move.
#[utoipa::path(get, path = "/v1/volumes/{name}/move", params(("name" = String, Path)),
    responses((status = 200, body = MoveProgress), (status = 404, body = Problem)))]
async fn move_progress(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
) -> Answer<MoveProgress> {
    moves(&state)
        .get(&name)
        .map(|one| Json(one.progress()))
        .ok_or_else(|| no_move(&name))
}

/// Removes a move from the table when it ends, however it ends.
struct MoveEntry<'a> {
    app: &'a App,
    name: String,
}

impl Drop for MoveEntry<'_> {
    fn drop(&mut self) {
        moves(self.app).remove(&self.name);
    }
}

/// Moves a volume's extents, also while it is in use, and answers when all are moved. Each extent's move is
/// durable by itself. The move continues if the caller disconnects.
#[utoipa::path(post, path = "/v1/volumes/{name}/move", params(("name" = String, Path)), request_body = MoveVolume,
    responses((status = 200, body = VolumeView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn move_extents(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
    Body(ask): Body<MoveVolume>,
) -> Answer<VolumeView> {
    answer(state.0, move |app| {
        let one = Arc::new(Move::default());
        match moves(app).entry(name.clone()) {
            std::collections::btree_map::Entry::Occupied(_) => {
                return Err(Problem::new(
                    StatusCode::CONFLICT,
                    format!("volume {name:?} is being moved already"),
                    "wait until the move ends, or stop it with DELETE on the same path (Ctrl-C in the command that started it)",
                ));
            }
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(Arc::clone(&one)),
        };
        let entry = MoveEntry { app, name };
        let moved =
            app.pool
                .move_extents(&entry.name, &ask.placement.placement(), &mut |progress| {
                    one.done.store(progress.done, Ordering::Relaxed);
                    one.total.store(progress.total, Ordering::Relaxed);
                    !one.is_stopped.load(Ordering::Relaxed)
                })?;
        Ok(VolumeView::from(moved))
    })
    .await
}

/// Stops a move after the present extent. Moved extents stay where they are.
#[utoipa::path(delete, path = "/v1/volumes/{name}/move", params(("name" = String, Path)),
    responses((status = 200, body = MoveProgress), (status = 404, body = Problem)))]
async fn move_stop(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
) -> Answer<MoveProgress> {
    let moves = moves(&state);
    let one = moves.get(&name).ok_or_else(|| no_move(&name))?;
    one.stop();
    Ok(Json(one.progress()))
}
