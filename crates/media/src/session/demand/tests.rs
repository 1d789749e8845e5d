use proptest::prelude::*;

use super::*;
use testkit::cases;

const BLOCK: u64 = 65_536;
const MS: u64 = 1_000_000;

fn rate(blocks_per_second: u64) -> BytesPerSecond {
    BytesPerSecond(blocks_per_second * BLOCK)
}

fn at(ms: u64) -> Time {
    Time(ms * MS)
}

/// A recorder in virtual time: packets arrive at a rate, and blocks are written at the reserved one.
struct Recorder {
    demand: RecorderDemand,
    now_ms: u64,
    reserved: BytesPerSecond,
    /// The most that the disks grant.
    limit: BytesPerSecond,
    /// Bytes that have arrived and are not written.
    backlog: u64,
    sealed: u64,
    came: u64,
    media_ms: u64,
    asked: Vec<(u64, BytesPerSecond)>,
    dropped: u64,
    /// Dropped bytes that no block counts yet.
    uncounted: u64,
}

const OWN: u64 = 4;
const MOST: usize = 16;
/// Step of the virtual time, in milliseconds.
const STEP_MS: u64 = 10;

impl Recorder {
    fn new(promised: BytesPerSecond, limit: BytesPerSecond) -> Self {
        Self {
            demand: RecorderDemand::new(BLOCK, promised, Time::ZERO),
            now_ms: 0,
            reserved: promised,
            limit,
            backlog: 0,
            sealed: 0,
            came: 0,
            media_ms: 0,
            asked: Vec::new(),
            dropped: 0,
            uncounted: 0,
        }
    }

    /// For `ms` packets arrive at rate `comes`; their media time advances by `shown` thousandths of that time.
    fn run(&mut self, ms: u64, comes: BytesPerSecond, shown: u64) {
        for _ in 0..ms / STEP_MS {
            self.now_ms += STEP_MS;
            self.media_ms += shown * STEP_MS;
            let room = (OWN + MOST as u64) * BLOCK - self.backlog;
            let (more, gone) = (comes.0 * STEP_MS / 1_000, self.reserved.0 * STEP_MS / 1_000);
            let dropped = more.saturating_sub(room);
            self.dropped += dropped;
            self.uncounted += dropped;
            self.came += more.min(room);
            self.backlog = (self.backlog + more.min(room)).saturating_sub(gone);
            while self.came / BLOCK > self.sealed {
                self.sealed += 1;
                self.demand.block(BlockSample {
                    arrival_ns: self.now_ms * MS,
                    media_ns: self.media_ms * MS / 1_000,
                    packets: 64,
                    missing: std::mem::take(&mut self.uncounted) * 64 / BLOCK,
                });
            }
            let full = self.backlog.div_ceil(BLOCK).saturating_sub(OWN);
            let pressure = Pressure {
                full: (self.backlog / BLOCK) as usize,
                borrowed: full as usize,
                most: MOST,
                starved: more > room,
            };
            self.demand.received(at(self.now_ms), self.came);
            let asked = self.demand.look(at(self.now_ms), self.reserved, pressure);
            if let Some(asked) = asked {
                self.asked.push((self.now_ms, asked));
                let answer = match asked <= self.limit {
                    true => Ok(()),
                    false => Err(Some(self.limit)),
                };
                if answer.is_ok() {
                    self.reserved = asked;
                }
                self.demand.answered(at(self.now_ms), answer);
            }
        }
    }
}

#[test]
fn guess_follows_the_measured_rate_down_and_up_and_stays_for_a_camera_that_is_away() {
    let mut of = Recorder::new(rate(40), rate(1_000));
    of.demand = RecorderDemand::new(BLOCK, rate(1), Time::ZERO).guessed();
    of.run(9_000, rate(4), 1_000);
    assert_eq!(of.asked, []);
    of.run(3_000, rate(4), 1_000);
    let first = of.reserved;
    assert!((rate(4).0..=rate(5).0).contains(&first.0), "{first:?}");
    of.run(60_000, rate(20), 1_000);
    assert!((rate(20).0..rate(24).0).contains(&of.reserved.0));
    of.run(200_000, rate(2), 1_000);
    let last = of.reserved;
    assert!((rate(2).0..rate(3).0).contains(&last.0), "{last:?}");
    of.run(200_000, rate(0), 1_000);
    assert_eq!((of.reserved, of.dropped), (last, 0));
    // A gap is not measured.
    of.demand.restart(of.now_ms * MS);
    of.run(70_000, rate(2), 1_000);
    assert_eq!(of.reserved, last);
    // Nor is the block that was open during a gap.
    of.run(200_000, rate(20), 1_000);
    let last = of.reserved;
    of.run(45_000, rate(0), 1_000);
    of.demand.restart(of.now_ms * MS);
    of.demand.block(BlockSample {
        arrival_ns: (of.now_ms - 46_000) * MS,
        media_ns: (of.media_ms / 1_000 - 46_000) * MS,
        packets: 64,
        missing: 0,
    });
    of.run(9_000, rate(20), 1_000);
    assert_eq!(of.reserved, last);
}

