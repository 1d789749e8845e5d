//! A host that has no room left for what is recorded.

use std::io::Write;
use std::path::PathBuf;

use testkit::process::WITHIN;
use testkit::rtsp::{TCP, lines, played, publisher, reservations, rtp, serve_logged, with_rtsp};
use testkit::site::{Site, outcome, read_text};
use testkit::skip::{is_root, tool};
use testkit::until;

/// A file system in memory that has little room, mounted as long as this lives.
struct Little(PathBuf);

impl Little {
    fn mount(site: &Site) -> Self {
        let place = site.path("little");
        std::fs::create_dir(&place).unwrap();
        let mut mount = tool("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]);
        outcome(mount.arg(&place)).done();
        Self(place)
    }

    /// Takes all the room that there is; what gives it back.
    fn fill(&self) -> PathBuf {
        let place = self.0.join("filler");
        let mut file = std::fs::File::create(&place).unwrap();
        while file.write_all(&[7; 65_536]).is_ok() {}
        place
    }
}

impl Drop for Little {
    fn drop(&mut self) {
        // The folder is removed behind it; what a failed test has still open keeps it no longer.
        let unmounted = tool("umount").arg("--lazy").arg(&self.0).status();
        if !std::thread::panicking() {
            assert!(unmounted.unwrap().success());
        }
    }
}

/// Body of a packet.
fn packet(number: u16) -> Vec<u8> {
    rtp(number, 40 * u32::from(number), 9, &[number as u8; 1_000])
}

/// Durable blocks are kept and played, the log says what has failed, and nothing stays reserved. The next
/// client is told what to do; after that, recording works again.
#[test]
fn full_disk_fails_a_recording_and_nothing_else() {
    if !is_root("mounting a file system") {
        return;
    }
    let site = Site::new(0);
    let mut text = read_text(&site.config());
    text += "[[disk]]\npath = \"little/drive\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
             profile = \"quantum-atlas-ii\"\n";
    std::fs::write(site.config(), text).unwrap();
    with_rtsp(&site, "");
    let little = Little::mount(&site);
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve_logged(&site);
    site.run(&["volume", "create", "cam", "--size", "40MiB"])
        .done();

    let mut client = publisher(address, TCP);
    (0..200).for_each(|number| client.packet(0, &packet(number)));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let mut client = publisher(address, TCP);
    (0..300).for_each(|number| client.packet(0, &packet(number)));
    let list = || site.json(&["recording", "list", "cam"]);
    until("some of another one is written", || {
        list()[1]["blocks"].as_u64() > Some(0)
    });
    let filler = little.fill();
    // Sends until the server does not take any more.
    client.socket.set_write_timeout(Some(WITHIN)).unwrap();
    for number in 300.. {
        let packet = packet(number);
        let framed = [
            &[b'$', 0][..],
            &(packet.len() as u16).to_be_bytes(),
            &packet,
        ]
        .concat();
        if client.socket.write_all(&framed).is_err() {
            break;
        }
    }
    until("nothing is reserved", || reservations(&site) == 0);
    let kept = list();
    assert_eq!(kept.as_array().map(Vec::len), Some(2), "{kept}");
    for number in ["1", "2"] {
        site.run(&["recording", "check", "cam", number]).done();
    }
    let come = played(address, "cam/1", "", 200);
    // The bodies have the numbers from 0 on.
    let whole = |(number, of): (usize, &Vec<u8>)| of[12..] == packet(number as u16)[12..];
    assert!(come.iter().enumerate().all(whole));

    // When there is room again, the server goes on by itself.
    std::fs::remove_file(filler).unwrap();
    until("the metadata goes on", || {
        site.json(&["status"])["metadata"]["frozen"].is_null()
    });
    let mut client = publisher(address, TCP);
    (0..100).for_each(|number| client.packet(0, &packet(number)));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("it is recorded", || {
        list().as_array().map(Vec::len) == Some(3)
    });
    site.run(&["recording", "check", "cam", "3"]).done();
    let (code, log) = serve.terminate();
    assert_eq!(code, Some(0), "{log}");
    let fails = lines(&log, "a recording fails");
    assert!(
        matches!(fails[..], [line] if line.contains(" WARN ") && line.contains("recording=2") && line.contains("No space left")),
        "{log}"
    );

    let (serve, address) = serve_logged(&site);
    // The other recording has what a flush covered, if there was one.
    assert_eq!(list()[0], kept[0]);
    let mut client = publisher(address, TCP);
    (0..100).for_each(|number| client.packet(0, &packet(number)));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    for recording in list().as_array().unwrap() {
        let number = recording["number"].to_string();
        site.run(&["recording", "check", "cam", &number]).done();
    }
    assert!(list().as_array().unwrap().len() >= 2);
    let (code, log) = serve.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(" fails"), "{log}");
    drop(little);
}
