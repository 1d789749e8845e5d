//! `clockwise pool check` on pools that are damaged in every way that it tells apart: what, on which
//! disk, what to do about it, the exit status, and that looking changes nothing.

use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use testkit::site::damage::{LogRecord, SECOND_COPY, TABLES, change, make_newer, records, tear};
use testkit::site::{Site, read};

/// Disks of each pool.
const DISKS: usize = 2;

fn pool() -> Site {
    let site = Site::new(DISKS);
    site.run(&["pool", "create"]).done();
    site
}

fn contents(site: &Site) -> Vec<Vec<u8>> {
    (0..DISKS)
        .map(|disk| read(&site.path(&format!("disk-{disk}"))))
        .collect()
}

/// Checks that the check ends with `code` and finds exactly this: on which disk, whether it is an
/// error, what, what to do. The text for people says the same, and the disks are as before.
#[track_caller]
fn finds(site: &Site, code: i32, wanted: &[(&str, bool, &str, &str)]) {
    let before = contents(site);
    let outcome = site.run(&["--json", "pool", "check"]);
    assert_eq!(outcome.code, code, "{outcome:?}");
    let report = outcome.json();
    let findings = report["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), wanted.len(), "{findings:#?}");
    let text = site.run(&["pool", "check"]);
    assert_eq!(text.code, code, "{text:?}");
    for (finding, (disk, is_error, what, help)) in findings.iter().zip(wanted) {
        let disk = site.path(disk).display().to_string();
        assert_eq!(finding["disk"], *disk, "{finding}");
        assert_eq!(finding["is_error"], *is_error, "{finding}");
        let said = |part: &str| finding[part].as_str().unwrap_or_default().to_owned();
        assert!(said("what").contains(what), "{finding}");
        assert!(said("remedy").contains(help), "{finding}");
        let kind = if *is_error { "error" } else { "note" };
        let line = format!(
            "{kind}: {disk}: {}\n  help: {}\n",
            said("what"),
            said("remedy")
        );
        assert!(text.out.contains(&line), "no {line:?} in {text:?}");
    }
    assert!(before == contents(site), "a check changed a disk");
}

/// Checks that the pool is not served either, with the same words.
#[track_caller]
fn is_not_served(site: &Site, words: &[&str]) {
    let before = contents(site);
    site.run(&["serve"]).fails(1, words);
    assert!(before == contents(site), "a disk was changed");
}

/// Serves the pool while volumes are made.
fn with_volumes(names: &[&str]) -> (Site, testkit::site::Serve) {
    let site = pool();
    let server = site.serve();
    for name in names {
        let made = site.run(&["volume", "create", name, "--size", "3MiB"]);
        made.done();
    }
    (site, server)
}

/// Loses a record: its first sectors are not what was written.
fn lose(record: &LogRecord) {
    change(&record.disk, record.at, |block| block[72..512].fill(0xa5));
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("a copy");
}

#[test]
fn a_newer_version_in_both_copies_or_in_one() {
    for places in [&[0, SECOND_COPY][..], &[0], &[SECOND_COPY]] {
        let site = pool();
        for at in places {
            make_newer(&site.path("disk-1"), *at);
        }
        let (what, help) = ("format version 99", "or a later one");
        let outcome = site.run(&["--json", "pool", "check"]).json();
        // The pool's own list is not complete without that disk.
        assert_eq!(outcome["findings"].as_array().map(Vec::len), Some(2));
        let first = &outcome["findings"][0];
        assert_eq!(first["disk"], *site.path("disk-1").display().to_string());
        assert!(
            first["what"]
                .as_str()
                .is_some_and(|said| said.contains(what)),
            "{first}"
        );
        assert!(
            first["remedy"]
                .as_str()
                .is_some_and(|said| said.contains(help)),
            "{first}"
        );
        assert_eq!(site.run(&["pool", "check"]).code, 1);
        is_not_served(&site, &["disk-1", what, help]);
    }
}

#[test]
fn one_torn_superblock_is_a_note_and_goes_with_the_next_start() {
    for (at, which) in [(0, "first"), (SECOND_COPY, "second")] {
        let site = pool();
        tear(&site.path("disk-1"), at);
        let what = format!("the {which} copy of its superblock is damaged");
        finds(&site, 0, &[("disk-1", false, &what, "nothing")]);
        assert_eq!(site.serve().terminate().0, Some(0));
        finds(&site, 0, &[]);
    }
}

#[test]
fn two_torn_superblocks_are_an_error() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    for at in [0, SECOND_COPY] {
        tear(&site.path("disk-0"), at);
    }
    let outcome = site.run(&["--json", "pool", "check"]);
    assert_eq!(outcome.code, 1);
    let report = outcome.json();
    let finding = &report["findings"][0];
    assert_eq!(finding["disk"], *site.path("disk-0").display().to_string());
    assert_eq!(finding["what"], "both copies of its superblock are damaged");
    assert!(
        finding["remedy"]
            .as_str()
            .is_some_and(|said| said.contains("restore a copy")),
        "{finding}"
    );
    site.run(&["serve"]).fails(
        1,
        &[
            "disk-0",
            "both copies of its superblock are damaged",
            "restore a copy",
        ],
    );
    // Something is there that would be lost.
    site.run(&["pool", "create"])
        .fails(1, &["disk-0", "belongs to a pool", "--force"]);
}

#[test]
fn a_disk_with_anything_on_it_is_not_taken_unasked() {
    // An ext4 superblock's magic number, and the copy of a partition table at the disk's end.
    let ends = testkit::site::DISK_MIB << 20;
    let marks = [
        (
            1080,
            &b"\x53\xef"[..],
            "it has a file system (ext2, ext3 or ext4) at offset",
        ),
        (ends - 512, b"EFI PART", "it has unknown data at offset"),
    ];
    for (at, mark, says) in marks {
        let site = Site::new(2);
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let disk = options.open(site.path("disk-1")).expect("a file");
        disk.set_len(ends).expect("it is sparse");
        disk.write_all_at(mark, at).expect("it can be written");
        site.run(&["pool", "create"])
            .fails(1, &["disk-1", says, "--force"]);
        let mut kept = vec![0; mark.len()];
        disk.read_exact_at(&mut kept, at).expect("it can be read");
        assert_eq!(kept, mark);
        site.run(&["pool", "create", "--force"]).done();
    }
}

#[test]
fn a_disk_that_was_away_while_the_pool_changed_is_stale() {
    for disk in ["disk-0", "disk-1"] {
        let site = pool();
        copy(&site.path(disk), &site.path("old"));
        let server = site.serve();
        site.run(&["volume", "create", "v", "--size", "3MiB"])
            .done();
        assert_eq!(server.terminate().0, Some(0));
        copy(&site.path(disk), &site.path("new"));
        copy(&site.path("old"), &site.path(disk));
        let help = "lacks later writes";
        finds(
            &site,
            1,
            &[(disk, true, "is stale: it was left at generation 1", help)],
        );
        is_not_served(&site, &[disk, "is stale", help]);
        // The right one in its place, and all is there.
        copy(&site.path("new"), &site.path(disk));
        finds(&site, 0, &[]);
        let server = site.serve();
        assert_eq!(site.json(&["volume", "show", "v"])["size_bytes"], 3 << 20);
        assert_eq!(server.terminate().0, Some(0));
    }
}

#[test]
fn one_damaged_table_is_a_note_and_two_are_an_error() {
    let (site, server) = with_volumes(&["v"]);
    assert_eq!(server.terminate().0, Some(0));
    // The table that is out of date may be damaged; which one that is shows in its generation.
    let disk = read(&site.path("disk-0"));
    let generation = |at: u64| {
        let at = at as usize + 32;
        u64::from_le_bytes(disk[at..at + 8].try_into().expect("eight bytes"))
    };
    let older = TABLES.map(generation);
    let older = usize::from(older[1] < older[0]);
    tear(&site.path("disk-0"), TABLES[older]);
    let what = format!("copy {older} of the volume table is damaged");
    finds(&site, 0, &[("disk-0", false, &what, "nothing")]);
    tear(&site.path("disk-0"), TABLES[1 - older]);
    let (what, help) = (
        "neither copy of the volume table is readable",
        "restore copies",
    );
    finds(&site, 1, &[("disk-0", true, what, help)]);
    is_not_served(&site, &["disk-0", what, help]);
}

#[test]
fn a_damaged_record_in_the_log_is_an_error_and_not_its_end() {
    let (site, server) = with_volumes(&["a", "b", "c", "d"]);
    // Without a checkpoint at its end everything is in the log.
    let _ = server.kill();
    finds(&site, 0, &[]);
    let log = records(&site, DISKS);
    let epoch = log
        .iter()
        .map(|record| record.epoch)
        .max()
        .expect("records");
    let mut transactions: Vec<u64> = log
        .iter()
        .filter(|record| record.epoch == epoch)
        .map(|record| record.transaction)
        .collect();
    transactions.sort_unstable();
    transactions.dedup();
    assert!(transactions.len() >= 4, "{log:?}");
    let lost = transactions[transactions.len() - 2];
    let record = log
        .iter()
        .find(|record| record.epoch == epoch && record.sequence == lost)
        .expect("a transaction begins with a record");
    lose(record);
    let disk = record
        .disk
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let what = format!("record {lost} is lost, but later ones are there");
    let help = "lost acknowledged writes";
    finds(&site, 1, &[(disk, true, &what, help)]);
    is_not_served(&site, &[disk, &what, help]);
}

#[test]
fn damaged_nodes_of_volumes_are_errors() {
    let (site, server) = with_volumes(&["a", "b"]);
    assert_eq!(server.terminate().0, Some(0));
    /// The kind of record that begins a node.
    const NODE: u8 = 1;
    let nodes: Vec<LogRecord> = records(&site, DISKS)
        .into_iter()
        .filter(|record| record.kind == NODE)
        .collect();
    assert!(!nodes.is_empty());
    for node in &nodes {
        lose(node);
    }
    let outcome = site.run(&["--json", "pool", "check"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let report = outcome.json();
    let findings: &Vec<Value> = report["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), 2, "a line for each volume: {report:#}");
    for (finding, volume) in findings.iter().zip(1..) {
        let disk = finding["disk"].as_str().expect("a disk");
        assert!(
            nodes.iter().any(|node| node.disk == Path::new(disk)),
            "{finding}"
        );
        let what = format!("the node of volume {volume} at disk");
        assert!(
            finding["what"]
                .as_str()
                .is_some_and(|said| said.starts_with(&what)),
            "{finding}"
        );
        assert_eq!(finding["is_error"], true);
    }
    is_not_served(
        &site,
        &["the node of volume 1", "damaged record", "restore copies"],
    );
}
