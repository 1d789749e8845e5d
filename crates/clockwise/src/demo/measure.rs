//! The part of a run that counts, and what is shown of it while it lasts.

use std::time::{Duration, Instant};

use sched::units::{BytesPerSecond, Nanos};

use super::plan::RATE;
use super::report::TooMuch;
use super::stage::{Serving, Stage};
use super::streams::{Streams, broken};
use super::text::refusal_text;
use crate::failure::Failure;
use crate::print::{latency, missed, percent, short, table};
use crate::quantity::{Rate, Span};
use crate::wire::view::StatusView;

/// Interval of pictures on a terminal.
const PICTURE_INTERVAL: Duration = Duration::from_secs(1);

/// Pictures in a line of output where there is no terminal.
const PICTURES_PER_LINE: u32 = 10;

/// Measurements of a run.
pub(super) struct Measured {
    /// The status at its end.
    pub(super) status: StatusView,
    /// Its length.
    pub(super) seconds: f64,
    /// Bytes per second that all streams sent and received in its whole periods.
    pub(super) rate: f64,
}

impl Stage<'_> {
    /// Begins a new window, and shows the picture until the time is over.
    pub(super) fn measure(
        &self,
        serving: &Serving<'_>,
        streams: &Streams,
        seconds: u64,
        too_much: &TooMuch,
    ) -> Result<Measured, Failure> {
        let begun = Instant::now();
        let before = streams.bytes();
        let mut status: StatusView = self.runtime.block_on(serving.api.post("/v1/window", &()))?;
        let end = Duration::from_secs(seconds);
        // Bytes come a block at a time: a rate is measured over whole periods.
        let period = Duration::from_secs_f64(streams.block().get() as f64 / RATE.get() as f64);
        let periods = (end.as_nanos() / period.as_nanos()).max(1) as u32;
        let rated = period * periods;
        let mut rate = None;
        let mut pictures = 0;
        while begun.elapsed() < end || rate.is_none() {
            let next = match rate {
                None => rated,
                Some(_) => end,
            };
            let left = next.saturating_sub(begun.elapsed()).min(PICTURE_INTERVAL);
            self.interrupt.wait(self.runtime, left)?;
            if rate.is_none() && begun.elapsed() >= rated {
                let elapsed = begun.elapsed().as_secs_f64();
                rate = Some((streams.bytes() - before) as f64 / elapsed);
            }
            status = serving.get("/v1/status")?;
            let mut streams = status.streams.iter();
            if let Some(reason) = streams.find_map(|stream| stream.failed.as_deref()) {
                return Err(broken(reason));
            }
            let line = line(&status, begun.elapsed(), seconds);
            let best_effort = format!("best effort: {}", latency(&status.best_effort));
            if self.output.has_pictures() {
                let picture = picture(&status, too_much);
                self.output
                    .picture(&format!("{line}\n{best_effort}\n\n{picture}"));
            } else if pictures % PICTURES_PER_LINE == 0 {
                self.output.note(&format!("{line}; {best_effort}"));
            }
            pictures += 1;
        }
        Ok(Measured {
            status,
            seconds: begun.elapsed().as_secs_f64(),
            rate: rate.unwrap_or_default(),
        })
    }
}

/// State of the run, in a line.
fn line(status: &StatusView, elapsed: Duration, seconds: u64) -> String {
    let blocks: u64 = status.streams.iter().map(|stream| stream.blocks).sum();
    let misses = missed(
        status.streams.iter().map(|stream| stream.misses).sum(),
        status
            .streams
            .iter()
            .map(|stream| stream.misses_gross)
            .sum(),
    );
    format!(
        "scheduler {}, {:.0} of {seconds} s: {blocks} blocks, {misses} deadlines missed",
        status.scheduler,
        elapsed.as_secs_f64(),
    )
}

/// State of the drives, narrow enough for any terminal.
fn picture(status: &StatusView, too_much: &TooMuch) -> String {
    let span = |nanos| Span(Nanos(nanos)).to_string();
    let drives = table(
        [
            "DRIVE",
            "PROMISED",
            "BUSY",
            "SLACK",
            "QUEUE",
            "REAL-TIME",
            "EARLY",
            "BEST EFFORT",
            "MISSES",
            "OVERRUNS",
        ],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        status.disks.iter().map(|disk| {
            [
                short(&disk.name),
                percent(disk.utilization_promised),
                percent(disk.utilization_measured),
                span(disk.slack_ns),
                disk.queued.to_string(),
                disk.served.real_time.to_string(),
                disk.served.early.to_string(),
                (disk.served.slack + disk.served.container).to_string(),
                missed(disk.misses, disk.misses_gross),
                disk.overruns.to_string(),
            ]
        }),
    );
    let rates = status.streams.iter();
    let rate = rates.map(|stream| stream.rate_bytes_per_second).sum();
    format!(
        "{drives}\n\n{} streams, {} promised\n\n{}",
        status.streams.len(),
        Rate(BytesPerSecond(rate)),
        refusal_text(too_much),
    )
}
