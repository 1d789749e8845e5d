//! A picture of what went on: a row for each task and one for best effort, time to the right.

use std::fmt::Write as _;

use super::{Case, Happening, Step};

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 110.0;
const ROW: f64 = 46.0;
const BAR: f64 = 22.0;
const TOP: f64 = 40.0;

/// A bar from one time to another.
struct Bar {
    row: usize,
    from: u64,
    to: u64,
    colour: &'static str,
}

/// Draws the steps of a case as SVG: bars are what the disk does, arrows up are releases, arrows down deadlines; red
/// is what is late.
#[must_use]
pub fn gantt(case: &Case, steps: &[Step]) -> String {
    let rows = case.task.len() + 1;
    let end = steps.iter().map(|step| match step.what {
        Happening::Released { deadline, .. } => deadline,
        _ => step.at,
    });
    let end = end.max().unwrap_or(0).max(1);
    let x = |at: u64| LEFT + (WIDTH - LEFT - 30.0) * at as f64 / end as f64;
    let base = |row: usize| TOP + ROW * (row as f64 + 1.0);
    let height = TOP + ROW * (rows as f64 + 1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n<text x=\"10\" y=\"22\" \
         font-size=\"16\">{}</text>\n",
        case.scheduler
    );
    // Writing to a string does not fail.
    for row in 0..rows {
        let y = base(row);
        let label = case.task.get(row).map_or("best effort".to_owned(), |task| {
            format!("({}, {})", task.service, task.period)
        });
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{y:.1}\">{label}</text><line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" \
             stroke=\"#999\"/>",
            WIDTH - 20.0
        );
    }
    axis(&mut svg, end, x, base(rows - 1));
    for Bar {
        row,
        from,
        to,
        colour,
    } in bars(case, steps)
    {
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\" stroke=\"#333\"/><text \
             x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{}</text>",
            x(from),
            base(row) - BAR,
            x(to) - x(from),
            f64::midpoint(x(from), x(to)),
            base(row) - 6.0,
            to - from
        );
    }
    for step in steps {
        match step.what {
            Happening::Released { task, deadline } => {
                arrow(&mut svg, x(step.at), base(task), -34.0, "#0072B2");
                arrow(&mut svg, x(deadline), base(task) - 34.0, 34.0, "#777777");
            }
            Happening::Late { task, deadline, by } => {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"5\" fill=\"#CC0000\"/><text x=\"{:.1}\" \
                     y=\"{:.1}\" fill=\"#CC0000\">late by {by}</text>",
                    x(deadline),
                    base(task),
                    x(step.at) - x(deadline),
                    x(deadline) - 60.0,
                    base(task) + 18.0
                );
            }
            _ => {}
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn arrow(svg: &mut String, x: f64, from: f64, length: f64, colour: &str) {
    let (to, head) = (from + length, 6.0 * length.signum());
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {from:.1} V{to:.1} M{:.1} {:.1} L{x:.1} {to:.1} L{:.1} {:.1}\" stroke=\"{colour}\" \
         fill=\"none\" stroke-width=\"1.5\"/>",
        x - 4.0,
        to - head,
        x + 4.0,
        to - head
    );
}

/// Times below the last row, at whole steps of 1, 2 or 5.
fn axis(svg: &mut String, end: u64, x: impl Fn(u64) -> f64, y: f64) {
    const TICKS: u64 = 20;
    let mut step = 1;
    let mut factors = [2, 5, 10].iter().cycle();
    let mut decade = 1;
    while end / step > TICKS {
        let factor = factors.next().copied().unwrap_or(10);
        step = decade * factor;
        if factor == 10 {
            decade = step;
        }
    }
    for tick in (0..=end / step).map(|tick| tick * step) {
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<line x1=\"{0:.1}\" y1=\"{y:.1}\" x2=\"{0:.1}\" y2=\"{1:.1}\" stroke=\"#999\"/><text x=\"{0:.1}\" \
             y=\"{2:.1}\" text-anchor=\"middle\" font-size=\"11\">{tick}</text>",
            x(tick),
            y + 5.0,
            y + 20.0
        );
    }
}

fn bars(case: &Case, steps: &[Step]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for step in steps {
        let (row, length, colour) = match step.what {
            Happening::Job {
                task,
                service,
                deadline,
            } => {
                let is_late = step.at + service > deadline;
                (task, service, if is_late { "#F2A0A0" } else { "#A8D0E6" })
            }
            Happening::BestEffort { length, .. } => (case.task.len(), length, "#E8C48A"),
            _ => continue,
        };
        bars.push(Bar {
            row,
            from: step.at,
            to: step.at + length,
            colour,
        });
    }
    bars
}
