//! The format of the traces of Microsoft Research Cambridge (Narayanan et al., FAST 2008):
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, times in units of 100 ns.

use sched::request::Op;

use super::{LineFormat, comma_separated};
use crate::trace::number::{shown, times, whole};
use crate::trace::{Raw, Record, usual_urgency};

/// The first column of the heading that some copies have.
const HEADING: &str = "Timestamp";

#[derive(Default)]
pub(in crate::trace) struct Msr {
    is_past_heading: bool,
}

impl LineFormat for Msr {
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String> {
        let [time, host, disk, kind, offset, size, response] = comma_separated(line)?;
        let is_past_heading = std::mem::replace(&mut self.is_past_heading, true);
        if !is_past_heading && time.trim() == HEADING {
            return Ok(Record::Heading);
        }
        let op = match kind.trim() {
            kind if kind.eq_ignore_ascii_case("read") => Op::Read,
            kind if kind.eq_ignore_ascii_case("write") => Op::Write,
            kind => return Err(format!("type `{}` is neither Read nor Write", shown(kind))),
        };
        whole(disk, "disk number")?;
        whole(response, "response time")?;
        Ok(Record::Request(Raw {
            at_ns: times(whole(time, "timestamp")?, 100, "timestamp")?,
            device: joined(line, host, disk),
            op,
            start_bytes: whole(offset, "offset")?,
            length_bytes: whole(size, "size")?,
            urgency: usual_urgency(op),
        }))
    }
}

/// The part of the line with both, and what is between them.
fn joined<'a>(line: &'a str, host: &str, disk: &str) -> &'a str {
    let comma = line.find(',').unwrap_or(0);
    &line[comma + 1..comma + 1 + host.len() + 1 + disk.len()]
}
