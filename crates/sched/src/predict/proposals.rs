//! Sizes and limits that follow from a drive's times: extents, blocks of streams, pieces of best effort,
//! the slack that ends a burst.

use core::ops::Range;

use super::mechanics::Layout;
use super::widened;
use super::{COUNT_MAX, FOREVER, Model, NANOS_PER_MICRO, Predictor, flat_time};
use crate::request::Op;
use crate::units::{Bytes, BytesPerSecond, Nanos, SECTOR_BYTES, Sector, SectorCount};

/// Seconds of a stream in one block: more would make it wait too long for its first, and need more
/// memory than the disk time saved is worth.
const BLOCK_SECONDS_MAX: u64 = 4;
/// No block smaller than this is proposed: below, a disk does nothing but seek.
const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Extents between 1 MiB, the papers' size, and what a volume map of chunks can describe.
const EXTENT_BYTES: Range<u64> = 1 << 20..1 << 26;
/// The papers ask for "about 90 % transfer" (thesis 5.2.1). As a least share for powers of two that is this
/// one: their own 1 MiB on the Atlas-II is 86 % in the fastest zone, and each doubling halves what is left.
const EXTENT_TRANSFER_PERCENT: u64 = 85;
/// Entering and leaving a burst takes two long seeks and the rotations after them; a burst worth
/// leaving serves best effort for this many times as long.
const BURST_SWITCHES: u64 = 8;
/// A drive that reads whole tracks needs this many to get anything done in a piece.
const PIECE_TRACKS_MIN: u64 = 5;

impl Predictor {
    /// The extent size for this drive: the smallest power of two whose access is at least 85 % transfer
    /// where transfer is fastest, after a seek over a third of the stroke and half a rotation.
    #[must_use]
    pub fn extent_bytes(&self) -> Bytes {
        let mut bytes = EXTENT_BYTES.start;
        while bytes < EXTENT_BYTES.end {
            let (positioning, transfer) = self.usual(Bytes(bytes));
            if transfer * 100 >= (positioning + transfer) * EXTENT_TRANSFER_PERCENT {
                break;
            }
            bytes *= 2;
        }
        Bytes(bytes)
    }

    /// A block size to propose for a stream: a power of two, at most the extent size, at most what a
    /// few seconds of it are, and two of them within `memory_max`; but at least 64 KiB.
    #[must_use]
    pub fn block_bytes(&self, rate: BytesPerSecond, memory_max: Bytes) -> Bytes {
        let seconds = rate.get().saturating_mul(BLOCK_SECONDS_MAX);
        let most = self
            .extent_bytes()
            .get()
            .min(seconds)
            .min(memory_max.get() / 2);
        let most = most.max(BLOCK_BYTES_MIN);
        Bytes(1 << most.ilog2())
    }

    /// The longest that a piece of a best-effort request may be predicted to take: so long that even
    /// after the longest way to it about half of it is transfer.
    #[must_use]
    pub fn piece_limit(&self) -> Nanos {
        let positioning = self.positioning_max();
        let transfer = match &self.model {
            Model::Rotating(mechanics) => positioning.max(mechanics.rotation * PIECE_TRACKS_MIN),
            Model::Flat(_) => positioning,
        };
        widened(Nanos(positioning + transfer), self.widened_percent)
    }

    /// The most sectors of a piece that lies within `zone` and is predicted to take no longer than
    /// `limit` from wherever the head is, on a link of its own; whole physical sectors, and at least one of them.
    #[must_use]
    pub fn piece_sectors(&self, zone: usize, limit: Nanos) -> SectorCount {
        let unit = self.physical_sectors;
        let fits = |units: u64| {
            let count = SectorCount(units * unit);
            [Op::Read, Op::Write]
                .into_iter()
                .all(|op| self.piece_alone(zone, op, count) <= limit)
        };
        let (mut fitting, mut too_many) = (1, 2);
        while fits(too_many) && too_many * unit < self.capacity.get() {
            (fitting, too_many) = (too_many, too_many * 2);
        }
        while fitting + 1 < too_many {
            let middle = fitting.midpoint(too_many);
            if fits(middle) {
                fitting = middle
            } else {
                too_many = middle
            }
        }
        SectorCount(fitting * unit)
    }

