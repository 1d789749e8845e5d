use super::*;

/// It has the time of what comes then, and leaves the clock as it is.
#[test]
fn one_from_elsewhere_comes_when_the_next_one_would() {
    let second = 1_000_000_000;
    let mut clocks = Clocks::new([1_000].into_iter());
    assert_eq!(clocks.media_ns(0, 0, 5 * second), 5 * second);
    // Much faster than it is to be shown.
    assert_eq!(clocks.media_ns(0, 9_000, 6 * second), 14 * second);
    assert_eq!(
        clocks.media_ns_of_stray(0, 1 << 30, 7 * second),
        15 * second
    );
    assert_eq!(clocks.media_ns_of_stray(0, 12_000, 7 * second), 15 * second);
    assert_eq!(clocks.media_ns_of_stray(1, 0, 7 * second), 7 * second);
    assert_eq!(clocks.media_ns(0, 10_000, 7 * second), 15 * second);
}

#[test]
fn time_goes_on_when_timestamps_wrap_or_are_set() {
    let mut clocks = Clocks::new([90_000].into_iter());
    let second = 1_000_000_000;
    let mut media_ns = |timestamp, arrival_ns| clocks.media_ns(0, timestamp, arrival_ns);
    assert_eq!(media_ns(u32::MAX - 44_999, 5 * second), 5 * second);
    assert_eq!(media_ns(45_000, 6 * second), 6 * second);
    // A frame that is shown earlier than the one before it.
    assert_eq!(media_ns(0, 6 * second), 5 * second + second / 2);
    // Sent faster than it is to be played.
    assert_eq!(media_ns(450_000, 6 * second), 10 * second + second / 2);
    // The sender's clock is set.
    let set = media_ns(4_000_000_000, 7 * second);
    assert_eq!(set, 11 * second + second / 2);
    let behind = media_ns(4_000_090_000, 7 * second);
    assert_eq!(behind, 12 * second + second / 2);
}

/// Of a track with a thousand units in a second: its times of timestamps and arrivals, all in milliseconds.
fn times(packets: &[(u32, u64)]) -> Vec<u64> {
    let mut clocks = Clocks::new([1_000].into_iter());
    let mut media_ms = |&(at, arrival)| clocks.media_ns(0, at, arrival * 1_000_000) / 1_000_000;
    packets.iter().map(&mut media_ms).collect()
}

/// `ffmpeg -re` sends what comes behind a gap before it waits for as long. However long that is, and whether it is exactly
/// so long or not, time is what the sender says from the next frame on.
#[test]
fn a_frame_that_is_sent_before_its_time_does_not_set_the_clock() {
    for gap in (9_900..10_200).step_by(10).chain([60_000, 3_600_000]) {
        for (early, late) in [(1, 0), (40, 0), (40, 39), (90, 2), (1, 400)] {
            let next = u64::from(gap) + 40;
            let found = times(&[
                (0, 0),
                // In two packets.
                (gap, early),
                (gap, early + 1),
                (gap + 40, next + late),
                (gap + 80, next + 40),
                (gap + 20_000, next + 19_960),
            ]);
            let how = format!("{gap}, {early}, {late}");
            assert_eq!(found[3..], [next, next + 40, next + 19_960], "{how}");
        }
    }
    // Two gaps, with one frame between them.
    for (first, second) in [(30_000, 12_000), (12_000, 30_000), (12_000, 11_000)] {
        let (begins, ends) = (40 + first, 40 + first + second);
        let mut packets = vec![(0, 0), (40, 0), (begins, 41), (ends, u64::from(begins))];
        let behind = [ends + 40, ends + 80, ends + 30_000];
        packets.extend(behind.map(|at| (at, u64::from(at) - 40)));
        let found = times(&packets);
        assert_eq!(found[4..], behind.map(u64::from), "{first}, {second}");
    }
    // And one after another, of which not each is as long as that of a clock that is set, or all are as long.
    let found = times(&[
        (0, 0),
        (12_000, 1),
        (32_000, 12_000),
        (43_000, 32_000),
        (58_000, 43_000),
    ]);
    assert_eq!(found[3..], [43_000, 58_000]);
    let slides = (1..60).map(|number| (12_000 * number, 12_000 * (u64::from(number) - 1)));
    let behind = [(708_040, 708_000), (708_080, 708_040)];
    let packets: Vec<_> = [(0, 0)].into_iter().chain(slides).chain(behind).collect();
    assert_eq!(times(&packets)[60..], [708_040, 708_080]);
}

