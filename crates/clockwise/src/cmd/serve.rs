//! `clockwise serve`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::Cli;
use crate::config::{Config, EXAMPLE};
use crate::failure::{Failure, host_failure};
use crate::log::{self, LogFormat};
use crate::panics::{self, Panics};
use crate::print::{Output, counted};
use crate::server::Server;
use crate::service_manager::ServiceManager;

/// The lines that are logged. The libraries of WebRTC would log what strangers send.
const LOGGED: &str = "info,str0m=off,is=off,dimpl=off,sctp_proto=off";

/// The maximum time for the server to end after a panic. The thread that panicked never releases its
/// resources.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of `clockwise serve`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print an example configuration with every key, and exit.
    #[arg(long)]
    print_example: bool,
    /// Check the configuration, and exit: with status 2 if the server would not accept it.
    #[arg(long, conflicts_with = "print_example")]
    check: bool,
    /// The format of the log on standard error.
    #[arg(
        long,
        value_name = "FORMAT",
        env = "CLOCKWISE_LOG_FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
}

/// True if this process was started with SIGHUP ignored, as `nohup` does.
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

/// A wish of the administrator.
enum Wish {
    End(EndSignal),
    /// To read the configuration again.
    Reload,
}

/// A signal that tells the server to end.
#[derive(Clone, Copy)]
struct EndSignal {
    name: &'static str,
    kind: SignalKind,
}

impl EndSignal {
    /// The exit status if the signal ends the server at once: the one that a shell reports for a process
    /// killed by it.
    fn exit_code(self) -> ExitCode {
        ExitCode::from(128_u8.saturating_add(u8::try_from(self.kind.as_raw_value()).unwrap_or(0)))
    }
}

/// The signals that tell the server to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    /// True if SIGHUP is the end of the terminal.
    is_hangup_the_end: bool,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| host_failure("wait for signals", &error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            // It is ignored if it was ignored at the start.
            hangup: if ignores_hangup() {
                None
            } else {
                Some(listen(SignalKind::hangup())?)
            },
            is_hangup_the_end: std::io::stderr().is_terminal(),
        })
    }

    async fn wish(&mut self) -> Wish {
        let (name, kind) = tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            () = hung_up(&mut self.hangup) => match self.is_hangup_the_end {
                true => ("SIGHUP", SignalKind::hangup()),
                false => return Wish::Reload,
            },
        };
        Wish::End(EndSignal { name, kind })
    }

    /// The next signal that tells the server to end.
    async fn next(&mut self) -> EndSignal {
        loop {
            match self.wish().await {
                Wish::End(signal) => return signal,
                Wish::Reload => {
                    tracing::warn!("the configuration is read again only while the server serves")
                }
            }
        }
    }
}

pub(super) fn run(cli: &Cli, args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    if args.print_example {
        return output.text_file(EXAMPLE.as_bytes(), "example");
    }
    if args.check {
        let disks = cli.configuration()?.disks.len();
        let checked = serde_json::json!({ "disks": disks });
        output.result(&checked, || "the configuration is valid".to_owned())?;
        return Ok(ExitCode::SUCCESS);
    }
    let log = log::start(LOGGED, args.log_format)?;
    match start(cli, output) {
        // Nothing reads standard error: printing the failure there would block forever.
        Err(failure) if !log.flush() => Ok(failure.kind.exit_code()),
        Err(failure) if args.log_format == LogFormat::Json => {
            log.failure(&failure);
            Ok(failure.kind.exit_code())
        }
        served => served,
    }
}

/// Reads the configuration, and serves on threads of its own.
fn start(cli: &Cli, output: &Output) -> Result<ExitCode, Failure> {
    let config = cli.configuration()?;
    let again = || cli.configuration();
    let mut panics = panics::watch();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| host_failure("start the server's threads", &error))?;
    let served = runtime.block_on(serve(config, again, output, &mut panics));
    // Does not wait for threads that a disk or a panic blocks.
    runtime.shutdown_background();
    served
}

