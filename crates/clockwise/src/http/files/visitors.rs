//! Access control for recordings over TCP, where `[rtsp] users` is set.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use engine::clock;
use media::rtsp::access::{Access, AccessRight, Visitor, VisitorRefusal};

use crate::wire::Problem;

/// The user who is logged in on a connection.
#[derive(Clone)]
pub(super) struct ConnectionVisitor(Arc<Mutex<Visitor>>);

impl ConnectionVisitor {
    fn lock(&self) -> MutexGuard<'_, Visitor> {
        // A panic during a login leaves the visitor logged out, which is safe.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the user may see this volume.
    pub(super) fn may_see(&self, volume: &str) -> bool {
        self.lock().may_see(volume)
    }
}

/// Adds access control for one connection: each request must authenticate its user.
pub fn asking(router: Router, access: Arc<Access>, peer: SocketAddr) -> Router {
    let visitor = ConnectionVisitor(Arc::new(Mutex::new(Visitor::new(access, peer))));
    router.layer(from_fn_with_state(visitor, ask))
}

/// The volume in a path.
fn volume(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/media/")?;
    let name = rest.split('/').next().filter(|name| !name.is_empty())?;
    let name = percent_encoding::percent_decode_str(name);
    Some(name.decode_utf8_lossy().into_owned())
}

/// The right that a path needs: publishers record.
fn right(path: &str) -> AccessRight {
    let mut behind = path.split('/').skip(3);
    match behind.any(|part| part == "whip") {
        true => AccessRight::Record,
        false => AccessRight::Play,
    }
}

async fn ask(
    State(visitor): State<ConnectionVisitor>,
    mut request: Request,
    next: Next,
) -> Response {
    let target = request.uri().path_and_query().map_or("/", |of| of.as_str());
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap_or(""));
    let path = request.uri().path();
    let volume = volume(path);
    let right = right(path);
    let admitted = visitor.lock().admit(
        request.method().as_str(),
        target,
        authorization,
        volume.as_deref().map(|volume| (right, volume)),
        clock::now(),
    );
    match admitted {
        Ok(()) => {
            request.extensions_mut().insert(visitor);
            next.run(request).await
        }
        Err(turned) => answer(turned).await,
    }
}

async fn answer(turned: VisitorRefusal) -> Response {
    let (problem, name, value) = match turned {
        VisitorRefusal::Unknown {
            challenge,
            why,
            wait,
        } => {
            tokio::time::sleep(Duration::from_nanos(wait.get())).await;
            let help = "log in as a user of the file that is set as `users` in [rtsp]";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, why, help);
            let challenge = HeaderValue::from_str(&challenge);
            (problem, header::WWW_AUTHENTICATE, challenge.ok())
        }
        VisitorRefusal::Forbidden(why) => {
            let help = "the [[rtsp.permit]] sections of the configuration give users their rights";
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
    fn volume_is_parsed_from_the_path() {
        for (path, of) in [
            ("/media/cam/1/index.m3u8", Some("cam")),
            ("/media/a%20b/1/", Some("a b")),
            ("/media/%2e%2e/1/", Some("..")),
            ("/media/", None),
            ("/", None),
        ] {
            assert_eq!(volume(path).as_deref(), of, "{path}");
        }
    }

    #[test]
    fn publishing_needs_the_right_to_record() {
        for (path, of) in [
            ("/media/cam/whip", AccessRight::Record),
            ("/media/cam/live/whip", AccessRight::Record),
            ("/media/cam/live/whip/0123", AccessRight::Record),
            ("/media/whip/live/whep", AccessRight::Play),
            ("/media/cam/live/whep/0123", AccessRight::Play),
            ("/media/whip/1/index.m3u8", AccessRight::Play),
        ] {
            assert_eq!(right(path), of, "{path}");
        }
    }
}
