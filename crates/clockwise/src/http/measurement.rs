//! Measurements of disks of the running pool: a client decides which requests are made, the server serves them as best
//! effort. `measure` has the procedure, `engine::pool::Measuring` serves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use engine::clock;
use engine::pool::{MeasuredIo, MeasuredWrites, Measuring, MeasuringError, MeasuringStop};
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, App, Body, DisconnectGuard, PathPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::faults::FaultOp;
use crate::wire::measurement::{
    BeginMeasurement, MeasurementEnd, MeasurementRequest, MeasurementRequests, MeasurementSample,
    MeasurementSamples, MeasurementView, SectorRange,
};

/// A measurement ends when no call came for so long.
const IDLE_MAX: Nanos = Nanos::from_secs(60);

/// The most requests of a call.
const REQUESTS_MAX: usize = 256;

/// The measurements under way, by the disk's number.
#[derive(Default)]
pub struct Measurements(Mutex<BTreeMap<usize, Arc<Current>>>);

struct Current {
    token: String,
    stop: MeasuringStop,
    /// Locked while a call serves requests. `None` when it has ended.
    measuring: Mutex<Option<Measuring>>,
    /// The end of the last call, in nanoseconds of the host's time.
    called_ns: AtomicU64,
    served: AtomicU64,
}

impl Current {
    fn measuring(&self) -> MutexGuard<'_, Option<Measuring>> {
        self.measuring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops it. Returns when no request of it is on the disk and its extents are given back.
    fn end(&self) {
        self.stop.stop();
        drop(self.measuring().take());
    }
}

impl Measurements {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Current>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, number: usize, token: &str) -> Result<Arc<Current>, Problem> {
        let current = self.lock().get(&number).cloned();
        let current = current.ok_or_else(|| not_measured(number))?;
        if current.token != token {
            return Err(measured_already(number).at("token"));
        }
        Ok(current)
    }

    fn add(&self, number: usize, current: Arc<Current>) -> Result<(), Problem> {
        let mut all = self.lock();
        if all.contains_key(&number) {
            return Err(measured_already(number));
        }
        all.insert(number, current);
        Ok(())
    }

    /// Forgets a measurement, unless it is not the present one of its disk.
    fn remove(&self, number: usize, current: &Arc<Current>) {
        let mut all = self.lock();
        if all
            .get(&number)
            .is_some_and(|known| Arc::ptr_eq(known, current))
        {
            all.remove(&number);
        }
    }

    /// Ends the measurements whose client has made no call for a minute. Returns the numbers of their disks.
    pub fn expire(&self, now: Time) -> Vec<usize> {
        let is_idle = |current: &Current| {
            let called = Time(current.called_ns.load(Ordering::Relaxed));
            // A call that is being served holds the lock.
            now.saturating_since(called) > IDLE_MAX && current.measuring.try_lock().is_ok()
        };
        let idle: Vec<(usize, Arc<Current>)> = (self.lock().iter())
            .filter(|(_, current)| is_idle(current))
            .map(|(number, current)| (*number, Arc::clone(current)))
            .collect();
        for (number, current) in &idle {
            self.remove(*number, current);
            current.end();
        }
        idle.into_iter().map(|(number, _)| number).collect()
    }

    /// Stops all measurements, without waiting for requests on the disks.
    pub fn close(&self) {
        for current in std::mem::take(&mut *self.lock()).into_values() {
            current.stop.stop();
        }
    }
}

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(begin, end))
        .routes(routes!(serve))
}

fn not_measured(number: usize) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("disk {number} is not being measured"),
        "POST to the disk's `measurement` begins; a measurement ends when it is deleted, when no call came for 60 s, and when the disk fails",
    )
}

fn measured_already(number: usize) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        format!("disk {number} is being measured by another client"),
        "wait until that measurement has ended, which it does 60 s after its last call, or end it with DELETE on the disk's `measurement`",
    )
}

