//! Recordings of which something is damaged, overwritten or deleted are not exported as if they were whole.

use std::io::Read as _;

use testkit::process::Process;
use testkit::rtsp::clip::ENCODED;
use testkit::rtsp::files::{clip, closed, damage};
use testkit::rtsp::http::{get, header, http};
use testkit::rtsp::{Client, SDP_TYPE, TCP, rtp, serving};
use testkit::site::{Site, clockwise};
use testkit::skip::have;

/// Bytes of a packet's body: 46 fill a block.
const BODY: usize = 1_360;

/// Samples of a packet, of two bytes.
const SAMPLES: u32 = BODY as u32 / 2;

/// Records so many packets of sound that can be a file of its own; the number of the recording.
fn record(site: &Site, address: std::net::SocketAddr, packets: u16) -> String {
    let description = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                       m=audio 0 RTP/AVP 96\r\nb=AS:800\r\na=rtpmap:96 L16/8000\r\na=control:one\r\n";
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, description).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    for number in 0..packets {
        let body = vec![number as u8; BODY];
        client.packet(0, &rtp(number, u32::from(number) * SAMPLES, 7, &body));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    closed(site)
}

#[test]
fn one_that_is_deleted_while_it_is_exported_is_not_whole() {
    let (site, serve, address) = serving("");
    let number = record(&site, address, 3_000);
    let mut command = clockwise();
    command.arg("--config").arg(site.config());
    command.args(["recording", "export", "cam", &number]);
    command.args(["--track", "0", "--to", "-"]);
    let mut export = Process::captured(&mut command);
    let mut taken = export.heard();
    taken.read_exact(&mut [0]).expect("it has begun");
    site.run(&["recording", "delete", "cam", &number]).done();
    let mut rest = Vec::new();
    taken.read_to_end(&mut rest).expect("its end");
    assert!(rest.len() < 3_000 * BODY - 1, "all of it was exported");
    let said = export.output();
    let error = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{error}");
    assert!(
        error.contains("was deleted or overwritten during the export"),
        "{error}"
    );
    serve.terminate();
}

/// The command that exports a recording's sound to a file.
fn export<'a>(number: &'a str, to: &'a str) -> [&'a str; 8] {
    [
        "recording",
        "export",
        "cam",
        number,
        "--track",
        "0",
        "--to",
        to,
    ]
}

#[test]
fn blocks_that_are_damaged_are_counted_and_all_else_is_exported() {
    let (site, serve, address) = serving("");
    let number = record(&site, address, 500);
    let to = site.path("out.s16be").display().to_string();
    let command = export(&number, &to);
    site.run(&command).done();
    // The third block, which lies behind the header and two others.
    if !damage(&site, 196_608, 4_096) {
        return;
    }
    site.run(&command)
        .fails(1, &["1 block of the recording", "recording check"]);
    let length = std::fs::metadata(&to).expect("it is kept").len() as usize;
    assert!((400 * BODY..500 * BODY).contains(&length), "{length} bytes");
    serve.terminate();
}

/// The length of a file is announced before it is made. If data has gone since, the file ends there; nothing
/// else takes its place.
#[test]
fn part_without_its_blocks_sends_no_invented_bytes() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"\n[http]\nlisten = \"0\"");
    let clip = clip(
        &site,
        "a.mp4",
        8,
        &[&ENCODED[..], &["-c:a", "aac"]].concat(),
    );
    let number = testkit::rtsp::files::record(&site, address, &clip, "tcp");
    let (browsers, file) = (http(&serve), format!("/media/cam/{number}/recording.mp4"));
    let (status, _, whole) = get(browsers, &file, "");
    assert_eq!(status, 200);
    let range = format!("Range: bytes=1-{}\r\n", whole.len() - 2);
    let part = |head: &str| header(head, "content-length").and_then(|of| of.parse().ok());
    let (status, head, all) = get(browsers, &file, &range);
    assert_eq!((status, part(&head)), (206, Some(all.len())));
    assert!(all == whole[1..whole.len() - 1]);
    // The fourth block, which lies behind the header and three others.
    if !damage(&site, 4 * 65_536, 4_096) {
        return;
    }
    let (status, head, some) = get(browsers, &file, &range);
    assert_eq!((status, part(&head)), (206, Some(all.len())));
    assert!(some.len() < all.len(), "{} bytes", some.len());
    assert!(some == all[..some.len()], "what is sent is not what it was");
    // Asked for anew by another name it is a file without that block.
    let (status, head, less) = get(browsers, &format!("{file}?from_ns=0&to_ns=9999999999"), "");
    assert_eq!((status, part(&head)), (200, Some(less.len())));
    assert!(less.len() < whole.len());
    serve.terminate();
}

#[test]
fn export_of_overwritten_times_is_refused_as_empty() {
    let (site, serve, address) = serving("");
    let number = record(&site, address, 1_000);
    site.run(&["recording", "keep", "cam", "--size", "320KiB", "--force"])
        .done();
    let to = site.path("out.s16be").display().to_string();
    let first = ["--from", "0s", "--until", "5s"];
    let command = [&export(&number, &to)[..], &first].concat();
    site.run(&command).fails(
        1,
        &["nothing was recorded in that time range", "recording show"],
    );
    assert!(!std::path::Path::new(&to).exists());
    serve.terminate();
}
