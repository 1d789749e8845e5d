//! The demerit figure of Ruemmler and Wilkes (1994): how far apart two distributions of times are.
//!
//! It is the root of the mean square of the horizontal distance between the two curves. With as many values on
//! both sides the curves are steps of the same heights, so that the distance is that of the values of the same
//! rank. 0 means that the distributions are the same, not that each request took the same time.

use sched::units::Nanos;

use crate::chart::{Axis, Chart, ChartError, Curve, page};

/// A pair of distributions, compared.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Comparison {
    /// The demerit figure, in milliseconds.
    pub demerit_ms: f64,
    /// The mean of the measured times.
    pub mean_measured_ms: f64,
    /// The mean of the simulated times.
    pub mean_simulated_ms: f64,
    /// Number of pairs.
    pub requests: usize,
}

/// Compares pairs of a measured and a simulated time; `None` if there is none.
#[must_use]
pub fn compare(pairs: &[(Nanos, Nanos)]) -> Option<Comparison> {
    let count = pairs.len();
    if count == 0 {
        return None;
    }
    let sorted = |of: fn(&(Nanos, Nanos)) -> Nanos| {
        let mut times: Vec<f64> = pairs.iter().map(|pair| millis(of(pair))).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (measured, simulated) = (sorted(|pair| pair.0), sorted(|pair| pair.1));
    let squares = measured
        .iter()
        .zip(&simulated)
        .map(|(a, b)| (a - b) * (a - b));
    let count_f = count as f64;
    Some(Comparison {
        demerit_ms: (squares.sum::<f64>() / count_f).sqrt(),
        mean_measured_ms: measured.iter().sum::<f64>() / count_f,
        mean_simulated_ms: simulated.iter().sum::<f64>() / count_f,
        requests: count,
    })
}

/// A time in milliseconds.
#[must_use]
pub fn millis(time: Nanos) -> f64 {
    time.get() as f64 / 1e6
}

/// Both distributions of a drive, as a picture and as numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    title: String,
    /// The picture.
    pub svg: String,
    /// The numbers: percent of the requests that took at most so long.
    pub csv: String,
}

impl Figure {
    /// A page with the picture, whose files have the name `stem`, and a table in text.
    #[must_use]
    pub fn page(&self, stem: &str, table: &str) -> String {
        let title = &self.title;
        format!(
            "# {title}: measured and simulated\n\n![{title}]({stem}.svg)\n\nWritten by `clockwise sim replay-trace`. The \
             numbers are in [{stem}.csv]({stem}.csv).\n\n```text\n{table}```\n"
        )
    }
}

/// The percents at which the curves are drawn.
const STEPS: usize = 200;

/// Draws the distributions of all requests, of reads and of writes.
///
/// # Errors
/// When they cannot be drawn.
pub fn figure(
    title: &str,
    all: &[(Nanos, Nanos)],
    reads: &[(Nanos, Nanos)],
    writes: &[(Nanos, Nanos)],
) -> Result<Figure, ChartError> {
    let mut csv = String::from("requests,percent,measured_ms,simulated_ms\n");
    let mut charts = Vec::new();
    for (name, pairs) in [("all requests", all), ("reads", reads), ("writes", writes)] {
        if pairs.is_empty() {
            continue;
        }
        let curve = |of: fn(&(Nanos, Nanos)) -> Nanos| -> Vec<(f64, f64)> {
            let mut times: Vec<Nanos> = pairs.iter().map(of).collect();
            times.sort_unstable();
            let last = times.len() - 1;
            let at = |step: usize| {
                (
                    millis(times[last * step / STEPS]),
                    100.0 * step as f64 / STEPS as f64,
                )
            };
            (0..=STEPS).map(at).collect()
        };
        let (measured, simulated) = (curve(|pair| pair.0), curve(|pair| pair.1));
        for ((took, percent), (simulated, _)) in measured.iter().zip(&simulated) {
            csv += &format!("{name},{percent},{took:.3},{simulated:.3}\n");
        }
        let curve = |name: &str, colour, points| Curve {
            name: name.to_owned(),
            points,
            colour,
            is_aid: false,
        };
        charts.push(Chart {
            title: name.to_owned(),
            x: Axis::linear("response time, ms"),
            y: Axis::linear("requests that took at most so long, %"),
            curves: vec![
                curve("measured", 0, measured),
                curve("simulated", 1, simulated),
            ],
        });
    }
    Ok(Figure {
        title: title.to_owned(),
        svg: page(title, &charts, charts.len())?,
        csv,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ms: &[(u64, u64)]) -> Vec<(Nanos, Nanos)> {
        let nanos = |ms: u64| Nanos::from_micros(ms * 1_000);
        ms.iter().map(|(a, b)| (nanos(*a), nanos(*b))).collect()
    }

    #[test]
    fn demerit_is_the_distance_of_distributions_and_not_of_requests() {
        let swapped = compare(&pairs(&[(1, 5), (5, 1)])).unwrap();
        assert_eq!(swapped.demerit_ms, 0.0);
        let shifted = compare(&pairs(&[(1, 3), (5, 7)])).unwrap();
        assert!((shifted.demerit_ms - 2.0).abs() < 1e-12, "{shifted:?}");
        assert!((shifted.mean_simulated_ms - 5.0).abs() < 1e-12);
        // Distances 0 and 4: the root of (0 + 16) / 2.
        let one = compare(&pairs(&[(1, 1), (5, 9)])).unwrap();
        assert!((one.demerit_ms - 8.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(compare(&[]), None);
    }
}
