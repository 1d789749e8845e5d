//! `clockwise disk measure`: measures a drive and writes its profile.

mod answer;
mod attend;
mod online;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use drives::plant::PlantSpec;
use drives::plant::spec::BUILT_IN;
use engine::buffer::Memory;
use engine::disk::Disk;
use measure::facts::{Effort, Facts};
use measure::machine::MeasureError;

use self::answer::{conclude, confirm_destruction, stopped};
use self::attend::{Attended, Signals, attend};
use self::online::Online;
use super::super::{Cli, block_on};
use crate::failure::{Failure, io_failure};
use crate::measuring::driver;
use crate::measuring::evidence::{Circumstances, Evidence};
use crate::measuring::samples::{self, Earlier, Opened, SampleFile};
use crate::measuring::settings::{self, Changed, Setting, Tools};
use crate::measuring::smart::Smart;
use crate::measuring::summary;
use crate::measuring::target::{Target, Use};
use crate::print::Output;
use sched::units::Nanos;

/// Options of `clockwise disk measure`.
#[derive(Args, Debug)]
pub struct MeasureArgs {
    /// The whole block device, or a file. With `--online` the disk's number, its name, or the last part of its name.
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
    /// Measure a disk of a running pool, as best effort: no stream misses a deadline by it.
    #[arg(long)]
    online: bool,
    /// Measure writes too, which destroys all data on the device. With `--online` only free extents are written, and no
    /// data is lost.
    #[arg(long)]
    write: bool,
    /// The name of the device whose data `--write` destroys; without it the name is asked for on the terminal.
    #[arg(
        long,
        value_name = "NAME",
        requires = "write",
        conflicts_with = "online"
    )]
    destroy: Option<String>,
    /// Measure a device that is mounted or in use.
    #[arg(long, conflicts_with_all = ["write", "online"])]
    read_only: bool,
    /// Write the profile without asking. Without a terminal, and with `--json`, nothing is asked, and the profile is
    /// written at once.
    #[arg(long)]
    accept: bool,
    /// Overwrite a profile and a report that exist.
    #[arg(long)]
    force: bool,
    /// Discard the samples of an interrupted measurement.
    #[arg(long)]
    restart: bool,
    /// Keep the samples when the measurement is over.
    #[arg(long)]
    keep_samples: bool,
    /// The device is the file of an emulated drive with this plant.
    #[arg(long, value_name = "NAME", conflicts_with = "online")]
    plant: Option<String>,
    /// The caller names the profile in the configuration.
    #[arg(skip)]
    will_be_named: bool,
}

