//! A sender with a picture and its sound, over networks that stand, lose and send later.

use super::*;

/// A packet of a picture, or of its sound.
#[derive(Clone, Copy)]
struct Sent {
    track: usize,
    /// When it is to be played.
    at_ms: i64,
    sent_ms: i64,
}

/// Units of a millisecond, of the picture and of the sound.
const UNITS: [i64; 2] = [90, 48];

/// What a sender has: every third frame is shown before the one in front of it, and each is in three packets.
fn sent(seconds: i64) -> Vec<Sent> {
    let mut sent = Vec::new();
    for number in 0..seconds * 25 {
        let (track, sent_ms) = (0, 40 * number);
        let at_ms = sent_ms + [0, 40, -40][number as usize % 3];
        sent.extend(
            [Sent {
                track,
                at_ms,
                sent_ms,
            }; 3],
        );
    }
    for number in 0..seconds * 50 {
        let (track, at_ms) = (1, 20 * number);
        let sent_ms = at_ms + 3;
        sent.push(Sent {
            track,
            at_ms,
            sent_ms,
        });
    }
    sent.sort_by_key(|of| of.sent_ms);
    sent
}

/// Of each packet its track, when it came in milliseconds, and how far its time is from the one it should be played at, in
/// nanoseconds. `comes`: the time that it is sent with and when it comes, if it does, to which up to a quarter of a second is added that
/// the hosts take.
fn apart(seconds: i64, comes: impl Fn(&Sent) -> Option<(i64, i64)>) -> Vec<(usize, i64, i64)> {
    let mut clocks = Clocks::new(UNITS.iter().map(|units| *units as u32 * 1_000));
    let mut last_ms = 0;
    let mut come = |(number, of): (u64, Sent)| {
        let (time_ms, arrival_ms) = comes(&of)?;
        let jitter_ms = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        // By one connection.
        last_ms = last_ms.max(arrival_ms + jitter_ms as i64);
        // Timestamps begin somewhere, and wrap.
        let timestamp = (time_ms * UNITS[of.track] - 1_000_000) as u32;
        let media_ns = clocks.media_ns(of.track, timestamp, last_ms as u64 * 1_000_000);
        Some((of.track, last_ms, media_ns as i64 - of.at_ms * 1_000_000))
    };
    (0..).zip(sent(seconds)).filter_map(&mut come).collect()
}

/// How far each track's are apart, where all are as far.
fn all_apart(of: &[(usize, i64, i64)], how: &str) -> [i64; 2] {
    [0, 1].map(|track| {
        let mut apart = of.iter().filter(|of| of.0 == track).map(|of| of.2);
        let first = apart.next().expect("a packet");
        assert!(apart.all(|ns| ns == first), "track {track}: {how}");
        first
    })
}

/// A network that stands and sends then what it has kept sets no clock: each packet has the time that it would have had.
#[test]
fn what_a_network_has_kept_is_played_as_it_was_sent() {
    for stood_ms in (9_700..10_300).step_by(7).chain([12_000, 30_000, 55_000]) {
        for percent in [105, 109, 120, 300, 5_000] {
            let found = apart(1_500, |of| {
                // So much faster than it is to be shown.
                let kept_ms = 20_000 + stood_ms + (of.sent_ms - 20_000) * 100 / percent;
                let is_kept = of.sent_ms >= 20_000;
                let comes_ms = of.sent_ms.max(if is_kept { kept_ms } else { 0 });
                Some((of.at_ms, comes_ms))
            });
            all_apart(&found, &format!("{stood_ms} ms, {percent} %"));
        }
    }
}

/// What is sent in parts, each faster than it is to be played, is played without pauses.
#[test]
fn what_is_sent_in_parts_is_played_without_pauses() {
    for part_ms in [5_000, 11_000, 12_000, 30_000, 90_000] {
        for times in [2, 20, 1_000] {
            let found = apart(400, |of| {
                let (part, within) = (of.sent_ms / part_ms, of.sent_ms % part_ms);
                Some((of.at_ms, part * part_ms + within / times))
            });
            all_apart(&found, &format!("{part_ms} ms, {times}"));
        }
    }
}

