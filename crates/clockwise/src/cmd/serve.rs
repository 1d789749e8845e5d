//! `clockwise serve`.

use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Cli, Output};
use crate::config::{Config, EXAMPLE};
use crate::failure::{Failure, host_failure};
use crate::server::Server;

/// How the server is run.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print a configuration with every key, and do nothing else.
    #[arg(long)]
    print_example: bool,
}

/// Messages go to standard error, where a service manager collects them; `RUST_LOG` chooses them.
pub(crate) fn start_log(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Only a second call can fail, and the first log is as good.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .try_init();
}

/// Whether whoever started this has had it ignore SIGHUP, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1, SIGHUP.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// A signal that ends the server.
#[derive(Clone, Copy)]
struct Told {
    name: &'static str,
    kind: SignalKind,
}

impl Told {
    /// The exit status where it ends the server at once: that of a process that it killed, to a shell.
    fn exit_code(self) -> ExitCode {
        ExitCode::from(128_u8.saturating_add(u8::try_from(self.kind.as_raw_value()).unwrap_or(0)))
    }
}

/// The signals that end the server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| host_failure("wait for signals", &error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            // A terminal that is closed ends it like the others, unless it was told to outlive that.
            hangup: if ignores_hangup() {
                None
            } else {
                Some(listen(SignalKind::hangup())?)
            },
        })
    }

    async fn next(&mut self) -> Told {
        let (name, kind) = tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            () = hung_up(&mut self.hangup) => ("SIGHUP", SignalKind::hangup()),
        };
        Told { name, kind }
    }
}

pub(super) fn run(cli: &Cli, args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    if args.print_example {
        return output.whole(EXAMPLE.as_bytes(), "example");
    }
    let config = cli.configuration()?;
    start_log("info");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| host_failure("start the server's threads", &error))?;
    let ended = runtime.block_on(serve(&config, output));
    // What still waits for a disk that does not answer is not waited for.
    runtime.shutdown_background();
    ended
}

async fn serve(config: &Config, output: &Output) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let opening = output.spinner("opening the pool");
    let started = tokio::select! {
        started = Server::start(config) => Ok(started),
        told = signals.next() => Err(told),
    };
    opening.finish_and_clear();
    let server = match started {
        Ok(server) => server?,
        Err(told) => {
            tracing::warn!(signal = told.name, "ended while the pool was being opened");
            return Ok(told.exit_code());
        }
    };
    announce(&server, config, output)?;
    let told = tokio::select! {
        what = server.taken_over() => return lost(server, what).await,
        told = signals.next() => told,
    };
    tracing::info!(
        signal = told.name,
        "ending: streams end, what was acknowledged is made durable"
    );
    let mut closing = Box::pin(server.close());
    tokio::select! {
        closed = &mut closing => closed?,
        told = signals.next() => {
            tracing::warn!(
                signal = told.name,
                "ended at once by a second signal, as by a crash: what was acknowledged by a flush is there"
            );
            // It may hold what waits for a disk when it is dropped.
            std::mem::forget(closing);
            return Ok(told.exit_code());
        }
    }
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}

/// Tells that and where it serves.
fn announce(server: &Server, config: &Config, output: &Output) -> Result<(), Failure> {
    tracing::info!(
        pool = server.app().pool.name(),
        api = %config.api.display(),
        nbd_unix = config.nbd_unix.as_ref().map(|path| path.display().to_string()),
        nbd_tcp = server.nbd_tcp().map(|address| address.to_string()),
        rtsp = server.rtsp().map(|address| address.to_string()),
        http = server.http().map(|address| address.to_string()),
        rtsps = server.rtsps().map(|address| address.to_string()),
        "serving"
    );
    if output.is_json() {
        // Who waits for it to be ready need not read the log.
        let serving = serde_json::json!({
            "pool": server.app().pool.name(),
            "api": config.api,
            "data": config.data,
            "nbd_unix": config.nbd_unix,
            "nbd_tcp": server.nbd_tcp(),
            "rtsp": server.rtsp(),
            "http": server.http(),
            "rtsps": server.rtsps(),
        });
        output.result(&serving, String::new)?;
    }
    Ok(())
}

/// Ends a server whose disks are another's. It makes nothing durable any more.
async fn lost(server: Server, what: String) -> Result<ExitCode, Failure> {
    tracing::error!("{what}; ending");
    if let Err(error) = server.close().await {
        tracing::warn!("{}", error.what);
    }
    Err(Failure::failed(what).help(engine::pool::TWO_SERVERS_REMEDY))
}
