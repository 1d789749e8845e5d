//! Metrics by TCP, without a login.

use std::net::SocketAddr;
use std::sync::Arc;

use peers::connection_limits::ConnectionLimits;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::api;
use crate::config::Config;
use crate::failure::Failure;
use crate::http::{App, metrics};

/// Listens at the address of `config`, if it has one.
pub(super) async fn listen(config: &Config) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = config.metrics else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(format!("cannot listen at {address} for metrics: {error}")).help(
            "set another address in [metrics], stop the program that uses it, or check the permission to use it",
        )
    })?;
    Ok(Some(listener))
}

/// Serves metrics until the server ends.
pub(super) fn serve(
    listener: TcpListener,
    app: &Arc<App>,
    limits: Arc<ConnectionLimits>,
    ended: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let router = metrics::router(Arc::clone(app));
    tokio::spawn(api::serve(
        listener,
        move |_: Option<SocketAddr>| router.clone(),
        Some(limits),
        api::HEAD_WITHIN,
        ended,
    ))
}
