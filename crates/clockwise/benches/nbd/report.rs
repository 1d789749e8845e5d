//! The figures of all rounds, side by side.

use std::path::PathBuf;

use comfy_table::Table;

use super::measure::{Job, Sample};
use super::peer::is_ours;

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Ours over the best of the peers, in each round.
fn ratios(
    ours: &[Sample],
    peers: &[&Vec<Sample>],
    of: impl Fn(&Sample) -> f64,
    best: fn(f64, f64) -> f64,
) -> Vec<f64> {
    let of_round = |(round, sample): (usize, &Sample)| {
        let others = peers.iter().map(|peer| of(&peer[round]));
        Some(of(sample) / others.reduce(best)?)
    };
    ours.iter().enumerate().filter_map(of_round).collect()
}

/// The median, the least and the greatest; nothing of none.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().reduce(f64::min);
    let greatest = values.iter().copied().reduce(f64::max);
    let text = least.zip(greatest).map(|(least, greatest)| {
        let median = median(values.iter().copied());
        format!("{median:.2} ({least:.2} to {greatest:.2})")
    });
    text.unwrap_or_default()
}

/// Prints a table, and writes it as JSON to `file`.
pub(crate) fn report(names: &[&str], results: &[(Job, Vec<Vec<Sample>>)], file: &str) {
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
        let named = || names.iter().zip(samples);
        let peers: Vec<_> = named()
            .filter(|(name, _)| !is_ours(name))
            .map(|(_, rounds)| rounds)
            .collect();
        let mut servers = serde_json::Map::new();
        for (index, (name, rounds)) in named().enumerate() {
            let iops = median(rounds.iter().map(|sample| sample.iops));
            let mib = median(rounds.iter().map(|sample| sample.mib_per_second));
            let us = median(rounds.iter().map(|sample| sample.cpu_us_per_io));
            let [speed, cpu] = if is_ours(name) {
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
                (*name).to_owned(),
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
            servers.insert((*name).to_owned(), figures);
        }
        json.push(serde_json::json!({ "job": job.name, "servers": servers }));
    }
    println!("{table}");
    println!(
        "speed ratio: ours / the better of the others, to be at least 1; of rounds the median, least and greatest"
    );
    println!("CPU ratio: ours / the smaller of the others, to be at most 1");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&folder).expect("a place for the report");
    let text = serde_json::to_string_pretty(&json).expect("plain values");
    std::fs::write(folder.join(file), text).expect("the report");
}
