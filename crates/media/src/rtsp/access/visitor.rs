//! Authentication of clients that read recordings over HTTP: the same users, passwords and rights as over RTSP.
//!
//! Programs may send a token instead (Bearer, RFC 6750).
//!
//! HTTP clients may answer a challenge on another connection, so a nonce does not belong to a connection: it is a
//! time, and a proof (HMAC) that the server made it for the client's address. An overheard request can be repeated
//! while its nonce is valid. That yields only what has gone over the wire before: Digest is no login for requests that
//! change something.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::hmac;
use ring::rand::SystemRandom;
use sched::units::{Nanos, Time};

use super::guard::{REFUSALS_MAX, parse};
use super::secret::hex;
use super::{Access, AccessRight, AuthError, REALM};

/// A nonce is valid for this long.
const NONCE_WITHIN: Nanos = Nanos::from_secs(300);

/// Makes nonces and verifies them.
#[derive(Debug)]
pub(super) struct Nonces(hmac::Key);

impl Nonces {
    /// With a random key.
    pub(super) fn new() -> Result<Self, ring::error::Unspecified> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map(Self)
    }

    /// The text that is signed.
    fn signed_text(made: u64, peer: IpAddr) -> Vec<u8> {
        format!("{made:016x} {peer}").into_bytes()
    }

    fn make(&self, now: Time, peer: IpAddr) -> String {
        let made = now.0;
        let proof = hmac::sign(&self.0, &Self::signed_text(made, peer));
        format!("{made:016x}{}", hex(proof.as_ref()))
    }

    /// True if a nonce was made for this address and is not too old.
    fn is_valid(&self, nonce: &str, now: Time, peer: IpAddr) -> bool {
        let Some((made, proof)) = nonce.split_at_checked(16) else {
            return false;
        };
        let Ok(made) = u64::from_str_radix(made, 16) else {
            return false;
        };
        let digits: Option<Vec<u32>> = proof.chars().map(|of| of.to_digit(16)).collect();
        let proof: Vec<u8> = digits
            .unwrap_or_default()
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8))
            .collect();
        let is_ours = hmac::verify(&self.0, &Self::signed_text(made, peer), &proof).is_ok();
        is_ours && now.0.saturating_sub(made) < NONCE_WITHIN.get()
    }
}

/// Why a request is refused.
#[derive(Debug)]
pub enum VisitorRefusal {
    /// It has no valid credentials.
    Unknown {
        /// The value of `WWW-Authenticate`.
        challenge: String,
        /// The reason, for the client.
        why: &'static str,
        /// The delay of the reply.
        wait: Nanos,
    },
    /// The user lacks the right; the reason, for the client.
    Forbidden(String),
    /// Too many requests of this connection were refused: it is to be closed.
    Guessing,
}

/// The proof that a request brings.
#[derive(Clone, Copy, Debug)]
pub enum Login<'a> {
    /// The value of `Authorization`.
    Authorization(&'a str),
    /// The cookie of a browser that has signed in.
    Cookie(&'a str),
}

/// A right that a request needs.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The right.
    pub right: AccessRight,
    /// The volume; when absent, the right is one in all volumes.
    pub volume: Option<&'a str>,
}

/// The token of an `Authorization`.
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("Bearer");
    is_bearer.then_some(token.trim())
}

/// The time in seconds since 1970. A clock before that makes no token expire.
fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// A connection, and the user of its last request.
pub struct Visitor {
    access: Arc<Access>,
    user: Option<String>,
    failures: u32,
    peer: SocketAddr,
}

impl Visitor {
    /// A new connection.
    #[must_use]
    pub fn new(access: Arc<Access>, peer: SocketAddr) -> Self {
        Self {
            access,
            user: None,
            failures: 0,
            peer,
        }
    }

    /// True if the user of the last request has a right in a volume.
    #[must_use]
    pub fn may(&self, right: AccessRight, volume: &str) -> bool {
        let user = self.user.as_ref();
        user.is_some_and(|user| self.access.allows(user, right, Some(volume)))
    }

