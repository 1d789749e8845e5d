//! A trace as text that others can read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sched::request::{Op, Urgency};
use sched::units::SECTOR_BYTES;

use super::TraceRequest;

/// Writes requests as DiskSim's ASCII, which most disk simulators read: time in ms to the nanosecond, device,
/// block of 512 bytes, blocks, and flags (1 for a read, 2 for a request that is waited for). Partial sectors
/// are widened to whole ones.
///
/// # Errors
/// Those of `out`.
pub fn write_disksim<'a>(
    out: &mut impl Write,
    requests: impl IntoIterator<Item = &'a TraceRequest>,
) -> io::Result<()> {
    for request in requests {
        let at = request.at.get();
        let first = request.start.get() / SECTOR_BYTES;
        let end = request.start.get().saturating_add(request.length.get());
        let flags = match (request.op, request.urgency) {
            (Op::Write, Urgency::Async) => 0,
            (Op::Read, Urgency::Async) => 1,
            (Op::Write, Urgency::Sync) => 2,
            (Op::Read, Urgency::Sync) => 3,
        };
        writeln!(
            out,
            "{}.{:06} {} {first} {} {flags}",
            at / 1_000_000,
            at % 1_000_000,
            request.device,
            end.div_ceil(SECTOR_BYTES) - first
        )?;
    }
    Ok(())
}

/// Writes requests to a file as [`write_disksim`] does, compressed if its name ends with `.gz`.
///
/// # Errors
/// When it cannot be written.
pub fn write_file(path: &Path, requests: &[TraceRequest]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    if path.extension().is_some_and(|kind| kind == "gz") {
        let mut packed = GzEncoder::new(file, Compression::default());
        write_disksim(&mut packed, requests)?;
        return packed.finish()?.flush();
    }
    write_disksim(&mut file, requests)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use sched::units::{Bytes, Time};

    use super::*;
    use crate::cello::Period;
    use crate::trace::{Format, Reader};

    #[test]
    fn written_trace_is_read_back() {
        let written = Period::busy().requests(Bytes::from_mib(768), 5);
        let mut text = Vec::new();
        write_disksim(&mut text, &written).expect("memory takes everything");
        let reader = Reader::new(text.as_slice(), Some(Format::Disksim)).expect("it is a trace");
        let read: Result<Vec<_>, _> = reader.collect();
        let read = read.expect("each line is a request");
        assert_eq!(read.len(), written.len());
        // A reader begins at zero, and numbers disks as it meets them.
        let from = written[0].at;
        let mut devices = Vec::new();
        for (read, written) in read.iter().zip(&written) {
            if !devices.contains(&written.device) {
                devices.push(written.device);
            }
            assert_eq!(devices[read.device as usize], written.device);
            let same = TraceRequest {
                at: Time::ZERO + (written.at - from),
                device: read.device,
                ..*written
            };
            assert_eq!(*read, same);
        }
    }
}
