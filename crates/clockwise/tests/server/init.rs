//! `clockwise init`: from drives to a pool, with nothing lost that nobody named.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::process::{Process, run};
use testkit::site::{Outcome, Site, clockwise, outcome, read, read_text};
use testkit::skip::have;

use crate::fuse_support::{Undo, attach};
use crate::terminal::on_a_terminal;

/// A host whose configuration has no disks yet.
fn host() -> Site {
    let site = Site::new(1);
    let text = read_text(&site.config());
    let (before, _) = text.split_once("[[disk]]").expect("a disk");
    let text = format!("{before}# kept\n");
    std::fs::write(site.config(), text).expect("it can be written");
    site
}

/// A device with an ext4 on it, which is its file's content.
fn device(site: &Site) -> Option<(String, PathBuf, Undo)> {
    if !have("mkfs.ext4") {
        return None;
    }
    let file = site.path("device");
    let made = std::fs::File::create(&file).and_then(|file| file.set_len(64 << 20));
    made.expect("a file");
    run("mkfs.ext4", &["-q", &file.display().to_string()]);
    let (device, undo) = attach(&file)?;
    Some((device, file, undo))
}

/// A host, a device of it with its file, and a terminal for a person.
fn host_with_a_person() -> Option<(Site, String, PathBuf, Undo)> {
    if !have("script") {
        return None;
    }
    let site = host();
    let (device, file, undo) = device(&site)?;
    Some((site, device, file, undo))
}

fn typing(site: &Site, arguments: &[&str], lines: &str) -> (Option<i32>, String) {
    let mut command = on_a_terminal(site, arguments);
    let mut child = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut keyboard = child.stdin.take().expect("it is piped");
    let mut screen = child.heard();
    keyboard.write_all(lines.as_bytes()).expect("it listens");
    let mut shown = String::new();
    screen.read_to_string(&mut shown).expect("text");
    (child.wait().code(), shown)
}

/// Records and plays some bytes with the server of the new pool.
#[track_caller]
fn is_served(site: &Site) {
    let server = site.serve();
    site.run(&["volume", "create", "v", "--size", "1MiB"])
        .done();
    let stream = ["--volume", "v", "--rate", "100KB/s", "--block", "64KiB"];
    let from = site.path("from").display().to_string();
    std::fs::write(&from, testkit::pattern(3, 200_000)).expect("room");
    site.run(&[&["stream", "record", "--from", &from][..], &stream].concat())
        .done();
    server.terminate();
}

#[test]
fn pool_in_a_file_is_made_and_the_configuration_keeps_what_it_has() {
    let site = host();
    let before = read_text(&site.config());
    let made = site.json(&["init", "--file", "64MiB"]);
    assert_eq!(made["name"], "test", "{made}");
    assert_eq!(made["profiles_are_measured"], false);
    let next = made["next"][0].as_str().expect("a command");
    assert!(next.ends_with(" serve"), "{made}");
    let after = read_text(&site.config());
    let added = after.strip_prefix(&before).expect("the earlier text");
    assert!(added.contains("size = \"64MiB\"\n"), "{added}");
    is_served(&site);
    // A second time nothing is touched.
    let second = site.run(&["init", "--file", "64MiB"]);
    second.fails(2, &["has disks already", "pool create"]);
    assert_eq!(read_text(&site.config()), after);
}

#[test]
fn host_without_a_configuration_gets_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("new.toml");
    let init = |arguments: &[&str]| -> Outcome {
        let mut command = clockwise();
        command.arg("--config").arg(&config).arg("init");
        outcome(command.args(arguments))
    };
    init(&["--file", "1KiB"]).fails(2, &["disk-1.img is too small"]);
    assert!(!config.exists() && !folder.path().join("state/disk-1.img").exists());
    let made = init(&["--file", "512MiB"]).done();
    for words in [
        "made pool",
        "cautious guess",
        "next:",
        "serve",
        "camera add",
    ] {
        assert!(made.out.contains(words), "{words}: {}", made.out);
    }
    let mut check = clockwise();
    check.arg("--config").arg(&config).args(["pool", "check"]);
    outcome(&mut check).done();
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        2
    );
}

