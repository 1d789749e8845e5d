//! Origins whose pages may fetch recordings (CORS, defined in the Fetch standard).

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use rtsp_types::Url;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// The text that means all origins.
const ANY: &str = "*";

/// The time for which a browser may cache the answer to a preflight request.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3_600);

/// Response headers that scripts may read, besides those that they may always read.
const EXPOSED_HEADERS: [HeaderName; 7] = [
    header::ACCEPT_RANGES,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::DATE,
    header::ETAG,
    header::LOCATION,
    header::RETRY_AFTER,
];

/// The origins whose pages may fetch recordings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origins {
    /// All origins. Browsers do not send credentials then.
    Any,
    /// The listed origins. Their users log in as on the server's own pages.
    Listed(Vec<HeaderValue>),
}

/// Why a list of origins is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OriginError {
    /// The text is not an origin.
    #[error("`{0}` is not an origin")]
    Invalid(String),
    /// `*` is combined with other origins.
    #[error("`*` cannot be combined with other origins")]
    AnyAmongOthers,
}

impl Origins {
    /// Parses a list of origins of the form `https://HOST:PORT`; `*` alone means any.
    ///
    /// # Errors
    /// When one of them is not an origin.
    pub fn parse(named: &[String]) -> Result<Self, OriginError> {
        if named == [ANY] {
            return Ok(Self::Any);
        }
        let parsed = named.iter().map(|name| origin(name));
        parsed.collect::<Result<_, _>>().map(Self::Listed)
    }

    /// The middleware that answers preflight requests and adds the headers.
    pub fn layer(&self) -> CorsLayer {
        let layer = CorsLayer::new()
            .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
            .allow_headers([header::CONTENT_TYPE, header::IF_RANGE, header::RANGE])
            .expose_headers(EXPOSED_HEADERS)
            .max_age(PREFLIGHT_MAX_AGE);
        // Nothing else is for other sites, the control API least of all.
        let is_media = |path: &str| path.starts_with("/media/") || path.starts_with("/player/");
        match self.clone() {
            Self::Any => layer.allow_origin(AllowOrigin::predicate(move |_, request| {
                is_media(request.uri.path())
            })),
            Self::Listed(origins) => layer
                .allow_origin(AllowOrigin::predicate(move |origin, request| {
                    is_media(request.uri.path()) && origins.contains(origin)
                }))
                .allow_credentials(true),
        }
    }
}

/// Parses an origin into the form in which browsers send it.
fn origin(name: &str) -> Result<HeaderValue, OriginError> {
    if name == ANY {
        return Err(OriginError::AnyAmongOthers);
    }
    let invalid = || OriginError::Invalid(name.to_owned());
    let url = Url::parse(name).map_err(|_| invalid())?;
    let written = url.origin().ascii_serialization();
    // Browsers send origins without a path, so an origin with one would never match.
    let is_alone = url.as_str() == format!("{written}/") && !name.ends_with('/');
    match url.scheme() {
        "http" | "https" if is_alone => HeaderValue::from_str(&written).map_err(|_| invalid()),
        _ => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_normalised_as_browsers_send_them() {
        let one = |name: &str| Origins::parse(&[name.to_owned()]);
        for (name, written) in [
            ("https://portal.example", "https://portal.example"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("HTTPS://Portal.Example:443", "https://portal.example"),
            ("http://bücher.example", "http://xn--bcher-kva.example"),
        ] {
            let written = HeaderValue::from_static(written);
            assert_eq!(one(name), Ok(Origins::Listed(vec![written])), "{name}");
        }
        for bad in [
            "",
            "portal.example",
            "https://portal.example/",
            "https://portal.example/page",
            "https://user@portal.example",
            "https://portal.example?a",
            "rtsp://portal.example",
            "file:///x",
            "null",
        ] {
            assert_eq!(one(bad), Err(OriginError::Invalid(bad.to_owned())), "{bad}");
        }
        assert_eq!(one("*"), Ok(Origins::Any));
        let both = ["https://portal.example", "*"].map(str::to_owned);
        assert_eq!(Origins::parse(&both), Err(OriginError::AnyAmongOthers));
    }
}
