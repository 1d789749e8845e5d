//! `clockwise disk measure`: measures a drive and writes its profile.

use std::io::{self, BufRead, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use drives::plant::PlantSpec;
use drives::plant::spec::BUILT_IN;
use measure::facts::Effort;
use measure::machine::{MeasureError, Measured, Progress};
use sched::profile::DriveProfile;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::block_on;
use crate::failure::{Failure, host_failure, io_failure};
use crate::measuring::driver::{self, End, News, Running};
use crate::measuring::evidence::{Circumstances, Evidence};
use crate::measuring::samples::{self, Earlier, SampleFile};
use crate::measuring::settings::{self, Changed, Setting, Tools};
use crate::measuring::smart::Smart;
use crate::measuring::target::{Target, Use};
use crate::measuring::{report, summary};
use crate::print::Output;
use crate::quantity::Span;

/// The exit status of a command that a signal ended is this plus the signal's number.
const SIGNALLED: u8 = 128;
/// The most news that are taken at a time.
const NEWS_AT_ONCE: usize = 1024;

/// Options of `clockwise disk measure`.
#[derive(Args, Debug)]
pub struct MeasureArgs {
    /// The whole block device, or a file.
    device: PathBuf,
    /// The file for the profile. Samples are kept beside it until the measurement is over.
    #[arg(long, value_name = "PROFILE.toml")]
    to: PathBuf,
    /// Write the findings to this file, as a page for a browser.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Measure fewer places and distances, in 10 minutes at most.
    #[arg(long, conflicts_with = "thorough")]
    quick: bool,
    /// Validate ten times as many requests, in an hour at most.
    #[arg(long)]
    thorough: bool,
    /// Measure writes too, which destroys all data on the device.
    #[arg(long)]
    write: bool,
    /// The name of the device whose data `--write` destroys; without it the name is asked for on the terminal.
    #[arg(long, value_name = "NAME", requires = "write")]
    destroy: Option<String>,
    /// Measure a device that is mounted or in use.
    #[arg(long, conflicts_with = "write")]
    read_only: bool,
    /// Write the profile without asking.
    #[arg(long)]
    accept: bool,
    /// Overwrite a profile that exists.
    #[arg(long)]
    force: bool,
    /// Discard the samples of an interrupted measurement.
    #[arg(long)]
    restart: bool,
    /// Keep the samples when the measurement is over.
    #[arg(long)]
    keep_samples: bool,
    /// The device is the file of an emulated drive with this plant.
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
}

impl MeasureArgs {
    fn effort(&self) -> Effort {
        match (self.quick, self.thorough) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Thorough,
            _ => Effort::Normal,
        }
    }

    fn target(&self) -> Result<Target, Failure> {
        let plant = self.plant.as_deref().map(plant).transpose()?;
        let how = match (self.write, self.read_only) {
            (true, _) => Use::Write,
            (_, true) => Use::ReadShared,
            _ => Use::Read,
        };
        Target::of(&self.device, plant, how)
    }
}

fn plant(name: &str) -> Result<PlantSpec, Failure> {
    if !name.ends_with(".toml") {
        return PlantSpec::built_in(name).ok_or_else(|| {
            Failure::bad_input(format!("no drive model is called `{name}`")).help(format!(
                "give a built-in model ({}), or a file whose name ends in .toml",
                BUILT_IN.join(", ")
            ))
        });
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path).map_err(|error| io_failure("read", path, &error))?;
    PlantSpec::parse(&text).map_err(|error| {
        Failure::bad_input(format!("{name}: {error}"))
            .help("correct that file, or give a built-in model")
    })
}

pub(super) fn run(args: &MeasureArgs, output: &Output) -> Result<ExitCode, Failure> {
    let target = args.target()?;
    check_outputs(args)?;
    output.note(&summary::announced(target.may_rotate(), args.effort()));
    if args.write {
        confirm_destruction(args, &target)?;
    }
    block_on(measure(args, &target, output))
}

