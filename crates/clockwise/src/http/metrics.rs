//! Metrics: the status of the server in the text formats of Prometheus.
//!
//! Everything is taken from the status at the time of a scrape ([`Scrape`]); there is no second set of counters. The
//! status asks each disk's thread, which answers at any time, also while its disk is silent. One scrape runs at a time,
//! so that several clients cost the disks' threads no more than one.
//!
//! Names end with their unit. A label has the name of something that exists, or one of a few words. Names of RTSP
//! sessions contain addresses of peers, so all sessions that play or record a volume are one series.
//!
//! `docs/reference/metrics.md` has all metrics; a test compares it with a scrape.

mod disks;
mod families;
mod sheet;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine::status::BucketCounts;
use media::session::registry::SessionUse;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;

use self::sheet::{Format, Sheet};
use super::{App, SharedApp, run_blocking};
use crate::wire::Problem;
use crate::wire::sources::SourceView;
use crate::wire::view::StatusView;
use crate::{log, panics};

/// The prefix of all names.
const PREFIX: &str = "clockwise";

/// State of the metrics.
pub struct Metrics {
    /// The time of the start.
    started: SystemTime,
    /// Held during a scrape.
    turn: Arc<Mutex<()>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            started: SystemTime::now(),
            turn: Arc::default(),
        }
    }
}

pub(super) fn routes() -> Router<SharedApp> {
    Router::new().route("/metrics", get(scrape))
}

/// The router of a service that has the metrics and nothing else.
pub fn router(app: SharedApp) -> Router {
    let nothing = || async { (StatusCode::NOT_FOUND, "the metrics are at /metrics\n") };
    routes().fallback(nothing).with_state(app)
}

/// All metrics, in OpenMetrics if the client accepts that, and otherwise in the text format that all clients know.
async fn scrape(state: State<SharedApp>, headers: HeaderMap) -> Result<Response, Problem> {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    let format = match accepted.any(|value| value.contains("application/openmetrics-text")) {
        true => Format::OpenMetrics,
        false => Format::Plain,
    };
    let turn = Arc::clone(&state.0.metrics.turn).lock_owned().await;
    let text = run_blocking(state.0, move |app| {
        let _turn = turn;
        Scrape::new(app, format).text().map_err(|fmt::Error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the metrics cannot be written",
                "please report this",
            )
        })
    });
    let content_type = [(header::CONTENT_TYPE, format.content_type())];
    Ok((content_type, text.await?).into_response())
}

/// The distributions of a disk since the pool was opened.
#[derive(Debug)]
struct DiskBuckets {
    sync_latency: BucketCounts,
    async_latency: BucketCounts,
    stream_lateness: BucketCounts,
}

/// The readers of a live stream.
#[derive(Debug)]
struct LiveReaders {
    name: String,
    readers: usize,
}

/// Everything that the metrics are made of, at one time.
#[derive(Debug)]
struct Scrape {
    format: Format,
    status: StatusView,
    /// By disk, in the order of the status.
    buckets: Vec<DiskBuckets>,
    sources: Vec<SourceView>,
    sessions: Vec<SessionUse>,
    live: Vec<LiveReaders>,
    start_unix_seconds: f64,
    log_lines_lost: u64,
    panics_survived: u64,
}

impl Scrape {
    fn new(app: &App, format: Format) -> Self {
        let status = app.pool.status();
        let buckets = status.disks.iter().map(|disk| DiskBuckets {
            sync_latency: disk.sync_latency,
            async_latency: disk.async_latency,
            stream_lateness: disk.stream_lateness,
        });
        let buckets = buckets.collect();
        let sessions = app.archives.registry().all();
        let live = app.archives.live().all();
        let started = app.metrics.started.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            format,
            buckets,
            status: app.complete(status),
            sources: app.sources.list().into_iter().map(Into::into).collect(),
            sessions: sessions.iter().map(|one| one.about().does).collect(),
            live: live
                .iter()
                .map(|feed| LiveReaders {
                    name: feed.name().to_owned(),
                    readers: feed.readers(),
                })
                .collect(),
            start_unix_seconds: started.unwrap_or_default().as_secs_f64(),
            log_lines_lost: log::lost_in_all(),
            panics_survived: panics::survived(),
        }
    }

    fn text(self) -> Result<String, fmt::Error> {
        let format = self.format;
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        match format {
            Format::OpenMetrics => text::encode(&mut text, &registry)?,
            Format::Plain => text::encode_registry(&mut text, &registry)?,
        }
        Ok(text)
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut sheet = Sheet::new(encoder, self.format);
        families::server(&mut sheet, self)?;
        families::pool(&mut sheet, &self.status)?;
        disks::disks(&mut sheet, &self.status, &self.buckets)?;
        families::streams(&mut sheet, &self.status)?;
        families::volumes(&mut sheet, &self.status)?;
        families::exports(&mut sheet, &self.status)?;
        families::cameras(&mut sheet, &self.sources)?;
        families::sessions(&mut sheet, self)
    }
}
