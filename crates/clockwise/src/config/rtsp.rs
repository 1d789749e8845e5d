//! The `[rtsp]` section: recording and playing over RTSP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::Deserialize;
use toml::Spanned;

use super::{header_of, tcp};
use crate::failure::{Failure, SourceFile};
use crate::quantity::{self, Span};
use media::MediaConfig;
use media::archive::block::BLOCK_BYTES;
use media::camera::sources::SourcesConfig;
use media::rtsp::access::{AccessConfig, AccessRight, Grant, Permit};
use media::rtsp::tls::TlsConfig;

/// The first guess for a recording that states no rate: 2 Mbit/s.
const RATE_DEFAULT: BytesPerSecond = BytesPerSecond(250_000);
const BLOCK_DEFAULT: Bytes = Bytes::from_kib(256);
const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(60);

/// The file that stores the sources, in the folder of the configuration.
const SOURCES_DEFAULT: &str = "sources.json";

/// The shortest `timeout`; clients send a keep-alive at least twice in that time.
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

/// A `[[rtsp.permit]]` section: the rights of a user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermitSection {
    user: Spanned<String>,
    may: Vec<Spanned<String>>,
    volumes: Option<Vec<String>>,
}

impl PermitSection {
    fn checked(&self, source: &SourceFile<'_>) -> Result<Permit, Failure> {
        let mut may = Vec::new();
        for word in &self.may {
            let rights = AccessRight::of_word(word.get_ref());
            may.extend(rights.ok_or_else(|| {
                let words = AccessRight::ALL.map(AccessRight::word).join(", ");
                let what = format!("no right is called `{}`", word.get_ref());
                let help = format!("the rights are {words}, and play, which is the first three");
                source.bad_input(word.span(), what).help(help)
            })?);
        }
        Ok(Permit {
            user: self.user.get_ref().clone(),
            grant: Grant {
                may,
                volumes: self.volumes.clone(),
            },
        })
    }
}

/// The validated section.
pub(super) struct Checked {
    /// The RTSP service, if it is enabled.
    pub(super) served: Option<MediaConfig>,
    /// Access rules for RTSP and HTTP; without them everyone may do everything.
    pub(super) access: Option<AccessConfig>,
    /// Settings for pulling from cameras.
    pub(super) pulled: SourcesConfig,
}

impl Section {
    /// Validates the section.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub(super) fn checked(
        &self,
        source: &SourceFile<'_>,
        folder: &Path,
    ) -> Result<Checked, Failure> {
        let bad_input = |what: String| source.bad_input(header_of(source, "rtsp"), what);
        let rate = self.rate.unwrap_or(RATE_DEFAULT);
        let block = self.block.unwrap_or(BLOCK_DEFAULT);
        let timeout = self.timeout.unwrap_or(TIMEOUT_DEFAULT);
        if !BLOCK_BYTES.contains(&block.get()) || !block.get().is_power_of_two() {
            return Err(bad_input(format!("`block` is {block}"))
                .help("set it to a power of two from \"64KiB\" to \"4MiB\""));
        }
        if timeout < TIMEOUT_MIN {
            return Err(bad_input(format!("`timeout` is {}", Span(timeout)))
                .help(format!("set it to at least {}", Span(TIMEOUT_MIN))));
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

    /// The TLS service, if it is enabled.
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
                    .bad_input(span, "TLS is configured incompletely")
                    .help("set all of `tls_listen`, `certificate` and `key`, or none of them"))
            }
        }
    }

    /// The access rules; `None` if everyone may do everything.
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
                "there are rights for user `{}`, but no `users` file to log in with",
                first.user.get_ref()
            );
            return Err(source
                .bad_input(first.user.span(), what)
                .help("set `users` in [rtsp] to a file of users, or remove the permit"));
        };
        let permits = self.permit.iter().map(|permit| permit.checked(source));
        Ok(Some(AccessConfig {
            users: Some(folder.join(users)),
            permits: permits.collect::<Result<_, _>>()?,
            accounts: None,
        }))
    }
}
