//! Access control over TCP, where the server has users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use engine::clock;
use media::rtsp::access::{Access, AccessRight, Login, Visitor, VisitorRefusal, Wish};

use super::signin::{self, Arrival};

use crate::wire::Problem;

/// The user who is logged in on a connection.
#[derive(Clone)]
pub(in crate::http) struct ConnectionVisitor(Arc<Mutex<Visitor>>);

impl ConnectionVisitor {
    fn lock(&self) -> MutexGuard<'_, Visitor> {
        // A panic during a login leaves the visitor logged out, which is safe.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user of the last request.
    pub(in crate::http) fn user(&self) -> Option<String> {
        self.lock().user().map(str::to_owned)
    }

    /// True if the user may watch what is recorded in this volume, or what arrives in it.
    pub(super) fn may(&self, right: AccessRight, volume: &str) -> bool {
        self.lock().may(right, volume)
    }
}

/// Tells whether a request would be admitted still, for an answer that lasts.
#[derive(Clone)]
pub(in crate::http) struct StillAdmitted(Arc<dyn Fn() -> bool + Send + Sync>);

impl StillAdmitted {
    pub(in crate::http) fn holds(&self) -> bool {
        (self.0)()
    }
}

/// A connection whose requests must authenticate their user.
#[derive(Clone)]
struct Asking {
    visitor: ConnectionVisitor,
    arrival: Arrival,
    has_accounts: bool,
}

/// Adds access control for one connection: each request must authenticate its user.
pub fn asking(router: Router, access: Arc<Access>, arrival: Arrival) -> Router {
    let has_accounts = access.accounts().is_some();
    let visitor = Visitor::new(access, arrival.peer);
    let asking = Asking {
        visitor: ConnectionVisitor(Arc::new(Mutex::new(visitor))),
        arrival,
        has_accounts,
    };
    router.layer(from_fn_with_state(asking, ask))
}

/// A right that a request needs, in a volume or in all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct NeededRight {
    pub(in crate::http) right: AccessRight,
    volume: Option<String>,
}

/// The right that a request needs; `None` if being logged in is enough.
pub(in crate::http) fn needed(method: &Method, path: &str) -> Option<NeededRight> {
    let decoded = |part: &str| {
        let part = percent_encoding::percent_decode_str(part);
        part.decode_utf8_lossy().into_owned()
    };
    let mut parts = path.split('/').skip(1);
    let mut part = || parts.next().unwrap_or("");
    let everywhere = |right| {
        Some(NeededRight {
            right,
            volume: None,
        })
    };
    let of_volume = |right, name: &str| {
        Some(NeededRight {
            right,
            volume: Some(decoded(name)),
        })
    };
    match part() {
        "" | "player" => None,
        "media" => match (part(), part(), part()) {
            ("", ..) => None,
            // Routes decode each part.
            (volume, place, file) => {
                of_volume(right_in_media(&decoded(place), &decoded(file)), volume)
            }
        },
        "v1" => match (part(), part(), part()) {
            ("openapi.json", ..) => None,
            ("volumes", volume, "recordings" | "timeline" | "retention" | "locks")
                if !volume.is_empty() =>
            {
                let right = match *method {
                    Method::GET | Method::HEAD => AccessRight::Recordings,
                    _ => AccessRight::Change,
                };
                of_volume(right, volume)
            }
            _ => everywhere(AccessRight::Administer),
        },
        _ => everywhere(AccessRight::Administer),
    }
}

/// The right that the files of a volume need.
fn right_in_media(place: &str, file: &str) -> AccessRight {
    match (place, file) {
        ("whip", _) | ("live", "whip") => AccessRight::Record,
        // The page shows what arrives now. Its playlists of the newest recording do not.
        ("live", "index.m3u8" | "media.m3u8") => AccessRight::Recordings,
        ("live", _) => AccessRight::Live,
        ("export.mp4", _) | (_, "recording.mp4") => AccessRight::Export,
        (_, track) if track.starts_with("track") => AccessRight::Export,
        _ => AccessRight::Recordings,
    }
}

