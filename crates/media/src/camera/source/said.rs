//! What a camera's answers say.

use rtsp_types::Url;
use rtsp_types::headers::transport::{RtpTransportParameters, Transport};
use rtsp_types::headers::{LOCATION, TRANSPORT};
use sched::units::Nanos;

use super::SourceError;
use super::camera::Said;
use crate::rtsp::transport::transports;

/// The shortest timeout of a session that is believed: it is not kept alive more often than twice a second.
const TIMEOUT_MIN: Nanos = Nanos::from_secs(1);

/// The longest: who says more is asked as often as who says an hour.
const TIMEOUT_SECONDS_MAX: u64 = 3_600;

/// At which URL what is asked for is, if it is not here (RFC 2326, section 11.3).
pub(super) fn elsewhere(said: &Said) -> Option<&str> {
    let to = said.header(&LOCATION)?.as_str().trim();
    let is_told = matches!(u16::from(said.status()), 301..=303 | 307 | 308);
    (is_told && !to.is_empty()).then_some(to)
}

/// Whether a camera will not, and not only cannot now, for want of time, of room or of a session that it has forgotten.
pub(super) fn refuses(status: u16) -> bool {
    status >= 400 && !matches!(status, 408 | 453 | 454 | 503)
}

/// Whether a SETUP that is refused so may be taken by another transport: the answer blames nothing else, as the URL, who asks
/// or what is free.
pub(super) fn may_be_of_transport(status: u16) -> bool {
    matches!(status, 400 | 406 | 461 | 462 | 500 | 501 | 551)
}

/// The session that a `Session` header names, and how long it lasts if it is not kept alive, if the header says that.
pub(super) fn session(header: &str) -> (Option<&str>, Option<Nanos>) {
    let mut parts = header.split(';').map(str::trim);
    let id = parts.next().filter(|id| !id.is_empty());
    let seconds = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let digits = value.trim().trim_matches('"');
        let end = digits.find(|of: char| !of.is_ascii_digit());
        let digits = &digits[..end.unwrap_or(digits.len())];
        let is_it = name.trim().eq_ignore_ascii_case("timeout");
        // What has too many digits is more than an hour.
        (is_it && !digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX))
    });
    // None at all is none that could be kept.
    let seconds = seconds.filter(|seconds| *seconds > 0);
    let timeout = seconds.map(|of| Nanos::from_secs(of.min(TIMEOUT_SECONDS_MAX)).max(TIMEOUT_MIN));
    (id, timeout)
}

/// What a camera says that the names of its tracks are below, as a URL or as a path of the one that was asked for; `None`: it is
/// neither, as some have with addresses of IPv4 in IPv6, and what was asked for is that.
pub(super) fn based(said: &str, asked: &Url) -> Option<String> {
    let mut base = said.trim();
    if base.starts_with('/') {
        return asked.join(base).ok().map(String::from);
    }
    // Some say their scheme twice.
    while let Some(inner) = base.strip_prefix("rtsp://")
        && inner.starts_with("rtsp://")
    {
        base = inner;
    }
    Url::parse(base)
        .is_ok_and(|url| url.has_host())
        .then(|| base.to_owned())
}

/// What a part of a presentation with that base is called (RFC 2326, appendix C.1.1). Behind a query many have their tracks.
pub(super) fn named(base: &str, control: Option<&str>) -> String {
    match control.map(str::trim) {
        None | Some("*" | "") => base.to_owned(),
        Some(control) if control.contains("://") => control.to_owned(),
        Some(control) if base.ends_with('/') => format!("{base}{control}"),
        Some(control) => format!("{base}/{control}"),
    }
}

/// What a camera has chosen of what it was offered; nothing, where it does not say or what it says makes no sense: it was
/// offered one.
///
/// # Errors
/// When that was not among it.
pub(super) fn chosen(said: &Said) -> Result<RtpTransportParameters, SourceError> {
    let chosen = said.header(&TRANSPORT);
    let chosen = chosen.and_then(|chosen| transports(chosen.as_str()));
    match chosen.as_ref().and_then(|all| all.first()) {
        None => Ok(RtpTransportParameters::default()),
        Some(Transport::Rtp(rtp)) if !rtp.params.multicast => Ok(rtp.params.clone()),
        Some(_) => Err(SourceError::Transport),
    }
}

/// The channels that one has chosen who was offered these; one that has chosen ports was not offered UDP.
///
/// # Errors
/// When it has.
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

/// The ports that one sends from; zeros: it does not say, and they may be any.
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

    fn said(transport: Option<&str>) -> Said {
        let mut said = rtsp_types::Response::builder(Version::V1_0, StatusCode::Ok);
        if let Some(transport) = transport {
            said = said.header(TRANSPORT, transport);
        }
        said.build(Vec::new())
    }

    #[test]
    fn what_an_answer_says_of_channels_holds_and_what_it_does_not_is_as_it_was_offered() {
        let taken = |transport| channels(&chosen(&said(transport)).ok()?, (2, 3)).ok();
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
    fn ports_that_are_not_said_are_any() {
        for (rest, expected) in [
            ("", (0, 0)),
            (";server_port=0-1", (0, 0)),
            (";server_port=0", (0, 0)),
            (";server_port=x-y", (0, 0)),
            (";server_port=6970", (6_970, 6_971)),
            (";server_port=6970-6980", (6_970, 6_980)),
        ] {
            let said = said(Some(&format!("RTP/AVP;unicast;client_port=5-6{rest}")));
            assert_eq!(ports(&chosen(&said).unwrap()), expected, "{rest}");
        }
    }

    #[test]
    fn a_session_lasts_as_long_as_is_said_in_any_way() {
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
    fn tracks_are_called_by_what_is_asked_for_where_a_base_is_none() {
        let asked = Url::parse("rtsp://cam:8554/live?channel=1").unwrap();
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
            assert_eq!(based(base, &asked).as_deref(), is, "{base:?}");
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
            assert_eq!(named(base, control), name, "{base} {control:?}");
        }
    }
}