    /// The longest prediction for a piece: of [`Predictor::piece_sectors`] in any zone, or of a physical sector
    /// that lies in more than one, which is not cut. On a shared link it is longer than `limit` by what the others may
    /// transfer meanwhile.
    #[must_use]
    pub fn piece_max(&self, limit: Nanos) -> Nanos {
        let in_part = match &self.model {
            Model::Rotating(mechanics) if self.physical_sectors > 1 => mechanics.rotation,
            _ => 0,
        };
        let in_part = widened(Nanos(in_part), self.widened_percent);
        let unit = self.physical_sectors;
        let whole = (0..self.zones.len()).map(|zone| {
            let count = self.piece_sectors(zone, limit);
            [Op::Read, Op::Write].map(|op| self.piece_worst(zone, op, count))
        });
        let ends = self.zones.iter().map(|zone| zone.end);
        let torn = ends.filter(|end| !end.is_multiple_of(unit) && *end < self.capacity.get());
        let torn = torn.map(|end| {
            let start = Sector(end / unit * unit);
            [Op::Read, Op::Write].map(|op| self.predict(None, op, start, SectorCount(unit)))
        });
        let longest = whole.chain(torn).flatten().max();
        longest.unwrap_or_default() + in_part
    }

    /// The slack at which it is worth leaving a real-time burst: a multiple of the two long seeks, and
    /// the rotations after them, that leaving and entering again cost.
    #[must_use]
    pub fn burst_threshold(&self) -> Nanos {
        let switch = match &self.model {
            Model::Rotating(mechanics) => mechanics.seek_max() + mechanics.rotation,
            Model::Flat(flat) => {
                flat.read_overhead_us.max(flat.write_overhead_us) * NANOS_PER_MICRO
            }
        };
        widened(Nanos(2 * switch * BURST_SWITCHES), self.widened_percent)
    }

    /// The longest a piece within this zone takes.
    fn piece_worst(&self, zone: usize, op: Op, count: SectorCount) -> Nanos {
        self.on_link(self.piece_alone(zone, op, count), op, count)
    }

    /// The same on a link of its own.
    fn piece_alone(&self, zone: usize, op: Op, count: SectorCount) -> Nanos {
        let time = match &self.model {
            Model::Flat(flat) => flat_time(flat, op, count),
            Model::Rotating(_) if count > COUNT_MAX => FOREVER,
            Model::Rotating(mechanics) => self.anywhere(mechanics, self.zones[zone], 0, op, count),
        };
        widened(time, self.widened_percent)
    }

    fn positioning_max(&self) -> u64 {
        match &self.model {
            Model::Rotating(mechanics) => {
                mechanics.overhead
                    + mechanics.seek_max()
                    + mechanics.write_settle
                    + mechanics.rotation
            }
            Model::Flat(flat) => {
                flat.read_overhead_us.max(flat.write_overhead_us) * NANOS_PER_MICRO
            }
        }
    }

    /// The usual positioning and transfer times of a whole block in the fastest zone, reading.
    fn usual(&self, bytes: Bytes) -> (u64, u64) {
        let count = bytes.get() / SECTOR_BYTES;
        match &self.model {
            Model::Rotating(mechanics) => {
                let cylinders = mechanics.seek.last().map_or(0, |last| last.0);
                let seek = mechanics.seek(cylinders / 3);
                let positioning = mechanics.overhead + seek + mechanics.rotation / 2;
                (
                    positioning,
                    mechanics.in_order(Op::Read, Layout::anywhere(self.zones[0], count)),
                )
            }
            Model::Flat(flat) => {
                let overhead = flat.read_overhead_us * NANOS_PER_MICRO;
                let whole = flat_time(flat, Op::Read, SectorCount(count)).get();
                (overhead, whole - overhead)
            }
        }
    }
}
