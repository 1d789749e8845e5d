//! Recording and playing over RTSP: `[rtsp]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::Deserialize;
use toml::Spanned;

use super::{head_of, tcp};
use crate::failure::{Failure, SourceFile};
use crate::quantity::{self, Span};
use media::MediaConfig;
use media::archive::block::BLOCK_BYTES;
use media::camera::sources::SourcesConfig;
use media::rtsp::access::{AccessConfig, Permit, Right};
use media::rtsp::tls::TlsConfig;

/// What is reserved for a recording that does not say what it needs.
const RATE_DEFAULT: BytesPerSecond = BytesPerSecond(1_000_000);
const BLOCK_DEFAULT: Bytes = Bytes::from_kib(256);
const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(60);

/// Where sources are remembered, beside the configuration.
const SOURCES_DEFAULT: &str = "sources.json";

/// Clients say something twice in this time at least.
const TIMEOUT_MIN: Nanos = Nanos::from_secs(2);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    listen: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    rate: Option<BytesPerSecond>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    block: Option<Bytes>,
    #[serde(default, deserialize_with = "quantity::optional_text")]
    timeout: Option<Nanos>,
    sources: Option<PathBuf>,
    users: Option<PathBuf>,
    tls_listen: Option<Spanned<String>>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    #[serde(default)]
    permit: Vec<PermitSection>,
}

/// What a user may do: `[[rtsp.permit]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermitSection {
    user: Spanned<String>,
    may: Vec<Right>,
    volumes: Option<Vec<String>>,
}

/// What the section says.
pub(super) struct Checked {
    pub(super) served: Option<MediaConfig>,
    pub(super) access: Option<AccessConfig>,
    pub(super) pulled: SourcesConfig,
}

impl Section {
    /// What the section says, where it makes sense: how RTSP is served, `None` if it is not to be, who may do what, also
    /// of those who come by HTTP, and how sources are pulled from.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn checked(
        &self,
        source: &SourceFile<'_>,
        folder: &Path,
    ) -> Result<Checked, Failure> {
        let wrong = |what: String| source.wrong(head_of(source, "rtsp"), what);
        let rate = self.rate.unwrap_or(RATE_DEFAULT);
        let block = self.block.unwrap_or(BLOCK_DEFAULT);
        let timeout = self.timeout.unwrap_or(TIMEOUT_DEFAULT);
        if !BLOCK_BYTES.contains(&block.get()) || !block.get().is_power_of_two() {
            return Err(wrong(format!("`block` is {block}"))
                .help("give a power of two from \"64KiB\" to \"4MiB\""));
        }
        if timeout < TIMEOUT_MIN {
            return Err(wrong(format!("`timeout` is {}", Span(timeout)))
                .help(format!("give it at least {}", Span(TIMEOUT_MIN))));
        }
        let listen = self.listen.as_ref();
        let listen = listen.map(|listen| tcp(source, listen)).transpose()?;
        let access = self.access(source, folder)?;
        let tls = self.tls(source, folder)?;
        let is_served = listen.is_some() || tls.is_some();
        let served = is_served.then_some(MediaConfig {
            listen,
            tls,
            rate,
            block,
            timeout: Duration::from_nanos(timeout.get()),
        });
        let file = self.sources.as_deref();
        let file = folder.join(file.unwrap_or(Path::new(SOURCES_DEFAULT)));
        let pulled = SourcesConfig {
            file,
            rate,
            block,
            timeout,
        };
        Ok(Checked {
            served,
            access,
            pulled,
        })
    }

    /// Where TLS is served, and as whom.
    fn tls(&self, source: &SourceFile<'_>, folder: &Path) -> Result<Option<TlsConfig>, Failure> {
        match (&self.tls_listen, &self.certificate, &self.key) {
            (None, None, None) => Ok(None),
            (Some(listen), Some(certificate), Some(key)) => Ok(Some(TlsConfig {
                listen: tcp(source, listen)?,
                certificate: folder.join(certificate.get_ref()),
                key: folder.join(key.get_ref()),
            })),
            (listen, certificate, key) => {
                let spans = [
                    listen.as_ref().map(Spanned::span),
                    certificate.as_ref().map(Spanned::span),
                    key.as_ref().map(Spanned::span),
                ];
                let span = spans.into_iter().flatten().next().unwrap_or_default();
                Err(source
                    .wrong(span, "TLS is configured by halves")
                    .help("give `tls_listen`, `certificate` and `key`, or none of them"))
            }
        }
    }

    /// Who may do what; `None`: everybody everything.
    fn access(
        &self,
        source: &SourceFile<'_>,
        folder: &Path,
    ) -> Result<Option<AccessConfig>, Failure> {
        let Some(users) = &self.users else {
            let Some(first) = self.permit.first() else {
                return Ok(None);
            };
            let what = format!(
                "`{}` may do something, but nobody is asked who he is",
                first.user.get_ref()
            );
            return Err(source
                .wrong(first.user.span(), what)
                .help("name a file of users in [rtsp] as `users`, or take the permit out"));
        };
        let permits = self.permit.iter().map(|permit| Permit {
            user: permit.user.get_ref().clone(),
            may: permit.may.clone(),
            volumes: permit.volumes.clone(),
        });
        Ok(Some(AccessConfig {
            users: folder.join(users),
            permits: permits.collect(),
        }))
    }
}