#[test]
fn data_is_lost_only_where_the_disk_was_named() {
    let site = host();
    let Some((device, file, _undo)) = device(&site) else {
        return;
    };
    let (config, content) = (read(&site.config()), read(&file));
    let name = device.trim_start_matches("/dev/");
    let refused = |arguments: &[&str], words: &[&str]| {
        let whole = [&["init"][..], arguments].concat();
        site.run(&whole).fails(2, words);
        assert_eq!(read(&site.config()), config, "{arguments:?}");
        assert!(read(&file) == content, "{arguments:?}");
    };
    let destroy = format!("--destroy {name}");
    refused(&[&device], &["all data would be lost", "ext4", &destroy]);
    refused(
        &[&device, "--destroy", "sdzz"],
        &["\"sdzz\" is not one of the disks"],
    );
    refused(&[&device, &device], &["named twice"]);
    refused(&["sdzz"], &["there is no drive \"sdzz\""]);
    refused(&["/dev/null"], &["no block device", "--file"]);
    refused(&["/nothing"], &["/nothing"]);
    refused(&[], &[]);
    refused(&[&device, "--file", "1GiB"], &["cannot be used with"]);
    refused(
        &["--json", &device, "--measure", "quick", "--destroy", name],
        &["--measure"],
    );
    let profile = site.path(&format!("{name}.toml"));
    std::fs::write(&profile, "nonsense").expect("room");
    refused(&[&device, "--destroy", name], &["nonsense"]);
    std::fs::remove_file(&profile).expect("it is there");
    if have("script") {
        let (code, shown) = typing(&site, &["init", &device], "none\nsdzz\n");
        assert_eq!(code, Some(2), "{shown}");
        assert!(
            shown.contains("ext4") && shown.contains("Measure now"),
            "{shown}"
        );
        assert!(shown.contains("nothing is changed"), "{shown}");
        assert!(read(&file) == content);
    }
    let listed = site.json(&["init", &device, "--list"]);
    assert_eq!(listed[0]["name"], name, "{listed}");
    assert!(
        listed[0]["contents"][0].to_string().contains("ext4"),
        "{listed}"
    );
    site.run(&["init", &device, "--destroy", name]).done();
    is_served(&site);
}

#[test]
fn used_device_is_no_disk_of_a_pool() {
    let site = host();
    let Some((device, _, _undo)) = device(&site) else {
        return;
    };
    let folder = site.path("mounted");
    std::fs::create_dir(&folder).expect("a folder");
    let point = folder.display().to_string();
    if testkit::process::output("mount", &[&device, &point])
        .status
        .success()
    {
        let _mounted = Undo("umount", vec![point.clone()]);
        let name = device.trim_start_matches("/dev/");
        let used = site.run(&["init", &device, "--destroy", name]);
        used.fails(2, &["in use", &format!("mounted at {point}")]);
        let listed = site.run(&["init", &device, "--list"]).done();
        assert!(listed.out.contains("NOT USABLE, in use"), "{}", listed.out);
    } else {
        testkit::skip::skipped("this host denies mounting");
    }
}

#[test]
fn disk_is_measured_by_the_way_and_its_profile_is_used() {
    let Some((site, device, _, _undo)) = host_with_a_person() else {
        return;
    };
    let name = device.trim_start_matches("/dev/");
    let (code, shown) = typing(&site, &["init", &device], &format!("quick\n{name}\n"));
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.contains("measuring") && shown.contains("made pool"),
        "{shown}"
    );
    assert!(!shown.contains("not every disk is measured"), "{shown}");
    let profile = format!("profile = \"{name}.toml\"\n");
    assert!(read_text(&site.config()).contains(&profile));
    assert!(Path::new(&site.path(&format!("{name}.toml"))).exists());
    let server = site.serve();
    let disks = site.json(&["disk", "show"]);
    assert_eq!(disks[0]["profile_is_measured"], true, "{disks}");
    server.terminate();
}

#[test]
fn configuration_that_somebody_changes_meanwhile_is_not_replaced() {
    let Some((site, device, file, _undo)) = host_with_a_person() else {
        return;
    };
    let content = read(&file);
    let name = device.trim_start_matches("/dev/");
    let mut command = on_a_terminal(&site, &["init", &device, "--measure", "none"]);
    let mut child = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut keyboard = child.stdin.take().expect("it is piped");
    let mut screen = child.heard();
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("to go on: ") {
        let mut part = [0; 4096];
        let length = screen.read(&mut part).expect("it can be read");
        assert!(length > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..length]);
    }
    let changed = read_text(&site.config()) + "# by somebody\n";
    std::fs::write(site.config(), &changed).expect("it can be written");
    keyboard
        .write_all(format!("{name}\n").as_bytes())
        .expect("it listens");
    screen.read_to_end(&mut shown).expect("text");
    let shown = String::from_utf8_lossy(&shown);
    assert_eq!(child.wait().code(), Some(1), "{shown}");
    assert!(shown.contains("was changed while"), "{shown}");
    assert_eq!(read_text(&site.config()), changed);
    assert!(read(&file) == content);
}
