//! Checks the values of a profile, one by one and together.

use super::{
    DriveKind, DriveProfile, FlatSpec, ProfileError, ProfileSpec, RotatingSpec, SeekPoint,
    WorstCaseSpec, ZoneSpec, measurement,
};
use crate::units::SECTOR_BYTES;
use alloc::format;
use alloc::string::{String, ToString};

/// 2^48 sectors: what ATA can address. Keeps every product in the predictor within 64 bits.
pub(super) const SECTORS_MAX: u64 = 1 << 48;
/// No single time in a profile is longer than a minute.
const US_MAX: u64 = 60_000_000;
/// Not even a drum takes longer than a second for a rotation, a switch or a seek.
const MECHANICAL_US_MAX: u64 = 1_000_000;
/// No drive moves more than a tebibyte a second.
const RATE_MAX: u64 = 1 << 40;
/// No drive is given more requests at a time; queue indices stay small.
const OUTSTANDING_MAX: u32 = 1024;
/// No drive has larger physical sectors.
const PHYSICAL_SECTOR_BYTES_MAX: u64 = 1 << 16;
/// Cylinders, heads and sectors per track of any drive.
const GEOMETRY_MAX: u64 = 1 << 32;

pub(super) type Checked = Result<(), ProfileError>;

pub(super) fn wrong(at: impl Into<String>, problem: impl ToString) -> ProfileError {
    ProfileError::Invalid {
        at: at.into(),
        problem: problem.to_string(),
    }
}

pub(super) fn bounded(at: &str, value: u64, least: u64, most: u64) -> Checked {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(wrong(
            at,
            format!("is {value}; it must be from {least} to {most}"),
        ))
    }
}

pub(super) fn spec(spec: &ProfileSpec) -> Checked {
    if spec.name.trim().is_empty() {
        return Err(wrong("name", "is empty; a profile needs a name"));
    }
    bounded(
        "outstanding",
        u64::from(spec.outstanding),
        1,
        u64::from(OUTSTANDING_MAX),
    )?;
    bounded("capacity_sectors", spec.capacity_sectors, 1, SECTORS_MAX)?;
    let physical = u64::from(spec.physical_sector_bytes);
    bounded(
        "physical_sector_bytes",
        physical,
        SECTOR_BYTES,
        PHYSICAL_SECTOR_BYTES_MAX,
    )?;
    if !physical.is_power_of_two() {
        return Err(wrong(
            "physical_sector_bytes",
            format!("is {physical}; it must be a power of two"),
        ));
    }
    bounded(
        "widened_percent",
        spec.widened_percent,
        0,
        DriveProfile::WIDENED_PERCENT_MAX,
    )?;
    if let Some(stated) = &spec.measurement {
        measurement::check(stated)?;
    }
    match (spec.kind, &spec.rotating, &spec.flat) {
        (DriveKind::Rotating, Some(figures), None) => {
            if spec.outstanding != 1 {
                return Err(wrong(
                    "outstanding",
                    "must be 1 for a rotating drive, whose times are predicted from the position of the head",
                ));
            }
            rotating(figures, spec.capacity_sectors)?;
        }
        (DriveKind::SolidState | DriveKind::File, None, Some(figures)) => flat(figures)?,
        (kind @ DriveKind::Rotating, ..) => {
            return Err(wrong(
                "kind",
                format!("is {}, which needs [rotating] and no [flat]", kind.name()),
            ));
        }
        (kind, ..) => {
            return Err(wrong(
                "kind",
                format!("is {}, which needs [flat] and no [rotating]", kind.name()),
            ));
        }
    }
    let zones = spec
        .rotating
        .as_ref()
        .map_or(1, |rotating| rotating.zones.len());
    for (index, row) in spec.worst_case.iter().enumerate() {
        let earlier = &spec.worst_case[..index];
        worst_case(&format!("worst_case[{index}]"), row, earlier, zones)?;
    }
    Ok(())
}

fn rotating(spec: &RotatingSpec, capacity: u64) -> Checked {
    bounded(
        "rotating.rotation_us",
        spec.rotation_us,
        1,
        MECHANICAL_US_MAX,
    )?;
    bounded(
        "rotating.command_overhead_us",
        spec.command_overhead_us,
        0,
        US_MAX,
    )?;
    let head_switch = spec.head_switch_us;
    bounded("rotating.head_switch_us", head_switch, 0, MECHANICAL_US_MAX)?;
    bounded(
        "rotating.cylinder_switch_us",
        spec.cylinder_switch_us,
        head_switch,
        MECHANICAL_US_MAX,
    )?;
    let settle = spec.write_settle_us;
    bounded("rotating.write_settle_us", settle, 0, MECHANICAL_US_MAX)?;
    bounded(
        "rotating.bus_bytes_per_second",
        spec.bus_bytes_per_second,
        SECTOR_BYTES,
        RATE_MAX,
    )?;
    if let Some(rate) = spec.write_bus_bytes_per_second {
        bounded(
            "rotating.write_bus_bytes_per_second",
            rate,
            SECTOR_BYTES,
            spec.bus_bytes_per_second,
        )?;
    }
    bounded("rotating.retry_rotations", spec.retry_rotations, 0, 1000)?;
    let (cylinders, sectors) = zones(&spec.zones)?;
    if sectors < capacity {
        return Err(wrong(
            "capacity_sectors",
            format!("is {capacity}, but the zones hold only {sectors} sectors"),
        ));
    }
    seek(&spec.seek, cylinders, head_switch)
}

