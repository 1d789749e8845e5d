//! Who may do what over RTSP: users with passwords, what each may, and what a connection has to say to be one of them.
//!
//! Who is nobody yet is asked for a password by Digest (RFC 2069 and 2617) with every request but OPTIONS. A password
//! itself never comes, and Basic, by which it would, is not taken. What is compared is compared in a time that says
//! nothing of it.

mod guard;
mod penalty;
mod users;
mod visitor;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use sched::units::{Nanos, Time};

pub(crate) use guard::parse;
pub(crate) use guard::{Guard, Refused};
use penalty::Penalties;
pub(crate) use users::parse as parse_users;
pub use users::{REALM, UsersError};
use users::{Secret, Users};
use visitor::Nonces;
pub use visitor::{Turned, Visitor};

use peers::log_throttle::Sparing;

/// Logins that are refused, which anybody may try.
static REFUSED: Sparing = Sparing::few();

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Play recordings.
    Play,
    /// Record.
    Record,
}

/// That a user may do something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permit {
    /// Who.
    pub user: String,
    /// What.
    pub may: Vec<Right>,
    /// In which volumes; in all when absent.
    pub volumes: Option<Vec<String>>,
}

impl Permit {
    fn allows(&self, user: &str, right: Right, volume: &str) -> bool {
        let volumes = self.volumes.as_ref();
        let is_there = volumes.is_none_or(|of| of.iter().any(|name| name == volume));
        self.user == user && self.may.contains(&right) && is_there
    }
}

/// Where users are found, and what they may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessConfig {
    /// The file of users.
    pub users: std::path::PathBuf,
    /// What they may do; everything where there is none.
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
    /// When they cannot be read, or could be by others than their file's owner.
    pub fn open(config: &AccessConfig) -> Result<Self, UsersError> {
        let users = Users::open(&config.users)?;
        for Permit { user, .. } in &config.permits {
            // He may come later.
            if users.secret(user).is_none() {
                tracing::warn!(
                    user,
                    "[[rtsp.permit]] is for somebody who is not in the file of users"
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

    /// What is known of a user's password, by the file as it is now.
    fn secret(&self, user: &str) -> Option<Secret> {
        self.users.secret(user)
    }

    /// Whether a user may do something in a volume.
    pub(crate) fn allows(&self, user: &str, right: Right, volume: &str) -> bool {
        self.permits.is_empty()
            || self
                .permits
                .iter()
                .any(|permit| permit.allows(user, right, volume))
    }

    /// Notes that a login from there has failed; how long it has to wait for being told so.
    pub(crate) fn failed(&self, peer: IpAddr, now: Time) -> Nanos {
        self.penalties.failed(peer, now)
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Refused {
    /// Why, in words; what may be somebody who guesses is in the log.
    pub(crate) fn told(&self, peer: SocketAddr) -> &'static str {
        let (why, user, told) = match self {
            Self::Nobody => return "this needs a user and a password",
            Self::Stale => return "the nonce is used up: here is another one",
            Self::Syntax(what) => ("Authorization makes no sense", None, *what),
            Self::Wrong(user) => (
                "a wrong password, or no such user",
                Some(user),
                "there is no such user, or the password is another one",
            ),
            Self::Other(user) => (
                "the connection is somebody else's",
                Some(user),
                "somebody else has logged in on this connection: open another one",
            ),
        };
        if let Some(untold) = REFUSED.turn(Instant::now()) {
            let user = user.map(tracing::field::debug);
            let what = user.is_none().then_some(told);
            tracing::warn!(%peer, user, what, untold, "a login is refused: {why}");
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_add_up_and_none_is_everything() {
        let permit = |user: &str, may: &[Right], volumes: Option<&[&str]>| Permit {
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
        assert!(access(Vec::new()).allows("anybody", Right::Record, "v"));
        let access = access(vec![
            permit("a", &[Right::Play], None),
            permit("a", &[Right::Record], Some(&["v", "w"])),
            permit("b", &[Right::Play, Right::Record], Some(&[])),
        ]);
        for (user, right, volume, is_allowed) in [
            ("a", Right::Play, "x", true),
            ("a", Right::Record, "w", true),
            ("a", Right::Record, "x", false),
            ("b", Right::Play, "v", false),
            ("c", Right::Play, "v", false),
        ] {
            assert_eq!(
                access.allows(user, right, volume),
                is_allowed,
                "{user} {right:?} {volume}"
            );
        }
    }
}