#[test]
fn burst_is_buffered_without_a_request() {
    let mut of = Recorder::new(rate(10), rate(1_000));
    of.run(20_000, rate(9), 1_000);
    // Twice the rate for a second is ten blocks more than are written.
    of.run(1_000, rate(20), 1_000);
    of.run(60_000, rate(9), 1_000);
    assert_eq!((of.asked.len(), of.dropped), (0, 0));
}

#[test]
fn higher_rate_is_requested_after_a_while_and_given_back_when_it_is_over() {
    let mut of = Recorder::new(rate(10), rate(1_000));
    of.run(10_000, rate(9), 1_000);
    of.run(60_000, rate(15), 1_000);
    assert_eq!((of.asked.len(), of.dropped), (1, 0));
    let (when, first) = of.asked[0];
    assert!((10_000..16_000).contains(&when), "{when}");
    assert!((rate(15).0..rate(18).0).contains(&first.0), "{first:?}");
    // The rate goes down to the needed one, and not below the promised one.
    of.run(300_000, rate(5), 1_000);
    assert_eq!(of.reserved, rate(10));
    assert!(of.asked.len() <= 3, "{:?}", of.asked);
}

#[test]
fn silent_recorder_gives_back_what_it_had_more() {
    let mut of = Recorder::new(rate(10), rate(1_000));
    of.run(40_000, rate(15), 1_000);
    assert!(of.reserved > rate(14), "{:?}", of.reserved);
    of.run(130_000, BytesPerSecond(0), 1_000);
    assert_eq!(of.reserved, rate(10));
}

#[test]
fn fitting_rate_is_taken_after_a_refusal_and_requests_pause() {
    let mut of = Recorder::new(rate(10), rate(13));
    of.run(600_000, rate(20), 1_000);
    assert_eq!(of.reserved, rate(13));
    assert!(of.dropped > 0);
    // With pauses of up to 64 s there are a dozen requests in ten minutes.
    assert!(of.asked.len() <= 20, "{:?}", of.asked);
    let gaps = of.asked.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.max().unwrap() <= 65_000);
    // When the disks have more, that is requested.
    of.limit = rate(100);
    of.run(130_000, rate(20), 1_000);
    assert!(of.reserved >= rate(20), "{:?}", of.reserved);
}

#[test]
fn file_sent_faster_than_its_media_time_needs_the_rate_of_the_media() {
    let mut of = Recorder::new(rate(10), rate(1_000));
    // A hundred blocks a second, each with ten times their media time.
    of.run(30_000, rate(100), 10_000);
    assert_eq!(of.asked, []);
    // A publisher that is held up, by its timestamps, needs more than arrives.
    let mut of = Recorder::new(rate(10), rate(1_000));
    let mut demand = of.demand.clone();
    for block in 0..20 {
        demand.block(BlockSample {
            arrival_ns: block * 100 * MS,
            media_ns: block * 50 * MS,
            packets: 1,
            missing: 0,
        });
    }
    let starved = Pressure {
        starved: true,
        ..Pressure::default()
    };
    of.demand = demand.clone();
    assert_eq!(demand.look(at(2_000), rate(10), starved), None);
    for block in 20..30 {
        demand.block(BlockSample {
            arrival_ns: block * 100 * MS,
            media_ns: block * 50 * MS,
            packets: 1,
            missing: 0,
        });
    }
    assert_eq!(demand.look(at(3_000), rate(10), starved), Some(rate(22)));
}

