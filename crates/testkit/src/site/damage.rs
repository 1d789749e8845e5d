//! Damage to disks of a pool in files: torn writes, newer versions, lost records.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{DISK_MIB, Site, read};

/// One block of metadata.
pub const BLOCK: usize = 4096;

/// Start of the second copy of a disk's superblock.
pub const SECOND_COPY: u64 = DISK_MIB * (1 << 20) - BLOCK as u64;

/// Changes a block of a disk.
pub fn change(disk: &Path, at: u64, change: impl FnOnce(&mut [u8; BLOCK])) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(disk)
        .expect("the disk is there");
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, at).expect("it can be read");
    change(&mut block);
    file.write_all_at(&block, at).expect("it can be written");
}

/// A torn write: the first half is new, the second never came.
pub fn tear(disk: &Path, at: u64) {
    change(disk, at, |block| block[64..512].fill(0xa5));
}

/// CRC-64/NVME, bit by bit: the format's checksum, from its definition and not from its code.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut crc = u64::MAX;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x9a6c_9329_ac4b_c9b5
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

/// Makes a superblock one of format version 99, intact.
pub fn make_newer(disk: &Path, at: u64) {
    change(disk, at, |block| {
        block[8..12].copy_from_slice(&99u32.to_le_bytes());
        block[16..24].fill(0);
        let sum = checksum(block);
        block[16..24].copy_from_slice(&sum.to_le_bytes());
    });
}

/// Starts of the two copies of the volume table, on the first disk.
pub const TABLES: [u64; 2] = [65_536, 557_056];

/// A record of the metadata log, as far as docs/design/format.md describes its header.
#[derive(Clone, Debug)]
pub struct LogRecord {
    pub disk: PathBuf,
    pub at: u64,
    pub kind: u8,
    pub epoch: u64,
    pub sequence: u64,
    pub transaction: u64,
}

/// All records that are on the disks of a site, those that are no longer in use included.
pub fn records(site: &Site, disks: usize) -> Vec<LogRecord> {
    let mut found = Vec::new();
    for number in 0..disks {
        let disk = site.path(&format!("disk-{number}"));
        let bytes = read(&disk);
        for (index, block) in bytes.chunks_exact(BLOCK).enumerate() {
            let word =
                |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
            if block.starts_with(b"CLKR") {
                found.push(LogRecord {
                    disk: disk.clone(),
                    at: (index * BLOCK) as u64,
                    kind: block[4],
                    epoch: word(48),
                    sequence: word(56),
                    transaction: word(64),
                });
            }
        }
    }
    found
}
