//! Traces of real machines, which lie beside the repository where they lie at all, read to their ends.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use testkit::skip;

use flate2::bufread::GzDecoder;
use lab::trace::{Format, Reader, TraceRequest};
use sched::request::{Op, Urgency};
use sched::units::{Nanos, Time};

/// The trace of that name, unless it is not there.
fn trace(name: &str) -> Option<File> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/traces")
        .join(name);
    match File::open(&path) {
        Ok(file) => Some(file),
        Err(error) => {
            skip::skipped(&format!("no trace {name} beside the repository: {error}"));
            None
        }
    }
}

fn read(file: File, format: Format) -> (Vec<TraceRequest>, usize) {
    let mut reader = Reader::new(file, None).unwrap();
    assert_eq!(reader.format(), format);
    let requests = reader.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!((reader.skipped(), reader.other()), (0, 0));
    (requests, reader.devices().len())
}

fn share(requests: &[TraceRequest], is_counted: impl Fn(&TraceRequest) -> bool) -> f64 {
    requests
        .iter()
        .filter(|request| is_counted(request))
        .count() as f64
        / requests.len() as f64
}

/// A week of HPLAJW, of 1992. Its header says that both disks have 1,449 cylinders of 8 tracks of 113 sectors of
/// 256 bytes.
#[test]
fn a_week_of_a_workstation_in_1992() {
    const NAME: &str = "hplajw-1992-05-30-1week.srt.gz";
    const DISK_BYTES: u64 = 1_449 * 8 * 113 * 256;
    let (Some(file), Some(again)) = (trace(NAME), trace(NAME)) else {
        return;
    };
    let mut bytes = Vec::new();
    GzDecoder::new(BufReader::new(again))
        .read_to_end(&mut bytes)
        .unwrap();
    let header = bytes.iter().position(|byte| *byte == 0x0C).unwrap() + 1;
    let (requests, disks) = read(file, Format::Srt);
    assert_eq!(requests.len(), (bytes.len() - header) / 56);
    assert_eq!(disks, 2);
    assert!(
        requests
            .iter()
            .all(|request| request.start.get() + request.length.get() <= DISK_BYTES)
    );
    let last = requests.last().unwrap().at;
    assert!(last > Time::ZERO + Nanos::from_secs(6 * 86_400), "{last:?}");
    assert!(last < Time::ZERO + Nanos::from_secs(7 * 86_400), "{last:?}");
    // A workstation whose buffer cache takes the reads: writes prevail, and most of them are not waited for
    // (Ruemmler & Wilkes 1993).
    let reads = share(&requests, |request| request.op == Op::Read);
    assert!((0.25..0.5).contains(&reads), "{reads}");
    let waited = |request: &TraceRequest| request.urgency == Urgency::Sync;
    let is_plausible = |share: f64| (0.1..0.9).contains(&share);
    let waited_writes = share(&requests, |request| {
        request.op == Op::Write && waited(request)
    });
    assert!(is_plausible(waited_writes), "{waited_writes}");
}

#[test]
fn a_virtual_disk_of_a_data_centre() {
    const NAME: &str = "cloudphysics-vscsi.csv.gz";
    let (Some(file), Some(again)) = (trace(NAME), trace(NAME)) else {
        return;
    };
    let lines = BufReader::new(GzDecoder::new(BufReader::new(again))).lines();
    let lines: Vec<String> = lines.skip(1).map(Result::unwrap).collect();
    let (requests, disks) = read(file, Format::Vscsi);
    assert_eq!((requests.len(), disks), (lines.len(), 1));
    let reads = lines.iter().filter(|line| line.contains(",28,")).count();
    assert_eq!(
        share(&requests, |request| request.op == Op::Read),
        reads as f64 / lines.len() as f64
    );
    let sizes: HashSet<u64> = requests
        .iter()
        .map(|request| request.length.get())
        .collect();
    assert!(sizes.iter().all(|size| size.is_multiple_of(512)));
}
