//! Access control of RTSP: users with passwords, their rights, and the authentication of connections.
//!
//! Every request except OPTIONS needs Digest authentication (RFC 2069 and 2617). Basic is refused: it would send
//! the password itself. Comparisons take constant time.

mod guard;
mod penalty;
mod users;
mod visitor;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use sched::units::{Nanos, Time};

pub(crate) use guard::parse;
pub(crate) use guard::{AuthError, Guard};
use penalty::Penalties;
pub(crate) use users::parse as parse_users;
pub use users::{REALM, UsersError};
use users::{Secret, Users};
use visitor::Nonces;
pub use visitor::{Visitor, VisitorRefusal};

use peers::log_throttle::SharedLogThrottle;

/// Refused logins, which any client can cause.
static REFUSED: SharedLogThrottle = SharedLogThrottle::few();

/// A right of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessRight {
    /// To play recordings.
    Play,
    /// To record.
    Record,
}

/// Rights of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permit {
    /// The user's name.
    pub user: String,
    /// The rights.
    pub may: Vec<AccessRight>,
    /// The volumes that they are for; all volumes when absent.
    pub volumes: Option<Vec<String>>,
}

impl Permit {
    fn allows(&self, user: &str, right: AccessRight, volume: &str) -> bool {
        let volumes = self.volumes.as_ref();
        let is_there = volumes.is_none_or(|of| of.iter().any(|name| name == volume));
        self.user == user && self.may.contains(&right) && is_there
    }
}

/// The configuration of users and rights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessConfig {
    /// The users file.
    pub users: std::path::PathBuf,
    /// Their rights. Without any permit every user has all rights.
    pub permits: Vec<Permit>,
}

/// The users of a server.
pub struct Access {
    users: Users,
    permits: Vec<Permit>,
    penalties: Penalties,
    nonces: Nonces,
}

impl Access {
    /// Reads the users.
    ///
    /// # Errors
    /// When the users file cannot be read, is invalid, or is accessible to others than its owner.
    pub fn open(config: &AccessConfig) -> Result<Self, UsersError> {
        let users = Users::open(&config.users)?;
        for Permit { user, .. } in &config.permits {
            // The user may be added later.
            if users.secret(user).is_none() {
                tracing::warn!(
                    user,
                    "[[rtsp.permit]] names a user that is not in the users file"
                );
            }
        }
        Ok(Self {
            users,
            permits: config.permits.clone(),
            penalties: Penalties::default(),
            nonces: Nonces::new().map_err(|_| UsersError::Random)?,
        })
    }

    /// The secret of a user, from the current users file.
    fn secret(&self, user: &str) -> Option<Secret> {
        self.users.secret(user)
    }

    /// True if a user has a right in a volume.
    pub(crate) fn allows(&self, user: &str, right: AccessRight, volume: &str) -> bool {
        self.permits.is_empty()
            || self
                .permits
                .iter()
                .any(|permit| permit.allows(user, right, volume))
    }

    /// Notes a failed login from an address; returns how long the reply is to be delayed.
    pub(crate) fn failed(&self, peer: IpAddr, now: Time) -> Nanos {
        self.penalties.failed(peer, now)
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl AuthError {
    /// The message for the peer. Refusals that may be guesses are logged.
    pub(crate) fn log(&self, peer: SocketAddr) -> &'static str {
        let (why, user, message) = match self {
            Self::Nobody => return "a user and a password are required",
            Self::Stale => return "the nonce has expired: use the new one",
            Self::Syntax(what) => ("invalid Authorization header", None, *what),
            Self::Wrong(user) => (
                "unknown user or wrong password",
                Some(user),
                "unknown user or wrong password",
            ),
            Self::Other(user) => (
                "another user has logged in on the connection",
                Some(user),
                "another user has logged in on this connection: open a new connection",
            ),
        };
        if let Some(untold) = REFUSED.turn(Instant::now()) {
            let user = user.map(tracing::field::debug);
            let what = user.is_none().then_some(message);
            tracing::warn!(%peer, user, what, untold, "a login is refused: {why}");
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_add_up_and_without_any_every_right_is_granted() {
        let permit = |user: &str, may: &[AccessRight], volumes: Option<&[&str]>| Permit {
            user: user.to_owned(),
            may: may.to_vec(),
            volumes: volumes.map(|of| of.iter().map(|name| (*name).to_owned()).collect()),
        };
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users");
        users::tests::write(&users, "", 0o600);
        let access = |permits| {
            Access::open(&AccessConfig {
                users: users.clone(),
                permits,
            })
            .unwrap()
        };
        assert!(access(Vec::new()).allows("anybody", AccessRight::Record, "v"));
        let access = access(vec![
            permit("a", &[AccessRight::Play], None),
            permit("a", &[AccessRight::Record], Some(&["v", "w"])),
            permit("b", &[AccessRight::Play, AccessRight::Record], Some(&[])),
        ]);
        for (user, right, volume, is_allowed) in [
            ("a", AccessRight::Play, "x", true),
            ("a", AccessRight::Record, "w", true),
            ("a", AccessRight::Record, "x", false),
            ("b", AccessRight::Play, "v", false),
            ("c", AccessRight::Play, "v", false),
        ] {
            assert_eq!(
                access.allows(user, right, volume),
                is_allowed,
                "{user} {right:?} {volume}"
            );
        }
    }
}
