//! The simulated Quantum Atlas-II measured the way the thesis measured the real one, side by side.
//!
//! Every figure that the thesis states of the drive (sections 4.2, 4.3.1-4.3.5, 6.5, 7.2.3; tables
//! 4.1 and 6.4) is a [`Point`]. `docs/results/atlas-ii.md` is written from them, and a test keeps
//! each within its tolerance. Requests are issued at evenly spread angles with the arm in place, as the
//! raw measurements were ("a single disk area"); the luck of overheads is drawn with a fixed seed.

use std::fmt::Write as _;

use sched::request::Op;
use sched::units::{Nanos, SectorCount, Time};

use drives::plant::{Plant, PlantSpec};

/// Requests for each figure.
const SAMPLES: u64 = 4_000;
/// A step through the rotation that visits its angles evenly (an odd multiple of the golden ratio).
const ANGLE_STEP_NS: u64 = 5_150_283;
const SEED: u64 = 1_999;

/// A figure of the thesis beside the simulated one.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The measured quantity.
    pub what: String,
    /// Stated value, in milliseconds.
    pub stated_ms: f64,
    /// Simulated value, in milliseconds.
    pub simulated_ms: f64,
    /// Largest allowed difference, in milliseconds. `None`: reported only, see the text.
    pub tolerance_ms: Option<f64>,
}

impl Point {
    /// Simulated less stated.
    #[must_use]
    pub fn error_ms(&self) -> f64 {
        self.simulated_ms - self.stated_ms
    }

    /// True if it is within its tolerance; `None` without one.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.tolerance_ms
            .is_none_or(|tolerance| self.error_ms().abs() <= tolerance)
    }
}

/// Points of one kind, with a heading.
#[derive(Clone, PartialEq, Debug)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// Remarks.
    pub text: &'static str,
    /// The figures.
    pub points: Vec<Point>,
}

/// Simulated service times, sorted.
struct Times(Vec<Nanos>);

impl Times {
    fn min_ms(&self) -> f64 {
        self.0[0].as_millis_f64()
    }
    fn max_ms(&self) -> f64 {
        self.0[self.0.len() - 1].as_millis_f64()
    }
    fn mean_ms(&self) -> f64 {
        self.0.iter().copied().sum::<Nanos>().as_millis_f64() / self.0.len() as f64
    }
    fn percentile_ms(&self, percent: usize) -> f64 {
        self.0[self.0.len() * percent / 100].as_millis_f64()
    }
}

fn drive() -> Plant {
    let spec = PlantSpec::built_in("quantum-atlas-ii").expect("it is part of the library");
    Plant::new(spec, SEED)
}

/// Requests of `count` sectors from the start of tracks spread over the zone; of up to two tracks,
/// under the first head, so that none crosses to the next cylinder.
fn raw(plant: &mut Plant, zone: usize, op: Op, count: u64) -> Times {
    let heads = plant.spec().heads();
    let zone = plant.zones()[zone];
    let track_sectors = zone.sectors_per_track;
    let cylinders = zone.cylinders - count.div_ceil(track_sectors * heads) - 1;
    let mut times: Vec<Nanos> = (0..SAMPLES)
        .map(|i| {
            let cylinder = i * 37 % cylinders;
            let head = if count <= 2 * track_sectors {
                0
            } else {
                i % heads
            };
            let start = zone.first_sector + SectorCount((cylinder * heads + head) * track_sectors);
            plant.place(start);
            let now = Time(plant.busy_until().get() + i * ANGLE_STEP_NS % 8_333_333);
            plant
                .service(now, op, start, SectorCount(count))
                .breakdown
                .total()
        })
        .collect();
    times.sort_unstable();
    Times(times)
}

/// Seek commands over `distance` cylinders: the arm's time, and what of the command was measured with it.
fn seeks(plant: &mut Plant, distance: u64) -> Times {
    let included = plant.spec().seek_included_overhead();
    let at = |plant: &Plant, cylinder: u64| {
        let zones = plant.zones();
        let zone = zones[zones.partition_point(|zone| zone.first_cylinder <= cylinder) - 1];
        let tracks = (cylinder - zone.first_cylinder) * plant.spec().heads();
        zone.first_sector + SectorCount(tracks * zone.sectors_per_track)
    };
    let (from, to) = (at(plant, 0), at(plant, distance));
    let mut times: Vec<Nanos> = (0..SAMPLES)
        .map(|_| {
            plant.place(from);
            let served = plant.service(plant.busy_until(), Op::Read, to, SectorCount(1));
            served.breakdown.seek + included
        })
        .collect();
    times.sort_unstable();
    Times(times)
}

