//! `clockwise init`: the first pool of a host, from its drives to the configuration.
//!
//! The order is such that each step can be repeated: questions, measurements (an interrupted one continues), the pool,
//! and the configuration at last. Nothing is written before the person has named the disks whose data is lost.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use measure::facts::Effort;
use sched::units::Bytes;
use serde::Serialize;

use super::question::{asked, has_person};
use super::{Cli, disk, pool};
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::first_pool::{self, Candidate, ConfigFile, NewDisk};
use crate::measuring::summary;
use crate::print::{Output, counted, table};
use crate::quantity::{Size, parse_size};

/// Options of `clockwise init`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The disks of the pool: names such as sdb, or paths. All data on them will be lost. Without any, the command
    /// lists the drives of this host and asks.
    disks: Vec<String>,
    /// For a first try: have no drive, but a file of this size in the state folder, such as 16GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["disks", "measure"])]
    file: Option<Bytes>,
    /// Measure the disks, so that promises rest on them. Without it a disk has the profile beside the configuration
    /// that is named after it, or a cautious guess [default: asked on a terminal, else none].
    #[arg(long, value_name = "EFFORT", value_enum)]
    measure: Option<MeasureChoice>,
    /// The name of a disk whose data may be lost, for each disk; without it the names are asked for on the terminal.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    destroy: Vec<String>,
    /// List the drives of this host and what is on them, and change nothing.
    #[arg(long, conflicts_with_all = ["file", "measure", "destroy"])]
    list: bool,
}

/// The effort of the measurement of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum MeasureChoice {
    /// Not measured.
    None,
    /// 10 minutes at most for each disk.
    Quick,
    /// 30 minutes at most for each disk.
    Normal,
    /// An hour at most for each disk.
    Thorough,
}

impl MeasureChoice {
    fn effort(self) -> Option<Effort> {
        match self {
            Self::None => None,
            Self::Quick => Some(Effort::Quick),
            Self::Normal => Some(Effort::Normal),
            Self::Thorough => Some(Effort::Thorough),
        }
    }
}

/// The pool that was made.
#[derive(Serialize)]
struct Made {
    config: PathBuf,
    #[serde(flatten)]
    pool: pool::Created,
    next: Vec<String>,
}

