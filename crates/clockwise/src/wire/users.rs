//! Users, their rights and their tokens.

use media::rtsp::access::{Grant, TokenInfo, UserInfo};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user to add.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    /// The name: 1 to 64 printable ASCII characters without colons and slashes.
    pub name: String,
    /// The password: 8 characters to 256 bytes.
    pub password: String,
    /// False if the user cannot log in over RTSP, so that only a slow hash of the password is stored.
    #[serde(default = "yes")]
    pub rtsp: bool,
    /// The rights; none when absent.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

fn yes() -> bool {
    true
}

/// A change of a user. Absent members stay as they are.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeUser {
    /// The new password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// False if the user cannot log in over RTSP any more; true only with a new password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtsp: Option<bool>,
    /// The rights, instead of the present ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
    /// Rights beside these, or beside the present ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added_grants: Vec<Grant>,
}

/// A user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    /// The name.
    pub name: String,
    /// True if the user can log in over RTSP.
    pub rtsp: bool,
    /// The rights.
    pub grants: Vec<Grant>,
    /// The tokens.
    pub tokens: Vec<TokenView>,
}

impl From<UserInfo> for UserView {
    fn from(of: UserInfo) -> Self {
        Self {
            name: of.name,
            rtsp: of.has_digest,
            grants: of.grants,
            tokens: of.tokens.into_iter().map(TokenView::from).collect(),
        }
    }
}

/// A token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// The name.
    pub name: String,
    /// When it becomes invalid, in seconds since 1970; absent if it does not.
    pub expires_unix_s: Option<u64>,
}

impl From<TokenInfo> for TokenView {
    fn from(of: TokenInfo) -> Self {
        Self {
            name: of.name,
            expires_unix_s: of.expires_unix_s,
        }
    }
}

/// A token to make.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeToken {
    /// The name: 1 to 64 printable ASCII characters without colons and slashes.
    pub name: String,
    /// How long it is valid, in seconds; always if absent.
    #[serde(default)]
    pub expires_in_s: Option<u64>,
}

/// A token that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// Its name and expiry.
    #[serde(flatten)]
    pub view: TokenView,
    /// Its text, for `Authorization: Bearer TEXT`. The server does not store it.
    pub token: String,
}