impl MeasureArgs {
    /// A measurement with writes of a device whose data may be lost.
    pub(super) fn destroying(device: &Path, to: &Path, effort: Effort) -> Self {
        Self {
            device: device.to_owned(),
            to: to.to_owned(),
            report: None,
            quick: effort == Effort::Quick,
            thorough: effort == Effort::Thorough,
            online: false,
            write: true,
            destroy: Some(device.to_string_lossy().into_owned()),
            read_only: false,
            accept: true,
            force: false,
            restart: false,
            keep_samples: false,
            plant: None,
            will_be_named: true,
        }
    }

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

pub(super) fn run(cli: &Cli, args: &MeasureArgs, output: &Output) -> Result<ExitCode, Failure> {
    if args.online {
        return run_online(cli, args, output);
    }
    let target = args.target()?;
    check_outputs(args)?;
    let limit = summary::limit(target.may_rotate(), args.effort());
    output.note(&summary::announced(limit));
    if target.holes_percent() >= HOLES_PERCENT_MANY {
        output.note(&format!(
            "{} % of the file were never written and are read without the disk: write it once, and measure it then",
            target.holes_percent()
        ));
    }
    if args.write {
        confirm_destruction(args, &target, output)?;
    }
    block_on(measure(args, &target, limit, output))
}

/// A file with more holes than this shows little of its disk.
const HOLES_PERCENT_MANY: u64 = 10;

/// Finds output files that could not be written before the measurement, not after it.
fn check_outputs(args: &MeasureArgs) -> Result<(), Failure> {
    if args.to.exists() && !args.force {
        return Err(Failure::bad_input(format!("{} exists", args.to.display()))
            .help("give `--force` to overwrite it, or another file"));
    }
    // A report that was shown before the question is written again when the same command asks again.
    let is_begun = samples::path_of(&args.to).exists();
    if let Some(report) = args.report.as_deref().filter(|report| report.exists())
        && !args.force
        && !is_begun
    {
        return Err(Failure::bad_input(format!("{} exists", report.display()))
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

/// The remark on `--write` with `--online` where nothing can be written.
const NOTHING_LENT: &str = "the disk has too few free extents to lend one, so writes are not measured: the profile is an estimate";

fn run_online(cli: &Cli, args: &MeasureArgs, output: &Output) -> Result<ExitCode, Failure> {
    check_outputs(args)?;
    let client = cli.client()?;
    output.note(&summary::announced_online(summary::limit(
        true,
        args.effort(),
    )));
    block_on(async {
        let signals = Signals::listen()?;
        let online = Online::begin(client, args).await?;
        let target = online.target.clone();
        let facts = online.facts();
        let mut caveats = Vec::new();
        if args.write && !facts.has_writes() {
            output.note(NOTHING_LENT);
            caveats.push(NOTHING_LENT.to_owned());
        }
        let measured = Prepared {
            target: &target,
            facts,
            server: Server::Pool(Box::new(online)),
            limit: summary::LIMIT_ONLINE,
            caveats,
            tools: Tools::usual(),
        };
        measured.measure(args, signals, output).await
    })
}

async fn measure(
    args: &MeasureArgs,
    target: &Target,
    limit: Nanos,
    output: &Output,
) -> Result<ExitCode, Failure> {
    // Before anything is changed that has to be restored.
    let signals = Signals::listen()?;
    let memory = driver::memory()?;
    let disk = target.open(&memory)?;
    let measured = Prepared {
        target,
        facts: target.facts(&*disk),
        caveats: disk.caveats(),
        server: Server::Disk(disk, memory),
        limit,
        tools: Tools::usual(),
    };
    measured.measure(args, signals, output).await
}

/// The place where requests are served.
enum Server {
    Disk(Box<dyn Disk>, Memory),
    Pool(Box<Online>),
}

/// A measurement that can begin.
struct Prepared<'a> {
    target: &'a Target,
    facts: Facts,
    server: Server,
    limit: Nanos,
    /// Deviations of the disk from what the schedule assumes.
    caveats: Vec<String>,
    tools: Tools,
}

impl Prepared<'_> {
    /// Opens the samples. A measurement under way has the drive or the samples locked, and its settings stay as they
    /// are. So settings are restored when both are locked here.
    fn samples(&self, args: &MeasureArgs, output: &Output) -> Result<Opened, Failure> {
        let earlier = match args.restart {
            true => Earlier::Discard,
            false => Earlier::Continue,
        };
        let file = SampleFile::lock(&samples::path_of(&args.to))?;
        let serial = self.target.identity.serial.as_deref().unwrap_or_default();
        if self.target.how != Use::Online {
            restore_earlier(args, self.target, serial, &self.tools, output)?;
        }
        file.begin(&self.facts, serial, args.effort(), earlier)
    }

    async fn measure(
        mut self,
        args: &MeasureArgs,
        mut signals: Signals,
        output: &Output,
    ) -> Result<ExitCode, Failure> {
        let target = self.target;
        let opened = match (self.samples(args, output), &self.server) {
            (Err(failure), Server::Pool(online)) => {
                online.end().await;
                return Err(failure);
            }
            (opened, _) => opened?,
        };
        if opened.continued > 0 {
            output.note(&format!("continuing after {} requests", opened.continued));
        }
        let mut file = opened.file;
        let mut settings = turn_off(args, target, &self.tools)?;
        for remark in settings.iter().flat_map(|settings| &settings.remarks) {
            output.note(remark);
        }
        let running = match self.server {
            Server::Disk(disk, memory) => driver::start(disk, &memory, opened.begun)?,
            Server::Pool(online) => online.start(opened.begun),
        };
        self.caveats.extend(running.denied.iter().map(|denied| {
            format!("the host denied {denied}: times may include delays of the host")
        }));
        let attended = attend(running, &mut file, self.limit, &mut signals, output).await;
        if let Some(settings) = &mut settings {
            for left in settings.restore() {
                output.note(&left);
            }
        }
        let measured = match attended? {
            Attended::Signalled {
                signal,
                is_in_first_part: true,
                ..
            } => return stopped(signal, 0, file.path(), output),
            Attended::Signalled {
                signal, requests, ..
            } => return stopped(signal, opened.continued + requests, file.path(), output),
            Attended::Lost { why, requests } => {
                return Err(lost(target, &why, opened.continued + requests));
            }
            Attended::Finished(result) => match *result {
                Ok(measured) => measured,
                Err(error) => return Err(not_measured(target, error, file)),
            },
        };
        let smart = match target.is_device() {
            true => Smart::of(&self.tools, &target.path),
            false => Smart::default(),
        };
        let of = Circumstances {
            target,
            smart: &smart,
            settings: settings.as_ref(),
            effort: args.effort(),
            caveats: &self.caveats,
        };
        let evidence = Evidence::new(&measured, &of, SystemTime::now());
        conclude(args, &measured, &evidence, file, &mut signals, output).await
    }
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
    tools: &Tools,
) -> Result<Option<Changed>, Failure> {
    let serial = target.identity.serial.as_deref().unwrap_or_default();
    let is_disk = target.is_device() && target.identity.name.starts_with("sd");
    let wanted: &[Setting] = match target.how {
        Use::Write if is_disk => &[Setting::ReadLookAhead, Setting::WriteCache],
        Use::Read if is_disk => &[Setting::ReadLookAhead],
        // Beside other users the drive stays as it is.
        _ => return Ok(None),
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
    .help(match (target.how == Use::Online, target.is_device()) {
        (true, _) => {
            "look at the server's log and `clockwise disk show`; the same command continues"
        }
        (false, true) => "look at the cable, the drive and `dmesg`; the same command continues",
        (false, false) => {
            "look at the file and the host's disk (`dmesg`); the same command continues"
        }
    })
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
        MeasureError::Failing { .. } if !target.is_device() => Failure::failed(what).help(
            "look at the host's disk and `dmesg`; when it is repaired, `--restart` measures it anew",
        ),
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
