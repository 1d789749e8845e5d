//! An archive that nobody uses is closed, and is opened again with little reading, while nobody waits for
//! that who wants another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::rig::Rig;
use engine::pool::Volume;
use media::archive::archives::Archives;
use media::archive::block::{Composer, Header, Seal};
use media::archive::gap::GapCause;
use media::archive::{Archive, Recording};
use sched::units::Bytes;

const BLOCK: u64 = 65_536;
const BLOCKS: u64 = 128;

/// Longer than anything takes that is not waited for.
const WITHIN: Duration = Duration::from_secs(60);

/// A volume whose recordings have a block each.
fn volume(rig: &Rig, name: &str, recordings: std::ops::Range<u64>) -> Arc<Volume> {
    let volume = rig.volume(name, (BLOCKS + 1) * BLOCK);
    let header = Header {
        archive: [name.as_bytes()[0]; 16],
        block_bytes: BLOCK,
        blocks: BLOCKS,
    };
    rig.client
        .write_at(&volume, Bytes::ZERO, &header.encode())
        .unwrap();
    records(rig, &volume, &header, recordings);
    volume
}

/// Description of each recording.
const DESCRIPTION: &[u8] =
    b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n";

fn records(rig: &Rig, volume: &Volume, header: &Header, recordings: std::ops::Range<u64>) {
    for number in recordings {
        let mut block = vec![0; BLOCK as usize];
        let seal = Seal {
            archive: header.archive,
            serial: number,
            recording: number + 1,
            first: number,
            begun_unix_ns: 1_000 + number,
            gap: None,
            end: Some(GapCause::Camera),
        };
        let composer = Composer::new(block.len(), DESCRIPTION.len(), 0);
        composer.seal(&mut block, DESCRIPTION, b"", &seal);
        let at = Bytes((number % BLOCKS + 1) * BLOCK);
        rig.client.write_at(volume, at, &block).unwrap();
    }
}

/// The archive's recordings, and the number of reads.
fn opened(rig: &Rig, open: impl FnOnce() -> Arc<Archive>) -> (Vec<Recording>, u64) {
    let before = rig.platter.reads.load(Ordering::SeqCst);
    let recordings = open().recordings();
    (
        recordings,
        rig.platter.reads.load(Ordering::SeqCst) - before,
    )
}

/// Each request for a file or a segment of it opens an archive in which nobody records.
#[test]
fn known_contents_of_an_archive_are_not_read_again() {
    let rig = Rig::new(64 << 20);
    let cam = volume(&rig, "cam", 0..100);
    let header = *Archive::open(&rig.client, Arc::clone(&cam))
        .unwrap()
        .header();
    let archives = Archives::new(Arc::clone(&rig.pool), Bytes(BLOCK), |_| false);
    let open = || archives.open("cam", None).unwrap();
    let anew = || Arc::new(Archive::open(&rig.client, Arc::clone(&cam)).unwrap());
    let (first, all) = opened(&rig, open);
    assert_eq!(first.len(), 100);
    for (recorded, most) in [(0, 1), (1, 2), (60, 61), (200, 130), (0, 1)] {
        let next = anew().recordings().last().map_or(0, |of| of.end);
        records(&rig, &cam, &header, next..next + recorded);
        let (wanted, whole) = opened(&rig, anew);
        let (found, reads) = opened(&rig, open);
        assert_eq!(found, wanted, "{recorded} more");
        // One for each that is new and one for the newest that was there, besides two that say that it is
        // that no more.
        let spared = found.len() as u64 - most.min(found.len() as u64);
        assert!(
            reads + spared <= whole + 2,
            "{recorded} more: {reads} of {whole} reads"
        );
    }
    assert!(all > 100, "{all}");
    // The newest is not looked for either: it, and that nothing is behind it, and what tells what an archive is.
    let (_, reads) = opened(&rig, open);
    assert!(reads < 15, "{reads}");
    // Nothing is known of another archive in the same volume.
    let other = Header {
        archive: [9; 16],
        ..header
    };
    rig.client
        .write_at(&cam, Bytes::ZERO, &other.encode())
        .unwrap();
    records(&rig, &cam, &other, 0..5);
    let (found, _) = opened(&rig, open);
    assert_eq!(found, anew().recordings());
    assert_eq!(found.len(), 5);
}

