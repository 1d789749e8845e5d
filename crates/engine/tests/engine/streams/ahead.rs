//! Reading ahead before blocks become longer, so that no data is late because of that.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use engine::clock;
use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::stream::{
    BlockReader, BlockReport, Change, ChangeResult, Stream, StreamChange, StreamSpec,
};
use sched::profile::{DriveKind, DriveProfile, FlatSpec, ProfileSpec};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use super::blocks::sleep;
use super::ranges::is_what;
use super::rate_that_fits;
use testkit::disks::{MIB, Rig, client, stream_spec, volume};
use testkit::until;

/// Size of a buffer in bytes.
const BUFFER: u64 = 65_536;

/// The reserved rate: a buffer in 125 ms.
const RATE: u64 = 8 * BUFFER;

/// Buffers in a longer block, unless stated otherwise.
const LONGER: u64 = 4;

/// Period of such a block.
const PERIOD: Nanos = period(LONGER);

/// Period of blocks of this number of buffers.
const fn period(buffers: u64) -> Nanos {
    Nanos(buffers * BUFFER * 1_000_000_000 / RATE)
}

/// Number of disks between which blocks of one buffer alternate, so that each disk's period is that many
/// times as long; their extent size; and buffers in a longer block.
const ALTERNATING: (usize, u64, u64) = (4, BUFFER, 4);

/// Longer than any test takes.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// A volume that is written completely, so that reads use the disks.
fn full(pool: &Pool) -> Arc<Volume> {
    let ring = volume(pool, "ring", 8 * MIB);
    let bytes = vec![7; 8 << 20];
    client(pool).write_at(&ring, Bytes(0), &bytes).unwrap();
    ring
}

/// A disk with predicted service times of 26.6 ms for a buffer and 46.2 ms for a longer block.
fn slow() -> Rig {
    let profile = DriveProfile::new(ProfileSpec {
        name: "slow".into(),
        kind: DriveKind::SolidState,
        measured: false,
        sources: Vec::new(),
        outstanding: 1,
        capacity_sectors: 64 * MIB / 512,
        physical_sector_bytes: 512,
        widened_percent: 0,
        trust_worst_case: false,
        measurement: None,
        rotating: None,
        flat: Some(FlatSpec {
            read_overhead_us: 20_000,
            write_overhead_us: 200,
            read_bytes_per_second: 10_000_000,
            write_bytes_per_second: 500_000_000,
        }),
        worst_case: Vec::new(),
    });
    Rig::of_drives(1, profile.unwrap(), Durability::WriteThrough)
}

fn player(pool: &Pool, volume: &Arc<Volume>) -> Stream {
    pool.reserve(StreamSpec {
        wraps: true,
        ..stream_spec(volume, Op::Read, RATE, BUFFER)
    })
    .unwrap()
}

fn longer(within: Option<Duration>) -> StreamChange {
    StreamChange {
        block: Some(Bytes(LONGER * BUFFER)),
        within,
        ..StreamChange::default()
    }
}

fn begin(stream: &Stream, wish: StreamChange) -> Change {
    stream.changer().begin(wish).unwrap()
}

/// A listener: takes a buffer when the previous one is over, requests as many as there are buffers, and plays
/// each for a tenth longer than the reserved rate assumes.
struct Listener<'a> {
    stream: &'a Stream,
    reader: BlockReader<'a>,
    asked: u64,
    /// When the first buffer was due and began to be played.
    began: Option<Time>,
    /// Number of buffers played, including the current one.
    played: u64,
    current: Option<engine::buffer::Buffer>,
    reports: Vec<BlockReport>,
    /// The highest rate reserved so far.
    highest: u64,
}

impl<'a> Listener<'a> {
    fn new(stream: &'a Stream) -> Self {
        Self {
            stream,
            reader: BlockReader::new(stream).unwrap(),
            asked: 0,
            began: None,
            played: 0,
            current: None,
            reports: Vec::new(),
            highest: 0,
        }
    }

    fn lasts() -> Nanos {
        Nanos(1_100_000_000 * BUFFER / RATE)
    }

    fn due(&self, index: u64) -> Option<Time> {
        Some(self.began?.saturating_add(Self::lasts() * index))
    }

