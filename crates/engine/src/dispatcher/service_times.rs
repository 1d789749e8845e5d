//! Actual against predicted service times, by kind of request, and the last overruns.
//!
//! All actual times are net of the delay that the host caused. The memory is fixed, so that the dispatcher's thread
//! allocates nothing. Failed pieces are not counted: their times say nothing about the drive's speed.

use std::collections::VecDeque;

use sched::disk::Completed;
use sched::request::{Class, Op, Urgency};
use sched::units::{Nanos, Sector, SectorCount, Time};

/// Number of [`SizeClass`]es.
const SIZES: usize = 16;

/// Number of kinds: two directions, three users, and sizes.
const KINDS: usize = 2 * 3 * SIZES;

/// Width of a bucket of [`KindTimes::buckets`], in thousandths of the predicted time.
pub const BUCKET_PERMILLE: u64 = 50;

/// Number of buckets. The last one holds everything above.
pub const BUCKETS: usize = 32;

/// Number of overruns that are kept, the latest ones.
pub const OVERRUNS_KEPT: usize = 16;

/// The user of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RequestUser {
    /// A stream.
    Stream,
    /// Best effort that a client waits for.
    Sync,
    /// Best effort that no client waits for.
    Async,
}

impl RequestUser {
    const ALL: [Self; 3] = [Self::Stream, Self::Sync, Self::Async];

    pub(super) fn of(class: Class) -> Self {
        match class {
            Class::Stream(_) | Class::Swept(..) => Self::Stream,
            Class::Reserved(_, Urgency::Sync) | Class::BestEffort(Urgency::Sync) => Self::Sync,
            Class::Reserved(_, Urgency::Async) | Class::BestEffort(Urgency::Async) => Self::Async,
        }
    }
}

/// A range of lengths: 512 bytes, and then up to each power of two. The last class has no upper limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeClass(u8);

impl SizeClass {
    fn of(count: SectorCount) -> Self {
        let exponent = count.get().max(1).next_power_of_two().trailing_zeros();
        Self(exponent.min(SIZES as u32 - 1) as u8)
    }

    /// The greatest length of the class, in bytes.
    #[must_use]
    pub fn bytes_max(self) -> u64 {
        512 << self.0
    }
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestKind {
    /// Its direction.
    pub op: Op,
    /// Its user.
    pub user: RequestUser,
    /// Its length.
    pub size: SizeClass,
}

impl RequestKind {
    fn index(self) -> usize {
        let op = usize::from(self.op == Op::Write);
        (op * 3 + self.user as usize) * SIZES + usize::from(self.size.0)
    }

    fn at(index: usize) -> Self {
        let (group, size) = (index / SIZES, index % SIZES);
        Self {
            op: if group >= 3 { Op::Write } else { Op::Read },
            user: RequestUser::ALL[group % 3],
            size: SizeClass(size as u8),
        }
    }
}

/// Service times of one kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindTimes {
    /// Pieces completed.
    pub count: u64,
    /// Those that took longer than predicted.
    pub overruns: u64,
    /// Sum of the predicted times.
    pub predicted: Nanos,
    /// Sum of the actual times.
    pub actual: Nanos,
    /// The longest time beyond a prediction.
    pub excess_max: Nanos,
    /// The largest ratio of actual to predicted time, in thousandths.
    pub took_permille_max: u64,
    /// Pieces by their ratio of actual to predicted time; a bucket has [`BUCKET_PERMILLE`] and includes its upper
    /// limit.
    pub buckets: [u64; BUCKETS],
}

impl KindTimes {
    fn note(&mut self, predicted: Nanos, took: Nanos) {
        let excess = took.saturating_sub(predicted);
        let permille = permille(took, predicted);
        self.count += 1;
        self.overruns += u64::from(!excess.is_zero());
        self.predicted += predicted;
        self.actual += took;
        self.excess_max = self.excess_max.max(excess);
        self.took_permille_max = self.took_permille_max.max(permille);
        let bucket = permille.saturating_sub(1) / BUCKET_PERMILLE;
        self.buckets[(bucket as usize).min(BUCKETS - 1)] += 1;
    }
}

/// The ratio of actual to predicted time in thousandths, rounded up, so that a profile widened by this factor has
/// room for the piece.
pub(super) fn permille(took: Nanos, predicted: Nanos) -> u64 {
    let took = u128::from(took.0) * 1_000;
    let permille = took.div_ceil(u128::from(predicted.0.max(1)));
    u64::try_from(permille).unwrap_or(u64::MAX)
}

/// A piece of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its direction.
    pub op: Op,
    /// Its first sector.
    pub start: Sector,
    /// Its length.
    pub count: SectorCount,
}

/// A piece that took longer than predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun {
    /// Time of its completion.
    pub at: Time,
    /// The piece.
    pub piece: Piece,
    /// Its user.
    pub user: RequestUser,
    /// The predicted time.
    pub predicted: Nanos,
    /// The time from issue to completion.
    pub actual: Nanos,
    /// The host's part of that time.
    pub host: Nanos,
    /// The piece that ended on the disk before it, and the time of that end. It set the position of the head.
    pub before: Option<(Piece, Time)>,
}

/// Service times of a disk since it was opened.
#[derive(Clone, Debug)]
pub struct ServiceTimes {
    kinds: Box<[KindTimes; KINDS]>,
    overruns: VecDeque<Overrun>,
    before: Option<(Piece, Time)>,
}

impl ServiceTimes {
    pub(super) fn new() -> Self {
        Self {
            kinds: Box::new([KindTimes::default(); KINDS]),
            overruns: VecDeque::with_capacity(OVERRUNS_KEPT),
            before: None,
        }
    }

