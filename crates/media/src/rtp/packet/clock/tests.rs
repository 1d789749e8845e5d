use super::*;

const SECOND_NS: u64 = 1_000_000_000;

/// Media times of packets of one track with 1,000 units per second; timestamps, arrivals and results in
/// milliseconds.
fn times(packets: &[(u32, u64)]) -> Vec<u64> {
    let mut clocks = Clocks::new([1_000].into_iter());
    let mut media_ms = |&(at, arrival)| clocks.media_ns(0, at, arrival * 1_000_000) / 1_000_000;
    packets.iter().map(&mut media_ms).collect()
}

/// A packet of a sender with a picture (track 0) and sound (track 1), which it sends when it is to be shown.
#[derive(Clone, Copy)]
struct Sent {
    track: usize,
    at_ms: i64,
}

/// Sends a picture of 25 frames a second, each in three packets, every third frame before the one that is
/// shown earlier, and 50 packets of sound a second. Returns of each packet its track, its arrival in ms, and
/// its media time less `at_ms` in ns. `path` gives the time that a packet's timestamp says and the packet's
/// arrival, in ms, or `None` for a lost packet; up to a quarter of a second of jitter is added to the
/// arrival.
fn errors(
    seconds: i64,
    path: impl Fn(Sent) -> Option<(i64, i64)>,
) -> impl Iterator<Item = (usize, i64, i64)> {
    let mut clocks = Clocks::new([90_000, 48_000].into_iter());
    let (mut packets, mut errors, mut last_ms) = (Vec::new(), Vec::new(), 0);
    for number in 0..seconds * 50 {
        packets.push((20 * number, 1, 20 * number));
        if number % 2 == 0 {
            let at_ms = 20 * number + [0, 40, -40][number as usize / 2 % 3];
            packets.extend([(20 * number, 0, at_ms); 3]);
        }
    }
    for (number, (sent_ms, track, at_ms)) in (0_u64..).zip(packets) {
        let Some((time_ms, arrival_ms)) = path(Sent {
            track,
            at_ms: sent_ms,
        }) else {
            continue;
        };
        let jitter_ms = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        last_ms = last_ms.max(arrival_ms + jitter_ms as i64);
        let timestamp = (time_ms + at_ms - sent_ms) * [90, 48][track] - 1_000_000;
        let media_ns = clocks.media_ns(track, timestamp as u32, last_ms as u64 * 1_000_000);
        errors.push((track, last_ms, media_ns as i64 - at_ms * 1_000_000));
    }
    errors.into_iter()
}

/// The error of all packets of a track that arrive in a range of ms; panics if they differ.
#[track_caller]
fn error(of: &[(usize, i64, i64)], track: usize, arrival_ms: std::ops::Range<i64>) -> i64 {
    let is_in = |of: &&(usize, i64, i64)| of.0 == track && arrival_ms.contains(&of.1);
    let mut errors = of.iter().filter(is_in).map(|of| of.2);
    let first = errors.next().expect("a packet");
    assert!(errors.all(|ns| ns == first), "track {track}");
    first
}

/// Checks that the error of each track does not change up to this arrival, in ms.
#[track_caller]
fn keeps_times(of: &[(usize, i64, i64)], until_ms: i64) {
    for track in 0..2 {
        error(of, track, 0..until_ms);
    }
}

/// By how much each track's time is later from `behind_ms` on than it was before `before_ms`.
#[track_caller]
fn shifts_ms(of: &[(usize, i64, i64)], before_ms: i64, behind_ms: i64) -> [f64; 2] {
    let shift = |track| error(of, track, behind_ms..i64::MAX) - error(of, track, 0..before_ms);
    [0, 1].map(|track| shift(track) as f64 / 1e6)
}

#[test]
fn timestamps_wrap_and_frames_are_reordered() {
    let mut clocks = Clocks::new([90_000].into_iter());
    let mut media_ns = |timestamp, arrival_ns| clocks.media_ns(0, timestamp, arrival_ns);
    assert_eq!(media_ns(u32::MAX - 44_999, 5 * SECOND_NS), 5 * SECOND_NS);
    assert_eq!(media_ns(45_000, 6 * SECOND_NS), 6 * SECOND_NS);
    assert_eq!(media_ns(0, 6 * SECOND_NS), 11 * SECOND_NS / 2);
}

/// A track that rarely sends, as events of a camera, has timestamps that wrap more than once between two packets.
#[test]
fn timestamps_wrap_between_two_packets() {
    let mut clocks = Clocks::new([90_000].into_iter());
    for at in [0, 1, 54_000, 54_005, 216_000, 216_030] {
        let timestamp = (at * 90_000 + 4_000_000_000_u64) as u32;
        assert_eq!(
            clocks.media_ns(0, timestamp, at * SECOND_NS),
            at * SECOND_NS
        );
    }
}

