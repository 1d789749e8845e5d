//! Disks for benchmarks.

use std::path::Path;
use std::sync::Arc;

use engine::buffer::Memory;
use engine::disk::Disk;
use engine::pool::PoolDisk;
use engine::uring::UringDisk;
use sched::profile::{DriveKind, DriveProfile, FlatSpec, ProfileSpec};

/// A file in memory. Its profile is less cautious than that of an unknown file: `outstanding` requests at a time,
/// each of which takes `overhead_us` and the transfer at 500 MB/s.
pub(crate) fn in_memory(
    path: &Path,
    memory: &Memory,
    outstanding: u32,
    overhead_us: u64,
) -> PoolDisk {
    // The metadata of a pool needs some too.
    let entries = outstanding.max(4) as usize;
    let disk = UringDisk::open(path, memory, entries).expect("the file");
    let spec = ProfileSpec {
        name: "memory".into(),
        kind: DriveKind::File,
        measured: false,
        sources: Vec::new(),
        outstanding,
        capacity_sectors: disk.capacity().0,
        physical_sector_bytes: 512,
        widened_percent: 0,
        trust_worst_case: false,
        measurement: None,
        rotating: None,
        flat: Some(FlatSpec {
            read_overhead_us: overhead_us,
            write_overhead_us: overhead_us,
            read_bytes_per_second: 500_000_000,
            write_bytes_per_second: 500_000_000,
        }),
        worst_case: Vec::new(),
    };
    PoolDisk {
        name: path.display().to_string(),
        disk: Box::new(disk),
        profile: Arc::new(DriveProfile::new(spec).expect("a profile")),
        profile_is_measured: false,
    }
}
