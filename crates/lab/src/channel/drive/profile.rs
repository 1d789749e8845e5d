//! The drive as the server's scheduler and the plants of `drives` see it. Data goes no further than the drive's buffer, at no
//! cost.

use std::fmt::Write as _;

use drives::plant::PlantSpec;
use sched::profile::{DriveKind, DriveProfile, ProfileSpec, RotatingSpec, SeekPoint, ZoneSpec};
use sched::units::{Nanos, SECTOR_BYTES};

use super::Drive;

/// Data into the buffer takes no time beside that of the media.
const BUFFER_BYTES_PER_SECOND: u64 = 1 << 40;

fn us_up(time: Nanos) -> u64 {
    time.get().div_ceil(1_000)
}

impl Drive {
    /// Upper bounds of its times.
    ///
    /// # Panics
    /// For a drive on which the next cylinder is reached sooner than the next head.
    #[must_use]
    pub fn profile(&self) -> DriveProfile {
        let mut first_cylinder = 0;
        let zone = |&(cylinders, sectors): &(u32, u32)| {
            let first = first_cylinder;
            first_cylinder += u64::from(cylinders);
            ZoneSpec {
                first_cylinder: first,
                cylinders: cylinders.into(),
                heads: self.heads.into(),
                sectors_per_track: sectors.into(),
            }
        };
        let zones = self.zones.iter().map(zone).collect();
        let spec = ProfileSpec {
            name: self.name.clone(),
            kind: DriveKind::Rotating,
            measured: false,
            sources: Vec::new(),
            outstanding: 1,
            capacity_sectors: self.capacity().get() / SECTOR_BYTES,
            physical_sector_bytes: SECTOR_BYTES as u32,
            widened_percent: 0,
            trust_worst_case: false,
            measurement: None,
            rotating: Some(RotatingSpec {
                rotation_us: us_up(self.rotation),
                command_overhead_us: us_up(self.command),
                head_switch_us: us_up(self.track_skew),
                cylinder_switch_us: us_up(self.cylinder_skew),
                write_settle_us: 0,
                bus_bytes_per_second: BUFFER_BYTES_PER_SECOND,
                write_bus_bytes_per_second: None,
                exact_tracks: true,
                track_reads: false,
                track_writes_tail: false,
                retry_rotations: 0,
                zones,
                seek: self.seek_bounds(),
            }),
            flat: None,
            worst_case: Vec::new(),
        };
        DriveProfile::new(spec).expect("a checked drive has a profile")
    }

    /// A bound for each distance that falls nowhere. To stay on the cylinder takes a head switch.
    fn seek_bounds(&self) -> Vec<SeekPoint> {
        let mut most = us_up(self.track_skew);
        let bound = |(distance, seek): (usize, &Nanos)| {
            most = us_up(*seek).max(most);
            SeekPoint {
                cylinders: distance as u64,
                us: most,
            }
        };
        self.seeks.iter().enumerate().map(bound).collect()
    }

    /// The same drive as a plant that reads in order.
    ///
    /// # Panics
    /// For a drive that is no plant: with switches of half a rotation.
    #[must_use]
    pub fn plant(&self) -> PlantSpec {
        let us = |time: Nanos| time.get() / 1_000;
        let mut text = format!(
            "name = \"{}\"\ndescription = \"\"\nsectors = {}\nphysical_sector_sectors = 1\nseek_included_overhead_us = 0\n\
             [mechanics]\nrotation_ns = {}\nphase_ns = 0\nheads = {}\nhead_switch_us = {}\ncylinder_switch_us = {}\n\
             [read]\noverhead_us_min = 0\noverhead_us_max = {}\nbus_sector_ns = 1\n[read.policy]\nkind = \"streaming\"\n\
             [write]\noverhead_us = 0\nsetup_us_max = 0\nsettle_us = 0\nbus_sector_ns = 1\n\
             partial_tail_takes_rotation = false\n",
            self.name,
            self.capacity().get() / SECTOR_BYTES,
            self.rotation.get(),
            self.heads,
            us(self.track_skew),
            us(self.cylinder_skew),
            us(self.command)
        );
        // Writing to a string does not fail.
        for (distance, seek) in self.seeks.iter().enumerate().skip(1) {
            let us = us(*seek);
            let _ = writeln!(
                text,
                "[[seek]]\ndistance_cylinders = {distance}\nmin_us = {us}\nmean_us = {us}\nmax_us = {us}"
            );
        }
        for (cylinders, sectors) in &self.zones {
            let _ = writeln!(
                text,
                "[[zone]]\ncylinders = {cylinders}\nsectors_per_track = {sectors}"
            );
        }
        PlantSpec::parse(&text).expect("a checked drive is a plant")
    }
}