/// Checks the zones; how many cylinders and sectors they have.
fn zones(zones: &[ZoneSpec]) -> Result<(u64, u64), ProfileError> {
    let (mut cylinders, mut sectors) = (0, 0_u64);
    let mut sectors_per_track = u64::MAX;
    for (index, zone) in zones.iter().enumerate() {
        let at = |key: &str| format!("rotating.zones[{index}].{key}");
        if zone.first_cylinder != cylinders {
            let problem = format!(
                "is {}, but the previous zone ends at {cylinders}",
                zone.first_cylinder
            );
            return Err(wrong(at("first_cylinder"), problem));
        }
        bounded(&at("cylinders"), zone.cylinders, 1, GEOMETRY_MAX)?;
        bounded(&at("heads"), zone.heads, 1, 1 << 16)?;
        bounded(&at("sectors_per_track"), zone.sectors_per_track, 1, 1 << 20)?;
        if zone.sectors_per_track > sectors_per_track {
            let problem =
                "is more than in the zone further outside; tracks do not get longer inwards";
            return Err(wrong(at("sectors_per_track"), problem));
        }
        sectors_per_track = zone.sectors_per_track;
        cylinders += zone.cylinders;
        sectors = zone
            .cylinders
            .checked_mul(zone.heads * zone.sectors_per_track)
            .and_then(|more| sectors.checked_add(more))
            .filter(|sum| *sum <= SECTORS_MAX)
            .ok_or_else(|| {
                wrong(
                    at("cylinders"),
                    format!("the zones hold more than {SECTORS_MAX} sectors"),
                )
            })?;
    }
    if zones.is_empty() {
        return Err(wrong(
            "rotating.zones",
            "is empty; there must be at least one zone",
        ));
    }
    Ok((cylinders, sectors))
}

/// Checks the curve: that it falls nowhere, from staying on the cylinder to the full stroke.
fn seek(points: &[SeekPoint], cylinders: u64, head_switch_us: u64) -> Checked {
    let mut before: Option<SeekPoint> = None;
    for (index, point) in points.iter().enumerate() {
        let at = |key: &str| format!("rotating.seek[{index}].{key}");
        bounded(&at("cylinders"), point.cylinders, 0, GEOMETRY_MAX)?;
        bounded(&at("us"), point.us, 0, MECHANICAL_US_MAX)?;
        if let Some(before) = before {
            bounded(
                &at("cylinders"),
                point.cylinders,
                before.cylinders + 1,
                GEOMETRY_MAX,
            )?;
            bounded(&at("us"), point.us, before.us, MECHANICAL_US_MAX)?;
        } else if point.cylinders > 1 {
            return Err(wrong(
                at("cylinders"),
                "the curve must begin at a distance of 0 or 1",
            ));
        } else if point.cylinders == 1 && point.us < head_switch_us {
            let problem = format!(
                "is {}; to stay on the cylinder takes a head switch, {head_switch_us}, and must not take longer: \
                 write the longer time here, or what it takes at a distance of 0",
                point.us
            );
            return Err(wrong(at("us"), problem));
        }
        before = Some(*point);
    }
    match before {
        None => Err(wrong(
            "rotating.seek",
            "is empty; it must reach to the full stroke",
        )),
        Some(last) if last.cylinders < cylinders - 1 => Err(wrong(
            "rotating.seek",
            format!(
                "ends at {} cylinders; the full stroke is {}",
                last.cylinders,
                cylinders - 1
            ),
        )),
        Some(_) => Ok(()),
    }
}

fn flat(spec: &FlatSpec) -> Checked {
    bounded("flat.read_overhead_us", spec.read_overhead_us, 1, US_MAX)?;
    bounded("flat.write_overhead_us", spec.write_overhead_us, 1, US_MAX)?;
    bounded(
        "flat.read_bytes_per_second",
        spec.read_bytes_per_second,
        SECTOR_BYTES,
        RATE_MAX,
    )?;
    bounded(
        "flat.write_bytes_per_second",
        spec.write_bytes_per_second,
        SECTOR_BYTES,
        RATE_MAX,
    )
}

fn worst_case(at: &str, row: &WorstCaseSpec, earlier: &[WorstCaseSpec], zones: usize) -> Checked {
    bounded(&format!("{at}.zone"), row.zone, 0, zones as u64 - 1)?;
    if earlier.iter().any(|other| other.zone == row.zone) {
        return Err(wrong(
            format!("{at}.zone"),
            format!("zone {} has a row already", row.zone),
        ));
    }
    if row.bytes.is_empty() || row.bytes.len() != row.service_us.len() {
        return Err(wrong(
            format!("{at}.service_us"),
            format!(
                "has {} values for {} block sizes",
                row.service_us.len(),
                row.bytes.len()
            ),
        ));
    }
    let (mut bytes_min, mut us_min) = (1, 1);
    for (bytes, us) in row.bytes.iter().zip(&row.service_us) {
        bounded(&format!("{at}.bytes"), *bytes, bytes_min, SECTORS_MAX)?;
        bounded(&format!("{at}.service_us"), *us, us_min, US_MAX)?;
        (bytes_min, us_min) = (bytes + 1, *us);
    }
    Ok(())
}
