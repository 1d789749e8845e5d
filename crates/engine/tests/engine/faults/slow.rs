//! Disks in memory that stall, are given up, or take longer than predicted.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use engine::clock;
use engine::disk::Durability;
use engine::event::EventFd;
use engine::pool::{Placement, Pool, VolumeSpec};
use engine::stream::{BlockReport, Player, Recorder, Stop};
use engine::volume_io::{ClientOptions, VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::{Bytes, Nanos, Time};

use super::{record_until_it_fails, stream, works};
use testkit::disks::{MIB, OnDrop, Rig, client, volume, volume_on};
use testkit::until::{PATIENCE, seen, until};

/// The rate of streams on a disk in memory, in bytes per second.
const FAST: u64 = 4 << 20;

/// A pool of two disks in memory with its metadata on the first. A stall is detected at once, and disks are
/// never given up.
fn patient() -> (Rig, Arc<Pool>) {
    Rig::with_patience(
        2,
        Durability::WriteThrough,
        Nanos::from_millis(1),
        Nanos::from_secs(100_000),
    )
}

#[test]
fn a_stalled_disk_with_the_metadata_is_waited_for_and_others_go_on() {
    let (rig, pool) = patient();
    let other = volume_on(&pool, "other", 1, 4 * MIB);
    works(&pool, &other, 1);
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let goes_on = OnDrop(&rig.platters[0].stalled, false);
        let making = scope.spawn(|| volume_on(&pool, "new", 0, MIB));
        until("the disk has stalled", || {
            assert!(!making.is_finished());
            pool.status().disks[0].stalled_ns > 0
        });
        // Data on the other disk, made durable as well, as long as the map does not change.
        for fill in 2..50 {
            works(&pool, &other, fill);
        }
        let status = pool.status();
        assert!(status.disks[0].failed.is_none() && status.disks[0].stalls == 1);
        assert!(status.disks[1].stalled_ns == 0 && !making.is_finished());
        drop(goes_on);
        works(&pool, &making.join().unwrap(), 3);
    });
    assert_eq!(pool.status().disks[0].stalled_ns, 0);
    volume(&pool, "more", MIB);
}

/// Neither retries nor the server's own checks of its superblock count as errors.
#[test]
fn requests_refused_by_a_given_up_disk_are_not_its_errors() {
    let (rig, pool) = Rig::with_patience(
        1,
        Durability::WriteThrough,
        Nanos::from_millis(200),
        Nanos::from_millis(400),
    );
    let held = volume_on(&pool, "held", 0, 4 * MIB);
    works(&pool, &held, 1);
    let client = client(&pool);
    let mut bytes = [0; 65536];
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let goes_on = OnDrop(&rig.platters[0].stalled, false);
    assert!(client.read_at(&held, Bytes(0), &mut bytes).is_err());
    let errors = || {
        let disk = &pool.health().disks[0];
        (disk.read_errors, disk.write_errors, disk.given_ups)
    };
    assert_eq!(errors(), (1, 0, 1));
    let spec = VolumeSpec {
        name: "new".into(),
        size: Bytes(MIB),
        placement: Placement::default(),
    };
    for _ in 0..3 {
        assert!(client.read_at(&held, Bytes(0), &mut bytes).is_err());
        assert!(client.write_at(&held, Bytes(0), &bytes).is_err());
        assert!(pool.create_volume(&spec).is_err());
    }
    assert_eq!(errors(), (1, 0, 1));
    drop(goes_on);
    until("it answers again", || pool.health().disks[0].comebacks == 1);
    works(&pool, &held, 2);
    assert_eq!(errors(), (1, 0, 1));
}

