//! Numbers as CSV.

use std::fmt::Write as _;

use crate::thesis::{Latency, Measured};

/// Rows under a heading.
pub(super) struct Table(String);

impl Table {
    pub(super) fn new(columns: &[&str]) -> Self {
        Self(format!("{}\n", columns.join(",")))
    }

    pub(super) fn row(&mut self, values: &[String]) {
        self.0.push_str(&values.join(","));
        self.0.push('\n');
    }

    /// A row for all best effort together and one for each disk of the trace.
    pub(super) fn add(&mut self, scheduler: &str, measured: &Measured) {
        let all = ("all".to_owned(), measured.best_effort);
        let sources = measured.sources.iter().enumerate();
        let sources = sources.map(|(disk, latency)| (disk.to_string(), *latency));
        for (disk, latency) in std::iter::once(all).chain(sources) {
            let Latency {
                count,
                mean_ms,
                p50_ms,
                p99_ms,
                max_ms,
                ..
            } = latency;
            // Writing to a string does not fail.
            let _ = writeln!(
                self.0,
                "{scheduler},{:.3},{},{:.4},{disk},{count},{mean_ms:.3},{p50_ms:.3},{p99_ms:.3},{max_ms:.3},{},{:.3},{},{},\
                 {:.3},{:.3}",
                measured.megabytes_per_second,
                measured.tasks,
                measured.utilization,
                measured.missed,
                measured.lateness_max_ms,
                measured.blocks,
                measured.switches,
                measured.burst_mean,
                measured.burst_deviation,
            );
        }
    }

    /// Adds the rows of another table with the same columns, and a first column that tells the two apart.
    pub(super) fn append(&mut self, own: &str, other: &Self, others: &str) {
        let mut rows = String::new();
        for (table, name) in [(&self.0, own), (&other.0, others)] {
            for (index, line) in table.lines().enumerate() {
                match index {
                    0 if rows.is_empty() => rows = format!("layout,{line}\n"),
                    0 => {}
                    _ => rows.push_str(&format!("{name},{line}\n")),
                }
            }
        }
        self.0 = rows;
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}
