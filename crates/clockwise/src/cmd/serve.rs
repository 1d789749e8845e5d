//! `clockwise serve`.

use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Cli, Output};
use crate::config::EXAMPLE;
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
    runtime.block_on(async {
        let unavailable = |error: std::io::Error| host_failure("wait for signals", &error);
        let mut terminate = signal(SignalKind::terminate()).map_err(unavailable)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(unavailable)?;
        // A terminal that is closed ends it like the others, unless it was told to outlive that.
        let mut hangup = if ignores_hangup() {
            None
        } else {
            Some(signal(SignalKind::hangup()).map_err(unavailable)?)
        };
        let opening = output.spinner("opening the pool");
        let server = Server::start(&config).await;
        opening.finish_and_clear();
        let server = server?;
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
        let signal = tokio::select! {
            what = server.taken_over() => return lost(server, what).await,
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = hung_up(&mut hangup) => "SIGHUP",
        };
        tracing::info!(
            signal,
            "ending: streams end, what was acknowledged is made durable"
        );
        server.close().await?;
        tracing::info!("ended");
        Ok(ExitCode::SUCCESS)
    })
}

/// Ends a server whose disks are another's. It makes nothing durable any more.
async fn lost(server: Server, what: String) -> Result<ExitCode, Failure> {
    tracing::error!("{what}; ending");
    if let Err(error) = server.close().await {
        tracing::warn!("{}", error.what);
    }
    Err(Failure::failed(what).help(engine::pool::TWO_SERVERS_REMEDY))
}