/// Also where those behind it come later one by one.
#[test]
fn frames_that_are_half_as_late_between_them_say_that_no_clock_was_set() {
    let found = times(&[
        (0, 0),
        (12_000, 1),
        (12_040, 4_040),
        (12_080, 8_080),
        (12_120, 12_120),
    ]);
    assert_eq!(found[3..], [12_080, 12_120]);
}

/// A clock that was set ahead stays so, also if the network is slow later.
#[test]
fn a_clock_that_was_set_is_not_set_back_by_what_comes_late() {
    // Less than half as late as it was set ahead.
    let found = times(&[(0, 0), (12_040, 40), (12_080, 5_000), (12_120, 5_900)]);
    assert_eq!(found, [0, 40, 80, 120]);
    // Nor by a packet of the frame that came first, which is as late.
    let found = times(&[(0, 0), (12_040, 40), (12_040, 9_000), (12_080, 9_000)]);
    assert_eq!(found, [0, 40, 40, 80]);
    // Nor because the network stood before.
    let found = times(&[(0, 0), (40, 12_040), (42_080, 12_080), (42_120, 12_120)]);
    assert_eq!(found, [0, 40, 12_080, 12_120]);
    // Nor by anything, some seconds later.
    let frames = (1..100).map(|number| (11_960 + 40 * number, 40 * u64::from(number)));
    let frames: Vec<_> = [(0, 0)].into_iter().chain(frames).collect();
    let found = times(&[&frames[..], &[(15_960, 13_000)]].concat());
    assert_eq!(found[99..], [3_960, 4_000]);
    // What came before its time then is as much ahead as that.
    let early = [(45_920, 3_961), (45_960, 34_000), (46_000, 34_040)];
    let found = times(&[&frames[..], &early].concat());
    assert_eq!(found[101..], [34_000, 34_040]);
}

/// What is sent faster than it is to be played is no clock that was set.
#[test]
fn what_is_sent_faster_is_played_as_it_is_to_be() {
    for ahead in [9_100, 9_900] {
        let found = times(&[
            (0, 0),
            (ahead, 1),
            (ahead + 40, 41),
            (ahead + 30_000, 30_001),
        ]);
        let expected = [0, ahead, ahead + 40, ahead + 30_000].map(u64::from);
        assert_eq!(found, expected);
    }
}

/// However slow a clock is: that is no clock that stood.
#[test]
fn a_slow_clock_is_followed() {
    let packets: Vec<_> = (0..300)
        .map(|number| (1_000 * number, 1_100 * u64::from(number)))
        .collect();
    let expected: Vec<_> = (0..300).map(|number| 1_000 * number).collect();
    assert_eq!(times(&packets), expected);
}

/// By what it is set each time, though that is nearly as much.
#[test]
fn a_clock_that_is_set_twice_goes_on() {
    let at = |ms: u32| 100_000_u32.wrapping_add(ms);
    let found = times(&[
        (at(0), 0),
        (at(40) - 12_000, 40),
        (at(80) - 12_000, 80),
        (at(120) - 24_500, 120),
    ]);
    assert_eq!(found, [0, 40, 80, 120]);
}

/// Also one that is set back behind a frame that came before its time, which is to be played in any case.
#[test]
fn a_clock_that_is_set_back_goes_on() {
    for back in [10_100, 12_000, 19_000, 600_000] {
        let set = |at: u32| 1_000_000_u32.wrapping_add(at).wrapping_sub(back);
        let found = times(&[
            (1_000_000, 0),
            (1_000_040, 40),
            (set(80), 80),
            (set(120), 120),
        ]);
        assert_eq!(found, [0, 40, 80, 120], "{back}");
    }
    let found = times(&[(10_000, 0), (18_080, 80), (6_120, 120), (6_160, 8_200)]);
    assert_eq!(found[..2], [0, 8_080]);
    assert_eq!(found[2..], [8_120, 8_160]);
}

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