#[test]
fn a_file_sent_faster_than_shown_keeps_its_times() {
    let packets: Vec<_> = (0..1_000)
        .map(|number| (400 * number, 2 * u64::from(number)))
        .collect();
    let expected: Vec<_> = packets.iter().map(|packet| u64::from(packet.0)).collect();
    assert_eq!(times(&packets), expected);
}

#[test]
fn a_sender_with_parts_of_a_file_pauses_nothing() {
    for part_ms in [5_000, 11_000, 30_000, 90_000] {
        let found: Vec<_> = errors(200, |of| {
            let (part, within) = (of.at_ms / part_ms, of.at_ms % part_ms);
            Some((of.at_ms, part * part_ms + within / 20))
        })
        .collect();
        keeps_times(&found, i64::MAX);
    }
}

/// A crystal is off by up to some 100 millionths; a tenth is no crystal, and is followed as well.
#[test]
fn a_slow_or_fast_clock_is_followed_for_a_day() {
    for millionths in [-100_000, -100, 100, 100_000] {
        let packets: Vec<_> = (0..86_400_i64)
            .map(|at| {
                (
                    at * 1_000 % (1 << 32),
                    at * (1_000_000 + millionths) / 1_000,
                )
            })
            .map(|(at, arrival)| (at as u32, arrival as u64))
            .collect();
        let expected: Vec<_> = packets.iter().map(|packet| u64::from(packet.0)).collect();
        assert_eq!(times(&packets), expected, "{millionths}");
    }
}

#[test]
fn gaps_are_kept() {
    for gap_ms in [2_000, 9_990, 15_000, 60_000, 3_600_000] {
        let found: Vec<_> = errors(4_000, |of| {
            let is_lost = (20_000..20_000 + gap_ms).contains(&of.at_ms);
            (!is_lost).then_some((of.at_ms, of.at_ms))
        })
        .collect();
        keeps_times(&found, i64::MAX);
    }
}

/// `ffmpeg -re` sends the first frame after a gap at once, and waits then.
#[test]
fn a_frame_sent_before_its_gap_keeps_the_length_of_the_gap() {
    for gap in (9_900..21_000).step_by(10).chain([60_000, 3_600_000]) {
        let next = u64::from(gap) + 40;
        let behind = (0..400).map(|of| (gap + 40 + 40 * of, next + 40 * u64::from(of)));
        let before = [(0, 0), (gap, 1), (gap, 2)];
        let packets: Vec<_> = before.into_iter().chain(behind).collect();
        let found = times(&packets);
        let off = found[402].abs_diff(u64::from(packets[402].0));
        assert!(off <= 1, "{gap}: {off} ms");
        assert!(gap > 20_000 || found[1] == u64::from(gap), "{gap}");
    }
}

#[test]
fn a_clock_set_ahead_or_back_continues_by_arrival() {
    for set_ms in [25_000_i64, 600_000, 30_000_000, -10_100, -12_000, -600_000] {
        let at = |ms: i64| (100_000 + ms) as u32;
        let found = times(&[
            (at(0), 0),
            (at(40), 40),
            (at(80 + set_ms), 80),
            (at(120 + set_ms), 120),
        ]);
        assert_eq!(found, [0, 40, 80, 120], "{set_ms}");
    }
    // Also if it was ahead of its arrival before.
    let found = times(&[(10_000, 0), (18_080, 80), (6_120, 120), (6_160, 8_200)]);
    assert_eq!(found, [0, 8_080, 8_120, 8_160]);
}

/// Some cameras send single frames with a time that is hours away.
#[test]
fn a_single_frame_of_another_time_changes_nothing() {
    for set_ms in [30_000, 37_600_000, -9_800_000, -30_000] {
        let at = |ms: i64| (100_000 + ms) as u32;
        let found = times(&[(at(0), 0), (at(40 + set_ms), 40), (at(80), 80)]);
        assert_eq!(found, [0, 40, 80], "{set_ms}");
    }
}

#[test]
fn tracks_whose_clock_is_set_stay_together() {
    for set_ms in [25_000, 60_000, 3_600_000, -10_500, -60_000, -3_600_000] {
        let found: Vec<_> = errors(60, |of| {
            let is_set = of.at_ms >= 20_000;
            Some((of.at_ms + if is_set { set_ms } else { 0 }, of.at_ms))
        })
        .collect();
        let [picture, sound] = shifts_ms(&found, 19_700, 20_300);
        assert_eq!(picture, sound, "{set_ms}");
        assert!(picture.abs() < 300.0, "{set_ms}: {picture}");
    }
}

