//! Opening a pool: its disks, its newest table, the nodes, and the log rolled forward.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use sched::units::Sector;

use crate::disk::superblock::Superblock;
use crate::disk::table::{Table, TableError};
use crate::identify::{Found, identify, stale};
use crate::image::Image;
use crate::limits::BLOCK_BYTES;
use crate::medium::{Candidate, Medium};
use crate::place::{Geometry, Place};
use crate::pool::Uuid;
use crate::replay::{Reader, Tail};

/// Why a pool does not open: everything that is wrong, a line each.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct OpenError {
    /// What is wrong.
    pub problems: Vec<Problem>,
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Identities are shown as UUIDs are.
fn uuid(id: &Uuid) -> String {
    let mut text = String::new();
    for (index, byte) in id.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Something that keeps a pool from opening, or that a check has found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No disks were given.
    #[error("no disks were given")]
    NoDisks,
    /// A disk cannot be read.
    #[error("{disk}: cannot be read at sector {at}: {reason}")]
    Unreadable {
        /// The disk.
        disk: String,
        /// The sector.
        at: u64,
        /// What the disk said.
        reason: String,
    },
    /// Nothing of ours on it.
    #[error("{disk}: not a Clockwise disk (no superblock)")]
    NotOurs {
        /// The disk.
        disk: String,
    },
    /// Both superblocks torn.
    #[error("{disk}: both copies of its superblock are damaged")]
    SuperblocksDamaged {
        /// The disk.
        disk: String,
    },
    /// One superblock torn; no harm.
    #[error("{disk}: the {} copy of its superblock is damaged; the other one serves, and starting the pool rewrites both", ["first", "second"][*copy])]
    OneCopyDamaged {
        /// The disk.
        disk: String,
        /// Which, 0 or 1.
        copy: usize,
    },
    /// A superblock that is intact and makes no sense.
    #[error("{disk}: its superblock is intact but impossible: {what}")]
    Impossible {
        /// The disk.
        disk: String,
        /// What is impossible.
        what: &'static str,
    },
    /// Written by a later program.
    #[error(
        "{disk}: has format version {version}, which is newer than this program knows; use a newer Clockwise"
    )]
    NewerVersion {
        /// The disk.
        disk: String,
        /// Its version.
        version: u32,
    },
    /// Smaller than it was.
    #[error("{disk}: has shrunk to {now} sectors from {was}")]
    Shrunk {
        /// The disk.
        disk: String,
        /// Sectors now.
        now: u64,
        /// Sectors when the pool was made.
        was: u64,
    },
    /// A disk of another pool.
    #[error("{disk}: belongs to another pool ({}), not to {}", uuid(.pool), uuid(.expected))]
    Foreign {
        /// The disk.
        disk: String,
        /// Its pool.
        pool: Uuid,
        /// The pool of the others.
        expected: Uuid,
    },
    /// Says it is disk n, but the pool knows another disk n.
    #[error(
        "{disk}: says that it is disk {number} of the pool, but the pool has another disk {number}"
    )]
    Replaced {
        /// The disk.
        disk: String,
        /// Its number.
        number: usize,
    },
    /// The same disk twice, or a copy of it.
    #[error(
        "{first} and {second}: both are disk {number} of the pool; one is a copy of the other, or the same disk was given twice"
    )]
    Duplicate {
        /// The one that came first.
        first: String,
        /// The other.
        second: String,
        /// The number of both.
        number: usize,
    },
    /// Not there.
    #[error("disk {number} of the pool's {of} is missing (its identity is {})", uuid(.id))]
    Missing {
        /// Its number.
        number: usize,
        /// How many there are.
        of: usize,
        /// Its identity.
        id: Uuid,
    },
    /// Behind the others.
    #[error(
        "{disk}: disk {number} of the pool is stale: it was left at generation {generation}, the pool went on to {newest} without it"
    )]
    Stale {
        /// The disk.
        disk: String,
        /// Its number.
        number: usize,
        /// Its generation.
        generation: u64,
        /// The newest generation in the pool.
        newest: u64,
    },
    /// No table.
    #[error("{disk}: neither copy of the volume table is readable")]
    NoTable {
        /// The disk.
        disk: String,
    },
    /// The newest table is lost, which is more than a crash does.
    #[error(
        "{disk}: the newest copy of the volume table is damaged; the older one (generation {generation}) is out of date"
    )]
    TableLost {
        /// The disk.
        disk: String,
        /// The generation of the readable one.
        generation: u64,
    },
    /// One table torn; no harm.
    #[error(
        "{disk}: copy {copy} of the volume table is damaged, as a crash leaves it; the other one serves"
    )]
    OneTableDamaged {
        /// The disk.
        disk: String,
        /// Which, 0 or 1.
        copy: usize,
    },
    /// A node is not where the table says.
    #[error("the node of volume {volume} at {at} is damaged: {what}")]
    NodeDamaged {
        /// The volume's number.
        volume: u64,
        /// Where.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// The list of bad extents is damaged.
    #[error("the list of bad extents at {at} is damaged: {what}")]
    BadListDamaged {
        /// Where.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// The log breaks off before its end.
    #[error(
        "the metadata log is damaged at {at}: record {sequence} is lost, but later ones are there"
    )]
    LogDamaged {
        /// Where.
        at: String,
        /// The record.
        sequence: u64,
    },
    /// A record that is intact and makes no sense.
    #[error("record {sequence} of the metadata log at {at} is impossible: {what}")]
    LogImpossible {
        /// Where.
        at: String,
        /// The record.
        sequence: u64,
        /// What is wrong.
        what: String,
    },
    /// One extent, two owners.
    #[error("{place} belongs to {first} and to {second}")]
    OwnedTwice {
        /// The extent.
        place: Place,
        /// One owner.
        first: String,
        /// The other.
        second: String,
    },
    /// An extent that is not there.
    #[error("{owner} has {place}, which does not exist")]
    OutOfRange {
        /// Who has it.
        owner: String,
        /// The extent.
        place: Place,
    },
    /// Volumes at odds with each other.
    #[error("the volumes are inconsistent: {what}")]
    Inconsistent {
        /// What is wrong.
        what: String,
    },
}

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
    let mut reader = Reader::new(medium, &disks);
    let mut problems = Vec::new();
    let mut image = reader.nodes(&table, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut metadata = image.node_extents();
    let tail = reader
        .roll_forward(&table, &mut image)
        .map_err(|problem| vec![problem])?;
    if tail.later_epoch {
        return Err(vec![Problem::TableLost {
            disk: lead,
            generation: table.generation,
        }]);
    }
    if let Some(copy) = also_damaged {
        notes.push(Problem::OneTableDamaged { disk: lead, copy });
    }
    if let Err(what) = image.check_names() {
        return Err(vec![Problem::Inconsistent { what }]);
    }
    metadata.extend(&tail.extents);
    Ok(Opened {
        disks,
        table,
        image,
        tail,
        metadata,
        notes,
    })
}

fn newest_superblock(disks: &[Found]) -> Superblock {
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

/// Who has an extent.
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

/// Who has which extent: every volume, the log and the nodes; every one once and in range.
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
    for place in opened.image.bad.iter().filter(|place| !exists(place)) {
        let owner = "the list of bad extents".to_owned();
        problems.push(Problem::OutOfRange {
            owner,
            place: *place,
        });
    }
    problems
}
