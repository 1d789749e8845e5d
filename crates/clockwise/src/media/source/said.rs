//! What a camera's answers say.

use rtsp_types::Url;
use rtsp_types::headers::transport::{RtpTransportParameters, Transport};
use rtsp_types::headers::{LOCATION, TRANSPORT};

use super::SourceError;
use super::camera::Said;
use crate::media::transport::transports;

/// At which URL what is asked for is, if it is not here (RFC 2326, section 11.3).
pub(super) fn elsewhere(said: &Said) -> Option<&str> {
    let to = said.header(&LOCATION)?.as_str().trim();
    let is_told = matches!(u16::from(said.status()), 301..=303 | 307 | 308);
    (is_told && !to.is_empty()).then_some(to)
}

/// Whether a camera will not, and not only cannot now, for want of time, of room or of a session that it has forgotten.
pub(super) fn refuses(status: u16) -> bool {
    status >= 400 && !matches!(status, 408 | 453 | 454 | 503)
}

/// What a camera says that the names of its tracks are below; `None`: it is no URL, as some have with addresses of IPv4 in
/// IPv6, and what was asked for is that.
pub(super) fn based(said: &str) -> Option<&str> {
    let mut base = said.trim();
    // Some say their scheme twice.
    while let Some(inner) = base.strip_prefix("rtsp://")
        && inner.starts_with("rtsp://")
    {
        base = inner;
    }
    Url::parse(base)
        .is_ok_and(|url| url.has_host())
        .then_some(base)
}

/// What a camera has chosen of what it was offered.
pub(super) fn chosen(said: &Said) -> Result<RtpTransportParameters, SourceError> {
    let chosen = said.header(&TRANSPORT);
    let chosen = chosen.and_then(|chosen| transports(chosen.as_str()));
    let first = chosen.and_then(|transports| transports.first().cloned());
    match first {
        Some(Transport::Rtp(rtp)) => Ok(rtp.params),
        _ => Err(SourceError::Transport),
    }
}
