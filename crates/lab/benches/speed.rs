//! Speed of the lab: CELLO's day on the thesis's three disks, on one core, under `exact`. Prints a table.

use std::io::{self, Write as _};
use std::time::Instant;

use lab::thesis::{CELLO_BYTES, Layout, Point, Source, Thesis, Times};
use sched::disk::OverPrediction;
use sched::policy::Policy;

const SEED: u64 = 1;
/// Rounds, of which the fastest counts: other work on the machine slows the others, by up to twice on a
/// shared machine.
const ROUNDS: usize = 7;
/// None, a sixth of what can be admitted, half, all but a little, all.
const PAIRS: [usize; 5] = [0, 4, 12, 20, 24];

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let thesis = Thesis::new(Layout::Rotation, Times::Printed, SEED)
        .expect("the thesis's volumes fit on its disks");
    let load = thesis.cello(&Source::Day.period(), SEED);
    writeln!(
        out,
        "CELLO's day, {} requests to volumes of {CELLO_BYTES}, on one core; the fastest of {ROUNDS} rounds.\n",
        load.requests
    )?;
    writeln!(
        out,
        "| pairs | promised | best-effort requests a second | with the blocks of streams | us a request |"
    )?;
    writeln!(out, "|---|---|---|---|---|")?;
    for pairs in PAIRS {
        let point = Point {
            layout: Layout::Rotation,
            times: Times::Printed,
            policy: Policy::Exact,
            pairs,
            source: Source::Day,
            seed: SEED,
            over_prediction: OverPrediction::default(),
        };
        let mut rounds: Vec<(f64, u64, f64)> = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let measured = point
                .run(&thesis, &load)
                .expect("so many pairs are admitted");
            let seconds = begun.elapsed().as_secs_f64();
            rounds.push((seconds, measured.blocks, measured.utilization));
        }
        let fastest = rounds.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let (seconds, blocks, promised) = fastest.expect("there are rounds");
        let requests = load.requests as f64;
        let all = requests + blocks as f64;
        writeln!(
            out,
            "| {pairs} | {promised:.3} | {:.0} | {:.0} | {:.2} |",
            requests / seconds,
            all / seconds,
            seconds * 1e6 / all
        )?;
    }
    Ok(())
}
