//! A disk of a running pool.

use rustix::process::Signal;
use serde_json::json;
use testkit::site::call;
use testkit::until;

use super::interrupted::Heard;
use super::*;

/// The command that measures disk 0 of a site.
fn measure(site: &Site, profile: &str, options: &[&str]) -> Command {
    let mut command = clockwise();
    command
        .arg("--config")
        .arg(site.config())
        .args(["disk", "measure", "0", "--online", "--to"])
        .arg(site.path(profile))
        .args(options);
    command
}

#[test]
fn disk_of_a_running_pool_is_measured_and_no_byte_is_lost() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let data = pattern(7, 2 << 20);
    std::fs::write(site.path("in"), &data).expect("a file");
    let from = site.path("in").display().to_string();
    let rate = ["--rate", "2MB/s", "--block", "256KiB"];
    let record = ["stream", "record", "--volume", "v", "--from", &from];
    site.run(&[&record[..], &rate].concat()).done();
    let free = site.json(&["pool", "show"])["free_bytes"].clone();
    let options = ["--json", "--quick", "--write", "--report"];
    let mut command = measure(&site, "p.toml", &options);
    let measured = outcome(command.arg(site.path("report.html"))).done();
    let result = measured.json();
    let profile = DriveProfile::from_toml(&read_text(&site.path("p.toml"))).expect("a profile");
    check_validated(&result, &profile);
    let remarks = result["remarks"].to_string();
    assert!(remarks.contains("settings were not changed"), "{remarks}");
    let origin = profile.measurement().expect("an origin");
    assert!(origin.serial.ends_with("disk-0"), "{origin:?}");
    let method = &origin.method;
    assert!(
        method.contains("--online --quick") && method.ends_with("writes measured"),
        "{method}"
    );
    assert!(read_text(&site.path("report.html")).contains("The pool ran during the measurement"));
    assert!(!site.path("p.toml.samples").exists());
    assert_eq!(site.json(&["pool", "show"])["free_bytes"], free);
    let to = site.path("out").display().to_string();
    let length = ["--length", "2MiB"];
    let play = ["stream", "play", "--volume", "v", "--to", &to];
    site.run(&[&play[..], &rate, &length].concat()).done();
    assert!(read(&site.path("out")) == data);
    // Its end was told to the server.
    let (status, problem) = call(&site, "DELETE", "/v1/disks/0/measurement", "");
    assert_eq!(status, 404, "{problem}");
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn writes_for_which_no_extent_is_free_are_not_called_measured() {
    let (site, server) = Site::serving(1);
    let free = site.json(&["pool", "show"])["free_bytes"].as_u64();
    let size = format!("{}MiB", (free.expect("a number") >> 20) - 7);
    site.run(&["volume", "create", "v", "--size", &size]).done();
    let options = ["--json", "--quick", "--write"];
    let measured = outcome(&mut measure(&site, "p.toml", &options)).done();
    let what = "too few free extents";
    let result = measured.json();
    assert_eq!(result["is_written"], false);
    assert!(result["remarks"].to_string().contains(what), "{result}");
    let profile = DriveProfile::from_toml(&read_text(&site.path("p.toml"))).expect("a profile");
    let origin = profile.measurement().expect("an origin");
    assert!(origin.method.ends_with("writes assumed"), "{origin:?}");
    assert!(!profile.measured());
    assert_eq!(server.terminate().0, Some(0));
}

/// Beside a stream that has all that the drive can promise. The drive turns for 12 seconds before the next part.
#[test]
fn measurement_beside_a_stream_is_continued_and_ends_with_the_server() {
    let (site, server) = Site::serving_drives(1);
    let size = ["--size", "64MiB"];
    site.run(&[&["volume", "create", "v"][..], &size].concat())
        .done();
    let much = json!({ "volume": "v", "op": "record", "rate_bytes_per_second": 1_u64 << 40, "block_bytes": 1 << 20 });
    let (status, refused) = call(&site, "POST", "/v1/streams", &much.to_string());
    assert_eq!(status, 409, "{refused}");
    let fits = refused["refusal"]["rate_that_fits"]
        .as_u64()
        .expect("a rate");
    let mut record = clockwise();
    record
        .arg("--config")
        .arg(site.config())
        .args(["stream", "record", "--volume", "v"]);
    record.args(["--from", "/dev/zero", "--wrap", "--block", "1MiB"]);
    record.args(["--rate", &format!("{fits}B/s")]);
    let recording = Process::captured(&mut record);
    until("the stream runs", || {
        let streams = site.json(&["stream", "list"]);
        streams[0]["stream"]["blocks"]
            .as_u64()
            .is_some_and(|blocks| blocks > 0)
    });
    let start = || Heard::start(measure(&site, "p.toml", &["--quick", "--write"]));
    let mut first = start();
    first.until("rotation ...");
    let second = outcome(&mut measure(&site, "q.toml", &[]));
    second.fails(1, &["disk 0 is being measured by another client", "DELETE"]);
    assert!(!site.path("q.toml.samples").exists());
    first.until("zones and tracks ...");
    let stopped = first.signal(Signal::INT);
    assert_eq!(stopped.code, 128 + 2, "{stopped:?}");
    let samples = site.path("p.toml.samples");
    let served = (std::fs::metadata(&samples).expect("samples").len() - 64) / 40;
    let mut again = start();
    let line = again.until("continuing after");
    assert!(line.contains(&format!("after {served} requests")), "{line}");
    again.until("zones and tracks ...");
    let disk = site.json(&["disk", "show", "0"]);
    assert_eq!(disk["misses"], 0, "{disk}");
    let of_measurement = disk["completed"]["asynchronous"].as_u64();
    assert!(of_measurement >= Some(served), "{served}: {disk}");
    assert_eq!(server.terminate().0, Some(0));
    again.until("the same command continues");
    assert_eq!(again.end().code, 1);
    assert!(samples.exists() && !site.path("p.toml").exists());
    drop(recording);
}

#[test]
fn online_measurement_of_what_is_not_there_is_refused() {
    let (site, server) = Site::serving(1);
    let mut command = measure(&site, "p.toml", &[]);
    command.args(["--plant", "quantum-atlas-ii"]);
    outcome(&mut command).fails(2, &["cannot be used with"]);
    let measure = ["disk", "measure", "disk-9", "--online", "--to"];
    let to = site.path("p.toml").display().to_string();
    let none = site.run(&[&measure[..], &[&to]].concat());
    none.fails(2, &["no disk \"disk-9\"", "disk show"]);
    assert_eq!(server.terminate().0, Some(0));
}
