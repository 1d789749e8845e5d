use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const BLOCK: u64 = 65_536;
const EXTENT: u64 = 1 << 20;

/// A volume of so many extents in a pool that has so many more, to which somebody records.
fn view(extents: u64, free: u64, grow_to: u64, left: u64) -> View {
    let volume = extents * EXTENT;
    let some = |extents: u64| Some(Bytes(extents * EXTENT)).filter(|of| of.get() > 0);
    View {
        standing: Standing {
            geometry: Geometry::new(volume / BLOCK - 1),
            next: 0,
            oldest: 0,
            is_recorded: true,
        },
        keep: RetentionLimits {
            grow_to: some(grow_to),
            free: some(left),
            ..RetentionLimits::default()
        },
        ahead: AHEAD_BLOCKS,
        block: BLOCK,
        extent: EXTENT,
        volume,
        free: free * EXTENT,
        is_used: true,
    }
}

/// Does what is planned until there is nothing more, as it is done to a volume; at which serial to look again.
fn settle(view: &mut View) -> Option<u64> {
    for _ in 0..STEPS_MAX {
        let before = *view;
        let plan = view.plan();
        let standing = &mut view.standing;
        let mut to_be = |to: Geometry| {
            assert_eq!(
                standing.geometry.resized(standing.next, to.blocks),
                Some(to)
            );
            let lost = to.base.saturating_sub(standing.oldest);
            let cut = before.standing.geometry.blocks.saturating_sub(to.blocks);
            assert!(
                lost <= before.loss_max() + LEFT_BLOCKS + cut,
                "{before:?}, {lost} lost"
            );
            standing.geometry = to;
            standing.oldest = standing.oldest.max(to.base);
        };
        let volume = match plan.step {
            None => return plan.look_at,
            Some(Step::Longer(to, volume)) => {
                assert!(to.blocks > before.standing.geometry.blocks);
                to_be(to);
                volume
            }
            Some(Step::Shorter(to)) => {
                assert!(to.blocks < before.standing.geometry.blocks);
                to_be(to);
                view.needed(to.blocks)
            }
            Some(Step::Cut) => view.needed(view.standing.geometry.blocks),
        };
        let whole = |volume: u64| volume.next_multiple_of(EXTENT);
        view.free = (view.free + whole(view.volume))
            .checked_sub(whole(volume))
            .expect("no more than the pool has");
        view.volume = volume;
        let blocks = view.standing.geometry.blocks;
        assert!((blocks + 1) * BLOCK <= volume, "{before:?}, {view:?}");
        if whole(volume) > whole(before.volume) {
            let (grow_to, left) = (view.keep.grow_to, view.keep.free);
            assert!(volume <= grow_to.expect("it grows").get());
            assert!(view.free >= left.map_or(0, Bytes::get), "{before:?}");
        }
    }
    panic!("it does not end: {view:?}");
}

/// Records so many blocks, and looks when it is time to.
fn record(view: &mut View, blocks: u64) {
    let mut look_at = settle(view);
    for _ in 0..blocks {
        let standing = &mut view.standing;
        let serial = standing.next;
        standing.next += 1;
        let oldest = standing.geometry.oldest(standing.next);
        standing.oldest = standing.oldest.max(oldest);
        if look_at.is_some_and(|at| at <= serial) {
            look_at = settle(view);
            assert!(
                look_at.is_none_or(|at| at >= view.standing.next),
                "{view:?}"
            );
        }
    }
}

fn extents(view: &View) -> u64 {
    view.volume / EXTENT
}

