//! What a request says that is understood without a session.

use std::net::{IpAddr, Ipv4Addr};

use rtsp_types::headers::{Range, Scale, Speed, Transports};

use super::wanted::{SCALE_PERMILLE, npt, permille, utc};
use super::{Asked, parameters, target};
use crate::media::transport::Transport;

/// A request is understood or refused.
///
/// # Panics
/// When what is understood is none of what there is.
pub(in crate::media) fn request(request: &Asked) {
    match request.typed_header::<Range>() {
        Ok(Some(Range::Npt(range))) => {
            let _ = npt(range);
        }
        Ok(Some(Range::Utc(range))) => {
            let _ = utc(range, 1_500_000_000_000_000_000);
        }
        _ => {}
    }
    let scale = request.typed_header::<Scale>().ok().flatten();
    let speed = request.typed_header::<Speed>().ok().flatten();
    for factor in [scale.map(f64::from), speed.map(f64::from)] {
        let taken = factor.and_then(|factor| permille(factor, SCALE_PERMILLE));
        assert!(taken.is_none_or(|taken| SCALE_PERMILLE.contains(&taken.0.abs())));
    }
    for (name, _) in parameters::lines(request.body()) {
        assert_eq!(name, name.trim());
    }
    if let Some(target) = target::target(request) {
        let volumes = target.volumes;
        assert!(!volumes.is_empty() && volumes.iter().all(|volume| !volume.is_empty()));
    }
    let _ = (target::strange(request), target::recorded_to(request));
    if let Ok(Some(transports)) = request.typed_header::<Transports>() {
        // As by TLS, so that no sockets are opened.
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        if let Ok(chosen) = Transport::choose(&transports, host, host, 1, &[], true) {
            assert!(matches!(chosen, Transport::Interleaved { .. }));
            assert!(chosen.answer(true).is_ok());
        }
    }
}
