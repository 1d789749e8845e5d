//! The commands. Each is a client of the control API, except those that work on disks or files without a
//! server: `init`, `serve`, `doctor`, `pool create`, `pool check`, `disk measure`, `admit`, `sim`, `demo`, `completions`.

mod admit;
mod camera;
mod disk;
mod doctor;
mod events;
mod init;
mod pool;
mod question;
mod recording;
mod serve;
mod session;
mod sim;
mod source;
mod status;
mod stream;
mod timeline;
mod user;
mod volume;

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::client::ApiClient;
use crate::config::{self, Config, LOCAL_PATH};
use crate::failure::{Failure, FailureKind, host_failure, io_failure};
use crate::print::{Format, Output};

pub use status::render as render_status;

/// The default path of the server's control socket.
pub const DEFAULT_SOCKET: &str = "/run/clockwise/api.sock";

/// The heading of the options that all commands have.
const GLOBAL_OPTIONS: &str = "Global options";

/// A QoS-aware volume manager and media server: streams that reserve bandwidth get a guarantee, and
/// everything else shares the same disks in the remaining time.
#[derive(Parser, Debug)]
#[command(
    name = "clockwise",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit status: 0 success, 1 failure, 2 wrong input, 3 refused because the disks cannot carry the load, 4 another server has opened the pool."
)]
pub struct Cli {
    /// Print one JSON value instead of text; errors too, on standard error.
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pub json: bool,
    /// The server's control socket [default: `api` of the configuration, or /run/clockwise/api.sock].
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "PATH", env = "CLOCKWISE_SOCKET")]
    pub socket: Option<PathBuf>,
    /// The configuration file [default: clockwise.toml, or /etc/clockwise/clockwise.toml if only that exists].
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "FILE", env = "CLOCKWISE_CONFIG")]
    pub config: Option<PathBuf>,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A command.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make the first pool of this host: show its drives and what is on them, ask, measure them, and write the
    /// configuration.
    Init(init::Args),
    /// Serve the pool that the configuration describes, until SIGTERM or Ctrl-C.
    Serve(serve::Args),
    /// Create, show or check a pool.
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Show disks, measure them, and print profiles of their service times.
    #[command(subcommand)]
    Disk(disk::DiskCommand),
    /// Create, show, resize, move and delete volumes.
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Show, check, export and delete recordings made over RTSP, and set how much is kept.
    #[command(subcommand)]
    Recording(recording::RecordingCommand),
    /// Show what was recorded in a volume on a day, and each gap with its cause.
    Timeline(timeline::Args),
    /// Record from cameras: looks at what they send, and creates volumes for them.
    #[command(subcommand)]
    Camera(camera::CameraCommand),
    /// Record from URLs into existing volumes, for scripts; `camera` does more.
    #[command(subcommand)]
    Source(source::SourceCommand),
    /// Show and end RTSP sessions, and change their reservations.
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Add and remove users, their rights and their tokens.
    #[command(subcommand)]
    User(user::UserCommand),
    /// Record to and play from volumes at a guaranteed rate.
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Show promises and measurements, per disk and per stream.
    Status(status::Args),
    /// List all that is wrong or weak on this host, why it matters, and the command that ends it.
    ///
    /// Exit status 1 if something is wrong: the server does not start, or does not serve something of its configuration.
    Doctor,
    /// Show events as they happen: lost cameras, missed deadlines, disks that stall or fail, recordings.
    Events(events::Args),
    /// Run the admission test on a list of tasks, without any disk.
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
        /// The folder for the pages.
        folder: PathBuf,
    },
}

impl Cli {
    /// The path of the configuration.
    fn config_path(&self) -> PathBuf {
        let default = || config::default_path().to_owned();
        self.config.clone().unwrap_or_else(default)
    }

    /// Reads the configuration.
    pub(crate) fn configuration(&self) -> Result<Config, Failure> {
        Config::read(&self.config_path())
    }

