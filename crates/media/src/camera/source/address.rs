//! The URL of a camera, the login for it, and the transport of its packets.

use std::fmt;
use std::net::SocketAddr;

use percent_encoding::percent_decode_str;
use rtsp_types::Url;

use super::Credentials;
use crate::rtsp::connection::volumes;

/// The default port of `rtsp`.
const PORT: u16 = 554;

/// The default port of `rtsps`.
const TLS_PORT: u16 = 322;

/// The transport of a camera's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LowerTransport {
    /// Interleaved in the RTSP connection.
    #[default]
    Tcp,
    /// RTP over UDP.
    Udp,
}

impl LowerTransport {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Tcp => Self::Udp,
            Self::Udp => Self::Tcp,
        }
    }
}

impl fmt::Display for LowerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// The URL of a camera, without credentials, and the credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub(super) url: Url,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) credentials: Option<Credentials>,
}

/// Why a URL cannot be a camera's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// The text is not a URL. It is not repeated, because it may contain a password.
    #[error("not a valid URL: {0}")]
    Syntax(String),
    /// Neither `rtsp` nor `rtsps`.
    #[error("its scheme is {0:?}; use rtsp or rtsps")]
    Scheme(String),
    /// No host.
    #[error("the URL has no host")]
    Host,
    /// The user or the password is not UTF-8.
    #[error("user or password in the URL is not UTF-8")]
    Credentials,
}

/// Why a redirect of a camera is not followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RedirectError {
    /// The URL cannot be a camera's.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// From `rtsps` to `rtsp`.
    #[error("{0} does not use TLS, but the source does")]
    Plain(String),
    /// To `rtsps`, which excludes UDP.
    #[error("{0} uses TLS, which excludes UDP: add the source with that URL and --transport tcp")]
    Udp(String),
    /// The password belongs to another host.
    #[error(
        "{0} asks for a password and may belong to another party: add the source with that URL, and its user and password"
    )]
    Login(String),
}

impl Address {
    /// The address of a redirect by a camera that was reached at `peer`. The credentials are kept only for the same host.
    ///
    /// # Errors
    /// See [`RedirectError`].
    pub(super) fn redirected(&self, to: &str, peer: SocketAddr) -> Result<Self, RedirectError> {
        let to = self.url.join(to);
        let to = to.map_err(|error| AddressError::Syntax(error.to_string()))?;
        let mut to = Self::parse(to.as_str())?;
        if self.is_secure() && !to.is_secure() {
            return Err(RedirectError::Plain(to.shown().to_owned()));
        }
        let is_host = to.host.eq_ignore_ascii_case(&self.host) || to.host.parse() == Ok(peer.ip());
        // Another port of the host may be another user's service, unless its certificate shows who it is.
        let is_same = is_host && (to.port == self.port || to.is_secure());
        if to.credentials.is_none() && is_same {
            to.credentials.clone_from(&self.credentials);
        }
        Ok(to)
    }

    /// True if this server would play a recording of `volume` at this URL.
    pub(super) fn plays(&self, volume: &str) -> bool {
        volumes(self.url.path()).is_some_and(|all| all.iter().any(|of| of == volume))
    }

