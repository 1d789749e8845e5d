//! Tests of the scheduler's promises against their definitions: whole state spaces, long runs, examples.

mod common;

mod admission;
mod book;
mod counterexamples;
mod disk_runs;
mod exhaustive;
mod full_disk;
mod held_up;
mod link;
mod long_runs;
mod no_allocation;
mod outstanding;
mod reserve;
mod spans;
mod sweeps;
mod thousands;
mod transitions;
