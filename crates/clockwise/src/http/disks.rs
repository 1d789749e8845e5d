//! Disks: their state, and their service times as measured so far.

use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, PathPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::profile::ProfileView;
use crate::wire::view::DiskView;

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(profile))
}

/// All disks.
#[utoipa::path(get, path = "/v1/disks", responses((status = 200, body = Vec<DiskView>)))]
async fn list(state: State<SharedApp>) -> Answer<Vec<DiskView>> {
    answer(state.0, |app| Ok(app.status().disks)).await
}

/// One disk, by its number in the pool's order.
#[utoipa::path(get, path = "/v1/disks/{number}", params(("number" = usize, Path)),
    responses((status = 200, body = DiskView), (status = 404, body = Problem)))]
async fn show(state: State<SharedApp>, PathPart(number): PathPart<usize>) -> Answer<DiskView> {
    answer(state.0, move |app| {
        let mut disks = app.status().disks;
        if number < disks.len() {
            return Ok(disks.swap_remove(number));
        }
        Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no disk {number}"),
            format!(
                "the disks have the numbers 0 to {}",
                disks.len().saturating_sub(1)
            ),
        ))
    })
    .await
}

/// The drive profile that a disk should have, judged by the service times of its requests with the present profile, over all
/// restarts. The server
/// uses the present profile until it ends, because its promises rest on it.
#[utoipa::path(get, path = "/v1/disks/{number}/profile", params(("number" = usize, Path)),
    responses((status = 200, body = ProfileView), (status = 404, body = Problem)))]
async fn profile(
    state: State<SharedApp>,
    PathPart(number): PathPart<usize>,
) -> Answer<ProfileView> {
    answer(state.0, move |app| {
        let (learned, times) = app.watch.learned_profile(number).ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is no disk {number}, or the disk has failed"),
                "`clockwise disk show` lists the disks and their states",
            )
        })?;
        Ok(ProfileView {
            disk: learned.disk,
            toml: learned.profile.to_toml(),
            widened_percent: learned.profile.spec().widened_percent,
            actual_over_predicted_max: learned.took_permille as f64 / 1e3,
            since: times.since,
            count: times.count,
        })
    })
    .await
}
