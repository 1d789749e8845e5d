//! Opening a pool: its disks, its newest table, the nodes, and the log rolled forward.

use std::collections::BTreeSet;

use sched::units::Sector;

use crate::identify::{Found, identify, stale};
use crate::image::Image;
use crate::limits::BLOCK_BYTES;
use crate::medium::{Candidate, Medium};
use crate::ondisk::mark::{self, MARK_AT};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::table::{Table, TableError};
use crate::place::{Geometry, Place};
use crate::problem::Problem;
use crate::replay::{Reader, Tail};

/// A pool as it was found.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) disks: Vec<Found>,
    pub(crate) table: Table,
    pub(crate) image: Image,
    pub(crate) tail: Tail,
    /// The extents that hold metadata which the table or the log refers to.
    pub(crate) metadata: BTreeSet<Place>,
    pub(crate) notes: Vec<Problem>,
}

impl Opened {
    pub(crate) fn geometry(&self) -> Geometry {
        self.disks[0].superblock.geometry
    }
}

/// Reads a pool's metadata. Collects what is wrong as far as it gets.
pub(crate) fn read_pool(
    medium: &mut dyn Medium,
    candidates: &[Candidate],
) -> Result<Opened, Vec<Problem>> {
    let identified = identify(medium, candidates);
    let mut notes = identified.notes;
    let disks: Vec<Found> = identified.disks.into_iter().flatten().collect();
    if !identified.problems.is_empty() || disks.is_empty() {
        return Err(identified.problems);
    }
    let newest = newest_superblock(&disks);
    let (table, also_damaged) =
        read_tables(medium, &disks, &newest).map_err(|problem| vec![problem])?;
    let old = stale(&disks, newest.table_disk, table.pool_generation);
    if !old.is_empty() {
        return Err(old);
    }
    let lead = disks[usize::from(newest.table_disk.0)].name.clone();
    let marked = read_mark(medium, &disks, &newest, &mut notes);
    let table_lost = || {
        vec![Problem::TableLost {
            disk: lead.clone(),
            generation: table.generation,
        }]
    };
    if marked.is_some_and(|generation| generation > table.generation) {
        return Err(table_lost());
    }
    let mut reader = Reader::new(medium, &disks);
    let mut problems = Vec::new();
    let mut image = reader.nodes(&table, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut metadata = image.node_extents();
    let tail = reader
        .roll_forward(&table, newest.owner, &mut image)
        .map_err(|problem| vec![problem])?;
    if tail.later_epoch {
        return Err(table_lost());
    }
    if let Some(copy) = also_damaged {
        notes.push(Problem::OneTableDamaged {
            disk: lead.clone(),
            copy,
        });
    }
    if let Err(what) = image.check_names() {
        return Err(vec![Problem::Inconsistent { what }]);
    }
    metadata.extend(tail.extents.iter().chain(&tail.next));
    Ok(Opened {
        disks,
        table,
        image,
        tail,
        metadata,
        notes,
    })
}

pub(crate) fn newest_superblock(disks: &[Found]) -> Superblock {
    let newest = disks.iter().max_by_key(|disk| disk.superblock.generation);
    newest.map_or_else(
        || disks[0].superblock.clone(),
        |disk| disk.superblock.clone(),
    )
}

/// The newest readable table, and which copy is damaged, if one is.
fn read_tables(
    medium: &mut dyn Medium,
    disks: &[Found],
    superblock: &Superblock,
) -> Result<(Table, Option<usize>), Problem> {
    let lead = &disks[usize::from(superblock.table_disk.0)];
    let mut tables = Vec::new();
    let mut damaged = None;
    for (copy, at) in superblock.tables.iter().enumerate() {
        match read_table(medium, lead, *at, superblock)? {
            Ok(table) => tables.push(table),
            Err(TableError::Damaged) => damaged = Some(copy),
            Err(TableError::NotOne) => {}
        }
    }
    let newest = tables.into_iter().max_by_key(|table| table.generation);
    let newest = newest.ok_or_else(|| Problem::NoTable {
        disk: lead.name.clone(),
    })?;
    Ok((newest, damaged))
}

/// The generation of the table that was durable last, as its mark says. Without a mark, the tables have to
/// be believed.
fn read_mark(
    medium: &mut dyn Medium,
    disks: &[Found],
    superblock: &Superblock,
    notes: &mut Vec<Problem>,
) -> Option<u64> {
    let lead = &disks[usize::from(superblock.table_disk.0)];
    let mut block = vec![0; BLOCK_BYTES as usize];
    match medium.read(lead.candidate, Sector(MARK_AT), &mut block) {
        Ok(()) => mark::parse(&block, &superblock.pool),
        Err(error) => {
            notes.push(Problem::Unreadable {
                disk: lead.name.clone(),
                at: MARK_AT,
                reason: error.to_string(),
            });
            None
        }
    }
}

fn read_table(
    medium: &mut dyn Medium,
    lead: &Found,
    at: Sector,
    superblock: &Superblock,
) -> Result<Result<Table, TableError>, Problem> {
    let mut read = |buffer: &mut [u8]| {
        medium
            .read(lead.candidate, at, buffer)
            .map_err(|error| Problem::Unreadable {
                disk: lead.name.clone(),
                at: at.0,
                reason: error.to_string(),
            })
    };
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    read(&mut bytes)?;
    let room = superblock.table_bytes.0 as usize;
    if let Some(length) =
        Table::length(&bytes).filter(|length| *length > bytes.len() && *length <= room)
    {
        bytes.resize(length, 0);
        read(&mut bytes)?;
    }
    Ok(Table::parse(&bytes, &superblock.pool))
}

/// Owner of an extent.
#[derive(Clone, Copy)]
enum Owner<'a> {
    Metadata,
    Volume(&'a str, usize),
}

impl std::fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Metadata => f.write_str("the metadata log"),
            Self::Volume(name, index) => write!(f, "extent {index} of volume {name:?}"),
        }
    }
}

/// Checks the owners of all extents: every volume, the log and the nodes; each extent once and in range.
pub(crate) fn check_owners(opened: &Opened) -> Vec<Problem> {
    let mut problems = Vec::new();
    let exists = |place: &Place| {
        let disk = opened.disks.get(usize::from(place.disk.0));
        disk.is_some_and(|disk| place.extent < disk.superblock.extents)
    };
    let metadata = opened
        .metadata
        .iter()
        .map(|place| (*place, Owner::Metadata));
    let volumes = opened.image.volumes.values().flat_map(|node| {
        let extents = node.extents.iter().enumerate();
        extents.map(|(index, (place, _))| (*place, Owner::Volume(&node.name, index)))
    });
    let mut owners = std::collections::HashMap::new();
    for (place, owner) in metadata.chain(volumes) {
        if !exists(&place) {
            let owner = owner.to_string();
            problems.push(Problem::OutOfRange { owner, place });
        } else if let Some(first) = owners.insert(place, owner) {
            let (first, second) = (first.to_string(), owner.to_string());
            problems.push(Problem::OwnedTwice {
                place,
                first,
                second,
            });
        }
    }
    for place in opened.image.grades.keys().filter(|place| !exists(place)) {
        let owner = "the list of bad and slow extents".to_owned();
        problems.push(Problem::OutOfRange {
            owner,
            place: *place,
        });
    }
    problems
}
