//! Browsers that have signed in with a password: each has a random cookie, kept in memory only.
//!
//! Guessing is limited in three ways. A failure delays its answer, more with each one from the same address. After
//! [`FAILURES_MAX`] failures within [`FAILURE_WINDOW`] a name is refused for that time without looking at the password,
//! except at addresses where it has signed in before: guesses from many addresses lock out neither its owner nor the
//! server's processors. And at most [`CHECKS_MAX`] passwords are checked at a time, as each takes tens of milliseconds.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sched::units::{Nanos, Time};

use peers::connection_limits::network;

use super::accounts::{Accounts, PasswordMark};
use super::secret::{hex, random};

/// A browser that asks for nothing for this time has to sign in again.
const IDLE_MAX: Nanos = Nanos::from_secs(12 * 3_600);

/// A browser has to sign in again after this time in any case.
const AGE_MAX: Nanos = Nanos::from_secs(30 * 86_400);

/// The most browsers that are signed in. The one that was idle for longest makes room for another.
const SIGNED_IN_MAX: usize = 1_000;

/// The most passwords that are checked at a time.
const CHECKS_MAX: usize = 2;

/// The failures after which a name is refused.
const FAILURES_MAX: u32 = 10;

/// The time in which they count, and for which the name is refused.
const FAILURE_WINDOW: Nanos = Nanos::from_secs(60);

/// The most names whose failures are counted, and the most addresses that are known.
const NAMES_MAX: usize = 4_096;

/// Why somebody is not signed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignInRefusal {
    /// The user is unknown or the password wrong.
    Wrong,
    /// The name was guessed too often.
    Guessed,
    /// Too many passwords are being checked.
    Busy,
    /// The host has no random numbers.
    Random,
}

struct SignIn {
    user: String,
    /// It ends when the password changes.
    mark: PasswordMark,
    made: Time,
    used: Time,
}

impl SignIn {
    fn is_valid(&self, now: Time) -> bool {
        let (idle, age) = (
            now.saturating_since(self.used),
            now.saturating_since(self.made),
        );
        idle < IDLE_MAX && age < AGE_MAX
    }
}

#[derive(Default)]
struct State {
    /// By the SHA-256 hash of the cookie.
    by_cookie: HashMap<[u8; 32], SignIn>,
    /// Failures of a name, and when the first of them was.
    failures: HashMap<String, (u32, Time)>,
    /// Names, and addresses where each has signed in.
    known: HashSet<(String, IpAddr)>,
}

/// The browsers that are signed in.
#[derive(Default)]
pub(super) struct SignIns {
    state: Mutex<State>,
    checks: AtomicUsize,
}

/// One of the checks of passwords at a time.
struct Check<'a>(&'a AtomicUsize);

impl Drop for Check<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn hashed(cookie: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, cookie.as_bytes());
    digest.as_ref().try_into().unwrap_or_default()
}

impl SignIns {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each entry is valid after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Option<Check<'_>> {
        let check = Check(&self.checks);
        (self.checks.fetch_add(1, Relaxed) < CHECKS_MAX).then_some(check)
    }

    /// Signs a user in. Returns the cookie.
    ///
    /// # Errors
    /// When the password is wrong, or may not be checked now.
    pub(super) fn sign_in(
        &self,
        accounts: &Accounts,
        user: &str,
        password: &str,
        peer: IpAddr,
        now: Time,
    ) -> Result<String, SignInRefusal> {
        let known = (user.to_owned(), network(peer));
        {
            let state = self.state();
            if state.is_guessed(user, now) && !state.known.contains(&known) {
                return Err(SignInRefusal::Guessed);
            }
        }
        let check = self.check().ok_or(SignInRefusal::Busy)?;
        let mark = accounts.check_password(user, password);
        drop(check);
        let mut state = self.state();
        let Some(mark) = mark else {
            state.note_failure(user, now);
            return Err(SignInRefusal::Wrong);
        };
        let cookie = hex(&random::<32>().map_err(|_| SignInRefusal::Random)?);
        if state.known.len() >= NAMES_MAX {
            state.known.clear();
        }
        state.known.insert(known);
        state.make_room(now);
        let signed_in = SignIn {
            user: user.to_owned(),
            mark,
            made: now,
            used: now,
        };
        state.by_cookie.insert(hashed(&cookie), signed_in);
        Ok(cookie)
    }

    /// The user of a cookie.
    pub(super) fn user(&self, accounts: &Accounts, cookie: &str, now: Time) -> Option<String> {
        let mut state = self.state();
        let key = hashed(cookie);
        let signed_in = state.by_cookie.get_mut(&key)?;
        if signed_in.is_valid(now) && accounts.is_current(&signed_in.user, &signed_in.mark) {
            signed_in.used = now;
            return Some(signed_in.user.clone());
        }
        state.by_cookie.remove(&key);
        None
    }

    /// Forgets a cookie.
    pub(super) fn sign_out(&self, cookie: &str) {
        self.state().by_cookie.remove(&hashed(cookie));
    }
}

