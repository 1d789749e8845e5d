//! `clockwise demo`: the whole system at work on three emulated drives.
//!
//! Two videos are recorded and as many played as reach about 80 % of what admission allows, while a
//! file system on the same drives is busy. Everything goes the way it goes for a user: streams
//! through the API and the data socket, files through NBD. At the end it says what was promised and
//! what was measured, and compares every byte.
//!
//! Whatever happens, Ctrl-C included, nothing is left behind: what was started is owned by values
//! that end it when they are dropped, in the reverse order of its making.

mod files;
mod media;
mod phase;
mod process;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cmd::Output;
use crate::failure::{Failure, io_failure};
use phase::Stage;
use report::Report;

/// The drive that is emulated, and its profile: a present-day one.
const DRIVE: &str = "hdd-8tb-7200";

/// How many of them.
const DRIVES: usize = 3;

/// Seconds with `edf` beside a run of 60 s; in the same proportion for others.
const EDF_SECONDS_PER_MINUTE: u64 = 20;

/// How a process that was interrupted ends, as shells expect it.
const INTERRUPTED: u8 = 130;

/// How the demo runs.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How long to record and play.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Where to keep the drives' data [default: a folder of its own in /var/tmp].
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// Leave the drives' data there at the end.
    #[arg(long)]
    keep: bool,
    /// Leave out the run with `edf`.
    #[arg(long)]
    no_edf: bool,
}

/// Whether somebody wants the demo to end.
#[derive(Clone)]
struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    fn listen(runtime: &Runtime) -> Result<Self, Failure> {
        let (sender, receiver) = watch::channel(false);
        let _guard = runtime.enter();
        let failed =
            |error: std::io::Error| Failure::failed(format!("cannot wait for signals: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
        runtime.spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            sender.send_replace(true);
            // Keeps the channel, so that nobody takes its end for a signal that was not given.
            std::future::pending::<()>().await;
        });
        Ok(Self(receiver))
    }

    fn check(&self) -> Result<(), Failure> {
        if *self.0.borrow() {
            Err(Failure::failed("interrupted"))
        } else {
            Ok(())
        }
    }

    /// Waits, unless it is interrupted.
    fn wait(&mut self, runtime: &Runtime, time: Duration) -> Result<(), Failure> {
        let is_interrupted = runtime.block_on(async {
            tokio::time::timeout(time, self.0.wait_for(|is_interrupted| *is_interrupted))
                .await
                .is_ok()
        });
        if is_interrupted {
            Err(Failure::failed("interrupted"))
        } else {
            Ok(())
        }
    }
}

/// A folder for the drives' data.
enum Scratch {
    /// Goes away with this value.
    Temporary(tempfile::TempDir),
    /// Stays.
    Kept(PathBuf),
}

impl Scratch {
    fn new(args: &Args) -> Result<Self, Failure> {
        let parent = match &args.scratch {
            Some(folder) => {
                std::fs::create_dir_all(folder)
                    .map_err(|error| io_failure("make the folder", folder, &error))?;
                std::path::absolute(folder).map_err(|error| io_failure("find", folder, &error))?
            }
            // /tmp may be in memory; sparse files of terabytes belong on a disk.
            None if Path::new("/var/tmp").is_dir() => PathBuf::from("/var/tmp"),
            None => std::env::temp_dir(),
        };
        let folder = tempfile::Builder::new()
            .prefix("clockwise-demo-")
            .tempdir_in(&parent)
            .map_err(|error| io_failure("make a folder in", &parent, &error))?;
        Ok(if args.keep {
            Self::Kept(folder.keep())
        } else {
            Self::Temporary(folder)
        })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

/// The command.
pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    crate::cmd::start_log("error");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let interrupt = Interrupt::listen(&runtime)?;
    let result = show(args, output, &runtime, interrupt.clone());
    let is_interrupted = interrupt.check().is_err();
    match result {
        Ok(report) => {
            output.result(&report, || report::text(&report))?;
            Ok(if report.is_kept {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Err(_) if is_interrupted => {
            output.note("interrupted; nothing is left behind");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(failure) => Err(failure),
    }
}

fn show(
    args: &Args,
    output: &Output,
    runtime: &Runtime,
    interrupt: Interrupt,
) -> Result<Report, Failure> {
    files::require_fio()?;
    let scratch = Scratch::new(args)?;
    let (clips, source) = media::clips(scratch.path())?;
    let obstacle = files::Mounted::obstacle();
    output.note(&format!(
        "Three emulated drives ({DRIVE}) with their data in {}.\nVideo: {}.",
        scratch.path().display(),
        source.what
    ));
    if let Some(obstacle) = obstacle {
        output.note(&format!(
            "The file load goes through fio over NBD instead of a mounted ext4: {obstacle}."
        ));
    }
    let repository = match obstacle {
        None => Some(files::make_repository(scratch.path())?),
        Some(_) => None,
    };
    let mut stage = Stage {
        output,
        runtime,
        interrupt,
        scratch: scratch.path(),
        clips: &clips,
        repository,
    };
    stage.make_pool()?;
    let mut runs = vec![("exact", args.seconds)];
    if !args.no_edf {
        runs.push(("edf", (args.seconds * EDF_SECONDS_PER_MINUTE / 60).max(1)));
    }
    let mut phases = Vec::new();
    let mut warnings = Vec::new();
    for (index, (scheduler, seconds)) in runs.into_iter().enumerate() {
        let run = stage.run(scheduler, seconds, index == 0)?;
        warnings = run.warnings;
        phases.push(run.phase);
    }
    // EDF, like every scheduler here, must not miss what was admitted.
    let is_kept = phases
        .iter()
        .all(|phase| phase.misses == 0 && phase.different() == 0);
    Ok(Report {
        scratch: scratch.path().display().to_string(),
        scratch_is_kept: args.keep,
        drives: format!("{DRIVES} emulated drives of profile {DRIVE}"),
        clips: source,
        file_load_note: obstacle.map(str::to_owned),
        warnings,
        phases,
        is_kept,
    })
}