/// What would fail at the end of the measurement fails before it.
fn check_outputs(args: &MeasureArgs) -> Result<(), Failure> {
    if args.to.exists() && !args.force {
        return Err(Failure::bad_input(format!("{} exists", args.to.display()))
            .help("give `--force` to overwrite it, or another file"));
    }
    for path in std::iter::once(&args.to).chain(&args.report) {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() || path.is_dir() {
            return Err(Failure::bad_input(format!(
                "{} cannot be written: there is no folder for it, or it is a folder itself",
                path.display()
            ))
            .help("give a file in a folder that exists"));
        }
    }
    Ok(())
}

/// True if a person can be asked.
fn has_person(output: &Output) -> bool {
    !output.is_json() && io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn confirm_destruction(args: &MeasureArgs, target: &Target) -> Result<(), Failure> {
    let name = target.name();
    let typed = match &args.destroy {
        Some(typed) => typed.clone(),
        None if io::stdin().is_terminal() && io::stderr().is_terminal() => {
            let question = format!(
                "All data on {} ({}) will be destroyed. Type {name} to go on: ",
                target.path.display(),
                target.model()
            );
            asked(&question)?
        }
        None => {
            return Err(Failure::bad_input(format!(
                "`--write` destroys all data on {}",
                target.path.display()
            ))
            .help(format!(
                "give `--destroy {name}` if that is what you want, or leave `--write` out"
            )));
        }
    };
    if target.is_called(typed.trim()) {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{typed:?} is not the name of {}, so nothing is written",
        target.path.display()
    ))
    .help(format!(
        "the name is {name}; leave `--write` out to measure reads only"
    )))
}

/// A line that a person types after a question on standard error.
fn asked(question: &str) -> Result<String, Failure> {
    let mut err = io::stderr().lock();
    let mut line = String::new();
    let answer = write!(err, "{}", crate::text::printable(question))
        .and_then(|()| err.flush())
        .and_then(|()| io::stdin().lock().read_line(&mut line));
    answer.map_err(|error| host_failure("read an answer", &error))?;
    Ok(line.trim().to_owned())
}

/// Signals that end the command.
struct Signals([(SignalKind, Signal); 3]);

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let failed = |error: io::Error| host_failure("wait for signals", &error);
        let listen = |kind| Ok((kind, signal(kind).map_err(failed)?));
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    /// The number of the next signal.
    async fn next(&mut self) -> u8 {
        let [(a, first), (b, second), (c, third)] = &mut self.0;
        let kind = tokio::select! {
            _ = first.recv() => *a,
            _ = second.recv() => *b,
            _ = third.recv() => *c,
        };
        u8::try_from(kind.as_raw_value()).unwrap_or(0)
    }
}

