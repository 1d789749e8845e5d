//! What `blkparse` prints unless it is told otherwise:
//! `8,0 3 11 0.009507758 697 Q W 223490 + 8 [kjournald]`, and a summary at the end.

use sched::request::{Op, Urgency};

use super::{LineFormat, sectors};
use crate::trace::number::{decimal, shown, whole};
use crate::trace::{Raw, Record};

/// The action of a request that comes to the queue of a disk.
const QUEUED: &str = "Q";

pub(in crate::trace) struct Blkparse;

impl LineFormat for Blkparse {
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String> {
        if line.trim().is_empty() {
            return Ok(Record::Heading);
        }
        if is_summary(line) {
            return Ok(Record::End);
        }
        let mut fields = line.split_ascii_whitespace();
        let mut field = |what: &str| fields.next().ok_or_else(|| format!("{what} is missing"));
        let device = field("the device")?;
        if !is_device(device) {
            return Err(format!("device `{}` is not major,minor", shown(device)));
        }
        whole(field("the processor")?, "processor")?;
        whole(field("the sequence number")?, "sequence number")?;
        let at_ns = decimal(field("the time")?, 9, "time")?;
        whole(field("the process")?, "process")?;
        let action = field("the action")?;
        let kind = field("the kind of request")?;
        if !action.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(format!("action `{}` is none", shown(action)));
        }
        // Only what is queued: the same request comes again when it is sent to the disk and when it is done.
        if action != QUEUED {
            return Ok(Record::Other);
        }
        let Some((op, urgency)) = transfer(kind)? else {
            return Ok(Record::Other);
        };
        let start = whole(field("the sector")?, "sector")?;
        if field("`+`")? != "+" {
            return Err("after the sector `+` and the number of sectors are needed".to_owned());
        }
        let count = whole(field("the number of sectors")?, "number of sectors")?;
        Ok(Record::Request(Raw {
            at_ns,
            device,
            op,
            start_bytes: sectors(start, "sector")?,
            length_bytes: sectors(count, "number of sectors")?,
            urgency,
        }))
    }
}

fn is_summary(line: &str) -> bool {
    line.starts_with("CPU") || line.starts_with("Total (") || line.starts_with("Throughput (")
}

fn is_device(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once(',')
        .is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// The direction, and whether somebody waits: of reads all but read-ahead, of writes those that are
/// synchronous or forced. Not of discards and of flushes without data.
fn transfer(kind: &str) -> Result<Option<(Op, Urgency)>, String> {
    if !kind.bytes().all(|byte| b"RWDNFSMA".contains(&byte)) {
        return Err(format!("kind of request `{}` is none", shown(kind)));
    }
    let has = |letter| kind.contains(letter);
    let op = match () {
        () if has('D') => return Ok(None),
        () if has('R') => Op::Read,
        () if has('W') => Op::Write,
        () => return Ok(None),
    };
    // A forced write has its F after the W; before it, it is that of a flush that comes first.
    let urgency = match op {
        Op::Read if !has('A') => Urgency::Sync,
        Op::Write if has('S') || has('F') => Urgency::Sync,
        Op::Read | Op::Write => Urgency::Async,
    };
    Ok(Some((op, urgency)))
}