/// A thread that serves many clients, as in a server, must not sleep on a disk for one of them.
#[test]
fn batch_submission_to_a_full_stalled_disk_does_not_block_others() {
    // More than a disk has slots for.
    const MANY: u64 = 3_000;
    const SIZE: usize = 4_096;
    let (rig, pool) = patient();
    let good = volume_on(&pool, "good", 0, 4 * MIB);
    let bad = volume_on(&pool, "bad", 1, 4 * MIB);
    works(&pool, &good, 1);
    works(&pool, &bad, 7);
    let options = ClientOptions {
        in_flight_max: MANY as usize,
        ..ClientOptions::default()
    };
    let client = pool.client("many", options).unwrap();
    let mut buffers: Vec<_> = (0..MANY)
        .map(|_| client.account().allocate_wait(SIZE, None).unwrap())
        .collect();
    rig.platters[1].stalled.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let goes_on = OnDrop(&rig.platters[1].stalled, false);
        let submitting = scope.spawn(|| {
            for (number, buffer) in (0..).zip(&mut buffers) {
                let data = buffer.segments(Op::Read, 0..SIZE).unwrap();
                let place = Bytes(number % 16 * SIZE as u64);
                let request = VolumeRequest::transfer(&bad, VolumeOp::Read, place, data);
                client.submit_batched(request.user_data(number)).unwrap();
            }
            client.submit_end();
        });
        until("all are submitted", || submitting.is_finished());
        works(&pool, &good, 2);
        drop(goes_on);
    });
    let mut answered = vec![false; MANY as usize];
    for _ in 0..MANY {
        let completion = client.wait(Some(PATIENCE)).expect("it is answered");
        completion.result.unwrap();
        let twice = std::mem::replace(&mut answered[completion.user_data as usize], true);
        assert!(!twice, "{}", completion.user_data);
    }
    for buffer in &mut buffers {
        buffer
            .with(|memory| assert!(memory[..SIZE] == [7; SIZE]))
            .unwrap();
    }
    works(&pool, &bad, 8);
}

#[test]
fn a_flush_whose_record_lies_on_a_stalled_disk_says_what_it_waits_for() {
    let (rig, pool) = patient();
    let other = volume_on(&pool, "other", 1, 4 * MIB);
    works(&pool, &other, 1);
    assert_eq!(pool.status().waits, []);
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let _goes_on = OnDrop(&rig.platters[0].stalled, false);
        let flushing = scope.spawn(|| {
            let client = client(&pool);
            // A chunk without data, so that the log has a bit to record.
            client
                .write_at(&other, Bytes(2 * MIB), &[2; 65536])
                .unwrap();
            client.flush(&other).unwrap();
        });
        let waits = seen(|| Some(pool.waits()).filter(|waits| !waits.is_empty()));
        let waits = waits.expect("the flush waits");
        let [wait] = waits.as_slice() else {
            panic!("{waits:?}");
        };
        assert_eq!(
            (wait.volume.as_str(), wait.disk.as_str()),
            ("other", "disk0")
        );
        assert!(wait.stalled_ns > 0 && wait.waits_ns > 0);
        let line = wait.to_string();
        assert!(
            line.starts_with("flush of volume \"other\" waits for disk \"disk0\" (stalled for ")
        );
        assert_eq!(pool.status().waits.len(), 1);
        // Data of other requests goes on meanwhile.
        client(&pool)
            .write_at(&other, Bytes(0), &[3; 65536])
            .unwrap();
        assert!(!flushing.is_finished());
        rig.platters[0].stalled.store(false, Ordering::SeqCst);
        flushing.join().unwrap();
    });
    assert_eq!(pool.status().waits, []);
}

#[test]
fn a_recording_on_new_extents_keeps_its_pace_while_the_disk_with_the_metadata_stalls() {
    // A little more than two flush rounds.
    const BLOCKS: u64 = 80;
    let (rig, pool) = patient();
    let fresh = volume_on(&pool, "fresh", 1, 16 * MIB);
    let recorded = stream(&pool, &fresh, Op::Write, MIB);
    let stop = Stop::new().unwrap();
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let goes_on = OnDrop(&rig.platters[0].stalled, false);
    let source = std::fs::File::open("/dev/zero").unwrap();
    let mut durable = Vec::new();
    let mut on_block = |block: &BlockReport| {
        if block.index <= BLOCKS {
            durable.push(recorded.durable_bytes());
        }
        if block.index == BLOCKS {
            // The end of the recording waits for the disk, because then all data has to be durable.
            rig.platters[0].stalled.store(false, Ordering::SeqCst);
            stop.stop();
        }
    };
    let report = Recorder::new(&recorded, Bytes::ZERO)
        .run(source, &stop, &mut on_block)
        .unwrap();
    drop(goes_on);
    assert!(report.blocks > BLOCKS && report.misses == 0, "{report:?}");
    // Data that the log does not record is not reported as durable.
    assert!(durable.iter().all(|bytes| *bytes == 0), "{durable:?}");
    assert_eq!(report.durable_bytes, report.bytes);
}

