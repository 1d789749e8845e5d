//! Digest authentication of a connection (RFC 2617, with RFC 2069 as a subset; RFC 7616 with MD5).
//!
//! Each connection has its own nonce: credentials that were overheard on another connection are useless. With
//! `qop=auth` no request can be repeated either, as each has a number. Clients that know only RFC 2069 send no
//! numbers; to repeat their requests an attacker has to break into their TCP connection.
//!
//! A right response to a nonce that is old, or of another connection, is refused with a new nonce and `stale=true`: the
//! client repeats the request without asking its user again.

use http_auth::parse_challenges;
use rtsp_types::Url;
use sched::units::{Nanos, Time};
use subtle::ConstantTimeEq;

use super::Access;
use super::secret::{REALM, Secret, hash, hex, random};

/// A nonce is valid for this long.
const NONCE_WITHIN: Nanos = Nanos::from_secs(300);

/// A connection is closed after this many refused requests.
pub(super) const REFUSALS_MAX: u32 = 5;

/// The credentials of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Credentials {
    user: String,
    realm: String,
    nonce: String,
    uri: String,
    response: String,
    /// With `qop=auth`: the number of the request, its text (`nc`), and the nonce of the client (`cnonce`).
    counted: Option<(u32, String, String)>,
}

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AuthError {
    /// It has no credentials.
    Nobody,
    /// Its credentials cannot be parsed.
    Syntax(&'static str),
    /// The password is wrong, or there is no such user.
    Wrong(String),
    /// The password is right; the nonce is old, or of another connection.
    Stale,
    /// This other user has logged in on the connection.
    Other(String),
    /// The token is unknown or has expired.
    Token,
}

/// Parses the value of `Authorization`.
///
/// # Errors
/// The reason, for the client.
pub(crate) fn parse(header: &str) -> Result<Credentials, &'static str> {
    let said = parse_challenges(header).map_err(|_| "not a scheme with parameters")?;
    let [said] = said.as_slice() else {
        return Err("more than one scheme");
    };
    if !said.scheme.eq_ignore_ascii_case("Digest") {
        return Err("the scheme is not Digest");
    }
    let optional = |name: &str| {
        let mut of_name = said
            .params
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        match (of_name.next(), of_name.next()) {
            (found, None) => Ok(found.map(|(_, value)| value.to_unescaped())),
            _ => Err("a parameter appears twice"),
        }
    };
    let required =
        |name| optional(name)?.ok_or("one of username, realm, nonce, uri and response is missing");
    if optional("algorithm")?.is_some_and(|name| !name.eq_ignore_ascii_case("MD5")) {
        return Err("the algorithm is not MD5");
    }
    let counted = match optional("qop")? {
        None => None,
        Some(qop) if qop.eq_ignore_ascii_case("auth") => {
            let (Some(count), Some(client)) = (optional("nc")?, optional("cnonce")?) else {
                return Err("nc or cnonce is missing beside qop");
            };
            let is_count = count.len() == 8 && count.bytes().all(|digit| digit.is_ascii_hexdigit());
            let number = u32::from_str_radix(&count, 16).ok().filter(|_| is_count);
            Some((
                number.ok_or("nc is not eight hexadecimal digits")?,
                count,
                client,
            ))
        }
        Some(_) => return Err("qop is not auth"),
    };
    Ok(Credentials {
        user: required("username")?,
        realm: required("realm")?,
        nonce: required("nonce")?,
        uri: required("uri")?,
        response: required("response")?,
        counted,
    })
}

impl Credentials {
    /// True if they prove that the client knows the password.
    fn is_right(&self, method: &str, secret: &Secret) -> bool {
        let what = hash(&[method.as_bytes(), self.uri.as_bytes()]);
        let nonce = self.nonce.as_bytes();
        let expected = match &self.counted {
            None => hash(&[secret, nonce, &what]),
            Some((_, count, client)) => hash(&[
                secret,
                nonce,
                count.as_bytes(),
                client.as_bytes(),
                b"auth",
                &what,
            ]),
        };
        let said = self.response.to_ascii_lowercase();
        expected.ct_eq(said.as_bytes()).into()
    }
}

impl Credentials {
    /// The user's name.
    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// The nonce that they were made with.
    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Verifies them for a request; returns the user's secret. `known` is the secret if it has been looked up
    /// before, and `is_it` tells if a URI is that of the request.
    ///
    /// # Errors
    /// When the password is wrong, or they were made for another request.
    pub(super) fn proven(
        &self,
        access: &Access,
        known: Option<Secret>,
        method: &str,
        is_it: impl Fn(&str) -> bool,
    ) -> Result<Secret, AuthError> {
        let known = known.or_else(|| access.secret(&self.user));
        // An unknown user takes as long as a wrong password.
        let is_right = self.is_right(method, &known.unwrap_or_default());
        let secret = known.filter(|_| is_right && self.realm == REALM);
        let secret = secret.ok_or_else(|| AuthError::Wrong(self.user.clone()))?;
        // Overheard credentials must not be usable for another request.
        match is_it(&self.uri) {
            true => Ok(secret),
            false => Err(AuthError::Syntax("uri is not that of the request")),
        }
    }
}

