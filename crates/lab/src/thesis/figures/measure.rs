//! Not in the thesis: drives measured by a program that knows nothing of them, beside the truth (thesis 4.3, 8.4).

use drives::plant::{Plant, PlantSpec};
use measure::facts::Effort;
use measure::machine::Measured;
use sched::profile::DriveProfile;

use super::{Figure, FigureError, Options, Page, Statement};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::measure::{Compared, Disturbances, MeasuredPlant, Outcome};
use crate::thesis::figures::table::Table;

/// Requests with which a profile is compared with its drive.
const COMPARED: u64 = 100_000;

/// A drive that was measured, and its profiles beside it.
struct Drive {
    plant: Plant,
    outcome: Outcome,
    measured: Measured,
    mine: Compared,
    best: Compared,
}

impl Drive {
    /// Measures a built-in plant. The best profile is that of the plant `like`, which differs in its layout at most.
    fn measure(name: &str, like: &str, seed: u64) -> Self {
        let plant_of = |name| {
            let spec = PlantSpec::built_in(name).expect("it is built in");
            Plant::new(spec, seed)
        };
        let plant = plant_of(name);
        let drive = || MeasuredPlant::new(plant.clone(), Disturbances::default(), seed);
        let mut measuring = drive();
        let facts = measuring.facts();
        let outcome = measuring.measure(facts, Effort::Normal, seed);
        let measured = outcome.measured.clone().expect("plants can be measured");
        let best = DriveProfile::shipped(like).expect("a profile of that name is shipped");
        let mut like = MeasuredPlant::new(plant_of(like), Disturbances::default(), seed);
        Self {
            mine: drive().compare(&measured.profile, COMPARED),
            best: like.compare(&best, COMPARED),
            plant,
            outcome,
            measured,
        }
    }

    fn name(&self) -> &str {
        self.plant.spec().name()
    }

    /// The error of the rotation, in parts per million.
    fn rotation_ppm(&self) -> f64 {
        let found = self
            .measured
            .findings
            .rotation
            .map_or(0.0, |rotation| rotation.nanos);
        (found / self.plant.spec().rotation().get() as f64 - 1.0) * 1e6
    }

    /// Zones whose sectors per track are the true ones.
    fn zones_right(&self) -> (usize, usize) {
        let truth = self.plant.zones();
        let found = &self.measured.findings.zones;
        let same = found
            .iter()
            .zip(&truth)
            .filter(|(found, truth)| found.sectors_per_track == truth.sectors_per_track);
        (same.count(), truth.len())
    }

    /// Seeks in both directions, the bound of the profile, and the truth; overhead is in all but the last.
    fn chart(&self) -> Chart {
        let seeks = &self.measured.findings.seeks;
        let of = |nanos: fn(&measure::findings::SeekFound) -> u64| {
            let points = seeks.iter().filter(|seek| seek.cylinders > 0);
            let points = points.filter(|seek| seek.inwards);
            points
                .map(|seek| (seek.cylinders as f64, nanos(seek) as f64 / 1e6))
                .collect::<Vec<(f64, f64)>>()
        };
        let truth = of(|seek| seek.cylinders)
            .into_iter()
            .map(|(cylinders, _)| {
                (
                    cylinders,
                    self.plant.seek_max(cylinders as u64).get() as f64 / 1e6,
                )
            })
            .collect();
        let curve = |name: &str, points, colour, is_aid| Curve {
            name: name.to_owned(),
            points,
            colour,
            is_aid,
        };
        Chart {
            title: self.name().to_owned(),
            x: Axis::linear("distance, cylinders"),
            y: Axis::linear("time, ms"),
            curves: vec![
                curve("the profile's bound", of(|seek| seek.bound.get()), 0, false),
                curve("slowest", of(|seek| seek.slowest.get()), 1, false),
                curve("fastest", of(|seek| seek.fastest.get()), 2, false),
                curve("the plant's slowest, without overhead", truth, 5, true),
            ],
        }
    }

