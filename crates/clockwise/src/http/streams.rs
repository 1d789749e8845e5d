//! Streams: reserve, report, change, end.

use std::ops::Range;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use engine::clock;
use engine::pool::{Pool, Volume};
use engine::stream::{Refusal, Span, StreamSpec};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use volume::name::flaw;

use super::losses::{self, Harm};
use super::{Answer, Body, PathPart, QueryPart, SharedApp, answer};
use crate::session::{RESERVATION_WAIT, SessionKey};
use crate::wire::ask::{ChangeRate, ReserveStream, StreamOp};
use crate::wire::streams::{BlockView, Reserved, SessionView};
use crate::wire::view::StreamView;
use crate::wire::{NAME_HELP, Problem};

/// The most memory for a stream whose block size the pool proposes: an amount that a recorder can spare for
/// each camera.
const PROPOSAL_MEMORY: Bytes = Bytes::from_mib(32);

/// The longest time that a reservation may wait for its data connection: an hour. Meanwhile it holds disk
/// time and memory.
const CONNECT_WITHIN_MS_MAX: u64 = 3_600_000;

/// The most blocks in one answer.
const BLOCKS_PAGE_MAX: usize = 4096;

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list, reserve))
        .routes(routes!(show, change, end))
        .routes(routes!(blocks))
}

#[derive(IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
struct StreamPath(
    /// Its number, or its token, which is unique among all servers.
    #[expect(dead_code, reason = "it describes what `SessionKey` reads")]
    String,
);

/// All streams: reserved, planned, running, and ended ones whose report has not been deleted yet.
#[utoipa::path(get, path = "/v1/streams", responses((status = 200, body = Vec<SessionView>)))]
async fn list(state: State<SharedApp>) -> Answer<Vec<SessionView>> {
    answer(state.0, |app| {
        Ok(app
            .sessions
            .all()
            .iter()
            .map(|session| session.view())
            .collect())
    })
    .await
}

/// Reserves bandwidth. On success, connect to the data socket and send the token. A reservation that does not
/// fit is answered with 409 and the disk, the failed condition, the load, and the rate that would fit.
#[utoipa::path(post, path = "/v1/streams", request_body = ReserveStream,
    responses((status = 201, body = Reserved), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 507, body = Problem)))]
async fn reserve(
    state: State<SharedApp>,
    Body(ask): Body<ReserveStream>,
) -> Result<(StatusCode, Json<Reserved>), Problem> {
    let reserved = answer(state.0, move |app| {
        let spec = spec(&app.pool, &ask)?;
        if spec.op == Op::Write {
            let harm = Harm::Overwrites(Bytes(ask.offset_bytes));
            losses::refuse(app, &spec.volume, harm, ask.force)?;
        }
        let stream = app
            .pool
            .reserve(spec.clone())
            .map_err(|refusal| match refusal {
                // The proposed blocks were for a rate that is too high, so proposes blocks again for the rate
                // that fits.
                Refusal::Load { disk, .. } if ask.block_bytes.is_none() => Refusal::Load {
                    disk,
                    rate_that_fits: app.pool.rate_that_fits_proposed(&spec, PROPOSAL_MEMORY),
                },
                other => other,
            })?;
        let wait = ask
            .connect_within_ms
            .map_or(RESERVATION_WAIT, Duration::from_millis)
            .saturating_add(Duration::from_millis(ask.starts_in_ms.unwrap_or(0)));
        let session = app
            .sessions
            .add(stream, ask.op, ask.limit_bytes.map(Bytes), wait)?;
        Ok(Reserved {
            id: session.id(),
            data_socket: app.data_socket.clone(),
            token: session.token().to_owned(),
            stream: session.view().stream,
        })
    })
    .await?;
    Ok((StatusCode::CREATED, reserved))
}

fn spec(pool: &Pool, ask: &ReserveStream) -> Result<StreamSpec, Problem> {
    if ask.limit_bytes == Some(0) {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the limit is zero bytes, so the stream would end before it begins",
            "give the number of bytes after which the stream ends, or omit the limit",
        )
        .at("limit_bytes"));
    }
    if ask
        .connect_within_ms
        .is_some_and(|ms| ms > CONNECT_WITHIN_MS_MAX)
    {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!(
                "a reservation waits at most {} for its data connection",
                crate::quantity::Span(Nanos::from_millis(CONNECT_WITHIN_MS_MAX))
            ),
            "give a shorter time, or a later start with `starts_in_ms`: the wait is counted from the start",
        )
        .at("connect_within_ms"));
    }
    if let Some((name, flaw)) = ask
        .name
        .as_deref()
        .and_then(|name| Some((name, flaw(name)?)))
    {
        let what = format!("{name:?} is not a valid stream name: {flaw}");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, NAME_HELP).at("name"));
    }
    let volume = pool.open_volume_for(&ask.volume, "a stream")?;
    let rate = BytesPerSecond(ask.rate_bytes_per_second);
    let range = range(ask, &volume)?;
    let block = ask.block_bytes.map_or_else(
        || pool.proposed_block(&volume, &range, rate, PROPOSAL_MEMORY),
        Bytes,
    );
    Ok(StreamSpec {
        name: ask.name.clone().unwrap_or_else(|| ask.volume.clone()),
        range: Some(range),
        rate,
        block,
        op: match ask.op {
            StreamOp::Record => Op::Write,
            StreamOp::Play => Op::Read,
        },
        span: span(ask)?,
        wraps: ask.wraps,
        volume,
    })
}