    /// Plays until the condition holds.
    fn listen(&mut self, until: impl Fn(&Self) -> bool) {
        while !until(self) {
            self.advance();
            let first = self.reports.first();
            self.began = self.began.or(first.and_then(|of| of.deadline));
            let now = clock::now();
            while self.due(self.played).is_some_and(|due| due <= now)
                && let Some(read) = self.reader.take()
            {
                self.played += 1;
                if let Some(before) = self.current.replace(read.buffer) {
                    self.reader.give_back(before);
                }
            }
            self.reader.more_follow(true);
            let in_use = u64::from(self.current.is_some());
            while self.asked - self.played + in_use < self.reader.buffers() as u64 {
                let places = self.stream.range().end / BUFFER;
                self.reader.ask(Bytes(self.asked % places * BUFFER));
                self.asked += 1;
            }
            self.advance();
            self.highest = self.highest.max(self.stream.rate().0);
            // A late buffer is played as soon as it arrives.
            let due = self.due(self.played).filter(|due| *due > now);
            let next = self.reader.next_at().into_iter().chain(due);
            let armed = self.reader.arm();
            sleep(self.reader.event(), armed, next.min());
            self.reader.drain();
        }
    }

    fn advance(&mut self) {
        let reports = &mut self.reports;
        self.reader.advance(&mut |of| reports.push(*of)).unwrap();
    }

    /// The largest time by which a buffer may be late, according to the guaranteed deadlines.
    fn late_max(&self) -> Nanos {
        let mut late_max = Nanos::ZERO;
        for report in &self.reports {
            let due = report.deadline.zip(self.due(report.index));
            if let Some((deadline, due)) = due {
                late_max = late_max.max(deadline.saturating_since(due));
            }
        }
        late_max
    }

    /// The report of the first longer block.
    fn first_longer(&self) -> BlockReport {
        let longer = self.reports.iter().find(|of| of.buffers > 1);
        *longer.expect("there is a longer block")
    }
}

fn granted(change: Change) -> ChangeResult {
    change.wait().unwrap()
}

/// Plays during a change to longer blocks, and for a while after it.
fn listens(stream: &Stream, wish: StreamChange) -> (Nanos, ChangeResult, BlockReport, u64) {
    let mut listener = Listener::new(stream);
    // Where blocks alternate between disks, the worst case is that nothing has been read ahead.
    let played = if stream.buffers() > 4 { 1 } else { 4 };
    listener.listen(|of| of.played >= played);
    let change = begin(stream, wish);
    let outcome = RefCell::new(None);
    listener.listen(|_| {
        let mut outcome = outcome.borrow_mut();
        *outcome = change.take();
        outcome.is_some()
    });
    let granted = outcome.take().expect("it is over").unwrap();
    let buffers = stream.block().0 / BUFFER;
    let played = listener.played + 3 * buffers;
    listener.listen(|of| of.played >= played);
    (
        listener.late_max(),
        granted,
        listener.first_longer(),
        listener.highest,
    )
}

fn longer_by(buffers: u64, within: Option<Duration>) -> StreamChange {
    StreamChange {
        block: Some(Bytes(buffers * BUFFER)),
        ..longer(within)
    }
}

/// Without reading ahead, the result has the time by which data may be late.
#[test]
#[expect(clippy::print_stderr, reason = "what is guaranteed is told")]
fn change_without_reading_ahead_reports_its_lateness() {
    for (disks, extent, buffers) in [(1, MIB, 2), (1, MIB, 8), ALTERNATING] {
        let (_rig, pool) = Rig::fresh(disks, 64 * MIB, extent, Durability::WriteThrough);
        let ring = full(&pool);
        // A paused host delays submissions and thereby deadlines, so the test tries several times.
        let mut is_said = false;
        for _ in 0..3 {
            let stream = player(&pool, &ring);
            let wish = longer_by(buffers, Some(Duration::ZERO));
            let (late, ChangeResult { late: said }, ..) = listens(&stream, wish);
            eprintln!("{buffers} buffers on {disks} disks: late by {late}, at most {said}");
            is_said |= (late..=period(3 * buffers)).contains(&said);
            if is_said {
                break;
            }
        }
        assert!(is_said, "{buffers} buffers on {disks} disks");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "what is guaranteed is told")]
