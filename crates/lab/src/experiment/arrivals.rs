//! When streams ask: evenly, early or late, for more than they have reserved, or as their frames have it.

use std::sync::Arc;

use sched::units::{Bytes, Nanos, Time};
use serde::Deserialize;

use crate::dice::Dice;
use crate::farm::Arrivals;

/// A picture in frames of different sizes: in scenes, and from one frame to the next.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Frames {
    pub(super) frames_per_second: u64,
    /// The mean rate, of what is reserved.
    #[serde(default = "mean")]
    pub(super) mean_percent: u64,
    /// The deviation of a frame's size, of the mean in its scene.
    #[serde(default = "frame_deviation")]
    pub(super) frame_deviation_percent: u64,
    /// Deviation of the scenes' means.
    #[serde(default = "scene_deviation")]
    pub(super) scene_deviation_percent: u64,
    /// Mean length of scenes.
    #[serde(default = "scene")]
    pub(super) scene_s: u64,
}

/// A tenth more than the mean is reserved.
const fn mean() -> u64 {
    91
}

const fn frame_deviation() -> u64 {
    25
}

const fn scene_deviation() -> u64 {
    30
}

const fn scene() -> u64 {
    8
}

/// A stream's way to ask.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Asks {
    pub(super) first: Time,
    /// The time that is reserved for a block.
    pub(super) period: Nanos,
    pub(super) block: Bytes,
    pub(super) percent: u64,
    pub(super) early: Nanos,
    pub(super) late: Nanos,
    pub(super) frames: Option<Frames>,
}

/// Log-normal with the mean 1 and this deviation.
struct Around {
    mu: f64,
    sigma: f64,
}

impl Around {
    fn one(deviation_percent: u64) -> Self {
        let deviation = deviation_percent as f64 / 100.0;
        let variance = libm::log(1.0 + deviation * deviation);
        Self {
            mu: -variance / 2.0,
            sigma: libm::sqrt(variance),
        }
    }

    fn draw(&self, dice: &mut Dice) -> f64 {
        libm::exp(self.mu + self.sigma * dice.normal())
    }
}

impl Asks {
    /// When it asks before `end`.
    pub(super) fn arrivals(&self, end: Time, dice: &mut Dice) -> Arrivals {
        let every = Nanos((self.period.get() * 100 / self.percent).max(1));
        let is_even = self.early.is_zero() && self.late.is_zero();
        match self.frames {
            None if is_even => Arrivals::Even {
                first: self.first,
                every,
            },
            None => self.unpunctual((0..).map(|block| Nanos(every.get() * block)), end, dice),
            Some(frames) => {
                let due = self.due(&frames, end, dice);
                self.unpunctual(due.into_iter(), end, dice)
            }
        }
    }

    /// When each block has to be there, from the first on: a block is as many frames as go into it.
    fn due(&self, frames: &Frames, end: Time, dice: &mut Dice) -> Vec<Nanos> {
        let bytes_per_second = self.block.get() as f64 / self.period.as_secs_f64()
            * (frames.mean_percent * self.percent) as f64
            / 1e4;
        let frame_mean = bytes_per_second / frames.frames_per_second as f64;
        let (of_scene, of_frame) = (
            Around::one(frames.scene_deviation_percent),
            Around::one(frames.frame_deviation_percent),
        );
        let mut due = Vec::new();
        let (mut played, mut scene, mut scene_ends) = (0.0, 1.0, Nanos::ZERO);
        for frame in 0_u64.. {
            let at = Nanos(
                u64::try_from(
                    u128::from(frame) * 1_000_000_000 / u128::from(frames.frames_per_second),
                )
                .unwrap_or(u64::MAX),
            );
            if self.first.checked_add(at).is_none_or(|at| at >= end) {
                break;
            }
            if at >= scene_ends {
                scene = of_scene.draw(dice);
                scene_ends = at + dice.exponential(Nanos::from_secs(frames.scene_s));
            }
            // The block that the frame begins or that one of its bytes begins is due with it.
            while played >= due.len() as f64 * self.block.get() as f64 {
                due.push(at);
            }
            played += frame_mean * scene * of_frame.draw(dice);
        }
        due
    }

    /// The same times, each earlier or later by a random part of what it may be; a block is not asked for before the
    /// one before it.
    fn unpunctual(&self, due: impl Iterator<Item = Nanos>, end: Time, dice: &mut Dice) -> Arrivals {
        let mut last = Time::ZERO;
        let mut times = Vec::new();
        for due in due {
            let off = dice.below(self.early.get() + self.late.get() + 1);
            // Nobody asks before zero: all is later by as much as the first may be early.
            let Some(at) = self.first.checked_add(due + Nanos(off)) else {
                break;
            };
            if at >= end + self.early + self.late {
                break;
            }
            last = last.max(at);
            times.push(last);
        }
        times.retain(|at| *at < end);
        Arrivals::Listed(Arc::from(times))
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    fn asks() -> Asks {
        Asks {
            first: Time(5_000_000),
            period: Nanos::from_millis(100),
            block: Bytes::from_kib(256),
            percent: 100,
            early: Nanos::ZERO,
            late: Nanos::ZERO,
            frames: None,
        }
    }

    fn times(asks: &Asks, end: Time) -> Vec<Time> {
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(7));
        match asks.arrivals(end, dice) {
            Arrivals::Listed(times) => times.to_vec(),
            even @ Arrivals::Even { .. } => (0..)
                .map_while(|block| even.at(block))
                .take_while(|at| *at < end)
                .collect(),
        }
    }

    #[test]
    fn overusing_client_asks_more_often() {
        let end = Time(10_000_000_000);
        let greedy = Asks {
            percent: 250,
            ..asks()
        };
        assert_eq!(times(&asks(), end).len(), 100);
        assert_eq!(times(&greedy, end).len(), 250);
    }

    #[test]
    fn early_and_late_clients_are_never_further_off_than_they_may_be_and_keep_the_order() {
        let end = Time(100_000_000_000);
        let (early, late) = (Nanos::from_millis(150), Nanos::from_millis(70));
        let off = Asks {
            early,
            late,
            ..asks()
        };
        let mut offs = Vec::new();
        let times = times(&off, end);
        assert!(times.is_sorted() && times.len() > 990);
        for (at, block) in times.into_iter().zip(0..) {
            let due = Time(5_000_000) + early + Nanos::from_millis(100 * block);
            assert!(at + early >= due && at <= due + late, "{at:?} {due:?}");
            offs.push(at.get() as i64 - due.get() as i64);
        }
        assert!(offs.iter().any(|off| *off < -100_000_000));
        assert!(offs.iter().any(|off| *off > 60_000_000));
    }

    #[test]
    fn frames_have_the_rate_that_was_asked_for_and_vary() {
        let end = Time(4_000_000_000_000);
        let vbr = Asks {
            frames: Some(Frames {
                frames_per_second: 25,
                mean_percent: 90,
                frame_deviation_percent: 30,
                scene_deviation_percent: 50,
                scene_s: 10,
            }),
            ..asks()
        };
        let times = times(&vbr, end);
        let share = times.len() as f64 / 40_000.0;
        assert!((share - 0.9).abs() < 0.05, "{share}");
        let gaps: Vec<u64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).get())
            .collect();
        let (short, long) = (gaps.iter().min(), gaps.iter().max());
        assert!(short < Some(&70_000_000) && long > Some(&200_000_000));
    }
}