    /// Counts a completed piece.
    pub(super) fn note(&mut self, at: Time, piece: Piece, completed: &Completed, host: Nanos) {
        let user = RequestUser::of(completed.class);
        let kind = RequestKind {
            op: piece.op,
            user,
            size: SizeClass::of(piece.count),
        };
        let took = completed.actual.saturating_sub(host);
        self.kinds[kind.index()].note(completed.predicted, took);
        if took > completed.predicted {
            if self.overruns.len() == OVERRUNS_KEPT {
                self.overruns.pop_front();
            }
            self.overruns.push_back(Overrun {
                at,
                piece,
                user,
                predicted: completed.predicted,
                actual: completed.actual,
                host,
                before: self.before,
            });
        }
        self.before = Some((piece, at));
    }

    /// Notes a failed piece, after which the head is at its position.
    pub(super) fn failed(&mut self, at: Time, piece: Piece) {
        self.before = Some((piece, at));
    }

    /// The kinds of which a piece has completed.
    pub fn kinds(&self) -> impl Iterator<Item = (RequestKind, &KindTimes)> {
        let kinds = self.kinds.iter().enumerate();
        kinds
            .filter(|(_, times)| times.count > 0)
            .map(|(index, times)| (RequestKind::at(index), times))
    }

    /// The last overruns, the oldest first.
    pub fn overruns(&self) -> impl ExactSizeIterator<Item = &Overrun> {
        self.overruns.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::request::Served;
    use sched::task::TaskId;

    fn completed(class: Class, predicted: u64, actual: u64) -> Completed {
        Completed {
            finished: true,
            class,
            served: Served::Slack,
            deadline: None,
            lateness: Nanos::ZERO,
            submitted: Time(0),
            predicted: Nanos(predicted),
            actual: Nanos(actual),
            overrun: Nanos(actual).saturating_sub(Nanos(predicted)),
        }
    }

    fn piece(op: Op, start: u64, count: u64) -> Piece {
        Piece {
            op,
            start: Sector(start),
            count: SectorCount(count),
        }
    }

    #[test]
    fn each_kind_has_an_index_of_its_own() {
        for index in 0..KINDS {
            assert_eq!(RequestKind::at(index).index(), index);
        }
        let bytes_max = |sectors| SizeClass::of(SectorCount(sectors)).bytes_max();
        assert_eq!(
            [1, 2, 3, 8, 9].map(bytes_max),
            [512, 1024, 2048, 4096, 8192]
        );
        assert_eq!(bytes_max(1 << 15), 16 << 20);
        assert_eq!(bytes_max(1 << 40), 16 << 20);
    }

    #[test]
    fn pieces_are_counted_by_kind_and_ratio() {
        let mut times = ServiceTimes::new();
        let stream = Class::Stream(TaskId(1));
        let read = piece(Op::Read, 0, 512);
        for actual in [500, 950, 951, 1_000, 1_001, 9_000] {
            times.note(
                Time(1),
                read,
                &completed(stream, 1_000, actual),
                Nanos::ZERO,
            );
        }
        let write = piece(Op::Write, 0, 8);
        let class = Class::BestEffort(Urgency::Async);
        times.note(Time(2), write, &completed(class, 1_000, 1_200), Nanos(300));
        let kinds: Vec<_> = times.kinds().collect();
        let [(reads, of_reads), (writes, of_writes)] = kinds[..] else {
            panic!("{kinds:?}");
        };
        assert_eq!(reads.user, RequestUser::Stream);
        assert_eq!(reads.size.bytes_max(), 256 << 10);
        assert_eq!((of_reads.count, of_reads.overruns), (6, 2));
        assert_eq!(of_reads.took_permille_max, 9_000);
        assert_eq!(of_reads.excess_max, Nanos(8_000));
        let filled = |index: usize| of_reads.buckets[index];
        assert_eq!([9, 18, 19, 20, 31].map(filled), [1, 1, 2, 1, 1]);
        // The host's part does not count.
        assert_eq!((writes.op, writes.user), (Op::Write, RequestUser::Async));
        assert_eq!((of_writes.overruns, of_writes.actual), (0, Nanos(900)));
    }

    #[test]
    fn overrun_names_the_piece_and_the_one_before() {
        let mut times = ServiceTimes::new();
        let class = Class::BestEffort(Urgency::Sync);
        let (first, second) = (piece(Op::Write, 70, 8), piece(Op::Read, 9_000, 16));
        times.note(Time(5), first, &completed(class, 1_000, 900), Nanos::ZERO);
        times.note(Time(9), second, &completed(class, 1_000, 1_500), Nanos(200));
        times.failed(Time(11), second);
        times.note(
            Time(12),
            first,
            &completed(class, 1_000, 1_001),
            Nanos::ZERO,
        );
        let overruns: Vec<_> = times.overruns().copied().collect();
        assert_eq!(overruns[0].piece, second);
        assert_eq!(overruns[0].before, Some((first, Time(5))));
        assert_eq!(overruns[0].host, Nanos(200));
        assert_eq!(overruns[1].before, Some((second, Time(11))));
        for number in 0..100 {
            times.note(
                Time(20 + number),
                first,
                &completed(class, 1, 2),
                Nanos::ZERO,
            );
        }
        let kept: Vec<_> = times.overruns().map(|overrun| overrun.at.0).collect();
        let expected: Vec<_> = (120 - OVERRUNS_KEPT as u64..120).collect();
        assert_eq!(kept, expected, "the latest are kept");
    }
}
