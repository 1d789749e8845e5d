//! Writes `docs/results/atlas-ii.md` to standard output.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let page = sim::atlas::page(&sim::atlas::measure());
    std::io::stdout().lock().write_all(page.as_bytes())
}
