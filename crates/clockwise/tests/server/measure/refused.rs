//! Drives that are not measured, files that are not samples, and profiles that are not profiles.

use std::process::Stdio;

use testkit::host::Loop;
use testkit::process::run as run_tool;
use testkit::site::{Site, read_text};
use testkit::skip::have;
use testkit::until;

use super::*;

#[test]
fn bad_targets_and_options_are_refused_before_anything_is_measured() {
    let bench = Bench::new();
    let disk = bench.file("disk", 16);
    let none = bench.path("none");
    bench
        .measure(&none, &[])
        .fails(2, &["does not exist", "lsblk"]);
    let folder = bench.folder.path();
    bench
        .measure(folder, &[])
        .fails(2, &["neither a block device nor a file"]);
    let small = bench.file("small", 4);
    bench
        .measure(&small, &[])
        .fails(2, &["8192 sectors", "at least 16384", "larger device"]);
    bench
        .measure(&disk, &["--write"])
        .fails(2, &["destroys all data", "--destroy disk"]);
    bench
        .measure(&disk, &["--write", "--destroy", "disc"])
        .fails(2, &["\"disc\" is not the name", "nothing is written"]);
    bench
        .measure(&disk, &["--write", "--read-only", "--destroy", "disk"])
        .fails(2, &["cannot be used with"]);
    bench
        .measure(&disk, &["--quick", "--thorough"])
        .fails(2, &["cannot be used with"]);
    bench
        .measure(&disk, &["--plant", "no-such-drive"])
        .fails(2, &["no drive model", "quantum-atlas-ii"]);
    bench
        .measure(&disk, &["--plant", "quantum-atlas-ii"])
        .fails(2, &["--plant"]);
    let nowhere = bench.path("no/report.html").display().to_string();
    bench
        .measure(&disk, &["--report", &nowhere])
        .fails(2, &["cannot be written", "folder"]);
    let report = bench.path("report.html");
    std::fs::write(&report, "mine").expect("a file");
    let of_mine = report.display().to_string();
    bench
        .measure(&disk, &["--report", &of_mine])
        .fails(2, &["report.html exists", "--force"]);
    assert_eq!(read_text(&report), "mine");
    // A drive that another program uses.
    let user = std::fs::File::open(&disk).expect("a file");
    rustix::fs::flock(&user, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    bench
        .measure(&disk, &[])
        .fails(2, &["in use", "--read-only"]);
    drop(user);
    for name in ["p.toml", "p.toml.samples", "p.toml.settings"] {
        assert!(!bench.path(name).exists(), "{name}");
    }
    std::fs::write(bench.path("p.toml"), "mine").expect("a file");
    bench
        .measure(&disk, &[])
        .fails(2, &["p.toml exists", "--force"]);
    assert_eq!(read_text(&bench.path("p.toml")), "mine");
}

#[test]
fn settings_of_another_drive_are_not_restored_on_this_one() {
    let bench = Bench::new();
    let disk = bench.file("disk", 16);
    let kept = "device = \"/dev/sdq\"\nserial = \"Z1\"\n\
                [[before]]\nsetting = \"write-cache\"\ntool = \"hdparm\"\nwas = \"on\"\n";
    std::fs::write(bench.path("p.toml.settings"), kept).expect("a file");
    bench.measure(&disk, &[]).fails(
        2,
        &["/dev/sdq", "serial number Z1", "restores its settings"],
    );
    std::fs::write(bench.path("p.toml.settings"), "nonsense").expect("a file");
    bench
        .measure(&disk, &[])
        .fails(2, &["p.toml.settings", "remove that file"]);
}

#[test]
fn settings_of_a_measurement_under_way_stay_as_they_are() {
    let bench = Bench::new();
    let disk = bench.file("disk", 16);
    let at = std::fs::canonicalize(&disk).expect("the disk");
    let at = at.display();
    let settings = bench.path("p.toml.settings");
    let kept = format!("device = \"{at}\"\nserial = \"file:{at}\"\n");
    std::fs::write(&settings, kept).expect("a file");
    let lock = |path: &Path| {
        let file = std::fs::File::create_new(path).or_else(|_| std::fs::File::open(path));
        let file = file.expect("a file");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
        file
    };
    let under_way = lock(&disk);
    bench.measure(&disk, &[]).fails(2, &["in use"]);
    assert!(settings.exists());
    drop(under_way);
    // Beside other users the drive is not locked.
    let under_way = lock(&bench.path("p.toml.samples"));
    bench
        .measure(&disk, &["--read-only"])
        .fails(2, &["another measurement writes these samples"]);
    assert!(settings.exists());
    drop(under_way);
    let said = bench.measure(&disk, &["--quick"]).done();
    assert!(said.err.contains("they are restored now"), "{said:?}");
    assert!(!settings.exists());
}

#[test]
fn samples_of_another_measurement_are_refused_until_they_are_discarded() {
    let bench = Bench::new();
    let disk = bench.file("disk", 16);
    bench.measure(&disk, &["--quick", "--keep-samples"]).done();
    let samples = bench.path("p.toml.samples");
    let whole = read(&samples);
    let other = bench.file("other", 16);
    let force = ["--quick", "--force"];
    bench
        .measure(&other, &force)
        .fails(2, &["another drive", "--restart"]);
    bench
        .measure(&disk, &["--force"])
        .fails(2, &["other options", "--restart"]);
    std::fs::write(&samples, b"not samples at all").expect("a file");
    bench
        .measure(&disk, &force)
        .fails(2, &["not a file of", "--restart"]);
    assert_eq!(read(&samples), b"not samples at all");
    // A file that was cut anywhere continues from what is whole.
    std::fs::write(&samples, &whole[..whole.len() / 2 + 13]).expect("a file");
    let continued = bench.measure(&disk, &force).done();
    assert!(continued.err.contains("continuing after"), "{continued:?}");
    std::fs::write(&samples, b"not samples at all").expect("a file");
    let anew = [&force[..], &["--restart"]].concat();
    let begun = bench.measure(&disk, &anew).done();
    assert!(!begun.err.contains("continuing"), "{begun:?}");
}

#[test]
fn edited_profile_that_makes_no_sense_is_refused_with_its_key() {
    let site = Site::new(1);
    let bench = Bench::new();
    let disk = bench.file("disk", 16);
    bench.measure(&disk, &["--quick"]).done();
    let text = read_text(&bench.path("p.toml"));
    let config = read_text(&site.config()) + "profile = \"own.toml\"\n";
    std::fs::write(site.config(), config).expect("the configuration");
    let line = |key: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{key} =")));
        line.unwrap_or_else(|| panic!("no {key} in {text}"))
            .to_owned()
    };
    for (key, nonsense) in [
        ("samples", "samples = 0"),
        ("samples", "samples = -4"),
        ("serial", "serial = \"\""),
        ("serial", "serial = 7"),
        ("date", "date = \"yesterday\""),
        ("confidence_percent", "confidence_percent = 100"),
        ("over_actual_permille", "over_actual_permille = 0"),
        ("read_bytes_per_second", "read_bytes_per_second = 0"),
        ("kind", "kind = \"tape\""),
        ("method", "metod = \"x\""),
    ] {
        let edited = text.replace(&line(key), nonsense);
        std::fs::write(site.path("own.toml"), edited).expect("a file");
        let word = nonsense.split(' ').next().expect("a key");
        site.run(&["pool", "create"]).fails(2, &[word]);
    }
}

