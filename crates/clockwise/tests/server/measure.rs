//! `clockwise disk measure`, on files, devices and emulated drives.

mod interrupted;
mod online;
mod pool;
mod refused;

use std::path::{Path, PathBuf};
use std::process::Command;

use clockwise::measuring::driver::{self, Begun, End, News};
use engine::disk::{Disk, DiskError, DiskIo, Done, Durability};
use engine::event::EventFd;
use engine::rt::DeniedResources;
use engine::uring::UringDisk;
use measure::facts::{Effort, Facts, TURNAROUND};
use measure::machine::Measurement;
use sched::profile::DriveProfile;
use sched::units::{Sector, SectorCount, Time};
use serde_json::Value;
use testkit::pattern;
use testkit::process::Process;
use testkit::site::{Outcome, Site, clockwise, outcome, read, read_text};
use testkit::skip::{have, is_root, skipped, tool};

use crate::terminal::on_a_terminal;

/// A folder for a measurement.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder for the test"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file that was written.
    fn file(&self, name: &str, mib: usize) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, pattern(1, mib << 20)).expect("a file");
        path
    }

    /// The command that measures `device`, with a profile `p.toml`.
    fn command(&self, device: &Path, options: &[&str]) -> Command {
        let mut command = clockwise();
        command
            .args(["disk", "measure"])
            .arg(device)
            .arg("--to")
            .arg(self.path("p.toml"))
            .args(options);
        command
    }

    #[track_caller]
    fn measure(&self, device: &Path, options: &[&str]) -> Outcome {
        outcome(&mut self.command(device, options))
    }

    fn profile(&self) -> DriveProfile {
        DriveProfile::from_toml(&read_text(&self.path("p.toml"))).expect("a profile")
    }
}

/// Checks the validation in a result, as far as it is the same on all hosts.
fn check_validated(result: &Value, profile: &DriveProfile) {
    let validation = &result["findings"]["validation"];
    let requests = validation["requests"].as_u64().expect("a number");
    assert!(requests >= 10_000, "{validation}");
    let ratio = validation["predicted_over_actual"].as_f64();
    assert!(ratio.is_some_and(|ratio| ratio >= 1.0), "{validation}");
    for request in validation["slowest"].as_array().expect("requests") {
        let nanos = |key: &str| request[key].as_u64().expect("nanoseconds");
        // The list includes requests before the last widening.
        assert!(nanos("actual") > 0 && nanos("predicted") > 0, "{request}");
    }
    let origin = profile.measurement().expect("an origin");
    assert!(profile.measured());
    assert_eq!(origin.samples, requests);
    assert_eq!(origin.confidence_percent, 95);
    assert_eq!(result["drive"]["serial"], *origin.serial);
}

