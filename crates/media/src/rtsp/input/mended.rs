//! Messages as some encoders and cameras write them, as the library takes them.

use super::ANSWER;

/// What is in the first line of each message.
const PROTOCOL: &[u8] = b"RTSP/";

/// What becomes of a message whose lines end otherwise than in CRLF.
pub(super) enum Mended {
    /// They do not.
    Needless,
    /// Its head has not come to its end.
    Later,
    /// That, which is so much longer.
    To { bytes: Vec<u8>, longer: usize },
}

/// Lines of a message's head may end in LF alone, as some encoders' and cameras' do (RFC 2326, section 4, leaves it to who
/// receives), and a status may have no reason.
pub(super) fn mended(message: &[u8]) -> Mended {
    let ends = |end: &[u8]| {
        let at = message.windows(end.len()).position(|of| of == end);
        at.map(|at| at + end.len())
    };
    let end = [ends(b"\n\n"), ends(b"\n\r\n")];
    let end = end.into_iter().flatten().min();
    let head = &message[..end.unwrap_or(message.len())];
    let lines = head.split_inclusive(|byte| *byte == b'\n');
    let is_bare = |line: &[u8]| line.ends_with(b"\n") && !line.ends_with(b"\r\n");
    let has_no_reason = |line: &[u8]| {
        let status = line.trim_ascii_end();
        status.starts_with(ANSWER) && status.len() == ANSWER.len() + 3
    };
    let first = lines.clone().next().unwrap_or_default();
    if first.ends_with(b"\r") && has_no_reason(first) {
        return Mended::Later;
    }
    let is_odd = lines.clone().any(is_bare) || first.ends_with(b"\n") && has_no_reason(first);
    // What is no RTSP is known by its first line.
    if !is_odd || !first.windows(PROTOCOL.len()).any(|of| of == PROTOCOL) {
        return Mended::Needless;
    }
    let Some(end) = end else {
        return Mended::Later;
    };
    let mut bytes = Vec::with_capacity(message.len() + 64);
    for line in lines {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        bytes.extend_from_slice(text.strip_suffix(b"\r").unwrap_or(text));
        if bytes.len() == ANSWER.len() + 3 && has_no_reason(line) {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(b"\r\n");
    }
    let longer = bytes.len() - end;
    bytes.extend_from_slice(&message[end..]);
    Mended::To { bytes, longer }
}
