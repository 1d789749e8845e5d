//! The `[metrics]` section: metrics for Prometheus by TCP.

use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::tcp;
use crate::failure::{Failure, SourceFile};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Section {
    listen: Option<Spanned<String>>,
}

impl Section {
    /// The address at which metrics are served; `None` if they are on the control socket alone.
    ///
    /// # Errors
    /// If it is not an address.
    pub(super) fn checked(&self, source: &SourceFile<'_>) -> Result<Option<SocketAddr>, Failure> {
        let listen = self.listen.as_ref();
        listen.map(|listen| tcp(source, listen)).transpose()
    }
}