fn data_read_ahead_lasts_until_the_first_longer_block_is_due() {
    for (disks, extent, buffers) in [
        (1, MIB, 2),
        (1, MIB, 4),
        (1, MIB, 8),
        (2, MIB, 4),
        (2, 2 * BUFFER, 8),
        ALTERNATING,
    ] {
        let what = format!("{buffers} buffers on {disks} disks with extents of {extent} B");
        let (_rig, pool) = Rig::fresh(disks, 64 * MIB, extent, Durability::WriteThrough);
        let ring = full(&pool);
        // An immediate change makes data late, on any host.
        let stream = player(&pool, &ring);
        let (late, granted, _, highest) = listens(&stream, longer_by(buffers, None));
        eprintln!("{what}: late by {late} at once");
        assert!(late.0 >= period(buffers).0 / 2, "{what}: {late}");
        assert_eq!((granted, highest), (ChangeResult::default(), RATE));
        drop(stream);
        // A paused host delays submissions and thereby deadlines, so the test tries several times.
        let (mut best, mut is_whole, mut is_faster) = (Nanos::MAX, false, false);
        let mut is_in_time = false;
        for _ in 0..3 {
            let stream = player(&pool, &ring);
            let (late, granted, first, highest) =
                listens(&stream, longer_by(buffers, Some(FOR_EVER)));
            eprintln!("{what}: late by {late} when it has been read ahead");
            is_in_time |= granted == ChangeResult::default();
            // It is submitted as a whole if nothing came between, and the rate before is raised.
            is_whole |= first.buffers == buffers;
            let times = if extent == BUFFER { disks as u64 } else { 2 };
            is_faster |= highest == times * RATE;
            assert_eq!(stream.rate().0, RATE);
            best = best.min(late);
            if is_in_time && is_whole && is_faster && best.0 < period(buffers).0 / 4 {
                break;
            }
        }
        assert!(best.0 < period(buffers).0 / 4, "{what}: late by {best}");
        assert!(is_in_time && is_whole && is_faster, "{what}");
    }
}

/// If the disks do not carry twice the rate, data is read ahead at the rate that they carry. If that is not
/// enough, the result has the remaining lateness.
#[test]
fn reading_ahead_uses_the_rate_that_fits_and_reports_the_shortfall() {
    let rig = slow();
    rig.create(MIB);
    let pool = rig.open();
    let ring = full(&pool);
    // A longer block, 46 ms every 125 ms, excludes another every 62.5 ms.
    let other = stream_spec(&ring, Op::Read, 2 * MIB, LONGER * BUFFER);
    let _other = pool.reserve(other).unwrap();
    // A paused host makes reading ahead fail, so the test tries several times.
    let is_in_time = (0..3).any(|_| {
        let stream = player(&pool, &ring);
        let (_, granted, _, highest) = listens(&stream, longer(Some(FOR_EVER)));
        assert!(highest < 2 * RATE, "{highest}");
        assert_eq!(stream.rate().0, RATE);
        granted == ChangeResult::default() && highest > RATE
    });
    assert!(is_in_time);
    // Without time to read anything.
    let stream = player(&pool, &ring);
    let reader = BlockReader::new(&stream).unwrap();
    let late = stream.changer().change(longer(Some(Duration::ZERO)));
    // The time until the first longer block is due: a buffer's period and a longer block's period, and three
    // more buffers in case only the last buffer of a longer block comes then.
    assert_eq!(late.unwrap().late, PERIOD * 2);
    drop(reader);
}

/// Reads until a change has been granted; calls `also` in each round.
fn reads<'a>(
    reader: &mut BlockReader<'a>,
    change: &Change,
    more_follow: bool,
    mut also: impl FnMut(&mut BlockReader<'a>),
) -> ChangeResult {
    let mut done = None;
    until("it is read and changed", || {
        reader.advance(&mut |_| {}).unwrap();
        reader.more_follow(more_follow);
        also(reader);
        let armed = reader.arm();
        done = change.take();
        if done.is_none() {
            sleep(reader.event(), armed, reader.next_at());
        }
        reader.drain();
        done.is_some()
    });
    done.expect("it is done").unwrap()
}

