//! The drive: its controller and cache (block `disksim_disk`), and the bus and controller it is attached to.

use std::rc::Rc;

use super::fields::{Fields, nanos};
use super::tree::{Block, Part, Tree};
use super::{Files, ImportError, Imported, layout, mechanics};
use crate::plant::PlantSpec;
use crate::plant::controller::description::{
    Bus, Cache, Description, ExtraDisconnect, Kind, MarksOf, Overhead, ReadAhead, Requested,
};

const HEADS_MAX: u64 = 1_000;
const SEGMENTS_MAX: u64 = 10_000;
const SEGMENT_SECTORS_MAX: u64 = 1 << 24;
const PPM: f64 = 1e6;

/// Parameters that change nothing for a drive that gets one request at a time, or that other parts of
/// DiskSim use.
const WITHOUT_EFFECT: [&str; 11] = [
    "Scheduler",
    "Max queue length",
    "Print stats",
    "Avg sectors per cylinder",
    "Allow sneaky full read hits",
    "Allow sneaky partial read hits",
    "Allow sneaky intermediate read hits",
    "Allow write prebuffering",
    "Preseeking level",
    "Calc sector by sector",
    "Read directly to buffer",
];

pub(super) fn read(
    files: &dyn Files,
    tree: &Tree,
    file: &str,
    disk: Option<&str>,
) -> Result<Imported, ImportError> {
    let block = chosen(tree, file, disk)?;
    let disk = Fields::new(tree, block);
    let mut notes = tree.notes.clone();
    let model = disk.block("Model")?;
    if model.kind() != "dm_disk" {
        return Err(disk.wrong_at(
            "Model",
            format!("is a block of type {}, not dm_disk", model.kind()),
        ));
    }
    let heads = model.count("Number of data surfaces", 1, HEADS_MAX)?;
    let cylinders = model.count("Number of cylinders", 1, layout::CYLINDERS_MAX)?;
    let stated = model.count("Block count", 0, layout::SECTORS_MAX)?;
    let layout = layout::read(files, &model.block("Layout Model")?, heads, &mut notes)?;
    let mechanics_block = model.block("Mechanical Model")?;
    if mechanics_block.kind() != "dm_mech_g1" {
        let problem = format!(
            "`{}` is not known: expected dm_mech_g1",
            mechanics_block.kind()
        );
        return Err(model.wrong_at("Mechanical Model", problem));
    }
    let (mechanics, seek) = mechanics::read(files, &mechanics_block, cylinders, heads, &mut notes)?;
    notes.extend(model.unknown());
    let mut description = Description {
        kind: Kind::Controller,
        name: disk.name().to_owned(),
        description: format!("{}, from the DiskSim file {file}", disk.name()),
        sectors: stated,
        seek,
        mechanics,
        bus: bus(tree, block, &disk)?,
        overhead: overhead(&disk)?,
        cache: cache(&disk, &mut notes)?,
        layout,
    };
    disk.without_effect(&WITHOUT_EFFECT);
    notes.extend(disk.unknown());
    let sectors = description.capacity();
    if sectors != stated {
        notes.push(format!(
            "`Block count` is {stated}, but the layout has {sectors} sectors; the smaller number counts"
        ));
    }
    if stated == 0 || stated > sectors {
        description.sectors = sectors;
    }
    if let Some(last) = description
        .last_cylinder()
        .filter(|last| *last >= cylinders)
    {
        let problem = format!(
            "there are {cylinders}, numbered from 0, but the layout ends with cylinder {last}"
        );
        // Some files count one too few.
        if last > cylinders {
            return Err(model.wrong_at("Number of cylinders", problem));
        }
        notes.push(format!("`Number of cylinders`: {problem}"));
    }
    let toml = toml::to_string(&description)
        .map_err(|error| model.wrong(format!("the plant cannot be written: {error}")))?;
    let spec =
        PlantSpec::of_controller(description).map_err(|error| model.wrong(error.to_string()))?;
    Ok(Imported { spec, toml, notes })
}

