//! Repair of messages that some encoders and cameras write and the library does not accept.

use super::STATUS_LINE;

/// Part of the first line of each message.
const PROTOCOL: &[u8] = b"RTSP/";

/// The repair of a message.
pub(super) enum Repair {
    /// It needs none.
    Unneeded,
    /// Its head has not arrived completely.
    Incomplete,
    /// The repaired message, which is `longer` bytes longer.
    Done { bytes: Vec<u8>, longer: usize },
}

/// Repairs lines of a head that end in LF alone (RFC 2326, section 4, allows receivers to accept them), and a
/// status line without a reason phrase.
pub(super) fn repair(message: &[u8]) -> Repair {
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
        status.starts_with(STATUS_LINE) && status.len() == STATUS_LINE.len() + 3
    };
    let first = lines.clone().next().unwrap_or_default();
    if first.ends_with(b"\r") && has_no_reason(first) {
        return Repair::Incomplete;
    }
    let is_odd = lines.clone().any(is_bare) || first.ends_with(b"\n") && has_no_reason(first);
    // Input that is no RTSP has another first line.
    if !is_odd || !first.windows(PROTOCOL.len()).any(|of| of == PROTOCOL) {
        return Repair::Unneeded;
    }
    let Some(end) = end else {
        return Repair::Incomplete;
    };
    let mut bytes = Vec::with_capacity(message.len() + 64);
    for line in lines {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        bytes.extend_from_slice(text.strip_suffix(b"\r").unwrap_or(text));
        if bytes.len() == STATUS_LINE.len() + 3 && has_no_reason(line) {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(b"\r\n");
    }
    let longer = bytes.len() - end;
    bytes.extend_from_slice(&message[end..]);
    Repair::Done { bytes, longer }
}
