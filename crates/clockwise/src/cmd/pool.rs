//! `clockwise pool`.

use std::process::ExitCode;

use clap::Subcommand;
use engine::pool::{CheckFinding, CreateOptions, Pool};
use sched::units::{Bytes, Nanos};
use serde::Serialize;

use super::{Cli, block_on};
use crate::config::Config;
use crate::disks::{self, MissingFiles};
use crate::failure::{Failure, FailureKind};
use crate::print::{Output, counted, list, warning_lines};
use crate::quantity::{Size, Span, parse_size};
use crate::server::pool_failure;
use crate::wire::view::PoolView;

/// `clockwise pool`.
#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Create a pool on the configuration's disks, which destroys all data on them. No server may run.
    Create {
        /// The size of extents, such as 64MiB [default: `extent` of the configuration, or the smallest size
        /// for which an access is at least 85 % transfer].
        #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
        extent: Option<Bytes>,
        /// Overwrite disks that belong to a pool or have other data on them.
        #[arg(long)]
        force: bool,
    },
    /// Show the pool that the server has open.
    Show,
    /// Check the configuration's disks and the pool's structures on them, without changing anything. No
    /// server may run.
    Check,
}

pub(super) fn run_pool(
    cli: &Cli,
    command: &PoolCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        PoolCommand::Create { extent, force } => create(cli, *extent, *force, output),
        PoolCommand::Show => {
            let client = cli.client()?;
            let pool: PoolView = block_on(client.get("/v1/pool"))?;
            output.result(&pool, || pool_text(&pool))?;
            Ok(ExitCode::SUCCESS)
        }
        PoolCommand::Check => check(cli, output),
    }
}

/// A pool that was made.
#[derive(Serialize)]
pub(super) struct Created {
    pub(super) name: String,
    pub(super) disks: usize,
    pub(super) extent_bytes: u64,
    pub(super) profiles_are_measured: bool,
}

/// Makes the pool of a configuration.
pub(super) fn make(
    config: &Config,
    extent: Option<Bytes>,
    force: bool,
    output: &Output,
) -> Result<Created, Failure> {
    let options = CreateOptions {
        name: config.open.name.clone(),
        extent_bytes: extent,
        force,
    };
    // Before any file is created for the pool.
    options.check().map_err(pool_failure)?;
    output.during("creating the pool", || {
        let opened = disks::open(config, MissingFiles::Make)?;
        let profiles_are_measured = opened.disks.iter().all(|disk| disk.profile_is_measured);
        let extent = Pool::create(&opened.memory, opened.disks, &options).map_err(pool_failure)?;
        opened.made.keep();
        Ok(Created {
            disks: config.disks.len(),
            extent_bytes: extent.get(),
            profiles_are_measured,
            name: options.name,
        })
    })
}

fn create(
    cli: &Cli,
    extent: Option<Bytes>,
    force: bool,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let config = cli.configuration()?;
    let wanted = extent.or(config.extent);
    let created = make(&config, wanted, force, output)?;
    output.result(&created, || {
        let note = if created.profiles_are_measured || wanted.is_some() {
            ""
        } else {
            "the extent size was chosen from profiles that were not measured; create the pool again with --extent and --force to change it\n"
        };
        format!(
            "created pool {:?} of {} with extents of {}; start it with `clockwise serve`\n{note}",
            created.name,
            counted(created.disks as u64, "disk"),
            Size(Bytes(created.extent_bytes))
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn check(cli: &Cli, output: &Output) -> Result<ExitCode, Failure> {
    let config = cli.configuration()?;
    let mut report = output.during("checking the pool", || {
        let opened = disks::open(&config, MissingFiles::Refuse)?;
        Pool::check(&opened.memory, opened.disks).map_err(pool_failure)
    })?;
    let extent = report.extent_bytes.map(Bytes).or(config.extent);
    let ignored = extent.map(|extent| disks::ignored(&config, extent));
    let ignored = ignored.into_iter().flatten();
    report.findings.extend(ignored.map(|of| CheckFinding {
        disk: of.disk,
        what: of.what,
        remedy: of.remedy,
        is_error: false,
    }));
    // Disks store the pool's identifier only; its name is in the configuration.
    report.name = config.open.name;
    let errors = report
        .findings
        .iter()
        .filter(|finding| finding.is_error)
        .count();
    output.result(&report, || {
        let mut text: String = report
            .findings
            .iter()
            .map(|finding| {
                let kind = if finding.is_error { "error" } else { "note" };
                let disk = finding
                    .disk
                    .as_deref()
                    .map(|disk| format!("{disk}: "))
                    .unwrap_or_default();
                format!(
                    "{kind}: {disk}{}\n  help: {}\n",
                    finding.what, finding.remedy
                )
            })
            .collect();
        text += &format!(
            "pool {:?}: {} and {} checked, {}\n",
            report.name,
            counted(report.volumes, "volume"),
            counted(report.records, "record"),
            if errors == 0 {
                "sound".to_owned()
            } else {
                counted(errors as u64, "error")
            }
        );
        text
    })?;
    Ok(if errors == 0 {
        ExitCode::SUCCESS
    } else {
        FailureKind::Failed.exit_code()
    })
}

fn pool_text(pool: &PoolView) -> String {
    let mut text = list(&[
        ("pool", pool.name.clone()),
        ("scheduler", pool.scheduler.clone()),
        ("open for", Span(Nanos(pool.uptime_ns)).to_string()),
        ("extent", Size(Bytes(pool.extent_bytes)).to_string()),
        ("in volumes", Size(Bytes(pool.allocated_bytes)).to_string()),
        ("free", Size(Bytes(pool.free_bytes)).to_string()),
        ("memory", Size(Bytes(pool.memory_bytes)).to_string()),
        ("volumes", pool.volumes.to_string()),
        ("streams", pool.streams.to_string()),
        ("disks", pool.disks.join(", ")),
    ]);
    text += &warning_lines(&pool.warnings, pool.disks.iter().map(String::as_str));
    text
}
