//! From a bandwidth to a task on each disk (scheduling.md 2, 8).
//!
//! # Model
//!
//! A stream moves blocks of `block` bytes at `rate` through a range of a volume. Of the range, a disk
//! holds `share.sectors` of `share.total`; in the long run that part of the blocks falls on it. So
//! the bandwidth that falls on the disk is `rate * sectors / total`, and its period is the size of a
//! request to it divided by that:
//!
//! ```text
//! T = request / (rate * sectors / total)        C = worst case of a request, over the disk's part
//! ```
//!
//! That is right when the range is spread evenly, block by block, over its disks, as rotation does it.
//! Where a run of blocks lies on one disk, that disk must carry the whole rate: its share is then to be
//! given as the whole ([`DiskShare::whole`]).
//!
//! T is rounded down and C up, so a reservation is never smaller than what was asked for.
//!
//! Deliberately absent: admission itself ([`Book`](crate::book::Book)), and the map of a volume.

use crate::predict::Predictor;
use crate::request::Op;
use crate::task::{TaskError, TaskParams};
use crate::units::{Bytes, BytesPerSecond, Nanos, SECTOR_BYTES, Sector, SectorCount};
use core::ops::Range;

/// What a stream asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The rate of the whole stream.
    pub rate: BytesPerSecond,
    /// The size of its requests to the volume.
    pub block: Bytes,
    /// The direction.
    pub op: Op,
}

/// The part of a volume range that lies on one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskShare {
    /// Sectors of the range on this disk.
    pub sectors: SectorCount,
    /// Sectors of the whole range, on all disks.
    pub total: SectorCount,
    /// The longest contiguous piece of a block that one request to this disk may carry, rounded out
    /// to the volume's chunks.
    pub request_max: SectorCount,
}

impl DiskShare {
    /// All of a range, or so long a run of it that the disk carries the whole rate for a while.
    #[must_use]
    pub const fn whole(request_max: SectorCount) -> Self {
        Self {
            sectors: SectorCount(1),
            total: SectorCount(1),
            request_max,
        }
    }
}

/// Why a demand is not a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReservationError {
    /// A rate of nothing.
    #[error("the rate is zero; a reservation needs at least 1 B/s")]
    ZeroRate,
    /// Blocks of nothing, or that are not whole sectors.
    #[error("the block size ({0:?}) must be a multiple of 512 B and not zero")]
    BadBlock(Bytes),
    /// Nothing of the range lies on the disk.
    #[error("the range is empty")]
    EmptyRange,
    /// The numbers are larger than can be reckoned with.
    #[error("a period of {block:?} at {rate:?} cannot be expressed")]
    Overflow {
        /// The block size asked for.
        block: Bytes,
        /// The rate asked for.
        rate: BytesPerSecond,
    },
    /// Not even alone could the disk carry it.
    #[error("a block takes the disk up to {service}, and is due every {period}")]
    TooFast {
        /// C.
        service: Nanos,
        /// T.
        period: Nanos,
    },
}

/// The task that a demand puts on one disk: the period is how often a block falls on it, the service
/// time is the worst over the sectors `ranges` that the volume range occupies there.
///
/// # Errors
/// See [`ReservationError`].
pub fn task(
    predictor: &Predictor,
    demand: Demand,
    share: DiskShare,
    ranges: &[Range<Sector>],
) -> Result<TaskParams, ReservationError> {
    let period = period(demand, share)?;
    let service = service(predictor, demand.op, share.request_max, ranges)?;
    TaskParams::new(service, period).map_err(|error| match error {
        TaskError::NoService => ReservationError::EmptyRange,
        TaskError::PeriodTooLong { .. } => ReservationError::Overflow {
            block: demand.block,
            rate: demand.rate,
        },
        TaskError::LongerThanPeriod { service, period } => {
            ReservationError::TooFast { service, period }
        }
    })
}

/// C of a request of up to `count` sectors in any of these ranges.
///
/// # Errors
/// [`ReservationError::EmptyRange`] without ranges or sectors.
pub fn service(
    predictor: &Predictor,
    op: Op,
    count: SectorCount,
    ranges: &[Range<Sector>],
) -> Result<Nanos, ReservationError> {
    let ranges = ranges.iter().filter(|range| range.start < range.end);
    let worst = ranges
        .map(|range| predictor.worst_case(range.clone(), op, count))
        .max();
    worst
        .filter(|_| !count.is_zero())
        .ok_or(ReservationError::EmptyRange)
}

/// How often a request falls on a disk.
///
/// # Errors
/// See [`ReservationError`]; never [`ReservationError::TooFast`].
pub fn period(demand: Demand, share: DiskShare) -> Result<Nanos, ReservationError> {
    let Demand { rate, block, .. } = demand;
    if rate.get() == 0 {
        return Err(ReservationError::ZeroRate);
    }
    if block.is_zero() || !block.get().is_multiple_of(SECTOR_BYTES) {
        return Err(ReservationError::BadBlock(block));
    }
    if share.sectors.is_zero() || share.total < share.sectors {
        return Err(ReservationError::EmptyRange);
    }
    let overflow = ReservationError::Overflow { block, rate };
    // The part of a block that one request carries; what is rounded out to chunks carries nothing.
    let carried = block.get().min(share.request_max.bytes().get());
    let nanos = u128::from(carried)
        .checked_mul(1_000_000_000)
        .and_then(|nanos| nanos.checked_mul(u128::from(share.total.get())))
        .ok_or(overflow)?;
    let per = u128::from(rate.get()) * u128::from(share.sectors.get());
    u64::try_from(nanos / per).map(Nanos).map_err(|_| overflow)
}