impl State {
    fn is_guessed(&self, user: &str, now: Time) -> bool {
        let failures = self.failures.get(user);
        failures.is_some_and(|(count, first)| {
            *count >= FAILURES_MAX && now.saturating_since(*first) < FAILURE_WINDOW
        })
    }

    fn note_failure(&mut self, user: &str, now: Time) {
        let is_over = |first: Time| now.saturating_since(first) >= FAILURE_WINDOW;
        if self.failures.len() >= NAMES_MAX && !self.failures.contains_key(user) {
            self.failures.retain(|_, (_, first)| !is_over(*first));
            if self.failures.len() >= NAMES_MAX {
                self.failures.clear();
            }
        }
        let (count, first) = self.failures.entry(user.to_owned()).or_insert((0, now));
        if is_over(*first) {
            (*count, *first) = (0, now);
        }
        *count += 1;
        // The time without checks begins with the last of them.
        if *count == FAILURES_MAX {
            *first = now;
        }
    }

    fn make_room(&mut self, now: Time) {
        if self.by_cookie.len() < SIGNED_IN_MAX {
            return;
        }
        self.by_cookie.retain(|_, of| of.is_valid(now));
        if self.by_cookie.len() < SIGNED_IN_MAX {
            return;
        }
        let oldest = self.by_cookie.iter().min_by_key(|(_, of)| of.used);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.by_cookie.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "correct horse";

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn peer(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    fn accounts(folder: &tempfile::TempDir) -> Accounts {
        let accounts = Accounts::open(&folder.path().join("accounts.json")).unwrap();
        accounts.add("anna", PASSWORD, false, Vec::new()).unwrap();
        accounts
    }

    #[test]
    fn cookie_is_valid_until_it_is_idle_or_old_or_the_password_changes() {
        let folder = tempfile::tempdir().unwrap();
        let accounts = accounts(&folder);
        let sign_ins = SignIns::default();
        let sign_in = |now| {
            let cookie = sign_ins.sign_in(&accounts, "anna", PASSWORD, peer(1), at(now));
            cookie.unwrap()
        };
        let user = |cookie: &str, now| sign_ins.user(&accounts, cookie, at(now));
        let (hour, day) = (3_600, 86_400);
        let cookie = sign_in(0);
        assert_eq!(user(&cookie, 11 * hour).as_deref(), Some("anna"));
        assert_eq!(user(&cookie, 22 * hour).as_deref(), Some("anna"));
        assert_eq!(user(&cookie, 34 * hour), None);
        assert_eq!(user("", 0), None);
        let cookie = sign_in(0);
        (0..60).for_each(|turn| assert!(user(&cookie, turn * 11 * hour).is_some(), "{turn}"));
        assert_eq!(user(&cookie, 30 * day), None);
        let cookie = sign_in(0);
        sign_ins.sign_out(&cookie);
        assert_eq!(user(&cookie, 0), None);
        let cookie = sign_in(0);
        let change = super::super::UserChange {
            password: Some("another one".to_owned()),
            ..Default::default()
        };
        accounts.set("anna", change).unwrap();
        assert_eq!(user(&cookie, 0), None);
    }

    #[test]
    fn guesses_from_many_addresses_are_not_checked_and_do_not_lock_out_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let accounts = accounts(&folder);
        let sign_ins = SignIns::default();
        let sign_in = |password: &str, from, now| {
            let signed_in = sign_ins.sign_in(&accounts, "anna", password, peer(from), at(now));
            signed_in.map(drop)
        };
        assert_eq!(sign_in(PASSWORD, 1, 0), Ok(()));
        for from in 0..FAILURES_MAX {
            assert_eq!(sign_in("a guess", 100 + from, 1), Err(SignInRefusal::Wrong));
        }
        assert_eq!(sign_in("a guess", 500, 2), Err(SignInRefusal::Guessed));
        assert_eq!(sign_in(PASSWORD, 500, 2), Err(SignInRefusal::Guessed));
        assert_eq!(sign_in(PASSWORD, 1, 2), Ok(()));
        assert_eq!(sign_in(PASSWORD, 500, 61), Ok(()));
    }

    #[test]
    fn memory_for_browsers_and_names_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let accounts = accounts(&folder);
        let mark = accounts.check_password("anna", PASSWORD).unwrap();
        let mut state = State::default();
        for number in 0..2 * SIGNED_IN_MAX {
            let now = Time(number as u64);
            state.make_room(now);
            let (user, mark) = ("anna".to_owned(), mark.clone());
            let signed_in = SignIn {
                user,
                mark,
                made: now,
                used: now,
            };
            state
                .by_cookie
                .insert(hashed(&number.to_string()), signed_in);
        }
        assert_eq!(state.by_cookie.len(), SIGNED_IN_MAX);
        assert!(!state.by_cookie.contains_key(&hashed("0")));
        (0..2 * NAMES_MAX).for_each(|name| state.note_failure(&name.to_string(), Time(0)));
        assert!(state.failures.len() <= NAMES_MAX);
    }
}