/// True if a path belongs to the control API, which takes tokens only: a browser that has logged in by Digest would
/// send its login with a request that another site makes it send.
fn is_api(path: &str) -> bool {
    !path.starts_with("/media/") && !path.starts_with("/player/") && path != "/"
}

fn is_bearer(authorization: &str) -> bool {
    let scheme = authorization.split(' ').next();
    scheme.is_some_and(|of| of.eq_ignore_ascii_case("Bearer"))
}

/// True if a path is open to those who have not signed in: the page that signs in, and its files.
fn is_open(path: &str) -> bool {
    let files = ["/player/signin.js", "/player/style.css"];
    path == signin::PATH || path == signin::OUT_PATH || files.contains(&path)
}

async fn ask(State(asking): State<Asking>, mut request: Request, next: Next) -> Response {
    let Asking {
        visitor,
        arrival,
        has_accounts,
    } = asking;
    request.extensions_mut().insert(arrival);
    if is_open(request.uri().path()) {
        return next.run(request).await;
    }
    let target = request.uri().path_and_query().map_or("/", |of| of.as_str());
    let path = request.uri().path();
    let is_api = is_api(path);
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap_or(""));
    let authorization = authorization.filter(|said| !is_api || is_bearer(said));
    let cookie = signin::cookie(request.headers()).filter(|_| has_accounts);
    let login = match (authorization, cookie) {
        (Some(said), _) => Some(Login::Authorization(said)),
        (None, cookie) => cookie.map(Login::Cookie),
    };
    if matches!(login, Some(Login::Cookie(_)))
        && !signin::is_safe(request.method())
        && !signin::is_from_own_page(request.headers(), arrival.is_tls)
    {
        return signin::foreign().into_response();
    }
    let needed = needed(request.method(), path);
    let admitted = visitor.lock().admit(
        request.method().as_str(),
        target,
        login,
        needed.as_ref().map(|of| Wish {
            right: of.right,
            volume: of.volume.as_deref(),
        }),
        clock::now(),
    );
    match admitted {
        Ok(()) => {
            let still = still_admitted(&visitor, &request, has_accounts, needed);
            request.extensions_mut().insert(still);
            request.extensions_mut().insert(visitor);
            next.run(request).await
        }
        Err(turned) => {
            let is_unknown = matches!(turned, VisitorRefusal::Unknown { .. });
            if is_unknown
                && has_accounts
                && arrival.is_private()
                && authorization.is_none()
                && let Some(page) = signin::redirect(&request)
            {
                return page;
            }
            let mut response = answer(turned).await;
            let challenge = response.headers_mut().get_mut(header::WWW_AUTHENTICATE);
            if let Some(challenge) = challenge.filter(|_| is_api) {
                *challenge = HeaderValue::from_static("Bearer realm=\"clockwise\"");
            }
            response
        }
    }
}

/// A request that was admitted by a token or a cookie can be asked about again; Digest is for one request.
fn still_admitted(
    visitor: &ConnectionVisitor,
    request: &Request,
    has_accounts: bool,
    needed: Option<NeededRight>,
) -> StillAdmitted {
    let visitor = visitor.clone();
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.and_then(|value| value.to_str().ok());
    let authorization = authorization.map(str::to_owned);
    let cookie = signin::cookie(request.headers()).filter(|_| has_accounts);
    let cookie = cookie.map(str::to_owned);
    StillAdmitted(Arc::new(move || {
        let login = match &authorization {
            Some(said) if is_bearer(said) => Some(Login::Authorization(said)),
            _ => cookie.as_deref().map(Login::Cookie),
        };
        let wish = needed.as_ref().map(|of| Wish {
            right: of.right,
            volume: of.volume.as_deref(),
        });
        let admitted = visitor.lock().admit("GET", "/", login, wish, clock::now());
        admitted.is_ok()
    }))
}

