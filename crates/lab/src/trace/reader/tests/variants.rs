//! Other output of the tools with these formats.

use super::*;

/// Its requests, how many records were none, and what its times mean.
fn all(trace: &[u8]) -> (Vec<TraceRequest>, u64, Timing) {
    let mut reader = Reader::new(trace, None).unwrap();
    let requests = reader.by_ref().collect::<Result<_, _>>().unwrap();
    (requests, reader.other(), reader.timing())
}

/// Log of fio 3.33, which writes the length of its last request before a flush as the offset of the flush.
const IOLOG_3: &str = "fio version 3 iolog
17 /dev/a disk add
354 /dev/a disk open
362 /dev/a disk read 61440 4096
7435 /dev/a disk write 491520 8192
15849 /dev/a disk datasync 491520 0
15850 /dev/a disk sync 491520 0
15860 /dev/b sync_file_range 0 0
16539 /dev/b trim 69632 4096
23689 /dev/b write 892928 4096
23690 /dev/b wait 1000 0
55695 /dev/b close
";

#[test]
fn a_log_of_fio_3_31_has_times_of_its_own() {
    use Op::{Read, Write};
    let (requests, other, timing) = all(IOLOG_3.as_bytes());
    assert_eq!(
        requests,
        [
            request(0, 0, Read, 61_440, 4_096, Urgency::Sync),
            request(7_073_000, 0, Write, 491_520, 8_192, Urgency::Sync),
            request(23_327_000, 1, Write, 892_928, 4_096, Urgency::Sync),
        ]
    );
    assert_eq!((other, timing), (8, Timing::Open));
    let named = Reader::new(IOLOG_3.as_bytes(), Some(Format::Iolog)).unwrap();
    assert_eq!((named.timing(), named.count()), (Timing::Open, 3));
    for (line, words) in [
        ("/dev/a read 0 512", "time `/dev/a`"),
        ("0 /dev/a read 512", "offset length"),
        ("0 read 0 512", "file action"),
        ("0", "file action"),
        ("18446744073709551615 a read 0 512", "too large"),
        ("fio version 3 iolog", "split the file"),
    ] {
        let error = error(
            format!("fio version 3 iolog\n{line}\n").as_bytes(),
            Format::Iolog,
        );
        assert!(error.contains("line 2") && error.contains(words), "{error}");
    }
}

/// Nothing waits in memory for what would go before it: a log without times is in order.
#[test]
fn a_log_without_times_is_not_read_ahead() {
    let log = "fio version 2 iolog\n".to_owned() + &"/dev/a read 0 512\n".repeat(1 << 17);
    let mut rest = log.as_bytes();
    let mut reader = Reader::new(&mut rest, None).unwrap();
    assert_eq!(reader.by_ref().take(3).count(), 3);
    drop(reader);
    let left = rest.len();
    assert!(
        left > log.len() / 2,
        "{left} bytes of {} are left",
        log.len()
    );
}

#[test]
fn blanks_in_a_log_part_fields_however_many() {
    let log = IOLOG.replace(" 4096 512", "\t4096   512  ");
    assert_eq!(all(log.as_bytes()).0, read(IOLOG.as_bytes(), None));
    let mut reader = Reader::new(log.as_bytes(), None).unwrap();
    assert_eq!(reader.by_ref().count(), 2);
    assert_eq!(reader.devices(), ["/dev/a disk", "/dev/b"]);
}

