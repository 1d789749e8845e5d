//! Cameras: inspected, given a volume that suits them, and recorded as sources.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use engine::pool::VolumeSpec;
use engine::stream::StreamSpec;
use media::archive::block::BLOCK_BYTES;
use media::archive::fitting::block_that_fits;
use media::archive::retention_record::RetentionLimits;
use media::camera::inspection::{Inspection, InspectionError, InspectionRemedy};
use media::camera::plan::{self, KEEP_DEFAULT};
use media::camera::source::SourceSpec;
use media::camera::sources::InspectError;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::sources::{CERTIFICATES_BYTES_MAX, spec};
use super::{App, Body, SharedApp, answer};
use crate::quantity::{Rate, Size, WholeUnits};
use crate::wire::Problem;
use crate::wire::ask::PlacementAsk;
use crate::wire::cameras::{AddCamera, AddedCamera, CameraTrack};
use crate::wire::sources::{AddSource, SourceUse, SourceView};

/// A shorter default is no use: the pool is full.
const KEEP_MIN: Nanos = Nanos::from_secs(60);

/// A volume has at least this many blocks, so that little is lost when the oldest is overwritten.
const BLOCKS_MIN: u64 = 16;

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new().routes(routes!(add))
}

/// Receives from a camera for some seconds, creates a volume of the needed size, and records.
#[utoipa::path(post, path = "/v1/cameras", request_body = AddCamera,
    responses((status = 201, body = AddedCamera), (status = 409, body = Problem), (status = 422, body = Problem),
        (status = 502, body = Problem)))]
async fn add(
    state: State<SharedApp>,
    Body(ask): Body<AddCamera, CERTIFICATES_BYTES_MAX>,
) -> Result<(StatusCode, Json<AddedCamera>), Problem> {
    let added = answer(state.0, move |app| add_camera(app, ask)).await?;
    Ok((StatusCode::CREATED, added))
}

fn add_camera(app: &App, ask: AddCamera) -> Result<AddedCamera, Problem> {
    let block = ask.block_bytes.map(block_of).transpose()?;
    let volume = ask.volume.clone().unwrap_or_else(|| ask.name.clone());
    let source = spec(AddSource {
        name: ask.name,
        url: ask.url,
        volume: Some(volume.clone()),
        used: SourceUse::Record,
        transport: ask.transport,
        rate_bytes_per_second: ask.rate_bytes_per_second,
        certificates: ask.certificates,
    })?;
    let exists = app.pool.volume_info(&volume).is_ok();
    if exists && ask.volume.is_none() {
        let what = format!("volume {volume:?} already exists");
        let help = format!(
            "record in it with `--volume {volume}` (`volume` in the API), or choose another name for the camera"
        );
        return Err(Problem::new(StatusCode::CONFLICT, what, help).at("name"));
    }
    let sources = app.sources.list();
    if let Some(other) = sources.iter().find(|of| exists && of.spec.volume == volume) {
        let what = format!("source {:?} records in volume {volume:?}", other.spec.name);
        let help = "choose another volume, or remove that source (`clockwise source list`)";
        return Err(Problem::new(StatusCode::CONFLICT, what, help).at("volume"));
    }
    let shown = source.address.shown().to_owned();
    let found = app.sources.inspect(source.clone());
    let found = found.map_err(|error| problem_of(error, &shown))?;
    let camera = Camera {
        spec: source,
        found,
        block,
        keep: ask.keep_for_ns.map(Nanos),
    };
    match exists {
        true => camera.record(app, camera.keep, false),
        false => camera.record_in_new_volume(app),
    }
}

fn block_of(bytes: u64) -> Result<Bytes, Problem> {
    match BLOCK_BYTES.contains(&bytes) && bytes.is_power_of_two() {
        true => Ok(Bytes(bytes)),
        false => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("blocks of {} are not possible", Size(Bytes(bytes))),
            "give a power of two from 64KiB to 4MiB",
        )
        .at("block_bytes")),
    }
}

fn problem_of(error: InspectError, url: &str) -> Problem {
    let InspectionError { what, remedy } = match error {
        InspectError::Source(error) => return error.into(),
        InspectError::Camera(error) => error,
    };
    match remedy {
        InspectionRemedy::Input(help) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, help).at(url)
        }
        InspectionRemedy::Camera(help) => Problem::new(StatusCode::BAD_GATEWAY, what, help).at(url),
    }
}

/// A camera that was inspected.
struct Camera {
    spec: SourceSpec,
    found: Inspection,
    block: Option<Bytes>,
    /// As it was asked for.
    keep: Option<Nanos>,
}

impl Camera {
    /// The rate to plan with.
    fn rate(&self) -> BytesPerSecond {
        let measured = self.found.stored_rate();
        self.spec.rate.unwrap_or(measured)
    }

    fn record_in_new_volume(&self, app: &App) -> Result<AddedCamera, Problem> {
        let free = Bytes(app.pool.status().free_bytes);
        let keep = self.keep_within(free)?;
        let blocks = BLOCKS_MIN * self.block.map_or(BLOCK_BYTES.start, Bytes::get);
        let volume = &self.spec.volume;
        app.pool.create_volume(&VolumeSpec {
            name: volume.clone(),
            size: Bytes(plan::room(self.rate(), keep).get().max(blocks)),
            placement: PlacementAsk::default().placement(),
        })?;
        self.record(app, Some(keep), true).inspect_err(|_| {
            if let Err(error) = app.pool.delete_volume(volume) {
                tracing::warn!(volume, %error, "the volume of a camera that was not added cannot be deleted");
            }
        })
    }

