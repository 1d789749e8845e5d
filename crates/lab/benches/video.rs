//! Speed of the video server's simulation: requests a second on one core, for a server of 16 disks near its largest number of
//! streams. Prints a table.

use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::time::Instant;

use lab::channel::Discipline;
use lab::channel::drive::Drive;
use lab::video::{Arm, Server};
use sched::units::Nanos;

const SEED: u64 = 1;
/// Rounds, of which the fastest counts: other work on the machine slows the others.
const ROUNDS: usize = 5;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let window = Arm::RtWindow {
        window: NonZeroUsize::new(5).unwrap_or(NonZeroUsize::MIN),
        threshold: Nanos::from_millis(350),
    };
    let fair = Discipline::Fair { tokens: 2 };
    writeln!(
        out,
        "A run of 500 movies on four channels with four disks each, on one core; the fastest of {ROUNDS} rounds.\n"
    )?;
    writeln!(
        out,
        "| drive | scheduler | arbitration | streams | requests | requests a second | ns a request |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for (drive, streams) in [("hp-c2247", 100), ("ibm-dfhs", 170)] {
        for (arm, discipline, name) in [
            (Arm::CScan, Discipline::Plain, "c-scan | plain"),
            (Arm::CScan, fair, "c-scan | fair"),
            (window, fair, "rt-window | fair"),
        ] {
            let built_in = Drive::built_in(drive).expect("it comes with the program");
            let server = Server {
                arm,
                discipline,
                ..Server::of_the_paper(built_in, 4)
            };
            let mut best = f64::MAX;
            let mut requests = 0;
            for _ in 0..ROUNDS {
                let begin = Instant::now();
                requests = server.run(streams, SEED, false).requests;
                best = best.min(begin.elapsed().as_secs_f64());
            }
            let per_second = requests as f64 / best;
            writeln!(
                out,
                "| {drive} | {name} | {streams} | {requests} | {per_second:.0} | {:.0} |",
                1e9 / per_second
            )?;
        }
    }
    Ok(())
}
