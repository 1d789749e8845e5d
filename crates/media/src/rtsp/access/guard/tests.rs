use http_auth::{PasswordClient, PasswordParams};

use super::*;
use crate::rtsp::access::AccessConfig;

const URI: &str = "rtsp://127.0.0.1:8554/cam";

fn access() -> Access {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let line = |user: &str, password: &str| {
        let secret = hash(&[user.as_bytes(), REALM.as_bytes(), password.as_bytes()]);
        format!("{user}:{REALM}:{}\n", String::from_utf8_lossy(&secret))
    };
    let text = line("anna", "p\"ass") + &line("b b", "");
    crate::rtsp::access::users::tests::write(&users, &text, 0o600);
    Access::open(&AccessConfig {
        users: Some(users),
        ..AccessConfig::default()
    })
    .unwrap()
}

/// A client that got a challenge.
struct Client(PasswordClient);

impl Client {
    fn new(challenge: &str) -> Self {
        Self(PasswordClient::try_from(challenge).unwrap())
    }

    fn says(&mut self, username: &str, password: &str, method: &str) -> String {
        let params = PasswordParams {
            username,
            password,
            uri: URI,
            method,
            body: None,
        };
        self.0.respond(&params).unwrap()
    }
}

fn check(
    guard: &mut Guard,
    access: &Access,
    said: Option<&str>,
    seconds: u64,
) -> Result<(), AuthError> {
    let uri = Url::parse(URI).unwrap();
    guard.check(
        access,
        said,
        "PLAY",
        Some(&uri),
        Time(seconds * 1_000_000_000),
    )
}

/// The challenge for a request without credentials.
fn challenged(guard: &mut Guard, access: &Access) -> String {
    assert_eq!(check(guard, access, None, 0), Err(AuthError::Nobody));
    guard.challenge(&AuthError::Nobody, Time(0)).unwrap()
}

/// The example of RFC 2617, section 3.5, and the same by RFC 2069, both verified with md5sum.
#[test]
fn response_of_the_rfc_examples_is_right() {
    let old = "Digest username=\"Mufasa\", realm=\"testrealm@host.com\", \
        nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", uri=\"/dir/index.html\", \
        response=\"670fd8c2df070c60b045671b8b24ff02\"";
    let new = old.replace(
        "670fd8c2df070c60b045671b8b24ff02",
        "6629fae49393a05397450978507c4ef1",
    ) + ", qop=auth, nc=00000001, cnonce=\"0a4f113b\", opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
    let secret = hash(&[b"Mufasa", b"testrealm@host.com", b"Circle Of Life"]);
    assert_eq!(secret, *b"939e7578ed9e3c518a452acee763bce9");
    for said in [old, &new] {
        let said = parse(said).unwrap();
        assert!(said.is_right("GET", &secret), "{said:?}");
        assert!(!said.is_right("PUT", &secret));
        assert!(!said.is_right("GET", &Secret::default()));
    }
}

#[test]
fn client_with_the_right_password_is_admitted_and_others_are_not() {
    let access = access();
    for old in [false, true] {
        for (user, password, is_known) in [
            ("anna", "p\"ass", true),
            ("b b", "", true),
            ("anna", "pass", false),
            ("anna", "", false),
            ("carl", "", false),
        ] {
            let mut guard = Guard::default();
            let challenge = challenged(&mut guard, &access);
            // Clients that know only RFC 2069.
            let challenge = if old {
                challenge.replace(", qop=\"auth\"", "")
            } else {
                challenge
            };
            let said = Client::new(&challenge).says(user, password, "PLAY");
            let checked = check(&mut guard, &access, Some(&said), 1);
            match is_known {
                true => assert_eq!((checked, guard.user()), (Ok(()), Some(user))),
                false => assert_eq!(checked, Err(AuthError::Wrong(user.to_owned()))),
            }
            assert_eq!(guard.failures, u32::from(!is_known));
        }
    }
}

#[test]
fn response_is_valid_for_one_request_on_one_connection() {
    let access = access();
    let mut guard = Guard::default();
    let mut client = Client::new(&challenged(&mut guard, &access));
    let first = client.says("anna", "p\"ass", "PLAY");
    assert_eq!(check(&mut guard, &access, Some(&first), 1), Ok(()));
    assert_eq!(
        check(&mut guard, &access, Some(&first), 1),
        Err(AuthError::Stale),
        "repeated"
    );
    let next = client.says("anna", "p\"ass", "PLAY");
    let mut other = Guard::default();
    challenged(&mut other, &access);
    assert_eq!(
        check(&mut other, &access, Some(&next), 1),
        Err(AuthError::Stale),
        "of another connection"
    );
    assert_eq!(other.user(), None);
    assert_eq!(check(&mut guard, &access, Some(&next), 1), Ok(()));

    // For another method, and for another URI.
    let pause = client.says("anna", "p\"ass", "PAUSE");
    assert_eq!(
        check(&mut guard, &access, Some(&pause), 1),
        Err(AuthError::Wrong("anna".to_owned()))
    );
    let play = client.says("anna", "p\"ass", "PLAY");
    let elsewhere = Url::parse("rtsp://127.0.0.1:8554/other").unwrap();
    let checked = guard.check(&access, Some(&play), "PLAY", Some(&elsewhere), Time(1));
    assert!(matches!(checked, Err(AuthError::Syntax(_))), "{checked:?}");

    // A connection belongs to one user.
    let b = client.says("b b", "", "PLAY");
    assert_eq!(
        check(&mut guard, &access, Some(&b), 1),
        Err(AuthError::Other("anna".to_owned()))
    );
}