    /// The client for the server: --socket, else the API socket of the configuration, else the default
    /// socket.
    fn client(&self) -> Result<ApiClient, Failure> {
        if let Some(socket) = &self.socket {
            return Ok(ApiClient::new(socket));
        }
        if self.config.is_some() || Path::new(LOCAL_PATH).exists() {
            return Ok(ApiClient::new(self.configuration()?.api));
        }
        // The host's server may run with an earlier text of its configuration.
        let of_host = Config::read(Path::new(config::SYSTEM_PATH));
        Ok(ApiClient::new(
            of_host.map_or(DEFAULT_SOCKET.into(), |config| config.api),
        ))
    }
}

/// Runs `work` on this thread until it ends. Does not wait for tasks that it has left on other threads.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| host_failure("start", &error))?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// A name as one segment of a path of the API, with all bytes but letters, digits and `-._~` percent-encoded. `None`
/// for an empty name, which is not a segment.
fn name_in_path(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    // "." and ".." would be resolved as parts of the path.
    let is_dots = name.bytes().all(|byte| byte == b'.');
    let encode = |byte: u8| match byte {
        b'.' if is_dots => "%2E".to_owned(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    Some(name.bytes().map(encode).collect())
}

fn run(cli: &Cli, output: &Output) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Init(args) => init::run(cli, args, output),
        Command::Serve(args) => serve::run(cli, args, output),
        Command::Pool(command) => pool::run_pool(cli, command, output),
        Command::Disk(command) => disk::run_disk(cli, command, output),
        Command::Volume(command) => volume::run(&cli.client()?, command, output),
        Command::Recording(command) => recording::run(&cli.client()?, command, output),
        Command::Camera(command) => camera::run(&cli.client()?, command, output),
        Command::Timeline(args) => timeline::run(&cli.client()?, args, output),
        Command::Source(command) => source::run(&cli.client()?, command, output),
        Command::Session(command) => session::run(&cli.client()?, command, output),
        Command::User(command) => user::run(&cli.client()?, command, output),
        Command::Stream(command) => stream::run(&cli.client()?, command, output),
        Command::Status(args) => status::run(&cli.client()?, args, output),
        Command::Doctor => doctor::run(cli, output),
        Command::Events(args) => events::run(&cli.client()?, args, output),
        Command::Admit(args) => admit::run(args, output),
        Command::Sim(command) => sim::run(command, output),
        Command::Demo(args) => crate::demo::run(args, output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "clockwise", &mut script);
            output.text_file(&script, "script")
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

/// The failure of an invalid command line, for JSON output.
fn usage_failure(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Without --json, the help itself is printed.
        return Failure::bad_input("a command is missing at the end of the command line")
            .help("add --help to list the commands");
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

/// Prints the help or the version as JSON.
fn print_help_as_json(answer: &clap::Error) -> ExitCode {
    let text = answer.render().to_string();
    let value = match answer.kind() {
        ErrorKind::DisplayVersion => serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }),
        _ => serde_json::json!({ "help": text }),
    };
    let output = Output::new(Format::Json);
    match output.result(&value, String::new) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            failure.kind.exit_code()
        }
    }
}

/// Parses the command line. An empty environment variable counts as unset.
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
    if std::env::var_os("CLOCKWISE_LOG_FORMAT").is_some_and(|value| value.is_empty()) {
        command = command.mut_subcommand("serve", |serve| {
            serve.mut_arg("log_format", |argument| argument.env(Resettable::Reset))
        });
    }
    Cli::from_arg_matches_mut(&mut command.try_get_matches_from(arguments)?)
}

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    run_as(&std::env::args_os().collect::<Vec<_>>())
}

/// Runs the program with these arguments, the first of which is its name.
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
                Output::new(Format::Json).failure(&usage_failure(&error));
            } else if wants_json {
                return print_help_as_json(&error);
            } else {
                // A closed standard output or standard error is not a failure.
                let _ = error.print();
            }
            return code;
        }
    };
    let output = Output::new(match cli.json {
        true => Format::Json,
        false => Format::Text,
    });
    match run(&cli, &output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            failure.kind.exit_code()
        }
    }
}
