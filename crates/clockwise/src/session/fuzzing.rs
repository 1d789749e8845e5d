//! What must hold for any bytes that come to the data socket: the entry point of the fuzz target, and
//! of the test that replays its corpus.

use super::data::{LINE_BYTES_MAX, read_greeting};

/// A client's first line: it is a greeting exactly if it is short, text, and begins as one, and nothing
/// after it is taken.
///
/// # Panics
/// When that does not hold.
pub fn data_greeting(data: &[u8]) {
    let mut rest = data;
    let token = read_greeting(&mut rest);
    let end = data.iter().position(|byte| *byte == b'\n');
    let line = end
        .filter(|end| *end <= LINE_BYTES_MAX)
        .and_then(|end| std::str::from_utf8(&data[..end]).ok());
    let said = line.and_then(|line| line.strip_prefix("clockwise-stream "));
    assert_eq!(token.ok().as_deref(), said);
    // Of a line that is too long, one byte more than there may be.
    let most = end.map_or(data.len(), |end| end + 1);
    assert_eq!(data.len() - rest.len(), most.min(LINE_BYTES_MAX + 1));
}
