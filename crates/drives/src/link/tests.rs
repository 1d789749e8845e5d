//! The rules of a link, by random transfers, and compared with a link that is worked out tick by tick.

use testkit::{Random, seed};

use super::*;

const MB: u64 = 1_000_000;

fn at_us(us: u64) -> Time {
    Time(us * 1_000)
}

fn link(bytes_per_second: u64) -> Link {
    Link::new(BytesPerSecond(bytes_per_second))
}

/// The ends of transfers that are announced at the beginning.
fn ends(bytes_per_second: u64, transfers: &[Transfer]) -> Vec<Time> {
    let mut link = link(bytes_per_second);
    let announce = |transfer: &Transfer| link.begin(Time::ZERO, *transfer);
    let ids: Vec<TransferId> = transfers.iter().map(announce).collect();
    ids.into_iter().map(|id| link.due(id)).collect()
}

/// Any transfer, up to 30 ms and 1 MB long, of a drive with or without platters.
fn any(random: &mut Random) -> Transfer {
    let start = random.below(30_000_000);
    Transfer {
        op: if random.chance(50) {
            Op::Read
        } else {
            Op::Write
        },
        start: Time(start),
        end: Time(start + random.below(30_000_000)),
        bytes: Bytes(random.range(1, MB)),
        rotation: Nanos(8_333_333 * random.below(2)),
    }
}

fn some(random: &mut Random) -> Vec<Transfer> {
    let count = random.range(1, 8);
    (0..count).map(|_| any(random)).collect()
}

fn any_rate(random: &mut Random) -> u64 {
    random.range(MB, 200 * MB)
}

/// The rate of a transfer, rounded up.
fn rate_of(transfer: &Transfer) -> u64 {
    let length = (transfer.end - transfer.start).get().max(1);
    u64::try_from((u128::from(transfer.bytes.get()) * NANOS_PER_SECOND).div_ceil(length.into()))
        .unwrap()
}

#[test]
fn transfers_that_fit_beside_each_other_end_at_their_ends() {
    let mut random = Random(seed("transfers that fit", None));
    for _ in 0..500 {
        let transfers: Vec<Transfer> = some(&mut random)
            .into_iter()
            .map(|transfer| Transfer {
                end: transfer.end + Nanos(1),
                ..transfer
            })
            .collect();
        let all = transfers.iter().map(rate_of).sum();
        let expected: Vec<Time> = transfers.iter().map(|transfer| transfer.end).collect();
        assert_eq!(ends(all, &transfers), expected, "{transfers:?}");
        let alone = transfers[0];
        assert_eq!(ends(rate_of(&alone), &[alone]), [alone.end], "{alone:?}");
    }
}

#[test]
fn equal_transfers_that_do_not_fit_end_together_when_the_link_has_moved_them() {
    let mut random = Random(seed("equal transfers", None));
    for _ in 0..200 {
        let bytes_per_second = any_rate(&mut random);
        let count = random.range(2, 8);
        let one = Transfer {
            op: Op::Read,
            ..any(&mut random)
        };
        let all = count * one.bytes.get();
        let fluid = (u128::from(all) * NANOS_PER_SECOND).div_ceil(bytes_per_second.into());
        let fluid = one.start + Nanos(u64::try_from(fluid).unwrap());
        if fluid < one.end {
            continue;
        }
        for end in ends(bytes_per_second, &vec![one; count as usize]) {
            assert!(end.get().abs_diff(fluid.get()) <= 1, "{end:?} {fluid:?}");
        }
    }
}

#[test]
fn backlog_is_made_up_at_the_full_rate_and_a_late_write_loses_rotations() {
    // Each wants the whole rate. From 5 ms to 10 ms they share it, and then the short one has crossed.
    let long = Transfer {
        op: Op::Read,
        start: at_us(0),
        end: at_us(10_000),
        bytes: Bytes(MB),
        rotation: Nanos::from_millis(8),
    };
    let short = Transfer {
        start: at_us(5_000),
        end: at_us(7_500),
        bytes: Bytes(MB / 4),
        ..long
    };
    let writes = |rotation| {
        [long, short].map(|read| Transfer {
            op: Op::Write,
            rotation,
            ..read
        })
    };
    let close = |transfers: &[Transfer], expected: [Time; 2]| {
        for (end, expected) in ends(100 * MB, transfers).into_iter().zip(expected) {
            assert!(end.get().abs_diff(expected.get()) <= 1, "{end:?}");
        }
    };
    close(&[long, short], [at_us(12_500), at_us(10_000)]);
    close(&writes(Nanos::ZERO), [at_us(12_500), at_us(10_000)]);
    close(&writes(long.rotation), [at_us(18_000), at_us(15_500)]);
}

