use std::os::unix::fs::PermissionsExt;

use super::*;

const PASSWORD: &str = "correct horse";

fn grant(may: &[AccessRight]) -> Vec<Grant> {
    vec![Grant {
        may: may.to_vec(),
        volumes: None,
    }]
}

fn is_password(accounts: &Accounts, name: &str, password: &str) -> bool {
    accounts.check_password(name, password).is_some()
}

fn opened(folder: &tempfile::TempDir) -> Accounts {
    Accounts::open(&folder.path().join("accounts.json")).unwrap()
}

#[test]
fn users_outlive_the_server_and_no_password_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = opened(&folder);
    assert_eq!(accounts.list(), []);
    let live = grant(&[AccessRight::Live]);
    let anna = accounts.add("anna", PASSWORD, true, live).unwrap();
    accounts
        .add("paul", "another one", false, Vec::new())
        .unwrap();
    let token = accounts.make_token("anna", "t", Some(100)).unwrap();
    assert!(matches!(
        accounts.add("anna", PASSWORD, true, Vec::new()),
        Err(AccountsError::Exists(_))
    ));
    let path = folder.path().join("accounts.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(PASSWORD) && !text.contains(&token), "{text}");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let accounts = opened(&folder);
    let listed = accounts.list();
    assert_eq!(
        (&listed[0].name, &listed[0].grants),
        (&anna.name, &anna.grants)
    );
    assert_eq!(listed[0].tokens[0].expires_unix_s, Some(100));
    assert!(is_password(&accounts, "anna", PASSWORD));
    assert!(!is_password(&accounts, "anna", "another one"));
    assert!(!is_password(&accounts, "nobody", "no password"));
    assert!(accounts.secret("anna").unwrap().is_some());
    assert_eq!(accounts.secret("paul"), Some(None));
    assert_eq!(accounts.secret("nobody"), None);
    accounts.remove("anna").unwrap();
    assert!(!is_password(&opened(&folder), "anna", PASSWORD));
}

#[test]
fn tokens_are_of_their_user_until_they_expire_or_are_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = opened(&folder);
    accounts.add("anna", PASSWORD, true, Vec::new()).unwrap();
    let token = accounts.make_token("anna", "t", Some(100)).unwrap();
    let other = accounts.make_token("anna", "u", None).unwrap();
    let user = |token: &str, now| accounts.user_of_token(token, now);
    assert_eq!(user(&token, 99).as_deref(), Some("anna"));
    assert_eq!(user(&token, 100), None);
    assert_eq!(user(&other, u64::MAX).as_deref(), Some("anna"));
    // Any other character makes it another token.
    for at in 0..token.len() {
        let mut forged = token.clone().into_bytes();
        forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
        assert_eq!(user(&String::from_utf8(forged).unwrap(), 0), None, "{at}");
    }
    for none in ["", "clockwise_", &token[1..], &format!("{token}0")] {
        assert_eq!(user(none, 0), None, "{none}");
    }
    assert!(matches!(
        accounts.make_token("anna", "u", None),
        Err(AccountsError::TokenExists(..))
    ));
    accounts.revoke_token("anna", "u").unwrap();
    assert!(accounts.revoke_token("anna", "u").is_err());
    assert_eq!(user(&other, 0), None);
}

#[test]
fn names_and_passwords_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = opened(&folder);
    for name in ["", "a:b", "a/b", "\u{e4}", "a\nb", &"a".repeat(65)] {
        let added = accounts.add(name, PASSWORD, true, Vec::new());
        assert!(matches!(added, Err(AccountsError::Name(_))), "{name}");
    }
    for password in ["", "7 chars", &"\u{e4}".repeat(129)] {
        let added = accounts.add("anna", password, true, Vec::new());
        assert!(matches!(added, Err(AccountsError::Password)), "{password}");
    }
    accounts
        .add(
            "anna",
            "\u{e4}\u{e4}\u{e4}\u{e4} \u{e4}\u{e4}\u{e4}",
            true,
            Vec::new(),
        )
        .unwrap();
    assert!(accounts.set("paul", UserChange::default()).is_err());
    assert!(accounts.remove("paul").is_err());
}