fn ended(why: &str) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        format!("the measurement has ended: {why}"),
        "`clockwise disk show` shows the disk's state; when the disk serves requests, begin again",
    )
}

fn token() -> Result<String, Problem> {
    let mut bytes = [0; 8];
    let random = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    random.map_err(|error| {
        let what = format!("the host has no random bytes: {error}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, what, "repeat the call")
    })?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

fn view(app: &App, token: &str, measuring: &Measuring) -> MeasurementView {
    let name = measuring.disk_name();
    let path = std::path::absolute(Path::new(name));
    let range = |range: &std::ops::Range<Sector>| SectorRange {
        start_sector: range.start.get(),
        sectors: range.end.saturating_since(range.start).get(),
    };
    MeasurementView {
        token: token.to_owned(),
        disk: name.to_owned(),
        path: path.map_or_else(|_| name.to_owned(), |path| path.display().to_string()),
        is_emulated: app.drives.contains_key(name),
        sectors: measuring.capacity().get(),
        unit_sectors: measuring.unit().get(),
        physical_sectors: measuring.physical().get(),
        request_sectors_max: measuring.request_max().get(),
        writable: measuring.writable().iter().map(range).collect(),
        now_ns: clock::now().get(),
    }
}

/// Begins to measure a disk of the running pool. Requests are served as best effort, so no stream misses a deadline by
/// them. A measurement ends when it is deleted, when no call came for 60 s, when the disk fails, and with the server.
#[utoipa::path(post, path = "/v1/disks/{number}/measurement", params(("number" = usize, Path)),
    request_body = BeginMeasurement,
    responses((status = 201, body = MeasurementView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn begin(
    state: State<SharedApp>,
    PathPart(number): PathPart<usize>,
    Body(ask): Body<BeginMeasurement>,
) -> Result<(StatusCode, Json<MeasurementView>), Problem> {
    let begun = answer(state.0, move |app| {
        if number >= app.pool.health().disks.len() {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is no disk {number}"),
                "`clockwise disk show` lists the disks",
            ));
        }
        // Checked before anything is lent, and again when it is added.
        if app.measurements.lock().contains_key(&number) {
            return Err(measured_already(number));
        }
        let writes = match ask.write {
            true => MeasuredWrites::ToFreeExtents,
            false => MeasuredWrites::Nowhere,
        };
        let token = token()?;
        let measuring = app.pool.measure_disk(number, writes)?;
        let view = view(app, &token, &measuring);
        let current = Current {
            token,
            stop: measuring.stop_handle(),
            measuring: Mutex::new(Some(measuring)),
            called_ns: AtomicU64::new(clock::now().get()),
            served: AtomicU64::new(0),
        };
        app.measurements.add(number, Arc::new(current))?;
        Ok(view)
    })
    .await?;
    Ok((StatusCode::CREATED, begun))
}

fn io_of(request: &MeasurementRequest) -> MeasuredIo {
    MeasuredIo {
        op: match request.op {
            FaultOp::Read => Op::Read,
            FaultOp::Write => Op::Write,
        },
        start: Sector(request.start_sector),
        count: SectorCount(request.sectors),
        not_before: Time(request.not_before_ns),
    }
}

/// Serves requests of a measurement in their order, and answers their times. It stops when the client disconnects.
#[utoipa::path(post, path = "/v1/disks/{number}/measurement/requests", params(("number" = usize, Path)),
    request_body = MeasurementRequests,
    responses((status = 200, body = MeasurementSamples), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn serve(
    state: State<SharedApp>,
    PathPart(number): PathPart<usize>,
    Body(ask): Body<MeasurementRequests>,
) -> Answer<MeasurementSamples> {
    let (_guard, is_connected) = DisconnectGuard::new();
    answer(state.0, move |app| {
        if ask.requests.len() > REQUESTS_MAX {
            let what = format!(
                "{} requests, and at most {REQUESTS_MAX}",
                ask.requests.len()
            );
            let help = "send them in several calls";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, help).at("requests"));
        }
        let current = app.measurements.find(number, &ask.token)?;
        let served = serve_all(&current, &ask.requests, &is_connected);
        current
            .called_ns
            .store(clock::now().get(), Ordering::Relaxed);
        served.map_err(|failed| match failed {
            Failed::At(index, what) => Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                what,
                "keep to the limits that the begin of the measurement has answered",
            )
            .at(format!("requests[{index}]")),
            Failed::Over(why) => {
                app.measurements.remove(number, &current);
                current.end();
                ended(&why)
            }
            Failed::Unheard => Problem::new(
                StatusCode::CONFLICT,
                "the client has disconnected",
                "stay connected until the answer",
            ),
        })
    })
    .await
}

