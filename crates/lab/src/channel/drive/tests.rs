use super::*;

const UNIT: Bytes = Bytes(128 << 10);

#[test]
fn drives_of_the_paper_have_the_numbers_of_its_table() {
    // Mean seek in us, and the rates of the outermost and innermost track in 100 kB/s.
    for (name, seek, rates) in [
        ("hp-c2247", 10_500, [53, 31]),
        ("ibm-dfhs", 8_000, [126, 96]),
    ] {
        let drive = Drive::built_in(name).expect("it comes with the program");
        let mean = drive.mean_seek().get() / 1_000;
        assert!(mean.abs_diff(seek) <= 10, "{name}: {mean} us");
        let rate = |zone: Option<&(u32, u32)>| {
            let sectors = u64::from(zone.expect("it has zones").1);
            (sectors * SECTOR_BYTES * 10_000 + drive.rotation.get() / 2) / drive.rotation.get()
        };
        assert_eq!(
            [rate(drive.zones.first()), rate(drive.zones.last())],
            rates,
            "{name}"
        );
    }
}

#[test]
fn stripe_units_fill_a_drive_and_follow_each_other() {
    for name in Drive::names() {
        let drive = Drive::built_in(name).expect("it comes with the program");
        let places = drive.places(UNIT);
        assert_eq!(
            places.len() as u64,
            drive.capacity().get() / UNIT.get(),
            "{name}"
        );
        assert!(
            places
                .windows(2)
                .all(|pair| pair[0].end_cylinder <= pair[1].cylinder)
        );
        assert!(
            places
                .iter()
                .all(|place| place.end_cylinder < drive.cylinders())
        );
    }
}

/// Two units that follow each other are read without a pause, but for less than three sectors of rounding.
#[test]
fn the_next_unit_follows_without_a_rotation() {
    let drive = Drive::built_in("cheetah-4lp").expect("it comes with the program");
    let places = drive.places(UNIT);
    let spindle = Nanos(1_234_567);
    for pair in places
        .windows(2)
        .filter(|pair| pair[0].end_cylinder == pair[1].cylinder)
    {
        let one = drive.read(Time(7), 0, spindle, &pair[0]);
        let two = drive.read(one + Nanos(9), pair[0].end_cylinder, spindle, &pair[1]);
        let pause = (two - one).get() - pair[1].media.get();
        let skews = drive.track_skew.max(drive.cylinder_skew).get();
        let is_near = pause <= skews + 100_000 || pause + 100_000 >= drive.rotation.get();
        assert!(is_near, "{pause} ns");
    }
}

#[test]
fn a_read_waits_less_than_a_rotation() {
    let drive = Drive::built_in("hp-c2247").expect("it comes with the program");
    for (number, place) in drive.places(UNIT).iter().enumerate() {
        let start = Time(number as u64 * 1_000_003);
        let end = drive.read(start, 1_000, Nanos(77), place);
        let reached = start + drive.seek(1_000_u32.abs_diff(place.cylinder));
        let first = Time(end.get() - place.media.get());
        assert!(first.saturating_since(reached) < drive.rotation);
        let angle = (first.get() + 77) % drive.rotation.get();
        assert_eq!(angle, place.angle.get());
    }
}

#[test]
fn faults_of_a_drive_file_have_their_place() {
    let text = include_str!("../../../drives/hp-c2247.toml");
    for (from, to, at, problem) in [
        ("rpm = 5400", "rpm = 0", "0", "`rpm` is 0"),
        ("heads = 13", "heads = 0", "0", "`heads` is 0"),
        ("segments = 4", "segments = 17", "17", "`segments` is 17"),
        ("[2050, ", "[205, ", "[\n", "distances must rise"),
        (
            "[800, 1000]",
            "[800, 100]",
            "[800, 100]",
            "`buffered_read_us`",
        ),
        (
            "cylinders = 559",
            "cylinders = 5590",
            "[\n",
            "7082 cylinders",
        ),
        ("heads = 13", "head = 13", "head", "unknown field `head`"),
    ] {
        let text = text.replacen(from, to, 1);
        let error = Drive::parse(&text).expect_err("it has a fault");
        assert!(error.problem.contains(problem), "{}", error.problem);
        assert!(
            text[error.span.clone()].starts_with(at),
            "{:?}",
            &text[error.span]
        );
    }
}
