use super::*;
use measure::facts::TURNAROUND;
use sched::units::{Nanos, Sector, SectorCount};

fn facts() -> Facts {
    Facts {
        name: "a model".to_owned(),
        capacity: SectorCount(1 << 16),
        unit: SectorCount(1),
        physical: SectorCount(8),
        request_max: SectorCount(1 << 12),
        writable: Vec::new(),
        is_file: true,
        is_device: false,
        turnaround: TURNAROUND,
    }
}

/// Serves at a constant time, until so many samples are there.
fn serve(opened: &mut Opened, count: usize) -> usize {
    let mut at = opened.begun.at;
    let mut served = 0;
    while served < count
        && let Step::Serve { requests, .. } = opened.begun.step.clone()
    {
        let samples: Vec<Sample> = requests
            .iter()
            .map(|request| {
                let issued = at.max(request.not_before);
                at = issued + Nanos(100_000 + request.start.get() % 7_919);
                Sample {
                    issued,
                    completed: at,
                    alone: true,
                    error: None,
                }
            })
            .collect();
        opened.file.append(&requests, &samples).unwrap();
        served += samples.len();
        opened.begun.step = opened.begun.measurement.step(&samples);
    }
    served
}

fn open(path: &Path) -> Result<Opened, Failure> {
    SampleFile::lock(path)?.begin(&facts(), "7", Effort::Quick, Earlier::Continue)
}

#[test]
fn measurement_continues_at_the_last_whole_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml.samples");
    let mut opened = open(&path).unwrap();
    let served = serve(&mut opened, 1_000);
    assert!(opened.begun.measurement.progress().part != FIRST_PART);
    let next = opened.begun.step.clone();
    assert!(open(&path).is_err(), "it is in use");
    drop(opened);
    let whole = std::fs::read(&path).unwrap();
    // A torn record, and records of a step that did not end.
    for more in [0, 17, RECORD_BYTES] {
        let mut bytes = whole.clone();
        bytes.extend(&whole[log::HEADER_BYTES..][..more]);
        std::fs::write(&path, &bytes).unwrap();
        let again = open(&path);
        if more == RECORD_BYTES {
            // That record is of another request than the next one.
            if let Err(failure) = again {
                assert!(failure.what.contains("has changed"), "{failure:?}");
                continue;
            }
        }
        let again = again.unwrap();
        assert_eq!(again.continued as usize, served);
        assert_eq!(again.begun.step, next);
        assert!(again.begun.last.is_some());
        assert_eq!(
            std::fs::metadata(&path).unwrap().len() as usize,
            whole.len()
        );
    }
}

#[test]
fn observation_of_the_rotation_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml.samples");
    let mut opened = open(&path).unwrap();
    assert_eq!(opened.begun.measurement.progress().part, FIRST_PART);
    let first = opened.begun.step.clone();
    assert_eq!(serve(&mut opened, 10), 10);
    drop(opened);
    let again = open(&path).unwrap();
    assert_eq!((again.continued, again.begun.step), (0, first));
    assert_eq!(
        std::fs::metadata(&path).unwrap().len() as usize,
        log::HEADER_BYTES
    );
}

#[test]
fn samples_of_something_else_are_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml.samples");
    let mut opened = open(&path).unwrap();
    serve(&mut opened, 300);
    drop(opened);
    let refused = |facts: &Facts, serial: &str, effort, word: &str| {
        let file = SampleFile::lock(&path).unwrap();
        let opened = file.begin(facts, serial, effort, Earlier::Continue);
        let failure = opened.err().expect("it is refused");
        assert!(failure.what.contains(word), "{failure:?}");
        assert!(failure.help.contains("--restart"), "{failure:?}");
    };
    refused(&facts(), "8", Effort::Quick, "another drive");
    refused(&facts(), "7", Effort::Thorough, "other options");
    let mut larger = facts();
    larger.capacity = SectorCount(1 << 17);
    refused(&larger, "7", Effort::Quick, "another drive");
    let mut writes = facts();
    writes.writable = vec![Sector(0)..Sector(8)];
    refused(&writes, "7", Effort::Quick, "other options");
    let whole = std::fs::read(&path).unwrap();
    for (at, word) in [(3, "not a file"), (9, "version"), (20, "damaged")] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        refused(&facts(), "7", Effort::Quick, word);
    }
    std::fs::write(&path, &whole[..40]).unwrap();
    refused(&facts(), "7", Effort::Quick, "damaged");
    // A record of another request: what an older program would have made.
    let mut bytes = whole;
    let at = log::HEADER_BYTES + 5 * RECORD_BYTES;
    let request = Request {
        op: sched::request::Op::Read,
        start: Sector(1),
        count: SectorCount(3),
        not_before: Time(1),
    };
    let sample = Sample {
        issued: Time(1),
        completed: Time(2),
        alone: true,
        error: None,
    };
    bytes[at..][..RECORD_BYTES].copy_from_slice(&log::record(&request, &sample));
    std::fs::write(&path, &bytes).unwrap();
    refused(&facts(), "7", Effort::Quick, "sample 5");
    let file = SampleFile::lock(&path).unwrap();
    let discarded = file.begin(&facts(), "8", Effort::Quick, Earlier::Discard);
    let discarded = discarded.unwrap();
    assert_eq!(discarded.continued, 0);
}

#[test]
fn time_that_no_measurement_reaches_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml.samples");
    let Step::Serve { requests, .. } = open(&path).unwrap().begun.step else {
        panic!("it asks for requests");
    };
    let header = std::fs::read(&path).unwrap();
    for time in [Sample::TIME_MAX.get() + 1, 1 << 63, u64::MAX] {
        let sample = Sample {
            issued: Time(time),
            completed: Time(time),
            alone: true,
            error: None,
        };
        let record = log::record(&requests[0], &sample);
        std::fs::write(&path, [&header[..], &record].concat()).unwrap();
        let failure = open(&path).err().expect("it is refused");
        let what = "sample 0 has a time later than 104 days";
        assert!(failure.what.contains(what), "{failure:?}");
        assert!(failure.help.contains("--restart"), "{failure:?}");
    }
}

/// Files of earlier versions are refused, so a change of the bytes needs a new version.
#[test]
fn bytes_of_a_file_are_pinned() {
    let facts = Facts {
        writable: vec![Sector(8)..Sector(65_536)],
        ..facts()
    };
    let request = Request {
        op: sched::request::Op::Write,
        start: Sector(0x0102_0304_0506),
        count: SectorCount(0x1234),
        not_before: Time(1),
    };
    let sample = Sample {
        issued: Time(0x1122_3344),
        completed: Time(0x5566_7788_99aa),
        alone: false,
        error: Some(5),
    };
    let mut bytes = log::header(&facts, Effort::Thorough, 0x0a0b_0c0d_0e0f_1011).to_vec();
    bytes.extend(log::record(&request, &sample));
    let lines = bytes.chunks(16).map(|line| {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        hex.join(" ")
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}