struct Nonce {
    text: String,
    made: Time,
    /// The highest number of a request with it.
    count: u32,
}

struct LoggedIn {
    user: String,
    secret: Secret,
}

/// The authentication state of a connection.
#[derive(Default)]
pub(crate) struct Guard {
    nonce: Option<Nonce>,
    logged_in: Option<LoggedIn>,
    failures: u32,
}

impl Guard {
    /// The user that has logged in.
    pub(crate) fn user(&self) -> Option<&str> {
        self.logged_in.as_ref().map(|of| of.user.as_str())
    }

    /// True if too many requests of the connection were refused.
    pub(crate) fn is_shut(&self) -> bool {
        self.failures >= REFUSALS_MAX
    }

    /// Authenticates a request.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn check(
        &mut self,
        access: &Access,
        authorization: Option<&str>,
        method: &str,
        uri: Option<&Url>,
        now: Time,
    ) -> Result<(), AuthError> {
        let said = parse(authorization.ok_or(AuthError::Nobody)?);
        let checked = said
            .map_err(AuthError::Syntax)
            .and_then(|said| self.check_said(access, &said, method, uri, now));
        if matches!(
            checked,
            Err(AuthError::Syntax(_) | AuthError::Wrong(_) | AuthError::Other(_))
        ) {
            self.failures += 1;
        }
        checked
    }

    fn check_said(
        &mut self,
        access: &Access,
        said: &Credentials,
        method: &str,
        uri: Option<&Url>,
        now: Time,
    ) -> Result<(), AuthError> {
        if let Some(user) = self.user().filter(|user| *user != said.user) {
            return Err(AuthError::Other(user.to_owned()));
        }
        // Accounts change while clients are connected. The users file holds for those that connect.
        let known = match access.accounts() {
            Some(_) => None,
            None => self.logged_in.as_ref().map(|of| of.secret),
        };
        let is_it = |said: &str| uri.is_some_and(|uri| is_of(said, uri));
        let secret = said.proven(access, known, method, is_it)?;
        let nonce = self.nonce.as_mut().filter(|nonce| {
            let is_new = now.saturating_since(nonce.made) < NONCE_WITHIN;
            is_new && nonce.text == said.nonce
        });
        let nonce = nonce.ok_or(AuthError::Stale)?;
        if let Some((count, ..)) = said.counted {
            if count <= nonce.count {
                return Err(AuthError::Stale);
            }
            nonce.count = count;
        }
        if self.logged_in.is_none() {
            let user = said.user.clone();
            self.logged_in = Some(LoggedIn { user, secret });
        }
        Ok(())
    }

    /// The value of `WWW-Authenticate` after a refusal. Makes a new nonce if there is no valid one.
    ///
    /// # Errors
    /// When the kernel has no random numbers.
    pub(crate) fn challenge(&mut self, refused: &AuthError, now: Time) -> std::io::Result<String> {
        let is_stale = *refused == AuthError::Stale;
        let is_old = |nonce: &Nonce| now.saturating_since(nonce.made) >= NONCE_WITHIN;
        if is_stale || self.nonce.as_ref().is_none_or(is_old) {
            self.nonce = Some(Nonce {
                text: hex(&random::<16>()?),
                made: now,
                count: 0,
            });
        }
        let nonce = self.nonce.as_ref().map_or("", |nonce| &nonce.text);
        // live555 finds `stale` at this place only.
        let stale = if is_stale { ", stale=true" } else { "" };
        Ok(format!(
            "Digest realm=\"{REALM}\", nonce=\"{nonce}\"{stale}, algorithm=MD5, qop=\"auth\""
        ))
    }
}

/// True if credentials for the URI `said` are valid for a request for `uri`: the same URI, or one above it, which
/// live555 clients write with all requests of a presentation. A path alone is one of this server.
fn is_of(said: &str, uri: &Url) -> bool {
    let said = match said.starts_with('/') {
        true => uri.join(said),
        false => Url::parse(said),
    };
    let Ok(said) = said else { return false };
    if said == *uri {
        return true;
    }
    let host = |of: &Url| (of.host_str().map(str::to_owned), of.port());
    let is_there = said.scheme() == uri.scheme() && host(&said) == host(uri);
    let above = said.path().trim_end_matches('/');
    let below = uri.path().strip_prefix(above);
    let is_below = below.is_some_and(|below| below.is_empty() || below.starts_with('/'));
    is_there && said.query().is_none() && is_below
}

#[cfg(test)]
mod tests;
