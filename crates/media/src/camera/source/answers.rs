//! Interpretation of a camera's answers. Where an answer leaves something out, the request stands for it.

use rtsp_types::headers::transport::{RtpTransportParameters, Transport};
use rtsp_types::headers::{LOCATION, TRANSPORT};
use rtsp_types::{Response, Url};
use sched::units::Nanos;

use super::SourceError;
use crate::rtsp::transport::transports;

/// An answer with its body.
pub(super) type Answer = Response<Vec<u8>>;

/// The shortest timeout of a session that is used: keep-alives are sent at half of it.
const TIMEOUT_MIN: Nanos = Nanos::from_secs(1);

/// The longest timeout of a session that is used, in seconds.
const TIMEOUT_SECONDS_MAX: u64 = 3_600;

/// The URL that the answer redirects to (RFC 2326, section 11.3).
pub(super) fn redirect(answer: &Answer) -> Option<&str> {
    let to = answer.header(&LOCATION)?.as_str().trim();
    let is_redirect = matches!(u16::from(answer.status()), 301..=303 | 307 | 308);
    (is_redirect && !to.is_empty()).then_some(to)
}

/// True if the camera refuses for good. Time, bandwidth and a lost session (408, 453, 454, 503) are temporary.
pub(super) fn is_refusal(status: u16) -> bool {
    status >= 400 && !matches!(status, 408 | 453 | 454 | 503)
}

/// The identifier and the timeout of a `Session` header, as far as it states them.
pub(super) fn session(header: &str) -> (Option<&str>, Option<Nanos>) {
    let mut parts = header.split(';').map(str::trim);
    let id = parts.next().filter(|id| !id.is_empty());
    let seconds = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let digits = value.trim().trim_matches('"');
        let end = digits.find(|of: char| !of.is_ascii_digit());
        let digits = &digits[..end.unwrap_or(digits.len())];
        let is_it = name.trim().eq_ignore_ascii_case("timeout");
        // A number that does not fit is longer than the longest timeout.
        (is_it && !digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX))
    });
    // A session of no duration could not be kept alive.
    let seconds = seconds.filter(|seconds| *seconds > 0);
    let timeout = seconds.map(|of| Nanos::from_secs(of.min(TIMEOUT_SECONDS_MAX)).max(TIMEOUT_MIN));
    (id, timeout)
}

/// The base of track URLs that `Content-Base` or `Content-Location` states, as a URL or as a path below the requested
/// URL. `None` if it is neither, such as an IPv4 address written as IPv6: the requested URL is the base then.
pub(super) fn base_url(header: &str, requested: &Url) -> Option<String> {
    let mut base = header.trim();
    if base.starts_with('/') {
        return requested.join(base).ok().map(String::from);
    }
    // Some cameras repeat the scheme.
    while let Some(inner) = base.strip_prefix("rtsp://")
        && inner.starts_with("rtsp://")
    {
        base = inner;
    }
    Url::parse(base)
        .is_ok_and(|url| url.has_host())
        .then(|| base.to_owned())
}

/// The URL of a track or of the presentation (RFC 2326, appendix C.1.1). The control name is appended also to a base
/// with a query, as many cameras expect it.
pub(super) fn control_url(base: &str, control: Option<&str>) -> String {
    match control.map(str::trim) {
        None | Some("*" | "") => base.to_owned(),
        Some(control) if control.contains("://") => control.to_owned(),
        Some(control) if base.ends_with('/') => format!("{base}{control}"),
        Some(control) => format!("{base}/{control}"),
    }
}

/// The parameters of the transport that the camera chose; empty if `Transport` is missing or not understood, as only one
/// transport was offered.
///
/// # Errors
/// [`SourceError::Transport`] if it is not unicast RTP.
pub(super) fn chosen(answer: &Answer) -> Result<RtpTransportParameters, SourceError> {
    let chosen = answer.header(&TRANSPORT);
    let chosen = chosen.and_then(|chosen| transports(chosen.as_str()));
    match chosen.as_ref().and_then(|all| all.first()) {
        None => Ok(RtpTransportParameters::default()),
        Some(Transport::Rtp(rtp)) if !rtp.params.multicast => Ok(rtp.params.clone()),
        Some(_) => Err(SourceError::Transport),
    }
}

/// The interleaved channels that the camera chose, or `offered` if it states none.
///
/// # Errors
/// [`SourceError::Transport`] if it chose UDP ports.
pub(super) fn channels(
    chosen: &RtpTransportParameters,
    offered: (u8, u8),
) -> Result<(u8, u8), SourceError> {
    match chosen.interleaved {
        Some((rtp, rtcp)) => Ok((rtp, rtcp.unwrap_or(rtp.wrapping_add(1)))),
        None if chosen.server_port.is_some() || chosen.client_port.is_some() => {
            Err(SourceError::Transport)
        }
        None => Ok(offered),
    }
}

