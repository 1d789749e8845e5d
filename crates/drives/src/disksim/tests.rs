//! Files of drives that are made up here, right and wrong.

mod wrong;

use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use super::{Files, ImportError, Imported, import};
use crate::plant::{Plant, PlantSpec};

/// Files in memory.
pub(crate) struct Made(pub(crate) Vec<(&'static str, String)>);

impl Files for Made {
    fn names(&self) -> Result<Vec<String>, String> {
        Ok(self.0.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    fn read(&self, name: &str, _: usize) -> Result<Vec<u8>, String> {
        let found = self.0.iter().find(|(of, _)| *of == name);
        let (_, text) = found.ok_or_else(|| "there is no such file".to_owned())?;
        Ok(text.clone().into_bytes())
    }
}

const SYSTEM: &str = "
    disksim_bus BUS { type = 1, Arbitration type = 1, Arbitration time = 0.0,
        Read block transfer time = 0.02, Write block transfer time = 0.03, Print stats = 0 }
    disksim_ctlr CTLR { type = 1, Bulk sector transfer time = 0.0 }
    source drive.diskspecs
    instantiate [ bus0 ] as BUS
    instantiate [ ctlr0 .. ctlr1 ] as CTLR
    instantiate [ disk0 ] as MADE
    topology disksim_ctlr ctlr0 [ disksim_bus bus0 [ disksim_disk disk0 [] ] ]
";

const SPECS: &str = "
    # A drive that nobody built.
    disksim_disk MADE {
        Model = source drive.model,
        Scheduler = disksim_ioqueue { Scheduling policy = 1 },
        Max queue length = 1,
        Bulk sector transfer time = 0.01,
        Segment size (in blks) = 64,
        Number of buffer segments = 3,
        Print stats = 1,
        Per-request overhead time = 0.0,
        Time scale for overheads = 2.0,
        Hold bus entire read xfer = 0,
        Hold bus entire write xfer = 0,
        [ Allow almost read hits, Allow sneaky full read hits, Allow sneaky partial read hits,
          Allow sneaky intermediate read hits, Allow write prebuffering ] = 0,
        Allow read hits on write data = 1,
        Preseeking level = 0,
        Never disconnect = 0,
        Avg sectors per cylinder = 100,
        Maximum number of write segments = 1,
        Use separate write segment = 0,
        Low (write) water mark = 0.0,
        High (read) water mark = 0.5,
        Set watermark by reqsize = 1,
        Calc sector by sector = 1,
        Enable caching in buffer = 1,
        Buffer continuous read = 3,
        Minimum read-ahead (blks) = 0,
        Maximum read-ahead (blks) = 32,
        Read-ahead over requested = 1,
        Read-ahead on idle hit = 0,
        Read any free blocks = 0,
        Fast write level = 1,
        Immediate buffer read = 0,
        Immediate buffer write = 0,
        Combine seq writes = 1,
        Stop prefetch in sector = 0,
        Disconnect write if seek = 0,
        Write hit stop prefetch = 1,
        Read directly to buffer = 1,
        Immed transfer partial hit = 1,
        Read hit over. after read = 0.1,
        Read hit over. after write = 0.2,
        Read miss over. after read = 0.3,
        Read miss over. after write = 0.4,
        Write hit over. after read = 0.5,
        Write hit over. after write = 0.6,
        Write miss over. after read = 0.7,
        Write miss over. after write = 0.8,
        Read completion overhead = 0.05,
        Write completion overhead = 0.06,
        Data preparation overhead = 0.0,
        First reselect overhead = 0.0,
        Other reselect overhead = 0.0,
        Read disconnect afterread = 0.0,
        Read disconnect afterwrite = 0.0,
        Write disconnect overhead = 0.0,
        Extra write disconnect = 0,
        Extradisc command overhead = 0.0,
        Extradisc disconnect overhead = 0.0,
        Extradisc inter-disconnect delay = 0.0,
        Extradisc 2nd disconnect overhead = 0.0,
        Extradisc seek delta = 0.0,
        Minimum seek delay = 0.0
    }
";

const MODEL: &str = "
    dm_disk MADE_model {
        Number of data surfaces = 2,
        Number of cylinders = 300,
        Block count = 0,
        Layout Model = dm_layout_g1 {
            LBN-to-PBN mapping scheme = 0, Sparing scheme used = 0, Rangesize for sparing = 1,
            Zones = [ dm_layout_g1_zone {
                First cylinder number = 0, Last cylinder number = 199, Blocks per track = 60,
                Offset of first block = 0.0, Empty space at zone front = 0,
                Skew for track switch = 8.0, Skew for cylinder switch = 12.0,
                Number of spares = 0, slips = [], defects = []
            }, dm_layout_g1_zone {
                First cylinder number = 200, Last cylinder number = 299, Blocks per track = 50,
                Offset of first block = 3, Empty space at zone front = 0,
                Skew for track switch = 7, Skew for cylinder switch = 10,
                Number of spares = 0, slips = [], defects = []
            } ]
        },
        Mechanical Model = dm_mech_g1 {
            Access time type = trackSwitchPlusRotation,
            Seek type = linear,
            Single cylinder seek time = 1.0, Average seek time = 5.0, Full strobe seek time = 9.0,
            Add. write settling delay = 0.5, Head switch time = 0.8,
            Rotation speed (in rpms) = 6000, Percent error in rpms = 0.0
        }
    }
";

fn files(change: impl Fn(&str) -> String) -> Made {
    Made(vec![
        ("drive.parv", change(SYSTEM)),
        ("drive.diskspecs", change(SPECS)),
        ("drive.model", change(MODEL)),
    ])
}

fn made(change: impl Fn(&str) -> String) -> Result<Imported, ImportError> {
    import(&files(change), None)
}

fn changed(from: &str, to: &str) -> Result<Imported, ImportError> {
    let all = [SYSTEM, SPECS, MODEL];
    assert!(
        all.iter().any(|text| text.contains(from)),
        "{from} is in a file"
    );
    made(|text| text.replacen(from, to, 1))
}

#[test]
fn a_drive_comes_out_as_it_was_described_and_survives_its_own_file() {
    let imported = made(str::to_owned).unwrap();
    assert_eq!(PlantSpec::parse(&imported.toml).unwrap(), imported.spec);
    let spec = &imported.spec;
    assert_eq!(spec.name(), "MADE");
    assert_eq!(spec.sectors(), SectorCount(200 * 2 * 60 + 100 * 2 * 50));
    assert_eq!(spec.rotation(), Nanos(10_000_000));
    // The slowest of bus, drive and controller.
    assert_eq!(spec.bus_sector(Op::Read), Nanos(20_000));
    assert_eq!(spec.bus_sector(Op::Write), Nanos(30_000));
    let mut plant = Plant::new(imported.spec.clone(), 1);
    let zones = plant.zones();
    assert_eq!(zones.len(), 2);
    assert_eq!(zones[1].first_sector, Sector(24_000));
    assert!(zones[0].head_skew.get().abs_diff(1_333_333) <= 1);
    assert!(zones[0].cylinder_skew.get().abs_diff(2_000_000) <= 1);
    assert_eq!(plant.seek_max(1), Nanos(1_000_000));
    assert!(plant.seek_max(99).get().abs_diff(5_000_000) < 100_000);
    assert!(plant.seek_max(299).get().abs_diff(9_000_000) < 100_000);
    // A hit: overhead doubled by the time scale, the bus, and the completion.
    let first = plant.service(Time(0), Op::Read, Sector(0), SectorCount(4));
    let again = plant.service(
        first.completed + Nanos(50_000_000),
        Op::Read,
        Sector(0),
        SectorCount(4),
    );
    assert_eq!(
        again.completed - again.begun,
        Nanos(200_000 + 4 * 20_000 + 100_000)
    );
}

#[test]
fn every_kind_of_seek_gives_the_times_of_its_formula() {
    let seek = |parameters: &str, distance| {
        let spec = changed("Seek type = linear,", parameters).unwrap().spec;
        Plant::new(spec, 1).seek_max(distance).get() as f64 / 1e6
    };
    assert!((seek("Seek type = constant, Constant seek time = 2.5,", 100) - 2.5).abs() < 1e-6);
    // Lee's curve passes through its three points: the average is that of all pairs of cylinders.
    assert!((seek("Seek type = curve,", 1) - 1.0).abs() < 1e-3);
    assert!((seek("Seek type = curve,", 299) - 9.0).abs() < 0.1);
    let hpl = "HPL seek equation values = [ 100, 2.0, 0.2, 3.0, 0.01, 1.5 ],";
    assert!((seek(&format!("Seek type = hpl, {hpl}"), 1) - 1.5).abs() < 1e-6);
    assert!((seek(&format!("Seek type = hpl, {hpl}"), 81) - 3.8).abs() < 0.01);
    assert!((seek(&format!("Seek type = hpl, {hpl}"), 250) - 5.5).abs() < 1e-3);
    let ten = "First ten seek times = [ 1, 2, 3, 4, 5, 6, 7, 8, 9, 9.5 ],";
    assert!((seek(&format!("Seek type = hplplus10, {hpl} {ten}"), 7) - 7.0).abs() < 1e-6);
    assert!((seek(&format!("Seek type = hplplus10, {hpl} {ten}"), 16) - 2.8).abs() < 0.01);
    let mut parts = files(|text| {
        text.replace(
            "Seek type = linear,",
            "Seek type = extracted, Full seek curve = drive.seek,",
        )
    });
    parts.0.push((
        "drive.seek",
        "Seek distances measured: 2\n1,\t1.25\n101, 3.25, 0.1\n".into(),
    ));
    let plant = Plant::new(import(&parts, None).unwrap().spec, 1);
    assert_eq!(plant.seek_max(51), Nanos(2_250_000));
    assert_eq!(plant.seek_max(201), Nanos(5_250_000));
    parts.0[3].1 = "1, fast\n".into();
    assert!(
        import(&parts, None)
            .unwrap_err()
            .to_string()
            .starts_with("drive.seek:1")
    );
}

#[test]
fn maps_and_patterns_give_the_same_places_as_the_zones_they_describe() {
    let zones = Plant::new(made(str::to_owned).unwrap().spec, 1);
    // The map that lists each track of the zones.
    let mut map = String::from("vendor\nmodel\n300 cylinders, 6000 rot, 2 heads\n");
    let mut sector = 0;
    for cylinder in 0..300 {
        let spt = if cylinder < 200 { 60 } else { 50 };
        for head in 0..2 {
            map += &format!(
                "lbn {sector} --> cyl {cylinder}, head {head}, sect 0, seqcnt {}\n",
                spt - 1
            );
            sector += spt;
        }
    }
    let layout = MODEL.find("dm_layout_g1 {").unwrap()..MODEL.find("Mechanical").unwrap();
    let with = |text: &str| {
        let mut parts = files(str::to_owned);
        parts.0[2]
            .1
            .replace_range(layout.clone(), &format!("{text},\n"));
        parts.0.push(("drive.map", map.clone()));
        Plant::new(import(&parts, None).unwrap().spec, 1)
    };
    let mapped = with(
        "dm_layout_g2 { Layout Map File = drive.map, Zones = [
            dm_layout_g2_zone { First cylinder number = 0, Last cylinder number = 199, First LBN = 0,
                Last LBN = 23999, Blocks per track = 60, Zone Skew = 0.0,
                Skew for track switch = 8.0, Skew for cylinder switch = 4.0 },
            dm_layout_g2_zone { First cylinder number = 200, Last cylinder number = 299, First LBN = 24000,
                Last LBN = 33999, Blocks per track = 50, Zone Skew = 3.0,
                Skew for track switch = 7.0, Skew for cylinder switch = 3.0 } ] }",
    );
    // A cylinder of two tracks, repeated: 8 / 60 of a revolution between tracks, 20 / 60 between cylinders.
    let patterns = with(
        "dm_layout_g4 { TP = [ 0, 59, 60, 0, 49, 50 ], Slips = [], Remaps = [], IDX = [
            [ 0, 0, 0.0, 60, 1, 0.0, 60, 1, TRACK, 0, 0, 60, 0, 0.133333333, 60, 1, 0.0, 60, 1, TRACK, 0, 1 ],
            [ 0, 0, 0.0, 50, 1, 0.0, 50, 1, TRACK, 1, 0, 50, 0, 0.14, 50, 1, 0.0, 50, 1, TRACK, 1, 1 ],
            [ 0, 0, 0.0, 120, 1, 0.333333333, 24000, 200, IDX, 0,
              24000, 200, 0.06, 100, 1, 0.34, 10000, 100, IDX, 1 ] ] }",
    );
    for sector in (0..34_000).step_by(37) {
        let truth = zones.locate(Sector(sector));
        let close = |angle: Nanos| {
            let apart = angle.get().abs_diff(truth.angle.get());
            apart.min(10_000_000 - apart) < 1_000
        };
        let by_map = mapped.locate(Sector(sector));
        let by_pattern = patterns.locate(Sector(sector));
        for other in [by_map, by_pattern] {
            assert_eq!(
                (other.cylinder, other.head),
                (truth.cylinder, truth.head),
                "{sector}"
            );
        }
        // In the map, a change of cylinder turns by both skews: 4 + 8 sectors are the 12 of the zones.
        assert!(close(by_map.angle), "{sector}: {by_map:?} {truth:?}");
        assert!(
            close(by_pattern.angle),
            "{sector}: {by_pattern:?} {truth:?}"
        );
    }
    assert_eq!(patterns.zones().len(), 2);
    assert_eq!(mapped.zones().len(), 2);
}
