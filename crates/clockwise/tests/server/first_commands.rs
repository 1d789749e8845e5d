//! The first commands of the README and the guide, typed as quickly as they can be pasted.

use std::process::Stdio;
use testkit::process::Process;
use testkit::site::{Outcome, Site, clockwise};

/// A server about which nothing is known but that its process was started.
fn started(site: &Site) -> Process {
    let mut serve = clockwise();
    serve
        .arg("--config")
        .arg(site.config())
        .arg("serve")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(&mut serve)
}

#[test]
fn a_server_answers_from_the_moment_at_which_it_was_started() {
    let site = Site::new(2);
    site.run(&["pool", "create"]).done();
    let server = started(&site);
    let made = site.json(&["volume", "create", "v", "--size", "3MiB"]);
    assert_eq!(made["name"], "v");
    drop(server);
    // One that was killed leaves its sockets.
    assert!(site.path("api.sock").exists());
    let _server = started(&site);
    assert_eq!(site.json(&["volume", "list"])[0]["name"], "v");
}

/// A server that holds its disks listens before its pool is open, and then finds that it is none.
#[test]
fn a_server_that_cannot_serve_leaves_nobody_waiting() {
    let site = Site::new(1);
    let blank = vec![0; (testkit::site::DISK_MIB << 20) as usize];
    std::fs::write(site.path("disk-0"), blank).expect("a blank disk");
    let mut server = started(&site);
    site.run(&["volume", "list"]).fails(1, &["server"]);
    let status = server.wait();
    assert_eq!(status.code(), Some(1));
    assert!(!site.path("api.sock").exists());
}

/// Beside a server that serves, the disks are what another one lacks, and the sockets are left alone.
#[test]
fn a_second_server_takes_nothing_from_the_first() {
    let (site, server) = Site::serving(1);
    site.run(&["serve"]).fails(2, &["disk-0", "in use"]);
    site.configure(&["disk-1".to_owned()]);
    site.run(&["pool", "create"]).done();
    let second: Outcome = site.run(&["serve"]);
    second.fails(1, &["another server is listening", "api.sock"]);
    assert_eq!(
        site.json(&["pool", "show"])["disks"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(server.terminate().0, Some(0));
}
