//! Figure 8: streams by the number of disks on a channel.

use super::{
    Measured, Point, SYSTEMS, Statement, System, VideoFigure, VideoFigureError, VideoOptions,
    VideoPage, WINDOW,
};
use crate::chart::{Axis, Chart, Curve, page as picture};
use crate::sweep::Sweep;

/// A drive of the paper, the same with the rates of its data sheet or measurement, its buffer in segments, and the disks per
/// channel that the paper finds best.
const DRIVES: [(&str, &str, u32, [u8; 2]); 2] = [
    ("hp-c2247", "hp-c2247a", 4, [7, 8]),
    ("ibm-dfhs", "ibm-dfhs-formatted", 3, [4, 5]),
];

pub(super) fn page(
    options: &VideoOptions,
    sweep: &Sweep<'_>,
) -> Result<VideoPage, VideoFigureError> {
    let mut points = Vec::new();
    for (drive, slower, buffer, _) in DRIVES {
        let line = |drive: &'static str, system: System| {
            let of = move |disks: u8| Point {
                drive,
                disks,
                buffer,
                system,
            };
            counts(drive, options).into_iter().map(of)
        };
        SYSTEMS
            .into_iter()
            .for_each(|system| points.extend(line(drive, system)));
        points.extend(line(slower, System::Window(WINDOW)));
    }
    let measured = Measured::new(points, options, sweep)?;
    let charts = DRIVES.map(|(drive, slower, _, _)| chart(&measured, drive, slower));
    let title = "streams by disks on a channel".to_owned();
    let mut statements = Vec::new();
    for (drive, slower, _, wanted) in DRIVES {
        statements.push(best(&measured, drive, wanted));
        statements.push(best(&measured, slower, wanted));
        statements.push(leads(&measured, drive));
    }
    Ok(VideoPage {
        figure: VideoFigure::Disks,
        svg: picture(&title, &charts, 2)?,
        title,
        notes: "Buffers of 512 KB for popular and 384 KB for fast drives. The drives hp-c2247 and ibm-dfhs have the rates of \
                the paper's table 3; hp-c2247a and ibm-dfhs-formatted are as measured and as specified by IBM, and slower. The \
                best number of disks is the smallest with 97 % of the most streams."
            .to_owned(),
        csv: measured.csv(),
        statements,
        hash: measured.hash(),
    })
}

fn counts(drive: &str, options: &VideoOptions) -> Vec<u8> {
    let is_fast = drive.starts_with("ibm");
    match (is_fast, options.is_full) {
        (_, true) => (2..=15).collect(),
        (false, false) => vec![2, 4, 5, 6, 7, 8, 9, 10, 12],
        (true, false) => vec![2, 3, 4, 5, 6, 7, 8],
    }
}

/// The smallest number of disks with 97 % of the most streams, and the most.
fn turn(line: &[(Point, f64)]) -> (u8, f64) {
    let most = line.iter().map(|(_, streams)| *streams).fold(0.0, f64::max);
    let mut reach = line.iter().filter(|(_, streams)| *streams >= 0.97 * most);
    (reach.next().map_or(0, |(point, _)| point.disks), most)
}

fn best(measured: &Measured, drive: &str, wanted: [u8; 2]) -> Statement {
    let (disks, most) = turn(&measured.line(drive, System::Window(WINDOW)));
    let [low, high] = wanted;
    Statement {
        says: format!("{low} to {high} drives like {drive} on a channel are best"),
        holds: (low..=high).contains(&disks),
        found: format!("{disks} of at most {most:.1} streams"),
    }
}

fn leads(measured: &Measured, drive: &str) -> Statement {
    let [regular, fair, window] = SYSTEMS.map(|system| measured.line(drive, system));
    let behind: Vec<String> = (window.iter().zip(&regular).zip(&fair))
        .filter(|((window, regular), fair)| window.1 < regular.1.max(fair.1))
        .map(|((window, _), _)| window.0.disks.to_string())
        .collect();
    Statement {
        says: format!("RT-WINDOW on a fair channel is best at every number of {drive}"),
        holds: behind.is_empty(),
        found: if behind.is_empty() {
            format!("at all {} numbers", window.len())
        } else {
            format!("not with {}", behind.join(", "))
        },
    }
}

fn chart(measured: &Measured, drive: &str, slower: &str) -> Chart {
    let curve = |name: String, drive: &str, system: System, colour: usize| Curve {
        name,
        points: measured
            .line(drive, system)
            .iter()
            .map(|(point, streams)| (f64::from(point.disks), *streams))
            .collect(),
        colour,
        is_aid: false,
    };
    let mut curves: Vec<Curve> = (0..)
        .zip(SYSTEMS)
        .map(|(colour, system)| curve(system.name(), drive, system, colour))
        .collect();
    let system = System::Window(WINDOW);
    curves.push(curve(format!("{slower}, RT-WINDOW"), slower, system, 3));
    Chart {
        title: drive.to_owned(),
        x: Axis::linear("disks on a channel"),
        y: Axis::linear("streams"),
        curves,
    }
}
