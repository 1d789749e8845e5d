//! Login at a camera: Digest (RFC 2069, 2617 and 7616; MD5 and SHA-256) or Basic, the strongest that it offers.

use std::fmt::{self, Formatter};

use http_auth::{PasswordClient, PasswordParams};

/// A user's name and password. Neither a log nor an error ever shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Repetitions of a request that is answered 401.
const REPEATS_MAX: u32 = 3;

/// The state of the login in one connection.
#[derive(Debug, Default)]
pub(crate) struct Login {
    credentials: Option<Credentials>,
    /// The camera's newest challenge.
    challenge: Option<PasswordClient>,
    /// The camera has accepted the password in this connection, so a further 401 is not about the password.
    is_accepted: bool,
}

/// Why a login failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The URL has no credentials.
    #[error(
        "the camera asks for a user and a password: add the source with rtsp://USER:PASSWORD@HOST/..."
    )]
    NoCredentials,
    /// The password was refused.
    #[error("the camera refuses the password of user {0:?}")]
    Refused(String),
    /// The challenge is not understood.
    #[error("the camera uses an unsupported authentication scheme: {0}")]
    UnknownChallenge(String),
}

impl Login {
    pub(crate) fn new(credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            challenge: None,
            is_accepted: false,
        }
    }

    /// The camera accepted a request with `Authorization`.
    pub(crate) fn accepted(&mut self) {
        self.is_accepted = true;
    }

    /// The value of `Authorization` for a request; `None` before a challenge, or without credentials.
    ///
    /// # Errors
    /// The challenge cannot be answered.
    pub(crate) fn header(&mut self, method: &str, uri: &str) -> Result<Option<String>, LoginError> {
        let (Some(credentials), Some(challenge)) = (&self.credentials, &mut self.challenge) else {
            return Ok(None);
        };
        let mut respond = |body| {
            challenge.respond(&PasswordParams {
                username: &credentials.user,
                password: &credentials.password,
                uri,
                method,
                body,
            })
        };
        // The body is hashed only if the challenge demands it (`qop=auth-int` alone).
        let response = respond(None).or_else(|_| respond(Some(&[])));
        response.map(Some).map_err(LoginError::UnknownChallenge)
    }

    /// Takes the value of `WWW-Authenticate` of a 401. `repeats`: how often the request was repeated already.
    ///
    /// A request is repeated once with an answer to the new challenge, because the old nonce may have expired, with or
    /// without `stale`. A second 401 means a wrong password, unless the camera has accepted it in this connection.
    ///
    /// # Errors
    /// The request must not be repeated.
    pub(crate) fn ask(&mut self, challenge: &str, repeats: u32) -> Result<(), LoginError> {
        let Some(credentials) = &self.credentials else {
            return Err(LoginError::NoCredentials);
        };
        let may_be_right = repeats == 0 || self.is_accepted || is_stale(challenge);
        if !may_be_right || repeats >= REPEATS_MAX {
            return Err(LoginError::Refused(credentials.user.clone()));
        }
        let client = PasswordClient::try_from(challenge).map_err(LoginError::UnknownChallenge)?;
        self.challenge = Some(client);
        Ok(())
    }
}

/// True if the password was right, and only the nonce has expired.
fn is_stale(challenge: &str) -> bool {
    let challenges = http_auth::parse_challenges(challenge).unwrap_or_default();
    let params = challenges.iter().flat_map(|challenge| &challenge.params);
    let mut stale = params.filter(|(name, _)| name.eq_ignore_ascii_case("stale"));
    stale.any(|(_, value)| value.to_unescaped().eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(challenge: &str) -> Login {
        let mut login = Login::new(Some(Credentials {
            user: "Mufasa".to_owned(),
            password: "Circle Of Life".to_owned(),
        }));
        login.ask(challenge, 0).unwrap();
        login
    }

    fn authorization(challenge: &str) -> String {
        let header = login(challenge).header("GET", "/dir/index.html");
        header.unwrap().unwrap()
    }

    /// The example of RFC 2617, section 3.5, computed as in RFC 2069 (without `qop`) and checked with md5sum.
    #[test]
    fn each_scheme_is_answered_and_the_strongest_is_chosen() {
        let digest =
            "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\"";
        let old = authorization(digest);
        assert!(
            old.contains("response=\"670fd8c2df070c60b045671b8b24ff02\""),
            "{old}"
        );
        assert!(!old.contains("qop="), "{old}");
        let new = authorization(&format!("{digest}, qop=\"auth\", algorithm=SHA-256"));
        for part in ["qop=auth", "nc=00000001", "SHA-256", "cnonce="] {
            assert!(new.contains(part), "no {part} in {new}");
        }
        let basic = authorization("Basic realm=\"x\"");
        assert_eq!(basic, "Basic TXVmYXNhOkNpcmNsZSBPZiBMaWZl");
        let best = authorization(&format!("Basic realm=\"x\", {digest}"));
        assert!(best.starts_with("Digest "), "{best}");
    }

    #[test]
    fn wrong_password_is_told_from_an_expired_nonce() {
        let digest = "Digest realm=\"r\", nonce=\"n\", qop=\"auth\"";
        let mut login = login(digest);
        let refused = Err(LoginError::Refused("Mufasa".to_owned()));
        assert_eq!(login.ask(digest, 1), refused);
        assert_eq!(login.ask(&format!("{digest}, stale=\"TRUE\""), 1), Ok(()));
        assert_eq!(login.ask(&format!("{digest}, stale=TRUE"), 3), refused);
        // An accepted password is tried again without `stale`, up to the limit.
        login.accepted();
        assert_eq!(
            [0, 1, 2].map(|repeats| login.ask(digest, repeats)),
            [Ok(()), Ok(()), Ok(())]
        );
        assert_eq!(login.ask(digest, 3), refused);
        assert!(matches!(
            login.ask("Negotiate", 0),
            Err(LoginError::UnknownChallenge(_))
        ));
        let missing = Login::new(None).ask(digest, 0).unwrap_err();
        assert_eq!(missing, LoginError::NoCredentials);
        assert!(!format!("{login:?}").contains("Circle"));
    }
}
