//! A server whose log cannot be written, and one of whose threads panics.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

use testkit::nbd::{Wire, cmd};
use testkit::process::{Process, WITHIN};
use testkit::site::{Site, call};
use testkit::{pattern, until};

/// A site with a volume `v` that is served by RTSP too; its server has ended.
fn site() -> Site {
    let site = Site::new(1);
    let text = testkit::site::read_text(&site.config()) + "[rtsp]\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    assert_eq!(server.terminate().0, Some(0));
    site
}

/// A pipe, its reader first.
fn pipe() -> (File, File) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (
        File::from(OwnedFd::from(reader)),
        File::from(OwnedFd::from(writer)),
    )
}

/// Has a connection to the block export end in a way that the log tells of.
fn break_connection(site: &Site) {
    let mut wire = Wire::simple(&site.path("nbd.sock"), "v");
    wire.send(&[7; 28]);
    assert!(wire.is_closed());
}

/// Checks that a server serves whatever becomes of its log, of which so many lines are lost at least.
fn check_served(site: &Site, stderr: File, lost_min: u64) {
    let server = site.serve_json_to(Stdio::from(stderr));
    // The number of threads of the block export, and more.
    for _ in 0..10 {
        break_connection(site);
    }
    let address = server.said["rtsp"].as_str().expect("an address");
    let mut camera = TcpStream::connect(address).expect("it listens");
    camera
        .set_read_timeout(Some(WITHIN))
        .expect("it can be set");
    camera
        .write_all(b"DESCRIBE rtsp://h/nowhere RTSP/1.0\r\nCSeq: 1\r\n\r\n")
        .expect("it is taken");
    let mut said = [0; 12];
    camera.read_exact(&mut said).expect("an answer");
    assert_eq!(&said, b"RTSP/1.0 404");
    let data = pattern(1, 1 << 20);
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    assert_eq!(wire.write(cmd::FUA, 0, &data).error, 0);
    assert!(wire.read_range(0, 1 << 20) == data);
    let lost = || {
        let (status, said) = call(site, "GET", "/v1/status", "");
        assert_eq!(status, 200, "{said}");
        let warnings = said["warnings"].as_array().expect("warnings").iter();
        let mut said = warnings.filter_map(|warning| warning["what"].as_str());
        let of_log = said.find_map(|what| what.strip_prefix("log lines lost: "));
        of_log.map_or(0, |count| count.parse().expect("a number"))
    };
    until("what is lost is counted", || lost() >= lost_min);
    drop((wire, camera));
    server.terminate();
}

#[test]
fn a_log_that_nobody_reads_any_more_harms_nobody() {
    let site = site();
    let (reader, writer) = pipe();
    drop(reader);
    check_served(&site, writer, 11);
}

#[test]
fn a_log_on_a_full_disk_harms_nobody() {
    let site = site();
    let full = OpenOptions::new().write(true).open("/dev/full");
    check_served(&site, full.expect("it is there"), 11);
}

#[test]
fn a_log_whose_reader_is_stuck_harms_nobody() {
    let site = site();
    let (reader, mut writer) = pipe();
    let flags = rustix::fs::fcntl_getfl(&writer).expect("its flags");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK)
        .expect("they can be set");
    while writer.write(&[0; 4_096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("they can be set");
    // Waiting lines are not lost yet.
    check_served(&site, writer, 0);
    drop(reader);
}

/// Names the configuration to the process of [`serves_and_panics`].
const CONFIGURATION: &str = "CLOCKWISE_TEST_OF_PANICS";

/// Is run by [`a_panic_ends_the_server_in_order_unless_it_is_survived`] in a process of its own: a server,
/// with a thread that panics when it is told to.
#[test]
fn serves_and_panics() {
    let Some(configuration) = std::env::var_os(CONFIGURATION) else {
        return;
    };
    let panicking = std::thread::Builder::new().name("victim".to_owned());
    let panicking = panicking.spawn(|| {
        let mut word = [0];
        while std::io::stdin().read_exact(&mut word).is_ok() {
            match word[0] {
                b's' => drop(engine::panics::survive(|| panic!("a survived panic"))),
                _ => panic!("a fatal panic"),
            }
        }
    });
    panicking.expect("a thread");
    let arguments = ["clockwise", "--config"].map(Into::into);
    let arguments = [&arguments[..], &[configuration, "serve".into()]].concat();
    let code = clockwise::cmd::run_as(&arguments);
    std::process::exit(if code == ExitCode::FAILURE { 1 } else { 70 });
}

#[test]
fn a_panic_ends_the_server_in_order_unless_it_is_survived() {
    let site = site();
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "unheard::serves_and_panics", "--nocapture"])
        .env(CONFIGURATION, site.config())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = Process::spawn(&mut command);
    until("it serves", || {
        UnixStream::connect(site.path("nbd.sock")).is_ok()
    });
    let warnings = || call(&site, "GET", "/v1/status", "").1["warnings"].to_string();
    assert!(!warnings().contains("panic"), "{}", warnings());
    let data = pattern(2, 1 << 20);
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    assert_eq!(wire.write(0, 0, &data).error, 0);
    let mut tell = server.stdin.take().expect("it is piped");
    tell.write_all(b"s").expect("it listens");
    until("a survived panic is told", || {
        warnings().contains("ended by a panic: 1")
    });
    assert!(wire.read_range(0, 1 << 20) == data);
    // Acknowledged data is there afterwards, although no flush was asked for.
    assert_eq!(wire.write(0, 1 << 20, &data).error, 0);
    tell.write_all(b"f").expect("it listens");
    let ended = server.output();
    let log = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{log}");
    for words in [
        "thread \"victim\" panicked at",
        "a survived panic; the call, connection or camera that it served ends, the server continues",
        "a fatal panic; the server is ending",
        "all acknowledged writes are durable",
        "please report it with the log",
    ] {
        assert!(log.contains(words), "no {words:?} in {log}");
    }
    drop((wire, tell));
    assert!(!site.path("nbd.sock").exists());
    site.run(&["pool", "check"]).done();
    let server = site.serve();
    let mut wire = Wire::structured(&site.path("nbd.sock"), "v");
    assert!(wire.read_range(0, 2 << 20) == [&data[..], &data[..]].concat());
    assert_eq!(server.terminate().0, Some(0));
}