/// The camera's UDP ports for RTP and RTCP; zeros if it states none, which stands for any port.
pub(super) fn ports(chosen: &RtpTransportParameters) -> (u16, u16) {
    match chosen.server_port {
        Some((rtp, rtcp)) if rtp > 0 => (rtp, rtcp.unwrap_or(rtp.wrapping_add(1))),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use rtsp_types::{StatusCode, Version};

    use super::*;

    fn answer(transport: Option<&str>) -> Answer {
        let mut answer = rtsp_types::Response::builder(Version::V1_0, StatusCode::Ok);
        if let Some(transport) = transport {
            answer = answer.header(TRANSPORT, transport);
        }
        answer.build(Vec::new())
    }

    #[test]
    fn channels_are_those_of_the_answer_or_those_offered() {
        let taken = |transport| channels(&chosen(&answer(transport)).ok()?, (2, 3)).ok();
        for transport in [
            None,
            Some(""),
            Some("RTP/AVP/TCP"),
            Some("RTP/AVP/TCP;unicast;mode=PLAY;ssrc=zz"),
            Some("RTP/AVP/TCP;unicast;interleaved=none"),
            Some("RTP/AVP;unicast"),
            Some("RTP/AVP/TCP;mode=\"PLAY"),
        ] {
            assert_eq!(taken(transport), Some((2, 3)), "{transport:?}");
        }
        for (transport, chosen) in [
            ("RTP/AVP/TCP;unicast;interleaved=4-5", (4, 5)),
            ("rtp/avp/tcp;UNICAST;Interleaved=4", (4, 5)),
            ("RTP/AVP;interleaved=4-7;ssrc=1;source=::1", (4, 7)),
            (
                "RTP/AVP/TCP;interleaved=0-1,RTP/AVP;client_port=2-3",
                (0, 1),
            ),
        ] {
            assert_eq!(taken(Some(transport)), Some(chosen), "{transport}");
        }
        for other in [
            "RTP/AVP;unicast;client_port=5-6;server_port=7-8",
            "RTP/AVP;multicast;destination=224.0.0.1;port=5-6",
            "x-real-rdt/tcp;client_port=5",
        ] {
            assert_eq!(taken(Some(other)), None, "{other}");
        }
    }

    #[test]
    fn ports_that_are_not_stated_are_any() {
        for (rest, expected) in [
            ("", (0, 0)),
            (";server_port=0-1", (0, 0)),
            (";server_port=0", (0, 0)),
            (";server_port=x-y", (0, 0)),
            (";server_port=6970", (6_970, 6_971)),
            (";server_port=6970-6980", (6_970, 6_980)),
        ] {
            let answer = answer(Some(&format!("RTP/AVP;unicast;client_port=5-6{rest}")));
            assert_eq!(ports(&chosen(&answer).unwrap()), expected, "{rest}");
        }
    }

    #[test]
    fn session_header_is_understood_in_all_its_forms() {
        let seconds = Nanos::from_secs;
        for (header, id, timeout) in [
            ("12345678", Some("12345678"), None),
            (" a ; timeout=30", Some("a"), Some(seconds(30))),
            ("a;Timeout = 30", Some("a"), Some(seconds(30))),
            ("a;foo;timeout=\"30\"", Some("a"), Some(seconds(30))),
            ("a;timeout=30s", Some("a"), Some(seconds(30))),
            ("a;timeout=1", Some("a"), Some(seconds(1))),
            ("a;timeout=0", Some("a"), None),
            ("a;timeout=", Some("a"), None),
            ("a;timeout=-5", Some("a"), None),
            ("a;timeout", Some("a"), None),
            (
                "a;timeout=99999999999999999999",
                Some("a"),
                Some(seconds(3_600)),
            ),
            (";timeout=5", None, Some(seconds(5))),
            ("", None, None),
        ] {
            assert_eq!(session(header), (id, timeout), "{header:?}");
        }
    }

    #[test]
    fn track_urls_are_below_the_base_or_the_requested_url() {
        let requested = Url::parse("rtsp://cam:8554/live?channel=1").unwrap();
        for (base, is) in [
            (" rtsp://other/a/ ", Some("rtsp://other/a/")),
            ("rtsp://rtsp://other/a/", Some("rtsp://other/a/")),
            ("/a/", Some("rtsp://cam:8554/a/")),
            ("192.0.2.1:554/", None),
            ("cam:554/", None),
            ("rtsp://::ffff:192.0.2.1/a/", None),
            ("live/", None),
            ("", None),
        ] {
            assert_eq!(base_url(base, &requested).as_deref(), is, "{base:?}");
        }
        for (base, control, name) in [
            ("rtsp://c/a/", Some("t=1"), "rtsp://c/a/t=1"),
            ("rtsp://c/a", Some(" t=1 "), "rtsp://c/a/t=1"),
            ("rtsp://c/a?b=1", Some("t=1"), "rtsp://c/a?b=1/t=1"),
            ("rtsp://c/a/", Some("rtsp://d/t"), "rtsp://d/t"),
            ("rtsp://c/a/", Some("*"), "rtsp://c/a/"),
            ("rtsp://c/a/", Some(""), "rtsp://c/a/"),
            ("rtsp://c/a/", None, "rtsp://c/a/"),
        ] {
            assert_eq!(control_url(base, control), name, "{base} {control:?}");
        }
    }
}
