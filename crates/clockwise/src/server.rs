//! The server: start and shutdown of the pool, the control API, the data socket, exports, RTSP and HTTP.

mod api;
mod browsers;
mod cameras;
mod data;
mod ending;
mod health;
mod metrics;
mod overruns;
mod ownership;
mod smart;
mod waits;
mod watching;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::pool::{OpenOptions, Pool};
use engine::rt;
use engine::status::Warning;
use media::archive::archives::Archives;
use media::archive::retention::Retention;
use media::camera::sources::Sources;
use media::rtsp::access::{Access, AccessError, AccountsError, REALM, UsersError};
use media::rtsp::tls::TlsError;
use peers::connection_limits::ConnectionLimits;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::browsers::Browsers;
use self::ending::ShutdownStage;
use crate::config::Config;
use crate::descriptors;
use crate::disks::{self, MissingFiles, OpenDisks};
use crate::events::Events;
use crate::exports::{self, Exports};
use crate::failure::{Failure, host_failure, io_failure};
use crate::hooks::Hooks;
use crate::http::audit::Audit;
use crate::http::faults::{EmulatedDrives, EmulatedFaults};
use crate::http::{self, App};
use crate::socket::{self, SocketFile};
use crate::watch::{Watch, WatchedDrive};
use crate::wire::view::WarningView;

/// Time for requests in flight when the server ends.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// Time between two readings of the disks' service times.
const WATCH_INTERVAL: Duration = Duration::from_secs(60);

/// Number of readings from one writing of the service times to the next: a crash loses five minutes.
const READINGS_PER_WRITING: u32 = 5;

/// Time between checks for reservations and measurements that have expired.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// [`socket::listen`] for tasks.
fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), Failure> {
    let (listener, file) = socket::listen(path, mode)?;
    let listener =
        UnixListener::from_std(listener).map_err(|error| io_failure("listen at", path, &error))?;
    Ok((listener, file))
}

/// A running server. [`Server::close`] ends it; dropping it leaves the disks as a crash would.
pub struct Server {
    app: Arc<App>,
    rtsp: Option<media::Server>,
    http: Option<std::net::SocketAddr>,
    https: Option<std::net::SocketAddr>,
    metrics: Option<std::net::SocketAddr>,
    retention: Retention,
    hooks: Hooks,
    ending: watch::Sender<bool>,
    taken_over: watch::Receiver<Option<String>>,
    tasks: Vec<JoinHandle<()>>,
    /// Looks at the disks and cameras until the pool is closed.
    watching: JoinHandle<()>,
    sockets: Vec<SocketFile>,
}

