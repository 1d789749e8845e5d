//! Logging in at a camera: Digest (RFC 2069, 2617 and 7616, MD5 and SHA-256) or Basic, whichever is the best it asks
//! for.

use std::fmt::{self, Formatter};

use http_auth::{PasswordClient, PasswordParams};

/// A user's name and password. Neither a log nor an error ever shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Who.
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

/// How often one request is repeated because it is answered 401.
const REPEATS_MAX: u32 = 3;

/// What a camera asked for, and what it is told.
#[derive(Debug, Default)]
pub(crate) struct Login {
    credentials: Option<Credentials>,
    asked: Option<PasswordClient>,
    /// The password has been taken: an answer to what the camera asks for now that is refused is not a wrong one.
    is_right: bool,
}

/// Why nobody is logged in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// A password is wanted.
    #[error(
        "it asks for a user and a password, and its URL has none: rtsp://USER:PASSWORD@HOST/..."
    )]
    Nobody,
    /// It was wrong.
    #[error("it refuses the password of user {0:?}")]
    Refused(String),
    /// It asks in a way that is not known.
    #[error("it asks for a password in a way that is not known: {0}")]
    Unknown(String),
}

impl Login {
    pub(crate) fn new(credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            asked: None,
            is_right: false,
        }
    }

    /// A request that said who asks was not refused for that.
    pub(crate) fn is_taken(&mut self) {
        self.is_right = true;
    }

    /// What goes into `Authorization`, if the camera has asked for it.
    ///
    /// # Errors
    /// When it asks for what cannot be computed.
    pub(crate) fn header(&mut self, method: &str, uri: &str) -> Result<Option<String>, LoginError> {
        let (Some(credentials), Some(asked)) = (&self.credentials, &mut self.asked) else {
            return Ok(None);
        };
        let mut respond = |body| {
            asked.respond(&PasswordParams {
                username: &credentials.user,
                password: &credentials.password,
                uri,
                method,
                body,
            })
        };
        // With the body as well only where nothing less is asked for.
        let said = respond(None).or_else(|_| respond(Some(&[])));
        said.map(Some).map_err(LoginError::Unknown)
    }

    /// Takes in `WWW-Authenticate` of a camera that has refused a request; `repeats`: how often it has been repeated for that
    /// already. The first repetition is the answer to this challenge, as what was answered before may have expired, whether the
    /// camera says so (`stale`) or not. Where that is refused as well the password is wrong, unless it was right before.
    ///
    /// # Errors
    /// When there is no better answer.
    pub(crate) fn ask(&mut self, challenge: &str, repeats: u32) -> Result<(), LoginError> {
        let Some(credentials) = &self.credentials else {
            return Err(LoginError::Nobody);
        };
        let may_be_right = repeats == 0 || self.is_right || is_stale(challenge);
        if !may_be_right || repeats >= REPEATS_MAX {
            return Err(LoginError::Refused(credentials.user.clone()));
        }
        let client = PasswordClient::try_from(challenge).map_err(LoginError::Unknown)?;
        self.asked = Some(client);
        Ok(())
    }
}

/// Whether the answer was right, and only what it answered has expired.
fn is_stale(challenge: &str) -> bool {
    let challenges = http_auth::parse_challenges(challenge).unwrap_or_default();
    let params = challenges.iter().flat_map(|of| &of.params);
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

    fn said(challenge: &str) -> String {
        let said = login(challenge).header("GET", "/dir/index.html");
        said.unwrap().unwrap()
    }

    /// The example of RFC 2617, section 3.5, as RFC 2069 computes it (without `qop`), checked by hand with md5sum.
    #[test]
    fn each_scheme_is_answered_and_the_best_one_chosen() {
        let digest =
            "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\"";
        let old = said(digest);
        assert!(
            old.contains("response=\"670fd8c2df070c60b045671b8b24ff02\""),
            "{old}"
        );
        assert!(!old.contains("qop="), "{old}");
        let new = said(&format!("{digest}, qop=\"auth\", algorithm=SHA-256"));
        for part in ["qop=auth", "nc=00000001", "SHA-256", "cnonce="] {
            assert!(new.contains(part), "no {part} in {new}");
        }
        let basic = said("Basic realm=\"x\"");
        assert_eq!(basic, "Basic TXVmYXNhOkNpcmNsZSBPZiBMaWZl");
        let best = said(&format!("Basic realm=\"x\", {digest}"));
        assert!(best.starts_with("Digest "), "{best}");
    }

    #[test]
    fn a_wrong_password_is_told_from_an_old_challenge() {
        let digest = "Digest realm=\"r\", nonce=\"n\", qop=\"auth\"";
        let mut login = login(digest);
        let refused = Err(LoginError::Refused("Mufasa".to_owned()));
        assert_eq!(login.ask(digest, 1), refused);
        assert_eq!(login.ask(&format!("{digest}, stale=\"TRUE\""), 1), Ok(()));
        assert_eq!(login.ask(&format!("{digest}, stale=TRUE"), 3), refused);
        // One that was right before is so, however often that is not said; but not for ever.
        login.is_taken();
        assert_eq!(
            [0, 1, 2].map(|repeats| login.ask(digest, repeats)),
            [Ok(()), Ok(()), Ok(())]
        );
        assert_eq!(login.ask(digest, 3), refused);
        assert!(matches!(
            login.ask("Negotiate", 0),
            Err(LoginError::Unknown(_))
        ));
        let nobody = Login::new(None).ask(digest, 0).unwrap_err();
        assert_eq!(nobody, LoginError::Nobody);
        assert!(!format!("{login:?}").contains("Circle"));
    }
}