#[test]
fn issue_events_count_in_a_trace_without_queue_events() {
    use Op::{Read, Write};
    use Urgency::{Async, Sync};
    let trace = "202,16   7    50007   675.722691803   661  D   W 95839968 + 80 [kswapd0]
202,16   7    50008   675.722700103   661  D   W 95840048 + 80 [kswapd0]
202,16   3    50009   675.724000000     0  C   W 95839968 + 80 [0]
202,16   7    50010   675.730000000   661  D  RM 4096 + 8 [kworker/7:1]
";
    let (requests, other, _) = all(trace.as_bytes());
    assert_eq!(
        requests,
        [
            request(0, 0, Write, 95_839_968 * 512, 40_960, Async),
            request(8_300, 0, Write, 95_840_048 * 512, 40_960, Async),
            request(7_308_197, 0, Read, 4_096 * 512, 4_096, Sync),
        ]
    );
    assert_eq!(other, 1);
    // In a trace with queued requests, an issued one is the same request again, even on the first line.
    let queued = format!("{trace}202,16 7 50011 675.74 661 Q R 8 + 8 [x]\n");
    let (requests, other, _) = all(queued.as_bytes());
    assert_eq!((requests.len(), other), (1, 4));
    // A queued request much later cannot be taken together with the issued one.
    let later = format!("{}{queued}", trace.repeat(100));
    let error_of_later = error(later.as_bytes(), Format::Blkparse);
    assert!(
        error_of_later.contains("was queued (Q)"),
        "{error_of_later}"
    );
    let completed = trace.replace(" D ", " C ");
    let error = error(completed.as_bytes(), Format::Blkparse);
    assert!(
        error.contains("line 1") && error.contains("was completed (C)"),
        "{error}"
    );
}

#[test]
fn only_transfers_of_blkparse_output_count() {
    use Op::{Read, Write};
    use Urgency::{Async, Sync};
    let trace = b"  8,0    0        0     0.000000000     0  m   N cfq697S / alloced
  8,0    3        1     0.000001000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000002000   697  Q  WS 223490 + 8 (     120) [a name (1)]
  8,0    3        3     0.000003000   697  P   N [db]
  8,0    3        4     0.000004000   697 UT   N [db] 1
  8,0    3        5     0.000005000   697  X   W 223490 / 223494 [db]
  8,0    3        6     0.000006000   697  Q FWS [db]
  8,0    3        7     0.000007000   697  Q FWS (      99) [db]
  8,0    3        8     0.000008000   697  Q  FF 0 [db]
  8,0    3        9     0.000009000   697  Q   D 2048 + 4096 [fstrim]
  8,0    3       10     0.000010000   697  Q  DS 2048 + 4096 [fstrim]
  8,0    3       11     0.000011000   697  Q  DE 2048 + 4096 [blkdiscard]
  8,0    3       12     0.000012000   697  Q   R 36 (12 00 00 00 24 00 ..) [scsi_id]
  8,0    3       13     0.000013000   697  Q  ZR 524288 + 0 [mkfs]
  8,0    3       14     0.000014000   697  Q  ZA 524288 + 8 [f2fs]
  8,0    3       15     0.000015000   697  Q  RA 16 + 8 [cut off \xe2\x82]

Reads Queued
CPU3 (sda):
 Reads Queued:           1,        4KiB
";
    let trace = String::from_utf8_lossy(trace).into_owned();
    let mut lenient = Reader::new(trace.as_bytes(), None).unwrap().lenient();
    assert_eq!(lenient.by_ref().count(), 3);
    assert_eq!((lenient.other(), lenient.skipped()), (13, 1));
    let trace = trace.replace("Reads Queued\n", "");
    let (requests, other, _) = all(trace.as_bytes());
    assert_eq!(
        requests,
        [
            request(0, 0, Write, 223_490 * 512, 4_096, Sync),
            request(12_000, 0, Write, 524_288 * 512, 4_096, Async),
            request(13_000, 0, Read, 16 * 512, 4_096, Async),
        ]
    );
    assert_eq!(other, 13);
}

#[test]
fn a_name_that_was_cut_off_within_a_character_does_no_harm() {
    let trace = b"8,0 3 1 0.0 697 Q R 16 + 8 [caf\xc3]\n";
    assert_eq!(all(trace).0.len(), 1);
}