    fn row(&self) -> Vec<String> {
        let findings = &self.measured.findings;
        let tracks = findings.tracks.clone().unwrap_or_default();
        let (zones_right, zones) = self.zones_right();
        vec![
            self.name().to_owned(),
            self.outcome.requests.to_string(),
            format!("{:.0}", self.outcome.took.as_secs_f64()),
            format!("{:.2}", self.rotation_ppm()),
            zones_right.to_string(),
            zones.to_string(),
            tracks.heads.to_string(),
            format!("{:.3}", tracks.head_switch.get() as f64 / 1e6),
            format!("{:.3}", tracks.cylinder_switch.get() as f64 / 1e6),
            findings.validation.requests.to_string(),
            findings.validation.widened.to_string(),
            self.mine.longer.to_string(),
            format!("{:.3}", self.mine.predicted_over_actual),
            format!("{:.3}", self.best.predicted_over_actual),
            format!("{:.3}", self.admitted()),
        ]
    }

    /// Blocks admitted by the measured profile, as a part of those that the best admits; the smaller part of two sizes.
    fn admitted(&self) -> f64 {
        let parts = self.mine.admitted.iter().zip(self.best.admitted);
        parts
            .map(|(mine, best)| mine / best)
            .fold(f64::MAX, f64::min)
    }
}

pub(super) fn page(options: &Options) -> Result<Page, FigureError> {
    let drives = [
        ("quantum-atlas-ii", "quantum-atlas-ii"),
        ("hdd-8tb-7200", "hdd-8tb-7200"),
        ("hdd-8tb-7200-serpentine", "hdd-8tb-7200"),
    ];
    let drives = drives.map(|(name, like)| Drive::measure(name, like, options.seed));
    let mut table = Table::new(&[
        "drive",
        "requests",
        "drive_seconds",
        "rotation_error_ppm",
        "zones_right",
        "zones",
        "heads",
        "head_switch_ms",
        "cylinder_switch_ms",
        "validated",
        "widened",
        "longer_of_100000",
        "predicted_over_actual",
        "of_the_best",
        "admitted_of_the_best",
    ]);
    let mut hash = crate::run::Hash::default();
    for drive in &drives {
        table.row(&drive.row());
        hash.add(drive.outcome.requests);
        hash.add(drive.mine.predicted_over_actual.to_bits());
    }
    let charts: Vec<Chart> = drives.iter().map(Drive::chart).collect();
    Ok(Page {
        figure: Figure::Measure,
        title: "drives measured without knowing them".to_owned(),
        notes: "The thesis has no such figure. The statements are those that a measurement has to meet. The program knows the capacity and the times. \
                *The best* is the shipped profile, which was made from the parameters of the plant; for the serpentine drive it \
                is that of the same drive cylinder by cylinder, beside that one. Times of seeks \
                contain the overhead of a request."
            .to_owned(),
        svg: draw("Measured seeks", &charts, 2)?,
        csv: table.into_text(),
        statements: statements(&drives),
        hash: hash.0,
    })
}

fn statements(drives: &[Drive]) -> Vec<Statement> {
    let all = |holds: &dyn Fn(&Drive) -> bool| drives.iter().all(holds);
    let found = |text: &dyn Fn(&Drive) -> String| {
        let each = drives
            .iter()
            .map(|drive| format!("{}: {}", drive.name(), text(drive)));
        each.collect::<Vec<_>>().join("; ")
    };
    vec![
        Statement::new(
            "(not in the thesis) the rotation is known to 10 parts per million",
            all(&|drive| drive.rotation_ppm().abs() < 10.0),
            found(&|drive| format!("{:.2}", drive.rotation_ppm().abs())),
        ),
        Statement::new(
            "(not in the thesis) every zone has the sectors per track of the plant",
            all(&|drive| {
                let (right, zones) = drive.zones_right();
                right == zones
            }),
            found(&|drive| {
                let (right, zones) = drive.zones_right();
                format!("{right} of {zones}")
            }),
        ),
        Statement::new(
            "(not in the thesis) no request of 100,000 takes longer than the measured profile predicts",
            all(&|drive| drive.mine.longer == 0),
            found(&|drive| drive.mine.longer.to_string()),
        ),
        Statement::new(
            "(not in the thesis) predicted over actual is at most 1.15 times that of the best profile",
            all(&|drive| {
                drive.mine.predicted_over_actual <= 1.15 * drive.best.predicted_over_actual
            }),
            found(&|drive| {
                let times = drive.mine.predicted_over_actual / drive.best.predicted_over_actual;
                format!("{times:.3}")
            }),
        ),
        Statement::new(
            "(not in the thesis) at least 0.95 of what the best profile admits is admitted",
            all(&|drive| drive.admitted() >= 0.95),
            found(&|drive| format!("{:.3}", drive.admitted())),
        ),
    ]
}
