//! Hashes of passwords for Digest, and random numbers.

use md5::{Digest, Md5};

/// The realm of all passwords: an argument of `htdigest`, and in each challenge.
pub const REALM: &str = "clockwise";

/// The hash of a password that Digest computes from: MD5 of `USER:REALM:PASSWORD`, in hexadecimal.
pub(super) type Secret = [u8; 32];

/// Parses a secret; `None` if it is not 32 hexadecimal digits.
pub(super) fn parse_secret(text: &str) -> Option<Secret> {
    let hash: Secret = text.as_bytes().try_into().ok()?;
    let is_hash = hash.iter().all(u8::is_ascii_hexdigit);
    is_hash.then(|| hash.map(|digit| digit.to_ascii_lowercase()))
}

/// The secret of a user's password.
pub(super) fn secret_of(user: &str, password: &str) -> Secret {
    hash(&[user.as_bytes(), REALM.as_bytes(), password.as_bytes()])
}

/// MD5 of parts with colons between them, in hexadecimal.
pub(super) fn hash(parts: &[&[u8]]) -> Secret {
    let mut hash = Md5::new();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            hash.update(b":");
        }
        hash.update(part);
    }
    let mut text = Secret::default();
    for (at, byte) in hash.finalize().into_iter().enumerate() {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
        text[2 * at] = digit(byte >> 4);
        text[2 * at + 1] = digit(byte & 15);
    }
    text
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Random bytes.
///
/// # Errors
/// When the host has none.
pub(super) fn random<const BYTES: usize>() -> std::io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}