/// live555 clients write the URI of the presentation in requests for its tracks.
#[test]
fn uri_of_a_presentation_is_valid_for_its_tracks() {
    for (said, asked, is_it) in [
        (URI, URI, true),
        ("rtsp://127.0.0.1:8554/cam/", URI, true),
        (URI, "rtsp://127.0.0.1:8554/cam/", true),
        (URI, "rtsp://127.0.0.1:8554/cam/track0", true),
        (
            "rtsp://127.0.0.1:8554/cam/",
            "rtsp://127.0.0.1:8554/cam/track0",
            true,
        ),
        (
            "rtsp://127.0.0.1:8554/",
            "rtsp://127.0.0.1:8554/cam/track0",
            true,
        ),
        ("/cam", URI, true),
        ("/cam/", "rtsp://127.0.0.1:8554/cam/track0", true),
        ("/ca", URI, false),
        (
            "rtsp://127.0.0.1:8554/cam/track1",
            "rtsp://127.0.0.1:8554/cam/track0",
            false,
        ),
        ("rtsp://127.0.0.1:8554/cam/track0", URI, false),
        (URI, "rtsp://127.0.0.1:8554/camera", false),
        (URI, "rtsp://127.0.0.1:8555/cam/track0", false),
        (URI, "rtsp://127.0.0.2:8554/cam/track0", false),
        (URI, "rtsps://127.0.0.1:8554/cam/track0", false),
        (
            "rtsp://127.0.0.1:8554/cam?all",
            "rtsp://127.0.0.1:8554/cam/track0",
            false,
        ),
        ("//elsewhere/cam", URI, false),
        ("*", URI, false),
        ("", URI, false),
    ] {
        let asked = Url::parse(asked).unwrap();
        assert_eq!(is_of(said, &asked), is_it, "{said} of {asked}");
    }
}

#[test]
fn old_nonce_is_stale_and_replaced() {
    let access = access();
    let mut guard = Guard::default();
    let first = challenged(&mut guard, &access);
    assert!(!first.contains("stale"), "{first}");
    let said = Client::new(&first).says("anna", "p\"ass", "PLAY");
    assert_eq!(check(&mut guard, &access, Some(&said), 299), Ok(()));
    let mut client = Client::new(&first);
    client.says("anna", "p\"ass", "PLAY");
    let said = client.says("anna", "p\"ass", "PLAY");
    assert_eq!(
        check(&mut guard, &access, Some(&said), 300),
        Err(AuthError::Stale)
    );
    let now = Time(300_000_000_000);
    let second = guard.challenge(&AuthError::Stale, now).unwrap();
    assert!(second.contains("\", stale=true, "), "{second}");
    let said = Client::new(&second).says("anna", "p\"ass", "PLAY");
    assert_eq!(check(&mut guard, &access, Some(&said), 301), Ok(()));
    assert_eq!(guard.failures, 0);
    // A wrong password is refused as such also with an old nonce.
    let said = Client::new(&first).says("anna", "wrong", "PLAY");
    assert_eq!(
        check(&mut guard, &access, Some(&said), 302),
        Err(AuthError::Wrong("anna".to_owned()))
    );
    let third = guard
        .challenge(&AuthError::Wrong(String::new()), now)
        .unwrap();
    assert!(!third.contains("stale"), "{third}");
}

#[test]
fn malformed_credentials_are_refused_and_close_the_connection_after_five() {
    let access = access();
    let mut guard = Guard::default();
    let challenge = challenged(&mut guard, &access);
    let good = Client::new(&challenge).says("anna", "p\"ass", "PLAY");
    for (number, wrong) in [
        "Basic YW5uYTpwYXNz".to_owned(),
        String::new(),
        "Digest".to_owned(),
        format!("{good}, {good}"),
        good.replace("nc=00000001", "nc=1"),
        good.replace("nc=00000001", "nc=+0000001"),
        good.replace("qop=auth", "qop=auth-int"),
        good.replace("nc=00000001, ", ""),
        good.replace("algorithm=MD5", "algorithm=SHA-256"),
        good.replace("username", "user"),
        good.replace("response", "x=1, uri"),
    ]
    .iter()
    .enumerate()
    {
        let checked = check(&mut guard, &access, Some(wrong), 1);
        assert!(
            matches!(checked, Err(AuthError::Syntax(_))),
            "{wrong}: {checked:?}"
        );
        assert_eq!(guard.is_shut(), number + 1 >= 5);
    }
}
