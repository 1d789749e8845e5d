//! Who reads recordings over HTTP: the same users, with the same passwords and rights.
//!
//! Clients of HTTP answer on another connection than that on which they were asked, so a nonce is not of a connection: it
//! is a time, and a proof that the server made it for that address. A request that was overheard can be made again for as
//! long as it is new; all that whoever does so gets is what went over the wire before, as nothing can be changed here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ring::hmac;
use ring::rand::SystemRandom;
use sched::units::{Nanos, Time};

use super::guard::{REFUSALS_MAX, parse};
use super::{Access, REALM, Refused, Right};

/// A nonce is good for so long.
const NONCE_WITHIN: Nanos = Nanos::from_secs(300);

/// Makes nonces, and knows them again.
#[derive(Debug)]
pub(super) struct Nonces(hmac::Key);

impl Nonces {
    /// With a key that nobody knows.
    pub(super) fn new() -> Result<Self, ring::error::Unspecified> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map(Self)
    }

    /// What is proven: when, and for whom.
    fn said(made: u64, peer: IpAddr) -> Vec<u8> {
        format!("{made:016x} {peer}").into_bytes()
    }

    fn make(&self, now: Time, peer: IpAddr) -> String {
        let made = now.0;
        let proof = hmac::sign(&self.0, &Self::said(made, peer));
        let proof: String = proof
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{made:016x}{proof}")
    }

    /// Whether it was made for him, not too long ago.
    fn is_good(&self, nonce: &str, now: Time, peer: IpAddr) -> bool {
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
        let is_ours = hmac::verify(&self.0, &Self::said(made, peer), &proof).is_ok();
        is_ours && now.0.saturating_sub(made) < NONCE_WITHIN.get()
    }
}

/// Why somebody is not let in.
#[derive(Debug)]
pub enum Turned {
    /// He has not said who he is, or that is not right.
    Unknown {
        /// What he is to answer (`WWW-Authenticate`).
        challenge: String,
        /// Why.
        why: &'static str,
        /// How long he has to wait for being told so.
        wait: Nanos,
    },
    /// He may not see that.
    Forbidden(String),
    /// He has guessed too often: his connection ends.
    Guessing,
}

/// A connection, and who its last request was by.
pub struct Visitor {
    access: Arc<Access>,
    user: Option<String>,
    failures: u32,
    peer: SocketAddr,
}

impl Visitor {
    /// One that has said nothing yet.
    #[must_use]
    pub fn new(access: Arc<Access>, peer: SocketAddr) -> Self {
        Self {
            access,
            user: None,
            failures: 0,
            peer,
        }
    }

    /// Whether he may see this volume, when he has said who he is.
    #[must_use]
    pub fn may_see(&self, volume: &str) -> bool {
        let user = self.user.as_ref();
        user.is_some_and(|user| self.access.allows(user, Right::Play, volume))
    }

    /// Lets a request in, which is for what is at `target`, of a volume if it is of one.
    ///
    /// # Errors
    /// When it is not by somebody who may.
    pub fn admit(
        &mut self,
        method: &str,
        target: &str,
        authorization: Option<&str>,
        volume: Option<&str>,
        now: Time,
    ) -> Result<(), Turned> {
        self.user = None;
        match self.checked(method, target, authorization, now) {
            Ok(user) => self.user = Some(user),
            Err(refused) => return Err(self.refused(&refused, now)),
        }
        match volume.filter(|volume| !self.may_see(volume)) {
            Some(volume) => {
                let user = self.user.as_deref().unwrap_or_default();
                tracing::info!(peer = %self.peer, user, volume, "somebody may not play that");
                Err(Turned::Forbidden(format!(
                    "user {user:?} may not play volume {volume:?}"
                )))
            }
            None => Ok(()),
        }
    }

    /// Who asks.
    fn checked(
        &self,
        method: &str,
        target: &str,
        authorization: Option<&str>,
        now: Time,
    ) -> Result<String, Refused> {
        let said = parse(authorization.ok_or(Refused::Nobody)?).map_err(Refused::Syntax)?;
        // Some clients say all of it.
        let is_it = |said: &str| {
            let behind = said.split_once("://").map_or("", |(_, rest)| rest);
            said == target || behind.find('/').is_some_and(|at| &behind[at..] == target)
        };
        said.proven(&self.access, None, method, is_it)?;
        let nonces = &self.access.nonces;
        match nonces.is_good(said.nonce(), now, self.peer.ip()) {
            true => Ok(said.user().to_owned()),
            false => Err(Refused::Stale),
        }
    }

    fn refused(&mut self, refused: &Refused, now: Time) -> Turned {
        let why = refused.told(self.peer);
        let mut wait = Nanos::ZERO;
        if !matches!(refused, Refused::Nobody | Refused::Stale) {
            self.failures += 1;
            wait = self.access.failed(self.peer.ip(), now);
        }
        if self.failures >= REFUSALS_MAX {
            return Turned::Guessing;
        }
        let nonce = self.access.nonces.make(now, self.peer.ip());
        let stale = if *refused == Refused::Stale {
            ", stale=true"
        } else {
            ""
        };
        Turned::Unknown {
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
    fn a_nonce_is_good_for_whom_it_was_made_and_for_a_while() {
        let (nonces, others) = (Nonces::new().unwrap(), Nonces::new().unwrap());
        let (peer, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let made = Time(7_000_000_000);
        let nonce = nonces.make(made, peer);
        let later = made.saturating_add(Nanos::from_secs(299));
        assert!(nonces.is_good(&nonce, made, peer) && nonces.is_good(&nonce, later, peer));
        assert!(!nonces.is_good(&nonce, later.saturating_add(Nanos::from_secs(1)), peer));
        assert!(!nonces.is_good(&nonce, made, other) && !others.is_good(&nonce, made, peer));
        // Changed anywhere it is another one; so is what is none.
        for at in 0..nonce.len() {
            let mut bytes = nonce.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(!nonces.is_good(&changed, made, peer), "{at}");
        }
        for none in [
            "",
            "0",
            "zz",
            &nonce[..20],
            "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}",
        ] {
            assert!(!nonces.is_good(none, made, peer), "{none}");
        }
    }
}
