//! `clockwise disk measure`: measures a drive and writes its profile.

mod answer;
mod attend;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use drives::plant::PlantSpec;
use drives::plant::spec::BUILT_IN;
use measure::facts::Effort;
use measure::machine::MeasureError;

use self::answer::{conclude, confirm_destruction, stopped};
use self::attend::{Attended, Signals, attend};
use super::super::block_on;
use crate::failure::{Failure, io_failure};
use crate::measuring::driver;
use crate::measuring::evidence::{Circumstances, Evidence};
use crate::measuring::samples::{self, Earlier, SampleFile};
use crate::measuring::settings::{self, Changed, Setting, Tools};
use crate::measuring::smart::Smart;
use crate::measuring::summary;
use crate::measuring::target::{Target, Use};
use crate::print::Output;
use sched::units::Nanos;

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
    let limit = summary::limit(target.may_rotate(), args.effort());
    output.note(&summary::announced(limit));
    if args.write {
        confirm_destruction(args, &target)?;
    }
    block_on(measure(args, &target, limit, output))
}

/// Finds output files that could not be written before the measurement, not after it.
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

async fn measure(
    args: &MeasureArgs,
    target: &Target,
    limit: Nanos,
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
    let attended = attend(running, &mut file, limit, &mut signals, output).await;
    if let Some(settings) = &mut settings {
        for left in settings.restore() {
            output.note(&left);
        }
    }
    let measured = match attended? {
        Attended::Signalled { signal, requests } => {
            return stopped(signal, opened.continued + requests, file.path(), output);
        }
        Attended::Lost { why, requests } => {
            return Err(lost(target, &why, opened.continued + requests));
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

/// The failure of a measurement whose drive went away.
fn lost(target: &Target, why: &str, requests: u64) -> Failure {
    Failure::failed(format!(
        "{}: after {requests} requests {why}",
        target.path.display()
    ))
    .help("look at the cable, the drive and `dmesg`; the same command continues")
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
        MeasureError::Crowded { .. } => Failure::failed(what).help(
            "measure anew with `--restart` at a time at which streams leave the drive idle now and then",
        ),
        MeasureError::NoProfile(_) | MeasureError::Unsettled(_) => Failure::failed(what).help(
            "end all other use of the drive and of this machine's processors, and measure anew with `--restart`",
        ),
    }
}