/// The range of the volume that a stream is for.
fn range(ask: &ReserveStream, volume: &Volume) -> Result<Range<u64>, Problem> {
    let size = volume.size().get();
    let past_end = || {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!(
                "the range is empty or reaches past the end of volume {:?}, whose size is {}",
                ask.volume,
                Bytes(size)
            ),
            "grow the volume, or choose a range within it",
        )
        .at("offset_bytes and length_bytes")
    };
    let end = match ask.length_bytes {
        Some(length) => ask.offset_bytes.checked_add(length).ok_or_else(past_end)?,
        // The range ends at a whole sector of the disks.
        None => size - size % volume.alignment().get(),
    };
    if ask.offset_bytes >= end || end > size {
        return Err(past_end());
    }
    Ok(ask.offset_bytes..end)
}

/// The latest start or end of a planned stream: a hundred years from now, far less than 64 bits of
/// nanoseconds.
const PLANNED_MS_MAX: u64 = 100 * 366 * 24 * 3_600_000;

/// The time span of the reservation; `None` from now until it is ended.
fn span(ask: &ReserveStream) -> Result<Option<Span>, Problem> {
    let invalid = |what: &str, place: &str| {
        let help = "give an end that is later than the beginning, both from now, or omit both to reserve from now until the stream is ended";
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, help).at(place)
    };
    if ask.starts_in_ms.is_none() && ask.ends_in_ms.is_none() {
        return Ok(None);
    }
    let starts_in_ms = ask.starts_in_ms.unwrap_or(0);
    if ask.ends_in_ms.is_some_and(|ends| ends <= starts_in_ms) {
        return Err(invalid(
            "the stream would end before it begins",
            "ends_in_ms",
        ));
    }
    let now = clock::now();
    let instant = |ms: u64, place: &str| {
        if ms > PLANNED_MS_MAX {
            let what = format!("{ms} ms from now is more than a hundred years ahead");
            return Err(invalid(&what, place));
        }
        Ok(now + Nanos::from_millis(ms))
    };
    let from = instant(starts_in_ms, "starts_in_ms")?;
    let until = ask.ends_in_ms.map(|ms| instant(ms, "ends_in_ms"));
    Ok(Some(Span {
        from,
        until: until.transpose()?,
    }))
}

/// The report of one stream.
#[utoipa::path(get, path = "/v1/streams/{id}", params(StreamPath),
    responses((status = 200, body = SessionView), (status = 404, body = Problem)))]
async fn show(state: State<SharedApp>, PathPart(key): PathPart<SessionKey>) -> Answer<SessionView> {
    answer(state.0, move |app| Ok(app.sessions.get(&key)?.view())).await
}

/// Changes a stream's rate. The stream keeps its old rate if the new one does not fit.
#[utoipa::path(patch, path = "/v1/streams/{id}", params(StreamPath), request_body = ChangeRate,
    responses((status = 200, body = StreamView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn change(
    state: State<SharedApp>,
    PathPart(key): PathPart<SessionKey>,
    Body(ask): Body<ChangeRate>,
) -> Answer<StreamView> {
    answer(state.0, move |app| {
        let stream = app.sessions.get(&key)?.stream()?;
        stream.change_rate(BytesPerSecond(ask.rate_bytes_per_second))?;
        Ok(StreamView::from(stream.status()))
    })
    .await
}

/// Ends a stream, releases its reservation, and answers with its last report, which the server then forgets.
/// If a client is connected and the stream is ended by its number, the report is kept for that client, as for
/// streams that ended by themselves.
#[utoipa::path(delete, path = "/v1/streams/{id}", params(StreamPath),
    responses((status = 200, body = SessionView), (status = 404, body = Problem)))]
async fn end(state: State<SharedApp>, PathPart(key): PathPart<SessionKey>) -> Answer<SessionView> {
    answer(state.0, move |app| Ok(app.sessions.delete(&key)?)).await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct BlocksQuery {
    /// The first block of the answer (default 0).
    #[serde(default)]
    from: u64,
}

/// Reports on each block from a given one on: at most 4,096 blocks, of the last 32,768. While the stream
/// runs, only blocks before the first incomplete one are listed.
#[utoipa::path(get, path = "/v1/streams/{id}/blocks", params(StreamPath, BlocksQuery),
    responses((status = 200, body = Vec<BlockView>), (status = 404, body = Problem)))]
async fn blocks(
    state: State<SharedApp>,
    PathPart(key): PathPart<SessionKey>,
    QueryPart(query): QueryPart<BlocksQuery>,
) -> Answer<Vec<BlockView>> {
    answer(state.0, move |app| {
        Ok(app.sessions.get(&key)?.blocks(query.from, BLOCKS_PAGE_MAX))
    })
    .await
}
