//! fio's I/O log: `file action [offset length]`. Version 2 has no times but what was waited; version 3, of
//! fio 3.31 and later, has the time in us before each line.

use sched::request::{Op, Urgency};

use super::{LineFormat, is_passed_over};
use crate::trace::number::{shown, times, whole};
use crate::trace::{Raw, Record, Timing};

const HEADING_OF_2: &str = "fio version 2 iolog";
const HEADING_OF_3: &str = "fio version 3 iolog";

/// Meaning of the times of a log that begins like this.
pub(in crate::trace) fn timing(beginning: &[u8]) -> Timing {
    let text = String::from_utf8_lossy(beginning);
    let first = text.lines().find(|line| !is_passed_over(line));
    match first.map(str::trim) {
        Some(HEADING_OF_3) => Timing::Open,
        _ => Timing::Closed,
    }
}

#[derive(Default)]
pub(in crate::trace) struct Iolog {
    /// Version in the heading, once it has been read.
    version: Option<Version>,
    waited_ns: u64,
}

#[derive(Clone, Copy)]
enum Version {
    Two,
    Three,
}

impl LineFormat for Iolog {
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String> {
        let line = line.trim();
        let heading = match line {
            HEADING_OF_2 => Some(Version::Two),
            HEADING_OF_3 => Some(Version::Three),
            _ => None,
        };
        match (self.version, heading) {
            (None, Some(version)) => {
                self.version = Some(version);
                Ok(Record::Heading)
            }
            (None, None) => Err(format!(
                "the first line must be `{HEADING_OF_2}` or `{HEADING_OF_3}`, not `{}`",
                shown(line)
            )),
            (Some(_), Some(_)) => Err(
                "another log begins here, because fio appends to an existing file: split the file before this line"
                    .to_owned(),
            ),
            (Some(Version::Two), None) => self.action(line, None),
            (Some(Version::Three), None) => {
                let (time, action) = line
                    .split_once(|c: char| c.is_ascii_whitespace())
                    .ok_or_else(|| unreadable(line))?;
                let at_ns = times(whole(time, "time")?, 1_000, "time")?;
                self.action(action.trim_start(), Some(at_ns))
            }
        }
    }
}

impl Iolog {
    /// The part of a line after the time, where there is one.
    fn action<'a>(&mut self, line: &'a str, at_ns: Option<u64>) -> Result<Record<'a>, String> {
        // The name may have blanks in it, what follows has none.
        let (before, last) = last_field(line);
        if ["add", "open", "close"].contains(&last) && !before.is_empty() {
            return Ok(Record::Other);
        }
        let (before, offset) = last_field(before);
        let (name, action) = last_field(before);
        if !is_digits(offset) || !is_digits(last) || name.is_empty() {
            return Err(unreadable(line));
        }
        let (offset, length) = (whole(offset, "offset")?, whole(last, "length")?);
        let op = match action {
            "read" => Op::Read,
            "write" => Op::Write,
            "sync" | "datasync" | "sync_file_range" | "syncfs" | "trim" => {
                return Ok(Record::Other);
            }
            "wait" => {
                // In logs with a time on each line, fio itself ignores waits.
                if at_ns.is_none() {
                    self.wait(offset)?;
                }
                return Ok(Record::Other);
            }
            _ => return Err(format!("`{}` is not an action of fio", shown(action))),
        };
        Ok(Record::Request(Raw {
            at_ns: at_ns.unwrap_or(self.waited_ns),
            device: name,
            op,
            start_bytes: offset,
            length_bytes: length,
            // A client that issues one request after the other waits for each.
            urgency: Urgency::Sync,
        }))
    }

    fn wait(&mut self, us: u64) -> Result<(), String> {
        let waited = self.waited_ns.checked_add(times(us, 1_000, "wait")?);
        self.waited_ns = waited.ok_or("all waits together are too long")?;
        Ok(())
    }
}

fn unreadable(line: &str) -> String {
    format!(
        "`{}` is neither `file action` nor `file action offset length`",
        shown(line)
    )
}

/// The last of the fields that blanks part, after what is before it.
fn last_field(text: &str) -> (&str, &str) {
    let text = text.trim_end();
    text.rsplit_once(|c: char| c.is_ascii_whitespace())
        .map_or(("", text), |(before, last)| (before.trim_end(), last))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
