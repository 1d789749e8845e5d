//! A running server: pool, control API, data socket, block export; its beginning and its end.

mod api;
mod data;
mod ending;
mod health;
mod ownership;
mod waits;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ending::Ending;
use engine::pool::{OpenOptions, Pool};
use engine::rt;
use engine::status::Warning;
use media::archive::archives::Archives;
use media::archive::retention::Retention;
use media::camera::sources::Sources;
use media::rtsp::access::{Access, REALM, UsersError};
use media::rtsp::tls::TlsError;
use peers::connection_limits::ConnectionLimits;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::config::Config;
use crate::descriptors;
use crate::disks::{self, Absent, OpenDisks};
use crate::exports::{self, Exports};
use crate::failure::{Failure, host_failure, io_failure};
use crate::http::{self, App};
use crate::socket::{self, SocketFile};
use crate::wire::view::WarningView;

/// How long clients have to end their requests when the server does.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// How often the health of the disks is looked at.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// How often reservations are looked at that nobody has connected to.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Listens as [`socket::listen`] does, for tasks.
fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), Failure> {
    let (listener, file) = socket::listen(path, mode)?;
    let listener =
        UnixListener::from_std(listener).map_err(|error| io_failure("listen at", path, &error))?;
    Ok((listener, file))
}

/// A server at work. Ending it is [`Server::close`]; dropping it leaves the disks as a crash would.
pub struct Server {
    app: Arc<App>,
    rtsp: Option<media::Server>,
    http: Option<std::net::SocketAddr>,
    retention: Retention,
    ending: watch::Sender<bool>,
    taken_over: watch::Receiver<Option<String>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    /// Tells of disks until the pool is closed.
    watching: tokio::task::JoinHandle<()>,
    sockets: Vec<SocketFile>,
}

impl Server {
    /// Opens the pool of `config` and serves it. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the disks are no pool, or a socket cannot be had.
    pub async fn start(config: &Config) -> Result<Self, Failure> {
        let descriptors = descriptors::raise();
        let opening = config.clone();
        let disks = apart(move || disks::open(&opening, Absent::Refuse)).await?;
        // The disks are this server's alone, so the socket is as well. Until there is something to serve, calls are
        // answered that the pool is being opened; that ends with `ending` where there never is.
        let (api, api_file) = listen(&config.api, config.permissions)?;
        let (ending, ended) = watch::channel(false);
        let served = Arc::new(OnceLock::new());
        let answering = tokio::spawn(api::serve(
            api,
            {
                let (served, opening) = (Arc::clone(&served), http::opening());
                move |_| served.get().unwrap_or(&opening).clone()
            },
            None,
            api::HEAD_WITHIN,
            ended.clone(),
        ));
        let options = config.open.clone();
        let pool = apart(move || open_pool(disks, options)).await?;
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
        let browsers = match &config.http {
            Some(http) => Some(listen_http(http.address).await?),
            None => None,
        };
        let http = browsers.as_ref().and_then(|of| of.local_addr().ok());
        let own = rtsp
            .as_ref()
            .map(media::Server::addresses)
            .unwrap_or_default();
        let sources = start_sources(config, &archives, own)?;
        let retention = Retention::start(Arc::clone(&archives))
            .map_err(|error| host_failure("start the thread for retention", &error))?;
        let app = Arc::new(App::new(
            pool,
            archives,
            sources,
            absolute(&config.data),
            exports,
        ));
        for WarningView { what, concerns } in app.status().warnings {
            tracing::warn!("{}", Warning { what, concerns });
        }
        let _: &axum::Router = served.get_or_init(|| http::router(Arc::clone(&app)));
        let (taken, taken_over) = watch::channel(None);
        let mut tasks = vec![
            answering,
            tokio::spawn(data::serve(
                data_listener,
                Arc::clone(&app.sessions),
                data::Limits::of(descriptors),
                ended.clone(),
            )),
            tokio::spawn(expire(Arc::clone(&app), ended.clone())),
            tokio::spawn(ownership::watch(Arc::clone(&app), ended.clone(), taken)),
        ];
        let watching = tokio::spawn(watch_disks(Arc::clone(&app.pool)));
        if let Some(listener) = browsers {
            let router = http::files::router(Arc::clone(&app));
            let origins = config.http.as_ref().and_then(|http| http.origins.as_ref());
            let origins = origins.map(http::files::Origins::layer);
            if access.is_none()
                && let Some(address) = http.filter(|of| !of.ip().is_loopback())
            {
                tracing::warn!(%address, "whoever reaches this address can see all recordings: [rtsp] has no `users`");
            } else if access.is_none() && origins.is_some() {
                tracing::warn!(
                    "who opens a page of `allow_origin` on this host shows it all recordings: [rtsp] has no `users`"
                );
            }
            let router = move |peer| {
                let router = match (&access, peer) {
                    (Some(access), Some(peer)) => {
                        http::files::asking(router.clone(), Arc::clone(access), peer)
                    }
                    _ => router.clone(),
                };
                // Whose page asks is answered before who asks is: browsers do not say that with it.
                match origins.clone() {
                    Some(origins) => router.layer(origins),
                    None => router,
                }
            };
            tasks.push(tokio::spawn(api::serve(
                listener,
                router,
                Some(ConnectionLimits::of(descriptors)),
                api::HEAD_WITHIN,
                ended,
            )));
        }
        Ok(Self {
            app,
            rtsp,
            http,
            retention,
            ending,
            taken_over,
            tasks,
            watching,
            sockets: vec![api_file, data_file],
        })
    }

