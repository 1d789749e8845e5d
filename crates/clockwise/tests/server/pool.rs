//! Pools on disks that are missing, doubled, foreign, damaged or too new: each is told by name, and
//! nothing is lost.

use testkit::host::Loop;
use testkit::site::damage::{SECOND_COPY, make_newer, tear};
use testkit::site::{DISK_MIB, Site, read_text};

/// Faults are the result of a check, not its failure: they are on standard output.
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
fn an_extent_size_that_is_none_makes_no_pool_and_harms_none() {
    let site = Site::new(1);
    let refused = |extent: &str, words: &[&str]| {
        let outcome = site.run(&["pool", "create", &format!("--extent={extent}")]);
        outcome.fails(2, words);
        assert!(
            !outcome.err.contains("`clockwise pool create`"),
            "{outcome:?}"
        );
        outcome
    };
    let power = &[
        "the extent size",
        "a power of two from 64 KiB to 1 GiB",
        "such as 1 MiB",
    ];
    for (extent, told) in [
        ("100KB", "97.66 KiB"),
        ("1.5MiB", "1.50 MiB"),
        ("32KiB", "32 KiB"),
        ("2GiB", "2 GiB"),
        ("512", "512 B"),
        ("18446744073709551615", "16.00 EiB"),
    ] {
        refused(extent, power).fails(2, &[told]);
    }
    refused("0", &["--extent", "zero"]);
    refused("-1MiB", &["--extent", "negative"]);
    refused("99999999999999PiB", &["--extent", "too large"]);
    refused("much", &["--extent", "not a number"]);
    assert!(!site.path("disk-0").exists(), "a disk was made for nothing");
    // A size that is one, but not for disks like these.
    refused(
        "1GiB",
        &[
            "disk-0",
            "too small",
            "64 MiB",
            "smaller extents",
            "--extent 1MiB",
        ],
    );
    assert!(!site.path("disk-0").exists(), "a disk is left of no pool");
    site.run(&["pool", "create", "--extent", "1MiB"]).done();
    let before = testkit::site::read(&site.path("disk-0"));
    for extent in ["100KB", "1GiB"] {
        let forced = site.run(&["pool", "create", "--force", "--extent", extent]);
        forced.fails(2, &["extent"]);
    }
    assert!(
        before == testkit::site::read(&site.path("disk-0")),
        "the pool was harmed"
    );
    // The configuration's own is checked in the same way.
    let text = String::from_utf8(testkit::site::read(&site.config())).expect("text");
    let wrong = text.replace("extent = \"1MiB\"", "extent = \"3MiB\"");
    std::fs::write(site.config(), wrong).expect("the configuration can be written");
    site.run(&["pool", "create", "--force"]).fails(2, power);
}

#[test]
fn no_file_is_left_of_a_pool_that_could_not_be_made() {
    let site = Site::new(1);
    site.configure(&["disk-0".to_owned(), "nowhere/disk-1".to_owned()]);
    site.run(&["pool", "create"])
        .fails(2, &["nowhere/disk-1", "cannot create it"]);
    assert!(!site.path("disk-0").exists());
    // Existing contents stay.
    std::fs::write(site.path("disk-0"), "mine").expect("a file");
    let disk = std::fs::OpenOptions::new()
        .append(true)
        .open(site.path("disk-0"));
    disk.and_then(|disk| disk.set_len(DISK_MIB << 20))
        .expect("it is sparse");
    site.run(&["pool", "create"]).fails(2, &["nowhere/disk-1"]);
    assert!(testkit::site::read(&site.path("disk-0")).starts_with(b"mine"));
    std::fs::remove_file(site.path("disk-0")).expect("it is there");
    std::fs::create_dir(site.path("nowhere")).expect("a folder");
    site.run(&["pool", "create"]).done();
    assert!(site.run(&["pool", "check"]).done().out.contains("sound"));
}

/// Disks with contents are taken only by force.
#[test]
fn a_disk_that_is_too_small_is_told_so() {
    let site = Site::new(1);
    let as_it_is = read_text(&site.config()).replace("size = \"64MiB\"\n", "");
    std::fs::write(site.config(), as_it_is).expect("the configuration can be written");
    std::fs::write(site.path("disk-0"), vec![0; 1 << 10]).expect("a file");
    for create in [&["pool", "create"][..], &["pool", "create", "--force"]] {
        let refused = site.run(create);
        refused.fails(2, &["disk-0 is too small", "1 KiB", "larger disks"]);
    }
}

#[test]
fn a_missing_disk_is_named_and_comes_back_with_everything() {
    let site = pool(2);
    std::fs::rename(site.path("disk-1"), site.path("elsewhere"))
        .expect("the disk can be taken out");
    site.run(&["serve"]).fails(2, &["disk-1", "does not exist"]);
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
    site.run(&["serve"])
        .fails(1, &["disk-1: belongs to another pool"]);
}