/// An encoder that looks ahead keeps what is before a gap, and sends it behind it: what makes up for that is no clock that is
/// set. As `ffmpeg -re` with libx264 sent it.
#[test]
fn a_gap_that_an_encoder_looks_over_is_one() {
    let before = (0..132).map(|number| (40 * number, 40 * u64::from(number)));
    let kept = (132..150).map(|number| (40 * number, 18_283 + 39 * (u64::from(number) - 132)));
    let behind = (0..500)
        .map(|number| 19_000 + 40 * number)
        .map(|at| (at, u64::from(at)));
    let packets: Vec<_> = before.chain(kept).chain(behind).collect();
    let expected: Vec<_> = packets.iter().map(|&(at, _)| u64::from(at)).collect();
    assert_eq!(times(&packets), expected);
}

/// Of a track that has little to say timestamps wrap between two packets.
#[test]
fn timestamps_wrap_as_often_as_they_may_have() {
    let mut clocks = Clocks::new([90_000].into_iter());
    let second = 1_000_000_000;
    for at in [
        0,
        1,
        15 * 3_600,
        15 * 3_600 + 5,
        60 * 3_600,
        60 * 3_600 + 30,
    ] {
        let timestamp = (at * 90_000 + 4_000_000_000_u64) as u32;
        assert_eq!(clocks.media_ns(0, timestamp, at * second), at * second);
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

/// Clocks that are set by different amounts, or at different times, are two.
#[test]
fn each_clock_is_set_by_what_it_is() {
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    let packets = [
        (0, 0, 0),
        (1, 0, 0),
        (1, 13_500, 40),
        (0, 12_000, 40),
        (0, 12_000, 80),
        (1, 13_500, 21_000),
        (1, 26_000, 21_040),
    ];
    for (track, back_ms, at_ms) in packets {
        let timestamp = (100_000 + at_ms - back_ms) as u32;
        let media_ns = clocks.media_ns(track, timestamp, at_ms * 1_000_000);
        assert_eq!(media_ns, at_ms * 1_000_000, "{track} at {at_ms}");
    }
}

/// Also where one of the two tracks has a packet each eight seconds.
#[test]
fn a_slow_track_of_a_sender_that_stood_is_moved_with_the_other() {
    for stood_ms in (9_500..11_000).step_by(33).chain([30_000]) {
        for phase_ms in (0..8_000).step_by(440) {
            let found = apart(120, |of| {
                let is_there = of.track == 1 || (of.sent_ms + phase_ms) % 8_000 < 40;
                let is_behind = of.sent_ms >= 20_000;
                let sent = (of.at_ms, of.sent_ms + if is_behind { stood_ms } else { 0 });
                is_there.then_some(sent)
            });
            let of = |track| {
                let mut of = found.iter().filter(move |of| of.0 == track).map(|of| of.2);
                let first = of.next().expect("a packet");
                of.next_back().expect("two") - first
            };
            assert_eq!(of(0), of(1), "{stood_ms} ms, {phase_ms} ms");
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

#[test]
fn time_goes_on_when_a_source_begins_anew() {
    let second = 1_000_000_000;
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    assert_eq!(clocks.media_ns(0, 5_000, second), second);
    assert_eq!(clocks.media_ns(1, 9_000, second), second);
    clocks.restart_all();
    // Numbers that could be of the same clock are not taken for it.
    let report = Report {
        ntp: 1 << 32,
        timestamp: 5_500,
    };
    clocks.synchronise(0, report);
    assert_eq!(clocks.media_ns(0, 5_500, 4 * second), 4 * second);
    assert_eq!(clocks.media_ns(0, 6_500, 4 * second), 5 * second);
    // One track alone.
    clocks.restart(1);
    assert_eq!(clocks.media_ns(1, 0, 6 * second), 6 * second);
    assert_eq!(clocks.media_ns(0, 7_500, 6 * second), 6 * second);
    // Whatever was late before.
    assert_eq!(clocks.media_ns(0, 8_500, 26 * second), 7 * second);
    clocks.restart(0);
    assert_eq!(clocks.media_ns(0, 0, 26 * second), 26 * second);
    for at in [1, 12, 13, 24] {
        let media_ns = clocks.media_ns(0, 1_000 * at, (26 + u64::from(at)) * second);
        assert_eq!(media_ns, (26 + u64::from(at)) * second);
    }
    // What is said of them then is taken at once.
    let mut late = clocks.clone();
    late.media_ns(0, 24_040, 80 * second);
    late.restart_all();
    for (track, timestamp) in [(1, 7_000), (0, 500)] {
        late.synchronise(
            track,
            Report {
                ntp: 1 << 32,
                timestamp,
            },
        );
    }
    assert_eq!(late.media_ns(1, 7_000, 90 * second), 90 * second);
    assert_eq!(
        late.media_ns(0, 600, 91 * second),
        90 * second + second / 10
    );
    // Or set.
    assert_eq!(clocks.media_ns(0, 44_000, 51 * second), 51 * second);
    clocks.restart(0);
    assert_eq!(clocks.media_ns(0, 0, 52 * second), 52 * second);
    assert_eq!(clocks.media_ns(0, 1_000, 63 * second), 53 * second);
}

#[test]
fn tracks_are_brought_together_by_what_their_sender_says() {
    let second = 1_000_000_000;
    let mut clocks = Clocks::new([90_000, 48_000].into_iter());
    assert_eq!(clocks.media_ns(0, 1_000, 0), 0);
    // Sound that belongs to the picture of 0.2 s arrives at 0.5 s.
    assert_eq!(clocks.media_ns(1, 77_000, second / 2), second / 2);
    let ntp = |tenths: u64| (3_900_000_000 << 32) + (tenths << 32) / 10;
    let report = |tenths, timestamp| Report {
        ntp: ntp(tenths),
        timestamp,
    };
    clocks.synchronise(0, report(0, 1_000));
    clocks.synchronise(1, report(2, 77_000));
    let media = clocks.media_ns(1, 77_000, second / 2);
    assert!(media.abs_diff(second / 5) <= 1, "{media}");
    // Once is enough, and nonsense is not believed.
    clocks.synchronise(1, report(90, 77_000));
    clocks.synchronise(2, report(0, 0));
    assert_eq!(clocks.media_ns(1, 77_000, second / 2), media);
    // Nor is what is said of a clock that may be moved back soon: behind a frame that was sent before its time.
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    for (track, at, arrival_ms) in [(0, 0, 0), (1, 0, 0), (0, 12_040, 1)] {
        clocks.media_ns(track, at, arrival_ms * 1_000_000);
    }
    clocks.synchronise(0, report(120, 12_000));
    for (track, at, arrival_ms) in [(0, 12_080, 12_040), (1, 12_000, 12_050)] {
        clocks.media_ns(track, at, arrival_ms * 1_000_000);
    }
    clocks.synchronise(0, report(120, 12_000));
    clocks.synchronise(1, report(120, 11_900));
    let media_ms = |of: u64| (of + 500_000) / 1_000_000;
    let picture = media_ms(clocks.media_ns(0, 12_120, 12_100_000_000));
    let sound = media_ms(clocks.media_ns(1, 12_020, 12_100_000_000));
    assert_eq!((picture, sound), (12_120, 12_120));
    // Or moved on: of a sender that may have stood.
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    for (track, at, arrival_ms) in [(0, 0, 0), (1, 200, 0), (0, 40, 12_040), (1, 240, 12_040)] {
        clocks.media_ns(track, at, arrival_ms * 1_000_000);
    }
    clocks.synchronise(0, report(1, 100));
    for (track, at, arrival_ms) in [(0, 10_040, 22_040), (1, 10_240, 22_040)] {
        clocks.media_ns(track, at, arrival_ms * 1_000_000);
    }
    clocks.synchronise(0, report(102, 10_200));
    clocks.synchronise(1, report(102, 10_200));
    let picture = media_ms(clocks.media_ns(0, 10_240, 22_240_000_000));
    let sound = media_ms(clocks.media_ns(1, 10_240, 22_240_000_000));
    assert_eq!((picture, sound), (22_240, 22_240));
}