#[test]
fn a_disk_that_is_given_up_fails_what_it_was_asked_and_its_streams_are_told() {
    let (rig, pool) = Rig::with_patience(
        2,
        Durability::WriteThrough,
        Nanos::from_millis(500),
        Nanos::from_millis(500),
    );
    let (good, bad) = (
        volume_on(&pool, "good", 0, 4 * MIB),
        volume_on(&pool, "bad", 1, 4 * MIB),
    );
    let recorder = stream(&pool, &bad, Op::Write, FAST);
    let error = record_until_it_fails(&recorder, |block| {
        rig.platters[1].stalled.store(block >= 2, Ordering::SeqCst);
    });
    assert!(
        error.to_string().contains("did not answer in time"),
        "{error}"
    );
    assert!(recorder.close().failed.unwrap().contains("disk1"));
    assert!(pool.status().disks[1].failed.is_some());
    works(&pool, &good, 5);
    rig.platters[1].stalled.store(false, Ordering::SeqCst);
    until("the disk answers again", || {
        pool.health().disks[1].comebacks == 1
    });
    works(&pool, &bad, 6);
    drop((good, bad));
    pool.close().unwrap();
}

#[test]
fn a_listener_that_is_owed_a_block_is_an_underrun_and_a_late_source_is_one() {
    let rig = Rig::new(1, 32 * MIB, Durability::WriteThrough);
    rig.create(MIB);
    let pool = rig.open();
    let video = volume(&pool, "video", 2 * MIB);
    client(&pool)
        .write_at(&video, Bytes(0), &vec![5; 2 << 20])
        .unwrap();
    let player = stream(&pool, &video, Op::Read, FAST);
    // Each transfer takes longer than three periods, so some blocks are late on any host.
    let period = Nanos(65536 * 1_000_000_000 / FAST);
    rig.platters[0]
        .delay_ns
        .store(4 * period.0, Ordering::SeqCst);
    let sink = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .unwrap();
    let played = Player::new(&player, Bytes::ZERO)
        .limit(Bytes(10 * 65536))
        .run(sink, &Stop::new().unwrap(), &mut |_| {})
        .unwrap();
    assert!(
        played.underruns > 0 && played.underruns <= played.blocks,
        "{played:?}"
    );
    // The blocks were late as well, because the disk took longer than its profile allows.
    assert_eq!(played.misses, played.blocks, "{played:?}");
    let (told, disk) = (player.status(), &pool.status().disks[0]);
    assert!(told.overruns == played.blocks && disk.overruns >= told.overruns);
    // Gross counters include all late blocks, whatever the cause.
    assert_eq!(played.misses_gross, played.blocks, "{played:?}");
    assert_eq!(told.misses_gross, played.blocks, "{told:?}");
    assert!(disk.misses_gross >= disk.misses && disk.misses >= told.misses);
    rig.platters[0].delay_ns.store(0, Ordering::SeqCst);
    drop(player);

    let recorder = stream(&pool, &video, Op::Write, FAST);
    let (mut source, near) = UnixStream::pair().unwrap();
    let stop = Stop::new().unwrap();
    let report = std::thread::scope(|scope| {
        let mut blocks = 0;
        let (go_on, may_go_on) = mpsc::channel();
        scope.spawn(move || {
            source.write_all(&[1; 65536]).unwrap();
            // The next block is sent only long after its time.
            let completed: Time = may_go_on.recv().unwrap();
            let late = completed + Nanos(4 * period.0);
            assert!(!EventFd::new().unwrap().wait(Some(late)));
            source.write_all(&[2; 65536]).unwrap();
        });
        Recorder::new(&recorder, Bytes::ZERO)
            .run(&near, &stop, &mut |_| {
                blocks += 1;
                if blocks == 1 {
                    go_on.send(clock::now()).unwrap();
                }
            })
            .unwrap()
    });
    assert_eq!(
        (report.blocks, report.underruns, report.waited_for_peer),
        (2, 1, 1)
    );
}
