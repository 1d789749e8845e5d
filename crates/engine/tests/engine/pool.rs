//! A pool from end to end, on disks in memory and on files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use testkit::disks;

use engine::buffer::{Memory, MemoryConfig};
use engine::disk::{Disk, Durability};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, PoolError, VolumeSpec};
use engine::uring::UringDisk;
use sched::profile::{DriveKind, DriveProfile};
use sched::units::Bytes;
use testkit::disks::{MIB, Rig, client, volume};

#[test]
fn flushed_data_is_there_after_reopening() {
    for durability in [Durability::WriteThrough, Durability::Fua, Durability::Host] {
        let (rig, pool) = Rig::fresh(3, 64 * MIB, MIB, durability);
        let volume = volume(&pool, "a", 10 * MIB);
        let client = client(&pool);
        let data: Vec<u8> = (0..3 * MIB).map(|byte| (byte % 251) as u8).collect();
        client.write_at(&volume, Bytes(512 * 7), &data).unwrap();
        let mut back = vec![0; data.len() + 1024];
        client.read_at(&volume, Bytes(512 * 6), &mut back).unwrap();
        assert!(back[..512].iter().all(|byte| *byte == 0));
        assert_eq!(back[512..back.len() - 512], data);
        client.flush(&volume).unwrap();
        drop((client, volume));
        pool.close().unwrap();
        let disks = pool.health().disks;
        assert!(disks.iter().all(|disk| disk.failed.is_none()));
        drop(pool);

        let pool = rig.open();
        let volume = pool.open_volume("a").unwrap();
        let client = disks::client(&pool);
        let mut again = vec![0; back.len()];
        client.read_at(&volume, Bytes(512 * 6), &mut again).unwrap();
        assert_eq!(again, back);
    }
}

fn files(memory: &Memory, paths: &[PathBuf]) -> Vec<PoolDisk> {
    let disk = |path: &PathBuf| {
        let disk = UringDisk::open(path, memory, 4).unwrap();
        let profile = DriveProfile::conservative(DriveKind::File, disk.capacity()).unwrap();
        PoolDisk {
            name: path.display().to_string(),
            disk: Box::new(disk),
            profile: Arc::new(profile),
            profile_is_measured: false,
        }
    };
    paths.iter().map(disk).collect()
}

fn make_files(folder: &Path, count: usize) -> Vec<PathBuf> {
    let file = |index| {
        let path = folder.join(format!("disk{index}"));
        File::create(&path).unwrap().set_len(32 * MIB).unwrap();
        path
    };
    (0..count).map(file).collect()
}

fn memory() -> Memory {
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(32))
    };
    Memory::new(&config).unwrap()
}

fn options() -> CreateOptions {
    CreateOptions {
        extent_bytes: Some(Bytes(MIB)),
        ..CreateOptions::default()
    }
}

fn realtime_where_permitted() -> OpenOptions {
    OpenOptions::default()
}

#[test]
fn a_pool_of_files_works_and_opens_again_in_any_order() {
    for folder in testkit::folders::folders() {
        let memory = memory();
        let mut paths = make_files(folder.path(), 3);
        Pool::create(&memory, files(&memory, &paths), &options()).unwrap();
        let open = |paths: &[PathBuf]| {
            let disks = files(&memory, paths);
            Pool::open(memory.clone(), disks, realtime_where_permitted()).unwrap()
        };
        let pool = open(&paths);
        assert!(!pool.warnings().is_empty(), "the profiles are guesses");
        let a = volume(&pool, "a", 20 * MIB);
        let data: Vec<u8> = (0..5 * MIB).map(|at| (at * 7 % 241) as u8).collect();
        let writer = client(&pool);
        writer.write_at(&a, a.alignment(), &data).unwrap();
        writer.flush(&a).unwrap();
        // Without closing the pool: flushed data is there nevertheless.
        drop((writer, a, pool));
        paths.rotate_left(1);
        let pool = open(&paths);
        let a = pool.open_volume("a").unwrap();
        let mut back = vec![0; data.len()];
        client(&pool).read_at(&a, a.alignment(), &mut back).unwrap();
        assert!(back == data);
        assert!(
            pool.status()
                .disks
                .iter()
                .all(|disk| disk.durability == "host")
        );
        drop(a);
        pool.close().unwrap();
        let report = Pool::check(&memory, files(&memory, &paths)).unwrap();
        assert_eq!((report.volumes, report.findings.len()), (1, 0));
    }
}

