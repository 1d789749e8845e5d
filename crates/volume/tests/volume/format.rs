//! The bytes on disk are pinned: a change of them is a change of the format, and needs a version.
//!
//! `CLOCKWISE_PIN=1 make test ARGS=volume::format` writes the pinned bytes and the
//! corpus of the fuzz targets anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use testkit::fuzz_targets;

use crate::common::{
    Disk, EXTENT, Live, OWNER, candidates, execute, for_each_crash, on, open, sectors, spec,
};
use sched::units::Bytes;
use testkit::{Random, seed};
use volume::{
    CreateSpec, DiskNumber, Grade, Place, Placement, PoolState, Step, Transaction, VolumeId,
    fuzzing,
};

const SECTORS: u64 = sectors(12);

struct Small {
    disks: Vec<Disk>,
    pool: PoolState,
    /// Every block of metadata that was ever written, in order.
    writes: Vec<Vec<u8>>,
}

impl Small {
    fn run(&mut self, transaction: Transaction) {
        for step in transaction.steps() {
            execute(&mut self.disks, step);
            if let Step::Write { data, .. } = step {
                self.writes.push(data.clone());
            }
        }
        let _ = self.pool.commit(transaction);
    }

    fn write(&self, volume: VolumeId, offset: u64, length: usize) {
        let map = self.pool.volume(volume).unwrap().1;
        map.writes(offset, length)
            .unwrap()
            .for_each(|span| span.begin().unwrap().in_use.written());
    }
}

/// A small pool that has seen every kind of record.
fn small_pool() -> Small {
    let mut disks = vec![Disk::new(SECTORS); 2];
    let mut writes = Vec::new();
    for step in PoolState::format(&spec(&disks, 1, EXTENT)).unwrap() {
        execute(&mut disks, &step);
        if let Step::Write { data, .. } = step {
            writes.push(data);
        }
    }
    let pool = open(&disks).unwrap();
    let mut small = Small {
        disks,
        pool,
        writes,
    };
    let start = small.pool.start(OWNER).unwrap();
    small.run(start);
    for (name, size, placement) in [
        ("one", 3 * EXTENT + 512, Placement::default()),
        ("zwei", EXTENT, on(1)),
    ] {
        let create = small
            .pool
            .create(&CreateSpec {
                name: name.to_owned(),
                size: Bytes(size),
                placement,
            })
            .unwrap();
        small.run(create);
    }
    let (one, two) = (VolumeId(1), VolumeId(2));
    small.write(one, 4096, 3 * EXTENT as usize - 4096);
    small.write(two, 0, 512);
    let settle = small.pool.settle(&[one, two]).unwrap().unwrap();
    small.run(settle);
    let checkpoint = small.pool.checkpoint().unwrap();
    small.run(checkpoint);
    let at = |extent| Place {
        disk: DiskNumber(0),
        extent,
    };
    let bad = small
        .pool
        .set_grades(&[
            (at(5), Grade::Bad),
            (at(7), Grade::Slow { extra_us: 16_667 }),
        ])
        .unwrap();
    small.run(bad);
    let grow = small
        .pool
        .grow(two, Bytes(3 * EXTENT), &Placement::default())
        .unwrap();
    small.run(grow);
    let shrink = small.pool.shrink(one, Bytes(2 * EXTENT)).unwrap();
    small.run(shrink);
    let rename = small.pool.rename(two, "deux").unwrap();
    small.run(rename);
    let mut moved = small.pool.begin_move(two, 0, &on(0)).unwrap();
    moved.freeze();
    let copies = moved.pass();
    assert_eq!(copies.len(), 1);
    // As if its last chunk could not be read.
    let last = moved.single(&copies[0]).pop().unwrap();
    moved.leave(&last);
    let finish = small.pool.finish_move(moved).unwrap();
    small.run(finish);
    let delete = small.pool.delete(one).unwrap();
    small.run(delete);
    // Fill the extent of the log, for the link to the next.
    for round in 0..8 {
        small.write(two, round * 8192, 4096);
        let settle = small.pool.settle(&[two]).unwrap().unwrap();
        small.run(settle);
    }
    small
}

/// Lines of sixteen bytes that are not all zero.
fn dump(disks: &[Disk]) -> String {
    let mut text = String::new();
    for (number, disk) in disks.iter().enumerate() {
        for (line, bytes) in disk
            .bytes(0, disk.sectors() as usize * 512)
            .chunks(16)
            .enumerate()
        {
            if bytes.iter().any(|byte| *byte != 0) {
                let _ = write!(text, "{number} {:08x} ", line * 16);
                bytes
                    .iter()
                    .for_each(|byte| write!(text, "{byte:02x}").unwrap());
                text.push('\n');
            }
        }
    }
    text
}