    /// The state that the API works on.
    #[must_use]
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The TCP address of the block export, with the port that was taken.
    #[must_use]
    pub fn nbd_tcp(&self) -> Option<std::net::SocketAddr> {
        let exports = self.app.exports.status();
        exports.iter().find_map(|export| export.tcp)
    }

    /// Where RTSP is served, with the port that was taken.
    #[must_use]
    pub fn rtsp(&self) -> Option<std::net::SocketAddr> {
        self.rtsp.as_ref().and_then(media::Server::address)
    }

    /// The same for RTSP by TLS.
    #[must_use]
    pub fn rtsps(&self) -> Option<std::net::SocketAddr> {
        self.rtsp.as_ref().and_then(media::Server::tls_address)
    }

    /// Where recordings are served to browsers, with the port that was taken.
    #[must_use]
    pub fn http(&self) -> Option<std::net::SocketAddr> {
        self.http
    }

    /// Waits until it is found that another server has opened the pool; how that shows. This one is to be
    /// closed then.
    pub async fn taken_over(&self) -> String {
        ownership::found(self.taken_over.clone()).await
    }

    /// Ends it: no new calls, streams and exports end, everything acknowledged is made durable.
    ///
    /// # Errors
    /// When something could not be made durable.
    pub async fn close(self) -> Result<(), Failure> {
        let Self {
            app,
            rtsp,
            http: _,
            retention,
            ending,
            taken_over: _,
            tasks,
            watching,
            sockets,
        } = self;
        drop(sockets);
        ending.send_replace(true);
        let stage = Ending::default();
        let telling = tokio::spawn(stage.clone().tell(Arc::clone(&app.pool)));
        let closing = Arc::clone(&app);
        let closed = tokio::task::spawn_blocking(move || {
            stage.waits_for("streams to end");
            closing.close();
            stage.waits_for("cameras and their recordings to be closed");
            closing.sources.close();
            // Its recordings are closed then.
            drop(rtsp);
            drop(retention);
            stage.waits_for("requests of block exports");
            closing.exports.end(SHUTDOWN_WITHIN);
            stage.waits_for("what was written to be durable");
            closing.pool.close()
        })
        .await;
        telling.abort();
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

/// Does work of opening where it may wait.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::bug(format!("opening the pool failed: {error}")))?
}

/// Opens the pool that is on these disks.
fn open_pool(opened: OpenDisks, mut options: OpenOptions) -> Result<Arc<Pool>, Failure> {
    if options.realtime {
        options.denied = rt::lock_process_memory();
    }
    Pool::open(opened.memory, opened.disks, options).map_err(pool_failure)
}

/// The failure of a pool that could not be made, opened or checked.
pub fn pool_failure(error: engine::pool::PoolError) -> Failure {
    crate::wire::Problem::from(error).into_failure()
}

fn start_sources(
    config: &Config,
    archives: &Arc<Archives>,
    own: Vec<std::net::SocketAddr>,
) -> Result<Sources, Failure> {
    Sources::start(Arc::clone(archives), config.sources.clone(), own).map_err(|error| {
        Failure::failed(error.to_string())
            .help("mend that file, or name another under [rtsp] as `sources`")
    })
}

/// Who may see and record what, over RTSP and HTTP, if somebody is asked.
fn open_access(config: &Config) -> Result<Option<Arc<Access>>, Failure> {
    let is_served = config.rtsp.is_some() || config.http.is_some();
    let access = config.access.as_ref().filter(|_| is_served);
    let access = access.map(Access::open).transpose();
    let access = access.map_err(|error| {
        let failed = Failure::failed(error.to_string());
        match error {
            UsersError::Open(path, _) => {
                failed.help(format!("let its owner alone read it: chmod 600 {}", path.display()))
            }
            _ => failed.help(format!(
                "`htdigest -c FILE {REALM} NAME` makes such a file, of this server's user alone; name it in [rtsp] as `users`"
            )),
        }
    })?;
    Ok(access.map(Arc::new))
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
                failed.help(format!("keep it from others: chmod o= {}", path.display()))
            }
            media::StartError::Tls(_) => failed.help(
                "name a certificate and its key, as PEM, under [rtsp] as `certificate` and `key`",
            ),
            _ => failed.help(
                "name another address under [rtsp], end what uses it, or see that it may be used",
            ),
        }
    })
}

async fn listen_http(address: std::net::SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(format!("cannot listen at {address} for HTTP: {error}"))
            .help("name another address under [http], end what uses it, or see that it may be used")
    })
}

/// Resolves when the server ends.
async fn end_of(mut ended: watch::Receiver<bool>) {
    // A sender that is gone is an end as well.
    let _ = ended.wait_for(|ended| *ended).await;
}

async fn expire(app: Arc<App>, ended: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = end_of(ended.clone()) => return,
        }
        let looking = Arc::clone(&app);
        let looked = tokio::task::spawn_blocking(move || looking.sessions.expire());
        if looked.await.is_err() {
            tracing::error!("looking for expired reservations failed");
        }
    }
}

/// Tells of what becomes of the disks, and of the flushes that wait for one.
async fn watch_disks(pool: Arc<Pool>) {
    let mut ticks = tokio::time::interval(HEALTH_INTERVAL);
    let (mut health, mut waits) = (health::Told::default(), waits::Told::default());
    loop {
        ticks.tick().await;
        let looking = Arc::clone(&pool);
        let looked = tokio::task::spawn_blocking(move || (looking.health(), looking.waits()));
        let Ok((of_disks, of_flushes)) = looked.await else {
            tracing::error!("looking at the disks failed");
            continue;
        };
        let now = std::time::Instant::now();
        health
            .news(of_disks, now)
            .iter()
            .for_each(health::News::log);
        waits
            .news(&of_flushes)
            .for_each(|wait| tracing::warn!("{wait}"));
    }
}
