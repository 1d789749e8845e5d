//! Delays on a link: examples, and any fair link byte by byte.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use testkit::Random;

const MIB: u64 = 1 << 20;

fn rate(bytes_per_second: u64) -> BytesPerSecond {
    BytesPerSecond(bytes_per_second)
}

/// A Cheetah of the thesis on an Ultra-Wide string.
fn string(disks: u32) -> (LinkShare, LinkDrive) {
    let share = LinkShare {
        disks,
        rate: rate(38_100_000),
        burst_bytes: 0,
    };
    let drive = LinkDrive {
        rate: rate(15_000_000),
        at_once_bytes: 0,
        rotation: Nanos::from_millis(6),
    };
    (share, drive)
}

#[test]
fn disks_that_the_link_carries_delay_nobody() {
    for disks in [1, 2] {
        let (share, drive) = string(disks);
        assert_eq!(share.delay(MIB, drive), Nanos::ZERO);
    }
    assert_eq!(carried(rate(38_100_000), rate(15_000_000)), 2);
    assert_eq!(carried(rate(14_999_999), rate(15_000_000)), 0);
}

#[test]
fn third_disk_delays_by_what_the_link_lacks() {
    let (share, drive) = string(3);
    // 1 MiB takes 82.56 ms at a third of the link, and 69.91 ms from the medium.
    assert_eq!(share.delay(MIB, drive).get() / 10_000, 1_265);
    assert_eq!(share.write_delay(MIB, drive), Nanos::from_millis(18));
    let whole = LinkDrive {
        at_once_bytes: MIB,
        ..drive
    };
    assert_eq!(share.delay(MIB, whole).get() / 10_000, 8_256);
}

#[test]
fn burst_of_each_other_disk_may_come_first() {
    let (share, drive) = string(2);
    let share = LinkShare {
        burst_bytes: 152_400,
        ..share
    };
    assert_eq!(share.delay(MIB, drive), Nanos::from_millis(4));
}

/// A link and a drive that deliver byte by byte; times are in nanoseconds.
struct Exact {
    share: LinkShare,
    drive: LinkDrive,
    /// Time of a byte on the link.
    byte: u64,
    bytes: u64,
    /// True if a burst takes only what was there when it began.
    is_closed: bool,
}

impl Exact {
    fn drawn(random: &mut Random, is_closed: bool) -> Self {
        let byte = [1, 2, 4, 5, 8, 10, 20][random.below(7) as usize];
        let disks = random.range(1, 5);
        let link = 1_000_000_000 / byte;
        // Often near the rate at which the link carries all disks.
        let medium = if random.chance(50) {
            link * random.range(90, 110) / (100 * disks)
        } else {
            link * random.range(1, 100) / 100
        };
        let bytes = random.range(1, 60);
        let at_once_bytes = if random.chance(50) {
            0
        } else {
            random.range(0, bytes + 5)
        };
        Self {
            share: LinkShare {
                disks: disks as u32,
                rate: rate(link),
                burst_bytes: random.range(1, 12),
            },
            drive: LinkDrive {
                rate: rate(medium.clamp(1, link)),
                at_once_bytes,
                rotation: Nanos(random.range(0, 300)),
            },
            byte,
            bytes,
            is_closed,
        }
    }

    /// Time that the medium takes for so many bytes, rounded up.
    fn on_medium(&self, bytes: u64) -> u64 {
        (bytes * 1_000_000_000).div_ceil(self.drive.rate.get())
    }

    /// When each byte has come from the medium, which pauses now and then.
    fn read(&self, random: &mut Random) -> Vec<u64> {
        let mut pauses = 0;
        let before_last: Vec<u64> = (0..self.bytes)
            .map(|after| {
                if random.chance(5) {
                    pauses += random.below(40 * self.byte);
                }
                self.on_medium(after.saturating_sub(self.drive.at_once_bytes)) + pauses
            })
            .collect();
        let begins = random.below(50 * self.byte);
        let last = begins + before_last[before_last.len() - 1];
        before_last
            .iter()
            .rev()
            .map(|before| last - before)
            .collect()
    }

