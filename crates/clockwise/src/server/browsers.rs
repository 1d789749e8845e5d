//! Recordings for browsers, by HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use media::rtsp::access::Access;
use media::rtsp::door::Door;
use media::webrtc::WebRtc;
use peers::connection_limits::ConnectionLimits;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::api;
use crate::config::{Config, WebRtcConfig};
use crate::failure::Failure;
use crate::http::App;
use crate::http::files::{self, HttpPeer, Origins};

/// Listens at the address of `config`, if it has one.
pub(super) async fn listen(config: &Config) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = config.http.as_ref().map(|http| http.address) else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(format!("cannot listen at {address} for HTTP: {error}")).help(
            "set another address in [http], stop the program that uses it, or check the permission to use it",
        )
    })?;
    Ok(Some(listener))
}

/// Offers WebRTC, at the port of HTTP unless `config` says otherwise.
pub(super) fn offer_webrtc(
    http: &TcpListener,
    config: &Config,
    app: &App,
    door: Option<Door>,
) -> Result<(), Failure> {
    let asked = config.http.as_ref().map(|of| &of.webrtc);
    let (address, by_tcp) = match asked {
        None | Some(WebRtcConfig::Off) => return Ok(()),
        Some(WebRtcConfig::At(address)) => (*address, true),
        Some(WebRtcConfig::AsHttp) => match http.local_addr() {
            Ok(address) => (address, false),
            Err(_) => return Ok(()),
        },
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

/// Serves recordings until the server ends.
pub(super) fn serve(
    listener: TcpListener,
    config: &Config,
    app: &Arc<App>,
    access: Option<Arc<Access>>,
    limits: Arc<ConnectionLimits>,
    ended: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let origins = config.http.as_ref().and_then(|http| http.origins.as_ref());
    let origins = origins.map(Origins::layer);
    if access.is_none() {
        warn_of_open_access(&listener, origins.is_some());
    }
    let files = files::router(Arc::clone(app));
    let router = move |peer: Option<SocketAddr>| {
        let router = match (&access, peer) {
            (Some(access), Some(peer)) => files::asking(files.clone(), Arc::clone(access), peer),
            _ => files.clone(),
        };
        let router = match peer {
            Some(peer) => router.layer(axum::Extension(HttpPeer(peer))),
            None => router,
        };
        // The check of the origin precedes that of the user: browsers send preflight requests without credentials.
        match origins.clone() {
            Some(origins) => router.layer(origins),
            None => router,
        }
    };
    tokio::spawn(api::serve(
        listener,
        router,
        Some(limits),
        api::HEAD_WITHIN,
        ended,
    ))
}

fn warn_of_open_access(listener: &TcpListener, has_origins: bool) {
    let address = listener.local_addr().ok();
    if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(%address, "anyone who reaches this address can see all recordings: [rtsp] has no `users`");
    } else if has_origins {
        tracing::warn!(
            "a page of `allow_origin` can see all recordings when it is opened on this host: [rtsp] has no `users`"
        );
    }
}