/// The largest rate whose period on a disk is not shorter than `period_min`: what would fit, given
/// [`Book::smallest_period`](crate::book::Book::smallest_period) or its like. Zero where none would.
#[must_use]
pub fn rate_max(demand: Demand, share: DiskShare, period_min: Nanos) -> BytesPerSecond {
    let fits = |rate| {
        let demand = Demand {
            rate: BytesPerSecond(rate),
            ..demand
        };
        match period(demand, share) {
            Ok(period) => period >= period_min,
            // Too slow for its period to be expressed.
            Err(error) => matches!(error, ReservationError::Overflow { .. }),
        }
    };
    // The period falls with the rate: search for the last one that fits.
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle
        } else {
            high = middle - 1
        }
    }
    BytesPerSecond(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::DriveProfile;
    use proptest::prelude::*;

    fn atlas() -> Predictor {
        Predictor::new(&DriveProfile::shipped("quantum-atlas-ii").unwrap())
    }

    fn demand(rate: u64, block: u64) -> Demand {
        Demand {
            rate: BytesPerSecond(rate),
            block: Bytes(block),
            op: Op::Read,
        }
    }

    const BLOCK: u64 = 1 << 20;
    const COUNT: SectorCount = SectorCount(2048);

    fn third() -> DiskShare {
        DiskShare {
            sectors: SectorCount(1_000),
            total: SectorCount(3_000),
            request_max: COUNT,
        }
    }

    #[test]
    fn a_stream_over_three_disks_is_a_task_of_three_times_the_period_on_each() {
        let atlas = atlas();
        let outer = [atlas.zone_range(0).unwrap()];
        let alone = task(
            &atlas,
            demand(BLOCK, BLOCK),
            DiskShare::whole(COUNT),
            &outer,
        )
        .unwrap();
        assert_eq!(alone.period(), Nanos::from_secs(1));
        let spread = task(&atlas, demand(BLOCK, BLOCK), third(), &outer).unwrap();
        assert_eq!(spread.period(), Nanos::from_secs(3));
        assert_eq!(spread.service(), alone.service());
    }

    #[test]
    fn the_slowest_zone_decides() {
        let atlas = atlas();
        let zones = [0, 11].map(|zone| atlas.zone_range(zone).unwrap());
        let both = service(&atlas, Op::Read, COUNT, &zones).unwrap();
        assert_eq!(both, atlas.worst_case(zones[1].clone(), Op::Read, COUNT));
    }

    #[test]
    fn a_block_in_several_pieces_comes_more_often() {
        let share = DiskShare::whole(SectorCount(512));
        assert_eq!(
            period(demand(BLOCK, BLOCK), share),
            Ok(Nanos::from_millis(250))
        );
        // Rounded out to chunks, it still carries the block and no more.
        let share = DiskShare::whole(SectorCount(4096));
        assert_eq!(period(demand(BLOCK, BLOCK), share), Ok(Nanos::from_secs(1)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let atlas = atlas();
        let outer = [atlas.zone_range(0).unwrap()];
        let refused = |demand, share| task(&atlas, demand, share, &outer).unwrap_err();
        assert_eq!(
            refused(demand(0, BLOCK), third()),
            ReservationError::ZeroRate
        );
        assert_eq!(
            refused(demand(1, 0), third()),
            ReservationError::BadBlock(Bytes(0))
        );
        assert_eq!(
            refused(demand(1, 513), third()),
            ReservationError::BadBlock(Bytes(513))
        );
        let empty = DiskShare {
            sectors: SectorCount(0),
            ..third()
        };
        assert_eq!(
            refused(demand(1, BLOCK), empty),
            ReservationError::EmptyRange
        );
        assert_eq!(
            task(&atlas, demand(1, BLOCK), third(), &[]),
            Err(ReservationError::EmptyRange)
        );
        let huge = demand(1, u64::MAX - 511);
        assert!(matches!(
            refused(
                huge,
                DiskShare {
                    request_max: SectorCount(u64::MAX / 512),
                    ..third()
                }
            ),
            ReservationError::Overflow { .. }
        ));
        let fast = refused(demand(100 * BLOCK, BLOCK), third());
        assert!(matches!(fast, ReservationError::TooFast { .. }), "{fast}");
    }

    proptest! {
        /// The largest rate fits, and the next larger one does not.
        #[test]
        fn the_largest_rate_is_the_largest(
            period_min in 1_u64..1 << 40, sectors in 1_u64..1_000, more in 0_u64..10_000,
        ) {
            let total = SectorCount(sectors + more);
            let share = DiskShare { sectors: SectorCount(sectors), total, request_max: COUNT };
            let asked = demand(1, BLOCK);
            let rate = rate_max(asked, share, Nanos(period_min));
            let with = |rate| period(Demand { rate: BytesPerSecond(rate), ..asked }, share).unwrap();
            if rate.get() > 0 {
                prop_assert!(with(rate.get()) >= Nanos(period_min));
            }
            prop_assert!(with(rate.get() + 1) < Nanos(period_min));
        }
    }
}