/// Also if only some of it is there, and of the picture less than of the sound.
#[test]
fn what_a_network_has_lost_is_a_gap() {
    for stood_ms in [9_900, 10_100, 20_000, 30_000, 55_000] {
        for kept_ms in [[500, 60_000], [500, 500], [60_000, 100], [0, 60_000]] {
            let found = apart(200, |of| {
                let since_ms = of.sent_ms - 20_000;
                let is_kept = since_ms < kept_ms[of.track] || since_ms >= stood_ms;
                let is_held_up = since_ms >= 0 && since_ms < stood_ms;
                let comes_ms = if is_held_up {
                    20_000 + stood_ms
                } else {
                    of.sent_ms
                };
                is_kept.then_some((of.at_ms, comes_ms))
            });
            all_apart(&found, &format!("{stood_ms} ms, {kept_ms:?}"));
        }
    }
}

/// Or stands once more when little has come.
#[test]
fn a_network_that_stands_again_and_again_sets_no_clock() {
    for through_ms in [40, 300, 900, 5_000] {
        for again_ms in [3_000, 11_000, 13_000, 24_000] {
            let found = apart(200, |of| {
                let comes_ms = match of.sent_ms - 20_000 {
                    since_ms if since_ms < 0 => of.sent_ms,
                    since_ms if since_ms < through_ms => 32_000 + since_ms,
                    since_ms => (32_000 + through_ms + again_ms + since_ms / 50).max(of.sent_ms),
                };
                Some((of.at_ms, comes_ms))
            });
            all_apart(&found, &format!("{through_ms} ms, {again_ms} ms"));
        }
    }
}

/// A sender whose clock stood as well is known by that it does not catch up: ten seconds later its time is the host's again,
/// and its picture is with its sound as it was.
#[test]
fn a_sender_that_stood_is_as_much_later() {
    for stood_ms in (9_000..11_000).step_by(11).chain([30_000, 55_000]) {
        // Or one that catches up by next to nothing.
        for percent in [100, 102] {
            let found = apart(90, |of| {
                let since_ms = of.sent_ms - 20_000;
                let comes_ms = 20_000 + stood_ms + since_ms * 100 / percent;
                Some((of.at_ms, if since_ms >= 0 { comes_ms } else { of.sent_ms }))
            });
            let how = format!("{stood_ms} ms, {percent} %");
            let part = |from_ms, until_ms| {
                let is_in = |of: &&(usize, i64, i64)| (from_ms..until_ms).contains(&of.1);
                let of: Vec<_> = found.iter().filter(is_in).copied().collect();
                all_apart(&of, &how)
            };
            let begins_ms = 20_000 + stood_ms;
            let before = part(0, begins_ms + 10_000);
            let behind = part(begins_ms + 10_600, i64::MAX);
            let by = [0, 1].map(|track| behind[track] - before[track]);
            assert_eq!(by[0], by[1], "{how}");
            let is_seen = (by[0] / 1_000_000 - stood_ms).abs() < 500;
            assert!(
                is_seen || by[0] == 0 && stood_ms < 10_300,
                "{how}: {}",
                by[0]
            );
        }
    }
}

/// Also just after a network did.
#[test]
fn a_sender_that_stood_behind_a_network_that_did_is_as_much_later() {
    let found = apart(90, |of| match of.sent_ms {
        sent_ms @ 20_000..32_000 => Some((of.at_ms, 32_000 + (sent_ms - 20_000) / 100)),
        sent_ms @ 36_000.. => Some((of.at_ms, sent_ms + 30_000)),
        sent_ms => Some((of.at_ms, sent_ms)),
    });
    let behind: Vec<_> = found.iter().filter(|of| of.1 > 77_000).copied().collect();
    let [picture, sound] = all_apart(&behind, "behind");
    assert!((picture / 1_000_000 - 30_000).abs() < 520, "{picture}");
    let [before, before_sound] = all_apart(&found[..100], "before");
    assert_eq!(picture - before, sound - before_sound);
}