pub(super) fn run(cli: &Cli, args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    let mut drives = Candidate::of(&args.disks)?;
    if args.list {
        output.result(&drives, || candidates_text(&drives))?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = ConfigFile::read(&cli.config_path())?;
    let mut disks = Vec::new();
    let made_file = args.file.map(|size| file.disk_file(size)).transpose()?;
    if let Some(made) = &made_file {
        drives.clear();
        disks.push(made.clone());
    } else if args.disks.is_empty() {
        drives = chosen(drives, output)?;
    }
    for drive in &drives {
        drive.check()?;
        disks.push(NewDisk::of_drive(&drive.path, file.profile_of(drive))?);
    }
    // Mistakes are found before anything is destroyed.
    file.with(&disks)?;
    let effort = effort(args, &file, &drives, output)?;
    confirm_destruction(args, &drives, output)?;
    if let Some(effort) = effort {
        for (drive, disk) in drives.iter().zip(&mut disks) {
            if disk.profile.is_some() {
                continue;
            }
            let profile = file.profile_path(drive);
            output.note(&format!("measuring {}", drive.name));
            let code = disk::measure_all(cli, &drive.path, &profile, effort, output)?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
            first_pool::share(&profile)?;
            disk.profile = file.profile_of(drive);
        }
    }
    let (text, config) = file.with(&disks)?;
    file.check_unchanged()?;
    file.make_state_folder(&config)?;
    let created = pool::make(&config, config.extent, true, output)?;
    if let Some(disk) = &made_file {
        first_pool::give_to_owner_of_folder(&disk.path)?;
    }
    file.check_unchanged()?;
    file.write(&text)?;
    let made = Made {
        next: next(&file, &config),
        config: file.path.clone(),
        pool: created,
    };
    output.result(&made, || made_text(&made))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks a person which of the drives the pool shall have.
fn chosen(drives: Vec<Candidate>, output: &Output) -> Result<Vec<Candidate>, Failure> {
    const NOTHING: &str = "no disk is chosen, so nothing is changed";
    let help = "name disks, such as `clockwise init sdb`; `clockwise init --list` shows them; `--file 16GiB` has a disk in a file, for a first try";
    if !drives.iter().any(|drive| drive.obstacle.is_none()) {
        output.note(&candidates_text(&drives));
        return Err(Failure::bad_input("this host has no drive that a pool could have").help(
            "connect one, or end the use of one; `--file 16GiB` has a disk in a file, for a first try",
        ));
    }
    if !has_person(output) {
        return Err(Failure::bad_input(NOTHING).help(help));
    }
    output.note(&candidates_text(&drives));
    let typed = asked("Names of the disks for the pool, with blanks between: ")?;
    let names: Vec<String> = typed.split_whitespace().map(str::to_owned).collect();
    if names.is_empty() {
        return Err(Failure::bad_input(NOTHING).help(help));
    }
    Candidate::of(&names)
}

/// The effort of the measurements, if any: as told, or as a person answers.
fn effort(
    args: &Args,
    file: &ConfigFile,
    drives: &[Candidate],
    output: &Output,
) -> Result<Option<Effort>, Failure> {
    let effort = match args.measure {
        Some(choice) => choice.effort(),
        None => asked_effort(file, drives, output)?,
    };
    if effort.is_none() {
        return Ok(None);
    }
    if output.is_json() {
        return Err(Failure::bad_input("`--measure` reports what it finds to a person, and `--json` to a program")
            .help("measure first with `clockwise disk measure`, whose profile this command finds beside the configuration"));
    }
    let part = drives.iter().find(|drive| !drive.is_whole());
    if let Some(part) = part {
        return Err(Failure::bad_input(format!(
            "{} is a part of a drive, whose times do not show the drive's geometry",
            part.path.display()
        ))
        .help("give the whole drive, or leave `--measure` out"));
    }
    Ok(effort)
}

fn asked_effort(
    file: &ConfigFile,
    drives: &[Candidate],
    output: &Output,
) -> Result<Option<Effort>, Failure> {
    let mut unknown = drives
        .iter()
        .filter(|drive| file.profile_of(drive).is_none());
    let is_possible = drives.iter().all(|drive| drive.is_whole());
    if unknown.next().is_none() || !is_possible || !has_person(output) {
        return Ok(None);
    }
    let minutes = |effort| summary::limit(true, effort).get() / 60_000_000_000;
    let question = format!(
        "A measured disk promises what it can do. One that is not measured promises less, by a cautious guess; \
         `clockwise disk measure NAME --online --write` measures it later, while streams run.\n\
         Measure now, for at most {} (quick), {} (normal) or {} minutes (thorough) for each disk? [quick/normal/thorough/NONE] ",
        minutes(Effort::Quick),
        minutes(Effort::Normal),
        minutes(Effort::Thorough),
    );
    match asked(&question)?.to_lowercase().as_str() {
        "" | "none" | "n" | "no" => Ok(None),
        answer => MeasureChoice::from_str(answer, true)
            .map(MeasureChoice::effort)
            .map_err(|_| {
                Failure::bad_input(format!("{answer:?} is no effort, so nothing is changed"))
                    .help("answer quick, normal, thorough, or nothing")
            }),
    }
}

/// Makes sure that the data of each disk may be lost.
fn confirm_destruction(args: &Args, drives: &[Candidate], output: &Output) -> Result<(), Failure> {
    let stray = args
        .destroy
        .iter()
        .find(|name| !drives.iter().any(|drive| drive.is_called(name)));
    if let Some(stray) = stray {
        return Err(
            Failure::bad_input(format!("{stray:?} is not one of the disks"))
                .help("give `--destroy` the names of the disks that the pool shall have"),
        );
    }
    for drive in drives {
        if args.destroy.iter().any(|name| drive.is_called(name)) {
            continue;
        }
        let what = format!("{}: {}", drive.described(), drive.contents_text());
        if !has_person(output) {
            return Err(
                Failure::bad_input(format!("all data would be lost on {what}")).help(format!(
                    "give `--destroy {}` if that is what you want",
                    drive.name
                )),
            );
        }
        let typed = asked(&format!(
            "All data will be lost on {what}.\nType {} to go on: ",
            drive.name
        ))?;
        if !drive.is_called(&typed) {
            return Err(Failure::bad_input(format!(
                "{typed:?} is not the name of {}, so nothing is changed",
                drive.path.display()
            ))
            .help(format!("the name is {}", drive.name)));
        }
    }
    Ok(())
}

/// The commands that come next.
fn next(file: &ConfigFile, config: &Config) -> Vec<String> {
    let serve = if file.path == Path::new(config::SYSTEM_PATH) {
        "systemctl start clockwise".to_owned()
    } else {
        format!("clockwise --config {} serve", file.path.display())
    };
    let mut next = vec![serve];
    if config.rtsp.is_some() {
        let add = "clockwise camera add door 'rtsp://USER:PASSWORD@HOST/PATH' --keep 30d";
        next.push(add.to_owned());
    }
    next
}

fn made_text(made: &Made) -> String {
    let pool = &made.pool;
    let guess = match pool.profiles_are_measured {
        true => "",
        false => {
            "not every disk is measured: promises rest on a cautious guess; `clockwise doctor` says how to measure\n"
        }
    };
    format!(
        "made pool {:?} of {} with extents of {}, named in {}\n{guess}next:\n  {}\n",
        pool.name,
        counted(pool.disks as u64, "disk"),
        Size(Bytes(pool.extent_bytes)),
        made.config.display(),
        made.next.join("\n  ")
    )
}

/// A table of drives, for people.
fn candidates_text(drives: &[Candidate]) -> String {
    if drives.is_empty() {
        return "this host has no drives".to_owned();
    }
    let rows = drives.iter().map(|drive| {
        let kind = match drive.is_rotating {
            Some(true) => "rotating",
            Some(false) => "flash",
            None => "unknown",
        };
        let contents = match &drive.obstacle {
            Some(obstacle) => format!("NOT USABLE, {obstacle}"),
            None => drive.contents_text(),
        };
        [
            drive.name.clone(),
            Size(Bytes(drive.size_bytes)).to_string(),
            kind.to_owned(),
            drive.model.clone(),
            drive.serial.clone().unwrap_or_default(),
            contents,
        ]
    });
    let head = ["NAME", "SIZE", "KIND", "MODEL", "SERIAL", "CONTENT"];
    table(head, &[1], rows)
}