fn point(what: impl Into<String>, stated_ms: f64, simulated_ms: f64, tolerance_ms: f64) -> Point {
    Point {
        what: what.into(),
        stated_ms,
        simulated_ms,
        tolerance_ms: Some(tolerance_ms),
    }
}

fn seek_points(plant: &mut Plant) -> Vec<Point> {
    let one = seeks(plant, 1);
    let full = seeks(plant, 5811);
    let bend = seeks(plant, 1500);
    let mut points = vec![
        point("one cylinder, fastest", 1.4, one.min_ms(), 0.1),
        point("one cylinder, mean", 1.9, one.mean_ms(), 0.1),
        point("one cylinder, slowest", 3.2, one.max_ms(), 0.1),
        point("full stroke, slowest", 17.8, full.max_ms(), 0.1),
        point(
            "1,500 cylinders, slowest (2 d + 6.1)",
            9.1,
            bend.max_ms(),
            0.3,
        ),
    ];
    for distance in [500, 1_500, 3_000, 5_811] {
        let times = seeks(plant, distance);
        let spread = times.max_ms() - times.min_ms();
        points.push(point(
            format!("{distance} cylinders, slowest less fastest (1.5-2.0)"),
            1.75,
            spread,
            0.25,
        ));
    }
    points
}

/// Requests of one size in zone 0: sectors, fastest and slowest in ms.
const READ_RANGES: [(u64, f64, f64); 4] = [
    (2, 2.0, 11.1),
    (179, 15.0, 20.9),
    (180, 15.1, 21.0),
    (358, 27.4, 29.5),
];
const WRITE_RANGES: [(u64, f64, f64); 2] = [(2, 1.0, 10.8), (179, 10.3, 18.7)];

fn range_points(plant: &mut Plant, op: Op, ranges: &[(u64, f64, f64)]) -> Vec<Point> {
    let mut points = Vec::new();
    for &(sectors, fastest, slowest) in ranges {
        let times = raw(plant, 0, op, sectors);
        points.push(point(
            format!("{sectors} sectors, fastest"),
            fastest,
            times.min_ms(),
            0.3,
        ));
        points.push(point(
            format!("{sectors} sectors, slowest"),
            slowest,
            times.max_ms(),
            0.3,
        ));
    }
    points
}

fn megabyte_points(plant: &mut Plant) -> Vec<Point> {
    [(0, 116.0), (11, 184.0)]
        .into_iter()
        .map(|(zone, stated)| {
            let mean = raw(plant, zone, Op::Read, 2048).mean_ms();
            point(format!("zone {zone}, mean"), stated, mean, stated * 0.03)
        })
        .collect()
}

fn write_points(plant: &mut Plant) -> Vec<Point> {
    let rotation = plant.spec().rotation().as_millis_f64();
    let ten = raw(plant, 0, Op::Write, 1790).mean_ms();
    let ten_and_one = raw(plant, 0, Op::Write, 1791).mean_ms();
    let eleven = raw(plant, 0, Op::Write, 1969).mean_ms();
    let megabyte = raw(plant, 0, Op::Write, 2048);
    let reported = |what: &str, stated_ms, simulated_ms| Point {
        what: what.into(),
        stated_ms,
        simulated_ms,
        tolerance_ms: None,
    };
    vec![
        reported("10 tracks, mean (11 rotations)", 11.0 * rotation, ten),
        reported("11 tracks, mean (12 rotations)", 12.0 * rotation, eleven),
        point(
            "10 tracks and a sector, more than 10 tracks",
            rotation,
            ten_and_one - ten,
            1.0,
        ),
        point(
            "1 MB, fastest of most",
            111.0,
            megabyte.percentile_ms(5),
            3.0,
        ),
        point(
            "1 MB, slowest of most",
            120.0,
            megabyte.percentile_ms(95),
            3.0,
        ),
    ]
}

