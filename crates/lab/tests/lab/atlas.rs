//! The simulated Atlas-II behaves as the measured one, and the page that says so is up to date.

use std::path::Path;

#[test]
fn every_stated_figure_is_met_within_its_tolerance() {
    let mut off = Vec::new();
    let mut held = 0;
    for section in lab::atlas::measure() {
        for point in section.points {
            held += usize::from(point.tolerance_ms.is_some());
            if !point.holds() {
                off.push(format!("{}: {point:?}", section.title));
            }
        }
    }
    assert!(off.is_empty(), "{off:#?}");
    assert!(held >= 30, "only {held} figures have a tolerance");
}

#[test]
fn the_page_says_what_is_simulated() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/atlas-ii.md");
    let written =
        std::fs::read_to_string(&page).expect("docs/results/atlas-ii.md is in the repository");
    let measured = lab::atlas::page(&lab::atlas::measure());
    assert!(
        written == measured,
        "stale: run the command that its first line names"
    );
}
