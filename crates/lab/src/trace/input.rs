//! The bytes of a trace: unpacked if they are compressed, and read line by line or record by record.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// The first bytes of anything that gzip has compressed (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1F, 0x8B];

const BUFFER_BYTES: usize = 256 << 10;

/// Byte order mark of UTF-8.
const UTF_8: &[u8] = b"\xEF\xBB\xBF";

/// Longer than a line of any trace.
pub(super) const LINE_BYTES_MAX: usize = 16 << 10;

/// Result of reading a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// A line was read.
    Read,
    /// Longer than [`LINE_BYTES_MAX`], and passed over.
    TooLong,
    /// There is none.
    None,
}

/// The unpacked bytes of a trace.
pub(super) struct Input<'a> {
    source: BufReader<Box<dyn Read + 'a>>,
    beginning: Vec<u8>,
}

impl<'a> Input<'a> {
    /// Compression is recognized by the first bytes, not by the name.
    pub(super) fn new(source: impl Read + 'a) -> io::Result<Self> {
        let mut packed = BufReader::with_capacity(BUFFER_BYTES, source);
        let mut first = [0; GZIP.len()];
        let count = fill(&mut packed, &mut first)?;
        let whole = io::Cursor::new(first[..count].to_vec()).chain(packed);
        let mut source: Box<dyn Read + 'a> = if first[..count] == GZIP {
            let packed = BufReader::with_capacity(BUFFER_BYTES, whole);
            Box::new(MultiGzDecoder::new(packed))
        } else {
            Box::new(whole)
        };
        let mut beginning = vec![0; LINE_BYTES_MAX];
        let count = fill(&mut source, &mut beginning)?;
        beginning.truncate(count);
        if beginning.starts_with(UTF_8) {
            beginning.drain(..UTF_8.len());
        }
        let again = Box::new(io::Cursor::new(beginning.clone()).chain(source));
        Ok(Self {
            source: BufReader::with_capacity(BUFFER_BYTES, again),
            beginning,
        })
    }

    /// The first bytes: the length of the longest line, if there are that many.
    pub(super) fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// Reads a line into `line`, without what ends it.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> io::Result<Line> {
        line.clear();
        let mut limited = Read::by_ref(&mut self.source).take(LINE_BYTES_MAX as u64 + 1);
        let count = limited.read_until(b'\n', line)?;
        if count == 0 {
            return Ok(Line::None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Line::Read);
        }
        if count <= LINE_BYTES_MAX {
            // The last line need not be ended.
            return Ok(Line::Read);
        }
        self.source.skip_until(b'\n')?;
        Ok(Line::TooLong)
    }

    /// Reads up to the end of `bytes`, or of the input; how much it was.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        fill(&mut self.source, bytes)
    }
}

/// The lines of a text that may be compressed.
pub(crate) struct LineInput<'a> {
    input: Input<'a>,
    bytes: Vec<u8>,
}

impl<'a> LineInput<'a> {
    pub(crate) fn new(source: impl Read + 'a) -> io::Result<Self> {
        let input = Input::new(source)?;
        let bytes = Vec::new();
        Ok(Self { input, bytes })
    }

    /// The next line, or a sentence saying why it is none; `None` at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Result<&str, String>>> {
        Ok(match self.input.line(&mut self.bytes)? {
            Line::None => None,
            Line::TooLong => Some(Err(format!("it is longer than {LINE_BYTES_MAX} bytes"))),
            Line::Read => {
                let text = std::str::from_utf8(&self.bytes);
                Some(text.map_err(|_| "it is not text in UTF-8".to_owned()))
            }
        })
    }
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match source.read(&mut bytes[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
