//! Questions to a person, and the result of the command.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use measure::machine::Measured;
use sched::profile::DriveProfile;
use serde::Serialize;

use super::MeasureArgs;
use super::attend::Signals;
use crate::cmd::question::{asked, has_person};
use crate::failure::{Failure, io_failure};
use crate::measuring::evidence::Evidence;
use crate::measuring::samples::SampleFile;
use crate::measuring::target::Target;
use crate::measuring::{report, summary};
use crate::print::Output;
use crate::text::printable;

/// The exit status of a command that a signal ended is this plus the signal's number.
const SIGNALLED: u8 = 128;

pub(super) fn confirm_destruction(
    args: &MeasureArgs,
    target: &Target,
    output: &Output,
) -> Result<(), Failure> {
    let names = target.names();
    let destroyed = target.described();
    let content = target.content();
    let content = content.map_or(String::new(), |content| format!("; it is {content}"));
    let typed = match &args.destroy {
        Some(typed) => typed.clone(),
        None if has_person(output) => {
            let question = format!(
                "All data on {destroyed} will be destroyed{content}. Type {names} to go on: "
            );
            asked(&question)?
        }
        None => {
            return Err(Failure::bad_input(format!(
                "`--write` destroys all data on {destroyed}{content}"
            ))
            .help(format!(
                "give `--destroy {}` if that is what you want, or leave `--write` out",
                target.name()
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
        "the name is {names}; leave `--write` out to measure reads only"
    )))
}

/// The result of a measurement that a signal stopped.
#[derive(Serialize)]
struct Stopped<'a> {
    stopped: bool,
    requests: u64,
    samples: &'a Path,
}

/// Says that a signal stopped the measurement, from which so many requests are kept.
pub(super) fn stopped(
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
        if requests == 0 {
            return "stopped in the first phase; the same command starts again".to_owned();
        }
        format!(
            "stopped after {requests} requests, which are kept in {}; the same command continues",
            samples.display()
        )
    })?;
    Ok(ExitCode::from(SIGNALLED + signal))
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
pub(super) async fn conclude(
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
        output.bytes(printable(&text).as_bytes())?;
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
        let next = match args.will_be_named {
            true => "",
            false => ": name it as the disk's `profile` in the configuration",
        };
        format!("{report}the profile is in {}{next}", args.to.display())
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