/// The change does not wait if nothing more is recorded, or if there is no reader.
#[test]
fn change_does_not_wait_for_data_that_will_not_be_read() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = full(&pool);
    let stream = player(&pool, &ring);
    let shorter = StreamChange {
        block: Some(Bytes(BUFFER)),
        buffers: Some(2),
        ..StreamChange::default()
    };
    let mut reader = BlockReader::new(&stream).unwrap();
    reader.ask(Bytes(0));
    let change = begin(&stream, longer(Some(FOR_EVER)));
    // One buffer has been read, and three are left of its longer block.
    let late = reads(&mut reader, &change, false, |_| {}).late;
    assert_eq!(late, PERIOD + period(1));
    drop(reader);
    assert_eq!(stream.block(), Bytes(LONGER * BUFFER));
    for leaves in [true, false] {
        stream.changer().change(shorter).unwrap();
        let reader = BlockReader::new(&stream).unwrap();
        let change = begin(&stream, longer(Some(FOR_EVER)));
        until("it is read faster", || stream.rate().0 == 2 * RATE);
        // The end of the range is changed meanwhile.
        let end = if leaves { 4 * MIB } else { 8 * MIB };
        let wish = StreamChange {
            end: Some(Bytes(end)),
            ..StreamChange::default()
        };
        stream.changer().change(wish).unwrap();
        assert!(change.take().is_none());
        match leaves {
            true => drop(reader),
            false => reader.settle(),
        }
        assert_eq!(granted(change), ChangeResult::default());
        assert_eq!((stream.rate().0, stream.range()), (RATE, 0..end));
        assert_eq!(stream.block(), Bytes(LONGER * BUFFER));
    }
    // The listener takes no more, and all buffers are full within a longer block.
    stream.changer().change(shorter).unwrap();
    let mut reader = BlockReader::new(&stream).unwrap();
    (3..12).for_each(|place| reader.ask(Bytes(place * BUFFER)));
    let change = begin(&stream, longer(Some(FOR_EVER)));
    let mut current = None;
    let granted_now = reads(&mut reader, &change, true, |reader| {
        current = current.take().or_else(|| reader.take());
    });
    // The rest of the longer block, one buffer, comes first, and the next ones nine buffers' time from now;
    // eight are read.
    assert_eq!(granted_now.late, period(1));
    assert_eq!(reader.use_of_buffers().full, 7);
    drop((reader, current));
    // Without a reader the change is made at once.
    stream.changer().change(shorter).unwrap();
    let change = stream.changer().change(longer(Some(FOR_EVER)));
    assert_eq!(change.unwrap(), ChangeResult::default());
}

/// An invalid change is refused before anything is read ahead. A change that becomes invalid during reading
/// ahead is refused afterwards. In both cases everything stays as it was.
#[test]
fn a_refused_change_leaves_all_as_it_was() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let ring = full(&pool);
    let stream = player(&pool, &ring);
    let reader = BlockReader::new(&stream).unwrap();
    let as_it_was = || {
        assert_eq!((stream.rate().0, stream.block()), (RATE, Bytes(BUFFER)));
        assert_eq!(stream.buffers(), 2);
    };
    let too_fast = StreamChange {
        rate: Some(BytesPerSecond(1 << 50)),
        ..longer(Some(FOR_EVER))
    };
    rate_that_fits(&stream.changer().change(too_fast).unwrap_err());
    as_it_was();
    let few = StreamChange {
        buffers: Some(3),
        ..longer(Some(FOR_EVER))
    };
    let refused = stream.changer().change(few).unwrap_err();
    is_what(refused, "the buffers", "outside the range of 8");
    as_it_was();
    // The volume shrinks meanwhile to less than the requested range.
    let end = |mib| StreamChange {
        end: Some(Bytes(mib * MIB)),
        ..StreamChange::default()
    };
    stream.changer().change(end(4)).unwrap();
    let wish = StreamChange {
        end: Some(Bytes(8 * MIB)),
        ..longer(Some(FOR_EVER))
    };
    let change = begin(&stream, wish);
    until("it is read faster", || stream.rate().0 == 2 * RATE);
    assert_eq!(stream.buffers(), 8);
    pool.shrink("ring", Bytes(6 * MIB)).unwrap();
    reader.settle();
    is_what(
        change.wait().unwrap_err(),
        "the range",
        "past the volume's end",
    );
    as_it_was();
    assert_eq!(stream.range(), 0..4 * MIB);
}
