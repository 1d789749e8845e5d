//! A pool on a disk in memory.

use std::sync::Arc;

use engine::buffer::{Memory, MemoryConfig};
use engine::disk::{Disk, Durability};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, Volume, VolumeSpec};
use engine::volume_io::{Client, ClientOptions};
use sched::profile::{DriveKind, DriveProfile};
use sched::units::Bytes;
pub(crate) use testkit::disks::platter::{MemDisk, Platter};

pub(crate) struct Rig {
    pub(crate) pool: Arc<Pool>,
    pub(crate) client: Client,
    #[allow(dead_code, reason = "not every test counts what it does")]
    pub(crate) platter: Arc<Platter>,
}

impl Rig {
    pub(crate) fn new(bytes: u64) -> Self {
        let config = MemoryConfig {
            lock: false,
            ..MemoryConfig::new(Bytes::from_mib(32))
        };
        let memory = Memory::new(&config).unwrap();
        let platter = Platter::new(bytes, Durability::WriteThrough);
        let disks = || {
            let disk = MemDisk::new(&platter);
            let profile = DriveProfile::conservative(DriveKind::File, disk.capacity());
            vec![PoolDisk {
                name: "disk".into(),
                disk: Box::new(disk),
                profile: Arc::new(profile.unwrap()),
                profile_is_measured: false,
            }]
        };
        let options = CreateOptions {
            name: "test".into(),
            extent_bytes: Some(Bytes::from_mib(1)),
            force: true,
        };
        Pool::create(&memory, disks(), &options).unwrap();
        let pool = Pool::open(memory.clone(), disks(), OpenOptions::default()).unwrap();
        let client = pool.client("test", ClientOptions::default()).unwrap();
        Self {
            pool,
            client,
            platter,
        }
    }

    pub(crate) fn volume(&self, name: &str, size: u64) -> Arc<Volume> {
        let spec = VolumeSpec {
            name: name.into(),
            size: Bytes(size),
            placement: Placement::default(),
        };
        self.pool.create_volume(&spec).unwrap();
        self.pool.open_volume(name).unwrap()
    }
}
