//! Layouts: `dm_layout_g1` (zones), `dm_layout_g2` (a map of all tracks), `dm_layout_g4` (patterns).

use super::fields::{Fields, float, integer};
use super::lexer::{At, text};
use super::tree::Value;
use super::{Files, ImportError};
use crate::plant::controller::description::{
    Child, Entry, Extent, Layout, Order, Remap, Skew, Sparing, TrackPattern, ZoneLine,
};

/// Bounds far beyond any drive, within which no product of two overflows.
pub(super) const CYLINDERS_MAX: u64 = 100_000_000;
pub(super) const SECTORS_PER_TRACK_MAX: u64 = 1_000_000;
pub(super) const SECTORS_MAX: u64 = 1 << 48;
const SPARES_MAX: u64 = 1 << 40;
const ZONES_MAX: usize = 10_000;
const PPB: f64 = 1e9;

pub(super) fn read(
    files: &dyn Files,
    block: &Fields<'_>,
    heads: u64,
    notes: &mut Vec<String>,
) -> Result<Layout, ImportError> {
    let layout = match block.kind() {
        "dm_layout_g1" => zones(block, notes),
        "dm_layout_g2" => map(files, block, heads, notes),
        "dm_layout_g4" => patterns(block),
        other => Err(block.wrong(format!(
            "`{other}` is not a layout: expected dm_layout_g1, dm_layout_g2 or dm_layout_g4"
        ))),
    }?;
    notes.extend(block.unknown());
    Ok(layout)
}

fn zones(block: &Fields<'_>, notes: &mut Vec<String>) -> Result<Layout, ImportError> {
    let order = match block.integer("LBN-to-PBN mapping scheme", 0, 2)? {
        0 => Order::Cylinders,
        1 => Order::SerpentineInZones,
        _ => Order::Serpentine,
    };
    let sparing = match block.integer("Sparing scheme used", 0, 10)? {
        0 => Sparing::None,
        1 => Sparing::Tracks,
        2 => Sparing::CylinderEnd,
        3 => Sparing::TrackEnd,
        4 => Sparing::CylinderEndSlipToEnd,
        5 => Sparing::CylinderFront,
        6 => Sparing::CylinderFrontSlipToEnd,
        7 => Sparing::DiskEnd,
        8 => Sparing::RangeEnd,
        9 => Sparing::ZoneEnd,
        _ => Sparing::ZoneEndSlipToEnd,
    };
    let range_cylinders = block.count("Rangesize for sparing", 1, CYLINDERS_MAX)?;
    let unit = Unit::of(block)?.unwrap_or(Unit::Sectors);
    let lines = block.blocks("Zones")?;
    if lines.len() > ZONES_MAX {
        return Err(block.wrong_at("Zones", format!("there are more than {ZONES_MAX}")));
    }
    let mut zone = Vec::new();
    for line in &lines {
        zone.push(zone_line(line, unit)?);
        notes.extend(line.unknown());
    }
    Ok(Layout::Zones {
        order,
        sparing,
        range_cylinders,
        zone,
    })
}

#[derive(Clone, Copy)]
enum Unit {
    Sectors,
    Revolutions,
}

impl Unit {
    fn of(block: &Fields<'_>) -> Result<Option<Self>, ImportError> {
        match block.word("Skew units")? {
            None => Ok(None),
            Some("sectors") => Ok(Some(Self::Sectors)),
            Some("revolutions") => Ok(Some(Self::Revolutions)),
            Some(other) => {
                let problem = format!("`{other}` is neither sectors nor revolutions");
                Err(block.wrong_at("Skew units", problem))
            }
        }
    }

    /// An angle; a part of a sector is dropped, and what is not set is 0.
    fn angle(self, block: &Fields<'_>, key: &'static str) -> Result<Skew, ImportError> {
        Ok(match self {
            Self::Sectors => {
                let most = SECTORS_PER_TRACK_MAX as f64;
                Skew::Sectors(block.float_if(key, 0.0, most)?.unwrap_or(0.0) as u64)
            }
            Self::Revolutions => {
                let turns = block.float_if(key, 0.0, 1e3)?.unwrap_or(0.0);
                Skew::Ppb((turns.fract() * PPB).round() as u64)
            }
        })
    }
}

