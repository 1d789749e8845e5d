//! `clockwise doctor`.

use std::path::Path;
use std::process::ExitCode;

use super::{Cli, DEFAULT_SOCKET, block_on};
use crate::client::ApiClient;
use crate::config::Config;
use crate::doctor::{self, Finding, Level, Report, RunningServer};
use crate::failure::{Failure, FailureKind};
use crate::print::Output;

pub(super) fn run(cli: &Cli, output: &Output) -> Result<ExitCode, Failure> {
    let file = cli.config_path();
    let config = Config::read(&file);
    let socket = match (&cli.socket, &config) {
        (Some(socket), _) => socket,
        (None, Ok(config)) => &config.api,
        (None, Err(_)) => Path::new(DEFAULT_SOCKET),
    };
    let server = doctor::server_at(socket).map(|pid| RunningServer {
        pid,
        status: block_on(ApiClient::new(socket).get("/v1/status")),
    });
    let report = doctor::examine(&file, &config, server.as_ref());
    output.result(&report, || text(&report))?;
    Ok(match report.count(Level::Wrong) {
        0 => ExitCode::SUCCESS,
        _ => FailureKind::Failed.exit_code(),
    })
}

fn finding(found: &Finding) -> String {
    let level = match found.level {
        Level::Wrong => "wrong",
        Level::Weak => "weak",
    };
    format!(
        "{level}: {}\n  why: {}\n  fix: {}\n",
        found.what, found.why, found.fix
    )
}

fn text(report: &Report) -> String {
    let mut text: String = report.findings.iter().map(finding).collect();
    text += &match report.server {
        Some(pid) => format!("the server runs as process {pid}\n"),
        None => "no server runs: the rights of this user were examined, not those of the service\n"
            .to_owned(),
    };
    if !report.fine.is_empty() {
        text += &format!("nothing to say about: {}\n", report.fine.join(", "));
    }
    text += &format!(
        "{} wrong, {} weak\n",
        report.count(Level::Wrong),
        report.count(Level::Weak)
    );
    text
}