/// Table 6.4 in ms: 128 KB, 256 KB, 512 KB, 1 MB for each zone.
const WORST_MS: [[u32; 4]; 12] = [
    [42, 55, 81, 134],
    [42, 55, 83, 140],
    [42, 58, 85, 143],
    [42, 57, 86, 146],
    [42, 62, 89, 145],
    [42, 63, 89, 152],
    [42, 63, 89, 154],
    [43, 63, 95, 163],
    [44, 63, 99, 173],
    [50, 65, 102, 178],
    [50, 67, 107, 189],
    [50, 69, 114, 204],
];
const LONGEST_SEEK_MS: f64 = 17.8;

fn worst_points(plant: &mut Plant) -> Vec<Point> {
    let mut points = Vec::new();
    for (zone, row) in WORST_MS.iter().enumerate() {
        for (kib, &stated) in [128, 256, 512, 1024].into_iter().zip(row) {
            let p95 = raw(plant, zone, Op::Read, kib * 2).percentile_ms(95);
            let stated_ms = f64::from(stated);
            points.push(Point {
                what: format!("zone {zone}, {kib} KB"),
                stated_ms,
                simulated_ms: p95 + LONGEST_SEEK_MS,
                tolerance_ms: (kib == 1024).then_some(stated_ms * 0.04),
            });
        }
    }
    points
}

/// Measures everything.
#[must_use]
pub fn measure() -> Vec<Section> {
    let plant = &mut drive();
    vec![
        Section {
            title: "Seeks (4.3.2)",
            text: "Seek commands, of which 1.0 ms is not the arm but the command; the plant adds the \
                   overhead of the request instead of it.",
            points: seek_points(plant),
        },
        Section {
            title: "Reads in zone 0, caches off (4.3.4)",
            text: "Requests that begin with a track, the arm in place, any angle.",
            points: range_points(plant, Op::Read, &READ_RANGES),
        },
        Section {
            title: "Reading a megabyte (6.5)",
            text: "2,048 sectors from the start of a track.",
            points: megabyte_points(plant),
        },
        Section {
            title: "Writes in zone 0, caches off (4.3.5)",
            text: "Requests that begin with a track, the arm in place, any angle.",
            points: range_points(plant, Op::Write, &WRITE_RANGES),
        },
        Section {
            title: "Long writes in zone 0 over Fast SCSI-2 (7.2.3)",
            text: "Rotations are counted without switches in the thesis, so the first two are only \
                   reported. \"Most\" is taken as all but 5 % at either end.",
            points: write_points(plant),
        },
        Section {
            title: "Worst case service times (table 6.4)",
            text: "Stated: the 95th percentile \"or higher\" of raw reads plus the longest seek, 17.8 ms. \
                   Simulated: the 95th percentile plus 17.8 ms. Only the megabytes are held to a \
                   tolerance, 4 %: nobody knows how much higher.",
            points: worst_points(plant),
        },
    ]
}

/// The sections as a page.
#[must_use]
pub fn page(sections: &[Section]) -> String {
    let mut page = String::from(
        "# The simulated Quantum Atlas-II beside the measured one\n\n\
         Written by `cargo run -p clockwise-lab --example atlas-ii > docs/results/atlas-ii.md`; a test \
         keeps it\nup to date and every figure with a tolerance within it. Stated figures: P. Bosch, \
         Mixed-Media File\nSystems, 1999. The plant is `crates/drives/plants/quantum-atlas-ii.toml`, the \
         model is described in\n[emulator.md](../design/emulator.md). All times in milliseconds.\n",
    );
    for section in sections {
        let _ = write!(page, "\n## {}\n\n{}\n\n", section.title, section.text);
        page.push_str("| what | stated | simulated | error | allowed |\n|---|---|---|---|---|\n");
        for point in &section.points {
            let allowed = point
                .tolerance_ms
                .map_or("-".into(), |ms| format!("{ms:.2}"));
            let _ = writeln!(
                page,
                "| {} | {:.1} | {:.2} | {:+.2} ({:+.1} %) | {allowed} |",
                point.what,
                point.stated_ms,
                point.simulated_ms,
                point.error_ms(),
                100.0 * point.error_ms() / point.stated_ms,
            );
        }
    }
    page
}
