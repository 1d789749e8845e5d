//! Disks that share a link which carries fewer of them: who promises, and who borrows a place.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::disk::{Disk, DiskError, DiskIo, Done, Durability};
use engine::event::EventFd;
use engine::pool::{Link, Pool, PoolDisk, StallLimits};
use engine::stream::{Recorder, Refusal, Stop};
use rand::Rng;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, SectorCount, Time};
use testkit::disks::{MIB, Rig, client, seeded, stream_spec, volume_on};

/// The block of a stream, in bytes.
const BLOCK: u64 = 65_536;

/// A block in 1.25 s, in bytes a second.
const RATE: u64 = BLOCK * 4 / 5;

/// Requests of each client of best effort.
const REQUESTS: u64 = 40;

/// The disks of a link that transfer now, and how often there were more than it carries.
#[derive(Default)]
struct Gauge {
    carries: u64,
    busy: AtomicU64,
    exceeded: AtomicU64,
    most: AtomicU64,
}

/// A disk whose transfers the gauge sees.
struct Gauged {
    disk: Box<dyn Disk>,
    gauge: Arc<Gauge>,
}

impl Disk for Gauged {
    fn capacity(&self) -> SectorCount {
        self.disk.capacity()
    }

    fn places(&self) -> usize {
        self.disk.places()
    }

    fn durability(&self) -> Durability {
        self.disk.durability()
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        let busy = self.gauge.busy.fetch_add(1, Ordering::SeqCst) + 1;
        let over = u64::from(busy > self.gauge.carries);
        self.gauge.exceeded.fetch_add(over, Ordering::SeqCst);
        self.gauge.most.fetch_max(busy, Ordering::SeqCst);
        self.disk.submit(io)
    }

    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        let before = out.len();
        let waited = self.disk.wait(until, wake, out);
        let done = (out.len() - before) as u64;
        self.gauge.busy.fetch_sub(done, Ordering::SeqCst);
        waited
    }
}

/// A pool whose disks share a link that carries `promising` of them. Requests are predicted to take 250 ms, far longer
/// than any host is late, and take one.
fn on_link(disks: usize, promising: usize, patience: StallLimits) -> (Rig, Arc<Gauge>, Arc<Pool>) {
    let mut rig = Rig::new(disks, 32 * MIB, Durability::WriteThrough);
    let mut spec = rig.profile.spec().clone();
    let flat = spec.flat.as_mut().unwrap();
    (flat.read_overhead_us, flat.write_overhead_us) = (250_000, 250_000);
    rig.profile = Arc::new(DriveProfile::new(spec).unwrap());
    rig.options.patience = patience;
    rig.options.links = vec![Link {
        name: "enclosure".to_owned(),
        rate: BytesPerSecond(promising as u64 * 500_000_000),
        disks: (0..disks).map(|disk| format!("disk{disk}")).collect(),
        promising,
    }];
    rig.create(MIB);
    for platter in &rig.platters {
        platter.delay_ns.store(1_000_000, Ordering::SeqCst);
    }
    let gauge = Arc::new(Gauge {
        carries: promising as u64,
        ..Gauge::default()
    });
    let gauged = rig.disks().into_iter().map(|disk| PoolDisk {
        disk: Box::new(Gauged {
            disk: disk.disk,
            gauge: Arc::clone(&gauge),
        }),
        ..disk
    });
    let pool = Pool::open(rig.memory.clone(), gauged.collect(), rig.options.clone()).unwrap();
    (rig, gauge, pool)
}

/// Writes at random places of a volume, and reads them back.
fn exercise(pool: &Arc<Pool>, disk: usize, seed: u64) {
    let mut rng = seeded(&format!("links {disk}"));
    let volume = volume_on(pool, &format!("files {disk}"), disk, 4 * MIB);
    let client = client(pool);
    for number in 0..REQUESTS {
        let at = Bytes(rng.random_range(0..1024) * 4096);
        let data = vec![(number + seed) as u8; 4096];
        client.write_at(&volume, at, &data).unwrap();
        let mut back = vec![0; 4096];
        client.read_at(&volume, at, &mut back).unwrap();
        assert!(back == data, "disk {disk}, {at}");
    }
}

