//! DiskSim's ASCII format: `time in ms, device, block, blocks, flags`.

use sched::request::Op;

use super::{LineFormat, blank_separated, sectors};
use crate::trace::number::{decimal, shown, whole};
use crate::trace::{Raw, Record, usual_urgency};

/// The flag of a read.
const READ: u64 = 1;
/// DiskSim's own: somebody waits, or will before long.
const TIME_CRITICAL: u64 = 2;

pub(in crate::trace) struct Disksim;

impl LineFormat for Disksim {
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String> {
        let [time, device, start, count, flags] = blank_separated(line)?;
        let flags = flags_of(flags)?;
        let op = if flags & READ == 0 {
            Op::Write
        } else {
            Op::Read
        };
        let urgency = if flags & TIME_CRITICAL == 0 {
            usual_urgency(op)
        } else {
            sched::request::Urgency::Sync
        };
        whole(device, "device")?;
        Ok(Record::Request(Raw {
            at_ns: decimal(time, 6, "time")?,
            device,
            op,
            start_bytes: sectors(whole(start, "block")?, "block")?,
            length_bytes: sectors(whole(count, "number of blocks")?, "number of blocks")?,
            urgency,
        }))
    }
}

/// In hexadecimal with or without `0x`, as DiskSim's own reader takes them.
fn flags_of(text: &str) -> Result<u64, String> {
    let wrong = || format!("flags `{}` are not a hexadecimal number", shown(text));
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.starts_with('+') {
        return Err(wrong());
    }
    u64::from_str_radix(digits, 16).map_err(|_| wrong())
}
