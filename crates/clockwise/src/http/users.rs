//! Users, their rights and their tokens.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use media::rtsp::access::{Accounts, AccountsError, UserChange};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, App, Body, PathPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::users::{AddUser, ChangeUser, MadeToken, MakeToken, TokenView, UserView};

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(show, change, remove))
        .routes(routes!(make_token))
        .routes(routes!(revoke_token))
}

impl From<AccountsError> for Problem {
    fn from(error: AccountsError) -> Self {
        let (status, help) = match &error {
            AccountsError::NoUser(_) => (
                StatusCode::NOT_FOUND,
                "`clockwise user list` lists the users",
            ),
            AccountsError::NoToken(..) => (
                StatusCode::NOT_FOUND,
                "`clockwise user list` lists the tokens",
            ),
            AccountsError::Exists(_) => (
                StatusCode::CONFLICT,
                "choose another name, or change that user: `clockwise user set`",
            ),
            AccountsError::TokenExists(..) => (
                StatusCode::CONFLICT,
                "choose another name, or revoke that token: `clockwise user revoke`",
            ),
            AccountsError::Many(_) => (StatusCode::CONFLICT, "remove some first"),
            AccountsError::Name(_) => (StatusCode::UNPROCESSABLE_ENTITY, "choose another name"),
            AccountsError::Password => {
                (StatusCode::UNPROCESSABLE_ENTITY, "choose another password")
            }
            AccountsError::File(..)
            | AccountsError::Open(..)
            | AccountsError::Invalid(..)
            | AccountsError::Random => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the server needs a folder that it may write for the file that is set as `accounts` in [access]",
            ),
        };
        Self::new(status, error.to_string(), help)
    }
}

/// The accounts of the server.
fn accounts(app: &App) -> Result<&Accounts, Problem> {
    let access = app.access.as_deref();
    access.and_then(|of| of.accounts()).ok_or_else(|| {
        Problem::new(
            StatusCode::CONFLICT,
            "the server has no accounts",
            "set `accounts` in [access] of the configuration to a file for them, and restart the server",
        )
    })
}

fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Lists the users, without secrets.
#[utoipa::path(get, path = "/v1/users", responses((status = 200, body = Vec<UserView>), (status = 409, body = Problem)))]
async fn list(state: State<SharedApp>) -> Answer<Vec<UserView>> {
    answer(state.0, |app| {
        let users = accounts(app)?.list();
        Ok(users.into_iter().map(UserView::from).collect())
    })
    .await
}

/// Adds a user.
#[utoipa::path(post, path = "/v1/users", request_body = AddUser,
    responses((status = 201, body = UserView), (status = 409, body = Problem), (status = 422, body = Problem)))]
async fn add(
    state: State<SharedApp>,
    Body(ask): Body<AddUser>,
) -> Result<(StatusCode, Json<UserView>), Problem> {
    let added = answer(state.0, move |app| {
        let AddUser {
            name,
            password,
            rtsp,
            grants,
        } = ask;
        let added = accounts(app)?.add(&name, &password, rtsp, grants)?;
        Ok(UserView::from(added))
    })
    .await?;
    Ok((StatusCode::CREATED, added))
}

/// Shows a user, without secrets.
#[utoipa::path(get, path = "/v1/users/{name}", params(("name" = String, Path)),
    responses((status = 200, body = UserView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn show(state: State<SharedApp>, PathPart(name): PathPart<String>) -> Answer<UserView> {
    answer(state.0, move |app| {
        let users = accounts(app)?.list();
        let user = users.into_iter().find(|user| user.name == name);
        Ok(UserView::from(user.ok_or(AccountsError::NoUser(name))?))
    })
    .await
}

/// Changes a user. New rights apply to the next request, and a new password to the next login.
#[utoipa::path(patch, path = "/v1/users/{name}", params(("name" = String, Path)), request_body = ChangeUser,
    responses((status = 200, body = UserView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn change(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
    Body(ask): Body<ChangeUser>,
) -> Answer<UserView> {
    answer(state.0, move |app| {
        if ask.rtsp == Some(true) && ask.password.is_none() {
            return Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "the password that is stored cannot be used for RTSP",
                "give the password as well",
            )
            .at("rtsp"));
        }
        let changed = accounts(app)?.set(
            &name,
            UserChange {
                password: ask.password,
                has_digest: ask.rtsp,
                grants: ask.grants,
                added_grants: ask.added_grants,
            },
        )?;
        Ok(UserView::from(changed))
    })
    .await
}

/// Removes a user, with the tokens. Answers with the last state.
#[utoipa::path(delete, path = "/v1/users/{name}", params(("name" = String, Path)),
    responses((status = 200, body = UserView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn remove(state: State<SharedApp>, PathPart(name): PathPart<String>) -> Answer<UserView> {
    answer(state.0, move |app| {
        Ok(UserView::from(accounts(app)?.remove(&name)?))
    })
    .await
}

/// Makes a token, with which a program has the rights of a user.
#[utoipa::path(post, path = "/v1/users/{name}/tokens", params(("name" = String, Path)), request_body = MakeToken,
    responses((status = 201, body = MadeToken), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn make_token(
    state: State<SharedApp>,
    PathPart(user): PathPart<String>,
    Body(ask): Body<MakeToken>,
) -> Result<(StatusCode, Json<MadeToken>), Problem> {
    let made = answer(state.0, move |app| {
        let seconds = ask.expires_in_s;
        let expires_unix_s = seconds.map(|of| unix_seconds().saturating_add(of));
        let token = accounts(app)?.make_token(&user, &ask.name, expires_unix_s)?;
        let view = TokenView {
            name: ask.name,
            expires_unix_s,
        };
        Ok(MadeToken { view, token })
    })
    .await?;
    Ok((StatusCode::CREATED, made))
}

/// Revokes a token.
#[utoipa::path(delete, path = "/v1/users/{name}/tokens/{token}", params(("name" = String, Path), ("token" = String, Path)),
    responses((status = 200, body = UserView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn revoke_token(
    state: State<SharedApp>,
    PathPart((name, token)): PathPart<(String, String)>,
) -> Answer<UserView> {
    answer(state.0, move |app| {
        let accounts = accounts(app)?;
        accounts.revoke_token(&name, &token)?;
        let user = accounts.list().into_iter().find(|user| user.name == name);
        Ok(UserView::from(user.ok_or(AccountsError::NoUser(name))?))
    })
    .await
}