/// A device over a file of so many MiB.
fn device(bench: &Bench, mib: usize) -> Option<Loop> {
    Loop::attach(&bench.file("medium", mib), 512)
}

#[test]
fn mounted_device_is_refused_except_for_reads() {
    let bench = Bench::new();
    let Some(device) = device(&bench, 32) else {
        return;
    };
    if !have("mkfs.ext4") {
        return;
    }
    let path = device.path().display().to_string();
    run_tool("mkfs.ext4", &["-q", "-F", &path]);
    let at = bench.path("mounted");
    std::fs::create_dir(&at).expect("a folder");
    let at = at.display().to_string();
    run_tool("mount", &[&path, &at]);
    std::fs::write(format!("{at}/file"), pattern(2, 1 << 20)).expect("a file");
    let name = path.trim_start_matches("/dev/").to_owned();
    let refused = bench.measure(device.path(), &[]);
    let write = bench.measure(device.path(), &["--write", "--destroy", &name]);
    let read_only = bench.measure(device.path(), &["--quick", "--read-only"]);
    let kept = read(Path::new(&format!("{at}/file")));
    run_tool("umount", &[&at]);
    for refused in [refused, write] {
        refused.fails(2, &["is mounted at", "--read-only"]);
    }
    let said = read_only.done();
    assert!(
        said.out.contains("was in use during the measurement"),
        "{said:?}"
    );
    assert!(kept == pattern(2, 1 << 20));
    assert!(
        bench
            .profile()
            .measurement()
            .expect("an origin")
            .method
            .contains("writes assumed")
    );
}

#[test]
fn file_under_a_loop_device_is_refused_and_not_written() {
    let bench = Bench::new();
    let Some(device) = device(&bench, 32) else {
        return;
    };
    let medium = bench.path("medium");
    let over = format!("in use: {} is a loop device", device.path().display());
    let refused = bench.measure(&medium, &["--write", "--destroy", "medium"]);
    refused.fails(2, &[&over, "--read-only"]);
    assert!(read(&medium) == pattern(1, 32 << 20));
}

#[test]
fn device_that_disappears_ends_the_measurement_with_a_reason() {
    let bench = Bench::new();
    let Some(device) = device(&bench, 64) else {
        return;
    };
    let mut command = bench.command(device.path(), &["--thorough"]);
    let child = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let samples = bench.path("p.toml.samples");
    until("it measures", || {
        std::fs::metadata(&samples).is_ok_and(|samples| samples.len() > 40_000)
    });
    device.tear_off();
    let ended: Outcome = child.output().into();
    ended.fails(1, &["/dev/loop", "dmesg"]);
    let is_named = ["requests failed", "gone"]
        .iter()
        .any(|word| ended.err.contains(word));
    assert!(is_named, "{ended:?}");
    assert!(!bench.path("p.toml").exists());
}
