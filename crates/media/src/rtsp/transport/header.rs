//! Parsing of `Transport` headers.
//!
//! The parser of the library refuses headers with an IPv6 address, as many cameras send (`source=...`), or with an
//! empty parameter, and panics on an unclosed quote. So it gets only the parameters that are used.

use rtsp_types::headers::transport::Transports;
use rtsp_types::headers::{TRANSPORT, TypedHeader as _};
use rtsp_types::{Empty, Method, Request, Version};

/// The parameters that are used.
const USED: [&str; 5] = [
    "unicast",
    "multicast",
    "interleaved",
    "client_port",
    "server_port",
];

/// The transports of a header, in order; `None` if it is invalid.
pub(crate) fn transports(header: &str) -> Option<Transports> {
    let mut used = Vec::new();
    for one in parts(header, ',')? {
        let mut parts = parts(one, ';')?.into_iter();
        let mut kept = parts.next()?.trim().to_ascii_uppercase();
        if kept.is_empty() {
            continue;
        }
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value.trim())),
                None => (part, None),
            };
            let name = name.trim().to_ascii_lowercase();
            if USED.contains(&name.as_str()) {
                kept.push(';');
                kept.push_str(&name);
                kept.extend(value.map(|value| format!("={value}")));
            }
        }
        used.push(kept);
    }
    let reduced: Request<Empty> = Request::builder(Method::Setup, Version::V1_0)
        .header(TRANSPORT, used.join(","))
        .empty();
    let found = Transports::from_headers(&reduced).ok().flatten();
    found.filter(|_| !used.is_empty())
}

/// Splits a text at characters that are not within quotes; `None` if a quote is not closed.
fn parts(text: &str, between: char) -> Option<Vec<&str>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = text.split(|character: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            _ if was_escaped => false,
            '\\' if is_quoted => {
                is_escaped = true;
                false
            }
            '"' => {
                is_quoted = !is_quoted;
                false
            }
            _ => !is_quoted && character == between,
        }
    });
    let parts = parts.collect();
    (!is_quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use rtsp_types::headers::transport::Transport;

    use super::*;

    /// The first channel of each transport.
    fn channels(header: &str) -> Option<Vec<Option<u8>>> {
        let all = transports(header)?;
        let channels = all.iter().map(|one| match one {
            Transport::Rtp(rtp) => rtp.params.interleaved.map(|(rtp, _)| rtp),
            Transport::Other(_) => None,
        });
        Some(channels.collect())
    }

    #[test]
    fn unused_parameters_may_have_any_value() {
        let tcp = "RTP/AVP/TCP;unicast;interleaved=2-3";
        for more in [
            "",
            ";",
            ";;",
            ";destination=2001:db8::5;source=2001:db8::1",
            ";source=[::1]",
            ";ssrc=0x1234",
            ";mode=\"PLAY,RECORD\"",
            ";mode=\"a\\\",b\"",
            ";mode=\"\";dest_addr=\"\"",
            ";mode=PLAY;ttl=1000",
            " ; Foo",
            ", ",
        ] {
            let found = channels(&format!("{tcp}{more}"));
            assert_eq!(found, Some(vec![Some(2)]), "{more}");
        }
        let small = channels("rtp/avp/tcp;Unicast;interleaved=2-3");
        assert_eq!(small, Some(vec![Some(2)]));
        let two = "RTP/AVP;unicast;client_port=5-6;mode=\"a,b;c\",RTP/AVP/TCP;Interleaved = 4-5";
        assert_eq!(channels(two), Some(vec![None, Some(4)]));
    }

    #[test]
    fn invalid_header_is_refused() {
        for header in [
            "",
            ",",
            ";",
            "RTP/AVP/TCP;mode=\"",
            "RTP/AVP/TCP;dest_addr=\"\\\"",
            "RTP/AVP/TCP;interleaved=\"",
            "RTP/AVP/TCP;interleaved",
            "RTP/AVP/TCP;interleaved=300",
            "RTP/AVP/TCP;interleaved=\"0-1\"",
        ] {
            let found = transports(header);
            assert!(found.is_none(), "{header:?}: {found:?}");
        }
    }
}
