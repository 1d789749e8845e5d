//! HTML pages that list and play recordings.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;

use super::super::DisconnectGuard;
use super::visitors::ConnectionVisitor;
use super::{PathPart, SharedApp, open, plain, run_blocking};
use crate::wire::Problem;
use crate::wire::recordings::RecordingView;

const KIND: &str = "text/html; charset=utf-8";

const PLAYER: &str = include_str!("player.html");
const LIST: &str = include_str!("list.html");

/// A page that loads nothing from other sites.
fn page(text: String) -> Response {
    let mut response = plain(KIND, text);
    let policy = "default-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; media-src 'self' blob:";
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(policy),
    );
    response
}

/// `text` escaped for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

pub(super) async fn one(
    state: State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        open(app, &volume, number)?;
        let title = escaped(&format!("{volume}, recording {number}"));
        Ok(page(PLAYER.replace("{title}", &title)))
    })
    .await
}

pub(super) async fn all(
    state: State<SharedApp>,
    visitor: Option<Extension<ConnectionVisitor>>,
) -> Result<Response, Problem> {
    let (_guard, is_connected) = DisconnectGuard::new();
    run_blocking(state.0, move |app| {
        let mut rows = String::new();
        let is_visible = |name: &str| visitor.as_ref().is_none_or(|of| of.may_see(name));
        for volume in app
            .pool
            .volumes()
            .into_iter()
            .filter(|of| is_visible(&of.name))
        {
            // Volumes without recordings give an error here, and are skipped.
            let Ok(recordings) = app.archives.recordings(&volume.name, &is_connected) else {
                continue;
            };
            for of in recordings.into_iter().rev().map(RecordingView::from) {
                let path = percent_encoding::utf8_percent_encode(
                    &volume.name,
                    percent_encoding::NON_ALPHANUMERIC,
                );
                let begun = std::time::SystemTime::UNIX_EPOCH
                    + std::time::Duration::from_nanos(of.begun_unix_ns);
                let state = if of.is_recorded { "recording" } else { "" };
                rows.push_str(&format!(
                    "<tr><td><a href=\"{path}/{number}/\">{name}, {number}</a></td><td>{begun}</td>\
                     <td>{seconds} s</td><td>{tracks}</td><td>{state}</td></tr>\n",
                    number = of.number,
                    name = escaped(&volume.name),
                    begun = humantime::format_rfc3339_seconds(begun),
                    seconds = of.length_ns / 1_000_000_000,
                    tracks = escaped(&of.tracks.join(", ")),
                ));
            }
        }
        Ok(page(LIST.replace("{rows}", &rows)))
    })
    .await
}