async fn answer(turned: VisitorRefusal) -> Response {
    let (problem, name, value) = match turned {
        VisitorRefusal::Unknown {
            challenge,
            why,
            wait,
        } => {
            tokio::time::sleep(Duration::from_nanos(wait.get())).await;
            let help =
                "log in as a user of this server, or send a token: `clockwise user` makes both";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, why, help);
            let challenge = HeaderValue::from_str(&challenge);
            (problem, header::WWW_AUTHENTICATE, challenge.ok())
        }
        VisitorRefusal::Forbidden(why) => {
            let help = "`clockwise user grant`, or [[rtsp.permit]] in the configuration, gives rights to users";
            let problem = Problem::new(StatusCode::FORBIDDEN, why, help);
            (problem, header::CONNECTION, None)
        }
        VisitorRefusal::Guessing => {
            let what = "too many failed logins on this connection";
            let problem = Problem::new(StatusCode::FORBIDDEN, what, "open another connection");
            let close = Some(HeaderValue::from_static("close"));
            (problem, header::CONNECTION, close)
        }
    };
    let mut response = problem.into_response();
    response
        .headers_mut()
        .extend(value.map(|value| (name, value)));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_need_rights() {
        use AccessRight::{Administer, Change, Export, Live, Record, Recordings};
        let (get, delete) = (Method::GET, Method::DELETE);
        for (method, path, right, volume) in [
            (&get, "/media/cam/1/index.m3u8", Recordings, Some("cam")),
            (&get, "/media/a%20b/1/", Recordings, Some("a b")),
            (&get, "/media/%2e%2e/1/", Recordings, Some("..")),
            (&get, "/media/cam/1/recording.json", Recordings, Some("cam")),
            (&get, "/media/cam/1/segments/7.mp4", Recordings, Some("cam")),
            (&get, "/media/cam/1/recording.mp4", Export, Some("cam")),
            (&get, "/media/cam/1/track0", Export, Some("cam")),
            (&get, "/media/cam/1/%74rack0", Export, Some("cam")),
            (&get, "/media/cam/1/recording%2Emp4", Export, Some("cam")),
            (&get, "/media/cam/%65xport.mp4", Export, Some("cam")),
            (&Method::POST, "/media/cam/%77hip", Record, Some("cam")),
            (&get, "/media/cam/export.mp4", Export, Some("cam")),
            (&get, "/media/cam/live/", Live, Some("cam")),
            (&get, "/media/cam/live/low/media.m3u8", Live, Some("cam")),
            (&get, "/media/cam/live/media.m3u8", Recordings, Some("cam")),
            (&delete, "/media/cam/live/whep/0123", Live, Some("cam")),
            (&Method::POST, "/media/cam/whip", Record, Some("cam")),
            (&delete, "/media/cam/live/whip/0123", Record, Some("cam")),
            (&get, "/media/whip/1/index.m3u8", Recordings, Some("whip")),
            (&get, "/v1/volumes/cam/recordings", Recordings, Some("cam")),
            (&get, "/v1/volumes/cam/timeline", Recordings, Some("cam")),
            (&delete, "/v1/volumes/cam/recordings/1", Change, Some("cam")),
            (
                &Method::PATCH,
                "/v1/volumes/cam/retention",
                Change,
                Some("cam"),
            ),
            (&delete, "/v1/volumes/cam", Administer, None),
            (&get, "/v1/volumes//recordings", Administer, None),
            (&get, "/v1/status", Administer, None),
            (&get, "/v1/users", Administer, None),
            (&get, "/metrics", Administer, None),
        ] {
            let expected = NeededRight {
                right,
                volume: volume.map(str::to_owned),
            };
            assert_eq!(needed(method, path), Some(expected), "{method} {path}");
        }
        for path in ["/", "/media/", "/player/player.js", "/v1/openapi.json"] {
            assert_eq!(needed(&get, path), None, "{path}");
        }
    }

    #[test]
    fn api_takes_tokens_only() {
        assert!(is_api("/v1/status") && is_api("/metrics") && is_api("/v1"));
        assert!(!is_api("/") && !is_api("/media/") && !is_api("/player/player.js"));
        assert!(is_bearer("bearer x") && !is_bearer("Digest x") && !is_bearer(""));
    }
}
