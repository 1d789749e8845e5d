//! The format of the vSCSI traces of CloudPhysics (Waldspurger et al., FAST 2015) as CSV:
//! `version,time,op,size,lbn`, the time in us, the size in bytes, blocks of 512 bytes.

use sched::request::Op;

use super::{LineFormat, comma_separated, sectors};
use crate::trace::number::{shown, times, whole};
use crate::trace::{Raw, Record, usual_urgency};

const HEADING: &str = "version";

pub(in crate::trace) struct Vscsi;

impl LineFormat for Vscsi {
    fn record<'a>(&mut self, line: &'a str) -> Result<Record<'a>, String> {
        let [version, time, op, size, block] = comma_separated(line)?;
        if version.trim() == HEADING {
            return Ok(Record::Heading);
        }
        if !["1", "2"].contains(&version.trim()) {
            return Err(format!("version `{}` is neither 1 nor 2", shown(version)));
        }
        let at_ns = times(whole(time, "time")?, 1_000, "time")?;
        let length_bytes = whole(size, "size")?;
        let start_bytes = sectors(whole(block, "block")?, "block")?;
        let Some(op) = op_of(op)? else {
            return Ok(Record::Other);
        };
        Ok(Record::Request(Raw {
            at_ns,
            device: "",
            op,
            start_bytes,
            length_bytes,
            urgency: usual_urgency(op),
        }))
    }
}

/// Direction of a SCSI operation code (SBC-4, in hexadecimal), if it transfers.
fn op_of(code: &str) -> Result<Option<Op>, String> {
    let code = code.trim();
    let byte = u8::from_str_radix(code.strip_prefix("0x").unwrap_or(code), 16);
    match byte.map_err(|_| format!("op `{}` is not a SCSI operation code", shown(code)))? {
        // READ (6), (10), (12), (16).
        0x08 | 0x28 | 0xA8 | 0x88 => Ok(Some(Op::Read)),
        // WRITE (6), (10), (12), (16), and with verification.
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => Ok(Some(Op::Write)),
        _ => Ok(None),
    }
}