#[cfg(test)]
mod tests {
    use drives::plant::Plant;
    use sched::predict::Predictor;
    use sched::request::Op;
    use sched::units::{Bytes, Sector, SectorCount, Time};
    use testkit::Random;

    use super::*;

    /// Reads of the plant, also of other heads of the same cylinder.
    #[test]
    fn no_read_of_the_plant_takes_longer_than_the_profile_says() {
        let mut random = Random(testkit::seed("reads of plants", None));
        for name in Drive::names() {
            let drive = Drive::built_in(name).expect("it comes with the program");
            let predictor = Predictor::new(&drive.profile());
            let mut plant = Plant::new(drive.plant(), random.below(1 << 40));
            let sectors = predictor.capacity().get();
            let (mut now, mut head) = (Time::ZERO, 0);
            for number in 0..40_000 {
                let count = [8, 32, 128, 2048][random.below(4) as usize];
                let from = if number % 8 == 0 {
                    random.below(sectors)
                } else {
                    (head + random.below(2_000)).saturating_sub(1_000)
                };
                let start = from.min(sectors - count);
                let (place, count) = (Sector(start), SectorCount(count));
                let bound = predictor.predict(Some(Sector(head)), Op::Read, place, count);
                let end = plant.service(now, Op::Read, place, count).completed;
                assert!(end - now <= bound, "{name}: {} > {bound}", end - now);
                head = start + count.get() - 1;
                now = end + Nanos(random.below(20_000_000));
            }
        }
    }

    /// Reads of stripe units from anywhere, against the bound from there and the bound from anywhere.
    #[test]
    fn no_read_takes_longer_than_the_profile_says() {
        let mut random = Random(testkit::seed("reads of drives", None));
        let unit = Bytes::from_kib(128);
        let sectors = SectorCount(unit.get() / SECTOR_BYTES);
        for name in Drive::names() {
            let drive = Drive::built_in(name).expect("it comes with the program");
            let predictor = Predictor::new(&drive.profile());
            let places = drive.places(unit);
            let anywhere = Sector(0)..Sector(predictor.capacity().get());
            let worst = predictor.worst_case(anywhere, Op::Read, sectors);
            let (mut head, mut arm, mut longest) = (Sector(0), 0, Nanos::ZERO);
            for _ in 0..20_000 {
                let number = random.below(places.len() as u64);
                let place = &places[number as usize];
                let start = Sector(number * sectors.get());
                assert_eq!(
                    predictor.cylinder(start),
                    u64::from(place.cylinder),
                    "{name}"
                );
                let begun = Time(random.below(1 << 40));
                let took = drive.read(begun, arm, Nanos::ZERO, place) - begun + drive.command();
                let bound = predictor.predict(Some(head), Op::Read, start, sectors);
                assert!(
                    took <= bound && bound <= worst,
                    "{name}: {took} {bound} {worst}"
                );
                longest = longest.max(took);
                head = Sector((start + sectors).get() - 1);
                arm = place.end_cylinder;
            }
            assert!(
                longest.get() * 10 > worst.get() * 7,
                "{name}: {longest} of {worst}"
            );
        }
    }
}
