//! The default output of `blkparse`: `8,0 3 11 0.009507758 697 Q W 223490 + 8 [kjournald]`, and a summary at
//! the end.

use sched::request::{Op, Urgency};

use super::{LineFormat, sectors};
use crate::trace::number::{decimal, shown, whole};
use crate::trace::{Raw, Record};

/// The action of a request that comes to the queue of a disk.
const QUEUED: &str = "Q";
/// Action of a request that is sent to the disk.
const ISSUED: &str = "D";
/// Action of a request that is done.
const COMPLETED: &str = "C";

/// The place of the action in a line.
const ACTION: usize = 5;

pub(in crate::trace) struct Blkparse {
    /// The action whose requests count: the same request comes again with others.
    counts: &'static str,
}

impl Blkparse {
    /// Takes what is queued; where nothing is in these first bytes of the trace, what is issued, and where
    /// that is not there either, what is completed.
    pub(in crate::trace) fn new(beginning: &[u8]) -> Self {
        let text = String::from_utf8_lossy(beginning);
        let has = |action: &&str| {
            let mut lines = text.lines();
            lines.any(|line| line.split_ascii_whitespace().nth(ACTION) == Some(*action))
        };
        let counts = [QUEUED, ISSUED, COMPLETED].into_iter().find(has);
        Self {
            counts: counts.unwrap_or(QUEUED),
        }
    }

    /// True if requests with this action count.
    fn counts(&self, action: &str) -> Result<bool, String> {
        match (self.counts, action) {
            (COMPLETED, COMPLETED) => Err(
                "it was completed (C), and when is not said it was queued (Q) or issued (D), neither of which the trace \
                 begins with: trace those too"
                    .to_owned(),
            ),
            (counts, QUEUED) if counts != QUEUED => Err(
                "it was queued (Q), but nothing was where the trace begins, so that what was issued (D) counts: leave out \
                 the lines before, or all that were queued"
                    .to_owned(),
            ),
            (counts, action) => Ok(counts == action),
        }
    }
}

impl LineFormat for Blkparse {
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String> {
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
            return Err(format!("`{}` is not an action of blkparse", shown(action)));
        }
        if !self.counts(action)? {
            return Ok(Record::Other);
        }
        let Some((op, urgency)) = transfer(kind)? else {
            return Ok(Record::Other);
        };
        // A flush has no sectors, and what is passed to the disk as a command has bytes: the name of the
        // process or the command follows instead.
        let is_next = |text: &str| text.starts_with(['[', '(']);
        let start = field("the sector")?;
        if is_next(start) {
            return Ok(Record::Other);
        }
        let start = whole(start, "sector")?;
        let plus = field("`+`")?;
        if is_next(plus) {
            return Ok(Record::Other);
        }
        if plus != "+" {
            return Err("the sector must be followed by `+` and the number of sectors".to_owned());
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
/// synchronous or forced. Not of discards, of flushes without data, and of what manages zones but appends to one.
fn transfer(kind: &str) -> Result<Option<(Op, Urgency)>, String> {
    if !kind.bytes().all(|byte| b"RWDNFSMAEZOC".contains(&byte)) {
        return Err(format!("`{}` is not a kind of request", shown(kind)));
    }
    let has = |letter| kind.contains(letter);
    let op = match () {
        () if kind.contains("ZA") => Op::Write,
        () if has('D') || has('Z') => return Ok(None),
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
