//! `clockwise serve`.

use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Cli;
use crate::config::{Config, EXAMPLE};
use crate::failure::{Failure, host_failure};
use crate::log;
use crate::panics::{self, Panics};
use crate::print::Output;
use crate::server::Server;

/// How long the server may take for its end after a thread has panicked: what that thread held, nobody gives back.
const END_WITHIN: Duration = Duration::from_secs(30);

/// How the server is run.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print a configuration with every key, and do nothing else.
    #[arg(long)]
    print_example: bool,
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
    let log = log::start("info")?;
    let mut panics = panics::watch();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| host_failure("start the server's threads", &error))?;
    let served = runtime.block_on(serve(&config, output, &mut panics));
    // The process ends without threads that a disk or a panic holds up.
    runtime.shutdown_background();
    match served {
        // Nobody reads standard error: to say why there would wait without end.
        Err(failure) if !log.flush() => Ok(failure.kind.exit_code()),
        served => served,
    }
}

/// Serves until it is told to end.
async fn serve(config: &Config, output: &Output, panics: &mut Panics) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let opening = output.spinner("opening the pool");
    let started = tokio::select! {
        started = Server::start(config) => Ok(started),
        () = panics.happened() => Ok(Err(panicked(panics))),
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
    announce(&server, config, output);
    let taken_over = tokio::select! {
        what = server.taken_over() => {
            tracing::error!("{what}; ending");
            Some(Failure::taken_over(what).help(engine::pool::TWO_SERVERS_REMEDY))
        }
        told = signals.next() => {
            tracing::info!(
                signal = told.name,
                "ending: streams end, what was acknowledged is made durable"
            );
            None
        }
        () = panics.happened() => None,
    };
    let closed = close(server, panics, &mut signals).await;
    match (taken_over, closed) {
        // It makes nothing durable any more.
        (Some(taken_over), closed) => {
            if let Err(failure) = closed {
                tracing::warn!("{}", failure.what);
            }
            Err(taken_over)
        }
        (None, Ok(None)) => {
            tracing::info!("ended");
            Ok(ExitCode::SUCCESS)
        }
        (None, Ok(Some(at_once))) => Ok(at_once),
        (None, Err(failure)) => Err(failure),
    }
}

/// Ends the server; at once, with an exit status, if it is told again. If a thread has panicked, or does so meanwhile,
/// that is a failure, and not waited for without end.
async fn close(
    server: Server,
    panics: &mut Panics,
    signals: &mut Signals,
) -> Result<Option<ExitCode>, Failure> {
    let mut closing = Box::pin(server.close());
    let left = async {
        panics.happened().await;
        tokio::time::sleep(END_WITHIN).await;
    };
    let closed = tokio::select! {
        closed = &mut closing => Some(closed),
        () = left => None,
        told = signals.next() => {
            tracing::warn!(
                signal = told.name,
                "ended at once by a second signal, as by a crash: what was acknowledged by a flush is there"
            );
            // It may hold what waits for a disk when it is dropped.
            std::mem::forget(closing);
            return Ok(Some(told.exit_code()));
        }
    };
    if closed.is_none() {
        std::mem::forget(closing);
    }
    if panics.first().is_some() {
        match closed {
            Some(Ok(())) => tracing::warn!("ended: what was acknowledged is durable"),
            Some(Err(failure)) => tracing::error!("{}", failure.what),
            None => tracing::error!(
                "the server has not ended within {END_WITHIN:?}, and is left as by a crash"
            ),
        }
        return Err(panicked(panics));
    }
    closed.unwrap_or(Ok(())).map(|()| None)
}

fn panicked(panics: &Panics) -> Failure {
    Failure::bug(panics.first().unwrap_or_default())
}

/// Tells people and programs where it serves.
fn announce(server: &Server, config: &Config, output: &Output) {
    let nbd = config.exports.nbd.as_ref();
    let nbd_unix = nbd.and_then(|nbd| nbd.unix.as_ref());
    let fuse = config.exports.fuse.as_ref().map(|fuse| &fuse.mount);
    tracing::info!(
        pool = server.app().pool.name(),
        api = %config.api.display(),
        nbd_unix = nbd_unix.map(|path| path.display().to_string()),
        nbd_tcp = server.nbd_tcp().map(|address| address.to_string()),
        fuse = fuse.map(|mount| mount.display().to_string()),
        rtsp = server.rtsp().map(|address| address.to_string()),
        http = server.http().map(|address| address.to_string()),
        rtsps = server.rtsps().map(|address| address.to_string()),
        "serving"
    );
    if output.is_json() {
        // A program that waits for it to be ready need not read the log.
        let serving = serde_json::json!({
            "pool": server.app().pool.name(),
            "api": config.api,
            "data": config.data,
            "nbd_unix": nbd_unix,
            "nbd_tcp": server.nbd_tcp(),
            "fuse": fuse,
            "rtsp": server.rtsp(),
            "http": server.http(),
            "rtsps": server.rtsps(),
        });
        if let Err(failure) = output.result(&serving, String::new) {
            tracing::warn!("nobody is told that the server is ready: {}", failure.what);
        }
    }
}