fn zone_line(line: &Fields<'_>, unit: Unit) -> Result<ZoneLine, ImportError> {
    let unit = Unit::of(line)?.unwrap_or(unit);
    let defects = line.integers("defects", SECTORS_MAX)?;
    if !defects.len().is_multiple_of(2) {
        return Err(line.wrong_at("defects", "an even number of places is needed"));
    }
    let mut slips = line.integers("slips", SECTORS_MAX)?;
    slips.sort_unstable();
    slips.dedup();
    Ok(ZoneLine {
        first_cylinder: line.count("First cylinder number", 0, CYLINDERS_MAX)?,
        last_cylinder: line.count("Last cylinder number", 0, CYLINDERS_MAX)?,
        sectors_per_track: line.count("Blocks per track", 1, SECTORS_PER_TRACK_MAX)?,
        first_sector: unit.angle(line, "Offset of first block")?,
        head_skew: unit.angle(line, "Skew for track switch")?,
        cylinder_skew: unit.angle(line, "Skew for cylinder switch")?,
        reserved_sectors: line.count("Empty space at zone front", 0, SPARES_MAX)?,
        spares: line.count("Number of spares", 0, SPARES_MAX)?,
        slips,
        defects: defects
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
            .collect(),
    })
}

fn number(value: Option<&(Value, At)>) -> Option<i64> {
    match value {
        Some((Value::Word(word), _)) => integer(word),
        _ => None,
    }
}

fn natural(value: Option<&(Value, At)>, bound: u64) -> Option<u64> {
    number(value)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| *n < bound)
}

fn turns(value: Option<&(Value, At)>) -> Option<u64> {
    match value {
        Some((Value::Word(word), _)) => {
            let turns = float(word).filter(|turns| turns.abs() < 1e6)?;
            Some((turns.rem_euclid(1.0) * PPB).round() as u64)
        }
        _ => None,
    }
}

fn patterns(block: &Fields<'_>) -> Result<Layout, ImportError> {
    let wrong = |key, what: &str| block.wrong_at(key, format!("holds something else than {what}"));
    let rows = |key: &'static str, fields: usize, what: &str| {
        let list = block.list(key)?;
        if list.len().is_multiple_of(fields) {
            Ok(list.chunks_exact(fields))
        } else {
            Err(wrong(key, what))
        }
    };
    let what = "three numbers for each track: first sector, last sector, sectors on the track";
    let track = rows("TP", 3, what)?.map(|row| {
        let part = |index| natural(row.get(index), SECTORS_PER_TRACK_MAX + 1);
        let (low, high, sectors_per_track) = part(0)
            .zip(part(1))
            .zip(part(2))
            .map(|((a, b), c)| (a, b, c))?;
        Some(TrackPattern {
            low,
            high,
            sectors_per_track,
        })
    });
    let track = track
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| wrong("TP", what))?;
    let mut node = Vec::new();
    for (value, at) in block.list("IDX")? {
        let Value::List(list) = value else {
            return Err(wrong("IDX", "lists of entries"));
        };
        node.push(entries(list).ok_or_else(|| {
            ImportError::new(at, "an entry of `IDX` is not: sector, cylinder, angle, sectors, cylinders, turn, run of sectors, run of cylinders, IDX and number or TRACK, number and head".to_owned())
        })?);
    }
    let slip = rows("Slips", 2, "pairs of numbers")?
        .map(|row| natural(row.first(), SECTORS_MAX).zip(natural(row.get(1), SECTORS_MAX)));
    let mut slip = slip
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| wrong("Slips", "pairs of numbers"))?;
    slip.sort_unstable();
    let what = "six numbers for each: sector, count, cylinder, head, sector on the track, sectors of the track";
    let remap = rows("Remaps", 6, what)?.map(|row| {
        let part = |index, bound| natural(row.get(index), bound);
        Some(Remap {
            first: part(0, SECTORS_MAX)?,
            count: part(1, SECTORS_PER_TRACK_MAX)?,
            cylinder: part(2, CYLINDERS_MAX)?,
            head: part(3, 1_000)?,
            sector: part(4, SECTORS_PER_TRACK_MAX)?,
            sectors_per_track: part(5, SECTORS_PER_TRACK_MAX)?,
        })
    });
    let remap = remap
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| wrong("Remaps", what))?;
    Ok(Layout::Tree {
        track,
        node,
        slip,
        remap,
    })
}

/// The entries of a node: ten values each for a node below, and eleven for a track.
fn entries(list: &[(Value, At)]) -> Option<Vec<Entry>> {
    let cylinders = |value| number(value).filter(|n| n.unsigned_abs() <= CYLINDERS_MAX);
    let mut entries = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let Some((Value::Word(kind), _)) = rest.get(8) else {
            return None;
        };
        let number = natural(rest.get(9), SECTORS_MAX)?;
        let (child, used) = match &**kind {
            "TRACK" => {
                let head = natural(rest.get(10), 1_000)?;
                (
                    Child::Track {
                        pattern: number,
                        head,
                    },
                    11,
                )
            }
            "IDX" => (Child::Node(number), 10),
            _ => return None,
        };
        entries.push(Entry {
            first: natural(rest.first(), SECTORS_MAX)?,
            cylinder: cylinders(rest.get(1))?,
            angle_ppb: turns(rest.get(2))?,
            sectors: natural(rest.get(3), SECTORS_MAX)?,
            cylinders: cylinders(rest.get(4))?,
            turn_ppb: turns(rest.get(5))?,
            run_sectors: natural(rest.get(6), SECTORS_MAX)?,
            run_cylinders: cylinders(rest.get(7))?,
            child,
        });
        rest = &rest[used..];
    }
    Some(entries)
}

