//! Pools on disks that are missing, doubled, foreign, damaged or too new: each is told by name, and
//! nothing is lost.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{DISK_MIB, Site};

/// One block of metadata.
const BLOCK: usize = 4096;

/// Where the second copy of a disk's superblock begins.
const SECOND_COPY: u64 = DISK_MIB * (1 << 20) - BLOCK as u64;

fn change(disk: &Path, at: u64, change: impl FnOnce(&mut [u8; BLOCK])) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(disk)
        .expect("the disk is there");
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, at).expect("it can be read");
    change(&mut block);
    file.write_all_at(&block, at).expect("it can be written");
}

/// A torn write: the first half is new, the second never came.
fn tear(disk: &Path, at: u64) {
    change(disk, at, |block| block[64..512].fill(0xa5));
}

/// CRC-64/NVME, bit by bit: the format's checksum, from its definition and not from its code.
fn checksum(bytes: &[u8]) -> u64 {
    let mut crc = u64::MAX;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x9a6c_9329_ac4b_c9b5
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

/// What is wrong is a check's result, not its failure: it is on standard output.
#[track_caller]
fn is_unsound(site: &Site, finding: &str) {
    let outcome = site.run(&["pool", "check"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.out.contains(finding), "{outcome:?}");
}

fn pool(disks: usize) -> Site {
    let site = Site::new(disks);
    site.run(&["pool", "create"]).done();
    site
}

#[test]
fn a_new_pool_is_sound_and_is_not_made_twice_by_accident() {
    let site = pool(2);
    let report = site.json(&["pool", "check"]);
    assert_eq!(report["name"], "test");
    assert!(
        report["findings"]
            .as_array()
            .expect("findings")
            .iter()
            .all(|finding| finding["is_error"] == false)
    );
    site.run(&["pool", "create"])
        .fails(1, &["disk-0", "would be lost", "--force"]);
    site.run(&["pool", "create", "--force"]).done();
    assert!(site.run(&["pool", "check"]).done().out.contains("sound"));
}

#[test]
fn a_missing_disk_is_named_and_comes_back_with_everything() {
    let site = pool(2);
    std::fs::rename(site.path("disk-1"), site.path("elsewhere"))
        .expect("the disk can be taken out");
    site.run(&["serve"]).fails(2, &["disk-1", "not there"]);
    // A configuration that does not name it at all.
    site.configure(&["disk-0".to_owned()]);
    site.run(&["serve"]).fails(1, &["incomplete"]);
    is_unsound(&site, "disk 1 of the pool's 2 is missing");
    // Anywhere and in any order.
    site.configure(&["elsewhere".to_owned(), "disk-0".to_owned()]);
    assert!(site.run(&["pool", "check"]).done().out.contains("sound"));
}

#[test]
fn a_disk_of_another_pool_is_named() {
    let (site, other) = (pool(2), pool(2));
    std::fs::copy(other.path("disk-1"), site.path("disk-1")).expect("a copy");
    site.run(&["serve"]).fails(1, &["disk-1"]);
}

#[test]
fn a_disk_that_is_there_twice_is_named() {
    let site = pool(2);
    std::fs::copy(site.path("disk-0"), site.path("copy")).expect("a copy");
    site.configure(&["disk-0".to_owned(), "disk-1".to_owned(), "copy".to_owned()]);
    site.run(&["serve"]).fails(1, &["copy"]);
}

#[test]
fn a_disk_that_is_no_disk_of_a_pool_is_named() {
    let site = pool(2);
    std::fs::write(site.path("blank"), vec![0; (DISK_MIB << 20) as usize]).expect("a blank disk");
    site.configure(&["disk-0".to_owned(), "blank".to_owned()]);
    site.run(&["serve"]).fails(1, &["blank"]);
}

#[test]
fn one_torn_copy_of_a_superblock_does_no_harm() {
    for at in [0, SECOND_COPY] {
        let site = pool(2);
        tear(&site.path("disk-0"), at);
        let server = site.serve();
        site.run(&["volume", "create", "v", "--size", "2MiB"])
            .done();
        assert_eq!(server.terminate().0, Some(0));
    }
}

#[test]
fn two_torn_copies_are_told_and_nothing_is_written() {
    let site = pool(2);
    tear(&site.path("disk-0"), 0);
    tear(&site.path("disk-0"), SECOND_COPY);
    let before = common::read(&site.path("disk-1"));
    site.run(&["serve"]).fails(1, &["disk-0"]);
    is_unsound(&site, "disk-0: both copies of its superblock are damaged");
    assert!(
        before == common::read(&site.path("disk-1")),
        "the other disk was changed"
    );
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let site = pool(1);
    for at in [0, SECOND_COPY] {
        change(&site.path("disk-0"), at, |block| {
            block[8..12].copy_from_slice(&99u32.to_le_bytes());
            block[16..24].fill(0);
            let sum = checksum(block);
            block[16..24].copy_from_slice(&sum.to_le_bytes());
        });
    }
    site.run(&["serve"]).fails(1, &["disk-0", "version 99"]);
}

#[test]
fn a_pool_is_served_once() {
    let (site, server) = Site::serving(1);
    site.run(&["serve"]).fails(2, &["disk-0", "in use"]);
    site.run(&["pool", "check"]).fails(2, &["disk-0", "in use"]);
    site.run(&["pool", "create", "--force"])
        .fails(2, &["disk-0", "in use"]);
    assert_eq!(server.terminate().0, Some(0));
    site.run(&["pool", "check"]).done();
}
