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
    /// True if browsers may publish.
    pub publish: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Section {
    listen: Option<Spanned<String>>,
    allow_origin: Option<Spanned<Vec<String>>>,
    webrtc: Option<Spanned<String>>,
    publish: Option<Spanned<bool>>,
}

impl Section {
    /// The validated section; `None` if HTTP is not enabled.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub(super) fn checked(
        &self,
        source: &SourceFile<'_>,
        has_rtsp: bool,
    ) -> Result<Option<HttpConfig>, Failure> {
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
        let without = |what: &str, needs: &str, span| {
            source
                .bad_input(span, format!("`{what}` has no effect without {needs}"))
                .help(format!("set {needs}, or remove `{what}`"))
        };
        if self.listen.is_none() {
            let webrtc = self.webrtc.as_ref().map(|of| ("webrtc", of.span()));
            let publish = self.publish.as_ref().map(|of| ("publish", of.span()));
            if let Some((what, span)) = webrtc.or(publish) {
                return Err(without(what, "`listen`", span));
            }
        }
        let publish = self.publish.as_ref().is_some_and(|of| *of.get_ref());
        if let Some(said) = self.publish.as_ref().filter(|_| publish) {
            if !has_rtsp {
                return Err(without("publish", "`listen` in [rtsp]", said.span()));
            }
            if webrtc == WebRtcConfig::Off {
                return Err(without("publish", "`webrtc`", said.span()));
            }
        }
        match (&self.listen, allowed) {
            (Some(listen), _) => Ok(Some(HttpConfig {
                address: tcp(source, listen)?,
                origins,
                webrtc,
                publish,
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