#[test]
fn measured_profile_of_a_file_counts_on_that_file_alone() {
    let bench = Bench::new();
    let site = Site::new(2);
    // The files of the configuration, as `pool create` would make them.
    std::fs::write(site.path("disk-0"), pattern(1, 64 << 20)).expect("a file");
    std::fs::write(site.path("disk-1"), vec![0; 64 << 20]).expect("a file");
    let disk = site.path("disk-0");
    let report = bench.path("report.html");
    let report_of = report.display().to_string();
    let options = ["--json", "--quick", "--write", "--destroy", "disk-0"];
    let measured = bench.measure(&disk, &[&options[..], &["--report", &report_of]].concat());
    let result = measured.done().json();
    let profile = bench.profile();
    check_validated(&result, &profile);
    let origin = profile.measurement().expect("an origin");
    assert!(origin.serial.starts_with("file:/") && origin.serial.ends_with("disk-0"));
    assert!(origin.method.ends_with("writes measured"), "{origin:?}");
    assert!(!bench.path("p.toml.samples").exists());
    let page = read_text(&report);
    for word in [
        "none longer than predicted",
        "Slowest requests",
        "<svg",
        "disk-0",
    ] {
        assert!(page.contains(word), "no {word:?}");
    }
    for word in ["<script", "http-equiv", "src=", "<link"] {
        assert!(!page.contains(word), "{word:?}");
    }
    let end = page.rfind("none longer").expect("the verdict");
    assert!(page.len() - end < 400, "the page ends with the verdict");
    let profile = bench.path("p.toml").display().to_string();
    let kind = "kind = \"file\"\n";
    let with = format!("{kind}profile = \"{profile}\"\n");
    let config = read_text(&site.config()).replace(kind, &with);
    std::fs::write(site.config(), config).expect("the configuration");
    // The measured disk has nothing that anyone would miss.
    site.run(&["pool", "create"]).done();
    let server = site.serve();
    let is_measured = |disk| site.json(&["disk", "show", disk])["profile_is_measured"].clone();
    assert_eq!(
        (is_measured("0"), is_measured("1")),
        (true.into(), false.into())
    );
    let shown = site.run(&["status"]).done();
    let doubt = "\"file\" was not measured on this disk; the promises rely on it (disk-1)";
    assert!(shown.out.contains(doubt), "{shown:?}");
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn reads_alone_change_nothing_and_the_profile_says_so() {
    let bench = Bench::new();
    let disk = bench.file("disk", 32);
    let before = read(&disk);
    let said = bench.measure(&disk, &["--quick"]).done();
    assert!(read(&disk) == before);
    for word in [
        "Writes were not measured",
        "none longer than predicted",
        "p.toml",
    ] {
        assert!(said.out.contains(word), "no {word:?} in {said:?}");
    }
    assert!(said.err.contains("at most 10 minutes"), "{said:?}");
    for word in ["never written", "smartctl", "cable"] {
        assert!(
            !said.out.contains(word) && !said.err.contains(word),
            "{said:?}"
        );
    }
    let profile = bench.profile();
    let origin = profile.measurement().expect("an origin");
    assert!(origin.method.ends_with("writes assumed"), "{origin:?}");
    assert!(!profile.measured());
    let flat = profile.spec().flat.expect("it has no platters");
    assert_eq!(flat.write_overhead_us, 2 * flat.read_overhead_us);
}

#[test]
fn file_with_holes_is_named_before_it_is_measured() {
    let bench = Bench::new();
    let disk = bench.file("disk", 16);
    let file = std::fs::OpenOptions::new().write(true).open(&disk);
    let file = file.expect("a file");
    file.set_len(32 << 20).expect("a hole");
    let said = bench.measure(&disk, &["--quick"]).done();
    let words = "50 % of the file were never written";
    assert!(
        said.err.contains(words) && said.out.contains(words),
        "{said:?}"
    );
}

/// A disk on which reads of some sectors fail.
struct Scratched {
    disk: UringDisk,
    bad: std::ops::Range<u64>,
    failing: Vec<(u64, Sector)>,
}

impl Disk for Scratched {
    fn capacity(&self) -> SectorCount {
        self.disk.capacity()
    }

    fn places(&self) -> usize {
        self.disk.places()
    }

    fn durability(&self) -> Durability {
        self.disk.durability()
    }

    fn attach(&mut self) -> std::io::Result<DeniedResources> {
        self.disk.attach()
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        let end = io.start.get() + io.count.get();
        if io.start.get() < self.bad.end && self.bad.start < end {
            self.failing.push((io.tag, io.start));
        }
        self.disk.submit(io)
    }

    fn wait(
        &mut self,
        until: Option<Time>,
        wake: &EventFd,
        out: &mut Vec<Done>,
    ) -> std::io::Result<()> {
        self.disk.wait(until, wake, out)?;
        for done in out {
            let failing = self.failing.iter().position(|(tag, _)| *tag == done.tag);
            if let Some(index) = failing {
                let (_, start) = self.failing.swap_remove(index);
                done.result = Err(DiskError::Io { errno: 5, start });
            }
        }
        Ok(())
    }
}

#[test]
fn bad_sectors_are_reported_and_the_rest_is_measured() {
    let bench = Bench::new();
    let path = bench.file("disk", 64);
    let memory = driver::memory().expect("memory");
    let disk = UringDisk::open(&path, &memory, driver::PLACES).expect("a disk");
    let facts = Facts {
        name: "scratched".to_owned(),
        capacity: disk.capacity(),
        unit: SectorCount(8),
        physical: SectorCount(8),
        request_max: SectorCount(1 << 13),
        writable: Vec::new(),
        is_file: true,
        is_device: false,
        turnaround: TURNAROUND,
    };
    let disk = Scratched {
        disk,
        bad: 50_000..50_008,
        failing: Vec::new(),
    };
    let mut measurement = Measurement::new(facts, Effort::Quick, 7);
    // As continued from a host that had been up for longer than this one.
    let at = Time(1 << 52);
    let begun = Begun {
        step: measurement.step(&[]),
        measurement,
        at,
        last: None,
    };
    let mut running = driver::start(Box::new(disk), &memory, begun).expect("a thread");
    let result = loop {
        match running.news.blocking_recv().expect("an end") {
            News::Served { samples, .. } => {
                assert!(samples.iter().all(|sample| sample.issued >= at));
            }
            News::NotCleared(why) => panic!("{why}"),
            News::Over(End::Finished(result)) => break *result,
            News::Over(end) => panic!("{end:?}"),
        }
    };
    let findings = result.expect("a profile").findings;
    assert!(findings.failed > 0 && !findings.failures.is_empty());
    for failed in &findings.failures {
        let end = failed.start.get() + failed.count.get();
        assert!(failed.start.get() < 50_008 && 50_000 < end, "{failed:?}");
        assert_eq!(failed.errno, 5);
    }
}

#[test]
fn person_names_the_device_and_accepts_the_profile() {
    if !have("script") {
        return;
    }
    use std::io::{Read, Write};
    use std::process::Stdio;
    let site = Site::new(1);
    let disk = site.path("disk").display().to_string();
    std::fs::write(site.path("disk"), pattern(1, 32 << 20)).expect("a file");
    let profile = site.path("p.toml");
    let to = profile.display().to_string();
    let options = ["--to", &to, "--quick", "--write"];
    let command = [&["disk", "measure", &disk][..], &options].concat();
    let typing = |lines: &[u8]| {
        let mut command = on_a_terminal(&site, &command);
        let mut child = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut keyboard = child.stdin.take().expect("it is piped");
        let mut screen = child.heard();
        keyboard.write_all(lines).expect("it listens");
        let mut shown = String::new();
        screen.read_to_string(&mut shown).expect("text");
        (child.wait().code(), shown)
    };
    let (code, shown) = typing(b"disc\n");
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("Type disk to go on") && shown.contains("nothing is written"));
    assert!(read(&site.path("disk")) == pattern(1, 32 << 20));
    let (code, shown) = typing(b"disk\nn\n");
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.contains("[y/N]") && shown.contains("asks again"),
        "{shown}"
    );
    assert!(!profile.exists());
    // Nothing is measured again.
    let (code, shown) = typing(b"disk\ny\n");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("continuing after"), "{shown}");
    assert!(profile.exists());
    assert!(!site.path("p.toml.samples").exists());
}