/// A zone of a map.
struct MapZone {
    first: u64,
    last: u64,
    sectors_per_track: u64,
    offset: Skew,
    head: Skew,
    cylinder: Skew,
}

/// A map of all tracks: two lines of text, a line of sizes, then `lbn N --> cyl N, head N, sect N, seqcnt N`
/// for each run, where `seqcnt` is one less than the run's sectors; then defects.
fn map(
    files: &dyn Files,
    block: &Fields<'_>,
    heads: u64,
    notes: &mut Vec<String>,
) -> Result<Layout, ImportError> {
    let mut zones = Vec::new();
    for line in &block.blocks("Zones")? {
        let unit = Unit::of(line)?.unwrap_or(Unit::Sectors);
        zones.push(MapZone {
            first: line.count("First cylinder number", 0, CYLINDERS_MAX)?,
            last: line.count("Last cylinder number", 0, CYLINDERS_MAX)?,
            sectors_per_track: line.count("Blocks per track", 1, SECTORS_PER_TRACK_MAX)?,
            offset: unit.angle(line, "Zone Skew")?,
            head: unit.angle(line, "Skew for track switch")?,
            cylinder: unit.angle(line, "Skew for cylinder switch")?,
        });
        line.without_effect(&["First LBN", "Last LBN"]);
        notes.extend(line.unknown());
    }
    let key = "Layout Map File";
    let Some(name) = block.word(key)?.map(str::to_owned) else {
        return Err(block.wrong(format!("`{key}` is missing; name the file")));
    };
    let content = text(files, &name, None)?;
    let mut extent: Vec<Extent> = Vec::new();
    // The angle at which the present track's sector 0 begins, as a share of a revolution.
    let mut angle = 0.0_f64;
    let mut previous: Option<(u64, u64, u64)> = None;
    for (number, line) in (1..).zip(content.lines()).skip(2) {
        if !line.trim_start().starts_with("lbn") {
            continue;
        }
        let wrong = |problem: String| ImportError::new(format!("{name}:{number}"), problem);
        let Some((lbn, cylinder, head, sector, count)) = run(line) else {
            return Err(wrong(
                "is not `lbn N --> cyl N, head N, sect N, seqcnt N`".into(),
            ));
        };
        let zone = zones
            .iter()
            .find(|zone| (zone.first..=zone.last).contains(&cylinder));
        let Some(zone) = zone.filter(|_| head < heads) else {
            return Err(wrong(format!(
                "no zone has cylinder {cylinder}, or no disk has head {head}"
            )));
        };
        let spt = zone.sectors_per_track;
        let share = |skew: Skew| match skew {
            Skew::Sectors(sectors) => sectors as f64 / spt as f64,
            Skew::Ppb(ppb) => ppb as f64 / PPB,
        };
        match previous {
            Some((first, _, _)) if first != zone.first => angle = share(zone.offset),
            None => angle = share(zone.offset),
            Some((_, before, other)) => {
                if before != cylinder {
                    angle += share(zone.cylinder);
                }
                if other != head {
                    angle += share(zone.head);
                }
            }
        }
        previous = Some((zone.first, cylinder, head));
        let begins = (angle + sector as f64 / spt as f64).rem_euclid(1.0);
        extent.push(Extent {
            first: lbn,
            count,
            cylinder,
            head,
            sectors_per_track: spt,
            angle_ppb: (begins * PPB).round() as u64,
        });
    }
    extent.sort_by_key(|extent| extent.first);
    Ok(Layout::Extents { extent })
}

fn run(line: &str) -> Option<(u64, u64, u64, u64, u64)> {
    let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut numbers = [0; 4];
    let labels = [
        ("lbn", SECTORS_MAX),
        ("cyl", CYLINDERS_MAX),
        ("head", 1_000),
        ("sect", SECTORS_PER_TRACK_MAX),
    ];
    for (number, (label, bound)) in numbers.iter_mut().zip(labels) {
        let found = words.find(|word| *word != "-->")?;
        *number = words.next()?.parse().ok().filter(|value| *value < bound)?;
        if found != label {
            return None;
        }
    }
    let (label, count) = (words.next()?, words.next()?);
    let count: u64 = count
        .parse()
        .ok()
        .filter(|count| *count < SECTORS_PER_TRACK_MAX)?;
    let count = count + u64::from(label == "seqcnt");
    let [lbn, cylinder, head, sector] = numbers;
    (count > 0).then_some((lbn, cylinder, head, sector, count))
}
