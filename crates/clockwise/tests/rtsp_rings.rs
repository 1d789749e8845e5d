//! A ring that becomes another one while somebody writes to it as fast as they can.

#[path = "../../engine/tests/common/platter.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the engine's tests share it in a module of their own"
)]
mod platter;

use std::sync::{Arc, mpsc};

use clockwise::media::archive::Archive;
use clockwise::media::geometry::Geometry;
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::{Disk, Durability};
use engine::front::{Client, ClientOptions};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, Volume, VolumeSpec};
use engine::stream::{Stream, StreamSpec, Wish};
use platter::{MemDisk, Platter};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Time};

const BLOCK: u64 = 65_536;
const BEFORE: u64 = 9;
const AFTER: u64 = 20;

struct Rig {
    pool: Arc<Pool>,
    client: Client,
}

impl Rig {
    fn new() -> Self {
        let config = MemoryConfig {
            lock: false,
            ..MemoryConfig::new(Bytes::from_mib(32))
        };
        let memory = Memory::new(&config).unwrap();
        let platter = Platter::new(64 << 20, Durability::WriteThrough);
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
        Self { pool, client }
    }

    /// A new volume with room for the ring before, and its archive; then with room for the one after.
    fn archive(&self, name: &str) -> (Arc<Volume>, Arc<Archive>) {
        let spec = VolumeSpec {
            name: name.into(),
            size: Bytes((BEFORE + 1) * BLOCK),
            placement: Placement::default(),
        };
        self.pool.create_volume(&spec).unwrap();
        let volume = self.pool.open_volume(name).unwrap();
        let block = Bytes(BLOCK);
        let archive = Archive::open_or_create(&self.client, Arc::clone(&volume), block).unwrap();
        assert_eq!(archive.geometry(), Geometry::new(BEFORE));
        let long = Bytes((AFTER + 1) * BLOCK);
        self.pool.grow(name, long, &Placement::default()).unwrap();
        (volume, Arc::new(archive))
    }

    fn stream(&self, volume: &Arc<Volume>) -> Stream {
        let spec = StreamSpec {
            name: "recorder".into(),
            volume: Arc::clone(volume),
            range: Some(BLOCK..(BEFORE + 1) * BLOCK),
            rate: BytesPerSecond(BLOCK),
            block: Bytes(BLOCK),
            op: Op::Write,
            span: None,
            wraps: true,
        };
        self.pool.reserve(spec).unwrap()
    }
}

#[test]
fn a_writer_that_comes_to_the_end_meanwhile_uses_no_place_that_is_about_to_be_another_one() {
    let rig = Rig::new();
    let mut made = [0; 2];
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..120 {
        let begun_at = rng.random_range(0..=BEFORE + 1);
        // As fast as it can, a little slower, or not before the change is over.
        let (yields, waits) = [(0, false), (60, false), (0, true)][round % 3];
        let (volume, archive) = rig.archive("cam");
        let stream = rig.stream(&volume);
        let mut writing = archive.record().unwrap();
        // Nothing changes before it is known what is reserved.
        let to = Geometry::new(AFTER);
        assert!(!archive.resize(&rig.client, to).unwrap());
        writing.begin(0, Time::ZERO, stream.changer());
        let claims = writing.claims();
        assert!(!archive.resize(&rig.client, to).unwrap());
        let end = Some(Bytes((AFTER + 1) * BLOCK));
        let wish = Wish {
            end,
            ..Wish::default()
        };
        stream.changer().change(wish).unwrap();
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let changed = std::thread::scope(|scope| {
            let (changing, client) = (&archive, &rig.client);
            let changed = scope.spawn(move || {
                told.recv().unwrap();
                let changed = changing.resize(client, to).unwrap();
                end.send(()).unwrap();
                changed
            });
            let mut claim = |serial| {
                if serial == begun_at {
                    tell.send(()).unwrap();
                    if waits {
                        ended.recv().unwrap();
                    }
                }
                for _ in 0..rng.random_range(0..=yields) {
                    std::thread::yield_now();
                }
                claims.claim(serial).get() / BLOCK
            };
            let places: Vec<u64> = (0..2 * AFTER).map(&mut claim).collect();
            let changed = changed.join().unwrap();
            let blocks = if changed { AFTER } else { BEFORE };
            let expected: Vec<u64> = (0..2 * AFTER).map(|serial| serial % blocks).collect();
            assert_eq!(places, expected, "begun at {begun_at}, {changed}");
            assert!(!waits || changed == (begun_at <= BEFORE), "{begun_at}");
            changed
        });
        made[usize::from(changed)] += 1;
        let geometry = archive.geometry();
        assert_eq!(
            geometry,
            Geometry::new(if changed { AFTER } else { BEFORE })
        );
        drop((writing, claims));
        drop(archive);
        // It is as durable as it was said to be.
        let again = Archive::open(&rig.client, Arc::clone(&volume)).unwrap();
        assert_eq!(again.geometry(), geometry);
        stream.close();
        drop((again, volume));
        rig.pool.delete_volume("cam").unwrap();
    }
    // After it has come around it is another change than was decided.
    assert!(made[0] > 0 && made[1] > 0, "{made:?}");
}
