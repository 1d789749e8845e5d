use super::*;

#[test]
fn quantities_are_parsed_exactly() {
    assert_eq!(parse_size("256KiB"), Ok(Bytes(262_144)));
    assert_eq!(parse_size(" 1.5 GiB "), Ok(Bytes(1_610_612_736)));
    assert_eq!(parse_size("8TB"), Ok(Bytes(8_000_000_000_000)));
    assert_eq!(parse_size("512"), Ok(Bytes(512)));
    assert_eq!(parse_size("18446744073709551615"), Ok(Bytes(u64::MAX)));
    assert_eq!(parse_position("0"), Ok(Bytes::ZERO));
    assert_eq!(parse_position("1TB"), Ok(Bytes(1_000_000_000_000)));
    assert_eq!(parse_seconds("5"), Ok(5));
    assert_eq!(parse_rate("1.2MB/s"), Ok(BytesPerSecond(1_200_000)));
    assert_eq!(parse_rate("3Mbit/s"), Ok(BytesPerSecond(375_000)));
    assert_eq!(parse_time("0.5s"), Ok(Nanos::from_millis(500)));
    assert_eq!(parse_share("2.5%"), Ok(0.025));
    assert_eq!(parse_share("0"), Ok(0.0));
}

#[test]
fn text_that_is_not_a_quantity_is_refused_with_the_reason() {
    assert!(matches!(parse_size(""), Err(QuantityError::Empty { .. })));
    assert!(matches!(parse_size("0"), Err(QuantityError::Zero)));
    assert!(matches!(parse_size("0.1B"), Err(QuantityError::Zero)));
    assert!(matches!(parse_size("-1GB"), Err(QuantityError::Negative)));
    assert!(matches!(parse_rate("-0MB/s"), Err(QuantityError::Negative)));
    assert!(matches!(
        parse_rate("NaN"),
        Err(QuantityError::NotANumber { .. })
    ));
    assert!(matches!(
        parse_rate("inf MB/s"),
        Err(QuantityError::NotANumber { .. })
    ));
    assert!(matches!(
        parse_rate("1.2.3MB/s"),
        Err(QuantityError::NotANumber { .. })
    ));
    assert!(matches!(
        parse_rate("1e9MB/s"),
        Err(QuantityError::Unit { .. })
    ));
    for rate in ["12", "0"] {
        assert!(matches!(
            parse_rate(rate),
            Err(QuantityError::NoUnit { .. })
        ));
    }
    assert!(matches!(parse_rate("0B/s"), Err(QuantityError::Zero)));
    assert!(matches!(parse_size("64K"), Err(QuantityError::Unit { .. })));
    assert!(matches!(
        parse_size("18446744073709551616"),
        Err(QuantityError::TooLarge { .. })
    ));
    assert!(matches!(
        parse_size("99999999999999999999999999999999999999999PB"),
        Err(QuantityError::TooLarge { .. })
    ));
    assert!(matches!(
        parse_size("340282366920938463463374607431768211455PiB"),
        Err(QuantityError::TooLarge { .. })
    ));
    assert!(matches!(parse_position("-1"), Err(QuantityError::Negative)));
    assert!(matches!(
        parse_position("18446744073709551616"),
        Err(QuantityError::TooLarge { .. })
    ));
    for seconds in ["0.3", "5s", "", "a"] {
        assert!(matches!(
            parse_seconds(seconds),
            Err(QuantityError::NotWhole { .. })
        ));
    }
    assert!(matches!(parse_seconds("0"), Err(QuantityError::Zero)));
    assert!(matches!(parse_seconds("-1"), Err(QuantityError::Negative)));
    assert!(matches!(
        parse_share("101%"),
        Err(QuantityError::TooLarge { .. })
    ));
}

#[test]
fn quantities_are_displayed_in_suitable_units() {
    assert_eq!(Size(Bytes(1023)).to_string(), "1023 B");
    assert_eq!(Size(Bytes::from_mib(64)).to_string(), "64 MiB");
    assert_eq!(Size(Bytes(8_000_000_000_000)).to_string(), "7.28 TiB");
    assert_eq!(Size(Bytes(u64::MAX)).to_string(), "16.00 EiB");
    assert_eq!(Rate(BytesPerSecond(1_200_000)).to_string(), "1.20 MB/s");
    assert_eq!(Span(Nanos(2_345_678)).to_string(), "2.3 ms");
}

#[test]
fn rate_rounded_down_is_parsed_as_it_is_displayed() {
    for rate in [
        0,
        7,
        999,
        1_000,
        4_751,
        723_160,
        999_999,
        14_115_432,
        14_119_999,
        u64::MAX / 3,
    ] {
        let rounded = Rate(BytesPerSecond(rate)).rounded_down();
        assert!(rounded.0.get() <= rate, "{rate}: {rounded}");
        if rate > 0 {
            assert_eq!(parse_rate(&rounded.to_string()), Ok(rounded.0), "{rate}");
        }
    }
    let shown = Rate(BytesPerSecond(14_119_999)).rounded_down().to_string();
    assert_eq!(shown, "14.11 MB/s");
}

#[test]
fn times_may_have_several_units() {
    let minutes = |count: u64| Ok(Nanos::from_secs(60 * count));
    for text in [
        "1h10m",
        "1h10min",
        " 1h 10 m ",
        "70min",
        "1H10M",
        "0d1h10m0s",
    ] {
        assert_eq!(parse_time(text), minutes(70), "{text}");
        assert_eq!(parse_moment(text), minutes(70), "{text}");
    }
    assert_eq!(parse_time("1d12h"), minutes(36 * 60));
    assert_eq!(parse_time("1m30s500ms"), Ok(Nanos::from_millis(90_500)));
    assert_eq!(parse_moment("0h0m"), Ok(Nanos::ZERO));
    assert_eq!(parse_time("0h0m"), Err(QuantityError::Zero));
    for text in ["10m1h", "1h1h", "1min1m"] {
        assert!(
            matches!(parse_time(text), Err(QuantityError::Order { .. })),
            "{text}"
        );
    }
    for text in ["10m", "1h-10m", "1h10x", "1e9s"] {
        assert!(
            matches!(parse_time(text), Err(QuantityError::Unit { .. })),
            "{text}"
        );
    }
    for text in ["1h10", "1h1.2.3m"] {
        assert!(parse_time(text).is_err(), "{text}");
    }
    assert!(matches!(
        parse_time("999999999999d1h"),
        Err(QuantityError::TooLarge { .. })
    ));
}