    /// When each byte of the first disk has crossed the link, if it is there at the time given. The others want the
    /// link most of the time. While a disk waits, each other one gets the link once at most, which counts the burst
    /// that is under way.
    fn crossings(&self, there: &[u64], random: &mut Random) -> Vec<u64> {
        let disks = self.share.disks as usize;
        let idle_percent = [0, 0, 5, 30][random.below(4) as usize];
        let whole_percent = [100, 90, 50][random.below(3) as usize];
        let mut ready: Vec<u64> = (0..disks).map(|_| random.below(20 * self.byte)).collect();
        // By disk that waits: those that have gone before it.
        let mut gone = vec![vec![false; disks]; disks];
        let (mut now, mut crossed) = (0, Vec::new());
        while crossed.len() < there.len() {
            ready[0] = there[crossed.len()];
            let waiting: Vec<usize> = (0..disks).filter(|&disk| ready[disk] <= now).collect();
            let may_go = |&&disk: &&usize| !waiting.iter().any(|&other| gone[other][disk]);
            let free: Vec<usize> = waiting.iter().filter(may_go).copied().collect();
            let Some(&disk) = free.get(random.below(free.len() as u64) as usize) else {
                now = *ready.iter().min().expect("a disk");
                continue;
            };
            let begun = now;
            if disk == 0 {
                let of_burst = there[crossed.len()..]
                    .iter()
                    .take(self.share.burst_bytes as usize);
                for &at in of_burst {
                    if at > if self.is_closed { begun } else { now } {
                        break;
                    }
                    now += self.byte;
                    crossed.push(now);
                }
                ready[0] = there.get(crossed.len()).copied().unwrap_or(u64::MAX);
            } else {
                let most = self.share.burst_bytes;
                let bytes = if random.chance(whole_percent) {
                    most
                } else {
                    random.range(1, most)
                };
                now += bytes * self.byte;
                let idle = if random.chance(idle_percent) {
                    random.below(100 * self.byte)
                } else {
                    0
                };
                ready[disk] = now + idle;
            }
            gone[disk].fill(false);
            for other in (0..disks).filter(|&other| other != disk && ready[other] < now) {
                gone[other][disk] = true;
            }
        }
        crossed
    }
}

/// Number of random reads of which the last byte has crossed later than promised. None does if the promise is this
/// much longer.
fn late_reads(is_closed: bool, more: impl Fn(&Exact) -> u64) -> u32 {
    let seed = testkit::seed("fair links", None);
    let mut random = Random(seed);
    let mut late = 0;
    for case in 0..20_000 {
        let exact = Exact::drawn(&mut random, is_closed);
        let there = exact.read(&mut random);
        let crossed = exact.crossings(&there, &mut random);
        // The last byte crosses a link of its own in the time of a byte.
        let alone = there[there.len() - 1] + exact.byte;
        let promised = alone + exact.share.delay(exact.bytes, exact.drive).get();
        let took = crossed[crossed.len() - 1];
        late += u32::from(took > promised);
        let Exact { share, drive, .. } = exact;
        assert!(
            took <= promised + more(&exact),
            "seed {seed}, case {case}: {took} after {promised}: {share:?}, {drive:?}, {} bytes",
            exact.bytes
        );
    }
    late
}

#[test]
fn no_read_takes_longer_on_any_fair_link() {
    assert_eq!(late_reads(false, |_| 0), 0);
}

/// The model says that a burst also takes what comes while it lasts.
#[test]
fn reads_take_up_to_a_burst_longer_if_a_burst_takes_only_what_was_there() {
    let late = late_reads(true, |exact| exact.share.burst_bytes * exact.byte);
    assert!(late > 0);
}

#[test]
fn no_write_falls_back_further_on_any_fair_link() {
    let seed = testkit::seed("fair links", None);
    let mut random = Random(seed);
    let mut fell_back = 0;
    for case in 0..20_000 {
        let exact = Exact::drawn(&mut random, false);
        let asked = random.below(50 * exact.byte);
        let crossed = exact.crossings(&vec![asked; exact.bytes as usize], &mut random);
        // On a link of its own every byte is there in time.
        let mut writes = asked + exact.byte + random.below(10 * exact.byte);
        let rotation = exact.drive.rotation.get();
        let mut behind = 0;
        let begun = writes;
        for (index, &there) in (0..).zip(&crossed) {
            writes = writes.max(begun + exact.on_medium(index));
            let missing = there.saturating_sub(writes + behind);
            behind += match rotation {
                0 => missing,
                rotation => missing.div_ceil(rotation) * rotation,
            };
            if random.chance(5) {
                writes += random.below(40 * exact.byte);
            }
        }
        fell_back += u32::from(behind > 0);
        let promised = exact.share.write_delay(exact.bytes, exact.drive).get();
        let Exact { share, drive, .. } = exact;
        assert!(
            behind <= promised,
            "seed {seed}, case {case}: {behind} after {promised}: {share:?}, {drive:?}, {} bytes",
            exact.bytes
        );
    }
    assert!(fell_back > 0);
}