#[test]
fn tracks_whose_clocks_are_set_differently_continue_by_arrival() {
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    for (track, back_ms, at_ms) in [
        (0, 0, 0),
        (1, 0, 0),
        (1, 13_500, 40),
        (0, 12_000, 40),
        (0, 12_000, 80),
        (1, 27_000, 120),
    ] {
        let timestamp = (100_000 + at_ms - back_ms) as u32;
        let media_ns = clocks.media_ns(track, timestamp, at_ms * 1_000_000);
        assert_eq!(media_ns, at_ms * 1_000_000, "{track} at {at_ms}");
    }
}

/// A backlog of a network comes at once, or at a multiple of the speed.
#[test]
fn a_backlog_keeps_its_times() {
    for (outage_ms, speed) in [
        (3_000, 2),
        (9_900, 3),
        (10_100, 3),
        (25_000, 3),
        (55_000, 50),
    ] {
        let found: Vec<_> = errors(300, |of| {
            let since_ms = of.at_ms - 20_000;
            let kept_ms = 20_000 + outage_ms + since_ms / speed;
            let comes_ms = if since_ms >= 0 { kept_ms } else { 0 };
            Some((of.at_ms, of.at_ms.max(comes_ms)))
        })
        .collect();
        keeps_times(&found, i64::MAX);
    }
}

/// Cameras keep what their buffer takes, and less of the picture than of the sound.
#[test]
fn a_backlog_with_a_gap_keeps_its_times() {
    for outage_ms in [9_900, 10_100, 30_000, 55_000] {
        for kept_ms in [[500, 60_000], [500, 500], [3_000, 100], [0, 60_000]] {
            let found: Vec<_> = errors(200, |of| {
                let since_ms = of.at_ms - 20_000;
                let is_kept = since_ms < kept_ms[of.track] || since_ms >= outage_ms;
                let is_held_up = (0..outage_ms).contains(&since_ms);
                let comes_ms = if is_held_up {
                    20_000 + outage_ms
                } else {
                    of.at_ms
                };
                is_kept.then_some((of.at_ms, comes_ms))
            })
            .collect();
            keeps_times(&found, i64::MAX);
        }
    }
}

/// The pause of a sender whose clock stopped with it is known ten seconds after it.
#[test]
fn a_paused_sender_is_later_by_the_pause() {
    for pause_ms in [12_000, 30_000, 3_600_000] {
        let found: Vec<_> = errors(90, |of| {
            let is_behind = of.at_ms >= 20_000;
            Some((of.at_ms, of.at_ms + if is_behind { pause_ms } else { 0 }))
        })
        .collect();
        let known_ms = 20_000 + pause_ms + 10_300;
        keeps_times(&found, known_ms - 300);
        let [picture, sound] = shifts_ms(&found, 20_000, known_ms + 300);
        assert_eq!(picture, sound, "{pause_ms}");
        assert!(
            (picture - pause_ms as f64).abs() < 300.0,
            "{pause_ms}: {picture}"
        );
    }
}

#[test]
fn a_stray_continues_by_arrival_and_changes_no_clock() {
    let mut clocks = Clocks::new([1_000].into_iter());
    let at = |seconds: u64| seconds * SECOND_NS;
    assert_eq!(clocks.media_ns(0, 0, at(5)), at(5));
    assert_eq!(clocks.media_ns(0, 9_000, at(6)), at(14));
    assert_eq!(clocks.media_ns_of_stray(0, 1 << 30, at(7)), at(15));
    assert_eq!(clocks.media_ns_of_stray(0, 12_000, at(7)), at(15));
    assert_eq!(clocks.media_ns_of_stray(1, 0, at(7)), at(7));
    assert_eq!(clocks.media_ns(0, 10_000, at(7)), at(15));
}

#[test]
fn a_restarted_track_continues_by_arrival() {
    let at = |seconds: u64| seconds * SECOND_NS;
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    assert_eq!(clocks.media_ns(0, 5_000, at(1)), at(1));
    assert_eq!(clocks.media_ns(1, 9_000, at(1)), at(1));
    clocks.restart_all();
    // Also with a timestamp that would fit the clock before.
    assert_eq!(clocks.media_ns(0, 5_500, at(4)), at(4));
    assert_eq!(clocks.media_ns(0, 6_500, at(4)), at(5));
    clocks.restart(1);
    assert_eq!(clocks.media_ns(1, 0, at(6)), at(6));
    assert_eq!(clocks.media_ns(0, 7_500, at(6)), at(6));
    // And if it was late before.
    assert_eq!(clocks.media_ns(0, 8_500, at(26)), at(7));
    clocks.restart(0);
    assert_eq!(clocks.media_ns(0, 0, at(26)), at(26));
    assert_eq!(clocks.media_ns(0, 24_000, at(50)), at(50));
    // Reports before the first packets align the tracks at once.
    clocks.restart_all();
    for (track, timestamp) in [(1, 7_000), (0, 500)] {
        let ntp = 1 << 32;
        clocks.synchronise(track, Report { ntp, timestamp });
    }
    assert_eq!(clocks.media_ns(1, 7_000, at(90)), at(90));
    assert_eq!(clocks.media_ns(0, 600, at(91)), at(90) + SECOND_NS / 10);
}