/// A volume restored from an image has the image's recordings, even if the newest recording is the same.
#[test]
fn image_keeps_recordings_deleted_since() {
    let rig = Rig::new(64 << 20);
    let cam = volume(&rig, "cam", 0..5);
    let archives = Archives::new(Arc::clone(&rig.pool), Bytes(BLOCK), |_| false);
    let numbers = || -> Vec<u64> {
        let open = archives.open("cam", None).unwrap();
        open.recordings().iter().map(|of| of.number).collect()
    };
    let mut image = vec![0; 6 * BLOCK as usize];
    rig.client.read_at(&cam, Bytes::ZERO, &mut image).unwrap();
    assert_eq!(numbers(), [1, 2, 3, 4, 5]);
    archives.delete("cam", 2).unwrap();
    assert_eq!(numbers(), [1, 3, 4, 5]);
    rig.client.write_at(&cam, Bytes::ZERO, &image).unwrap();
    assert_eq!(numbers(), [1, 2, 3, 4, 5]);
}

/// The outline of an ended recording is read once, also if others have been asked for since.
#[test]
fn outline_of_a_recording_is_read_once() {
    let rig = Rig::new(64 << 20);
    volume(&rig, "cam", 0..100);
    let archives = Archives::new(Arc::clone(&rig.pool), Bytes(BLOCK), |_| false);
    let open = archives.open("cam", None).unwrap();
    // The reads that it takes to describe one.
    let reads = |number: u64| {
        let before = rig.platter.reads.load(Ordering::SeqCst);
        let recording = open.recording(Some(number)).unwrap();
        let described = archives.describe(&open, recording).unwrap();
        assert_eq!(described.description.unwrap().text(), DESCRIPTION);
        rig.platter.reads.load(Ordering::SeqCst) - before
    };
    assert!(reads(1) > reads(1));
    // A recording that was asked for now and then is known, and this many of the others.
    let known = reads(1);
    for number in 2..70 {
        assert!(reads(number) > known, "{number}");
        assert_eq!(reads(1), known, "{number}");
    }
    assert_eq!(reads(69), known);
    assert!(reads(2) > known);
}

/// A list of very many that nobody waits for any more is not read to its end.
#[test]
fn listing_stops_when_no_client_waits() {
    let rig = Rig::new(64 << 20);
    volume(&rig, "cam", 0..100);
    let archives = Archives::new(Arc::clone(&rig.pool), Bytes(BLOCK), |_| false);
    let asked = AtomicU64::new(0);
    let some = archives.recordings("cam", || asked.fetch_add(1, Ordering::SeqCst) < 7);
    assert_eq!(some.unwrap().len(), 7);
    let all = archives.recordings("cam", || true).unwrap();
    assert_eq!(all.len(), 100);
}

/// While a disk takes long over an archive, others are had.
#[test]
fn nobody_waits_for_an_archive_who_wants_another() {
    let rig = Rig::new(64 << 20);
    volume(&rig, "slow", 0..5);
    volume(&rig, "other", 0..5);
    let archives = Archives::new(Arc::clone(&rig.pool), Bytes(BLOCK), |_| false);
    let other = archives.open("other", None).unwrap();
    rig.platter.stalled.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let slow = scope.spawn(|| archives.open("slow", None).unwrap().recordings().len());
        // The request waits for the disk.
        while rig.pool.status().disks[0].queued == 0 {
            thread::yield_now();
        }
        let (said, had) = mpsc::channel();
        scope.spawn(|| {
            let again = archives.open("other", None).unwrap();
            archives.client().unwrap();
            let _ = said.send(Arc::ptr_eq(&again, &other));
            drop(said);
        });
        let had = had.recv_timeout(WITHIN);
        rig.platter.stalled.store(false, Ordering::SeqCst);
        assert_eq!(had, Ok(true));
        assert_eq!(slow.join().unwrap(), 5);
    });
}
