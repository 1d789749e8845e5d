//! A ring that becomes another one while somebody writes to it as fast as they can.

use std::sync::{Arc, mpsc};

use crate::support::rig::Rig;
use crate::support::small::{BLOCK, Camera, Small};
use engine::pool::{Placement, Volume};
use engine::stream::{Stream, StreamChange, StreamSpec};
use media::archive::block::Block;
use media::archive::geometry::Geometry;
use media::archive::retention_record::{COPIES_AT, COPY_BYTES};
use media::archive::{Archive, Recording};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Time};

const BEFORE: u64 = 9;
const AFTER: u64 = 20;

impl Rig {
    /// A new volume with room for the ring before, and its archive; then with room for the one after.
    fn archive(&self, name: &str) -> (Arc<Volume>, Arc<Archive>) {
        let volume = self.volume(name, (BEFORE + 1) * BLOCK);
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
    let rig = Rig::new(64 << 20);
    let mut made = [0; 2];
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..120 {
        let begun_at = rng.random_range(0..=BEFORE + 1);
        // The writer goes as fast as it can, a little slower, or not before the change is over.
        let (yields, waits) = [(0, false), (60, false), (0, true)][round % 3];
        let (volume, archive) = rig.archive("cam");
        let stream = rig.stream(&volume);
        let mut writing = archive.record().unwrap();
        // Nothing changes before it is known what is reserved.
        let to = Geometry::new(AFTER);
        assert!(!archive.resize(&rig.client, to).unwrap());
        writing.begin(0, Time::ZERO, stream.changer());
        let placer = writing.placer();
        assert!(!archive.resize(&rig.client, to).unwrap());
        let end = Some(Bytes((AFTER + 1) * BLOCK));
        let wish = StreamChange {
            end,
            ..StreamChange::default()
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
            let mut place = |serial| {
                if serial == begun_at {
                    tell.send(()).unwrap();
                    if waits {
                        ended.recv().unwrap();
                    }
                }
                for _ in 0..rng.random_range(0..=yields) {
                    std::thread::yield_now();
                }
                placer.place(serial).get() / BLOCK
            };
            let places: Vec<u64> = (0..2 * AFTER).map(&mut place).collect();
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
        drop((writing, placer));
        drop(archive);
        // It is durable, as the answer said.
        let again = Archive::open(&rig.client, Arc::clone(&volume)).unwrap();
        assert_eq!(again.geometry(), geometry);
        stream.close();
        drop((again, volume));
        rig.pool.delete_volume("cam").unwrap();
    }
    // After it has come around it is another change than was decided.
    assert!(made[0] > 0 && made[1] > 0, "{made:?}");
}

/// The opened archive: the ring, and each recording with its remaining blocks.
fn found(rig: &Rig, volume: &Arc<Volume>) -> (Geometry, Vec<(Recording, Vec<u64>)>) {
    let archive = Archive::open(&rig.client, Arc::clone(volume)).expect("it opens");
    let blocks = |of: &Recording| {
        let serials = of.first..of.end;
        let there = serials.filter(|serial| {
            let bytes = archive.read_block(&rig.client, *serial).unwrap();
            bytes.is_some_and(|bytes| Block::parse(&bytes).is_ok())
        });
        there.collect()
    };
    let recordings = archive.recordings().into_iter();
    let all = recordings.map(|of| (of, blocks(&of))).collect();
    (archive.geometry(), all)
}

#[test]
fn a_ring_that_has_changed_is_found_whole_whichever_copy_of_that_is_damaged_then() {
    // Blocks written in a ring of 16, its next length, and the one after that.
    for (written, first, second) in [
        (10, 24, 12),
        (10, 12, 30),
        (16, 20, 16),
        (20, 17, 8),
        (21, 6, 40),
        (40, 60, 30),
    ] {
        let rig = Rig::new(64 << 20);
        let volume = rig.volume("cam", 17 * BLOCK);
        let camera = Camera {
            number: 1,
            first: 0,
            blocks: written,
            is_ended: true,
            gop: 5,
            packets: 8,
            parts: 3,
        };
        Small::new(camera, 16, written).write(&rig.client, &volume);
        let mut before = found(&rig, &volume);
        assert_eq!(before.0, Geometry::new(16));
        for blocks in [first, second] {
            let archive = Archive::open(&rig.client, Arc::clone(&volume)).unwrap();
            let to = archive.geometry().resized(written, blocks);
            let to = to.unwrap_or_else(|| panic!("{written} blocks in {blocks} places"));
            let size = Bytes((blocks + 1) * BLOCK);
            let is_longer = volume.size() < size;
            if is_longer {
                rig.pool.grow("cam", size, &Placement::default()).unwrap();
            }
            assert!(archive.resize(&rig.client, to).unwrap());
            drop(archive);
            let size = Bytes(size.get().next_multiple_of(rig.pool.extent().get()));
            if volume.size() > size {
                rig.pool.shrink("cam", size).unwrap();
            }
            let whole = found(&rig, &volume);
            assert_eq!(whole.0, to);
            let count = |of: &(Geometry, Vec<(Recording, Vec<u64>)>)| of.1[0].1.len() as u64;
            assert_eq!(whole.1[0].0.end, written);
            assert_eq!(count(&whole), written - whole.1[0].0.first);
            assert!(count(&whole) <= count(&before));
            for at in COPIES_AT {
                let mut copy = vec![0; COPY_BYTES];
                rig.client.read_at(&volume, Bytes(at), &mut copy).unwrap();
                let mut damaged = copy.clone();
                damaged[COPY_BYTES / 2] ^= 1;
                rig.client.write_at(&volume, Bytes(at), &damaged).unwrap();
                assert_eq!(found(&rig, &volume), whole, "{written}, {blocks}, at {at}");
                rig.client.write_at(&volume, Bytes(at), &copy).unwrap();
            }
            before = whole;
        }
    }
}
