//! Live streams in parts, for browsers: low-latency HLS (RFC 8216bis).
//!
//! The first request for a stream starts a thread that packages it, for all players. It ends half a minute after the last
//! request. A request for something that does not exist yet waits for it, without a thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use media::files::ExportError;
use media::files::mp4::TrackHead;
use media::live::{LiveFeed, LiveReader};
use media::packager::{Packager, PlaylistRequest};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::hls::{IMMUTABLE, PLAYLIST};
use super::{PathPart, QueryPart, SharedApp, plain, run_blocking};
use crate::wire::Problem;

/// A camera that is pulled on demand sends its first key frame within this time, or the request is refused.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// Requests that may wait for a camera at a time. Each takes a thread of those that all requests share.
static WAITS: Semaphore = Semaphore::const_new(16);

/// How long a request may wait for a camera that is pulled on demand: not at all if too many wait.
pub(super) fn patience() -> (Option<SemaphorePermit<'static>>, Duration) {
    match WAITS.try_acquire() {
        Ok(permit) => (Some(permit), COMES_WITHIN),
        Err(_) => (None, Duration::ZERO),
    }
}

/// A stream is packaged for this long after the last request.
const WANTED_FOR: Duration = Duration::from_secs(30);

/// A request waits at most this long: three target durations (RFC 8216bis, section 6.2.5.2).
const WAIT_MAX: Duration = Duration::from_secs(21);

/// Packets that are taken from a stream at a time.
const PACKETS_AT_A_TIME: usize = 256;

/// The live streams that are packaged.
#[derive(Debug, Default)]
pub(super) struct PackagedStreams {
    by_name: Arc<Mutex<HashMap<String, Arc<PackagedStream>>>>,
}

/// A live stream that is packaged.
#[derive(Debug)]
struct PackagedStream {
    feed: Arc<LiveFeed>,
    packager: Mutex<Packager>,
    wanted_at: Mutex<Instant>,
    /// Changes with each part. True when the stream has ended.
    has_ended: watch::Sender<bool>,
}

/// The guarded values are valid after a panic.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PackagedStreams {
    /// The packaged stream of this name; starts packaging it. May wait for its camera.
    fn get(&self, app: &SharedApp, name: &str) -> Result<Arc<PackagedStream>, Problem> {
        let none = || {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("nothing arrives for stream {name:?} now"),
                "wait for its camera or publisher",
            )
        };
        let (_permit, within) = patience();
        let feed = app.archives.live().want(name, within);
        let feed = feed.filter(|feed| feed.has_picture()).ok_or_else(none)?;
        let mut by_name = locked(&self.by_name);
        by_name.retain(|_, of| !*of.has_ended.borrow());
        if let Some(found) = by_name.get(name).filter(|of| Arc::ptr_eq(&of.feed, &feed)) {
            *locked(&found.wanted_at) = Instant::now();
            return Ok(Arc::clone(found));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.unwrap_or_default().as_secs();
        let packager = Packager::new(feed.description(), feed.begun_unix_ns(), now_s)?;
        let host = |error: std::io::Error| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the stream cannot be packaged: {error}"),
                "repeat the request when the host has more threads and descriptors",
            )
        };
        let reader = feed.read().map_err(host)?.with_past_sound();
        let stream = Arc::new(PackagedStream {
            feed,
            packager: Mutex::new(packager),
            wanted_at: Mutex::new(Instant::now()),
            has_ended: watch::Sender::new(false),
        });
        let packaged = Arc::clone(&stream);
        let all = Arc::clone(&self.by_name);
        std::thread::Builder::new()
            .name("live-hls".to_owned())
            .spawn(move || {
                packaged.run(reader);
                let its = |of: &Arc<PackagedStream>| Arc::ptr_eq(of, &packaged);
                locked(&all).retain(|_, of| !its(of));
            })
            .map_err(host)?;
        by_name.insert(name.to_owned(), Arc::clone(&stream));
        Ok(stream)
    }
}

impl PackagedStream {
    /// Packages the stream to its end, or until nobody wants it.
    fn run(&self, mut reader: LiveReader) {
        if let Err(error) = self.package(&mut reader) {
            tracing::warn!(stream = self.feed.name(), %error, "a live stream cannot be packaged");
        }
        self.has_ended.send_replace(true);
    }