#[test]
fn another_transfer_never_hastens_and_delays_writes_by_whole_rotations() {
    let mut random = Random(seed("another transfer", None));
    let mut delayed = 0;
    for _ in 0..1_000 {
        let mut link = link(any_rate(&mut random));
        let mut known: Vec<(Transfer, TransferId)> = Vec::new();
        let mut now = Time::ZERO;
        for transfer in some(&mut random) {
            let before: Vec<Time> = known.iter().map(|&(_, id)| link.due(id)).collect();
            now += Nanos(random.below(8_000_000));
            let id = link.begin(now, transfer);
            for (before, &(known, id)) in before.into_iter().zip(&known) {
                assert!(link.due(id) >= before, "{known:?} {transfer:?}");
                delayed += u64::from(link.due(id) > before);
            }
            known.push((transfer, id));
        }
        for (transfer, id) in known {
            let late = link.due(id) - transfer.end;
            if transfer.op == Op::Write && !transfer.rotation.is_zero() {
                assert!(late.get().is_multiple_of(transfer.rotation.get()));
            }
        }
    }
    assert!(delayed > 100, "{delayed}");
}

#[test]
fn no_more_crosses_in_any_interval_than_the_link_moves() {
    let mut random = Random(seed("intervals", None));
    for _ in 0..500 {
        let bytes_per_second = any_rate(&mut random);
        let mut link = link(bytes_per_second);
        for transfer in some(&mut random) {
            link.begin(Time::ZERO, transfer);
        }
        let crossed = |at: Time| -> u128 {
            let flows = link.past.at(at).flows;
            let of = |flow: &Flow| flow.moved_by_medium(at) - flow.backlog;
            flows.iter().map(of).sum()
        };
        for _ in 0..20 {
            let from = Time(random.below(100_000_000));
            let length = random.below(10_000_000) >> random.below(20);
            let parts = crossed(from + Nanos(length)) - crossed(from);
            let most = u128::from(bytes_per_second) * u128::from(length);
            assert!(parts * NANOS_PER_SECOND <= most << PART_BITS);
        }
    }
}

#[test]
fn each_of_m_transfers_has_an_mth_of_the_link_at_least() {
    let mut random = Random(seed("fair shares", None));
    for _ in 0..500 {
        let bytes_per_second = any_rate(&mut random);
        let transfers = some(&mut random);
        let share = bytes_per_second / transfers.len() as u64;
        for (end, transfer) in ends(bytes_per_second, &transfers).iter().zip(&transfers) {
            assert!(*end <= ends(share, &[*transfer])[0], "{transfer:?}");
        }
    }
}

#[test]
fn order_of_announcement_does_not_matter() {
    let mut random = Random(seed("order", None));
    for _ in 0..500 {
        let bytes_per_second = any_rate(&mut random);
        let mut transfers = some(&mut random);
        transfers.sort_by_key(|transfer| transfer.start);
        let expected = ends(bytes_per_second, &transfers);
        let mut link = link(bytes_per_second);
        let announce =
            |transfer: &Transfer| link.begin(transfer.start + ANNOUNCED_LATE_MAX, *transfer);
        let ids: Vec<TransferId> = transfers.iter().map(announce).collect();
        let late: Vec<Time> = ids.into_iter().map(|id| link.due(id)).collect();
        assert_eq!(late, expected, "{transfers:?}");
        transfers.reverse();
        let mut backwards = ends(bytes_per_second, &transfers);
        backwards.reverse();
        assert_eq!(backwards, expected, "{transfers:?}");
    }
}

#[test]
fn a_lone_transfer_is_not_delayed_by_its_late_announcement() {
    let mut link = link(100 * MB);
    let one = |start: Time| Transfer {
        op: Op::Read,
        start,
        end: start + Nanos::from_millis(10),
        bytes: Bytes(MB),
        rotation: Nanos::ZERO,
    };
    let mut start = Time::ZERO;
    for _ in 0..10 {
        let id = link.begin(start + ANNOUNCED_LATE_MAX * 50, one(start));
        let end = link.due(id);
        assert_eq!(end, one(start).end);
        link.finish(id, end);
        start = end;
    }
}

