//! The server under test: a real pool on files, on an emulated drive, or on disks in memory whose power
//! can be cut, and its NBD export.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clockwise::exports::nbd::{NbdConfig, Server};
use clockwise::exports::{ExportReservation, Volumes};
use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::PlantSpec;
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::{Disk, Durability};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::uring::UringDisk;
use rand::rngs::StdRng;
use sched::profile::{DriveKind, DriveProfile};
use sched::units::Bytes;

use testkit::disks::platter::{MemDisk, Platter};

/// Size of a file, and of a disk in memory.
const DISK_BYTES: u64 = 512 << 20;

/// ConnectionLimits of a file: as many requests as a busy client has.
const PLACES: usize = 32;

/// A pool with a folder of its own, served over NBD.
pub(crate) struct Rig {
    server: Option<Server>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) socket: PathBuf,
    pub(crate) tcp: SocketAddr,
    folder: tempfile::TempDir,
    disks: Disks,
}

/// Disks of a pool.
#[derive(Clone)]
enum Disks {
    /// Number of files.
    Files(usize),
    /// One emulated drive that takes its time.
    Drive,
    /// Memory, which loses in a power cut what was not made durable.
    Platters(Vec<Arc<Platter>>),
}

/// A pool that is not served yet.
struct Made {
    pool: Arc<Pool>,
    folder: tempfile::TempDir,
    disks: Disks,
}

/// A new pool with these volumes (name, MiB).
fn made(disks: Disks, volumes: &[(&str, u64)], memory: Bytes) -> Made {
    let folder = tempfile::tempdir().unwrap();
    disks.make(folder.path());
    let options = CreateOptions {
        name: "test".into(),
        extent_bytes: Some(Bytes::from_mib(1)),
        // A platter is not blank.
        force: true,
    };
    let memory_of_pool = memory_of(memory);
    let opened = open_disks(folder.path(), &disks, &memory_of_pool);
    Pool::create(&memory_of_pool, opened, &options).unwrap();
    let pool = open_pool(folder.path(), &disks, memory_of_pool);
    for (name, mib) in volumes {
        let spec = VolumeSpec {
            name: (*name).into(),
            size: Bytes::from_mib(*mib),
            placement: Placement::default(),
        };
        pool.create_volume(&spec).unwrap();
    }
    Made {
        pool,
        folder,
        disks,
    }
}

impl Rig {
    /// Two disks of 512 MiB and these volumes (name, MiB).
    pub(crate) fn new(volumes: &[(&str, u64)]) -> Self {
        Self::with(volumes, NbdConfig::default(), Bytes::from_mib(256))
    }

    /// As `new`, with a configuration of the server, whose addresses are set here, and a size for the pool's
    /// memory.
    pub(crate) fn with(volumes: &[(&str, u64)], config: NbdConfig, memory: Bytes) -> Self {
        Self::on(Disks::Files(2), volumes, config, memory)
    }

    /// As `new`, on an emulated Atlas-II of 1998: 10 MB/s.
    pub(crate) fn slow(volumes: &[(&str, u64)], memory: Bytes) -> Self {
        Self::on(Disks::Drive, volumes, NbdConfig::default(), memory)
    }

    /// As `new`, with disk time reserved for exports.
    pub(crate) fn reserving(volumes: &[(&str, u64)], reservations: Vec<ExportReservation>) -> Self {
        let made = made(Disks::Drive, volumes, Bytes::from_mib(64));
        Self::serving(made, NbdConfig::default(), &reservations)
    }

    /// As `new`, on two disks in memory that lose data in a [crash](Self::crash) unless it was made durable.
    pub(crate) fn fragile(volumes: &[(&str, u64)], durability: Durability) -> Self {
        let platters = (0..2).map(|_| Platter::new(DISK_BYTES, durability));
        let disks = Disks::Platters(platters.collect());
        Self::on(disks, volumes, NbdConfig::default(), Bytes::from_mib(64))
    }

    fn on(disks: Disks, volumes: &[(&str, u64)], config: NbdConfig, memory: Bytes) -> Self {
        Self::serving(made(disks, volumes, memory), config, &[])
    }

