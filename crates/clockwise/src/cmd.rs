//! The commands. Each is a client of the control API, except those that work on disks or files
//! without a server: `serve`, `pool create`, `pool check`, `admit`, `sim`, `demo`, `completions`.

mod admit;
mod disk;
mod pool;
mod recording;
mod serve;
mod session;
mod sim;
mod source;
mod status;
mod stream;
mod volume;

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::client::ApiClient;
use crate::config::{Config, DEFAULT_PATH};
use crate::failure::{Failure, FailureKind, host_failure, io_failure};
use crate::print::Output;

pub use status::render as render_status;

/// Where the server's control socket is when nothing else is said.
pub const DEFAULT_SOCKET: &str = "/run/clockwise/api.sock";

/// Where help shows the options that every command takes.
const EVERYWHERE: &str = "Options of every command";

/// A QoS-aware volume manager and media server: streams that reserve bandwidth get a guarantee,
/// everything else shares the same disks in the time that is provably left.
#[derive(Parser, Debug)]
#[command(
    name = "clockwise",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit status: 0 done, 1 failed, 2 wrong input, 3 refused because the disks cannot carry it, 4 another server has opened the pool."
)]
pub struct Cli {
    /// Print one JSON value instead of text for people; errors too, on standard error.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
    /// The server's control socket [default: that of the configuration, or /run/clockwise/api.sock].
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "PATH", env = "CLOCKWISE_SOCKET")]
    pub socket: Option<PathBuf>,
    /// The configuration [default: clockwise.toml, where a command needs one].
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "FILE", env = "CLOCKWISE_CONFIG")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve the pool that the configuration describes, until SIGTERM or Ctrl-C.
    Serve(serve::Args),
    /// Make a pool, show it, or verify it.
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Show disks.
    #[command(subcommand)]
    Disk(disk::DiskCommand),
    /// Make, show, resize, move and delete volumes.
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Show, check, export and delete what was recorded over RTSP, and say how much is kept.
    #[command(subcommand)]
    Recording(recording::RecordingCommand),
    /// Record from cameras.
    #[command(subcommand)]
    Source(source::SourceCommand),
    /// Show who records and plays over RTSP, and change what they have reserved.
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Record to and play from volumes at a guaranteed rate.
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// What is promised and what happened, per disk and per stream.
    Status(status::Args),
    /// Test a list of tasks for admission, without any disk.
    Admit(admit::Args),
    /// Run the papers' experiments with the server's own scheduler, in virtual time.
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Record and play video at guaranteed rates beside a busy file system, on emulated drives.
    Demo(crate::demo::Args),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command.
    #[command(hide = true)]
    Man {
        /// The folder that they go to.
        folder: PathBuf,
    },
}

impl Cli {
    /// The configuration that a command needs.
    pub(crate) fn configuration(&self) -> Result<Config, Failure> {
        Config::read(self.config.as_deref().unwrap_or(Path::new(DEFAULT_PATH)))
    }

    /// The server that a command talks to.
    fn client(&self) -> Result<ApiClient, Failure> {
        if let Some(socket) = &self.socket {
            return Ok(ApiClient::new(socket));
        }
        match &self.config {
            Some(config) => Ok(ApiClient::new(Config::read(config)?.api)),
            None if Path::new(DEFAULT_PATH).exists() => {
                Ok(ApiClient::new(Config::read(Path::new(DEFAULT_PATH))?.api))
            }
            None => Ok(ApiClient::new(DEFAULT_SOCKET)),
        }
    }
}

/// Runs `work` to its end on this thread. What it has left to other threads is not waited for.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| host_failure("start", &error))?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

fn run(cli: &Cli, output: &Output) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Serve(args) => serve::run(cli, args, output),
        Command::Pool(command) => pool::run_pool(cli, command, output),
        Command::Disk(command) => disk::run_disk(cli, command, output),
        Command::Volume(command) => volume::run(&cli.client()?, command, output),
        Command::Recording(command) => recording::run(&cli.client()?, command, output),
        Command::Source(command) => source::run(&cli.client()?, command, output),
        Command::Session(command) => session::run(&cli.client()?, command, output),
        Command::Stream(command) => stream::run(&cli.client()?, command, output),
        Command::Status(args) => status::run(&cli.client()?, args, output),
        Command::Admit(args) => admit::run(args, output),
        Command::Sim(command) => sim::run(command, output),
        Command::Demo(args) => crate::demo::run(args, output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "clockwise", &mut script);
            output.whole(&script, "script")
        }
        Command::Man { folder } => {
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
                .map_err(|error| io_failure("write manual pages to", folder, &error))?;
            if output.is_json() {
                output.result(&serde_json::json!({ "folder": folder }), String::new)?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A command line that makes no sense, for programs.
fn usage_failure(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // People get the help itself.
        return Failure::bad_input("the command line ends where a command is expected")
            .help("the same with --help lists the commands that there are");
    }
    let text = error.render().to_string();
    let (what, help) = text.split_once("\n\n").unwrap_or((&text, ""));
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let failure = Failure::bad_input(one_line(what.strip_prefix("error: ").unwrap_or(what)));
    match one_line(help) {
        help if help.is_empty() => failure.help("`clockwise --help` lists the commands"),
        help => failure.help(help),
    }
}

/// The help or the version, for programs.
fn asked_about(answer: &clap::Error) -> ExitCode {
    let text = answer.render().to_string();
    let value = match answer.kind() {
        ErrorKind::DisplayVersion => serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }),
        _ => serde_json::json!({ "help": text }),
    };
    let output = Output::new(true);
    match output.result(&value, String::new) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            failure.kind.exit_code()
        }
    }
}

/// The command line. An empty variable of the environment is one that is not set.
fn parsed(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    for (argument, variable) in [
        ("socket", "CLOCKWISE_SOCKET"),
        ("config", "CLOCKWISE_CONFIG"),
    ] {
        if std::env::var_os(variable).is_some_and(|value| value.is_empty()) {
            command = command.mut_arg(argument, |argument| argument.env(Resettable::Reset));
        }
    }
    Cli::from_arg_matches_mut(&mut command.try_get_matches_from(arguments)?)
}

/// The whole program, with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    run_as(&std::env::args_os().collect::<Vec<_>>())
}

/// The same with other arguments, of which the first is its name.
#[must_use]
pub fn run_as(arguments: &[OsString]) -> ExitCode {
    let cli = match parsed(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are not errors, and go to standard output.
            let code = if error.use_stderr() {
                FailureKind::BadInput.exit_code()
            } else {
                ExitCode::SUCCESS
            };
            let wants_json = arguments.iter().any(|argument| argument == "--json");
            if wants_json && error.use_stderr() {
                Output::new(true).failure(&usage_failure(&error));
            } else if wants_json {
                return asked_about(&error);
            } else {
                // A reader that has gone does not want to know.
                let _ = error.print();
            }
            return code;
        }
    };
    let output = Output::new(cli.json);
    match run(&cli, &output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            failure.kind.exit_code()
        }
    }
}
