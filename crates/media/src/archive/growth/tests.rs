use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const BLOCK: u64 = 65_536;
const EXTENT: u64 = 1 << 20;

/// A volume of this many extents that is recorded to. The pool has `free` more extents and leaves `left` to
/// other volumes.
fn inputs(extents: u64, free: u64, grow_to: u64, left: u64) -> PlanInputs {
    let volume = extents * EXTENT;
    let some = |extents: u64| Some(Bytes(extents * EXTENT)).filter(|of| of.get() > 0);
    PlanInputs {
        ring: RingState {
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
        ahead_blocks: AHEAD_BLOCKS,
        block_bytes: BLOCK,
        extent_bytes: EXTENT,
        volume_bytes: volume,
        pool_free_bytes: free * EXTENT,
        is_used: true,
    }
}

/// Makes the planned changes, like the retention thread, until no change is left. Returns the serial of the
/// next check.
fn settle(inputs: &mut PlanInputs) -> Option<u64> {
    for _ in 0..STEPS_MAX {
        let before = *inputs;
        let plan = inputs.plan();
        let ring = &mut inputs.ring;
        let mut to_be = |to: Geometry| {
            assert_eq!(ring.geometry.resized(ring.next, to.blocks), Some(to));
            let lost = to.base.saturating_sub(ring.oldest);
            let cut = before.ring.geometry.blocks.saturating_sub(to.blocks);
            assert!(
                lost <= before.loss_max() + LEFT_BLOCKS + cut,
                "{before:?}, {lost} lost"
            );
            ring.geometry = to;
            ring.oldest = ring.oldest.max(to.base);
        };
        let volume = match plan.step {
            None => return plan.check_at,
            Some(Step::Grow(to, volume)) => {
                assert!(to.blocks > before.ring.geometry.blocks);
                to_be(to);
                volume
            }
            Some(Step::Shrink(to)) => {
                assert!(to.blocks < before.ring.geometry.blocks);
                to_be(to);
                inputs.needed(to.blocks)
            }
            Some(Step::Cut) => inputs.needed(inputs.ring.geometry.blocks),
        };
        let whole = |volume: u64| volume.next_multiple_of(EXTENT);
        inputs.pool_free_bytes = (inputs.pool_free_bytes + whole(inputs.volume_bytes))
            .checked_sub(whole(volume))
            .expect("no more than the pool has");
        inputs.volume_bytes = volume;
        let blocks = inputs.ring.geometry.blocks;
        assert!((blocks + 1) * BLOCK <= volume, "{before:?}, {inputs:?}");
        if whole(volume) > whole(before.volume_bytes) {
            let (grow_to, left) = (inputs.keep.grow_to, inputs.keep.free);
            assert!(volume <= grow_to.expect("it grows").get());
            assert!(
                inputs.pool_free_bytes >= left.map_or(0, Bytes::get),
                "{before:?}"
            );
        }
    }
    panic!("it does not end: {inputs:?}");
}

/// Records blocks, and checks when a check is due.
fn record(inputs: &mut PlanInputs, blocks: u64) {
    let mut check_at = settle(inputs);
    for _ in 0..blocks {
        let ring = &mut inputs.ring;
        let serial = ring.next;
        ring.next += 1;
        let oldest = ring.geometry.oldest(ring.next);
        ring.oldest = ring.oldest.max(oldest);
        if check_at.is_some_and(|at| at <= serial) {
            check_at = settle(inputs);
            assert!(
                check_at.is_none_or(|at| at >= inputs.ring.next),
                "{inputs:?}"
            );
        }
    }
}

fn extents(inputs: &PlanInputs) -> u64 {
    inputs.volume_bytes / EXTENT
}

#[test]
fn a_volume_grows_before_anything_is_overwritten_and_then_goes_round() {
    let mut of = inputs(1, 100, 20, 0);
    record(&mut of, 318);
    assert_eq!((extents(&of), of.ring.oldest), (20, 0));
    assert_eq!(of.ring.geometry, Geometry::new(319));
    record(&mut of, 2_000);
    assert_eq!((extents(&of), of.ring.oldest), (20, 2_318 - 319));
    // In a later round it may grow as well, which loses a few of the oldest blocks.
    of.keep.grow_to = Some(Bytes(40 * EXTENT));
    let oldest = of.ring.oldest;
    record(&mut of, 400);
    assert!(extents(&of) > 20);
    assert!(of.ring.oldest < oldest + 400);
    // After the recording, used places stay and unused ones are given back.
    let mut of = inputs(4, 100, 100, 0);
    record(&mut of, 500);
    let long = extents(&of);
    of.is_used = false;
    assert_eq!(settle(&mut of), None);
    assert_eq!((extents(&of), of.ring.oldest), (32, 0), "of {long}");
    // A volume that nothing was recorded to keeps its length.
    let mut of = inputs(4, 100, 100, 0);
    of.is_used = false;
    settle(&mut of);
    assert_eq!(extents(&of), 4);
}

#[test]
fn a_volume_does_not_grow_when_its_next_blocks_are_deleted() {
    let mut of = inputs(8, 100, 100, 0);
    record(&mut of, 100);
    of.ring.oldest = 20;
    record(&mut of, 100);
    assert_eq!(extents(&of), 8);
    assert_eq!(of.ring.oldest, 200 - 127);
}

#[test]
fn reserved_space_is_not_taken_and_is_given_back() {
    let mut of = inputs(8, 6, 100, 4);
    record(&mut of, 200);
    assert_eq!((extents(&of), of.pool_free_bytes / EXTENT), (10, 4));
    assert_eq!(of.ring.geometry.blocks, 159);
    // Others need two extents more: nothing happens before the writer is at the end of the shorter ring.
    of.pool_free_bytes -= 2 * EXTENT;
    record(&mut of, 60);
    assert_eq!(extents(&of), 10);
    record(&mut of, 60);
    assert_eq!((extents(&of), of.pool_free_bytes / EXTENT), (8, 4));
    // Only the oldest blocks were lost.
    assert_eq!(of.ring.next - of.ring.oldest, 127);
    // In the first round nothing is lost, so it happens at once, with and without a recorder.
    for is_used in [true, false] {
        let mut of = inputs(8, 1, 0, 4);
        (of.ring.next, of.is_used) = (30, is_used);
        settle(&mut of);
        assert_eq!((extents(&of), of.ring.oldest), (5, 0));
        // No more is given back than there is.
        of.keep.free = Some(Bytes(50 * EXTENT));
        settle(&mut of);
        assert_eq!((extents(&of), of.ring.oldest), (3 - u64::from(!is_used), 0));
    }
}

/// Rings of all lengths, with the writer at various places when space is needed.
#[test]
fn missing_space_is_given_back_within_two_rounds() {
    for extents in 2..12 {
        for recorded in [300, 307, 311, 324, 399] {
            for missing in 1..extents {
                let mut of = inputs(extents, 4, 0, 4);
                record(&mut of, recorded);
                of.pool_free_bytes -= missing.min(4) * EXTENT;
                let expected = (extents - missing.min(4)).max(1);
                record(&mut of, 2 * extents * 16);
                assert_eq!(of.volume_bytes / EXTENT, expected, "{of:?}");
            }
        }
    }
}

#[test]
fn plans_end_and_respect_the_limits() {
    let mut rng = StdRng::seed_from_u64(23);
    for _ in 0..500 {
        let mut of = inputs(
            rng.random_range(1..12),
            rng.random_range(0..30),
            rng.random_range(0..40),
            rng.random_range(0..12),
        );
        for _ in 0..30 {
            match rng.random_range(0..5) {
                0 => {
                    of.pool_free_bytes = of
                        .pool_free_bytes
                        .saturating_sub(rng.random_range(0..5) * EXTENT)
                }
                1 => of.pool_free_bytes += rng.random_range(0..5) * EXTENT,
                2 => {
                    let ring = &mut of.ring;
                    ring.oldest = rng.random_range(ring.oldest..=ring.next);
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
