//! Sources: the cameras that the server pulls from.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use media::camera::source::{Address, LowerTransport, SourceSpec, SourceUse as Used};
use media::camera::sources::SourcesError;
use media::rtsp::tls::TrustedCertificates;
use sched::units::BytesPerSecond;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use volume::name::flaw;

use super::{Answer, Body, PathPart, SharedApp, answer};
use crate::wire::sources::{AddSource, SourceTransport, SourceUse, SourceView};
use crate::wire::{NAME_HELP, Problem};

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(show, remove))
}

/// All sources, by name.
#[utoipa::path(get, path = "/v1/sources", responses((status = 200, body = Vec<SourceView>)))]
async fn list(state: State<SharedApp>) -> Answer<Vec<SourceView>> {
    answer(state.0, |app| {
        let sources = app.sources.list().into_iter();
        Ok(sources.map(SourceView::from).collect())
    })
    .await
}

/// The source that a request describes, if it is valid.
pub(super) fn spec(ask: AddSource) -> Result<SourceSpec, Problem> {
    let invalid = |what: String, help: &'static str, place: &'static str| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, help).at(place)
    };
    if let Some(flaw) = flaw(&ask.name) {
        return Err(invalid(flaw.to_string(), NAME_HELP, "name"));
    }
    if ask.rate_bytes_per_second == Some(0) {
        return Err(invalid(
            "the rate must be more than zero".to_owned(),
            "omit it to reserve the rate that the camera announces",
            "rate_bytes_per_second",
        ));
    }
    let address = Address::parse(&ask.url).map_err(|error| {
        invalid(
            error.to_string(),
            "write rtsp://USER:PASSWORD@HOST/PATH, with %40 for an @ in the password",
            "url",
        )
    })?;
    let trusted = ask
        .certificates
        .as_deref()
        .map(TrustedCertificates::parse)
        .transpose();
    let trusted = trusted.map_err(|error| {
        let help = "give the camera's certificate, or the certificates that sign it, as PEM";
        invalid(
            format!("the certificates cannot be used: {error}"),
            help,
            "certificates",
        )
    })?;
    if trusted.is_some() && !address.is_secure() {
        let what = "certificates are given, but the URL does not use TLS".to_owned();
        return Err(invalid(
            what,
            "write rtsps://..., or omit the certificates",
            "certificates",
        ));
    }
    if ask.transport == SourceTransport::Udp && address.is_secure() {
        let what = "packets over UDP would not be encrypted, but the URL asks for TLS".to_owned();
        return Err(invalid(
            what,
            "omit the transport, or write rtsp://...",
            "transport",
        ));
    }
    let (volume, used) = match (ask.used, ask.volume) {
        (SourceUse::Record, Some(volume)) => (volume, Used::Record),
        (SourceUse::Record, None) => {
            return Err(invalid(
                "no volume is given for the recordings".to_owned(),
                "give a volume, or say that the camera is not recorded",
                "volume",
            ));
        }
        (SourceUse::LiveOnly, None) => (ask.name.clone(), Used::LiveOnly),
        (SourceUse::OnDemand, None) => (ask.name.clone(), Used::OnDemand),
        (SourceUse::LiveOnly | SourceUse::OnDemand, Some(_)) => {
            return Err(invalid(
                "a volume is given, but the camera is not to be recorded".to_owned(),
                "omit the volume: the live stream has the source's name",
                "volume",
            ));
        }
    };
    Ok(SourceSpec {
        name: ask.name,
        trusted,
        address,
        volume,
        used,
        lower: match ask.transport {
            SourceTransport::Tcp => LowerTransport::Tcp,
            SourceTransport::Udp => LowerTransport::Udp,
        },
        rate: ask.rate_bytes_per_second.map(BytesPerSecond),
        measured: None,
    })
}

/// The most bytes of a source's description. A bundle of all commonly trusted certificates has a quarter of
/// that.
pub(super) const CERTIFICATES_BYTES_MAX: usize = 1 << 20;

/// Adds a source. When the answer is sent, the source is stored, and the server starts to connect to its
/// camera.
#[utoipa::path(post, path = "/v1/sources", request_body = AddSource,
    responses((status = 201, body = SourceView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn add(
    state: State<SharedApp>,
    Body(ask): Body<AddSource, CERTIFICATES_BYTES_MAX>,
) -> Result<(StatusCode, Json<SourceView>), Problem> {
    let added = answer(state.0, move |app| {
        let spec = spec(ask)?;
        if spec.used == Used::Record {
            app.pool.volume_info(&spec.volume)?;
        }
        Ok(SourceView::from(app.sources.add(spec)?))
    })
    .await?;
    Ok((StatusCode::CREATED, added))
}

/// One source.
#[utoipa::path(get, path = "/v1/sources/{name}", params(("name" = String, Path)),
    responses((status = 200, body = SourceView), (status = 404, body = Problem)))]
async fn show(state: State<SharedApp>, PathPart(name): PathPart<String>) -> Answer<SourceView> {
    answer(state.0, move |app| {
        Ok(SourceView::from(app.sources.show(&name)?))
    })
    .await
}

/// Ends and removes a source, and answers with its last state. Its recordings stay, and are durable then.
#[utoipa::path(delete, path = "/v1/sources/{name}", params(("name" = String, Path)),
    responses((status = 200, body = SourceView), (status = 404, body = Problem)))]
async fn remove(state: State<SharedApp>, PathPart(name): PathPart<String>) -> Answer<SourceView> {
    answer(state.0, move |app| {
        Ok(SourceView::from(app.sources.remove(&name)?))
    })
    .await
}

impl From<SourcesError> for Problem {
    fn from(error: SourcesError) -> Self {
        let (status, help) = match &error {
            SourcesError::Exists(_) => (
                StatusCode::CONFLICT,
                "choose another name, or remove that source first",
            ),
            SourcesError::Missing(_) => (
                StatusCode::NOT_FOUND,
                "`clockwise camera list` and `clockwise source list` show what there is",
            ),
            SourcesError::TooMany => (StatusCode::CONFLICT, "remove a source first"),
            SourcesError::Ending => (
                StatusCode::CONFLICT,
                "repeat the request when the server has started again",
            ),
            SourcesError::File(..) | SourcesError::Content(..) | SourcesError::Host(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "check that the server may write the file that is set as `sources` in [rtsp]",
            ),
        };
        Self::new(status, error.to_string(), help)
    }
}