/// Serves until a signal, a panic or another server ends it. `again` reads the configuration again.
async fn serve(
    mut config: Config,
    again: impl Fn() -> Result<Config, Failure>,
    output: &Output,
    panics: &mut Panics,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let manager = Arc::new(ServiceManager::of_environment());
    manager.status("opening the pool");
    let opening = output.spinner("opening the pool");
    let started = tokio::select! {
        started = Server::start(&config) => Ok(started),
        () = panics.happened() => Ok(Err(panicked(panics))),
       received = signals.next() => Err(received),
    };
    opening.finish_and_clear();
    let mut server = match started {
        Ok(server) => server?,
        Err(received) => {
            tracing::warn!(
                signal = received.name,
                "ended by a signal while the pool was being opened"
            );
            return Ok(received.exit_code());
        }
    };
    announce(&server, &config, output);
    let ending = tell_serving(&manager, &server, &config);
    let taken_over = loop {
        tokio::select! {
            what = server.taken_over() => {
                tracing::error!("{what}; the server is ending");
                break Some(Failure::taken_over(what).help(engine::pool::TWO_SERVERS_REMEDY));
            }
            wish = signals.wish() => match wish {
                Wish::End(received) => {
                    tracing::info!(
                        signal = received.name,
                        "ending: streams end, and all acknowledged writes are made durable"
                    );
                    break None;
                }
                Wish::Reload => reload(&mut server, &mut config, again()),
            },
            () = panics.happened() => break None,
        }
    };
    manager.stopping("making all acknowledged writes durable");
    ending.send_replace(true);
    let closed = close(server, panics, &mut signals).await;
    match (taken_over, closed) {
        // A server that was taken over writes nothing to the disks, so an error while it closes is only
        // logged.
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

/// Takes over a configuration that was read again. One that is not valid changes nothing.
fn reload(server: &mut Server, config: &mut Config, new: Result<Config, Failure>) {
    let reloaded = new.and_then(|new| Ok((server.reload(config, &new)?, new)));
    match reloaded {
        Ok((restart, new)) => {
            tracing::info!(
                "configuration read again: users, their rights, hooks and limits are as in it"
            );
            if restart.is_empty() {
                *config = new;
            } else {
                // They stay changed until then.
                tracing::warn!(
                    sections = restart.join(", "),
                    "the server must be restarted for changes in these sections"
                );
            }
        }
        Err(failure) => {
            let place = failure.place.as_ref();
            let place = place.map(|of| format!("{}:{}:{}", of.file, of.line, of.column));
            tracing::error!(
                place,
                error = failure.what,
                help = failure.help,
                "the configuration is not valid; keeping the previous one"
            );
        }
    }
}

/// Tells the service manager that the server serves, and from then on that it works. The returned value is to be set
/// when the server ends.
fn tell_serving(
    manager: &Arc<ServiceManager>,
    server: &Server,
    config: &Config,
) -> watch::Sender<bool> {
    let pool = Arc::clone(&server.app().pool);
    let disks = counted(config.disks.len() as u64, "disk");
    manager.ready(&format!("serving pool {:?} on {disks}", pool.name()));
    let (ending, ended) = watch::channel(false);
    tokio::spawn(Arc::clone(manager).keep_alive(move || pool.await_worker(), ended));
    ending
}

/// Closes the server. A second signal ends it at once, with an exit status. After a panic, closing may take
/// [`CLOSE_TIMEOUT`] at most, and the panic is returned as a failure.
async fn close(
    server: Server,
    panics: &mut Panics,
    signals: &mut Signals,
) -> Result<Option<ExitCode>, Failure> {
    let mut closing = Box::pin(server.close());
    let timed_out = async {
        panics.happened().await;
        tokio::time::sleep(CLOSE_TIMEOUT).await;
    };
    let closed = tokio::select! {
        closed = &mut closing => Some(closed),
        () = timed_out => None,
       received = signals.next() => {
            tracing::warn!(
                signal = received.name,
                "ended at once by a second signal, as by a crash: flushed data is durable, other recent writes may be lost"
            );
            // Dropping it may wait for a disk.
            std::mem::forget(closing);
            return Ok(Some(received.exit_code()));
        }
    };
    if closed.is_none() {
        std::mem::forget(closing);
    }
    if panics.first().is_some() {
        match closed {
            Some(Ok(())) => tracing::warn!("ended: all acknowledged writes are durable"),
            Some(Err(failure)) => tracing::error!("{}", failure.what),
            None => tracing::error!(
                "the server did not end within {CLOSE_TIMEOUT:?} and stops as by a crash"
            ),
        }
        return Err(panicked(panics));
    }
    closed.unwrap_or(Ok(())).map(|()| None)
}

fn panicked(panics: &Panics) -> Failure {
    Failure::bug(panics.first().unwrap_or_default())
}

/// Reports the addresses of the server, in the log and with --json on standard output.
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
        https = server.https().map(|address| address.to_string()),
        rtsps = server.rtsps().map(|address| address.to_string()),
        metrics = server.metrics().map(|address| address.to_string()),
        "serving"
    );
    if output.is_json() {
        // A program can wait for this line instead of reading the log.
        let serving = serde_json::json!({
            "pool": server.app().pool.name(),
            "api": config.api,
            "data": config.data,
            "nbd_unix": nbd_unix,
            "nbd_tcp": server.nbd_tcp(),
            "fuse": fuse,
            "rtsp": server.rtsp(),
            "http": server.http(),
            "https": server.https(),
            "rtsps": server.rtsps(),
            "metrics": server.metrics(),
        });
        if let Err(failure) = output.result(&serving, String::new) {
            tracing::warn!("cannot report that the server is ready: {}", failure.what);
        }
    }
}
