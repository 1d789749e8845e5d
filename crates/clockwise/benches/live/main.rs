//! Live play: delays of players, what a player costs, and how soon something is shown.
//!
//! ```text
//! cargo bench -p clockwise --bench live
//! cargo bench -p clockwise --bench live -- delays
//! LIVE_BENCH_SECONDS=60 LIVE_BENCH_ROUNDS=3 ...
//! CLOCKWISE_OTHER=/path/of/another/clockwise ...
//! ```
//!
//! Parts are `delays`, `starts` and `processor`; without a name all of them run. A delay is that of a picture, from
//! before its encoder to the decoded picture: the picture shows the time. `CLOCKWISE_OTHER` is another build of the
//! server, with which `processor` compares this one in alternating runs.

#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

/// Shared with the tests.
#[allow(dead_code, reason = "this benchmark uses some of it")]
#[path = "../../tests/media/support/day.rs"]
mod day;
mod delays;
mod picture;
mod processor;
mod served;
mod starts;

use std::time::Duration;

fn main() {
    let number = |name: &str, default: u64| {
        let text = std::env::var(name);
        text.map_or(default, |text| text.parse().expect(name))
    };
    let length = Duration::from_secs(number("LIVE_BENCH_SECONDS", 60));
    let rounds = number("LIVE_BENCH_ROUNDS", 3) as usize;
    // Cargo passes options of its own.
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|of| of == name);
    let has_tools = ["ffmpeg", "chromium"].into_iter().all(testkit::skip::have);
    if is_wanted("delays") && has_tools {
        delays::report(length);
    }
    if is_wanted("starts") && has_tools {
        starts::report();
    }
    if is_wanted("processor") {
        processor::report(rounds);
    }
}
