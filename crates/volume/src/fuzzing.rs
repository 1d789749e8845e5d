//! Entry points of the fuzz targets: arbitrary bytes go through each parser, and every accepted value must
//! leave its encoder unchanged.

use crate::medium::{Candidate, Medium};
use crate::ondisk::change::Change;
use crate::ondisk::first_owner;
use crate::ondisk::record::{Header, PAYLOAD_BYTES_MAX, Record, RecordError};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::table::Table;
use crate::place::Geometry;
use crate::place::Uuid;
use crate::pool::PoolState;
use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount};

/// The pool that the corpus is of.
pub const POOL: Uuid = [1; 16];

fn geometry() -> Geometry {
    Geometry::new(Bytes::from_kib(64)).expect("64 KiB is an extent size")
}

/// `data` with the right checksum at `field`, over its first `length` bytes.
fn sealed(data: &[u8], field: usize, length: usize) -> Option<Vec<u8>> {
    let mut bytes = data.get(..length)?.to_vec();
    let sum = crate::ondisk::checksum_around(&bytes, field);
    bytes[field..field + 8].copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

/// A superblock, as it is and with its checksum made good.
pub fn superblock(data: &[u8]) {
    let _ = Superblock::parse(data);
    let Some(bytes) = sealed(data, 16, 4096) else {
        return;
    };
    if let Ok(parsed) = Superblock::parse(&bytes) {
        assert_eq!(Superblock::parse(&parsed.encode()), Ok(parsed));
    }
}

/// A volume table, as it is and with its checksum made good.
pub fn table(data: &[u8]) {
    let _ = Table::parse(data, &POOL);
    let Some(bytes) = Table::length(data).and_then(|length| sealed(data, 8, length)) else {
        return;
    };
    if let Ok(parsed) = Table::parse(&bytes, &POOL) {
        assert_eq!(Table::parse(&parsed.encode(), &POOL), Ok(parsed));
    }
}

/// A log record, as it is and with its checksum made good.
pub fn record(data: &[u8]) {
    let _ = Record::parse(data, &POOL, geometry());
    let length = Record::length_in_blocks(data).map(|blocks| blocks as usize * 4096);
    let Some(bytes) = length.and_then(|length| sealed(data, 16, length)) else {
        return;
    };
    match Record::parse(&bytes, &POOL, geometry()) {
        Ok(parsed) => round_trip(&parsed.header, &parsed.change),
        Err(error) => assert_ne!(error, RecordError::Damaged),
    }
}

fn round_trip(header: &Header, change: &Change) {
    let mut encoded = Vec::new();
    let checksum = Record::encode(header, &POOL, change, geometry(), &mut encoded);
    let again = Record::parse(&encoded, &POOL, geometry()).expect("what was encoded parses");
    assert_eq!(
        (again.checksum, &again.header, &again.change),
        (checksum, header, change)
    );
}

/// Parses a record: the first byte is its kind, the rest its payload.
pub fn node(data: &[u8]) {
    let Some((kind, payload)) = data.split_first() else {
        return;
    };
    let Ok(change) = Change::parse(*kind, payload, geometry()) else {
        return;
    };
    if payload.len() <= PAYLOAD_BYTES_MAX {
        let header = Header {
            epoch: 1,
            owner: first_owner(&POOL),
            sequence: 2,
            transaction: 2,
            previous: 0,
            commit: true,
            next: None,
        };
        round_trip(&header, &change);
    }
}

/// A log as the disk of a small pool holds it: `data` lies where the log begins. Blocks that begin a
/// record are chained and sealed, so that what they say is believed. Opening must say yes or no, and
/// what opens must map.
pub fn log(data: &[u8]) {
    let sectors = SectorCount(((1 << 20) + LOG_EXTENTS * (64 << 10) + 4096) / SECTOR_BYTES);
    let disk = |number: u8| Candidate {
        name: format!("disk {number}"),
        sectors,
    };
    let disks = [disk(0), disk(1)];
    let spec = crate::FormatSpec {
        pool: POOL,
        disks: (2..).map(|id| [id; 16]).zip(disks.clone()).collect(),
        extent_bytes: geometry().extent_bytes(),
    };
    let mut memory = Memory(vec![vec![0; sectors.bytes().0 as usize]; disks.len()]);
    for step in PoolState::format(&spec).expect("a pool of this size can be made") {
        if let crate::Step::Write { disk, start, data } = step {
            let start = (start.0 * SECTOR_BYTES) as usize;
            memory.0[usize::from(disk.0)][start..start + data.len()].copy_from_slice(&data);
        }
    }
    // The log of a new pool begins in the last extent of the first disk.
    let mut at = (1 << 20) + (LOG_EXTENTS as usize - 1) * (64 << 10);
    let end = memory.0[0].len() - 4096;
    let mut chain = Chain {
        previous: 0,
        sequence: 1,
        transaction: 1,
    };
    for block in data.chunks(4096).take((end - at) / 4096) {
        let place = &mut memory.0[0][at..at + 4096];
        place[..block.len()].copy_from_slice(block);
        if Record::length_in_blocks(place) == Some(1) {
            chain.seal(place);
        }
        at += 4096;
    }
    if let Ok(pool) = PoolState::open(&mut memory, &disks) {
        for (_, map) in pool.volumes() {
            let length = usize::try_from(map.size().0).expect("a volume of a small pool");
            assert!(
                map.reads(0, length)
                    .expect("the whole volume")
                    .all(|piece| piece.is_ok())
            );
        }
    }
}

/// The extents of each of the two disks that [`log`] opens: those of the corpus.
const LOG_EXTENTS: u64 = 12;

struct Memory(Vec<Vec<u8>>);

impl Medium for Memory {
    fn read(&mut self, disk: usize, start: Sector, buffer: &mut [u8]) -> std::io::Result<()> {
        let start = (start.0 * SECTOR_BYTES) as usize;
        let part = self.0[disk].get(start..start + buffer.len());
        buffer.copy_from_slice(part.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Makes records follow each other in epoch 1.
struct Chain {
    previous: u64,
    sequence: u64,
    transaction: u64,
}

impl Chain {
    fn seal(&mut self, block: &mut [u8]) {
        let mut put =
            |at: usize, value: u64| block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(24, self.previous);
        put(48, 1);
        put(56, self.sequence);
        put(64, self.transaction);
        block[32..48].copy_from_slice(&POOL);
        self.previous = crate::ondisk::checksum_around(block, 16);
        block[16..24].copy_from_slice(&self.previous.to_le_bytes());
        self.sequence += 1;
        if block[5] & crate::ondisk::record::COMMIT != 0 {
            self.transaction = self.sequence;
        }
    }
}
