//! The `[http]` section: recordings for browsers.

use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::tcp;
use crate::failure::{Failure, SourceFile};
use crate::http::files::Origins;

/// Where WebRTC is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WebRtcConfig {
    /// By UDP, at the address and port of HTTP.
    AsHttp,
    /// By UDP and TCP, at this address.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

/// The HTTP service for browsers.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The address that it listens at.
    pub address: SocketAddr,
    /// The origins whose pages may fetch recordings, besides the server's own pages.
    pub origins: Option<Origins>,
    /// Where WebRTC is served.
    pub webrtc: WebRtcConfig,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Section {
    listen: Option<Spanned<String>>,
    allow_origin: Option<Spanned<Vec<String>>>,
    webrtc: Option<Spanned<String>>,
}

impl Section {
    /// The validated section; `None` if HTTP is not enabled.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub(super) fn checked(&self, source: &SourceFile<'_>) -> Result<Option<HttpConfig>, Failure> {
        let allowed = self.allow_origin.as_ref();
        let origins = allowed.map(|named| {
            Origins::parse(named.get_ref()).map_err(|error| {
                source.bad_input(named.span(), error.to_string()).help(
                    "write the scheme, host and port of the pages' address, without a path, such as [\"http://portal.example\"], or [\"*\"] for any origin",
                )
            })
        });
        let origins = origins.transpose()?;
        let webrtc = match &self.webrtc {
            None => WebRtcConfig::AsHttp,
            Some(said) if said.get_ref() == "off" => WebRtcConfig::Off,
            Some(said) => WebRtcConfig::At(tcp(source, said)?),
        };
        if let (None, Some(said)) = (&self.listen, &self.webrtc) {
            return Err(source
                .bad_input(said.span(), "`webrtc` has no effect without `listen`")
                .help("set `listen` to an address, or remove `webrtc`"));
        }
        match (&self.listen, allowed) {
            (Some(listen), _) => Ok(Some(HttpConfig {
                address: tcp(source, listen)?,
                origins,
                webrtc,
            })),
            (None, Some(named)) => Err(source
                .bad_input(
                    named.span(),
                    "`allow_origin` has no effect without `listen`",
                )
                .help("set `listen` to an address, or remove `allow_origin`")),
            (None, None) => Ok(None),
        }
    }
}