/// The block of the drive: the named one, or the only one, or the only one of which there is an instance.
fn chosen<'a>(
    tree: &'a Tree,
    file: &str,
    disk: Option<&str>,
) -> Result<&'a Rc<Block>, ImportError> {
    let disks = || {
        tree.blocks
            .iter()
            .filter(|block| &*block.kind == "disksim_disk")
    };
    let names: Vec<&str> = disks().map(|block| &*block.name).collect();
    let listed = || names.join(", ");
    if let Some(name) = disk {
        let found = disks().find(|block| *block.name == *name);
        return found.ok_or_else(|| {
            let problem = format!("there is no drive `{name}`; the drives are: {}", listed());
            ImportError::new(file, problem)
        });
    }
    let used: Vec<&Rc<Block>> = disks()
        .filter(|block| tree.instances.iter().any(|(_, of)| *of == block.name))
        .collect();
    match (used.as_slice(), names.len()) {
        ([one], _) => Ok(one),
        (_, 0) => Err(ImportError::new(
            file,
            "there is no block of type disksim_disk, which describes a drive; include its .diskspecs file",
        )),
        (_, 1) => disks()
            .next()
            .ok_or_else(|| ImportError::new(file, "no drive")),
        _ => Err(ImportError::new(
            file,
            format!(
                "there are several drives; choose one with --disk: {}",
                listed()
            ),
        )),
    }
}

/// The components between the root of the topology and an instance of `block`.
fn path<'a>(parts: &'a [Part], tree: &Tree, block: &Block) -> Option<Vec<&'a Part>> {
    for part in parts {
        if tree
            .instance(&part.name)
            .is_some_and(|found| found.name == block.name)
        {
            return Some(vec![part]);
        }
        if let Some(mut path) = path(&part.below, tree, block) {
            path.insert(0, part);
            return Some(path);
        }
    }
    None
}

/// The bus that the drive is on. A sector takes as long as on the slowest of bus, drive and controller.
fn bus(tree: &Tree, block: &Block, disk: &Fields<'_>) -> Result<Bus, ImportError> {
    let own = disk.time("Bulk sector transfer time")?;
    let mut bus = Bus {
        read_sector_ns: own,
        write_sector_ns: own,
        arbitration_ns: 0,
        hold_for_read: disk.is("Hold bus entire read xfer")?,
        hold_for_write: disk.is("Hold bus entire write xfer")?,
        never_disconnect: disk.is("Never disconnect")?,
    };
    let above = path(&tree.topology, tree, block).unwrap_or_default();
    let nearest = |kind: &str| {
        let part = above.iter().rev().find(|part| &*part.kind == kind)?;
        tree.instance(&part.name)
    };
    if let Some(found) = nearest("disksim_bus") {
        let found = Fields::new(tree, found);
        bus.read_sector_ns = bus
            .read_sector_ns
            .max(found.time("Read block transfer time")?);
        bus.write_sector_ns = bus
            .write_sector_ns
            .max(found.time("Write block transfer time")?);
        // A shared bus needs no arbitration.
        if found.integer("type", 1, 2)? == 1 {
            bus.arbitration_ns = found.time("Arbitration time")?;
        }
    }
    if let Some(controller) = nearest("disksim_ctlr") {
        let controller = Fields::new(tree, controller);
        let sector = controller.float_if("Bulk sector transfer time", 0.0, 1e3)?;
        let sector = nanos(sector.unwrap_or(0.0)) as u64;
        bus.read_sector_ns = bus.read_sector_ns.max(sector);
        bus.write_sector_ns = bus.write_sector_ns.max(sector);
    }
    Ok(bus)
}

fn overhead(disk: &Fields<'_>) -> Result<Overhead, ImportError> {
    let scale = disk.float("Time scale for overheads", 0.0, 1e3)?;
    let scaled = |key| Ok::<u64, ImportError>((disk.time(key)? as f64 * scale).round() as u64);
    let extra_write_disconnect = if disk.is("Extra write disconnect")? {
        Some(ExtraDisconnect {
            command_ns: scaled("Extradisc command overhead")?,
            disconnect_ns: scaled("Extradisc disconnect overhead")?,
            between_ns: scaled("Extradisc inter-disconnect delay")?,
            second_disconnect_ns: scaled("Extradisc 2nd disconnect overhead")?,
            seek_delay_ns: scaled("Extradisc seek delta")?,
        })
    } else {
        disk.without_effect(&[
            "Extradisc command overhead",
            "Extradisc disconnect overhead",
            "Extradisc inter-disconnect delay",
            "Extradisc 2nd disconnect overhead",
            "Extradisc seek delta",
        ]);
        None
    };
    Ok(Overhead {
        request_ns: scaled("Per-request overhead time")?,
        read_hit_after_read_ns: scaled("Read hit over. after read")?,
        read_hit_after_write_ns: scaled("Read hit over. after write")?,
        read_miss_after_read_ns: scaled("Read miss over. after read")?,
        read_miss_after_write_ns: scaled("Read miss over. after write")?,
        write_hit_after_read_ns: scaled("Write hit over. after read")?,
        write_hit_after_write_ns: scaled("Write hit over. after write")?,
        write_miss_after_read_ns: scaled("Write miss over. after read")?,
        write_miss_after_write_ns: scaled("Write miss over. after write")?,
        read_completion_ns: scaled("Read completion overhead")?,
        write_completion_ns: scaled("Write completion overhead")?,
        data_preparation_ns: scaled("Data preparation overhead")?,
        first_reselect_ns: scaled("First reselect overhead")?,
        other_reselect_ns: scaled("Other reselect overhead")?,
        read_disconnect_after_read_ns: scaled("Read disconnect afterread")?,
        read_disconnect_after_write_ns: scaled("Read disconnect afterwrite")?,
        write_disconnect_ns: scaled("Write disconnect overhead")?,
        write_seek_min_ns: disk.time("Minimum seek delay")?,
        extra_write_disconnect,
    })
}