enum Failed {
    At(usize, String),
    Over(String),
    Unheard,
}

fn serve_all(
    current: &Current,
    requests: &[MeasurementRequest],
    is_connected: &impl Fn() -> bool,
) -> Result<MeasurementSamples, Failed> {
    let mut guard = current.measuring();
    let Some(measuring) = guard.as_mut() else {
        return Err(Failed::Over("it was deleted".to_owned()));
    };
    let mut samples = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        if !is_connected() {
            return Err(Failed::Unheard);
        }
        let times = measuring
            .serve(&io_of(request))
            .map_err(|error| match error {
                MeasuringError::Refused(what) => Failed::At(index, what),
                MeasuringError::Ended(why) => Failed::Over(why),
            })?;
        current.served.fetch_add(1, Ordering::Relaxed);
        samples.push(MeasurementSample {
            issued_ns: times.issued.get(),
            completed_ns: times.completed.get(),
            alone: times.alone,
            errno: times.errno,
        });
    }
    Ok(MeasurementSamples { samples })
}

/// Ends a measurement, whoever has begun it. The answer comes when no request of it is on the disk.
#[utoipa::path(delete, path = "/v1/disks/{number}/measurement", params(("number" = usize, Path)),
    responses((status = 200, body = MeasurementEnd), (status = 404, body = Problem)))]
async fn end(state: State<SharedApp>, PathPart(number): PathPart<usize>) -> Answer<MeasurementEnd> {
    answer(state.0, move |app| {
        let current = app.measurements.lock().remove(&number);
        let current = current.ok_or_else(|| not_measured(number))?;
        current.end();
        Ok(MeasurementEnd {
            served: current.served.load(Ordering::Relaxed),
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use engine::disk::Durability;
    use testkit::disks::{MIB, Rig};

    use super::*;

    #[test]
    fn measurement_without_calls_ends_and_gives_its_extents_back() {
        let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
        let free = pool.free();
        let writes = MeasuredWrites::ToFreeExtents;
        let measuring = pool.measure_disk(0, writes).expect("it can be measured");
        let called = clock::now();
        let measurements = Measurements::default();
        let current = Arc::new(Current {
            token: "one".to_owned(),
            stop: measuring.stop_handle(),
            measuring: Mutex::new(Some(measuring)),
            called_ns: AtomicU64::new(called.get()),
            served: AtomicU64::new(0),
        });
        measurements
            .add(0, Arc::clone(&current))
            .expect("the first");
        let second = measurements.add(0, Arc::clone(&current));
        assert!(second.is_err_and(|problem| problem.status == 409));
        assert!(
            measurements
                .find(0, "two")
                .is_err_and(|problem| problem.status == 409)
        );
        assert!(measurements.expire(called + IDLE_MAX).is_empty());
        assert!(measurements.find(0, "one").is_ok() && pool.free() < free);
        let later = called + IDLE_MAX + Nanos(1);
        {
            // A call is being served.
            let _serving = current.measuring();
            assert!(measurements.expire(later).is_empty());
        }
        assert_eq!(measurements.expire(later), [0]);
        assert!(
            measurements
                .find(0, "one")
                .is_err_and(|problem| problem.status == 404)
        );
        assert_eq!(pool.free(), free);
    }
}