fn pin() -> bool {
    std::env::var_os("CLOCKWISE_PIN").is_some()
}

#[test]
fn the_bytes_of_a_small_pool() {
    let small = small_pool();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format.hex");
    let now = dump(&small.disks);
    if pin() {
        std::fs::write(&path, &now).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap();
    let lines = now
        .lines()
        .zip(pinned.lines())
        .find(|(now, pinned)| now != pinned);
    assert!(
        lines.is_none() && now.len() == pinned.len(),
        "the format has changed: {lines:?}"
    );
    // And they still open.
    let pool = open(&small.disks).unwrap();
    assert_eq!(
        pool.volumes().map(|(name, _)| name).collect::<Vec<_>>(),
        ["deux"]
    );
}

/// The disks that a dump is of.
fn load(text: &str) -> Vec<Disk> {
    let mut disks = vec![Disk::new(SECTORS); 2];
    for line in text.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap();
        let (disk, at, bytes) = (word(), word(), word());
        let at = usize::from_str_radix(at, 16).unwrap();
        let disk = &mut disks[disk.parse::<usize>().unwrap()];
        let mut sector = disk.bytes(at as u64 / 512, 512);
        for (index, byte) in sector[at % 512..][..16].iter_mut().enumerate() {
            *byte = u8::from_str_radix(&bytes[2 * index..2 * index + 2], 16).unwrap();
        }
        disk.overwrite(at as u64 / 512, &sector);
    }
    disks
}

/// Describes a pool, for comparison.
fn described(pool: &PoolState) -> String {
    let volume = |(name, map): (&str, &std::sync::Arc<volume::VolumeMap>)| {
        let written: Vec<_> = map.extents().iter().map(|of| of.written()).collect();
        let places: Vec<_> = map.places().collect();
        format!("{name} {:?} {places:?} {written:?}", map.size())
    };
    let volumes: String = pool.volumes().map(volume).collect();
    let grades: Vec<_> = pool.grades().collect();
    format!("{volumes} {grades:?}")
}

/// Pools of earlier versions open, and their start makes them ones of the present version, whatever of that a
/// crash leaves.
#[test]
fn pools_of_earlier_versions_are_upgraded() {
    upgrade(1, include_str!("../format-1.hex"));
    upgrade(2, include_str!("../format-2.hex"));
}

fn upgrade(from: u8, dumped: &str) {
    const NOW: u8 = volume::ondisk::superblock::FORMAT_VERSION as u8;
    let mut random = Random(seed("upgrades that break off", Some(1)));
    let mut disks = load(dumped);
    assert_eq!(dump(&disks), dumped);
    let version = |disks: &[Disk], at: u64| [0, 1].map(|disk: usize| disks[disk].bytes(at, 512)[8]);
    assert_eq!(version(&disks, 0), [from, from]);
    let mut pool = open(&disks).unwrap();
    let before = described(&pool);
    assert!(before.starts_with("deux "), "{before}");
    assert!(pool.find("one").is_none());
    let start = pool.start(OWNER).unwrap();
    let mut states = 0;
    for step in start.steps() {
        execute(&mut disks, step);
        for_each_crash(&disks, 256, 32, &mut random, &mut |image| {
            states += 1;
            let mut pool = open(image).unwrap_or_else(|error| panic!("after {step:?}: {error}"));
            assert_eq!(described(&pool), before, "after {step:?}");
            let report = volume::check::check(&mut Live(image), &candidates(image));
            assert_eq!(report.problems, [], "after {step:?}");
            // The next start goes on from there.
            let mut image = image.to_vec();
            let again = pool.start([0x77; 8]).unwrap();
            for step in again.steps() {
                execute(&mut image, step);
            }
            pool.commit(again);
            assert_eq!(described(&open(&image).unwrap()), before, "after {step:?}");
        });
    }
    assert!(states > 20, "{states}");
    pool.commit(start);
    assert_eq!(version(&disks, 0), [NOW, NOW]);
    assert_eq!(version(&disks, SECTORS - 8), [NOW, NOW]);
    let bad = Place {
        disk: DiskNumber(0),
        extent: 5,
    };
    assert_eq!(pool.grades().collect::<Vec<_>>(), [(bad, Grade::Bad)]);
    let create = pool.create(&CreateSpec {
        name: "three".to_owned(),
        size: Bytes(EXTENT),
        placement: Placement::default(),
    });
    let create = create.unwrap();
    for step in create.steps() {
        execute(&mut disks, step);
    }
    pool.commit(create);
    let again = open(&disks).unwrap();
    assert_eq!(described(&again), described(&pool));
    assert_eq!(again.volumes().count(), 2);
    assert_eq!(again.grade_of(bad), Some(Grade::Bad));
}

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(format!("volume_{target}"))
}

