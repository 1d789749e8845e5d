//! Writes `docs/results/atlas-ii.md` to standard output.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let page = lab::atlas::page(&lab::atlas::measure());
    std::io::stdout().lock().write_all(page.as_bytes())
}