    /// Parses `rtsp://USER:PASSWORD@HOST/PATH`, or the same with `rtsps`.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let mut url = Url::parse(text).map_err(|error| AddressError::Syntax(error.to_string()))?;
        let port = match url.scheme() {
            "rtsp" => PORT,
            "rtsps" => TLS_PORT,
            other => return Err(AddressError::Scheme(other.to_owned())),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host
            .ok_or(AddressError::Host)?
            .trim_matches(['[', ']'])
            .to_owned();
        let plain = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded
                .map(String::from)
                .map_err(|_| AddressError::Credentials)
        };
        let credentials = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some(Credentials {
                user: plain(user)?,
                password: plain(password.unwrap_or_default())?,
            }),
        };
        let cleared = url.set_password(None).and_then(|()| url.set_username(""));
        cleared.map_err(|()| AddressError::Host)?;
        url.set_fragment(None);
        Ok(Self {
            port: url.port().unwrap_or(port),
            host,
            url,
            credentials,
        })
    }

    /// The URL without credentials.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.url.as_str()
    }

    /// True if the scheme is `rtsps`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "rtsps"
    }

    /// The user and password of the URL that was parsed.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_takes_no_password_to_another_host() {
        let peer = "192.0.2.1:554".parse().unwrap();
        let go = |from: &str, to: &str| Address::parse(from).unwrap().redirected(to, peer);
        let of = |host: &str| format!("rtsp://u:p@{host}/a/b");
        for (from, to, shown, has_password) in [
            ("cam", "rtsp://cam/c?d", "rtsp://cam/c?d", true),
            ("cam", "/c", "rtsp://cam/c", true),
            ("cam", "c", "rtsp://cam/a/c", true),
            ("cam", "rtsp://cam:554/c", "rtsp://cam:554/c", true),
            ("cam", "rtsp://cam:8554/c", "rtsp://cam:8554/c", false),
            ("cam:8554", "rtsp://cam:8554/c", "rtsp://cam:8554/c", true),
            ("cam", "rtsps://cam/c", "rtsps://cam/c", true),
            ("Cam", "rtsp://cam/c", "rtsp://cam/c", true),
            ("cam", "rtsp://192.0.2.1/c", "rtsp://192.0.2.1/c", true),
            ("cam", "rtsp://192.0.2.2/c", "rtsp://192.0.2.2/c", false),
            ("cam", "rtsp://other/c", "rtsp://other/c", false),
            ("cam", "rtsps://other/c", "rtsps://other/c", false),
            ("cam", "rtsp://v:q@other/c", "rtsp://other/c", true),
        ] {
            let gone = go(&of(from), to).unwrap();
            assert_eq!(gone.shown(), shown, "{to}");
            assert_eq!(gone.credentials().is_some(), has_password, "{to}");
        }
        let gone = go(&of("cam"), "rtsp://v:q@other/c").unwrap();
        assert_eq!(gone.credentials().unwrap().user, "v");
        let plain = go("rtsps://cam/a", "rtsp://cam/a");
        let refused = RedirectError::Plain("rtsp://cam/a".to_owned());
        assert_eq!(plain, Err(refused));
        for bad in ["http://cam/a", "rtsp:///a", "rtsp://["] {
            let gone = go("rtsp://cam/a", bad);
            assert!(matches!(gone, Err(RedirectError::Address(_))), "{bad}");
        }
    }

    #[test]
    fn url_is_parsed_and_shown_without_its_password() {
        let address =
            Address::parse("rtsp://ad%6Din:p%40ss%3A@cam.example:8554/a?b=c&d=1").unwrap();
        assert_eq!(address.shown(), "rtsp://cam.example:8554/a?b=c&d=1");
        assert_eq!(
            (address.host.as_str(), address.port),
            ("cam.example", 8_554)
        );
        let credentials = address.credentials().unwrap();
        assert_eq!(
            (&*credentials.user, &*credentials.password),
            ("admin", "p@ss:")
        );
        assert!(!format!("{address:?}").contains("p@ss"));
        let address = Address::parse("rtsp://[::1]/x").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", 554));
        assert_eq!(address.credentials(), None);
        assert!(!address.is_secure());
        let address = Address::parse("rtsps://cam/x").unwrap();
        assert_eq!((address.is_secure(), address.port), (true, 322));
        for (text, error) in [
            ("rtspu://h/x", AddressError::Scheme("rtspu".to_owned())),
            ("http://h/x", AddressError::Scheme("http".to_owned())),
            ("rtsp:/x", AddressError::Host),
            ("rtsp://u:%ff@h/x", AddressError::Credentials),
        ] {
            assert_eq!(Address::parse(text), Err(error), "{text}");
        }
        assert!(matches!(
            Address::parse("cam"),
            Err(AddressError::Syntax(_))
        ));
    }
}
