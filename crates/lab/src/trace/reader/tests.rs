//! Good and bad traces.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use sched::request::{Op, Urgency};

use super::*;

mod variants;

/// A record of an SRT trace.
fn srt_record(at: (u32, u32), block: u32, bytes: u32, device: u32, flags: u32) -> Vec<u8> {
    let words = [
        56,
        0x0004_0001,
        at.0,
        at.1,
        100,
        20_000,
        bytes,
        block,
        device,
        4,
        1,
        flags,
        0,
        1,
    ];
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

fn srt() -> Vec<u8> {
    let mut trace = b"$$TR_IOREC-1.3 (a test)\n\0\nversion = 1.3;\n};\n\x0C".to_vec();
    trace.extend(srt_record((5, 999_999), 2, 1_024, 0x0800_0008, 0x1B));
    trace.extend(srt_record((6, 0), 7, 8_192, 0x0800_0107, 0x8_810A));
    trace.extend(srt_record((6, 0), 9, 2_048, 0x0700_000E, 0x8_000A));
    trace
}

const DISKSIM: &str = "0.000500 0 100 8 1\n1.25 1 4 2 0\n\n1.25 0 8 2 2\n";
const MSR: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
128166372003061629,usr,0,Read,7014609920,24576,41286
128166372016382155,usr,1,Write,2657792,512,1963
";
const VSCSI: &str =
    "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,35,0,0\n2,5633900,28,4096,8\n";
const BLKPARSE: &str = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,16   1        3     0.100000001   700  Q  RA 16 + 1 [a name]
  8,0    1        4     0.200000000   700  Q  FN 0 [none]
  8,0    1        5     0.200000000   700  Q FWS 24 + 2 [db]
  8,0    0        6     0.200000000     0  C   W 223490 + 8 [0]
CPU0 (sda):
 Reads Queued:           0,        0KiB
";
const IOLOG: &str = "fio version 2 iolog
/dev/a disk add
/dev/a disk open
/dev/a disk read 4096 512
/dev/a disk wait 1500 0
/dev/b write 0 8192
/dev/b datasync 0 0
/dev/b close
";

fn read(trace: &[u8], format: Option<Format>) -> Vec<TraceRequest> {
    let reader = Reader::new(trace, format).unwrap();
    reader.collect::<Result<_, _>>().unwrap()
}

fn request(
    at_ns: u64,
    device: u32,
    op: Op,
    start: u64,
    length: u64,
    urgency: Urgency,
) -> TraceRequest {
    TraceRequest {
        at: Time(at_ns),
        device,
        op,
        start: Bytes(start),
        length: Bytes(length),
        urgency,
    }
}

/// A trace in every format, with what it says.
fn traces() -> Vec<(Format, Vec<u8>, Vec<TraceRequest>)> {
    use Op::{Read, Write};
    use Urgency::{Async, Sync};
    vec![
        (
            Format::Srt,
            srt(),
            vec![
                request(0, 0, Read, 512, 1_024, Sync),
                request(1_000, 1, Write, 7 * 256, 8_192, Async),
                request(1_000, 0, Write, 9 * 256, 2_048, Sync),
            ],
        ),
        (
            Format::Disksim,
            DISKSIM.into(),
            vec![
                request(0, 0, Read, 51_200, 4_096, Sync),
                request(1_249_500, 1, Write, 2_048, 1_024, Async),
                request(1_249_500, 0, Write, 4_096, 1_024, Sync),
            ],
        ),
        (
            Format::Msr,
            MSR.into(),
            vec![
                request(0, 0, Read, 7_014_609_920, 24_576, Sync),
                request(1_332_052_600, 1, Write, 2_657_792, 512, Async),
            ],
        ),
        (
            Format::Vscsi,
            VSCSI.into(),
            vec![
                request(0, 0, Write, 42_932_745 * 512, 512, Async),
                request(2_000, 0, Read, 4_096, 4_096, Sync),
            ],
        ),
        (
            Format::Blkparse,
            BLKPARSE.into(),
            vec![
                request(0, 0, Write, 223_490 * 512, 4_096, Async),
                request(100_000_001, 1, Read, 8_192, 512, Async),
                request(200_000_000, 0, Write, 12_288, 1_024, Sync),
            ],
        ),
        (
            Format::Iolog,
            IOLOG.into(),
            vec![
                request(0, 0, Read, 4_096, 512, Sync),
                request(1_500_000, 1, Write, 0, 8_192, Sync),
            ],
        ),
    ]
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_format_is_read_named_or_not_packed_or_not() {
    let traces = traces();
    assert_eq!(traces.len(), Format::ALL.len());
    for (format, trace, requests) in traces {
        assert_eq!(read(&trace, Some(format)), requests, "{format}");
        assert_eq!(read(&trace, None), requests, "{format}, found out");
        let packed = packed(&trace);
        assert_eq!(read(&packed, Some(format)), requests, "{format}, packed");
        assert_eq!(read(&packed, None), requests, "{format}, packed, found out");
        // Two that were packed one after the other are one.
        let half = trace.len() / 2;
        let halves = [self::packed(&trace[..half]), self::packed(&trace[half..])].concat();
        assert_eq!(read(&halves, Some(format)), requests, "{format}, in two");
        assert_eq!(format.name().parse(), Ok(format));
    }
    "ascii".parse::<Format>().unwrap_err();
}

#[test]
fn disks_are_named_and_what_is_no_transfer_is_counted() {
    for (format, names, other) in [
        (Format::Srt, vec!["0", "1"], 0),
        (Format::Disksim, vec!["0", "1"], 0),
        (Format::Msr, vec!["usr,0", "usr,1"], 0),
        (Format::Vscsi, vec![""], 1),
        (Format::Blkparse, vec!["8,0", "8,16"], 3),
        (Format::Iolog, vec!["/dev/a disk", "/dev/b"], 5),
    ] {
        let (_, trace, requests) = traces()
            .into_iter()
            .find(|(of, ..)| *of == format)
            .expect("there is one of each");
        let mut reader = Reader::new(&trace[..], None).unwrap();
        assert_eq!(reader.by_ref().count(), requests.len());
        assert_eq!(reader.format(), format);
        assert_eq!(reader.devices(), names, "{format}");
        assert_eq!((reader.other(), reader.skipped()), (other, 0), "{format}");
        let timing = match format {
            Format::Iolog => Timing::Closed,
            _ => Timing::Open,
        };
        assert_eq!(reader.timing(), timing, "{format}");
    }
}

/// The error of a trace that has one, before any request that another may still go before.
fn error(trace: &[u8], format: Format) -> String {
    let mut reader = match Reader::new(trace, Some(format)) {
        Ok(reader) => reader,
        Err(error) => return error.to_string(),
    };
    let error = reader.next().expect("an error").expect_err("no request");
    assert!(reader.next().is_none(), "after an error a trace is over");
    error.to_string()
}

#[test]
fn a_wrong_line_is_an_error_that_names_it() {
    for (format, trace, words) in [
        (
            Format::Disksim,
            "0 0 0 8 1\n0 0 0 8\n",
            ["line 2", "5 values"],
        ),
        (Format::Disksim, "0 0 0 8 1 1\n", ["line 1", "there are 6"]),
        (Format::Disksim, "-1 0 0 8 1\n", ["line 1", "time `-1`"]),
        (Format::Disksim, "0 x 0 8 1\n", ["line 1", "device `x`"]),
        (Format::Disksim, "0 0 0 8 g\n", ["line 1", "flags `g`"]),
        (
            Format::Disksim,
            "2001 0 0 8 1\n\n1000 0 0 8 1\n",
            ["line 3", "sort the trace"],
        ),
        (
            Format::Disksim,
            "0 0 18446744073709551615 8 1\n",
            ["line 1", "too large"],
        ),
        (Format::Msr, "1,h,0,Read,0,512\n", ["line 1", "7 values"]),
        (Format::Msr, "1,h,0,Trim,0,512,1\n", ["line 1", "`Trim`"]),
        (
            Format::Msr,
            "1,h,0,Read,18446744073709551615,512,1\n",
            ["line 1", "2^64"],
        ),
        (Format::Vscsi, "3,1,28,512,0\n", ["line 1", "version `3`"]),
        (Format::Vscsi, "1,1,zz,512,0\n", ["line 1", "`zz`"]),
        (
            Format::Blkparse,
            "8 0 1 0.0 1 Q W 0 + 8\n",
            ["line 1", "major,minor"],
        ),
        (
            Format::Blkparse,
            "8,0 0 1 0.0 1 Q W 0 - 8\n",
            ["line 1", "`+`"],
        ),
        (
            Format::Blkparse,
            "8,0 0 1 0.0 1 Q W 0\n",
            ["line 1", "missing"],
        ),
        (
            Format::Blkparse,
            "8,0 0 1 0.0 1 Q X 0 + 8\n",
            ["line 1", "`X`"],
        ),
        (
            Format::Iolog,
            "fio version 4 iolog\n",
            ["line 1", "version 3"],
        ),
        (
            Format::Iolog,
            "fio version 2 iolog\na erase 0 512\n",
            ["line 2", "`erase`"],
        ),
        (
            Format::Iolog,
            "fio version 2 iolog\na read 512\n",
            ["line 2", "offset length"],
        ),
    ] {
        let error = error(trace.as_bytes(), format);
        for word in words {
            assert!(error.contains(word), "{error}: {word}");
        }
    }
}

#[test]
fn a_wrong_record_is_an_error_that_names_it() {
    let header = srt().iter().position(|byte| *byte == 0x0C).unwrap() + 1;
    let mut kind = srt();
    kind[header + 56 + 7] = 2;
    let mut second = srt();
    second[header + 56 + 12..header + 56 + 16].fill(0xFF);
    let cut = srt()[..header + 100].to_vec();
    for (trace, words) in [
        (kind, ["record 2", "kind 0x40002"]),
        (second, ["record 2", "more than a second"]),
        (cut, ["record 2", "after 44 bytes"]),
        (srt()[..header - 1].to_vec(), ["header", "form feed"]),
        (b"$$TR".to_vec(), ["header", "$$TR_IOREC"]),
    ] {
        let error = error(&trace, Format::Srt);
        for word in words {
            assert!(error.contains(word), "{error}: {word}");
        }
    }
}

#[test]
fn empty_unknown_and_damaged_traces_are_told_apart() {
    let of = |trace: &[u8]| Reader::new(trace, None).unwrap_err();
    assert!(matches!(of(b""), TraceError::Empty));
    assert!(matches!(of(&packed(b"")), TraceError::Empty));
    for unknown in [&b"what is this\n"[..], &[0; 100]] {
        assert!(matches!(of(unknown), TraceError::Unknown { .. }));
    }
    let mut damaged = packed(DISKSIM.as_bytes());
    let end = damaged.len() - 1;
    damaged[end] ^= 1;
    let reader = Reader::new(&damaged[..], Some(Format::Disksim));
    let last = reader.map(|reader| reader.last().expect("something"));
    assert!(
        matches!(
            last,
            Err(TraceError::Read { .. }) | Ok(Err(TraceError::Read { .. }))
        ),
        "{last:?}"
    );
}

#[test]
fn a_lenient_reader_counts_what_is_wrong_and_goes_on() {
    let long = "9".repeat(LINE_BYTES_MAX + 1);
    let trace = format!("0 0 0 8 1\nnonsense\n{long}\n1002 0 8 8 1\n0.5 0 0 8 1\n1003 0 16 8 1");
    let mut reader = Reader::new(trace.as_bytes(), Some(Format::Disksim))
        .unwrap()
        .lenient();
    let times: Vec<u64> = reader
        .by_ref()
        .map(|request| request.unwrap().at.get())
        .collect();
    assert_eq!(times, [0, 1_002_000_000, 1_003_000_000]);
    assert_eq!(reader.skipped(), 3);
    let mut trace = srt();
    trace.truncate(trace.len() - 1);
    let mut reader = Reader::new(&trace[..], None).unwrap().lenient();
    assert_eq!(reader.by_ref().filter_map(Result::ok).count(), 2);
    assert_eq!(reader.skipped(), 1);
}

#[test]
fn lines_end_as_they_do_elsewhere_too() {
    let trace = DISKSIM.replace('\n', "\r\n");
    assert_eq!(read(trace.as_bytes(), None), read(DISKSIM.as_bytes(), None));
    assert_eq!(read(DISKSIM.trim_end().as_bytes(), None).len(), 3);
}