fn cache(disk: &Fields<'_>, notes: &mut Vec<String>) -> Result<Cache, ImportError> {
    let mark = |key| Ok::<u64, ImportError>((disk.float(key, 0.0, 1.0)? * PPM).round() as u64);
    let segment_sectors = disk.count("Segment size (in blks)", 1, SEGMENT_SECTORS_MAX)?;
    let mut segments = disk.count("Number of buffer segments", 0, SEGMENTS_MAX)?;
    if segments == 0 {
        notes.push(
            "`Number of buffer segments` is 0, but a transfer needs one; there is one".into(),
        );
        segments = 1;
    }
    let read_ahead = match disk.integer("Buffer continuous read", 0, 4)? {
        0 => ReadAhead::None,
        1 => ReadAhead::ToTrackEnd,
        2 => ReadAhead::ToCylinderEnd,
        3 => ReadAhead::ToSegmentEnd,
        _ => ReadAhead::TrackAhead,
    };
    let min = disk.count("Minimum read-ahead (blks)", 0, segment_sectors)?;
    let max = disk.count("Maximum read-ahead (blks)", 0, segment_sectors)?;
    let enabled = disk.integer("Enable caching in buffer", 0, 2)? > 0;
    let fast_write = disk.integer("Fast write level", 0, 2)? > 0;
    for (key, is_set) in [
        ("Buffer continuous read", read_ahead != ReadAhead::None),
        ("Fast write level", fast_write),
        ("Read any free blocks", disk.is("Read any free blocks")?),
    ] {
        if is_set && !enabled {
            let problem = "needs a cache, but `Enable caching in buffer` is 0; set one of them";
            return Err(disk.wrong_at(key, problem));
        }
    }
    let read_ahead_min_sectors = if read_ahead == ReadAhead::None {
        0
    } else {
        min
    };
    Ok(Cache {
        enabled,
        segments,
        segment_sectors,
        write_segments: disk.count("Maximum number of write segments", 1, segments)?,
        separate_write_segment: disk.is("Use separate write segment")?,
        read_hits_on_written: disk.is("Allow read hits on write data")?,
        fast_write,
        combine_writes: disk.is("Combine seq writes")?,
        write_hit_stops_read_ahead: disk.is("Write hit stop prefetch")?,
        hit_on_sector_being_read: disk.is("Allow almost read hits")?,
        partial_hit_at_once: disk.is("Immed transfer partial hit")?,
        read_mark_ppm: mark("High (read) water mark")?,
        write_mark_ppm: mark("Low (write) water mark")?,
        marks_of: if disk.is("Set watermark by reqsize")? {
            MarksOf::Request
        } else {
            MarksOf::Segment
        },
        read_ahead,
        read_ahead_min_sectors,
        read_ahead_max_sectors: if read_ahead == ReadAhead::None {
            0
        } else {
            max.max(min)
        },
        read_ahead_over_requested: match disk.integer("Read-ahead over requested", -1, 1)? {
            -1 => Requested::Dropped,
            0 => Requested::Kept,
            _ => Requested::Replaced,
        },
        read_ahead_after_hit: disk.is("Read-ahead on idle hit")?,
        stop_within_sector: disk.is("Stop prefetch in sector")?,
        finish_seek_in_background: disk.is("Disconnect write if seek")?,
        read_before_requested: disk.is("Read any free blocks")?,
        zero_latency_read: disk.integer("Immediate buffer read", 0, 2)? > 0,
        zero_latency_write: disk.integer("Immediate buffer write", 0, 2)? > 0,
    })
}
