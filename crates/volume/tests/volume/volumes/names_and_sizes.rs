//! Names, sizes, and changes at the wrong time.

use sched::units::Bytes;
use volume::limits::NAME_BYTES_MAX;
use volume::{CreateSpec, Placement, VolumeError, VolumeId};

use super::world;
use crate::common::{EXTENT, OWNER, open};

#[test]
fn names() {
    let mut world = world(1, 24);
    let longest = "é".repeat(NAME_BYTES_MAX / 2) + "x";
    for name in ["a", "...", "name with spaces", "日本語", "..a", &longest] {
        world.create(name, EXTENT, Placement::default()).unwrap();
    }
    let too_long = "é".repeat(128);
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "/",
        "a\nb",
        "\0",
        "\u{7f}",
        "\u{85}",
        &too_long,
        " ",
        "\u{3000} \u{a0}",
        "a\u{200b}b",
        "a\u{202e}b",
        "a\u{2066}b",
        "a\u{2028}b",
        "a\u{2029}b",
        "\u{feff}a",
        "a\u{e0041}",
    ] {
        let error = world
            .create(name, EXTENT, Placement::default())
            .unwrap_err();
        assert!(
            matches!(error, VolumeError::BadName { .. }),
            "{name:?}: {error}"
        );
    }
    assert_eq!(
        world.create("a", 1, Placement::default()),
        Err(VolumeError::NameTaken("a".to_owned()))
    );
    let a = world.pool.find("a").unwrap();
    assert_eq!(
        world.rename(a, "..."),
        Err(VolumeError::NameTaken("...".to_owned()))
    );
    assert!(matches!(
        world.rename(a, "x/y"),
        Err(VolumeError::BadName { .. })
    ));
    world.rename(a, "a").unwrap();
    world.rename(a, "b").unwrap();
    world.create("a", EXTENT, Placement::default()).unwrap();
}

#[test]
fn sizes() {
    let mut world = world(2, 24);
    let default = Placement::default;
    assert_eq!(world.create("a", 0, default()), Err(VolumeError::SizeZero));
    for huge in [
        u64::MAX,
        u64::MAX - 511,
        u64::MAX - 512,
        1 << 63,
        49 * EXTENT,
    ] {
        let error = world.create("a", huge, default()).unwrap_err();
        assert!(
            matches!(
                error,
                VolumeError::NoSpace { .. } | VolumeError::SizeOverflows(_)
            ),
            "{huge}: {error}"
        );
    }
    // The exact size is kept, in whole sectors.
    let a = world.create("a", EXTENT + 1, default()).unwrap();
    assert_eq!(
        (world.map(a).size(), world.map(a).extents().len()),
        (Bytes(EXTENT + 512), 2)
    );
    for same in [EXTENT + 1, EXTENT + 512] {
        let grown = world.pool.grow(a, Bytes(same), &default()).unwrap_err();
        assert!(matches!(
            grown,
            VolumeError::WrongDirection {
                direction: "larger",
                ..
            }
        ));
        let shrunk = world.pool.shrink(a, Bytes(same)).unwrap_err();
        assert!(matches!(
            shrunk,
            VolumeError::WrongDirection {
                direction: "smaller",
                ..
            }
        ));
    }
    assert_eq!(
        world.pool.shrink(a, Bytes(0)).unwrap_err(),
        VolumeError::SizeZero
    );
    assert!(matches!(
        world.pool.grow(a, Bytes(u64::MAX), &default()),
        Err(VolumeError::SizeOverflows(_))
    ));
    assert_eq!(
        world.pool.delete(VolumeId(77)).unwrap_err(),
        VolumeError::NoSuchVolume(VolumeId(77))
    );
}

#[test]
fn all_that_is_available_can_be_had_and_no_more_and_comes_back() {
    let mut world = world(2, 24);
    let default = Placement::default;
    let a = world.create("a", EXTENT + 1, default()).unwrap();
    let rest = world.pool.available().0;
    let error = world.create("b", rest + EXTENT, default()).unwrap_err();
    assert!(matches!(error, VolumeError::NoSpace { .. }), "{error}");
    let b = world.create("b", rest, default()).unwrap();
    assert_eq!(world.pool.available(), Bytes::ZERO);
    for round in 0..100 {
        world.write(b, round * 3, 1);
        world.flush(b);
    }
    world.delete(b).unwrap();
    world.delete(a).unwrap();
    assert_eq!(world.pool.available().0, rest + 2 * EXTENT);
}

#[test]
fn nothing_is_changed_before_the_start_nor_twice_at_once() {
    let world = world(1, 24);
    let mut pool = open(&world.disks).unwrap();
    let a = CreateSpec {
        name: "a".to_owned(),
        size: Bytes(EXTENT),
        placement: Placement::default(),
    };
    assert_eq!(pool.create(&a).unwrap_err(), VolumeError::NotStarted);
    assert_eq!(
        pool.begin_move(VolumeId(1), 0, &a.placement).unwrap_err(),
        VolumeError::NotStarted
    );
    let start = pool.start(OWNER).unwrap();
    assert_eq!(pool.start(OWNER).unwrap_err(), VolumeError::Busy);
    let _ = pool.commit(start);
    assert_eq!(pool.start(OWNER).unwrap_err(), VolumeError::AlreadyStarted);
    let free = pool.available();
    let create = pool.create(&a).unwrap();
    assert_eq!(pool.checkpoint().unwrap_err(), VolumeError::Busy);
    assert_eq!(pool.settle(&[]).unwrap_err(), VolumeError::Busy);
    pool.cancel(create);
    assert_eq!(pool.available(), free);
    let create = pool.create(&a).unwrap();
    pool.fail(create);
    assert!(pool.is_poisoned());
    assert_eq!(pool.create(&a).unwrap_err(), VolumeError::Poisoned);
}