/// One input for each kind of thing that a small pool writes.
fn pin_corpus(small: &Small) {
    let put = |target: &str, name: &str, data: &[u8]| {
        std::fs::create_dir_all(folder(target)).unwrap();
        std::fs::write(folder(target).join(name), data).unwrap();
    };
    // Trailing zeros of a block are no news; the target's inputs stay whole blocks where it matters.
    let mut log = Vec::new();
    for write in &small.writes {
        match &write[..8] {
            b"CLKWPOOL" => put("superblock", &format!("disk{}", write[64]), write),
            b"CLKWTAB2" => put("table", &format!("generation{}", write[32]), write),
            bytes if bytes.starts_with(b"CLKR") => {
                for block in write.chunks(4096) {
                    let (kind, length) = (
                        block[4],
                        u32::from_le_bytes(block[8..12].try_into().unwrap()) as usize,
                    );
                    put("record", &format!("kind{kind}"), block);
                    let mut payload = vec![kind];
                    payload.extend_from_slice(&block[72..72 + length]);
                    put("node", &format!("kind{kind}"), &payload);
                }
                log.extend_from_slice(write);
            }
            _ => {}
        }
    }
    for blocks in [1, 2, 3, 5, 8] {
        put("log", &format!("blocks{blocks}"), &log[..blocks * 4096]);
    }
    put("superblock", "empty", &[]);
    put("superblock", "zeros", &[0; 4096]);
    put("superblock", "short", b"CLKWPOOL");
    put("table", "short", b"CLKWTAB2");
    put("table", "empty", &[]);
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 5, "{target} has {} inputs", paths.len());
    paths
        .into_iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn mutate(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(6) {
        let at = random.below(input.len() as u64) as usize;
        match random.below(7) {
            0 => input.truncate(at),
            1 => input.extend_from_slice(&other[..random.below(other.len() as u64 + 1) as usize]),
            2 if at < input.len() => input[at] ^= 1 << random.below(8),
            3 if at + 8 <= input.len() => {
                input[at..at + 8].copy_from_slice(&random.next().to_le_bytes())
            }
            4 if at + 4 <= input.len() => {
                input[at..at + 4].fill([0, 0xff][random.below(2) as usize])
            }
            // Headers are where it matters.
            5 if input.len() > 128 => input[random.below(128) as usize] = random.next() as u8,
            6 if at < other.len() && at < input.len() => {
                let end = (at + random.below(64) as usize)
                    .min(input.len())
                    .min(other.len());
                input[at..end].copy_from_slice(&other[at..end]);
            }
            _ => {}
        }
    }
}

type Target = (&'static str, fn(&[u8]), usize);

const TARGETS: [Target; 5] = [
    ("superblock", fuzzing::superblock, 20_000),
    ("table", fuzzing::table, 20_000),
    ("record", fuzzing::record, 20_000),
    ("node", fuzzing::node, 200_000),
    ("log", fuzzing::log, 1_000),
];

#[test]
fn every_target_of_what_is_on_disks_is_replayed() {
    let replayed = TARGETS
        .iter()
        .map(|(target, ..)| format!("volume_{target}"));
    let mut targets = fuzz_targets::fuzz_targets();
    targets.retain(|target| target.starts_with("volume_"));
    assert_eq!(targets, replayed.collect());
    for (target, ..) in TARGETS {
        fuzz_targets::assert_calls(
            &format!("volume_{target}"),
            &format!("volume::fuzzing::{target}"),
        );
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the seed belongs in a test's output")]
fn parsers_take_any_bytes() {
    if pin() {
        pin_corpus(&small_pool());
    }
    let seed = seed("mutations", None);
    for (target, run, iterations) in TARGETS {
        let inputs = corpus(target);
        inputs.iter().for_each(|input| run(input));
        println!("{target}: {} inputs, {iterations} mutations", inputs.len());
        let mut random = Random(seed);
        for round in 0..iterations {
            let mut input = inputs[random.below(inputs.len() as u64) as usize].clone();
            let other = &inputs[random.below(inputs.len() as u64) as usize];
            if round % 16 == 0 {
                input
                    .iter_mut()
                    .for_each(|byte| *byte = random.next() as u8);
            }
            mutate(&mut random, &mut input, other);
            run(&input);
        }
    }
}