    /// The user of the last request.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Authenticates a request for `target`, and checks the user's right if it needs one.
    ///
    /// # Errors
    /// When it has no valid credentials, or the user has no right.
    pub fn admit(
        &mut self,
        method: &str,
        target: &str,
        login: Option<Login<'_>>,
        wish: Option<Wish<'_>>,
        now: Time,
    ) -> Result<(), VisitorRefusal> {
        self.user = None;
        match self.checked(method, target, login, now) {
            Ok(user) => self.user = Some(user),
            Err(refused) => return Err(self.refused(&refused, now)),
        }
        let user = self.user.as_deref().unwrap_or_default();
        let Some(Wish { right, volume }) = wish else {
            return Ok(());
        };
        if self.access.allows(user, right, volume) {
            return Ok(());
        }
        let what = right.verb();
        tracing::info!(peer = %self.peer, user, volume, what, "a user lacks a right");
        let place = match volume {
            Some(volume) => format!("volume {volume:?}"),
            None => "the server".to_owned(),
        };
        Err(VisitorRefusal::Forbidden(format!(
            "user {user:?} may not {what} {place}"
        )))
    }

    /// The user of a request.
    fn checked(
        &self,
        method: &str,
        target: &str,
        login: Option<Login<'_>>,
        now: Time,
    ) -> Result<String, AuthError> {
        let authorization = match login.ok_or(AuthError::Nobody)? {
            Login::Authorization(said) => said,
            Login::Cookie(cookie) => {
                let accounts = self.access.accounts();
                let sign_ins = &self.access.sign_ins;
                let user = accounts.and_then(|of| sign_ins.user(of, cookie, now));
                // An old cookie is no guess.
                return user.ok_or(AuthError::Nobody);
            }
        };
        if let Some(token) = bearer(authorization) {
            let accounts = self.access.accounts();
            let user = accounts.and_then(|of| of.user_of_token(token, unix_seconds()));
            return user.ok_or(AuthError::Token);
        }
        let said = parse(authorization).map_err(AuthError::Syntax)?;
        // Some clients write the whole URI instead of the path.
        let is_it = |said: &str| {
            let behind = said.split_once("://").map_or("", |(_, rest)| rest);
            said == target || behind.find('/').is_some_and(|at| &behind[at..] == target)
        };
        said.proven(&self.access, None, method, is_it)?;
        let nonces = &self.access.nonces;
        match nonces.is_valid(said.nonce(), now, self.peer.ip()) {
            true => Ok(said.user().to_owned()),
            false => Err(AuthError::Stale),
        }
    }

    fn refused(&mut self, refused: &AuthError, now: Time) -> VisitorRefusal {
        let why = refused.log(self.peer);
        let mut wait = Nanos::ZERO;
        if !matches!(refused, AuthError::Nobody | AuthError::Stale) {
            self.failures += 1;
            wait = self.access.failed(self.peer.ip(), now);
        }
        if self.failures >= REFUSALS_MAX {
            return VisitorRefusal::Guessing;
        }
        let nonce = self.access.nonces.make(now, self.peer.ip());
        let stale = if *refused == AuthError::Stale {
            ", stale=true"
        } else {
            ""
        };
        VisitorRefusal::Unknown {
            challenge: format!(
                "Digest realm=\"{REALM}\", nonce=\"{nonce}\", algorithm=MD5, qop=\"auth\"{stale}"
            ),
            why,
            wait,
        }
    }
}

impl std::fmt::Debug for Visitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Visitor")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonce_is_valid_for_its_address_and_for_five_minutes() {
        let (nonces, others) = (Nonces::new().unwrap(), Nonces::new().unwrap());
        let (peer, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let made = Time(7_000_000_000);
        let nonce = nonces.make(made, peer);
        let later = made.saturating_add(Nanos::from_secs(299));
        assert!(nonces.is_valid(&nonce, made, peer) && nonces.is_valid(&nonce, later, peer));
        assert!(!nonces.is_valid(&nonce, later.saturating_add(Nanos::from_secs(1)), peer));
        assert!(!nonces.is_valid(&nonce, made, other) && !others.is_valid(&nonce, made, peer));
        // A nonce with any character changed is invalid.
        for at in 0..nonce.len() {
            let mut bytes = nonce.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(!nonces.is_valid(&changed, made, peer), "{at}");
        }
        for none in [
            "",
            "0",
            "zz",
            &nonce[..20],
            "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}",
        ] {
            assert!(!nonces.is_valid(none, made, peer), "{none}");
        }
    }
}
