//! Parsing of requests without a session, for the fuzz targets.

use std::net::{IpAddr, Ipv4Addr};

use rtsp_types::headers::{Range, Scale, TRANSPORT};

use super::play_request::{SCALE_PERMILLE, SPEED_PERMILLE, permille, speed};
use super::range::{self, npt, utc};
use super::{ClientRequest, parameters, target};
use crate::rtsp::transport::{Transport, transports};

/// Parses everything in a request.
///
/// # Panics
/// When a parsed value is out of its range.
pub(crate) fn request(request: &ClientRequest) {
    match range::requested(request) {
        Ok(Some(Range::Npt(range))) => {
            let _ = npt(range);
        }
        Ok(Some(Range::Utc(range))) => {
            let _ = utc(range, 1_500_000_000_000_000_000);
        }
        _ => {}
    }
    let scale = request.typed_header::<Scale>().ok().flatten();
    let scale = scale.and_then(|scale| permille(f64::from(scale), SCALE_PERMILLE));
    assert!(scale.is_none_or(|scale| SCALE_PERMILLE.contains(&scale.0.abs())));
    if let Ok(Some(speed)) = speed(request) {
        assert!(SPEED_PERMILLE.contains(&speed.0));
    }
    for (name, _) in parameters::lines(request.body()) {
        assert_eq!(name, name.trim());
    }
    if let Some(target) = target::target(request) {
        let volumes = target.volumes;
        assert!(!volumes.is_empty() && volumes.iter().all(|volume| !volume.is_empty()));
    }
    let _ = (target::unknown_part(request), target::recorded_to(request));
    let asked = request.header(&TRANSPORT);
    if let Some(transports) = asked.and_then(|asked| transports(asked.as_str())) {
        // As over TLS, so that no sockets are opened.
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        if let Ok(chosen) = Transport::choose(&transports, host, host, 1, &[], true) {
            assert!(matches!(chosen, Transport::Interleaved { .. }));
            assert!(chosen.answer(true).is_ok());
        }
    }
}