async fn measure(
    args: &MeasureArgs,
    target: &Target,
    output: &Output,
) -> Result<ExitCode, Failure> {
    // Before anything is changed that has to be restored.
    let mut signals = Signals::listen()?;
    let tools = Tools::usual();
    let serial = target.identity.serial.clone().unwrap_or_default();
    restore_earlier(args, target, &serial, &tools, output)?;
    let memory = driver::memory()?;
    let disk = target.open(&memory)?;
    let mut caveats = disk.caveats();
    let facts = target.facts(&*disk);
    let earlier = match args.restart {
        true => Earlier::Discard,
        false => Earlier::Continue,
    };
    let path = samples::path_of(&args.to);
    let opened = SampleFile::open(&path, &facts, &serial, args.effort(), earlier)?;
    if opened.continued > 0 {
        output.note(&format!("continuing after {} requests", opened.continued));
    }
    let mut file = opened.file;
    let mut settings = turn_off(args, target, &serial, &tools)?;
    for remark in settings.iter().flat_map(|settings| &settings.remarks) {
        output.note(remark);
    }
    let running = driver::start(disk, &memory, opened.begun)?;
    caveats.extend(
        running.denied.iter().map(|denied| {
            format!("the host denied {denied}: times may include delays of the host")
        }),
    );
    let attended = attend(running, &mut file, &mut signals, output).await;
    if let Some(settings) = &mut settings {
        for left in settings.restore() {
            output.note(&left);
        }
    }
    let measured = match attended? {
        Attended::Signalled { signal, requests } => {
            let served = opened.continued + requests;
            return stopped(signal, served, file.path(), output);
        }
        Attended::Lost { why, requests } => {
            let served = opened.continued + requests;
            return Err(Failure::failed(format!(
                "{}: after {served} requests {why}",
                target.path.display()
            ))
            .help("look at the cable, the drive and `dmesg`; the same command continues"));
        }
        Attended::Finished(result) => match *result {
            Ok(measured) => measured,
            Err(error) => return Err(not_measured(target, error, file)),
        },
    };
    let smart = match target.is_device() {
        true => Smart::of(&tools, &target.path),
        false => Smart::default(),
    };
    let of = Circumstances {
        target,
        smart: &smart,
        settings: settings.as_ref(),
        effort: args.effort(),
        caveats: &caveats,
    };
    let evidence = Evidence::new(&measured, &of, SystemTime::now());
    conclude(args, &measured, &evidence, file, &mut signals, output).await
}

/// Restores the settings that a crashed measurement left changed.
fn restore_earlier(
    args: &MeasureArgs,
    target: &Target,
    serial: &str,
    tools: &Tools,
    output: &Output,
) -> Result<(), Failure> {
    let file = settings::path_of(&args.to);
    let left = Changed::left_behind(tools.clone(), &file, &target.path, serial)?;
    let Some(mut left) = left else {
        return Ok(());
    };
    let remaining = left.restore();
    if remaining.is_empty() {
        output.note("an earlier measurement ended before it restored the drive's settings; they are restored now");
        return Ok(());
    }
    Err(Failure::failed(format!(
        "an earlier measurement ended before it restored the drive's settings: {}",
        remaining.join("; ")
    ))
    .help(format!(
        "restore them yourself and remove {}",
        file.display()
    )))
}

/// Turns off the settings of drives that have some; others have none that a tool could change.
fn turn_off(
    args: &MeasureArgs,
    target: &Target,
    serial: &str,
    tools: &Tools,
) -> Result<Option<Changed>, Failure> {
    let is_disk = target.is_device() && target.identity.name.starts_with("sd");
    // Beside other users the drive stays as it is.
    if !is_disk || target.how == Use::ReadShared {
        return Ok(None);
    }
    let wanted: &[Setting] = match target.how {
        Use::Write => &[Setting::ReadLookAhead, Setting::WriteCache],
        Use::Read | Use::ReadShared => &[Setting::ReadLookAhead],
    };
    let file = settings::path_of(&args.to);
    Changed::turn_off(tools.clone(), &file, &target.path, serial, wanted).map(Some)
}

/// How a measurement ended, with the requests that it served.
enum Attended {
    Finished(Box<Result<Measured, MeasureError>>),
    Signalled { signal: u8, requests: u64 },
    Lost { why: String, requests: u64 },
}

