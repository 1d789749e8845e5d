use super::super::history::{DayRow, EarlierRow, KindRow, Subject};
use super::super::moment::{Day, Moment};
use super::*;
use crate::wire::service_times::{OverrunView, PieceView};

const POOL: &str = "000102030405060708090a0b0c0d0e0f";

fn stored() -> Stored {
    let subject = Subject {
        disk: "101112131415161718191a1b1c1d1e1f".to_owned(),
        serial: Some("ZA1234XY".to_owned()),
        profile: "hdd".to_owned(),
        profile_hash: "0123456789abcdef".to_owned(),
    };
    let since = Moment::at(1_790_000_000);
    let piece = |op: &str, sector: u64| PieceView {
        op: op.to_owned(),
        sector,
        position_bytes: sector * 512,
        length_bytes: 8_192,
    };
    let mut buckets = [0; engine::dispatcher::BUCKETS];
    (buckets[9], buckets[31]) = (2, 1);
    let history = History {
        kinds: vec![KindRow {
            op: "read".to_owned(),
            user: "stream".to_owned(),
            length_bytes_max: 8_192,
            count: 3,
            overruns: 1,
            predicted_ns: 30_000_000,
            actual_ns: 28_000_000,
            excess_max_ns: 8_000_000,
            took_permille_max: 1_800,
            buckets,
        }],
        days: vec![DayRow {
            day: Day(20_717),
            count: 3,
            overruns: 1,
        }],
        slower_since: Some(Moment::at(1_790_000_060)),
        overruns: vec![OverrunView {
            at: "2026-09-21T13:34:00Z".to_owned(),
            piece: piece("read", 99),
            user: "stream".to_owned(),
            predicted_ns: 10_000_000,
            actual_ns: 18_000_000,
            host_ns: 0,
            before: Some(piece("write", 7)),
            idle_before_ns: 500,
        }],
        earlier: vec![EarlierRow {
            profile: "guess".to_owned(),
            profile_hash: "fedcba9876543210".to_owned(),
            serial: None,
            since: Moment::at(1_780_000_000),
            until: since,
            count: 12,
            overruns: 0,
            took_permille_max: 700,
            slower_since: None,
            faster_since: Some(Moment::at(1_785_000_000)),
        }],
        ..History::new(subject, "/dev/sda".to_owned(), since)
    };
    Stored::new(POOL.to_owned(), vec![history])
}

#[test]
fn file_has_this_form_and_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    // A missing folder is created.
    let path = path(&folder.path().join("state"), POOL);
    assert_eq!(read(&path, POOL), (Vec::new(), None));
    write(&path, &stored()).unwrap();
    insta::assert_snapshot!("service-times", std::fs::read_to_string(&path).unwrap());
    assert_eq!(read(&path, POOL), (stored().disks, None));
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(files.count(), 1, "the temporary file has become the file");
}

#[test]
fn unusable_file_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(folder.path(), POOL);
    write(&path, &stored()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let newer = text.replace("\"version\": 1", "\"version\": 2");
    let foreign = text.replace(POOL, "ff");
    let fewer = text
        .replacen("    0,\n", "", 1)
        .replacen("            0,\n", "", 1);
    for (content, reason) in [
        ("", "damaged"),
        ("{\"version\": 1}", "damaged"),
        (&text[..text.len() / 2], "damaged"),
        (&text.replace("\"count\"", "\"number\""), "damaged"),
        (&text.replace("2026-09-21T", "2026-99-21T"), "damaged"),
        (&fewer, "damaged"),
        (&newer, "version 2"),
        (&foreign, "of pool ff"),
    ] {
        std::fs::write(&path, content).unwrap();
        let (disks, problem) = read(&path, POOL);
        let problem = problem.expect(content);
        assert!(disks.is_empty() && problem.contains(reason), "{problem}");
        assert!(!path.exists(), "{problem}");
        let aside = folder
            .path()
            .join(format!("service-times-{POOL}.json.damaged"));
        assert_eq!(std::fs::read_to_string(aside).unwrap(), content);
    }
}

#[test]
fn another_profile_or_drive_begins_a_new_history() {
    let old = stored().disks.remove(0);
    let now = Moment::at(1_795_000_000);
    let same = old
        .clone()
        .continued(old.subject.clone(), "/dev/sdb".to_owned(), now);
    assert_eq!(same.name, "/dev/sdb");
    assert_eq!((same.since, same.count()), (old.since, 3));
    let other = Subject {
        profile_hash: "00".to_owned(),
        ..old.subject.clone()
    };
    let drive = Subject {
        serial: None,
        ..old.subject.clone()
    };
    for subject in [other, drive] {
        let new = old.clone().continued(subject, "/dev/sda".to_owned(), now);
        assert_eq!((new.since, new.count(), new.days.len()), (now, 0, 0));
        let [guess, summary] = &new.earlier[..] else {
            panic!("{:?}", new.earlier);
        };
        assert_eq!(guess, &old.earlier[0]);
        assert_eq!((summary.since, summary.until), (old.since, now));
        assert_eq!((summary.count, summary.overruns), (3, 1));
        assert_eq!(summary.slower_since, old.slower_since);
        assert_eq!(summary.serial, old.subject.serial);
    }
    let mut many = old;
    for number in 0..20 {
        let subject = Subject {
            profile_hash: format!("{number}"),
            ..many.subject.clone()
        };
        many = many.continued(subject, "/dev/sda".to_owned(), now);
    }
    assert_eq!(many.earlier.len(), 8);
}
