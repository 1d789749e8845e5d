//! The report of a comparison.

use std::path::PathBuf;

use comfy_table::Table;

use super::fio::{Job, Sample};
use super::{Candidate, Role};

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The ratio of a subject to the best of the peers, in each round.
fn ratios(
    subject: &[Sample],
    peers: &[&Vec<Sample>],
    of: impl Fn(&Sample) -> f64,
    best: fn(f64, f64) -> f64,
) -> Vec<f64> {
    let of_round = |(round, sample): (usize, &Sample)| {
        let others = peers.iter().map(|peer| of(&peer[round]));
        Some(of(sample) / others.reduce(best)?)
    };
    subject.iter().enumerate().filter_map(of_round).collect()
}

/// The median, the least and the greatest; empty without values.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().reduce(f64::min);
    let greatest = values.iter().copied().reduce(f64::max);
    let text = least.zip(greatest).map(|(least, greatest)| {
        let median = median(values.iter().copied());
        format!("{median:.2} ({least:.2} to {greatest:.2})")
    });
    text.unwrap_or_default()
}

/// Prints a table, and writes the same as JSON to `target/bench/FILE`.
pub(crate) fn report(candidates: &[&Candidate], results: &[(Job, Vec<Vec<Sample>>)], file: &str) {
    let mut table = Table::new();
    table.set_header([
        "",
        "server",
        "IOPS",
        "MiB/s",
        "CPU us/IO",
        "speed ratio",
        "CPU ratio",
    ]);
    let mut json = Vec::new();
    for (job, samples) in results {
        let measured = || candidates.iter().zip(samples);
        let peers: Vec<_> = measured()
            .filter(|(candidate, _)| candidate.role == Role::Peer)
            .map(|(_, rounds)| rounds)
            .collect();
        let mut servers = serde_json::Map::new();
        for (index, (candidate, rounds)) in measured().enumerate() {
            let iops = median(rounds.iter().map(|sample| sample.iops));
            let mib = median(rounds.iter().map(|sample| sample.mib_per_second));
            let us = median(rounds.iter().map(|sample| sample.cpu_us_per_io));
            let [speed, cpu] = if candidate.role == Role::Subject {
                [
                    ratios(rounds, &peers, |sample| sample.iops, f64::max),
                    ratios(rounds, &peers, |sample| sample.cpu_us_per_io, f64::min),
                ]
            } else {
                [Vec::new(), Vec::new()]
            };
            let title = if index == 0 { job.name } else { "" };
            table.add_row([
                title.to_owned(),
                candidate.name.to_owned(),
                format!("{iops:.0}"),
                format!("{mib:.0}"),
                format!("{us:.2}"),
                spread(&speed),
                spread(&cpu),
            ]);
            let figures = serde_json::json!({
                "iops": iops, "mib_per_second": mib, "cpu_us_per_io": us,
                "speed_ratios": speed, "cpu_ratios": cpu,
            });
            servers.insert(candidate.name.to_owned(), figures);
        }
        json.push(serde_json::json!({ "job": job.name, "servers": servers }));
    }
    println!("{table}");
    println!(
        "speed ratio: ours / the better of the others, goal at least 1; median, least and greatest of the rounds"
    );
    println!("CPU ratio: ours / the smaller of the others, goal at most 1");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&folder).expect("a place for the report");
    let text = serde_json::to_string_pretty(&json).expect("plain values");
    std::fs::write(folder.join(file), text).expect("the report");
}
