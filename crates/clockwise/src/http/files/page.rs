//! HTML pages that list and play recordings.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use media::archive::archives::RecordingInfo;
use media::files::{exports, is_for_browsers};
use media::rtsp::access::AccessRight;

use super::super::DisconnectGuard;
use super::visitors::ConnectionVisitor;
use super::{PathPart, SharedApp, open, plain, run_blocking};
use crate::wire::Problem;
use crate::wire::recordings::RecordingView;

const KIND: &str = "text/html; charset=utf-8";

const PLAYER: &str = include_str!("player.html");
const LIST: &str = include_str!("list.html");

/// The files of the pages: name, type and text.
const FILES: [(&str, &str, &str); 4] = [
    (
        "player.js",
        "text/javascript; charset=utf-8",
        include_str!("player.js"),
    ),
    (
        "signin.js",
        "text/javascript; charset=utf-8",
        include_str!("signin.js"),
    ),
    (
        "style.css",
        "text/css; charset=utf-8",
        include_str!("style.css"),
    ),
    (
        "hls.light.min.js",
        "text/javascript; charset=utf-8",
        include_str!("vendor/hls.js/hls.light.min.js"),
    ),
];

/// Where pages may load from and connect to: this server only, and media from memory.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      media-src 'self' blob:; base-uri 'none'; form-action 'none'";

/// A page that loads nothing from other sites.
pub(super) fn page(text: String) -> Response {
    let mut response = plain(KIND, text);
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static(POLICY);
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// A file of the pages.
pub(super) async fn file(PathPart(name): PathPart<String>) -> Result<Response, Problem> {
    let Some((_, kind, text)) = FILES.iter().find(|of| of.0 == name) else {
        let what = format!("the page has no file {name:?}");
        let help = "the page names its files";
        return Err(Problem::new(StatusCode::NOT_FOUND, what, help));
    };
    let mut response = plain(kind, *text);
    let revalidate = HeaderValue::from_static("no-cache");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, revalidate);
    Ok(response)
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

/// The encodings of a recording's tracks, and which of them browsers are not sent.
fn track_names(of: &RecordingInfo) -> String {
    let tracks = of.description.iter().flat_map(|of| of.tracks());
    let names = tracks.map(|track| {
        let name = match &*track.encoding {
            "" => "unknown encoding",
            name => name,
        };
        match exports(track).mp4.is_ok() && is_for_browsers(track) {
            true => name.to_owned(),
            false => format!("{name} (not shown)"),
        }
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The name of a volume in a path.
fn encoded(name: &str) -> impl std::fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
}

pub(super) async fn one(
    state: State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        open(app, &volume, number)?;
        Ok(player(&format!("{volume}, recording {number}"), ""))
    })
    .await
}

/// The page of the newest recording, also of a volume that has none yet.
pub(super) async fn newest(
    state: State<SharedApp>,
    PathPart(volume): PathPart<String>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        // A stream that is live only has no volume.
        let is_source = app.sources.list().iter().any(|of| of.spec.volume == volume);
        if !is_source && !app.archives.live().is_known(&volume) {
            app.pool.open_volume(&volume).map_err(Problem::from)?;
        }
        Ok(player(&format!("{volume}, live"), "live"))
    })
    .await
}

fn player(title: &str, kind: &str) -> Response {
    let text = PLAYER.replace("{title}", &escaped(title));
    page(text.replace("{kind}", kind))
}

pub(super) async fn all(
    state: State<SharedApp>,
    visitor: Option<Extension<ConnectionVisitor>>,
) -> Result<Response, Problem> {
    let (_guard, is_connected) = DisconnectGuard::new();
    run_blocking(state.0, move |app| {
        let mut rows = String::new();
        let may = |right, name: &str| visitor.as_ref().is_none_or(|of| of.may(right, name));
        let is_visible = |name: &str| may(AccessRight::Live, name);
        let live_row = |name: &str| {
            let (path, name) = (encoded(name), escaped(name));
            format!("<tr><td><a href=\"{path}/live/\">{name}, live</a></td></tr>\n")
        };
        let live = app.archives.live().all().into_iter();
        for feed in live.filter(|of| of.recording().is_none() && is_visible(of.name())) {
            rows.push_str(&live_row(feed.name()));
        }
        for volume in app.pool.volumes() {
            let is_listed = may(AccessRight::Recordings, &volume.name);
            if !is_listed && !is_visible(&volume.name) {
                continue;
            }
            // Volumes without recordings give an error here, and are skipped.
            let Ok(recordings) = app.archives.recordings(&volume.name, &is_connected) else {
                continue;
            };
            if !recordings.is_empty() && is_visible(&volume.name) {
                rows.push_str(&live_row(&volume.name));
            }
            let listed = recordings.into_iter().filter(|_| is_listed);
            for of in listed.rev() {
                let tracks = track_names(&of);
                let of = RecordingView::from(of);
                let path = encoded(&volume.name);
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
                    tracks = escaped(&tracks),
                ));
            }
        }
        Ok(page(LIST.replace("{rows}", &rows)))
    })
    .await
}
