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
    /// What the line says, or what is wrong with it.
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String>;
}

/// The format whose first bytes these may be.
pub(super) fn detect(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(srt::MAGIC) {
        return Some(Format::Srt);
    }
    let text = String::from_utf8_lossy(bytes);
    // A trace may begin with empty lines, and its only line may be cut off where the bytes end.
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    let mut formats: [(Format, Box<dyn LineFormat>); 5] = [
        (Format::Iolog, Box::new(iolog::Iolog::default())),
        (Format::Vscsi, Box::new(vscsi::Vscsi)),
        (Format::Msr, Box::new(msr::Msr::default())),
        (Format::Blkparse, Box::new(blkparse::Blkparse)),
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
