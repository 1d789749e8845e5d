//! Accounts: users whose passwords, rights and tokens the server keeps in a file of its own.
//!
//! The file is JSON. Each change replaces it durably before it is answered. It holds no password: only the hash of
//! each (Argon2id, RFC 9106), the MD5 hash that Digest computes from (RFC 7616) unless the user has none, and the
//! SHA-256 hash of each token. The MD5 hash is as good as the password over RTSP, so only the owner may read the file.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use argon2::password_hash::{Output, PasswordHash, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use serde::{Deserialize, Serialize};

use super::right::{AccessRight, Grant};
use super::secret::{Secret, hex, parse_secret, random, secret_of};
use crate::private_file;

/// The version of the file.
const VERSION: u32 = 1;

/// The longest file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most users.
const USERS_MAX: usize = 1_000;

/// The most tokens of a user.
const TOKENS_MAX: usize = 100;

/// The shortest password, in characters (NIST SP 800-63B, section 3.1.1.2, asks for 8 beside a second factor).
const PASSWORD_CHARS_MIN: usize = 8;

/// The longest password, in bytes.
const PASSWORD_BYTES_MAX: usize = 256;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The first characters of each token, by which people and scanners recognise one.
const TOKEN_PREFIX: &str = "clockwise_";

/// A token: its hash, and how long it is valid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRecord {
    name: String,
    sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_unix_s: Option<u64>,
}

/// A user of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserRecord {
    /// In the PHC string format.
    password: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    grants: Vec<Grant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<TokenRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountsRecord {
    version: u32,
    users: BTreeMap<String, UserRecord>,
}

/// Why accounts cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// The file cannot be read or written.
    #[error("accounts file {0}: {1}")]
    File(PathBuf, io::Error),
    /// Users other than its owner have access to it.
    #[error(
        "accounts file {0} is accessible to others than its owner (mode {1:04o}), and its contents are enough to log in: set mode 0600"
    )]
    Open(PathBuf, u32),
    /// It is not valid. The message does not contain its text.
    #[error("accounts file {0} is not valid: {1}")]
    Invalid(PathBuf, String),
    /// There is no such user.
    #[error("there is no user {0:?}")]
    NoUser(String),
    /// The user exists.
    #[error("user {0:?} already exists")]
    Exists(String),
    /// The user has no such token.
    #[error("user {0:?} has no token {1:?}")]
    NoToken(String, String),
    /// The user has a token with that name.
    #[error("user {0:?} already has a token {1:?}")]
    TokenExists(String, String),
    /// A name cannot be used.
    #[error(
        "{0:?} cannot be a name: a name has 1 to {NAME_BYTES_MAX} printable ASCII characters without colons and slashes"
    )]
    Name(String),
    /// A password cannot be used.
    #[error(
        "a password has at least {PASSWORD_CHARS_MIN} characters and at most {PASSWORD_BYTES_MAX} bytes"
    )]
    Password,
    /// There are too many.
    #[error("there are {0} already, the maximum")]
    Many(String),
    /// The host has no random numbers.
    #[error("the host has no random numbers")]
    Random,
}

/// A token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenInfo {
    /// Its name.
    pub name: String,
    /// The time when it becomes invalid, in seconds since 1970; never when absent.
    pub expires_unix_s: Option<u64>,
}

/// A user, without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserInfo {
    /// The name.
    pub name: String,
    /// True if the user can log in by Digest, as RTSP needs.
    pub has_digest: bool,
    /// The rights.
    pub grants: Vec<Grant>,
    /// The tokens.
    pub tokens: Vec<TokenInfo>,
}

impl UserInfo {
    fn of(name: &str, record: &UserRecord) -> Self {
        let token = |of: &TokenRecord| TokenInfo {
            name: of.name.clone(),
            expires_unix_s: of.expires_unix_s,
        };
        Self {
            name: name.to_owned(),
            has_digest: record.digest.is_some(),
            grants: record.grants.clone(),
            tokens: record.tokens.iter().map(token).collect(),
        }
    }
}

/// A change of a user. Absent members stay as they are.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct UserChange {
    /// The password.
    pub password: Option<String>,
    /// True if the user can log in by Digest. It takes effect with a new password.
    pub has_digest: Option<bool>,
    /// The rights.
    pub grants: Option<Vec<Grant>>,
    /// Rights beside these, or beside the present ones.
    pub added_grants: Vec<Grant>,
}

