//! A measurement under way: its samples are kept, its progress is shown, and signals stop it.

use std::io;
use std::time::Duration;

use measure::machine::{MeasureError, Measured, Progress};
use sched::units::Nanos;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, host_failure};
use crate::measuring::driver::{End, News, Running};
use crate::measuring::samples::{FIRST_PART, SampleFile};
use crate::print::Output;
use crate::quantity::Span;

/// The most news that are taken at a time.
const NEWS_AT_ONCE: usize = 1024;

/// Signals that end the command.
pub(super) struct Signals([(SignalKind, Signal); 3]);

impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        let failed = |error: io::Error| host_failure("wait for signals", &error);
        let listen = |kind| Ok((kind, signal(kind).map_err(failed)?));
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    /// The number of the next signal.
    pub(super) async fn next(&mut self) -> u8 {
        let [(a, first), (b, second), (c, third)] = &mut self.0;
        let kind = tokio::select! {
            _ = first.recv() => *a,
            _ = second.recv() => *b,
            _ = third.recv() => *c,
        };
        u8::try_from(kind.as_raw_value()).unwrap_or(0)
    }
}

/// How a measurement ended, with the requests that it served.
pub(super) enum Attended {
    Finished(Box<Result<Measured, MeasureError>>),
    Signalled {
        signal: u8,
        requests: u64,
        is_in_first_part: bool,
    },
    Lost {
        why: String,
        requests: u64,
    },
}

/// Keeps the samples and shows the progress until the measurement is over, for `limit` at most.
pub(super) async fn attend(
    mut running: Running,
    file: &mut SampleFile,
    limit: Nanos,
    signals: &mut Signals,
    output: &Output,
) -> Result<Attended, Failure> {
    let mut shown = Shown::new(output);
    let mut news = Vec::with_capacity(NEWS_AT_ONCE);
    let mut requests_served = 0;
    let mut came: Option<u8> = None;
    let mut failed: Option<Failure> = None;
    let mut is_late = false;
    let late = tokio::time::sleep(Duration::from_nanos(limit.get()));
    tokio::pin!(late);
    loop {
        tokio::select! {
            () = &mut late, if !is_late => {
                is_late = true;
                running.stop();
            }
            _ = running.news.recv_many(&mut news, NEWS_AT_ONCE) => {}
            signal = signals.next() => {
                came.get_or_insert(signal);
                running.stop();
            }
        }
        for one in news.drain(..) {
            match one {
                News::Served {
                    requests,
                    samples,
                    progress,
                } => {
                    // Requests are counted once they are in the file.
                    if failed.is_none() {
                        match file.append(&requests, &samples) {
                            Ok(()) => requests_served += samples.len() as u64,
                            Err(failure) => {
                                failed = Some(failure);
                                running.stop();
                            }
                        }
                    }
                    shown.show(&progress);
                }
                News::NotCleared(why) => output.note(&format!(
                    "the first MiB and the last 64 KiB could not be zeroed ({why}): `clockwise pool create` needs `--force` for this drive"
                )),
                News::Over(end) => {
                    shown.clear();
                    if let Some(failure) = failed {
                        return Err(failure);
                    }
                    return Ok(match end {
                        End::Finished(result) => Attended::Finished(result),
                        End::Stopped if came.is_none() => Attended::Lost {
                            why: "it took longer than announced: the drive is slow, or its times do not settle".to_owned(),
                            requests: requests_served,
                        },
                        End::Stopped => Attended::Signalled {
                            signal: came.unwrap_or(0),
                            requests: requests_served,
                            is_in_first_part: shown.part == FIRST_PART,
                        },
                        End::Lost(why) => Attended::Lost {
                            why,
                            requests: requests_served,
                        },
                    });
                }
            }
        }
        if running.news.is_closed() && running.news.is_empty() {
            shown.clear();
            return Err(Failure::bug(
                "the thread that measures ended without a result",
            ));
        }
    }
}

/// The progress on the terminal, or a line for each part elsewhere.
struct Shown<'a> {
    output: &'a Output,
    bar: indicatif::ProgressBar,
    part: &'static str,
}

impl<'a> Shown<'a> {
    fn new(output: &'a Output) -> Self {
        Self {
            output,
            bar: output.measure_progress(),
            part: "",
        }
    }

    fn show(&mut self, progress: &Progress) {
        let left = Span(progress.time_left);
        if self.output.has_pictures() {
            self.bar.set_length(progress.served + progress.left);
            self.bar.set_position(progress.served);
            self.bar
                .set_message(format!("{}, about {left} left", progress.part));
        } else if self.part != progress.part {
            self.output
                .note(&format!("{} ... about {left} left", progress.part));
        }
        self.part = progress.part;
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
