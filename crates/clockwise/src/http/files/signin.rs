//! Browsers sign in with a password, and get a cookie.
//!
//! The password is sent as it is, so pages ask for it over TLS and on this host only. A page of another site can make a
//! browser send requests with its cookie (CSRF): those that change something must have the header `Origin` of this
//! server, which such a page cannot set.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use engine::clock;
use media::rtsp::access::SignInRefusal;
use serde::Deserialize;

use super::super::{Body, SharedApp, run_blocking};
use super::page::page;
use crate::wire::Problem;

/// The path of the page, and of the request that signs in.
pub(super) const PATH: &str = "/signin";

/// The path of the request that signs out.
pub(super) const OUT_PATH: &str = "/signout";

const COOKIE: &str = "clockwise_session";

/// The longest time that a browser keeps the cookie, in seconds: as long as it can be valid.
const MAX_AGE_S: u32 = 30 * 86_400;

/// How a client reached the server.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its address.
    pub peer: SocketAddr,
    /// True over TLS.
    pub is_tls: bool,
}

impl Arrival {
    /// True if a password that it sends is not read on the way.
    pub(super) fn is_private(self) -> bool {
        self.is_tls || self.peer.ip().is_loopback()
    }
}

/// The cookie of a request.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter();
    let pairs = all
        .filter_map(|of| of.to_str().ok())
        .flat_map(|of| of.split(';'));
    let mut named = pairs.filter_map(|pair| pair.trim().split_once('='));
    named
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}

/// True if a request that changes something comes from a page of this server.
pub(super) fn is_from_own_page(headers: &HeaderMap, is_tls: bool) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let scheme = if is_tls { "https" } else { "http" };
    let (origin, host) = (text(header::ORIGIN), text(header::HOST));
    origin
        .zip(host)
        .is_some_and(|(origin, host)| origin == format!("{scheme}://{host}"))
}

/// True if a request changes nothing.
pub(in crate::http) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The answer to a request of another site's page.
pub(super) fn foreign() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "the request does not come from a page of this server",
        "open the page at the address of this server; programs use a token",
    )
}

/// The way to the page for a browser that asks for another page without a login.
pub(super) fn redirect(request: &Request) -> Option<Response> {
    let accept = request.headers().get(header::ACCEPT)?.to_str().ok()?;
    if request.method() != Method::GET || !accept.contains("text/html") {
        return None;
    }
    let to = request.uri().path_and_query().map_or("/", |of| of.as_str());
    let to = percent_encoding::utf8_percent_encode(to, percent_encoding::NON_ALPHANUMERIC);
    Some(Redirect::to(&format!("{PATH}?to={to}")).into_response())
}

/// The page that asks for a name and a password.
pub(super) async fn show() -> Response {
    page(include_str!("signin.html").to_owned())
}

/// The name of a user who signs in, or tries to, as an extension of the answer.
#[derive(Clone)]
pub(in crate::http) struct SigningIn(pub(in crate::http) String);

/// A longer name is no user's.
const NAME_BYTES_MAX: usize = 64;

/// A name and a password.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    user: String,
    password: String,
}

/// Signs a browser in.
pub(super) async fn sign_in(
    State(app): State<SharedApp>,
    arrival: Option<Extension<Arrival>>,
    headers: HeaderMap,
    Body(said): Body<SignIn>,
) -> Result<Response, Problem> {
    let Some(Extension(arrival)) = arrival.filter(|of| of.is_private()) else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "a password would be sent here in clear",
            "open the page over TLS (`tls_listen` in [http])",
        ));
    };
    if !is_from_own_page(&headers, arrival.is_tls) {
        return Err(foreign());
    }
    let mut name = said.user.clone();
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    if name != said.user {
        return Err(problem(SignInRefusal::Wrong));
    }
    let checked = run_blocking(app, move |app| {
        let access = app.access.as_ref().filter(|of| of.accounts().is_some());
        let access = access.ok_or_else(|| {
            let help = "set `accounts` in [access] of the configuration";
            Problem::new(StatusCode::CONFLICT, "the server has no accounts", help)
        })?;
        Ok(access.sign_in(&said.user, &said.password, arrival.peer, clock::now()))
    });
    let mut response = match checked.await? {
        Ok(cookie) => {
            let secure = if arrival.is_tls { "; Secure" } else { "" };
            let text = format!(
                "{COOKIE}={cookie}; Path=/; Max-Age={MAX_AGE_S}; HttpOnly; SameSite=Lax{secure}"
            );
            with_cookie(&text)
        }
        Err((refusal, wait)) => {
            tokio::time::sleep(Duration::from_nanos(wait.get())).await;
            problem(refusal).into_response()
        }
    };
    response.extensions_mut().insert(SigningIn(name));
    Ok(response)
}

