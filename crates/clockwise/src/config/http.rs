//! Recordings for browsers: `[http]`.

use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::tcp;
use crate::failure::{Failure, SourceFile};
use crate::http::files::Origins;

/// How recordings are served to browsers.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Where.
    pub address: SocketAddr,
    /// Whose pages may fetch them besides the server's own.
    pub origins: Option<Origins>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Section {
    listen: Option<Spanned<String>>,
    allow_origin: Option<Spanned<Vec<String>>>,
}

impl Section {
    /// What the section says, if recordings are to be served.
    ///
    /// # Errors
    /// What makes no sense.
    pub(super) fn checked(&self, source: &SourceFile<'_>) -> Result<Option<HttpConfig>, Failure> {
        let allowed = self.allow_origin.as_ref();
        let origins = allowed.map(|named| {
            Origins::parse(named.get_ref()).map_err(|error| {
                source.wrong(named.span(), error.to_string()).help(
                    "write what the page's address begins with, without a path, such as [\"http://portal.example\"], or [\"*\"] for all",
                )
            })
        });
        let origins = origins.transpose()?;
        match (&self.listen, allowed) {
            (Some(listen), _) => Ok(Some(HttpConfig {
                address: tcp(source, listen)?,
                origins,
            })),
            (None, Some(named)) => Err(source
                .wrong(named.span(), "no page can show what is not served")
                .help("say where with `listen`, or leave `allow_origin` out")),
            (None, None) => Ok(None),
        }
    }
}
