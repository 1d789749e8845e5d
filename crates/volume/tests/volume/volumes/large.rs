//! A volume of many extents, without a crash after every step: it is too large for that.

use std::sync::Arc;

use sched::units::Bytes;
use volume::check::check;
use volume::{CreateSpec, Placement};

use crate::common::{Disk, EXTENT, Live, candidates, carry_out, format, open, sectors, started};

#[test]
fn a_volume_of_forty_thousand_extents() {
    let mut disks = vec![Disk::new(sectors(22_000)); 2];
    format(&mut disks, 1);
    let mut pool = started(&mut disks);
    let size = Bytes(40_000 * EXTENT);
    let spec = CreateSpec {
        name: "large".to_owned(),
        size,
        placement: Placement::default(),
    };
    let create = pool.create(&spec).unwrap();
    carry_out(&mut disks, &mut pool, create);
    let id = pool.find("large").unwrap();
    let map = Arc::clone(pool.volume(id).unwrap().1);
    // Every extent partly written: the longest node there is.
    for extent in 0..40_000 {
        let span = map
            .writes(extent * EXTENT + 4096 * (extent % 16), 4096)
            .unwrap()
            .next()
            .unwrap();
        span.begin().unwrap().in_use.written();
    }
    let settle = pool.settle(&[id]).unwrap().unwrap();
    carry_out(&mut disks, &mut pool, settle);
    for _ in 0..4 {
        let checkpoint = pool.checkpoint().unwrap();
        carry_out(&mut disks, &mut pool, checkpoint);
    }
    let grow = pool
        .grow(id, Bytes(41_000 * EXTENT), &Placement::default())
        .unwrap();
    carry_out(&mut disks, &mut pool, grow);
    map.discard(0, size.0).unwrap();
    let settle = pool.settle(&[id]).unwrap().unwrap();
    assert!(
        settle.steps().len() <= 4,
        "a discard of everything is one short record: {:?}",
        settle.steps().len()
    );
    carry_out(&mut disks, &mut pool, settle);
    let places: Vec<_> = pool.volume(id).unwrap().1.places().collect();
    let again = open(&disks).unwrap();
    let (name, map) = again.volume(id).unwrap();
    assert_eq!((name, map.extents().len()), ("large", 41_000));
    assert!(map.places().eq(places));
    assert_eq!(map.block_status(0, map.size().0).unwrap().count(), 1);
    let report = check(&mut Live(&disks), &candidates(&disks));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
