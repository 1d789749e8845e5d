//! Programs that the demo runs: each in a process group of its own, so that Ctrl-C reaches the demo
//! and not them, and none of them outlives it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command as AsyncCommand};
use tokio::sync::watch;

use crate::failure::{Failure, host_failure};

/// Help for a program that failed.
const BROKEN_HELP: &str =
    "its message has the reason; run the demo with --keep to inspect its files";

/// Time between asking a program to end and killing it.
const GRACE: Duration = Duration::from_secs(3);

/// Longest overtime of a program that ends by itself: longer than any of its requests.
const REPORT_GRACE: Duration = Duration::from_secs(30);

/// Tells if programs are to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// They run on.
    NotYet,
    /// Those that do not end by themselves are to end; the others have something to say.
    WithReport,
    /// They are to be gone.
    AtOnce,
}

/// The way in which a program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    /// It is ended from outside.
    WhenTold,
    /// By itself, at about that time, with a report.
    ByItself,
}

/// Resolves when programs are to end, or nobody is left to say so.
pub(super) async fn told_to_end(ending: &mut watch::Receiver<Ending>) {
    let _ = ending.wait_for(|ending| *ending != Ending::NotYet).await;
}

/// Resolves when a program is to be ended.
async fn overdue(ending: &mut watch::Receiver<Ending>, ends: Ends) {
    told_to_end(ending).await;
    if ends == Ends::ByItself {
        let at_once = ending.wait_for(|ending| *ending == Ending::AtOnce);
        // Either is the end of the wait.
        let _ = tokio::time::timeout(REPORT_GRACE, at_once).await;
    }
}

/// True if there is a program of this name.
pub(super) fn is_there(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(name).is_file())
}

/// A command that ends with this process however that ends, as far as the host has `setpriv`, and
/// finds the programs that only root's path has.
pub(super) fn command<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = if is_there("setpriv") {
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "KILL", program]);
        wrapped
    } else {
        Command::new(program)
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(path) = std::env::join_paths(folders) {
        command.env("PATH", path);
    }
    command
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// Runs a short command to its end.
pub(super) fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<Output, Failure> {
    let output = command(program, arguments)
        .output()
        .map_err(|error| not_run(program, &error))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::failed(format!(
        "{program} failed ({}): {}",
        output.status,
        said.trim()
    ))
    .help(BROKEN_HELP))
}

fn not_run(program: &str, error: &io::Error) -> Failure {
    host_failure(&format!("run {program}"), error)
        .help("install what is missing with `make setup` as root")
}

/// The end of a program that may be interrupted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// By itself, with what it printed.
    Done(String),
    /// It was asked to end; its output.
    Stopped(String),
}

impl End {
    /// True if it was asked to end.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }
}

/// Runs a command to its end, or until `ending` says so; then it and what it started are ended.
pub(super) async fn run_until<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
    folder: &Path,
    ends: Ends,
    ending: &mut watch::Receiver<Ending>,
) -> Result<End, Failure> {
    let mut command = AsyncCommand::from(command(program, arguments));
    command
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let failed = |error: io::Error| not_run(program, &error);
    let mut child = command.spawn().map_err(failed)?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let collected = tokio::spawn(async move {
        let mut texts = (Vec::new(), Vec::new());
        let reading = async {
            if let Some(out) = &mut out {
                tokio::io::AsyncReadExt::read_to_end(out, &mut texts.0).await?;
            }
            io::Result::Ok(())
        };
        let reading_errors = async {
            if let Some(err) = &mut err {
                tokio::io::AsyncReadExt::read_to_end(err, &mut texts.1).await?;
            }
            io::Result::Ok(())
        };
        let _ = tokio::join!(reading, reading_errors);
        texts
    });
    let status = tokio::select! {
        status = child.wait() => status.map_err(failed)?,
        () = overdue(ending, ends) => {
            end_group(&mut child, group).await;
            let (out, _) = collected.await.unwrap_or_default();
            return Ok(End::Stopped(String::from_utf8_lossy(&out).into_owned()));
        }
    };
    let (out, err) = collected.await.unwrap_or_default();
    if status.success() {
        return Ok(End::Done(String::from_utf8_lossy(&out).into_owned()));
    }
    Err(Failure::failed(format!(
        "{program} failed ({status}): {}",
        String::from_utf8_lossy(&err).trim()
    ))
    .help(BROKEN_HELP))
}

/// Asks a program and what it started to end, and makes them when they take too long.
async fn end_group(child: &mut Child, group: Option<Pid>) {
    let signal = |signal| {
        if let Some(group) = group {
            // A group that is gone is what was wanted.
            let _ = kill_process_group(group, signal);
        }
    };
    signal(Signal::TERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        signal(Signal::KILL);
        // A child that was killed is reaped at once; one that cannot be is the kernel's business.
        let _ = child.wait().await;
    }
    // Processes that the child left in its group.
    signal(Signal::KILL);
}
