//! The formats, each a parser of one line, or of one record.

pub(super) mod blkparse;
pub(super) mod disksim;
pub(super) mod iolog;
pub(super) mod msr;
pub(super) mod srt;
pub(super) mod vscsi;

use super::{Format, Record};

/// A format whose records are lines.
pub(super) trait LineFormat: Send {
    /// The record of a line, or the fault of the line. The line is none of those that are [passed
    /// over](is_passed_over).
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String>;
}

/// True for a line that is no record in any format: an empty line, or a comment.
pub(super) fn is_passed_over(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

/// First bytes of other formats, and advice about them.
const OTHERS: [(&[u8], &str); 10] = [
    (
        b"fio version ",
        "it is an I/O log of fio, but not of version 2 or 3",
    ),
    (b"\x07tae", BLKTRACE),
    (b"\x08tae", BLKTRACE),
    (b"\xFD7zXZ", PACKED),
    (b"\x28\xB5\x2F\xFD", PACKED),
    (b"BZh", PACKED),
    (b"PK\x03\x04", PACKED),
    (b"7z\xBC\xAF", PACKED),
    (b"\xFF\xFE", UTF_16),
    (b"\xFE\xFF", UTF_16),
];
const BLKTRACE: &str = "it is binary output of blktrace: convert it with `blkparse`";
const PACKED: &str = "it is compressed, but not by gzip: decompress it first";
const UTF_16: &str = "it is text in UTF-16: convert it to UTF-8 first";

/// Advice about a trace in another known format.
pub(super) fn other(bytes: &[u8]) -> Option<&'static str> {
    let known = OTHERS.iter().find(|(begins, _)| bytes.starts_with(begins));
    known.map(|(_, what)| *what)
}

/// The format whose first bytes these may be.
pub(super) fn detect(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(srt::MAGIC) {
        return Some(Format::Srt);
    }
    let text = String::from_utf8_lossy(bytes);
    // Its only line may be cut off where the bytes end.
    let line = text.lines().find(|line| !is_passed_over(line))?;
    let mut formats: [(Format, Box<dyn LineFormat>); 5] = [
        (Format::Iolog, Box::new(iolog::Iolog::default())),
        (Format::Vscsi, Box::new(vscsi::Vscsi)),
        (Format::Msr, Box::new(msr::Msr::default())),
        (Format::Blkparse, Box::new(blkparse::Blkparse::new(bytes))),
        (Format::Disksim, Box::new(disksim::Disksim)),
    ];
    formats
        .iter_mut()
        .find_map(|(format, parser)| parser.record(line).is_ok().then_some(*format))
}

/// The fields of a line of comma-separated values, none of which is quoted.
fn comma_separated<const N: usize>(line: &str) -> Result<[&str; N], String> {
    exactly(line.split(','), "values between commas")
}

/// The fields of a line that are parted by blanks.
fn blank_separated<const N: usize>(line: &str) -> Result<[&str; N], String> {
    exactly(line.split_ascii_whitespace(), "values between blanks")
}

fn exactly<'a, const N: usize>(
    fields: impl Iterator<Item = &'a str> + Clone,
    what: &str,
) -> Result<[&'a str; N], String> {
    let mut found = [""; N];
    let mut rest = fields.clone();
    for place in &mut found {
        let short = || {
            format!(
                "{N} {what} are needed, there are {}",
                fields.clone().count()
            )
        };
        *place = rest.next().ok_or_else(short)?;
    }
    if rest.next().is_some() {
        return Err(format!(
            "{N} {what} are needed, there are {}",
            fields.count()
        ));
    }
    Ok(found)
}

/// Bytes that are whole sectors of 512.
fn sectors(count: u64, what: &str) -> Result<u64, String> {
    super::number::times(count, 512, what)
}