#[test]
fn disks_that_make_no_pool_are_told_apart_by_name() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = memory();
    let paths = make_files(folder.path(), 4);
    let (ours, theirs) = (&paths[..3], &paths[3..]);
    let create = |paths: &[PathBuf], options: &CreateOptions| {
        Pool::create(&memory, files(&memory, paths), options)
    };
    let open = |paths: &[PathBuf]| {
        let disks = files(&memory, paths);
        Pool::open(memory.clone(), disks, realtime_where_permitted()).map(|_| ())
    };
    assert!(matches!(open(&[]), Err(PoolError::NoDisks)));
    let [disk0, disk1, disk3] = [0, 1, 3].map(|number| paths[number].display());
    let unmade = open(ours).unwrap_err().to_string();
    let says = format!("{disk0}: not a Clockwise disk");
    assert!(unmade.contains(&says), "{unmade}");
    create(ours, &options()).unwrap();
    create(theirs, &options()).unwrap();
    let again = create(ours, &options()).unwrap_err().to_string();
    let says = format!("{disk0}: belongs to a pool already");
    assert!(again.contains(&says), "{again}");
    let missing = open(&ours[..2]).unwrap_err();
    assert!(matches!(missing, PoolError::Missing { .. }), "{missing}");
    let says = "disk 2 of the pool's 3 is missing";
    assert!(missing.to_string().contains(says), "{missing}");
    let foreign = open(&[ours[0].clone(), ours[1].clone(), theirs[0].clone()]).unwrap_err();
    let says = format!("{disk3}: belongs to another pool");
    assert!(foreign.to_string().contains(&says), "{foreign}");
    open(ours).unwrap();

    // A copy of a disk in addition to the disk.
    let copy = folder.path().join("copy");
    std::fs::copy(&ours[1], &copy).unwrap();
    let mut with_copy = ours.to_vec();
    with_copy.push(copy.clone());
    let twice = open(&with_copy).unwrap_err().to_string();
    let says = format!(
        "{disk1} and {}: both are disk 1 of the pool",
        copy.display()
    );
    assert!(twice.contains(&says), "{twice}");
    // An old copy instead of the disk.
    open(ours).unwrap();
    let says = format!("{}: disk 1 of the pool is stale", copy.display());
    let stale = open(&[ours[0].clone(), copy, ours[2].clone()]).unwrap_err();
    assert!(stale.to_string().contains(&says), "{stale}");

    let forced = CreateOptions {
        force: true,
        ..options()
    };
    create(ours, &forced).unwrap();
    open(ours).unwrap();
    let extent = CreateOptions {
        extent_bytes: Some(Bytes(12345)),
        ..forced
    };
    assert!(matches!(
        create(ours, &extent),
        Err(PoolError::BadSize { .. })
    ));
    let unknown = OpenOptions {
        scheduler: "fifo".into(),
        ..realtime_where_permitted()
    };
    let unknown = Pool::open(memory.clone(), files(&memory, ours), unknown);
    assert!(matches!(unknown, Err(PoolError::NoSuchScheduler(_))));
}

/// The same disks under other names.
fn renamed(disks: Vec<PoolDisk>) -> Vec<PoolDisk> {
    let rename = |disk: PoolDisk| PoolDisk {
        name: format!("other-{}", disk.name),
        ..disk
    };
    disks.into_iter().map(rename).collect()
}

#[test]
fn a_server_whose_disks_another_has_opened_writes_nothing_more() {
    for durability in [Durability::WriteThrough, Durability::Host] {
        let (rig, first) = Rig::fresh(2, 64 * MIB, MIB, durability);
        let kept = volume(&first, "kept", 10 * MIB);
        let writer = client(&first);
        writer.write_at(&kept, Bytes::ZERO, &[1; 4096]).unwrap();
        writer.flush(&kept).unwrap();
        assert_eq!(first.taken_over(), None);
        let disks = renamed(rig.disks());
        let second = Pool::open(rig.memory.clone(), disks, rig.options.clone()).unwrap();
        volume(&second, "theirs", 10 * MIB);
        let before = rig.platters[0].writes.load(Ordering::SeqCst);
        let spec = VolumeSpec {
            name: "mine".into(),
            size: Bytes(MIB),
            placement: Placement::default(),
        };
        let refused = first.create_volume(&spec).unwrap_err();
        let says = "disk0: another server has opened the pool since: the disk is at generation 3, this server at 2";
        assert!(matches!(refused, PoolError::TakenOver(_)), "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
        // From here on without a check: nothing is written, and nothing is made durable at the end.
        assert!(matches!(
            first.create_volume(&spec),
            Err(PoolError::TakenOver(_))
        ));
        let failed = writer.write_at(&kept, Bytes(MIB), &[2; 4096]).unwrap_err();
        assert!(failed.to_string().contains("another server"), "{failed}");
        assert!(first.taken_over().unwrap().contains(says));
        drop((writer, kept));
        // The error about undone work does not matter here.
        drop(first.close());
        assert_eq!(rig.platters[0].writes.load(Ordering::SeqCst), before);
        second.close().unwrap();
        let report = Pool::check(&rig.memory, rig.disks()).unwrap();
        assert_eq!((report.volumes, report.findings), (2, Vec::new()));
    }
}

#[test]
fn a_server_that_changes_nothing_finds_the_other_when_it_looks() {
    let (rig, first) = Rig::fresh(2, 64 * MIB, MIB, Durability::Fua);
    let _second = rig.open();
    let found = first.taken_over().unwrap();
    assert!(found.contains("stopped writing"), "{found}");
    let warnings = first.warnings();
    assert!(warnings.iter().any(|warning| warning.what == found));
}

#[test]
fn a_pool_of_one_disk_under_two_names_is_not_made() {
    let rig = Rig::new(2, 64 * MIB, Durability::WriteThrough);
    let mut disks = rig.disks();
    disks.pop();
    let again = renamed(rig.disks()).remove(0);
    disks.push(again);
    let twice = CreateOptions {
        force: true,
        ..options()
    };
    let refused = Pool::create(&rig.memory, disks, &twice).unwrap_err();
    let says = "disk0 and other-disk0 are two names of one disk";
    assert!(refused.to_string().contains(says), "{refused}");
    let unmade = rig.try_open().unwrap_err().to_string();
    assert!(unmade.contains("disk0: not a Clockwise disk"), "{unmade}");
}
