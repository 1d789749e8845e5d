//! The `[http]` section: recordings for browsers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::tcp;
use crate::failure::{Failure, SourceFile};
use crate::http::files::Origins;
use media::MediaConfig;
use media::rtsp::tls::TlsConfig;

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
    pub listen: Option<SocketAddr>,
    /// The service over TLS.
    pub tls: Option<TlsConfig>,
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
    tls_listen: Option<Spanned<String>>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
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
        folder: &Path,
        rtsp: Option<&MediaConfig>,
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
        let tls = self.tls(source, folder, rtsp.and_then(|of| of.tls.as_ref()))?;
        let is_served = self.listen.is_some() || tls.is_some();
        if !is_served {
            let webrtc = self.webrtc.as_ref().map(|of| ("webrtc", of.span()));
            let publish = self.publish.as_ref().map(|of| ("publish", of.span()));
            if let Some((what, span)) = webrtc.or(publish) {
                return Err(without(what, "`listen`", span));
            }
        }
        let publish = self.publish.as_ref().is_some_and(|of| *of.get_ref());
        if let Some(said) = self.publish.as_ref().filter(|_| publish) {
            if rtsp.is_none() {
                return Err(without("publish", "`listen` in [rtsp]", said.span()));
            }
            if webrtc == WebRtcConfig::Off {
                return Err(without("publish", "`webrtc`", said.span()));
            }
        }
        if let Some(named) = allowed.filter(|_| !is_served) {
            return Err(without("allow_origin", "`listen`", named.span()));
        }
        let listen = self.listen.as_ref();
        Ok(is_served.then_some(HttpConfig {
            listen: listen.map(|of| tcp(source, of)).transpose()?,
            tls,
            origins,
            webrtc,
            publish,
        }))
    }

    /// The TLS service, if it is enabled. Without a certificate of its own it has that of RTSP.
    fn tls(
        &self,
        source: &SourceFile<'_>,
        folder: &Path,
        rtsp: Option<&TlsConfig>,
    ) -> Result<Option<TlsConfig>, Failure> {
        let files = [("certificate", &self.certificate), ("key", &self.key)];
        let Some(said) = &self.tls_listen else {
            let unused = files
                .into_iter()
                .find_map(|(name, of)| Some((name, of.as_ref()?)));
            return match unused {
                None => Ok(None),
                Some((name, of)) => Err(source
                    .bad_input(
                        of.span(),
                        format!("`{name}` has no effect without `tls_listen`"),
                    )
                    .help(format!("set `tls_listen` in [http], or remove `{name}`"))),
            };
        };
        let listen = tcp(source, said)?;
        match (&self.certificate, &self.key, rtsp) {
            (Some(certificate), Some(key), _) => Ok(Some(TlsConfig {
                listen,
                certificate: folder.join(certificate.get_ref()),
                key: folder.join(key.get_ref()),
            })),
            (None, None, Some(rtsp)) => Ok(Some(TlsConfig {
                listen,
                ..rtsp.clone()
            })),
            _ => Err(source
                .bad_input(said.span(), "TLS is configured incompletely")
                .help("set both `certificate` and `key` in [http], or neither of them and those of [rtsp]")),
        }
    }
}