/// A password that was checked, by its hash.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PasswordMark(String);

/// The accounts of a server.
pub struct Accounts {
    path: PathBuf,
    users: Mutex<BTreeMap<String, UserRecord>>,
    /// The hash of no password, which takes as long to verify as another.
    nobody: String,
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && !b":/".contains(&byte))
}

fn checked_name(name: &str) -> Result<(), AccountsError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(AccountsError::Name(name.to_owned())),
    }
}

/// Parses the file.
///
/// # Errors
/// The reason, without the text, which contains secrets.
fn parse(bytes: &[u8]) -> Result<BTreeMap<String, UserRecord>, String> {
    let record: AccountsRecord = serde_json::from_slice(bytes)
        .map_err(|error| format!("line {}, column {}", error.line(), error.column()))?;
    if record.version != VERSION {
        return Err(format!(
            "it has version {}, and this server knows version {VERSION}",
            record.version
        ));
    }
    for (name, user) in &record.users {
        let is_hash =
            |text: &str| text.len() == 64 && text.bytes().all(|of| of.is_ascii_hexdigit());
        let is_digest = user
            .digest
            .as_deref()
            .is_none_or(|of| parse_secret(of).is_some());
        let is_valid = is_name(name)
            && is_digest
            && PasswordHash::new(&user.password).is_ok()
            && user
                .tokens
                .iter()
                .all(|token| is_name(&token.name) && is_hash(&token.sha256));
        if !is_valid {
            return Err(format!("user {name:?}"));
        }
    }
    Ok(record.users)
}

fn read(path: &Path) -> Result<BTreeMap<String, UserRecord>, AccountsError> {
    let failed = |error| AccountsError::File(path.to_owned(), error);
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        metadata => metadata.map_err(failed)?,
    };
    if !metadata.is_file() {
        return Err(failed(io::Error::other("it is not a file")));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(AccountsError::Open(path.to_owned(), mode));
    }
    let invalid = |what| AccountsError::Invalid(path.to_owned(), what);
    if metadata.len() > FILE_BYTES_MAX {
        return Err(invalid(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    parse(&std::fs::read(path).map_err(failed)?).map_err(invalid)
}

/// The memory in which passwords are hashed, one at a time. Memory of each hash's own would stay with the thread that
/// made it, and be locked.
static WORK: Mutex<Vec<Block>> = Mutex::new(Vec::new());

fn argon2(password: &str, salt: &[u8], params: Params) -> Result<Output, argon2::Error> {
    let mut work = WORK.lock().unwrap_or_else(PoisonError::into_inner);
    work.resize(params.block_count(), Block::default());
    let mut hash = [0; Params::DEFAULT_OUTPUT_LEN];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into_with_memory(
        password.as_bytes(),
        salt,
        &mut hash,
        &mut work[..],
    )?;
    Output::new(&hash).map_err(|_| argon2::Error::OutputTooLong)
}

fn hashed(password: &str) -> Result<String, AccountsError> {
    let salt = random::<16>().map_err(|_| AccountsError::Random)?;
    let text = SaltString::encode_b64(&salt).map_err(|_| AccountsError::Random)?;
    let hash = argon2(password, &salt, Params::DEFAULT).map_err(|_| AccountsError::Password)?;
    let hash = PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: (&Params::DEFAULT)
            .try_into()
            .map_err(|_| AccountsError::Password)?,
        salt: Some(text.as_salt()),
        hash: Some(hash),
    };
    Ok(hash.to_string())
}

/// True if a text is the hash of this password.
fn is_hash_of(text: &str, password: &str) -> bool {
    let Ok(hash) = PasswordHash::new(text) else {
        return false;
    };
    let is_ours = hash.algorithm == Algorithm::Argon2id.ident();
    let mut salt = [0; 64];
    let salt = hash.salt.and_then(|of| of.decode_b64(&mut salt).ok());
    let (Some(salt), Ok(params)) = (salt, Params::try_from(&hash)) else {
        return false;
    };
    // The comparison takes the same time wherever they differ.
    let found = argon2(password, salt, params).ok();
    is_ours && found.is_some() && found == hash.hash
}

fn checked_password(password: &str) -> Result<(), AccountsError> {
    let is_long = password.chars().count() >= PASSWORD_CHARS_MIN;
    match is_long && password.len() <= PASSWORD_BYTES_MAX {
        true => Ok(()),
        false => Err(AccountsError::Password),
    }
}

/// The hash of a password for Digest, as text.
fn digest_of(name: &str, password: &str) -> String {
    String::from_utf8_lossy(&secret_of(name, password)).into_owned()
}

/// The SHA-256 hash of a token, in hexadecimal. A token is random, so a fast hash is enough.
fn token_hash(token: &str) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref())
}