    fn package(&self, reader: &mut LiveReader) -> Result<(), ExportError> {
        let wait = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while locked(&self.wanted_at).elapsed() < WANTED_FOR {
            let mut fds = [PollFd::from_borrowed_fd(reader.event(), PollFlags::IN)];
            // After an error or a signal it looks for packets as well.
            let _ = rustix::event::poll(&mut fds, Some(&wait));
            let batch = reader.take(PACKETS_AT_A_TIME);
            let mut is_new = false;
            let mut packager = locked(&self.packager);
            for out in &batch.packets {
                is_new |= packager.push(&out.packet)?;
            }
            drop(packager);
            if is_new {
                self.has_ended.send_replace(false);
            }
            if batch.is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The result of `find` as soon as it has one; `None` if the stream ends before, or after [`WAIT_MAX`].
    async fn wait_for<R>(&self, find: impl Fn(&Packager) -> Option<R>) -> Option<R> {
        let mut changes = self.has_ended.subscribe();
        let found = async {
            loop {
                if let Some(found) = find(&locked(&self.packager)) {
                    return Some(found);
                }
                if *changes.borrow_and_update() || changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        tokio::time::timeout(WAIT_MAX, found).await.ok().flatten()
    }
}

/// The packaged stream of this name.
async fn packaged(app: &SharedApp, name: &str) -> Result<Arc<PackagedStream>, Problem> {
    let name = name.to_owned();
    run_blocking(Arc::clone(app), move |app| {
        app.media.packaged.get(app, &name)
    })
    .await
}

/// The delivery directives of a request (RFC 8216bis, section 6.2.5). Players may send others, which are ignored.
#[derive(Deserialize, Debug)]
pub(super) struct Directives {
    #[serde(rename = "_HLS_msn")]
    sequence: Option<u64>,
    #[serde(rename = "_HLS_part")]
    part: Option<usize>,
    #[serde(rename = "_HLS_skip")]
    skip: Option<String>,
}

/// The live stream of this name, and the heads of the tracks that browsers get of it.
pub(super) async fn heads(
    app: &SharedApp,
    name: &str,
) -> Result<(Arc<LiveFeed>, Vec<TrackHead>), Problem> {
    let stream = packaged(app, name).await?;
    let found = stream.wait_for(|packager| {
        let heads = packager.heads();
        (!heads.is_empty()).then(|| heads.to_vec())
    });
    let heads = found.await.ok_or_else(|| waited(name))?;
    Ok((Arc::clone(&stream.feed), heads))
}

/// The answer to a request that has waited in vain.
fn waited(name: &str) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("nothing more of stream {name:?} has arrived"),
        "request the playlist again",
    )
}

pub(super) async fn playlist(
    State(app): State<SharedApp>,
    PathPart(name): PathPart<String>,
    QueryPart(directives): QueryPart<Directives>,
) -> Result<Response, Problem> {
    let invalid = |what: String| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            what,
            "request the playlist without `_HLS_msn`, and then the segment after its last one",
        )
        .at("the query")
    };
    let request = PlaylistRequest {
        sequence: directives.sequence,
        part: directives.part,
        skips: matches!(directives.skip.as_deref(), Some("YES" | "v2")),
    };
    if request.part.is_some() && request.sequence.is_none() {
        return Err(invalid(
            "`_HLS_part` is given without `_HLS_msn`".to_owned(),
        ));
    }
    let stream = packaged(&app, &name).await?;
    let found = stream.wait_for(|packager| match packager.is_ready(request) {
        None => Some(None),
        Some(true) => Some(Some(packager.playlist(request.skips))),
        Some(false) => None,
    });
    match found.await {
        Some(Some(text)) => Ok(fresh(plain(PLAYLIST, text))),
        Some(None) => Err(invalid(
            "`_HLS_msn` is more than two segments ahead".to_owned(),
        )),
        None => Err(waited(&name)),
    }
}

pub(super) async fn master(
    State(app): State<SharedApp>,
    PathPart(name): PathPart<String>,
) -> Result<Response, Problem> {
    let stream = packaged(&app, &name).await?;
    let found = stream.wait_for(|packager| {
        let codecs = packager.codecs();
        (!codecs.is_empty()).then_some(codecs)
    });
    let codecs = found.await.ok_or_else(|| waited(&name))?;
    let rate = stream
        .feed
        .description()
        .rate()
        .map_or(1_000_000, |of| of.0);
    let bits = rate.saturating_mul(8);
    Ok(fresh(plain(
        PLAYLIST,
        format!(
            "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-STREAM-INF:BANDWIDTH={bits},CODECS=\"{codecs}\"\nmedia.m3u8\n"
        ),
    )))
}

/// `init.mp4`, a segment `N.m4s`, or a part `N.M.m4s`, which may be the one that comes next.
pub(super) async fn file(
    State(app): State<SharedApp>,
    PathPart((name, file)): PathPart<(String, String)>,
) -> Result<Response, Problem> {
    let stream = packaged(&app, &name).await?;
    if file == "init.mp4" {
        let found = stream.wait_for(|packager| packager.init().transpose());
        let bytes = found.await.ok_or_else(|| waited(&name))??;
        return Ok(fresh(plain("video/mp4", bytes)));
    }
    let missing = || {
        Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no {file:?} of stream {name:?}"),
            "media.m3u8 lists the segments and parts",
        )
    };
    let number = file.strip_suffix(".m4s").ok_or_else(missing)?;
    let bytes = match number.split_once('.') {
        None => {
            let sequence = number.parse().map_err(|_| missing())?;
            let parts = locked(&stream.packager).whole(sequence);
            parts.ok_or_else(missing)?.concat()
        }
        Some((sequence, part)) => {
            let sequence: u64 = sequence.parse().map_err(|_| missing())?;
            let part: usize = part.parse().map_err(|_| missing())?;
            let found = stream.wait_for(|packager| match packager.part(sequence, part) {
                Some(bytes) => Some(Some(bytes)),
                // Only the next part is worth waiting for.
                None => (packager.next() != (sequence, part)).then_some(None),
            });
            found.await.flatten().ok_or_else(missing)?.to_vec()
        }
    };
    let mut response = plain("video/iso.segment", bytes);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, IMMUTABLE);
    Ok(response)
}

/// Marks a response that must not be cached.
fn fresh(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let policy = axum::http::HeaderValue::from_static("no-cache");
    headers.insert(header::CACHE_CONTROL, policy);
    response
}