impl Server {
    /// Opens the pool of `config` and serves it. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the disks hold no pool, or a service cannot start.
    pub async fn start(config: &Config) -> Result<Self, Failure> {
        let descriptors = descriptors::raise();
        let opening = config.clone();
        let mut disks = blocking(move || disks::open(&opening, MissingFiles::Refuse)).await?;
        // This server owns the disks, and so the socket. Until the pool is open, calls are answered with that state.
        let (api, api_file) = listen(&config.api, config.permissions)?;
        let (ending, ended) = watch::channel(false);
        let router = Arc::new(OnceLock::new());
        let answering = serve_api(api, Arc::clone(&router), ended.clone());
        let drives = take_drives(&mut disks);
        let (options, state) = (config.open.clone(), config.state.clone());
        let (pool, watch) = blocking(move || open_watched(disks, options, &state)).await?;
        for ignored in disks::ignored(config, pool.extent()) {
            pool.warn(ignored.to_string());
        }
        let (data_listener, data_file) = listen(&config.data, config.permissions)?;
        let exports = Arc::new(Exports::start(&pool, &config.exports)?);
        let archives = Arc::new(Archives::new(
            Arc::clone(&pool),
            config.sources.block,
            |volume| exports::users_of(volume).is_some(),
        ));
        let access = open_access(config)?;
        let rtsp = start_rtsp(config, &archives, access.clone(), descriptors)?;
        let browsers = Browsers::listen(config).await?;
        let scraped = metrics::listen(config).await?;
        let scraped_at = scraped.as_ref().and_then(|of| of.local_addr().ok());
        let own = rtsp
            .as_ref()
            .map(media::Server::addresses)
            .unwrap_or_default();
        let sources = start_sources(config, &archives, own)?;
        let retention = Retention::start(Arc::clone(&archives))
            .map_err(|error| host_failure("start the thread for retention", &error))?;
        let data_path = absolute(&config.data);
        let app = App::new(pool, watch, archives, sources, data_path, exports, drives);
        let app = Arc::new(App {
            access: access.clone(),
            audit: open_audit(&config.state),
            events: Arc::new(Events::above(Hooks::newest_queued(
                &config.hooks,
                &config.state,
            ))),
            ..app
        });
        let hooks = Hooks::start(&config.hooks, &app.events, &config.state)
            .map_err(|error| host_failure("start the thread for hooks", &error))?;
        watching::report_recordings(&app);
        log_warnings(&app);
        let _: &axum::Router = router.get_or_init(|| http::router(Arc::clone(&app)));
        let (taken, taken_over) = watch::channel(None);
        let mut tasks = vec![
            answering,
            tokio::spawn(data::serve(
                data_listener,
                Arc::clone(&app.sessions),
                data::Limits::new(descriptors),
                ended.clone(),
            )),
            tokio::spawn(expire(Arc::clone(&app), ended.clone())),
            tokio::spawn(watch_service_times(Arc::clone(&app), ended.clone())),
            smart::start(&app, config, ended.clone()),
            tokio::spawn(ownership::watch(Arc::clone(&app), ended.clone(), taken)),
        ];
        let watching = tokio::spawn(watching::watch(Arc::clone(&app)));
        if let Some(listener) = scraped {
            let limits = ConnectionLimits::of(descriptors);
            tasks.push(metrics::serve(listener, &app, limits, ended.clone()));
        }
        let (http, https) = (browsers.address(), browsers.tls_address());
        if let Some(address) = http.or(https) {
            let door = rtsp.as_ref().map(media::Server::door);
            browsers::offer_webrtc(address, config, &app, door)?;
            let limits = ConnectionLimits::of(descriptors);
            tasks.extend(browsers.serve(config, &app, limits, &ended));
        }
        Ok(Self {
            app,
            rtsp,
            http,
            https,
            metrics: scraped_at,
            retention,
            hooks,
            ending,
            taken_over,
            tasks,
            watching,
            sockets: vec![api_file, data_file],
        })
    }

    /// The state of the API.
    #[must_use]
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The TCP address of the block export with the actual port.
    #[must_use]
    pub fn nbd_tcp(&self) -> Option<std::net::SocketAddr> {
        let exports = self.app.exports.status();
        exports.iter().find_map(|export| export.tcp)
    }

    /// The address of RTSP with the actual port.
    #[must_use]
    pub fn rtsp(&self) -> Option<std::net::SocketAddr> {
        self.rtsp.as_ref().and_then(media::Server::address)
    }

    /// The address of RTSP over TLS with the actual port.
    #[must_use]
    pub fn rtsps(&self) -> Option<std::net::SocketAddr> {
        self.rtsp.as_ref().and_then(media::Server::tls_address)
    }

    /// The address of HTTP for browsers with the actual port.
    #[must_use]
    pub fn http(&self) -> Option<std::net::SocketAddr> {
        self.http
    }

    /// The address of HTTP over TLS with the actual port.
    #[must_use]
    pub fn https(&self) -> Option<std::net::SocketAddr> {
        self.https
    }

    /// The TCP address of metrics with the actual port.
    #[must_use]
    pub fn metrics(&self) -> Option<std::net::SocketAddr> {
        self.metrics
    }

    /// Takes over what can change while streams run: users and their rights, hooks, and the limits of RTSP. `old` is in
    /// use, and gets what is taken over. Returns the sections that need a restart.
    ///
    /// # Errors
    /// If a file that the configuration names is not valid; users and rights stay as they were then.
    pub fn reload(&mut self, old: &mut Config, new: &Config) -> Result<Vec<String>, Failure> {
        let access = self.app.access.as_ref().zip(new.access.as_ref());
        // Logins neither begin nor end while clients are connected.
        let access = access.filter(|_| old.has_users() == new.has_users());
        if let Some((access, config)) = access {
            access.reload(config).map_err(access_failure)?;
            old.access = new.access.clone();
        }
        if old.hooks != new.hooks {
            let replaced = self.hooks.replace(&new.hooks, &self.app.events, &old.state);
            replaced.map_err(|error| host_failure("start the thread for hooks", &error))?;
            old.hooks.clone_from(&new.hooks);
        }
        if let Some((rtsp, config)) = self.rtsp.as_ref().zip(new.rtsp.as_ref()) {
            rtsp.reload(config);
        }
        self.app.sources.reload(&new.sources);
        Ok(old.changed_for_restart(new))
    }

