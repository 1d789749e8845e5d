//! `clockwise demo`: the whole system at work on three emulated drives.
//!
//! Videos are published, recorded and played over RTSP, by ffmpeg; streams of bytes fill the drives up to
//! about 80 % of what admission allows; and a file system on the same drives is busy. Then a place of a drive
//! fails under a recording. Everything takes a user's way: streams through RTSP or the API and the data socket,
//! files through NBD. At the end it reports the promises and the measurements, and compares every frame and
//! every byte. Without ffmpeg there are
//! streams of bytes only.
//!
//! It leaves nothing behind, also after Ctrl-C. Values own the programs, mounts and files that it makes, and
//! end them when they are dropped, in reverse order.

mod cameras;
mod failing_place;
mod files;
mod interrupt;
mod measure;
mod media;
mod mount;
mod phase;
mod plan;
mod process;
mod report;
mod scratch;
mod stage;
mod streams;
mod text;
mod volumes;

use std::path::PathBuf;
use std::process::ExitCode;

use failing_place::FailingPlace;
use interrupt::{Interrupt, exit_status};
use mount::Mounted;
use tokio::runtime::Runtime;

use crate::failure::{Failure, host_failure};
use crate::print::Output;
use crate::quantity::{QuantityError, parse_seconds};
use crate::wire::view::WarningView;
pub use mount::{MOUNT_DEVICES, MOUNT_PROGRAMS};
use plan::{DRIVE, DRIVES};
use report::Report;
use scratch::Scratch;
use stage::Stage;

/// Videos that are recorded.
const CLIPS: u64 = 2;

/// The longest demo: a day.
const SECONDS_MAX: u64 = 86_400;

/// Parses the length of a demo, in seconds.
fn length(text: &str) -> Result<u64, QuantityError> {
    match parse_seconds(text)? {
        seconds if seconds > SECONDS_MAX => Err(QuantityError::TooLarge {
            most: format!("{SECONDS_MAX} s, a day"),
        }),
        seconds => Ok(seconds),
    }
}

/// Options of the demo.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Seconds to record and play.
    #[arg(long, default_value_t = 60, allow_negative_numbers = true, value_parser = length)]
    seconds: u64,
    /// The folder in which a folder for the drives' data is created [default: /var/tmp].
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// Keep the drives' data at the end.
    #[arg(long)]
    keep: bool,
    /// Omit the run with `edf`.
    #[arg(long)]
    no_edf: bool,
}

/// The command.
pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    let _log = crate::log::start("error", crate::log::LogFormat::Text)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| host_failure("start", &error))?;
    let interrupt = Interrupt::listen(&runtime, *output)?;
    let result = show(args, output, &runtime, interrupt.clone());
    if let Some(signal) = interrupt.nothing_left() {
        let left = if args.keep {
            "the drives' data is kept"
        } else {
            "all files are removed"
        };
        let interrupted = format!("interrupted; {left}");
        if output.is_json() {
            output.failure(
                &Failure::failed(interrupted)
                    .help("run it again, with fewer --seconds if it took too long"),
            );
        } else {
            output.note(&interrupted);
        }
        return Ok(ExitCode::from(exit_status(signal)));
    }
    let report = result?;
    output.result(&report, || text::report(&report))?;
    Ok(if report.is_kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn show(
    args: &Args,
    output: &Output,
    runtime: &Runtime,
    interrupt: Interrupt,
) -> Result<Report, Failure> {
    files::require_fio()?;
    let room = plan::room(args.seconds, !args.no_edf, CLIPS);
    let scratch = Scratch::new(args.scratch.as_deref(), args.keep, room)?;
    // Looked at while the folder is still there: what is full now has room when it is gone.
    play(args, output, runtime, interrupt, &scratch).map_err(|failure| scratch.explain(failure))
}

/// Everything that needs the folder.
fn play(
    args: &Args,
    output: &Output,
    runtime: &Runtime,
    interrupt: Interrupt,
    scratch: &Scratch,
) -> Result<Report, Failure> {
    let (clips, source) = media::clips(output, runtime, &interrupt, scratch.path())?;
    let note = Mounted::obstacle(scratch.path()).map(|obstacle| {
        format!("The file load goes through fio over NBD instead of a mounted ext4: {obstacle}.")
    });
    output.note(&format!(
        "Three emulated drives ({DRIVE}) with their data in {}.\nVideo: {}.",
        scratch.path().display(),
        source.what
    ));
    if let Some(note) = &note {
        output.note(note);
    }
    let repository = match note {
        None => Some(files::make_repository(scratch.path())?),
        Some(_) => None,
    };
    let stage = Stage {
        output,
        runtime,
        interrupt,
        scratch: scratch.path(),
        clips: &clips,
        is_video: source.is_video,
        repository,
    };
    stage.make_pool()?;
    let mut runs = vec![("exact", args.seconds)];
    if !args.no_edf {
        runs.push(("edf", plan::edf_seconds(args.seconds)));
    }
    let mut phases = Vec::new();
    let mut warnings = Vec::new();
    for (index, (scheduler, seconds)) in runs.into_iter().enumerate() {
        let run = stage.run(scheduler, seconds, index == 0)?;
        add_warnings(&mut warnings, run.warnings);
        phases.push(run.phase);
    }
    // Misses under plain EDF break no promise: EDF blocks for as long as best effort takes.
    let is_kept = phases.first().is_some_and(|phase| {
        let failing = phase.failing_place.as_ref();
        phase.misses == 0
            && phase.filmed.is_none_or(|of| of.misses == 0)
            && failing.is_none_or(FailingPlace::is_kept)
    }) && phases
        .iter()
        .all(|phase| phase.different() == 0 && phase.filmed.is_none_or(|of| of.different() == 0));
    let block = phases.first().map_or(0, |phase| phase.block_bytes);
    let cameras = phases.first().map_or(0, |phase| phase.promise.cameras);
    Ok(Report {
        scratch: scratch.path().display().to_string(),
        scratch_is_kept: args.keep,
        drives: format!("{DRIVES} emulated drives of profile {DRIVE}"),
        clips: source,
        load: text::load(block, cameras, note.is_none()),
        file_load_note: note,
        warnings,
        phases,
        is_kept,
    })
}

/// Adds what is new in `more`: most is the same in each run.
fn add_warnings(warnings: &mut Vec<WarningView>, more: Vec<WarningView>) {
    for warning in more {
        match warnings.iter_mut().find(|known| known.what == warning.what) {
            None => warnings.push(warning),
            Some(known) => {
                let mut concerns = warning.concerns;
                concerns.retain(|name| !known.concerns.contains(name));
                known.concerns.append(&mut concerns);
            }
        }
    }
}

/// A linear congruential sequence (the constants are Knuth's); its high bits look random.
fn noise(seed: u64) -> impl Iterator<Item = u64> {
    let next = |state: &u64| {
        Some(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        )
    };
    std::iter::successors(Some(seed + 1), next).skip(1)
}