#[test]
fn sender_reports_align_tracks() {
    let mut clocks = Clocks::new([90_000, 48_000].into_iter());
    let report = |tenths: u64, timestamp| Report {
        ntp: (3_900_000_000 << 32) + (tenths << 32) / 10,
        timestamp,
    };
    assert_eq!(clocks.media_ns(0, 1_000, 0), 0);
    // Sound that belongs to the picture of 0.2 s arrives at 0.5 s.
    assert_eq!(clocks.media_ns(1, 77_000, SECOND_NS / 2), SECOND_NS / 2);
    clocks.synchronise(0, report(0, 1_000));
    clocks.synchronise(1, report(2, 77_000));
    let media = clocks.media_ns(1, 77_000, SECOND_NS / 2);
    assert!(media.abs_diff(SECOND_NS / 5) <= 1, "{media}");
    // Another report does not move an aligned track, nor is one of no track taken.
    clocks.synchronise(1, report(90, 77_000));
    clocks.synchronise(2, report(0, 0));
    assert_eq!(clocks.media_ns(1, 77_000, SECOND_NS / 2), media);
}

#[test]
fn the_report_after_a_shift_aligns_the_track_again() {
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    let report = |seconds: u64, timestamp| Report {
        ntp: seconds << 32,
        timestamp,
    };
    clocks.media_ns(0, 0, 0);
    clocks.media_ns(1, 0, 0);
    clocks.synchronise(0, report(9, 0));
    clocks.synchronise(1, report(9, 0));
    // The clock of one track is set, and the first packet after that is 300 ms late.
    let late_ns = SECOND_NS + 300_000_000;
    assert_eq!(clocks.media_ns(1, 5_000_000, late_ns), late_ns);
    clocks.synchronise(0, report(11, 2_000));
    // It is nonsense to be 30 s away.
    let mut wrong = clocks.clone();
    wrong.synchronise(1, report(41, 5_001_000));
    assert_eq!(wrong.media_ns(1, 5_000_000, late_ns), late_ns);
    clocks.synchronise(1, report(11, 5_001_000));
    assert_eq!(clocks.media_ns(1, 5_000_000, late_ns), SECOND_NS);
}

#[test]
fn stale_timestamp_moves_no_packet_after_the_next() {
    // In milliseconds: one packet is 15 s in the past.
    let sent = [
        (20_000, 100),
        (20_040, 140),
        (5_080, 180),
        (20_120, 220),
        (20_160, 260),
    ];
    assert_eq!(times(&sent), [100, 140, 180, 220, 260]);
}

#[test]
fn tracks_stay_together_in_a_pause_at_the_limit() {
    for pause_ms in [9_990, 10_020, 10_050, 10_100, 10_300] {
        let mut clocks = Clocks::new([1_000, 1_000].into_iter());
        let mut last_ms = [0; 2];
        for number in 0..1_500_u64 {
            let at_ms = 40 * number;
            let pause_ms = if at_ms > 20_000 { pause_ms } else { 0 };
            for track in 0..2 {
                // The picture has the larger jitter.
                let jitter_ms = (number * [37, 11][track]) % [120, 20][track];
                let arrival_ms = at_ms + pause_ms + jitter_ms;
                let media_ns = clocks.media_ns(track, at_ms as u32, arrival_ms * 1_000_000);
                last_ms[track] = media_ns / 1_000_000;
            }
        }
        assert!(
            last_ms[0].abs_diff(last_ms[1]) < 200,
            "{pause_ms}: {last_ms:?}"
        );
    }
}

#[test]
fn old_shift_of_another_track_is_not_taken_over() {
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    let (mut at_ms, mut paused_ms) = (0_u64, 0);
    for pause_ms in [15_000, 15_900, 15_900, 15_900] {
        paused_ms += pause_ms;
        for _ in 0..1_500 {
            at_ms += 40;
            let media = [0, 1]
                .map(|track| clocks.media_ns(track, at_ms as u32, (at_ms + paused_ms) * 1_000_000));
            if at_ms % 60_000 == 0 {
                // The first packet arrives after the first pause.
                assert_eq!(media, [(at_ms + paused_ms) * 1_000_000; 2], "{at_ms}");
            }
        }
    }
}
