mod simulated;

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

/// Packets of several tracks come: each one's track, its timestamp, and when in milliseconds.
fn come(clocks: &mut Clocks, packets: &[(usize, u32, u64)]) {
    for &(track, at, arrival_ms) in packets {
        clocks.media_ns(track, at, arrival_ms * 1_000_000);
    }
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
    come(&mut clocks, &[(0, 0, 0), (1, 0, 0), (0, 12_040, 1)]);
    clocks.synchronise(0, report(120, 12_000));
    come(&mut clocks, &[(0, 12_080, 12_040), (1, 12_000, 12_050)]);
    clocks.synchronise(0, report(120, 12_000));
    clocks.synchronise(1, report(120, 11_900));
    let media_ms = |of: u64| (of + 500_000) / 1_000_000;
    let picture = media_ms(clocks.media_ns(0, 12_120, 12_100_000_000));
    let sound = media_ms(clocks.media_ns(1, 12_020, 12_100_000_000));
    assert_eq!((picture, sound), (12_120, 12_120));
    // Or moved on: of a sender that may have stood.
    let mut clocks = Clocks::new([1_000, 1_000].into_iter());
    come(
        &mut clocks,
        &[(0, 0, 0), (1, 200, 0), (0, 40, 12_040), (1, 240, 12_040)],
    );
    clocks.synchronise(0, report(1, 100));
    come(&mut clocks, &[(0, 10_040, 22_040), (1, 10_240, 22_040)]);
    clocks.synchronise(0, report(102, 10_200));
    clocks.synchronise(1, report(102, 10_200));
    let picture = media_ms(clocks.media_ns(0, 10_240, 22_240_000_000));
    let sound = media_ms(clocks.media_ns(1, 10_240, 22_240_000_000));
    assert_eq!((picture, sound), (22_240, 22_240));
}