#[test]
fn requests_up_to_a_second_out_of_order_are_put_in_order() {
    let trace = "1500 0 1 8 1\n1000 0 2 8 1\n1999.5 0 3 8 1\n1000 0 4 8 1\n999.5 0 5 8 1\n5000 0 6 8 1\n4000 0 7 8 1\n";
    let requests = read(trace.as_bytes(), Some(Format::Disksim));
    let order: Vec<(u64, u64)> = requests
        .iter()
        .map(|request| (request.at.get() / 500_000, request.start.get() / 512))
        .collect();
    assert_eq!(
        order,
        [
            (0, 5),
            (1, 2),
            (1, 4),
            (1_001, 1),
            (2_000, 3),
            (6_001, 7),
            (8_001, 6)
        ]
    );
    // Merged lines of several processors, and lines that are written at completion.
    for (format, trace) in [
        (
            Format::Blkparse,
            "8,0 1 1 0.000002 1 Q R 8 + 8 [a]\n8,0 0 1 0.000001 1 Q R 0 + 8 [a]\n",
        ),
        (
            Format::Msr,
            "128166372003061629,usr,0,Read,4096,512,41286\n128166372003061619,usr,0,Read,0,512,9\n",
        ),
        (Format::Vscsi, "1,5633899,28,512,8\n1,5633898,28,512,0\n"),
        (
            Format::Iolog,
            "fio version 3 iolog\n2 a read 4096 512\n1 a read 0 512\n",
        ),
    ] {
        let requests = read(trace.as_bytes(), None);
        let starts: Vec<u64> = requests.iter().map(|request| request.start.get()).collect();
        assert_eq!((starts.len(), starts[0]), (2, 0), "{format}");
        assert!(requests[1].at > requests[0].at && requests[0].at == Time::ZERO);
    }
}

#[test]
fn marks_comments_and_empty_lines_are_passed_over_in_every_format_of_lines() {
    for (format, trace, requests) in traces() {
        let Ok(text) = std::str::from_utf8(&trace) else {
            continue;
        };
        if format == Format::Srt {
            continue;
        }
        let text = format!("\n# a comment\n{text}\n\n  \n").replace('\n', "\r\n");
        let trace = [&b"\xEF\xBB\xBF"[..], text.as_bytes()].concat();
        assert_eq!(read(&trace, None), requests, "{format}, found out");
        assert_eq!(read(&trace, Some(format)), requests, "{format}");
        assert_eq!(read(&packed(&trace), None), requests, "{format}, packed");
    }
}

#[test]
fn a_request_of_no_bytes_is_counted_as_no_transfer() {
    for (format, trace) in [
        (Format::Disksim, "0 0 0 0 1\n"),
        (Format::Msr, "1,h,0,Read,0,0,1\n"),
        (Format::Vscsi, "1,1,28,0,0\n"),
        (Format::Blkparse, "8,0 1 1 0.0 1 Q R 8 + 0 [a]\n"),
        (Format::Iolog, "fio version 2 iolog\na read 0 0\n"),
    ] {
        let (requests, other, _) = all(trace.as_bytes());
        assert_eq!((requests.len(), other), (0, 1), "{format}");
    }
}

#[test]
fn numbers_with_a_prefix_are_read() {
    // Flags of DiskSim are hexadecimal: 10 is neither a read nor what somebody waits for.
    let requests = read(b"0 0 0 8 10\n1 0 0 8 0x13\n", Some(Format::Disksim));
    assert_eq!(
        (requests[0].op, requests[0].urgency),
        (Op::Write, Urgency::Async)
    );
    assert_eq!(
        (requests[1].op, requests[1].urgency),
        (Op::Read, Urgency::Sync)
    );
    let requests = read(b"1,1,0x2A,512,0\n1,2,0x88,512,0\n", None);
    assert_eq!((requests[0].op, requests[1].op), (Op::Write, Op::Read));
}

#[test]
fn trace_of_another_known_format_is_named() {
    let utf_16: Vec<u8> = "\u{feff}Timestamp"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let cases: [(&[u8], &str); 6] = [
        (b"\x07tae\0\0\0\0", "binary output"),
        (b"\x28\xB5\x2F\xFD\0", "decompress"),
        (&utf_16, "UTF-16"),
        (b"fio version 4 iolog\n", "not of version 2"),
        (b"0, 4096, 512\n", "`0, 4096, 512`"),
        (b"\n\n1.0,2\n", "`1.0,2`"),
    ];
    for (trace, words) in cases {
        let error = Reader::new(trace, None).unwrap_err().to_string();
        assert!(
            error.contains("no known format") && error.contains(words),
            "{error}"
        );
    }
}