/// Also one that stood while the network did: what has been kept comes first.
#[test]
fn a_sender_that_stood_while_a_network_did_is_as_much_later() {
    let found = apart(90, |of| {
        let since_ms = of.sent_ms - 20_000;
        let comes_ms = (60_000 + since_ms / 5).max(of.sent_ms + 25_000);
        Some((of.at_ms, if since_ms >= 0 { comes_ms } else { of.sent_ms }))
    });
    let [before, before_sound] = all_apart(&found[..100], "before");
    let [picture, sound] = all_apart(&found[found.len() - 3_000..], "behind");
    assert!(
        ((picture - before) / 1_000_000 - 25_000).abs() < 300,
        "{picture}"
    );
    assert_eq!(picture - before, sound - before_sound);
}

/// Also where one of the two tracks has a frame each eight seconds, as a video of slides, or each half a minute or minute.
#[test]
fn a_slow_track_of_a_sender_that_stood_is_moved_with_the_other() {
    for every_ms in [8_000, 30_000, 60_000] {
        for stood_ms in (9_500..11_000).step_by(33).chain([30_000]) {
            for phase_ms in (0..every_ms).step_by(every_ms as usize / 18) {
                let found = apart(6 * every_ms / 1_000 + 30, |of| {
                    let is_there = of.track == 1 || (of.sent_ms + phase_ms) % every_ms < 40;
                    let is_behind = of.sent_ms >= 2 * every_ms;
                    let sent = (of.at_ms, of.sent_ms + if is_behind { stood_ms } else { 0 });
                    is_there.then_some(sent)
                });
                let of = |track| {
                    let mut of = found.iter().filter(move |of| of.0 == track).map(|of| of.2);
                    let first = of.next().expect("a packet");
                    of.next_back().expect("two") - first
                };
                let how = format!("each {every_ms} ms, {stood_ms} ms, {phase_ms} ms");
                assert_eq!(of(0), of(1), "{how}");
                // What comes when it is known has the time that it is to have, if those before it came long before.
                let known_ms = 2 * every_ms + stood_ms + 10_600;
                let is_known = |of: &&(usize, i64, i64)| of.0 == 0 && of.1 > known_ms;
                let known: Vec<_> = found.iter().filter(is_known).map(|of| of.2).collect();
                let is_right = known.windows(2).all(|two| two[0] == two[1]);
                assert!(every_ms < 30_000 || is_right, "{how}: {known:?}");
            }
        }
    }
}

/// A clock that is set, by whatever, sets the picture no further than the sound.
#[test]
fn tracks_whose_clock_is_set_stay_together() {
    let near_ms = (9_500..10_500).step_by(9);
    let others_ms = [11_000, 60_000, 3_600_000];
    let all_ms = near_ms.chain(others_ms).flat_map(|ms| [ms, -ms]);
    for set_ms in all_ms {
        let found = apart(60, |of| {
            let is_set = of.sent_ms >= 20_000;
            Some((of.at_ms + if is_set { set_ms } else { 0 }, of.sent_ms))
        });
        let how = format!("{set_ms} ms");
        let before = all_apart(&found[..100], &how);
        let behind = all_apart(&found[found.len() - 3_000..], &how);
        let by = [0, 1].map(|track| behind[track] - before[track]);
        assert_eq!(by[0], by[1], "{how}");
        // It is moved, or not.
        let (by_ms, is_near) = (by[0] / 1_000_000, set_ms.abs() < 10_300);
        assert!(
            by_ms.abs() < 260 || is_near && by_ms == set_ms,
            "{how}: {by_ms}"
        );
    }
}
