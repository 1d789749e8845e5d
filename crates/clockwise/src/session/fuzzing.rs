//! Properties of the data socket for all bytes of a client: the entry point of the fuzz target, and of the test that
//! replays its corpus.

use super::data::{LINE_BYTES_MAX, read_greeting};

/// Checks a client's first line. It is a greeting exactly if it is short, valid UTF-8, and begins with the keyword.
/// No byte after it is read.
///
/// # Panics
/// If one of these properties is violated.
pub fn data_greeting(data: &[u8]) {
    let mut rest = data;
    let token = read_greeting(&mut rest);
    let end = data.iter().position(|byte| *byte == b'\n');
    let line = end
        .filter(|end| *end <= LINE_BYTES_MAX)
        .and_then(|end| std::str::from_utf8(&data[..end]).ok());
    let expected = line.and_then(|line| line.strip_prefix("clockwise-stream "));
    assert_eq!(token.ok().as_deref(), expected);
    // A line that is too long is read up to the first byte beyond the limit.
    let most = end.map_or(data.len(), |end| end + 1);
    assert_eq!(data.len() - rest.len(), most.min(LINE_BYTES_MAX + 1));
}