impl Accounts {
    /// Reads the accounts. Without a file there are none.
    ///
    /// # Errors
    /// When the file cannot be read, is invalid, or is accessible to others than its owner.
    pub fn open(path: &Path) -> Result<Self, AccountsError> {
        let users = read(path)?;
        Ok(Self {
            path: path.to_owned(),
            users: Mutex::new(users),
            nobody: hashed("no password")?,
        })
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// As [`Accounts::open`]; the accounts stay as they were then.
    pub(super) fn reload(&self) -> Result<(), AccountsError> {
        // A change must not come between reading and replacing.
        let mut users = self.users();
        let read = read(&self.path)?;
        // It may be on its way back from a copy.
        if !users.is_empty() && !self.path.exists() {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            return Err(AccountsError::File(self.path.clone(), missing));
        }
        *users = read;
        Ok(())
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<String, UserRecord>> {
        // It is replaced as a whole.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The users, by name.
    #[must_use]
    pub fn list(&self) -> Vec<UserInfo> {
        let users = self.users();
        users
            .iter()
            .map(|(name, record)| UserInfo::of(name, record))
            .collect()
    }

    /// Changes the users and writes the file.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, UserRecord>) -> Result<T, AccountsError>,
    ) -> Result<T, AccountsError> {
        let mut users = self.users();
        let mut changed = users.clone();
        let result = change(&mut changed)?;
        let failed = |error| AccountsError::File(self.path.clone(), error);
        let record = AccountsRecord {
            version: VERSION,
            users: changed,
        };
        let mut bytes = serde_json::to_vec_pretty(&record).map_err(|error| failed(error.into()))?;
        bytes.push(b'\n');
        private_file::replace(&self.path, &bytes).map_err(failed)?;
        *users = record.users;
        Ok(result)
    }

    /// Adds a user.
    ///
    /// # Errors
    /// When there is one with that name, a name or the password cannot be used, or the file cannot be written.
    pub fn add(
        &self,
        name: &str,
        password: &str,
        has_digest: bool,
        grants: Vec<Grant>,
    ) -> Result<UserInfo, AccountsError> {
        checked_name(name)?;
        checked_password(password)?;
        let record = UserRecord {
            password: hashed(password)?,
            digest: has_digest.then(|| digest_of(name, password)),
            grants,
            tokens: Vec::new(),
        };
        self.change(|users| {
            if users.contains_key(name) {
                return Err(AccountsError::Exists(name.to_owned()));
            }
            if users.len() >= USERS_MAX {
                return Err(AccountsError::Many(format!("{USERS_MAX} users")));
            }
            let info = UserInfo::of(name, &record);
            users.insert(name.to_owned(), record);
            Ok(info)
        })
    }

    /// Changes a user.
    ///
    /// # Errors
    /// When there is no such user, the password cannot be used, or the file cannot be written.
    pub fn set(&self, name: &str, asked: UserChange) -> Result<UserInfo, AccountsError> {
        let password = asked.password.as_deref();
        password.map(checked_password).transpose()?;
        let hash = password.map(hashed).transpose()?;
        self.change(|users| {
            let user = of_name(users, name)?;
            if let Some((hash, password)) = hash.zip(password) {
                let has_digest = asked.has_digest.unwrap_or(user.digest.is_some());
                user.password = hash;
                user.digest = has_digest.then(|| digest_of(name, password));
            } else if asked.has_digest == Some(false) {
                user.digest = None;
            }
            if let Some(grants) = asked.grants {
                user.grants = grants;
            }
            user.grants.extend(asked.added_grants);
            Ok(UserInfo::of(name, user))
        })
    }

    /// Removes a user, with the tokens.
    ///
    /// # Errors
    /// When there is no such user, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<UserInfo, AccountsError> {
        self.change(|users| {
            let removed = users.remove(name);
            let removed = removed.ok_or_else(|| AccountsError::NoUser(name.to_owned()))?;
            Ok(UserInfo::of(name, &removed))
        })
    }

    /// Makes a token with the rights of a user. Returns its text, which is nowhere else.
    ///
    /// # Errors
    /// When there is no such user, the user has a token with that name, or the file cannot be written.
    pub fn make_token(
        &self,
        user: &str,
        name: &str,
        expires_unix_s: Option<u64>,
    ) -> Result<String, AccountsError> {
        checked_name(name)?;
        let secret = random::<32>().map_err(|_| AccountsError::Random)?;
        let text = format!("{TOKEN_PREFIX}{}", hex(&secret));
        self.change(|users| {
            let tokens = &mut of_name(users, user)?.tokens;
            if tokens.iter().any(|token| token.name == name) {
                return Err(AccountsError::TokenExists(user.to_owned(), name.to_owned()));
            }
            if tokens.len() >= TOKENS_MAX {
                return Err(AccountsError::Many(format!(
                    "{TOKENS_MAX} tokens of user {user:?}"
                )));
            }
            tokens.push(TokenRecord {
                name: name.to_owned(),
                sha256: token_hash(&text),
                expires_unix_s,
            });
            Ok(text)
        })
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// When there is no such user or token, or the file cannot be written.
    pub fn revoke_token(&self, user: &str, name: &str) -> Result<(), AccountsError> {
        self.change(|users| {
            let tokens = &mut of_name(users, user)?.tokens;
            let missing = || AccountsError::NoToken(user.to_owned(), name.to_owned());
            let at = tokens.iter().position(|token| token.name == name);
            tokens.remove(at.ok_or_else(missing)?);
            Ok(())
        })
    }

    /// Checks a user's password. It takes tens of milliseconds of a processor and 19 MiB, also for unknown users.
    pub(super) fn check_password(&self, name: &str, password: &str) -> Option<PasswordMark> {
        let known = self.users().get(name).map(|user| user.password.clone());
        let text = known.as_ref().unwrap_or(&self.nobody);
        let is_right = password.len() <= PASSWORD_BYTES_MAX && is_hash_of(text, password);
        known.filter(|_| is_right).map(PasswordMark)
    }

    /// True if a user still has the password that was checked.
    pub(super) fn is_current(&self, name: &str, mark: &PasswordMark) -> bool {
        self.users()
            .get(name)
            .is_some_and(|user| user.password == mark.0)
    }

    /// The user of a valid token.
    #[must_use]
    pub fn user_of_token(&self, text: &str, now_unix_s: u64) -> Option<String> {
        let random_part = text.strip_prefix(TOKEN_PREFIX)?;
        if random_part.len() != 64 {
            return None;
        }
        // The hash of a guess says nothing about other hashes, so its comparison may take any time.
        let hash = token_hash(text);
        let users = self.users();
        let is_it = |token: &TokenRecord| {
            token.sha256 == hash && token.expires_unix_s.is_none_or(|at| now_unix_s < at)
        };
        let found = users.iter().find(|(_, user)| user.tokens.iter().any(is_it));
        found.map(|(name, _)| name.clone())
    }

    /// The secret for Digest; `None` for an unknown user, and an inner `None` for one without Digest.
    pub(super) fn secret(&self, name: &str) -> Option<Option<Secret>> {
        let users = self.users();
        let digest = users.get(name)?.digest.as_deref();
        Some(digest.and_then(parse_secret))
    }

    /// True if a user has a right; `None` for an unknown user. Without a volume, the right is one in all volumes.
    #[must_use]
    pub fn allows(&self, name: &str, right: AccessRight, volume: Option<&str>) -> Option<bool> {
        let users = self.users();
        let grants = &users.get(name)?.grants;
        Some(grants.iter().any(|grant| grant.allows(right, volume)))
    }
}

fn of_name<'a>(
    users: &'a mut BTreeMap<String, UserRecord>,
    name: &str,
) -> Result<&'a mut UserRecord, AccountsError> {
    let user = users.get_mut(name);
    user.ok_or_else(|| AccountsError::NoUser(name.to_owned()))
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
