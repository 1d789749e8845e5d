//! Access control of RTSP: users with passwords, their rights, and the authentication of connections.
//!
//! Users are accounts of a file that the server writes, or lines of a file that `htdigest` writes.
//!
//! Every request of RTSP except OPTIONS needs Digest authentication (RFC 2069 and 2617). Basic is refused: it would send
//! the password itself. Comparisons take constant time.

mod accounts;
mod guard;
mod penalty;
mod right;
mod secret;
mod sign_ins;
mod users;
mod visitor;

use std::net::{IpAddr, SocketAddr};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use sched::units::{Nanos, Time};

pub use accounts::{Accounts, AccountsError, TokenInfo, UserChange, UserInfo};
pub(crate) use guard::parse;
pub(crate) use guard::{AuthError, Guard};
use penalty::Penalties;
pub use right::{AccessRight, Grant};
pub use secret::REALM;
use secret::Secret;
pub use sign_ins::SignInRefusal;
use sign_ins::SignIns;
use users::Users;
pub use users::UsersError;
pub(crate) use users::parse as parse_users;
use visitor::Nonces;
pub use visitor::{Login, Visitor, VisitorRefusal, Wish};

use peers::log_throttle::SharedLogThrottle;

/// Refused logins, which any client can cause.
static REFUSED: SharedLogThrottle = SharedLogThrottle::few();

/// Rights of a user of the users file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permit {
    /// The user's name.
    pub user: String,
    /// The rights.
    pub grant: Grant,
}

/// The configuration of users and rights.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessConfig {
    /// The users file, as `htdigest` writes it.
    pub users: Option<std::path::PathBuf>,
    /// The rights of its users. Without any permit each of them may watch, play, export and record everywhere.
    pub permits: Vec<Permit>,
    /// The file of the accounts, which precede users of the same name.
    pub accounts: Option<std::path::PathBuf>,
}

/// Why the users cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The users file is at fault.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The accounts are at fault.
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    /// The host has no random numbers.
    #[error("the host has no random numbers for challenges")]
    Random,
}

/// The users file and the rights of its users.
struct UsersRules {
    users: Option<Users>,
    permits: Vec<Permit>,
}

impl UsersRules {
    fn open(config: &AccessConfig) -> Result<Self, UsersError> {
        let users = config.users.as_deref().map(Users::open).transpose()?;
        for Permit { user, .. } in &config.permits {
            // The user may be added later.
            if users.as_ref().is_some_and(|of| of.secret(user).is_none()) {
                tracing::warn!(
                    user,
                    "[[rtsp.permit]] names a user that is not in the users file"
                );
            }
        }
        Ok(Self {
            users,
            permits: config.permits.clone(),
        })
    }
}

/// The users of a server.
pub struct Access {
    rules: RwLock<UsersRules>,
    accounts: Option<Accounts>,
    penalties: Penalties,
    nonces: Nonces,
    sign_ins: SignIns,
}

impl Access {
    /// Reads the users.
    ///
    /// # Errors
    /// When a file cannot be read, is invalid, or is accessible to others than its owner.
    pub fn open(config: &AccessConfig) -> Result<Self, AccessError> {
        Ok(Self {
            rules: RwLock::new(UsersRules::open(config)?),
            accounts: config.accounts.as_deref().map(Accounts::open).transpose()?,
            penalties: Penalties::default(),
            nonces: Nonces::new().map_err(|_| AccessError::Random)?,
            sign_ins: SignIns::default(),
        })
    }

