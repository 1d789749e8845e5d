//! Recordings for browsers, by HTTP; over TLS also the control API, for users with tokens.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use media::rtsp::door::Door;
use media::rtsp::tls;
use media::webrtc::WebRtc;
use peers::connection_limits::ConnectionLimits;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::api::{self, TlsListener};
use crate::config::{Config, WebRtcConfig};
use crate::failure::Failure;
use crate::http::files::{self, Arrival, HttpPeer, Origins};
use crate::http::{self, App};

/// The listeners, as the configuration asks for.
pub(super) struct Browsers {
    plain: Option<TcpListener>,
    secure: Option<TlsListener>,
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(format!("cannot listen at {address} for HTTP: {error}")).help(
            "set another address in [http], stop the program that uses it, or check the permission to use it",
        )
    })
}

impl Browsers {
    /// Listens at the addresses of `config`.
    pub(super) async fn listen(config: &Config) -> Result<Self, Failure> {
        let (mut plain, mut secure) = (None, None);
        if let Some(http) = &config.http {
            if let Some(address) = http.listen {
                plain = Some(bind(address).await?);
            }
            if let Some(of) = &http.tls {
                let server = tls::server(of).map_err(|error| {
                    Failure::failed(error.to_string()).help(
                        "name a certificate and its key in PEM format as `certificate` and `key` in [http]",
                    )
                })?;
                secure = Some(TlsListener {
                    listener: bind(of.listen).await?,
                    acceptor: TlsAcceptor::from(server),
                });
            }
        }
        Ok(Self { plain, secure })
    }

    /// The address of HTTP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.plain.as_ref().and_then(|of| of.local_addr().ok())
    }

    /// The address of HTTP over TLS.
    pub(super) fn tls_address(&self) -> Option<SocketAddr> {
        let secure = self.secure.as_ref();
        secure.and_then(|of| of.listener.local_addr().ok())
    }

    /// Serves recordings until the server ends.
    pub(super) fn serve(
        self,
        config: &Config,
        app: &Arc<App>,
        limits: Arc<ConnectionLimits>,
        ended: &watch::Receiver<bool>,
    ) -> Vec<JoinHandle<()>> {
        let origins = config.http.as_ref().and_then(|http| http.origins.as_ref());
        let origins = origins.map(Origins::layer);
        if app.access.is_none() {
            let addresses = [self.address(), self.tls_address()];
            addresses
                .into_iter()
                .flatten()
                .for_each(|address| warn_of_open_access(address, origins.is_some()));
        }
        let has_accounts = app
            .access
            .as_ref()
            .is_some_and(|of| of.accounts().is_some());
        let files = files::router(Arc::clone(app));
        // The control API is for those who have logged in, over TLS only.
        let all = match has_accounts {
            true => http::router(Arc::clone(app)),
            false => files.clone(),
        };
        let router_for = |inner: Router, is_tls: bool| {
            let (access, origins) = (app.access.clone(), origins.clone());
            move |peer: Option<SocketAddr>| {
                let router = match (&access, peer) {
                    (Some(access), Some(peer)) => {
                        let arrival = Arrival { peer, is_tls };
                        files::asking(inner.clone(), Arc::clone(access), arrival)
                    }
                    _ => inner.clone(),
                };
                let router = match peer {
                    Some(peer) => router.layer(axum::Extension(HttpPeer(peer))),
                    None => router,
                };
                // The check of the origin precedes that of the user: browsers send preflight requests without
                // credentials.
                match origins.clone() {
                    Some(origins) => router.layer(origins),
                    None => router,
                }
            }
        };
        let mut tasks = Vec::new();
        if let Some(listener) = self.plain {
            let (limits, ended) = (Some(Arc::clone(&limits)), ended.clone());
            let served = api::serve(
                listener,
                router_for(files, false),
                limits,
                api::HEAD_WITHIN,
                ended,
            );
            tasks.push(tokio::spawn(served));
        }
        if let Some(listener) = self.secure {
            let served = api::serve(
                listener,
                router_for(all, true),
                Some(limits),
                api::HEAD_WITHIN,
                ended.clone(),
            );
            tasks.push(tokio::spawn(served));
        }
        tasks
    }
}

/// Offers WebRTC, at the address of HTTP unless `config` says otherwise.
pub(super) fn offer_webrtc(
    http: SocketAddr,
    config: &Config,
    app: &App,
    door: Option<Door>,
) -> Result<(), Failure> {
    let asked = config.http.as_ref().map(|of| &of.webrtc);
    let (address, by_tcp) = match asked {
        None | Some(WebRtcConfig::Off) => return Ok(()),
        Some(WebRtcConfig::At(address)) => (*address, true),
        Some(WebRtcConfig::AsHttp) => (http, false),
    };
    let publish = config.http.as_ref().is_some_and(|of| of.publish);
    let door = door.filter(|_| publish);
    match WebRtc::start(address, by_tcp, Arc::clone(&app.archives), door) {
        Ok(service) => app.media.serve_webrtc(service),
        Err(error) if by_tcp => {
            return Err(
                Failure::failed(format!("cannot listen at {address} for WebRTC: {error}"))
                    .help("set another address as `webrtc` in [http], or \"off\""),
            );
        }
        Err(error) => {
            tracing::warn!(%address, %error, "WebRTC is not served, because its UDP port cannot be used; `webrtc` in [http] sets another");
        }
    }
    Ok(())
}

fn warn_of_open_access(address: SocketAddr, has_origins: bool) {
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "anyone who reaches this address can see all recordings: there are no users ([access] or [rtsp])");
    } else if has_origins {
        tracing::warn!(
            "a page of `allow_origin` can see all recordings when it is opened on this host: there are no users ([access] or [rtsp])"
        );
    }
}