/// While a disk with a place records, disks with and without one serve best effort. The link never carries more than
/// it can, nothing is late, and each disk gets its turn.
#[test]
fn no_more_disks_transfer_than_the_link_carries() {
    for (disks, promising) in [(2, 1), (3, 2), (3, 1)] {
        let (_rig, gauge, pool) = on_link(disks, promising, StallLimits::default());
        let recording = volume_on(&pool, "recording", 0, 8 * MIB);
        let stream = pool
            .reserve(stream_spec(&recording, Op::Write, RATE, BLOCK))
            .unwrap();
        let (mut source, near) = UnixStream::pair().unwrap();
        let report = std::thread::scope(|scope| {
            scope.spawn(move || source.write_all(&vec![7; 4 * BLOCK as usize]).unwrap());
            for disk in 0..disks {
                let pool = &pool;
                scope.spawn(move || exercise(pool, disk, 100));
            }
            let stop = Stop::new().unwrap();
            Recorder::new(&stream, Bytes(0))
                .run(&near, &stop, &mut |_| ())
                .unwrap()
        });
        assert_eq!(report.blocks, 4);
        let status = pool.status();
        for (number, disk) in status.disks.iter().enumerate() {
            let link = disk.link.as_ref().unwrap();
            assert_eq!(link.promises, number < promising);
            assert_eq!(link.promised_bytes_per_second / 1_000, RATE / 1_000);
            assert!(disk.completed.sync >= REQUESTS, "{disk:?}");
            assert_eq!((disk.misses, disk.overruns), (0, 0), "{disk:?}");
        }
        let (most, exceeded) = (&gauge.most, &gauge.exceeded);
        assert_eq!(exceeded.load(Ordering::SeqCst), 0, "{disks} {promising}");
        assert_eq!(most.load(Ordering::SeqCst), promising as u64);
        drop((stream, recording));
        pool.close().unwrap();
    }
}

#[test]
fn disk_without_a_place_promises_nothing() {
    let (_rig, _gauge, pool) = on_link(3, 2, StallLimits::default());
    let volume = volume_on(&pool, "v", 2, 4 * MIB);
    let refused = pool.reserve(stream_spec(&volume, Op::Read, RATE, BLOCK));
    let Err(Refusal::Invalid { what, reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(what, "the volume");
    assert_eq!(
        reason,
        "its disk disk2 has no place of its own on link \"enclosure\", and serves best effort only; disks with a place: disk0, disk1"
    );
    let second = volume_on(&pool, "w", 1, 4 * MIB);
    drop(
        pool.reserve(stream_spec(&second, Op::Read, RATE, BLOCK))
            .unwrap(),
    );
    // Without a word on disks, volumes lie where they can be reserved.
    let anywhere = testkit::disks::volume(&pool, "anywhere", 6 * MIB);
    drop(
        pool.reserve(stream_spec(&anywhere, Op::Read, RATE, BLOCK))
            .unwrap(),
    );
    let status = pool.status();
    assert!(status.disks[1].floor > 0.0);
    assert_eq!(status.disks[2].floor, 0.0);
}

/// A disk that does not answer keeps no place from others.
#[test]
fn disk_that_stalls_lends_its_place() {
    let patience = StallLimits {
        stalled_after: Nanos::from_millis(400),
        give_up_after: Nanos::from_secs(600),
    };
    let (rig, _gauge, pool) = on_link(2, 1, patience);
    let (stalling, well) = (volume_on(&pool, "s", 0, MIB), volume_on(&pool, "w", 1, MIB));
    let (writer, other) = (client(&pool), client(&pool));
    // No change of metadata is needed later.
    other.write_at(&well, Bytes(0), &[1; 4096]).unwrap();
    other.flush(&well).unwrap();
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_at(&stalling, Bytes(0), &[1; 4096]).unwrap());
        testkit::until("it has stalled", || pool.status().disks[0].stalls == 1);
        for number in 0..20 {
            other.write_at(&well, Bytes(0), &[number; 4096]).unwrap();
        }
        rig.platters[0].stalled.store(false, Ordering::SeqCst);
    });
    assert_eq!(pool.status().disks[0].comebacks, 1);
}