    /// How long recordings are kept in a new volume.
    fn keep_within(&self, free: Bytes) -> Result<Nanos, Problem> {
        let rate = self.rate();
        let keep = self
            .keep
            .unwrap_or_else(|| KEEP_DEFAULT.min(plan::lasts(rate, Bytes(free.get() / 2))));
        let needed = plan::room(rate, keep);
        if needed <= free && (self.keep.is_some() || keep >= KEEP_MIN) {
            return Ok(keep);
        }
        let keep = self.keep.unwrap_or(KEEP_DEFAULT);
        let what = format!(
            "{} at {} need {}, but the pool has {} free",
            WholeUnits(keep),
            Rate(rate),
            Size(plan::room(rate, keep)),
            Size(free)
        );
        let lasts = plan::lasts(rate, free);
        let help = match lasts >= KEEP_MIN {
            true => format!(
                "`--keep {}` fits; or shrink or delete a volume (`clockwise volume list` shows them)",
                WholeUnits(lasts)
            ),
            false => "the pool is full: shrink or delete a volume (`clockwise volume list` shows them), or create the pool with more disks".to_owned(),
        };
        Err(Problem::new(StatusCode::CONFLICT, what, help).at("keep_for_ns"))
    }

    /// Makes the volume an archive, if it is none, and adds the source.
    fn record(&self, app: &App, keep: Option<Nanos>, is_new: bool) -> Result<AddedCamera, Problem> {
        let name = &self.spec.volume;
        let block = match is_new {
            true => self.fitting_block(app)?,
            false => self.block.unwrap_or_else(|| app.archives.new_block()),
        };
        let block_bytes = app.archives.open(name, Some(block))?.header().block_bytes;
        if !is_new {
            self.check_existing(app, Bytes(block_bytes))?;
        }
        if let Some(keep) = keep {
            let limits = |limits| RetentionLimits {
                age: Some(keep),
                ..limits
            };
            app.archives.set_retention(name, false, limits)?;
        }
        let measured = self.found.stored_rate();
        let source = app.sources.add(SourceSpec {
            lower: self.found.lower,
            measured: Some(above(measured)),
            ..self.spec.clone()
        })?;
        Ok(AddedCamera {
            source: SourceView::from(source),
            tracks: self.found.tracks.iter().map(CameraTrack::from).collect(),
            measured_bytes_per_second: measured.0,
            stated_bytes_per_second: self.found.stated.map(|rate| rate.0),
            keep_for_ns: keep.map(Nanos::get),
            is_keep_default: self.keep.is_none(),
            is_volume_new: is_new,
            volume_bytes: app.pool.volume_info(name)?.size_bytes,
            block_bytes,
        })
    }

    /// Checks that the disks carry the camera in the blocks of a volume with recordings.
    fn check_existing(&self, app: &App, block: Bytes) -> Result<(), Problem> {
        let spec = self.stream(app, block)?;
        let fits = app.pool.rate_that_fits(&spec);
        match fits.is_some_and(|fits| fits >= spec.rate) {
            true => Ok(()),
            // Its blocks stay as they are.
            false => Err(too_fast(&spec, fits, None)),
        }
    }

    /// The reservation of the camera in blocks of this size.
    fn stream(&self, app: &App, block: Bytes) -> Result<StreamSpec, Problem> {
        Ok(StreamSpec {
            name: self.spec.name.clone(),
            range: None,
            rate: self.spec.rate.unwrap_or_else(|| above(self.rate())),
            block,
            op: Op::Write,
            span: None,
            wraps: true,
            volume: app.pool.open_volume_for(&self.spec.volume, "a camera")?,
        })
    }

    /// A block size with which the disks carry the camera now.
    fn fitting_block(&self, app: &App) -> Result<Bytes, Problem> {
        let mut spec = self.stream(app, Bytes(BLOCK_BYTES.start))?;
        let most = spec.volume.size().get() / BLOCKS_MIN;
        spec.block = self.block.unwrap_or_else(|| {
            let proposed = plan::proposed_block(&app.pool, &spec).get();
            let most = 1 << most.max(BLOCK_BYTES.start).ilog2();
            Bytes(proposed.min(most))
        });
        let pool = &app.pool;
        let fits = pool.rate_that_fits(&spec);
        if fits.is_some_and(|fits| fits >= spec.rate) {
            return Ok(spec.block);
        }
        let other = block_that_fits(pool, &spec);
        match (other, self.block) {
            (Some(block), None) => Ok(block),
            (other, _) => Err(too_fast(&spec, fits, other)),
        }
    }
}

/// A measured rate and a tenth.
fn above(rate: BytesPerSecond) -> BytesPerSecond {
    BytesPerSecond(rate.0.saturating_add(rate.0.div_ceil(10)))
}

fn too_fast(spec: &StreamSpec, fits: Option<BytesPerSecond>, other: Option<Bytes>) -> Problem {
    let what = format!(
        "the disks cannot carry {} in blocks of {} beside what they have promised",
        Rate(spec.rate),
        Size(spec.block)
    );
    let help = match (other, fits) {
        (Some(block), _) => format!("`--block {block}` fits"),
        (None, Some(rate)) => format!(
            "{} would fit: let the camera send less, or end other sessions (`clockwise session list`)",
            Rate(rate)
        ),
        (None, None) => {
            "end other sessions (`clockwise session list`), or create the pool with more disks"
                .to_owned()
        }
    };
    Problem::new(StatusCode::CONFLICT, what, help)
}