#[test]
fn a_transfer_that_is_called_off_delays_nobody_and_one_that_has_ended_stays() {
    let one = Transfer {
        op: Op::Read,
        start: at_us(0),
        end: at_us(10_000),
        bytes: Bytes(MB),
        rotation: Nanos::ZERO,
    };
    let mut link = link(100 * MB);
    let stays = link.begin(at_us(0), one);
    let goes = link.begin(at_us(0), one);
    let both = link.due(stays);
    assert!(both > one.end);
    link.finish(goes, at_us(0));
    assert_eq!(link.due(stays), one.end);
    let other = link.begin(at_us(0), one);
    link.finish(other, both);
    assert_eq!(link.due(stays), both);
}

#[test]
fn what_has_crossed_is_forgotten_even_if_a_stalled_disk_does_not_finish() {
    let mut link = link(10 * MB);
    let one = |start: Time| Transfer {
        op: Op::Read,
        start,
        end: start + Nanos::from_millis(1),
        bytes: Bytes(8_000),
        rotation: Nanos::ZERO,
    };
    let stalled = link.begin(Time::ZERO, one(Time::ZERO));
    let mut now = Time::ZERO;
    for _ in 0..100 {
        let ids = [0, 1].map(|_| link.begin(now, one(now)));
        now = ids.map(|id| link.due(id))[1];
        for id in ids {
            link.finish(id, now);
        }
    }
    assert!(link.past.flows.len() < 20, "{}", link.past.flows.len());
    let end = link.due(stalled).get();
    assert!(end.abs_diff(2_400_000) <= 1, "{end}");
}

/// The ends of transfers, tick by tick.
fn ends_by_ticks(bytes_per_second: u64, transfers: &[Transfer]) -> Vec<Time> {
    let rate = (u128::from(bytes_per_second) << PART_BITS) / NANOS_PER_SECOND;
    let length = |of: &Transfer| u128::from((of.end - of.start).get());
    let own = |of: &Transfer| (u128::from(of.bytes.get()) << PART_BITS) / length(of);
    let mut crossed = vec![0; transfers.len()];
    let mut delays = vec![0; transfers.len()];
    let mut ends = vec![None; transfers.len()];
    for now in 1.. {
        let moved = |of: &Transfer| {
            own(of) * u128::from(Time(now).min(of.end).saturating_since(of.start).get())
        };
        let mut wants: Vec<(u128, usize)> = (0..transfers.len())
            .map(|i| (moved(&transfers[i]) - crossed[i], i))
            .collect();
        wants.sort_unstable();
        let mut left = rate;
        for (taken, (want, i)) in wants.iter().enumerate() {
            let share = left / (wants.len() - taken) as u128;
            // All that want more than the share get the same.
            let gets = if *want <= share { *want } else { share };
            left = if *want <= share {
                left - gets
            } else {
                gets * (wants.len() - taken - 1) as u128
            };
            crossed[*i] += gets;
        }
        for (i, of) in transfers.iter().enumerate() {
            if ends[i].is_some() {
                continue;
            }
            let needed = of.start.get() + (crossed[i] / own(of)) as u64;
            delays[i] = delays[i].max(now.saturating_sub(needed));
            if Time(now) >= of.end && crossed[i] == moved(of) {
                let rotation = of.rotation.get();
                let late = match rotation {
                    0 => delays[i],
                    _ => delays[i].next_multiple_of(rotation),
                };
                ends[i] = Some(match of.op {
                    Op::Read => Time(now),
                    Op::Write => of.end + Nanos(late),
                });
            }
        }
        if let Some(ends) = ends.iter().copied().collect() {
            return ends;
        }
    }
    unreachable!("the ticks do not end")
}

#[test]
fn ticks_that_are_worked_out_together_are_the_same_as_one_by_one() {
    let mut random = Random(seed("ticks", None));
    for _ in 0..1_000 {
        let bytes_per_second = random.range(300 * MB, 3_000 * MB);
        let count = random.range(1, 6);
        let transfers: Vec<Transfer> = (0..count)
            .map(|_| {
                let start = random.below(200);
                Transfer {
                    start: Time(start),
                    end: Time(start + random.range(1, 200)),
                    bytes: Bytes(random.range(1, 300)),
                    rotation: Nanos(83 * random.below(2)),
                    ..any(&mut random)
                }
            })
            .collect();
        assert_eq!(
            ends(bytes_per_second, &transfers),
            ends_by_ticks(bytes_per_second, &transfers),
            "{bytes_per_second} {transfers:?}"
        );
    }
}
