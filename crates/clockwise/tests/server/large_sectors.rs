//! A pool one of whose disks has sectors of 4,096 bytes: sizes are whole sectors of it, and clients that ask
//! for no more than that are served.

use std::process::Command;

use testkit::host::Loop;
use testkit::pattern;
use testkit::site::{Site, outcome, read_text};
use testkit::skip::have;

#[test]
fn sizes_are_whole_sectors_of_the_disks() {
    let site = Site::new(1);
    let file = std::fs::File::create(site.path("medium")).expect("a file");
    file.set_len(64 << 20).expect("it is sparse");
    let Some(device) = Loop::attach(&site.path("medium"), 4096) else {
        return;
    };
    let text = read_text(&site.config())
        + &format!(
            "[[disk]]\npath = \"{}\"\nkind = \"block\"\n",
            device.path().display()
        );
    std::fs::write(site.config(), text).expect("the configuration");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    // On whichever disk: requests to the pool are in sectors of the larger kind.
    let made = site.json(&["volume", "create", "v", "--size", "10MB"]);
    assert_eq!(made["size_bytes"], 10_002_432);
    let grown = site.json(&["volume", "grow", "v", "--size", "12MB"]);
    assert_eq!(grown["size_bytes"], 12_001_280);
    let shrunk = site.json(&["volume", "shrink", "v", "--size", "11000001"]);
    assert_eq!(shrunk["size_bytes"], 11_001_856);
    let content = pattern(1, 1_000_000);
    std::fs::write(site.path("in"), &content).expect("a file");
    let from = site.path("in").display().to_string();
    site.run(&[
        "stream", "record", "--volume", "v", "--rate", "2MB/s", "--from", &from,
    ])
    .done();
    if have("qemu-img") {
        let uri = format!("nbd+unix:///v?socket={}", site.path("nbd.sock").display());
        let out = site.path("out").display().to_string();
        let mut convert = Command::new("qemu-img");
        outcome(convert.args(["convert", "-O", "raw", &uri, &out])).done();
        let all = testkit::site::read(&site.path("out"));
        assert_eq!(all.len(), 11_001_856);
        assert!(all[..content.len()] == content);
    }
    assert_eq!(server.terminate().0, Some(0));
}