#[test]
fn blocks_before_the_first_look_are_measured() {
    let mut demand = RecorderDemand::new(BLOCK, rate(1), Time::ZERO);
    for block in 0..20 {
        demand.block(BlockSample {
            arrival_ns: block * MS,
            media_ns: block * 200 * MS,
            packets: 10,
            missing: 0,
        });
    }
    let pressure = Pressure {
        full: 20,
        borrowed: 16,
        most: 16,
        starved: false,
    };
    assert_eq!(
        demand.look(at(50), rate(1), pressure),
        Some(BytesPerSecond(BLOCK * 11 / 2))
    );
}

#[test]
fn constant_timestamps_are_ignored_and_missing_packets_count() {
    let starved = Pressure {
        starved: true,
        ..Pressure::default()
    };
    let look = |media_ms: u64, missing: u64| {
        let mut demand = RecorderDemand::new(BLOCK, rate(10), Time::ZERO);
        demand.look(at(0), rate(10), starved);
        for block in 0..20 {
            demand.block(BlockSample {
                arrival_ns: block * 50 * MS,
                media_ns: block * media_ms * MS,
                packets: 10,
                missing,
            });
        }
        demand.look(at(1_000), rate(10), starved)
    };
    assert_eq!(look(0, 0), Some(rate(22)));
    assert_eq!(look(50, 10), Some(rate(44)));
}

#[test]
fn player_requests_the_rate_that_it_reads_and_lowers_a_guess() {
    let blocks = |demand: &mut PlayerDemand, from: u64, count: u64, ms: u64| {
        for block in from..from + count {
            demand.block(BlockSample {
                arrival_ns: block * ms * MS,
                media_ns: block * ms * MS,
                packets: 1,
                missing: 0,
            });
        }
    };
    let mut demand = PlayerDemand::new(BLOCK, RateEstimate::Measured, rate(1_000), rate(1));
    blocks(&mut demand, 0, 8, 50);
    assert_eq!(demand.look(at(0), rate(10)), None);
    blocks(&mut demand, 8, 1, 50);
    assert_eq!(demand.look(at(0), rate(10)), Some(rate(22)));
    assert_eq!(demand.look(at(0), rate(10)), None);
    demand.answered(at(0), Err(Some(rate(15))));
    assert_eq!(demand.look(at(1), rate(10)), Some(rate(15)));
    demand.answered(at(1), Ok(()));
    assert_eq!(demand.look(at(2), rate(15)), None);
    assert_eq!(demand.look(at(2_000), rate(15)), Some(rate(22)));
    demand.answered(at(2_000), Ok(()));
    // A measured rate stays as it is, though less is read.
    blocks(&mut demand, 100, 60, 200);
    assert_eq!(demand.look(at(3), rate(22)), None);
    let mut guess = PlayerDemand::new(BLOCK, RateEstimate::Guessed, rate(1_000), rate(1));
    blocks(&mut guess, 0, 60, 200);
    let less = guess.look(at(3), rate(22));
    assert_eq!(less, Some(BytesPerSecond(BLOCK * 11 / 2)));
    guess.answered(at(4), Ok(()));
    assert_eq!(guess.look(at(5), rate(20)), None);
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn request_is_never_below_the_promised_rate_nor_too_frequent(
        promised in 1_u64..50,
        limit in 1_u64..200,
        parts in prop::collection::vec((100_u64..20_000, 0_u64..120, 0_u64..3_000), 1..12),
    ) {
        let mut of = Recorder::new(rate(promised), rate(limit));
        for (ms, comes, shown) in parts {
            of.run(ms, rate(comes), shown);
        }
        prop_assert!(of.reserved >= rate(promised));
        for (_, asked) in &of.asked {
            prop_assert!(*asked >= rate(promised));
        }
        // Refusals: each with one request for the fitting rate, and a pause of two seconds at least.
        let refused = of.asked.iter().filter(|(_, asked)| *asked > rate(limit)).count() as u64;
        prop_assert!(refused <= 1 + of.now_ms / 2_000, "{:?}", of.asked);
    }

    #[test]
    fn steady_rate_that_fits_is_recorded_without_a_gap(
        promised in 5_u64..50,
        times in 110_u64..400,
    ) {
        let comes = rate(promised * times / 100);
        let mut of = Recorder::new(rate(promised), rate(10_000));
        of.run(120_000, comes, 1_000);
        prop_assert_eq!(of.dropped, 0, "{:?}", of.asked);
        prop_assert!(of.reserved >= comes);
    }
}
