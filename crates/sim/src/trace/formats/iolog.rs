//! fio's I/O log, version 2: `file action [offset length]`. It has no times but what was waited.

use sched::request::{Op, Urgency};

use super::LineFormat;
use crate::trace::number::{shown, times, whole};
use crate::trace::{Raw, Record};

const HEADING: &str = "fio version 2 iolog";

#[derive(Default)]
pub(in crate::trace) struct Iolog {
    is_past_heading: bool,
    waited_ns: u64,
}

impl LineFormat for Iolog {
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String> {
        if line.trim().is_empty() {
            return Ok(Record::Heading);
        }
        if !self.is_past_heading {
            if line.trim() != HEADING {
                return Err(format!(
                    "the first line has to be `{HEADING}`, not `{}`",
                    shown(line)
                ));
            }
            self.is_past_heading = true;
            return Ok(Record::Heading);
        }
        // The name may have blanks in it, what follows has none.
        let mut fields = line.split_ascii_whitespace().rev();
        let (last, before) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        if is_digits(last) && is_digits(before) {
            let action = fields.next().unwrap_or("");
            self.with_numbers(
                line,
                action,
                whole(before, "offset")?,
                whole(last, "length")?,
            )
        } else if ["add", "open", "close"].contains(&last) {
            Ok(Record::Other)
        } else {
            Err(format!(
                "`{}` is neither `file action` nor `file action offset length`",
                shown(line)
            ))
        }
    }
}

impl Iolog {
    fn with_numbers<'a>(
        &mut self,
        line: &'a str,
        action: &str,
        offset: u64,
        length: u64,
    ) -> Result<Record<'a>, String> {
        let op = match action {
            "read" => Op::Read,
            "write" => Op::Write,
            "sync" | "datasync" | "trim" => return Ok(Record::Other),
            // In microseconds; its length means nothing.
            "wait" => {
                let wait_ns = times(offset, 1_000, "wait")?;
                let waited = self.waited_ns.checked_add(wait_ns);
                self.waited_ns = waited.ok_or("all waits together are too long")?;
                return Ok(Record::Other);
            }
            _ => return Err(format!("action `{}` is none of fio's", shown(action))),
        };
        let name = line.rsplitn(4, |c: char| c.is_ascii_whitespace()).last();
        Ok(Record::Request(Raw {
            at_ns: self.waited_ns,
            device: name.unwrap_or("").trim(),
            op,
            start_bytes: offset,
            length_bytes: length,
            // Whoever issues one request after the other waits for each.
            urgency: Urgency::Sync,
        }))
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