    fn serving(made: Made, config: NbdConfig, reservations: &[ExportReservation]) -> Self {
        let Made {
            pool,
            folder,
            disks,
        } = made;
        let volumes = Volumes::new(Arc::clone(&pool), reservations);
        let (server, socket, tcp) = serve(volumes, folder.path(), config);
        Self {
            server: Some(server),
            pool,
            socket,
            tcp,
            folder,
            disks,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Ends the server, as a service manager would.
    pub(crate) fn shutdown(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown(Duration::from_secs(20));
        }
    }

    /// Ends server and pool, opens both anew: what is there now was on the disks.
    pub(crate) fn restart(mut self) -> Self {
        self.shutdown();
        self.pool.close().unwrap();
        let disks = self.disks.clone();
        self.reopen(disks)
    }

    /// Cuts the power of a [fragile](Self::fragile) rig at this instant and opens what is left: what
    /// is there now was durable, or is there by chance.
    pub(crate) fn crash(self, rng: &mut StdRng) -> Self {
        let Disks::Platters(platters) = &self.disks else {
            panic!("only disks in memory lose anything");
        };
        // Writes of the old server from here on go to the old platters.
        let left = Platter::after_power_cut(platters, rng);
        self.reopen(Disks::Platters(left))
    }

    fn reopen(mut self, disks: Disks) -> Self {
        // Fields move out of a type with a destructor one by one only through replacement.
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        drop(self);
        let pool = open_pool(folder.path(), &disks, memory_of(Bytes::from_mib(256)));
        let made = Made {
            pool,
            folder,
            disks,
        };
        Self::serving(made, NbdConfig::default(), &[])
    }

    /// The address of a volume on the unix socket.
    pub(crate) fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket.display())
    }

    /// The address of a volume by TCP.
    pub(crate) fn tcp_uri(&self, volume: &str) -> String {
        format!("nbd://{}/{volume}", self.tcp)
    }

    /// A folder for whatever a test needs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown();
        // A pool that a test has broken may refuse; the files go away all the same.
        let _ = self.pool.close();
    }
}

fn disk_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("disk-{number}.img"))
}

fn memory_of(size: Bytes) -> Memory {
    Memory::new(&MemoryConfig {
        lock: false,
        ..MemoryConfig::new(size)
    })
    .unwrap()
}

impl Disks {
    fn make(&self, folder: &Path) {
        match self {
            Self::Files(count) => {
                for number in 0..*count {
                    let file = std::fs::File::create(disk_path(folder, number)).unwrap();
                    file.set_len(DISK_BYTES).unwrap();
                }
            }
            Self::Drive => {
                let plant = PlantSpec::built_in("quantum-atlas-ii").unwrap();
                let options = DriveOptions::default();
                EmulatedDrive::create(&disk_path(folder, 0), plant, &options).unwrap();
            }
            Self::Platters(_) => {}
        }
    }
}

fn open_disks(folder: &Path, disks: &Disks, memory: &Memory) -> Vec<PoolDisk> {
    let count = match disks {
        Disks::Files(count) => *count,
        Disks::Drive => 1,
        Disks::Platters(platters) => platters.len(),
    };
    (0..count)
        .map(|number| {
            let path = disk_path(folder, number);
            let (disk, profile): (Box<dyn Disk>, _) = match disks {
                Disks::Files(_) => {
                    let disk = UringDisk::open(&path, memory, PLACES).unwrap();
                    let profile = DriveProfile::conservative(DriveKind::File, disk.capacity());
                    (Box::new(disk), profile.unwrap())
                }
                Disks::Drive => {
                    let plant = PlantSpec::built_in("quantum-atlas-ii").unwrap();
                    let disk = EmulatedDrive::open(&path, plant, &DriveOptions::default());
                    let profile = DriveProfile::shipped("quantum-atlas-ii");
                    (Box::new(disk.unwrap()), profile.unwrap())
                }
                Disks::Platters(platters) => {
                    let disk = MemDisk::new(&platters[number]);
                    let profile = DriveProfile::conservative(DriveKind::File, disk.capacity());
                    (Box::new(disk), profile.unwrap())
                }
            };
            PoolDisk {
                name: path.display().to_string(),
                disk,
                profile: Arc::new(profile),
                profile_is_measured: false,
            }
        })
        .collect()
}

fn open_pool(folder: &Path, disks: &Disks, memory: Memory) -> Arc<Pool> {
    let options = OpenOptions {
        realtime: false,
        ..OpenOptions::default()
    };
    let opened = open_disks(folder, disks, &memory);
    Pool::open(memory, opened, options).unwrap()
}

fn serve(volumes: Arc<Volumes>, folder: &Path, config: NbdConfig) -> (Server, PathBuf, SocketAddr) {
    let socket = folder.join("nbd.sock");
    let config = NbdConfig {
        unix: Some(socket.clone()),
        tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..config
    };
    let server = Server::start(volumes, &config).unwrap();
    let tcp = server.tcp_address().unwrap();
    (server, socket, tcp)
}
