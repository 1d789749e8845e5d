//! Figures 6 and 7: streams by the buffer of each.

use super::{
    Measured, Point, SYSTEMS, System, VideoFigure, VideoFigureError, VideoOptions, VideoPage,
};
use super::{Statement, WINDOW, gain, gains};
use crate::chart::{Axis, Chart, Curve, page as picture};
use crate::sweep::Sweep;

/// Windows that the paper says to perform alike.
const WINDOWS: [usize; 2] = [3, 4];
/// Segments of buffers whose windows are compared: 512 KB.
const BUFFER: u32 = 4;

pub(super) fn page(
    figure: VideoFigure,
    options: &VideoOptions,
    sweep: &Sweep<'_>,
) -> Result<VideoPage, VideoFigureError> {
    let (drive, disks) = match figure {
        VideoFigure::PopularFour => ("hp-c2247", 4),
        VideoFigure::PopularEight => ("hp-c2247", 8),
        VideoFigure::FastFour => ("ibm-dfhs", 4),
        _ => ("ibm-dfhs", 8),
    };
    let buffers: &[u32] = if options.is_full {
        &[2, 3, 4, 5, 6, 7, 8]
    } else {
        &[2, 3, 4, 6, 8]
    };
    let point = |buffer: u32, system: System| Point {
        drive,
        disks,
        buffer,
        system,
    };
    let mut points = Vec::new();
    for system in SYSTEMS {
        points.extend(buffers.iter().map(|buffer| point(*buffer, system)));
    }
    if figure == VideoFigure::PopularFour {
        points.extend(WINDOWS.map(|window| point(BUFFER, System::Window(window))));
    }
    let measured = Measured::new(points, options, sweep)?;
    let curves = Curves {
        lines: SYSTEMS.map(|system| measured.line(drive, system)),
    };
    let title = format!("streams by buffer, {disks} disks of {drive} on each of four channels");
    let statements = match figure {
        VideoFigure::PopularFour => curves.popular_four(&measured, drive),
        VideoFigure::PopularEight => curves.popular_eight(),
        VideoFigure::FastFour => curves.fast(12.0),
        _ => curves.fast(22.0),
    };
    let notes = "A buffer of 256 KB gives a request as long as the threshold of RT-WINDOW, 350 ms: there the rule \
                 serves by deadline alone."
        .to_owned();
    Ok(VideoPage {
        figure,
        svg: picture(&title, &[curves.chart()], 1)?,
        title,
        notes,
        csv: measured.csv(),
        statements,
        hash: measured.hash(),
    })
}

/// The lines of [`SYSTEMS`].
struct Curves {
    lines: [Vec<(Point, f64)>; 3],
}

impl Curves {
    fn at(&self, line: usize, buffer: u32) -> f64 {
        let mut points = self.lines[line].iter();
        points
            .find(|(point, _)| point.buffer == buffer)
            .map_or(0.0, |(_, streams)| *streams)
    }

    /// The smallest buffer with at least 97 % of the most streams of all buffers, in KB.
    fn peak(&self, line: usize) -> u32 {
        let points = &self.lines[line];
        let most = points
            .iter()
            .map(|(_, streams)| *streams)
            .fold(0.0, f64::max);
        let mut reach = points.iter().filter(|(_, streams)| *streams >= 0.97 * most);
        reach.next().map_or(0, |(point, _)| point.kib())
    }

    fn chart(&self) -> Chart {
        let curve = |(colour, line): (usize, &Vec<(Point, f64)>)| Curve {
            name: SYSTEMS[colour].name(),
            points: line
                .iter()
                .map(|(point, streams)| (f64::from(point.kib()), *streams))
                .collect(),
            colour,
            is_aid: false,
        };
        Chart {
            title: String::new(),
            x: Axis::linear("buffer of a stream, KB"),
            y: Axis::linear("streams"),
            curves: self.lines.iter().enumerate().map(curve).collect(),
        }
    }

    fn peak_statement(&self, line: usize, says: &str, low: u32, high: u32) -> Statement {
        let peak = self.peak(line);
        Statement {
            says: says.to_owned(),
            holds: (low..=high).contains(&peak),
            found: format!("97 % of the most streams with {peak} KB"),
        }
    }

    fn popular_four(&self, measured: &Measured, drive: &str) -> Vec<Statement> {
        let (regular, fair, window) = (self.at(0, 4), self.at(1, 4), self.at(2, 4));
        let mut statements = vec![
            gains(
                "with 512 KB RT-WINDOW on a fair channel carries 35 % more streams than C-SCAN on a regular one".into(),
                35.0,
                window,
                regular,
            ),
            self.half(),
            Statement {
                says: "the fair channel alone gains nothing".to_owned(),
                holds: gain(fair, regular).abs() <= 2.0,
                found: format!("{:+.1} %", gain(fair, regular)),
            },
        ];
        let others = WINDOWS.map(|window| measured.line(drive, System::Window(window))[0].1);
        let [three, four] = others;
        let most = three.max(four).max(window);
        let least = three.min(four).min(window);
        statements.push(Statement {
            says: "windows of 3 to 5 perform alike".to_owned(),
            holds: gain(most, least) <= 3.0,
            found: format!("{three:.1}, {four:.1} and {window:.1} streams with 3, 4 and {WINDOW}"),
        });
        statements
    }

    /// Half the memory for the same number of streams.
    fn half(&self) -> Statement {
        let pairs = [(2, 4), (3, 6), (4, 8)];
        let found = pairs.map(|(half, whole)| {
            format!(
                "{:.1} with {} KB against {:.1} with {} KB",
                self.at(2, half),
                half * 128,
                self.at(0, whole),
                whole * 128
            )
        });
        Statement {
            says: "RT-WINDOW carries as many streams with half the memory".to_owned(),
            holds: pairs
                .iter()
                .all(|(half, whole)| self.at(2, *half) >= 0.98 * self.at(0, *whole)),
            found: found.join("; "),
        }
    }

    fn popular_eight(&self) -> Vec<Statement> {
        let (regular, fair, window) = (self.at(0, 4), self.at(1, 4), self.at(2, 4));
        let best = |line: usize| {
            let points = self.lines[line].iter();
            points.map(|(_, streams)| *streams).fold(0.0, f64::max)
        };
        vec![
            gains(
                "the fair channel carries 6.7 % more streams (the most of each curve)".into(),
                6.7,
                best(1),
                best(0),
            ),
            gains(
                "with 512 KB RT-WINDOW carries 16 % more than C-SCAN on a fair channel".into(),
                16.0,
                window,
                fair,
            ),
            gains(
                "with 512 KB it carries 25 % more than C-SCAN on a regular channel".into(),
                25.0,
                window,
                regular,
            ),
            self.peak_statement(2, "RT-WINDOW reaches its peak with 512 KB", 512, 512),
        ]
    }

    fn fast(&self, wanted: f64) -> Vec<Statement> {
        vec![
            gains(
                format!(
                    "with 384 KB RT-WINDOW on a fair channel carries {wanted} % more than C-SCAN on a regular one"
                ),
                wanted,
                self.at(2, 3),
                self.at(0, 3),
            ),
            self.peak_statement(2, "RT-WINDOW reaches its peak with 384 to 512 KB", 384, 512),
            self.peak_statement(
                0,
                "C-SCAN on a regular channel reaches its peak with 896 to 1024 KB",
                896,
                1024,
            ),
        ]
    }
}