/// Compressed memory as a block device.
struct Zram(PathBuf);

impl Zram {
    fn new(mib: u64) -> Option<Self> {
        if !is_root("a device of compressed memory") || !have("zramctl") {
            return None;
        }
        let size = format!("{mib}M");
        let made = outcome(tool("zramctl").args(["--find", "--size", &size]));
        if made.code != 0 {
            skipped(&made.err);
            return None;
        }
        Some(Self(made.out.trim().into()))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = tool("zramctl").arg("--reset").arg(&self.0).output();
    }
}

#[test]
fn compressed_memory_is_measured_under_the_name_of_the_kernel() {
    let Some(device) = Zram::new(64) else {
        return;
    };
    let bench = Bench::new();
    let name = device.0.file_name().expect("a name").to_string_lossy();
    let options = ["--json", "--quick", "--write", "--destroy", &*name];
    let result = bench.measure(&device.0, &options).done().json();
    let profile = bench.profile();
    check_validated(&result, &profile);
    let origin = profile.measurement().expect("an origin");
    assert_eq!(origin.serial, format!("kernel:{name}"));
    let properties = result["drive"]["properties"].to_string();
    assert!(properties.contains("write cache"), "{properties}");
    assert!(properties.contains("rotational"), "{properties}");
}

/// The drive's own times decide how long this takes.
#[test]
#[ignore = "soak: an emulated drive is measured in real time"]
fn emulated_drive_is_measured_in_real_time_full() {
    let bench = Bench::new();
    let drive = bench.emulated();
    let options = ["--json", "--quick", "--write", "--destroy", "drive"];
    let plant = ["--plant", "quantum-atlas-ii"];
    let mut command = bench.command(&drive, &[&options[..], &plant].concat());
    let measured =
        Process::captured(&mut command).output_within(std::time::Duration::from_secs(1_800));
    let result = Outcome::from(measured).done().json();
    check_validated(&result, &bench.profile());
    let rotation = result["findings"]["rotation"]["nanos"].as_f64();
    let rotation = rotation.expect("it has platters");
    assert!((8_332_500.0..8_334_200.0).contains(&rotation), "{rotation}");
    assert!(bench.profile().spec().rotating.is_some());
}
