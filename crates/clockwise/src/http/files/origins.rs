//! Pages of which other sites may fetch recordings (CORS, of the Fetch standard).

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use rtsp_types::Url;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// Stands for all sites.
const ANY: &str = "*";

/// How long a browser need not ask again.
const ASKED_FOR: Duration = Duration::from_secs(3_600);

/// What a script may see of an answer, besides what all may.
const SEEN: [HeaderName; 6] = [
    header::ACCEPT_RANGES,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::DATE,
    header::ETAG,
    header::RETRY_AFTER,
];

/// Sites whose pages may fetch recordings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origins {
    /// All; who somebody is, is not told by their browser.
    Any,
    /// These, and their users log in as on the server's own pages.
    These(Vec<HeaderValue>),
}

/// Why no site is meant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OriginError {
    /// It is no origin.
    #[error("`{0}` is no origin of a page")]
    None(String),
    /// It is more than one.
    #[error("`*` is of all sites, and stands alone")]
    Any,
}

impl Origins {
    /// Of what each is called, as `https://HOST:PORT`; `*` alone is any.
    ///
    /// # Errors
    /// When one of them is none.
    pub fn parse(named: &[String]) -> Result<Self, OriginError> {
        if named == [ANY] {
            return Ok(Self::Any);
        }
        let parsed = named.iter().map(|name| origin(name));
        parsed.collect::<Result<_, _>>().map(Self::These)
    }

    /// What answers browsers that ask for them.
    pub fn layer(&self) -> CorsLayer {
        let layer = CorsLayer::new()
            .allow_methods([Method::GET, Method::HEAD])
            .allow_headers([header::IF_RANGE, header::RANGE])
            .expose_headers(SEEN)
            .max_age(ASKED_FOR);
        match self {
            Self::Any => layer.allow_origin(AllowOrigin::any()),
            Self::These(origins) => layer
                .allow_origin(AllowOrigin::list(origins.clone()))
                .allow_credentials(true),
        }
    }
}

/// An origin as browsers write it.
fn origin(name: &str) -> Result<HeaderValue, OriginError> {
    if name == ANY {
        return Err(OriginError::Any);
    }
    let none = || OriginError::None(name.to_owned());
    let url = Url::parse(name).map_err(|_| none())?;
    let written = url.origin().ascii_serialization();
    // A path would be compared with nothing.
    let is_alone = url.as_str() == format!("{written}/") && !name.ends_with('/');
    match url.scheme() {
        "http" | "https" if is_alone => HeaderValue::from_str(&written).map_err(|_| none()),
        _ => Err(none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        let one = |name: &str| Origins::parse(&[name.to_owned()]);
        for (name, written) in [
            ("https://portal.example", "https://portal.example"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("HTTPS://Portal.Example:443", "https://portal.example"),
            ("http://bücher.example", "http://xn--bcher-kva.example"),
        ] {
            let written = HeaderValue::from_static(written);
            assert_eq!(one(name), Ok(Origins::These(vec![written])), "{name}");
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
            assert_eq!(one(bad), Err(OriginError::None(bad.to_owned())), "{bad}");
        }
        assert_eq!(one("*"), Ok(Origins::Any));
        let both = ["https://portal.example", "*"].map(str::to_owned);
        assert_eq!(Origins::parse(&both), Err(OriginError::Any));
    }
}
