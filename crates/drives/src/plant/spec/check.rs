//! Conditions on a description, so that the model's arithmetic holds.

use super::{File, Mechanics, OrderLine, Read, ReadPolicy, Seek, SpecError, Write};

/// Bounds within which the arithmetic of the model cannot overflow, far beyond any drive.
const ROTATION_NS_MAX: u64 = 1_000_000_000;
const SECTORS_PER_TRACK_MAX: u64 = 1_000_000;
const CYLINDERS_MAX: u64 = 10_000_000;
const HEADS_MAX: u64 = 100;
const ZONES_MAX: u64 = 10_000;
const MICROS_MAX: u64 = 10_000_000;
const BUS_SECTOR_NS_MAX: u64 = 1_000_000_000;
const PHYSICAL_SECTOR_SECTORS_MAX: u64 = 128;

/// Values by their keys, each with the least and the greatest that it may be.
type Bounds<'a> = &'a [(&'static str, u64, u64, u64)];

pub(super) fn check(file: &File) -> Result<(), SpecError> {
    check_mechanics(&file.mechanics)?;
    check_zones(file)?;
    if let Some(OrderLine::Serpentine {
        band_cylinders,
        band_switch_us,
    }) = &file.layout
    {
        let half_us = file.mechanics.rotation_ns / 1_000 / 2;
        within(&[
            ("layout.band_cylinders", *band_cylinders, 1, CYLINDERS_MAX),
            ("layout.band_switch_us", *band_switch_us, 0, half_us),
        ])?;
    }
    for point in &file.seek {
        check_seek(point, file.seek_included_overhead_us)?;
    }
    check_read(&file.read)?;
    check_write(&file.write)
}

fn check_mechanics(mechanics: &Mechanics) -> Result<(), SpecError> {
    let rotation = mechanics.rotation_ns;
    within(&[("mechanics.rotation_ns", rotation, 1_000, ROTATION_NS_MAX)])?;
    let half_us = rotation / 1_000 / 2;
    let head_switch = mechanics.head_switch_us;
    let cylinder_switch = mechanics.cylinder_switch_us;
    within(&[
        ("mechanics.phase_ns", mechanics.phase_ns, 0, rotation - 1),
        ("mechanics.heads", mechanics.heads, 1, HEADS_MAX),
        ("mechanics.head_switch_us", head_switch, 0, half_us),
        ("mechanics.cylinder_switch_us", cylinder_switch, 0, half_us),
    ])
}

/// The zones, and the sizes that depend on them.
fn check_zones(file: &File) -> Result<(), SpecError> {
    const TRACK: &str = "zone.sectors_per_track";
    let physical = file.physical_sector_sectors;
    let physical_max = PHYSICAL_SECTOR_SECTORS_MAX;
    within(&[
        ("physical_sector_sectors", physical, 1, physical_max),
        ("zone", file.zone.len() as u64, 1, ZONES_MAX),
    ])?;
    let mut capacity = 0_u64;
    for zone in &file.zone {
        let track = zone.sectors_per_track;
        within(&[
            ("zone.cylinders", zone.cylinders, 1, CYLINDERS_MAX),
            (TRACK, track, 1, SECTORS_PER_TRACK_MAX),
        ])?;
        if !track.is_multiple_of(physical) {
            return Err(SpecError::Invalid {
                key: TRACK,
                problem: format!("{track} is not whole physical sectors"),
            });
        }
        capacity += zone.cylinders * track * file.mechanics.heads;
    }
    within(&[("sectors", file.sectors, 1, capacity)])
}

fn check_seek(point: &Seek, included_overhead_us: u64) -> Result<(), SpecError> {
    within(&[
        (
            "seek.min_us",
            point.min_us,
            included_overhead_us,
            MICROS_MAX,
        ),
        ("seek.max_us", point.max_us, 0, MICROS_MAX),
    ])
}

fn check_read(read: &Read) -> Result<(), SpecError> {
    let (overhead_min, overhead_max) = (read.overhead_us_min, read.overhead_us_max);
    let bus = read.bus_sector_ns;
    within(&[
        ("read.overhead_us_max", overhead_max, 0, MICROS_MAX),
        ("read.overhead_us_min", overhead_min, 0, overhead_max),
        ("read.bus_sector_ns", bus, 1, BUS_SECTOR_NS_MAX),
    ])?;
    match read.policy {
        ReadPolicy::Streaming {} => Ok(()),
        ReadPolicy::TrackBuffer {
            zero_latency_track_percent_max: zero_latency,
            first_burst_track_percent: first,
            long_burst_track_percent: long,
            burst_delay_us_max: delay,
        } => within(&[
            (
                "read.policy.zero_latency_track_percent_max",
                zero_latency,
                0,
                1_000,
            ),
            ("read.policy.first_burst_track_percent", first, 0, 100),
            ("read.policy.long_burst_track_percent", long, 0, 100),
            ("read.policy.burst_delay_us_max", delay, 0, MICROS_MAX),
        ]),
    }
}

fn check_write(write: &Write) -> Result<(), SpecError> {
    let bus = write.bus_sector_ns;
    within(&[
        ("write.overhead_us", write.overhead_us, 0, MICROS_MAX),
        ("write.setup_us_max", write.setup_us_max, 0, MICROS_MAX),
        ("write.settle_us", write.settle_us, 0, MICROS_MAX),
        ("write.bus_sector_ns", bus, 1, BUS_SECTOR_NS_MAX),
    ])
}

/// The first value that is out of its bounds is the error.
fn within(bounds: Bounds<'_>) -> Result<(), SpecError> {
    let is_out = |&&(_, value, min, max): &&(_, u64, u64, u64)| !(min..=max).contains(&value);
    match bounds.iter().find(is_out) {
        None => Ok(()),
        Some(&(key, value, min, max)) => Err(SpecError::Invalid {
            key,
            problem: format!("{value} is not between {min} and {max}"),
        }),
    }
}