    /// Reads the users file, its permits and the accounts again. The path of the accounts stays as it was.
    ///
    /// # Errors
    /// As [`Access::open`]; nothing has changed then.
    pub fn reload(&self, config: &AccessConfig) -> Result<(), AccessError> {
        let rules = UsersRules::open(config)?;
        if let Some(accounts) = &self.accounts {
            accounts.reload()?;
        }
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    fn rules(&self) -> RwLockReadGuard<'_, UsersRules> {
        // It is replaced as a whole.
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The accounts, if there are any.
    #[must_use]
    pub fn accounts(&self) -> Option<&Accounts> {
        self.accounts.as_ref()
    }

    /// The secret of a user, from the accounts or the current users file.
    fn secret(&self, user: &str) -> Option<Secret> {
        let account = self.accounts.as_ref().and_then(|of| of.secret(user));
        let from_file = || self.rules().users.as_ref().and_then(|of| of.secret(user));
        account.unwrap_or_else(from_file)
    }

    /// True if a user has a right in a volume. Without a volume, the right is one in all volumes.
    pub(crate) fn allows(&self, user: &str, right: AccessRight, volume: Option<&str>) -> bool {
        let account = self.accounts.as_ref();
        if let Some(is_allowed) = account.and_then(|of| of.allows(user, right, volume)) {
            return is_allowed;
        }
        let rules = self.rules();
        // A user who was removed while logged in has no rights.
        let users = rules.users.as_ref();
        if users.is_none_or(|of| of.secret(user).is_none()) {
            return false;
        }
        let is_for_media = !matches!(right, AccessRight::Change | AccessRight::Administer);
        let mut permits = rules.permits.iter().filter(|permit| permit.user == user);
        (rules.permits.is_empty() && is_for_media)
            || permits.any(|permit| permit.grant.allows(right, volume))
    }

    /// Signs a user of the accounts in. Returns a cookie, or the refusal and how long it is to be delayed. It takes
    /// tens of milliseconds of a processor.
    ///
    /// # Errors
    /// When the password is wrong, or may not be checked now.
    pub fn sign_in(
        &self,
        user: &str,
        password: &str,
        peer: SocketAddr,
        now: Time,
    ) -> Result<String, (SignInRefusal, Nanos)> {
        let accounts = self.accounts.as_ref();
        let signed_in = accounts.ok_or(SignInRefusal::Wrong).and_then(|accounts| {
            let sign_ins = &self.sign_ins;
            sign_ins.sign_in(accounts, user, password, peer.ip(), now)
        });
        signed_in.map_err(|refusal| {
            let wait = match refusal {
                SignInRefusal::Wrong | SignInRefusal::Guessed => self.failed(peer.ip(), now),
                SignInRefusal::Busy | SignInRefusal::Random => Nanos::ZERO,
            };
            if let Some(untold) = REFUSED.turn(Instant::now()) {
                tracing::warn!(%peer, ?user, untold, "a sign-in is refused: {refusal:?}");
            }
            (refusal, wait)
        })
    }

    /// Ends what [`Access::sign_in`] has begun.
    pub fn sign_out(&self, cookie: &str) {
        self.sign_ins.sign_out(cookie);
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
            Self::Nobody => return "a login is required",
            Self::Stale => return "the nonce has expired: use the new one",
            Self::Syntax(what) => ("invalid Authorization header", None, *what),
            Self::Wrong(user) => (
                "unknown user or wrong password",
                Some(user),
                "unknown user or wrong password",
            ),
            Self::Token => {
                let why = "unknown or expired token";
                (why, None, why)
            }
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
    fn permits_add_up_and_accounts_precede_them() {
        let permit = |user: &str, may: &[AccessRight], volumes: Option<&[&str]>| Permit {
            user: user.to_owned(),
            grant: Grant {
                may: may.to_vec(),
                volumes: volumes.map(|of| of.iter().map(|name| (*name).to_owned()).collect()),
            },
        };
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users");
        let secret = "0".repeat(32);
        let file = format!("a:{REALM}:{secret}\nb:{REALM}:{secret}\n");
        users::tests::write(&users, &file, 0o600);
        let accounts = folder.path().join("accounts.json");
        let access = |permits, accounts| {
            Access::open(&AccessConfig {
                users: Some(users.clone()),
                permits,
                accounts,
            })
            .unwrap()
        };
        let (play, record) = (AccessRight::Recordings, AccessRight::Record);
        let open = access(Vec::new(), None);
        assert!(open.allows("a", record, Some("v")));
        assert!(!open.allows("a", AccessRight::Administer, None));
        // A user who was removed from the accounts is none of the file.
        assert!(!open.allows("removed", play, Some("v")));
        let access = access(
            vec![
                permit("a", &[play], None),
                permit("a", &[record], Some(&["v", "w"])),
                permit("b", &[play, record], Some(&[])),
            ],
            Some(accounts),
        );
        let grant = Grant {
            may: vec![record],
            volumes: Some(vec!["x".to_owned()]),
        };
        let accounts = access.accounts().unwrap();
        accounts.add("a", "in accounts", true, vec![grant]).unwrap();
        for (user, right, volume, is_allowed) in [
            ("a", play, "x", false),
            ("a", record, "x", true),
            ("b", play, "v", false),
            ("c", play, "v", false),
        ] {
            let allowed = access.allows(user, right, Some(volume));
            assert_eq!(allowed, is_allowed, "{user} {right:?} {volume}");
        }
        accounts.remove("a").unwrap();
        for (user, right, volume, is_allowed) in [
            ("a", play, "x", true),
            ("a", record, "w", true),
            ("a", record, "x", false),
        ] {
            let allowed = access.allows(user, right, Some(volume));
            assert_eq!(allowed, is_allowed, "{user} {right:?} {volume}");
        }
    }
}