#[test]
fn a_disk_that_is_there_twice_is_named() {
    let site = pool(2);
    std::fs::copy(site.path("disk-0"), site.path("copy")).expect("a copy");
    site.configure(&["disk-0".to_owned(), "disk-1".to_owned(), "copy".to_owned()]);
    let twice = ["disk-0 and ", "copy: both are disk 0 of the pool"];
    site.run(&["serve"]).fails(1, &twice);
}

#[test]
fn a_disk_that_is_no_disk_of_a_pool_is_named() {
    let site = pool(2);
    std::fs::write(site.path("blank"), vec![0; (DISK_MIB << 20) as usize]).expect("a blank disk");
    site.configure(&["disk-0".to_owned(), "blank".to_owned()]);
    site.run(&["serve"])
        .fails(1, &["blank: not a Clockwise disk (no superblock)"]);
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
    let before = testkit::site::read(&site.path("disk-1"));
    site.run(&["serve"])
        .fails(1, &["disk-0: both copies of its superblock are damaged"]);
    is_unsound(&site, "disk-0: both copies of its superblock are damaged");
    assert!(
        before == testkit::site::read(&site.path("disk-1")),
        "the other disk was changed"
    );
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let site = pool(1);
    for at in [0, SECOND_COPY] {
        make_newer(&site.path("disk-0"), at);
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

#[test]
fn a_new_pool_says_how_large_its_extents_are_and_what_that_rests_on() {
    let site = Site::new(1);
    let chosen = site.run(&["pool", "create"]).done();
    assert!(chosen.out.contains("extents of 1 MiB"), "{chosen:?}");
    assert!(!chosen.out.contains("not measured"), "{chosen:?}");
    // Large enough for extents of any size; nothing of it is written but the pool's own structures.
    let site = Site::new(1);
    let text = String::from_utf8(testkit::site::read(&site.config())).expect("text");
    let open = text
        .replace("extent = \"1MiB\"\n", "")
        .replace(&format!("size = \"{DISK_MIB}MiB\""), "size = \"2GiB\"");
    std::fs::write(site.config(), open).expect("the configuration can be written");
    let proposed = site.run(&["pool", "create"]).done();
    assert!(proposed.out.contains("not measured"), "{proposed:?}");
    let made = site.json(&["pool", "create", "--force"]);
    assert_eq!(made["profiles_are_measured"], false, "{made}");
    let serve = site.serve();
    assert_eq!(
        site.json(&["pool", "show"])["extent_bytes"],
        made["extent_bytes"]
    );
    assert_eq!(serve.terminate().0, Some(0));
}

#[test]
fn a_shipped_profile_was_measured_on_no_disk_of_anybody() {
    const ATLAS: &str = include_str!("../../../sched/profiles/quantum-atlas-ii.toml");
    assert!(ATLAS.contains("measured = true"), "measured by the papers");
    let site = Site::new(3);
    std::fs::write(site.path("own.toml"), ATLAS).expect("a profile");
    let text = String::from_utf8(testkit::site::read(&site.config())).expect("text");
    let file = |number: u64, profile: &str| {
        let path = format!("path = \"disk-{number}\"\nkind = \"file\"\n");
        (path.clone(), format!("{path}profile = \"{profile}\"\n"))
    };
    let emulated =
        "kind = \"emulated\"\nplant = \"quantum-atlas-ii\"\nprofile = \"quantum-atlas-ii\"\n";
    let [shipped, own] = [file(0, "quantum-atlas-ii"), file(1, "own.toml")];
    let last = text.rfind("kind = ").expect("three disks");
    let text = text[..last]
        .replace(&shipped.0, &shipped.1)
        .replace(&own.0, &own.1)
        + emulated;
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    // A file that somebody says it of, and a drive that is emulated as the one that was measured.
    for (number, is_measured) in [("0", false), ("1", true), ("2", true)] {
        let disk = site.json(&["disk", "show", number]);
        assert_eq!(disk["profile"], "quantum-atlas-ii", "{disk}");
        assert_eq!(disk["profile_is_measured"], is_measured, "{disk}");
        let shown = site.run(&["disk", "show", number]).done().out;
        assert_eq!(
            shown.contains("not measured on this disk"),
            !is_measured,
            "{shown}"
        );
    }
    let status = site.json(&["status"]);
    let warnings = status["warnings"].as_array().expect("warnings").iter();
    let of_profile = |what: &str| what.contains("not measured on this disk");
    let mut unmeasured = warnings.filter(|one| one["what"].as_str().is_some_and(of_profile));
    let concerns = unmeasured.next().map(|one| one["concerns"].clone());
    let first = site.path("disk-0").display().to_string();
    assert_eq!(concerns, Some([first].as_slice().into()), "{status}");
    assert!(unmeasured.next().is_none(), "{status}");
    assert_eq!(server.terminate().0, Some(0));
}

/// A device in the configuration, beside what is there.
fn add_device(site: &Site, device: &Loop) {
    let text = read_text(&site.config())
        + &format!(
            "[[disk]]\npath = \"{}\"\nkind = \"block\"\n",
            device.path().display()
        );
    std::fs::write(site.config(), text).expect("the configuration");
}

const TAKEN_OVER: [&str; 3] = [
    "disk-0: another server has opened the pool since",
    "stopped writing",
    "find the other server",
];

/// One disk has two names: a file, and a loop device over it. No lock is on both.
#[test]
fn first_of_two_servers_on_one_disk_stops_and_the_pool_is_whole() {
    let (site, first) = Site::serving(1);
    let Some(device) = Loop::attach(&site.path("disk-0"), 512) else {
        return;
    };
    let create = |site: &Site, name: &str| site.run(&["volume", "create", name, "--size", "3MiB"]);
    create(&site, "before").done();
    let other = Site::new(0);
    add_device(&other, &device);
    let second = other.serve();
    create(&other, "after").done();
    // The other may have looked, and ended, before.
    assert_ne!(create(&site, "lost").code, 0);
    let (code, log) = first.end();
    assert_eq!(code, Some(4), "{log}");
    for words in TAKEN_OVER {
        assert!(log.contains(words), "no {words:?} in {log}");
    }
    create(&other, "later").done();
    assert_eq!(second.terminate().0, Some(0));
    let report = other.json(&["pool", "check"]);
    assert_eq!(report["findings"], serde_json::json!([]), "{report}");
    assert_eq!(report["volumes"], 3);
}

/// The first has nothing to write, and ends all the same.
#[test]
fn first_of_two_servers_on_one_disk_ends_by_itself() {
    let (site, first) = Site::serving(1);
    let Some(device) = Loop::attach(&site.path("disk-0"), 512) else {
        return;
    };
    let other = Site::new(0);
    add_device(&other, &device);
    let second = other.serve();
    let (code, log) = first.end();
    assert_eq!(code, Some(4), "{log}");
    for words in TAKEN_OVER {
        assert!(log.contains(words), "no {words:?} in {log}");
    }
    assert_eq!(second.terminate().0, Some(0));
}

#[test]
fn no_pool_is_made_of_one_disk_under_two_names() {
    let site = Site::new(1);
    let file = std::fs::File::create(site.path("disk-0")).expect("a file");
    file.set_len(DISK_MIB << 20).expect("it is sparse");
    let alone = read_text(&site.config());
    let Some(device) = Loop::attach(&site.path("disk-0"), 512) else {
        return;
    };
    add_device(&site, &device);
    let both = format!(
        "disk-0 and {} are two names of one disk",
        device.path().display()
    );
    site.run(&["pool", "create"])
        .fails(2, &[&both, "name each disk once"]);
    // The unfinished pool is no obstacle.
    std::fs::write(site.config(), alone).expect("the configuration");
    site.run(&["pool", "create"]).done();
    assert!(site.run(&["pool", "check"]).done().out.contains("sound"));
}

#[test]
fn creation_only_setting_is_refused_later_with_advice() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let text = read_text(&site.config());
    let text = text.replace("extent = \"1MiB\"", "extent = \"4MiB\"");
    let text = text.replace("size = \"64MiB\"", "size = \"128MiB\"");
    std::fs::write(site.config(), text).expect("the configuration can be written");
    let told = [
        "`extent` is 4 MiB in the configuration and has no effect: the pool was created with 1 MiB",
        "`size` is 128 MiB in the configuration and has no effect: the file was created with 64 MiB",
        "correct the configuration, or create the pool again",
        "remove `size` from the configuration; or remove the file and run `clockwise pool create --force`",
    ];
    let server = site.serve();
    let status = site.run(&["status"]).done().out;
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    let checked = site.run(&["pool", "check"]).done().out;
    for said in [&status, &log, &checked] {
        for words in told {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
    }
    // A file that is there has the size that it has.
    let words = ["disk-0", "the file has 64 MiB, but `size` is 128 MiB"];
    site.run(&["pool", "create", "--force"]).fails(2, &words);
    std::fs::remove_file(site.path("disk-0")).expect("it is there");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    assert_eq!(site.json(&["pool", "show"])["extent_bytes"], 4 << 20);
    let status = site.run(&["status"]).done().out;
    assert!(!status.contains("has no effect"), "{status}");
    assert_eq!(server.terminate().0, Some(0));
}