#[test]
fn changes_apply_to_what_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = opened(&folder);
    accounts
        .add("anna", PASSWORD, true, grant(&[AccessRight::Live]))
        .unwrap();
    let change = |change| accounts.set("anna", change).unwrap();
    let changed = change(UserChange {
        grants: Some(grant(&[AccessRight::Export])),
        ..UserChange::default()
    });
    assert_eq!(
        (changed.has_digest, changed.grants),
        (true, grant(&[AccessRight::Export]))
    );
    assert!(is_password(&accounts, "anna", PASSWORD));
    let before = accounts.secret("anna");
    change(UserChange {
        password: Some("another one".to_owned()),
        ..UserChange::default()
    });
    assert!(
        is_password(&accounts, "anna", "another one") && !is_password(&accounts, "anna", PASSWORD)
    );
    assert_ne!(accounts.secret("anna"), before);
    let without = change(UserChange {
        has_digest: Some(false),
        ..UserChange::default()
    });
    assert!(!without.has_digest && is_password(&accounts, "anna", "another one"));
    let with = change(UserChange {
        password: Some(PASSWORD.to_owned()),
        has_digest: Some(true),
        ..UserChange::default()
    });
    assert!(with.has_digest);
    assert_eq!(accounts.secret("anna"), before);
}

#[test]
fn files_that_are_not_valid_are_refused_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = opened(&folder);
    accounts.add("anna", PASSWORD, true, Vec::new()).unwrap();
    accounts.make_token("anna", "t", None).unwrap();
    let path = folder.path().join("accounts.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let hash = text
        .split('"')
        .find(|of| of.starts_with("$argon2id$"))
        .unwrap();
    for (wrong, part) in [
        (
            text.replace("\"version\": 1", "\"version\": 2"),
            "version 2",
        ),
        (text.replace("$argon2id$", "argon2id$"), "\"anna\""),
        (text.replace("anna", "an:na"), "\"an:na\""),
        (
            text.replace("\"digest\": \"", "\"digest\": \"0"),
            "\"anna\"",
        ),
        (
            text.replace("\"sha256\": \"", "\"sha256\": \"g"),
            "\"anna\"",
        ),
        (text.replace("grants", "rights"), "line"),
        (text[..text.len() / 2].to_owned(), "line"),
        (String::new(), "line"),
    ] {
        std::fs::write(&path, &wrong).unwrap();
        let error = Accounts::open(&path).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(!error.contains(hash), "{error}");
    }
    std::fs::write(&path, &text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(
        Accounts::open(&path),
        Err(AccountsError::Open(_, 0o640))
    ));
    assert!(matches!(
        Accounts::open(folder.path()),
        Err(AccountsError::File(..))
    ));
}

/// The file of each version stays readable.
#[test]
fn file_of_version_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("accounts.json");
    std::fs::write(&path, include_str!("version-1.json")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let accounts = Accounts::open(&path).unwrap();
    assert!(is_password(&accounts, "anna", PASSWORD));
    assert_eq!(
        accounts.secret("anna"),
        Some(Some(secret_of("anna", PASSWORD)))
    );
    let allows = |right, volume| accounts.allows("anna", right, Some(volume));
    assert_eq!(allows(AccessRight::Live, "cam"), Some(true));
    assert_eq!(allows(AccessRight::Live, "other"), Some(false));
    assert_eq!(allows(AccessRight::Change, "cam"), Some(false));
    let tokens = &accounts.list()[0].tokens;
    assert_eq!(
        (tokens[0].name.as_str(), tokens[0].expires_unix_s),
        ("grafana", Some(1_800_000_000))
    );
    assert_eq!(
        (tokens[1].name.as_str(), tokens[1].expires_unix_s),
        ("script", None)
    );
    // It is written as it was read.
    let change = UserChange::default();
    accounts.set("anna", change).unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, include_str!("version-1.json"));
}