    /// Waits until another server has opened the pool. Returns the evidence. The caller then closes this server.
    pub async fn taken_over(&self) -> String {
        ownership::taken_over(self.taken_over.clone()).await
    }

    /// Ends the server: refuses new calls, ends streams and exports, and makes everything acknowledged durable.
    ///
    /// # Errors
    /// If something could not be made durable.
    pub async fn close(self) -> Result<(), Failure> {
        let Self {
            app,
            rtsp,
            http: _,
            https: _,
            metrics: _,
            retention,
            hooks,
            ending,
            taken_over: _,
            tasks,
            watching,
            sockets,
        } = self;
        drop(sockets);
        ending.send_replace(true);
        let stage = ShutdownStage::default();
        let logging = tokio::spawn(stage.clone().log(Arc::clone(&app.pool)));
        let closing = Arc::clone(&app);
        let closed = tokio::task::spawn_blocking(move || {
            stage.set("streams to end");
            closing.close();
            stage.set("cameras and recordings to close");
            closing.sources.close();
            // Dropping it closes its recordings.
            drop(rtsp);
            drop(retention);
            // Recordings have ended, which are events.
            closing.events.close();
            hooks.close();
            stage.set("requests of block exports");
            closing.exports.end(SHUTDOWN_WITHIN);
            closing.watch.update();
            if let Err(problem) = closing.watch.save() {
                tracing::warn!("{problem}");
            }
            stage.set("written data to become durable");
            closing.pool.close()
        })
        .await;
        logging.abort();
        watching.abort();
        let closed =
            closed.map_err(|error| Failure::bug(format!("ending the pool failed: {error}")))?;
        for task in tasks {
            let abort = task.abort_handle();
            if tokio::time::timeout(SHUTDOWN_WITHIN, task).await.is_err() {
                abort.abort();
            }
        }
        closed.map_err(|error| {
            let failure = pool_failure(error);
            Failure {
                what: format!("the pool did not end cleanly: {}", failure.what),
                ..failure
            }
        })
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

/// Runs blocking work of opening the pool on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::bug(format!("opening the pool failed: {error}")))?
}

/// The drives behind open disks.
fn watched(opened: &OpenDisks) -> Vec<WatchedDrive> {
    let disks = opened.disks.iter().zip(&opened.drives);
    disks
        .map(|(disk, drive)| WatchedDrive {
            name: disk.name.clone(),
            serial: drive.serial.clone(),
            doubt: drive.doubt.clone(),
        })
        .collect()
}

/// Opens a pool, and watches the service times of its disks, whose earlier ones are in the folder `state`.
fn open_watched(
    opened: OpenDisks,
    options: OpenOptions,
    state: &Path,
) -> Result<(Arc<Pool>, Watch), Failure> {
    let drives = watched(&opened);
    let pool = open_pool(opened, options)?;
    let (watch, problem) = Watch::start(Arc::clone(&pool), &drives, state);
    if let Some(problem) = problem {
        tracing::warn!("{problem}");
    }
    Ok((pool, watch))
}

/// The emulated drives among the disks.
fn take_drives(disks: &mut OpenDisks) -> EmulatedDrives {
    let emulated = std::mem::take(&mut disks.emulated).into_iter();
    let drives = emulated.map(|(name, control)| (name, EmulatedFaults::new(control)));
    drives.collect()
}

fn open_pool(opened: OpenDisks, mut options: OpenOptions) -> Result<Arc<Pool>, Failure> {
    if options.realtime {
        options.denied = rt::lock_process_memory();
    }
    options.links = opened.links;
    Pool::open(opened.memory, opened.disks, options).map_err(pool_failure)
}

/// Converts an error of making, opening or checking a pool.
pub fn pool_failure(error: engine::pool::PoolError) -> Failure {
    crate::wire::Problem::from(error).into_failure()
}

/// Logs the warnings that the status shows after the start.
fn log_warnings(app: &App) {
    for WarningView { what, concerns } in app.status().warnings {
        tracing::warn!("{}", Warning { what, concerns });
    }
}

fn start_sources(
    config: &Config,
    archives: &Arc<Archives>,
    own: Vec<std::net::SocketAddr>,
) -> Result<Sources, Failure> {
    Sources::start(Arc::clone(archives), config.sources.clone(), own).map_err(|error| {
        Failure::failed(error.to_string())
            .help("correct that file, or name another as `sources` in [rtsp]")
    })
}

/// Opens the access rules, if there are any for what is served.
fn open_access(config: &Config) -> Result<Option<Arc<Access>>, Failure> {
    let is_served = config.rtsp.is_some() || config.http.is_some();
    let access = config.access.as_ref();
    let access = access.filter(|of| is_served || of.accounts.is_some());
    let access = access.map(Access::open).transpose();
    Ok(access.map_err(access_failure)?.map(Arc::new))
}

fn access_failure(error: AccessError) -> Failure {
    let failed = Failure::failed(error.to_string());
    match error {
            AccessError::Users(UsersError::Open(path, _))
            | AccessError::Accounts(AccountsError::Open(path, _)) => {
                failed.help(format!("make it readable by its owner only: chmod 600 {}", path.display()))
            }
            AccessError::Accounts(_) => {
                failed.help("restore that file from a copy, or name another as `accounts` in [access]")
            }
            _ => failed.help(format!(
                "make the file with `htdigest -c FILE {REALM} NAME` as this server's user, and name it as `users` in [rtsp]"
            )),
        }
}

/// Opens the audit log. The server works without one.
fn open_audit(state: &Path) -> Option<Arc<Audit>> {
    match Audit::open(state) {
        Ok(audit) => Some(Arc::new(audit)),
        Err(error) => {
            tracing::warn!(folder = %state.display(), %error, "there is no audit log, because the folder for `state` cannot be written");
            None
        }
    }
}

fn start_rtsp(
    config: &Config,
    archives: &Arc<Archives>,
    access: Option<Arc<Access>>,
    descriptors: usize,
) -> Result<Option<media::Server>, Failure> {
    let Some(rtsp) = &config.rtsp else {
        return Ok(None);
    };
    media::Server::start(
        Arc::clone(archives),
        rtsp,
        access,
        ConnectionLimits::of(descriptors),
    )
    .map(Some)
    .map_err(|error| {
        let failed = Failure::failed(error.to_string());
        match error {
            media::StartError::Tls(TlsError::Open(path, _)) => {
                failed.help(format!("make it inaccessible to others: chmod o= {}", path.display()))
            }
            media::StartError::Tls(_) => failed.help(
                "name a certificate and its key in PEM format as `certificate` and `key` in [rtsp]",
            ),
            _ => failed.help(
                "set another address in [rtsp], stop the program that uses it, or check the permission to use it",
            ),
        }
    })
}

/// Answers calls of the control API, with the state "opening" until `router` is set.
fn serve_api(
    listener: UnixListener,
    router: Arc<OnceLock<axum::Router>>,
    ended: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let opening = http::opening();
    let router = move |_| router.get().unwrap_or(&opening).clone();
    tokio::spawn(api::serve(listener, router, None, api::HEAD_WITHIN, ended))
}

/// Resolves when the server ends.
async fn end_of(mut ended: watch::Receiver<bool>) {
    // A dropped sender means the end too.
    let _ = ended.wait_for(|ended| *ended).await;
}

async fn expire(app: Arc<App>, ended: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = end_of(ended.clone()) => return,
        }
        let expiring = Arc::clone(&app);
        let checked = tokio::task::spawn_blocking(move || {
            expiring.sessions.expire();
            for disk in expiring.measurements.expire(engine::clock::now()) {
                tracing::info!(
                    disk,
                    "a measurement has ended: its client has made no call for 60 s"
                );
            }
        });
        if checked.await.is_err() {
            tracing::error!("the check for expired reservations and measurements failed");
        }
    }
}

/// Reads the service times of the disks regularly, and writes them.
async fn watch_service_times(app: Arc<App>, ended: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(WATCH_INTERVAL);
    let mut readings = 0_u32;
    // A failure to write is logged once, until writing succeeds again.
    let mut reported = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = end_of(ended.clone()) => return,
        }
        let is_written = readings.is_multiple_of(READINGS_PER_WRITING);
        readings = readings.wrapping_add(1);
        let read = Arc::clone(&app);
        let read = tokio::task::spawn_blocking(move || {
            read.watch.update();
            is_written.then(|| read.watch.save())
        });
        match read.await {
            Ok(None) => {}
            Ok(Some(Ok(()))) => reported = None,
            Ok(Some(Err(problem))) => {
                if reported.as_ref() != Some(&problem) {
                    tracing::warn!("{problem}");
                }
                reported = Some(problem);
            }
            Err(_) => tracing::error!("the reading of service times failed"),
        }
    }
}