fn problem(refusal: SignInRefusal) -> Problem {
    let (status, what, help) = match refusal {
        SignInRefusal::Wrong => (
            StatusCode::UNAUTHORIZED,
            "unknown user or wrong password",
            "try again; an administrator can set another password: `clockwise user password`",
        ),
        SignInRefusal::Guessed => (
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong passwords for this user",
            "try again in a minute",
        ),
        SignInRefusal::Busy => (
            StatusCode::SERVICE_UNAVAILABLE,
            "other passwords are being checked",
            "try again",
        ),
        SignInRefusal::Random => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the host has no random numbers",
            "try again later",
        ),
    };
    Problem::new(status, what, help)
}

/// Signs a browser out.
pub(super) async fn sign_out(
    State(app): State<SharedApp>,
    arrival: Option<Extension<Arrival>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !arrival.is_some_and(|of| is_from_own_page(&headers, of.is_tls)) {
        return Err(foreign());
    }
    if let Some((access, cookie)) = app.access.as_ref().zip(cookie(&headers)) {
        access.sign_out(cookie);
    }
    Ok(with_cookie(&format!("{COOKIE}=; Path=/; Max-Age=0")))
}

fn with_cookie(text: &str) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        let all = all.iter().cloned();
        all.map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn cookie_is_found_among_others() {
        for (said, found) in [
            ("clockwise_session=1f", Some("1f")),
            ("a=b; clockwise_session=1f; c=d", Some("1f")),
            ("xclockwise_session=1f", None),
            ("clockwise_session", None),
            ("", None),
        ] {
            assert_eq!(cookie(&headers(&[(header::COOKIE, said)])), found, "{said}");
        }
    }

    #[test]
    fn only_pages_of_this_server_change_something() {
        let is_own = |origin, is_tls| {
            let all = [(header::HOST, "h:1"), (header::ORIGIN, origin)];
            is_from_own_page(&headers(&all), is_tls)
        };
        assert!(is_own("https://h:1", true) && is_own("http://h:1", false));
        for foreign in [
            "http://h:1",
            "https://h:2",
            "https://h",
            "https://h:1.evil",
            "null",
            "",
        ] {
            assert!(!is_own(foreign, true), "{foreign}");
        }
        assert!(!is_from_own_page(&headers(&[(header::HOST, "h:1")]), true));
    }

    #[test]
    fn only_pages_lead_to_the_sign_in() {
        let to = |method: Method, accept: &'static str| {
            let request = Request::builder().method(method).uri("/media/a%20b/?x=1");
            let request = request
                .header(header::ACCEPT, accept)
                .body(axum::body::Body::empty());
            let response = redirect(&request.unwrap())?;
            let to = response
                .headers()
                .get(header::LOCATION)?
                .to_str()
                .ok()?
                .to_owned();
            Some(to)
        };
        let page = "text/html,application/xhtml+xml";
        let expected = "/signin?to=%2Fmedia%2Fa%2520b%2F%3Fx%3D1";
        assert_eq!(to(Method::GET, page).as_deref(), Some(expected));
        assert_eq!(to(Method::GET, "*/*"), None);
        assert_eq!(to(Method::POST, page), None);
    }
}