/// Keeps the samples and shows the progress until the measurement is over.
async fn attend(
    mut running: Running,
    file: &mut SampleFile,
    signals: &mut Signals,
    output: &Output,
) -> Result<Attended, Failure> {
    let mut shown = Shown::new(output);
    let mut news = Vec::with_capacity(NEWS_AT_ONCE);
    let mut requests_served = 0;
    let mut came: Option<u8> = None;
    let mut failed: Option<Failure> = None;
    loop {
        tokio::select! {
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
                    // What is not in the file is not counted.
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
                News::Over(end) => {
                    shown.clear();
                    if let Some(failure) = failed {
                        return Err(failure);
                    }
                    return Ok(match end {
                        End::Finished(result) => Attended::Finished(result),
                        End::Stopped => Attended::Signalled {
                            signal: came.unwrap_or(0),
                            requests: requests_served,
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

/// The result of a measurement that a signal stopped.
#[derive(Serialize)]
struct Stopped<'a> {
    stopped: bool,
    requests: u64,
    samples: &'a Path,
}

fn stopped(
    signal: u8,
    requests: u64,
    samples: &Path,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let result = Stopped {
        stopped: true,
        requests,
        samples,
    };
    output.result(&result, || {
        format!(
            "stopped after {requests} requests, which are kept in {}; the same command continues",
            samples.display()
        )
    })?;
    Ok(ExitCode::from(SIGNALLED + signal))
}

/// The failure of a measurement without a profile.
fn not_measured(target: &Target, error: MeasureError, file: SampleFile) -> Failure {
    let what = format!("{}: {error}", target.path.display());
    match error {
        MeasureError::TooSmall { .. } => {
            // There is nothing to continue from, and nobody needs a second message.
            let _ = file.remove();
            Failure::bad_input(what).help("measure a larger device or file")
        }
        MeasureError::Failing { .. } => Failure::failed(what).help(
            "look at the cable, the drive and `dmesg`; when it is repaired, `--restart` measures it anew",
        ),
        MeasureError::NoProfile(_) | MeasureError::Unsettled(_) => Failure::failed(what).help(
            "end all other use of the drive and of this machine's processors, and measure anew with `--restart`",
        ),
    }
}

/// The result of a whole measurement.
#[derive(Serialize)]
struct Concluded<'a> {
    profile: &'a Path,
    report: Option<&'a Path>,
    #[serde(flatten)]
    evidence: &'a Evidence,
}

/// Shows the findings, and writes the profile if it is accepted.
async fn conclude(
    args: &MeasureArgs,
    measured: &Measured,
    evidence: &Evidence,
    file: SampleFile,
    signals: &mut Signals,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let profile = evidence
        .profile(&measured.profile)
        .map_err(|error| Failure::bug(format!("the measured profile is not valid: {error}")))?;
    if let Some(path) = &args.report {
        std::fs::write(path, report::page(evidence))
            .map_err(|error| io_failure("write the report to", path, &error))?;
    }
    if !output.is_json() {
        let text = summary::lines(evidence).join("\n") + "\n";
        output.bytes(crate::text::printable(&text).as_bytes())?;
    }
    if !args.accept && has_person(output) {
        let question = format!("Write the profile to {}? [y/N] ", args.to.display());
        let answer = tokio::task::spawn_blocking(move || asked(&question));
        let answer = tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| Ok(String::new()))?,
            signal = signals.next() => return stopped(signal, evidence.findings.served, file.path(), output),
        };
        if !matches!(answer.to_lowercase().as_str(), "y" | "yes") {
            output.note(&format!(
                "not written; the samples are kept in {}, and the same command asks again",
                file.path().display()
            ));
            return Ok(ExitCode::SUCCESS);
        }
    }
    write_profile(&args.to, &profile, args.force)?;
    if !args.keep_samples {
        file.remove()?;
    }
    let result = Concluded {
        profile: &args.to,
        report: args.report.as_deref(),
        evidence,
    };
    output.result(&result, || {
        let report = args.report.as_ref().map_or(String::new(), |path| {
            format!("the report is in {}; ", path.display())
        });
        format!(
            "{report}the profile is in {}: name it as the disk's `profile` in the configuration",
            args.to.display()
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write_profile(path: &Path, profile: &DriveProfile, force: bool) -> Result<(), Failure> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(profile.to_toml().as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::bad_input(format!("{} exists by now", path.display()))
            .help("give the same command with `--force`; nothing is measured again"),
        _ => io_failure("write the profile to", path, &error),
    })
}