#[test]
fn a_volume_grows_before_anything_is_overwritten_and_then_goes_round() {
    let mut of = view(1, 100, 20, 0);
    record(&mut of, 318);
    assert_eq!((extents(&of), of.standing.oldest), (20, 0));
    assert_eq!(of.standing.geometry, Geometry::new(319));
    record(&mut of, 2_000);
    assert_eq!((extents(&of), of.standing.oldest), (20, 2_318 - 319));
    // It may become longer again in a later round, for a few of the oldest.
    of.keep.grow_to = Some(Bytes(40 * EXTENT));
    let oldest = of.standing.oldest;
    record(&mut of, 400);
    assert!(extents(&of) > 20);
    assert!(of.standing.oldest < oldest + 400);
    // What was used stays when the recording ends, and what was not goes.
    let mut of = view(4, 100, 100, 0);
    record(&mut of, 500);
    let long = extents(&of);
    of.is_used = false;
    assert_eq!(settle(&mut of), None);
    assert_eq!((extents(&of), of.standing.oldest), (32, 0), "of {long}");
    // A volume to which nothing was recorded is as long as it was made.
    let mut of = view(4, 100, 100, 0);
    of.is_used = false;
    settle(&mut of);
    assert_eq!(extents(&of), 4);
}

#[test]
fn a_volume_goes_round_where_what_it_would_overwrite_has_gone() {
    let mut of = view(8, 100, 100, 0);
    record(&mut of, 100);
    of.standing.oldest = 20;
    record(&mut of, 100);
    assert_eq!(extents(&of), 8);
    assert_eq!(of.standing.oldest, 200 - 127);
}

#[test]
fn what_is_left_to_others_is_not_taken_and_given_back_where_the_writer_is() {
    let mut of = view(8, 6, 100, 4);
    record(&mut of, 200);
    assert_eq!((extents(&of), of.free / EXTENT), (10, 4));
    assert_eq!(of.standing.geometry.blocks, 159);
    // Somebody needs two more: nothing happens before the writer is where the ring ends then.
    of.free -= 2 * EXTENT;
    record(&mut of, 60);
    assert_eq!(extents(&of), 10);
    record(&mut of, 60);
    assert_eq!((extents(&of), of.free / EXTENT), (8, 4));
    // The oldest went for it, and no more than that.
    assert_eq!(of.standing.next - of.standing.oldest, 127);
    // In the first round nothing is lost: at once, also where nobody records.
    for is_used in [true, false] {
        let mut of = view(8, 1, 0, 4);
        (of.standing.next, of.is_used) = (30, is_used);
        settle(&mut of);
        assert_eq!((extents(&of), of.standing.oldest), (5, 0));
        // No more than there is.
        of.keep.free = Some(Bytes(50 * EXTENT));
        settle(&mut of);
        assert_eq!(
            (extents(&of), of.standing.oldest),
            (3 - u64::from(!is_used), 0)
        );
    }
}

/// Rings of all lengths, wherever their writer is when somebody needs space.
#[test]
fn what_is_missing_is_given_back_within_two_rounds() {
    for extents in 2..12 {
        for recorded in [300, 307, 311, 324, 399] {
            for missing in 1..extents {
                let mut of = view(extents, 4, 0, 4);
                record(&mut of, recorded);
                of.free -= missing.min(4) * EXTENT;
                let expected = (extents - missing.min(4)).max(1);
                record(&mut of, 2 * extents * 16);
                assert_eq!(of.volume / EXTENT, expected, "{of:?}");
            }
        }
    }
}

#[test]
fn whatever_others_take_and_give_a_plan_ends_and_keeps_to_what_it_may() {
    let mut rng = StdRng::seed_from_u64(23);
    for _ in 0..500 {
        let mut of = view(
            rng.random_range(1..12),
            rng.random_range(0..30),
            rng.random_range(0..40),
            rng.random_range(0..12),
        );
        for _ in 0..30 {
            match rng.random_range(0..5) {
                0 => of.free = of.free.saturating_sub(rng.random_range(0..5) * EXTENT),
                1 => of.free += rng.random_range(0..5) * EXTENT,
                2 => {
                    let standing = &mut of.standing;
                    standing.oldest = rng.random_range(standing.oldest..=standing.next);
                }
                3 => of.is_used = !of.is_used,
                _ => {
                    of.is_used = true;
                    let blocks = rng.random_range(0..200);
                    record(&mut of, blocks);
                }
            }
            settle(&mut of);
        }
    }
}
