//! Faults of emulated drives, while the server runs: places that fail or need retries, as drives get them with age.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use drives::emulator::{DriveControl, FaultId, RangeFault};
use sched::request::Op;
use sched::units::{SECTOR_BYTES, Sector, SectorCount};
use std::sync::{Mutex, PoisonError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, Body, PathPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::faults::{DriveFault, DriveFaults, FaultOp};

/// The error of a place that fails: EIO.
const EIO: i32 = 5;

/// The most rotations of a fault: a drive gives up after some seconds.
const ROTATIONS_MAX: u32 = 1_000;

/// The most faults of a drive.
const FAULTS_MAX: usize = 1_000;

/// An emulated drive, and the faults that it has been given.
pub struct EmulatedFaults {
    control: DriveControl,
    present: Mutex<Vec<(FaultId, DriveFault)>>,
}

impl EmulatedFaults {
    /// The faults of a drive that has none.
    #[must_use]
    pub fn new(control: DriveControl) -> Self {
        Self {
            control,
            present: Mutex::default(),
        }
    }
}

/// Emulated drives by their disk's name.
pub type EmulatedDrives = BTreeMap<String, EmulatedFaults>;

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new().routes(routes!(show, replace))
}

/// Finds the drive of a disk.
fn drive(app: &super::App, number: usize) -> Result<&EmulatedFaults, Problem> {
    let disks = app.pool.health().disks;
    let disk = disks.get(number).ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no disk {number}"),
            "`clockwise disk show` lists the disks",
        )
    })?;
    app.drives.get(&disk.name).ok_or_else(|| {
        Problem::new(
            StatusCode::CONFLICT,
            format!("disk {number} is not an emulated drive"),
            "faults can be given to emulated drives only",
        )
    })
}

/// The faults of an emulated drive.
#[utoipa::path(get, path = "/v1/disks/{number}/faults", params(("number" = usize, Path)),
    responses((status = 200, body = DriveFaults), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn show(state: State<SharedApp>, PathPart(number): PathPart<usize>) -> Answer<DriveFaults> {
    answer(state.0, move |app| {
        let drive = drive(app, number)?;
        let present = drive.present.lock().unwrap_or_else(PoisonError::into_inner);
        let faults = present.iter().map(|(_, fault)| fault.clone()).collect();
        Ok(DriveFaults { faults })
    })
    .await
}

/// Replaces the faults of an emulated drive, from its next request on.
#[utoipa::path(patch, path = "/v1/disks/{number}/faults", params(("number" = usize, Path)), request_body = DriveFaults,
    responses((status = 200, body = DriveFaults), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn replace(
    state: State<SharedApp>,
    PathPart(number): PathPart<usize>,
    Body(asked): Body<DriveFaults>,
) -> Answer<DriveFaults> {
    answer(state.0, move |app| {
        let drive = drive(app, number)?;
        let wanted = asked
            .faults
            .iter()
            .map(range_fault)
            .collect::<Result<Vec<_>, _>>()?;
        if wanted.len() > FAULTS_MAX {
            return Err(invalid(format!("a drive has at most {FAULTS_MAX} faults")));
        }
        let mut present = drive.present.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, _) in present.drain(..) {
            drive.control.heal(id);
        }
        let given = asked.faults.iter().cloned().zip(wanted);
        present.extend(given.map(|(fault, range)| (drive.control.inject(range), fault)));
        Ok(asked)
    })
    .await
}

fn invalid(what: String) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        what,
        "see the description of the call in `/v1/openapi.json`",
    )
}

fn range_fault(fault: &DriveFault) -> Result<RangeFault, Problem> {
    let whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
    if fault.bytes == 0 || !whole(fault.bytes) || !whole(fault.from_byte) {
        return Err(invalid(format!(
            "`from_byte` {} and `bytes` {} must be multiples of {SECTOR_BYTES}, and `bytes` more than 0",
            fault.from_byte, fault.bytes
        )));
    }
    if fault.rotations > ROTATIONS_MAX {
        return Err(invalid(format!(
            "`rotations` is {}, and at most {ROTATIONS_MAX}",
            fault.rotations
        )));
    }
    Ok(RangeFault {
        start: Sector(fault.from_byte / SECTOR_BYTES),
        count: SectorCount(fault.bytes / SECTOR_BYTES),
        op: fault.op.map(|op| match op {
            FaultOp::Read => Op::Read,
            FaultOp::Write => Op::Write,
        }),
        rotations: fault.rotations,
        errno: fault.fails.then_some(EIO),
    })
}
