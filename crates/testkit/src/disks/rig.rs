//! Pools of disks in memory.

use std::sync::Arc;

use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Durability;
use engine::pool::{CreateOptions, Floor, OpenOptions, Pool, PoolDisk, PoolError, StallLimits};
use rand::rngs::StdRng;
use sched::profile::{DriveKind, DriveProfile, FlatSpec, ProfileSpec};
use sched::units::{Bytes, Nanos, SectorCount};

use super::platter::{MemDisk, Platter, SECTOR};

/// The disks of a pool.
pub struct Rig {
    pub platters: Vec<Arc<Platter>>,
    pub memory: Memory,
    pub profile: Arc<DriveProfile>,
    pub options: OpenOptions,
}

pub const MIB: u64 = 1 << 20;

impl Rig {
    /// `count` disks of `bytes` each.
    pub fn new(count: usize, bytes: u64, durability: Durability) -> Self {
        let sectors = SectorCount(bytes / SECTOR as u64);
        let profile = DriveProfile::new(ProfileSpec {
            name: "memory".into(),
            kind: DriveKind::SolidState,
            measured: false,
            sources: Vec::new(),
            outstanding: 1,
            capacity_sectors: sectors.0,
            physical_sector_bytes: 512,
            widened_percent: 0,
            trust_worst_case: false,
            measurement: None,
            rotating: None,
            flat: Some(FlatSpec {
                read_overhead_us: 200,
                write_overhead_us: 200,
                read_bytes_per_second: 500_000_000,
                write_bytes_per_second: 500_000_000,
            }),
            worst_case: Vec::new(),
        })
        .unwrap();
        Self::of_drives(count, profile, durability)
    }

    /// `count` disks as large and, to the scheduler, as slow as such a drive.
    pub fn of_drives(count: usize, profile: DriveProfile, durability: Durability) -> Self {
        let bytes = profile.capacity().0 * SECTOR as u64;
        let platter = |_| Platter::new(bytes, durability);
        let platters: Vec<_> = (0..count).map(platter).collect();
        let mut config = MemoryConfig::new(Bytes::from_mib(64));
        config.lock = false;
        Self {
            platters,
            memory: Memory::new(&config).unwrap(),
            profile: Arc::new(profile),
            options: OpenOptions {
                name: "test".into(),
                floor: Floor::Share { permille: 50 },
                realtime: false,
                ..OpenOptions::default()
            },
        }
    }

    pub fn disks(&self) -> Vec<PoolDisk> {
        let disk = |(index, platter): (usize, &Arc<Platter>)| PoolDisk {
            name: format!("disk{index}"),
            disk: Box::new(MemDisk::new(platter)),
            profile: Arc::clone(&self.profile),
            profile_is_measured: false,
        };
        self.platters.iter().enumerate().map(disk).collect()
    }

    /// Makes a pool with extents of `extent_bytes`.
    pub fn create(&self, extent_bytes: u64) {
        let options = CreateOptions {
            name: "test".into(),
            extent_bytes: Some(Bytes(extent_bytes)),
            // A platter is not blank.
            force: true,
        };
        Pool::create(&self.memory, self.disks(), &options).unwrap();
    }

    pub fn try_open(&self) -> Result<Arc<Pool>, PoolError> {
        Pool::open(self.memory.clone(), self.disks(), self.options.clone())
    }

    pub fn open(&self) -> Arc<Pool> {
        self.try_open().unwrap_or_else(|error| panic!("{error}"))
    }

    /// A new pool, open, whose disks of 32 MiB are stalled and given up after these times.
    pub fn with_patience(
        count: usize,
        durability: Durability,
        stalled_after: Nanos,
        give_up_after: Nanos,
    ) -> (Self, Arc<Pool>) {
        let mut rig = Self::new(count, 32 * MIB, durability);
        rig.options.patience = StallLimits {
            stalled_after,
            give_up_after,
        };
        rig.create(MIB);
        let pool = rig.open();
        (rig, pool)
    }

    /// A new pool, open.
    pub fn fresh(
        count: usize,
        bytes: u64,
        extent_bytes: u64,
        durability: Durability,
    ) -> (Self, Arc<Pool>) {
        let rig = Self::new(count, bytes, durability);
        rig.create(extent_bytes);
        let pool = rig.open();
        (rig, pool)
    }

    /// The disks as they would be if the power were cut at this instant.
    pub fn after_power_cut(&self, rng: &mut StdRng) -> Self {
        Self {
            platters: Platter::after_power_cut(&self.platters, rng),
            memory: self.memory.clone(),
            profile: Arc::clone(&self.profile),
            options: self.options.clone(),
        }
    }
}
