//! Ctrl-C, and the same command again.

use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, Stdio};

use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::PlantSpec;
use rustix::process::{Pid, Signal, kill_process};
use testkit::process::{OutputReader, WITHIN};

use super::*;

impl Bench {
    /// The file of an emulated drive.
    pub(super) fn emulated(&self) -> PathBuf {
        let path = self.path("drive");
        let plant = PlantSpec::built_in("quantum-atlas-ii").expect("it is built in");
        EmulatedDrive::create(&path, plant, &DriveOptions::default()).expect("a drive");
        path
    }
}

/// A measurement whose remarks are read while it runs.
pub(super) struct Heard {
    child: Process,
    remarks: BufReader<OutputReader<ChildStderr>>,
}

impl Heard {
    pub(super) fn start(mut command: Command) -> Self {
        let mut child = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let stderr = child.stderr.take().expect("it is piped");
        Self {
            child,
            remarks: BufReader::new(OutputReader::new(stderr, WITHIN)),
        }
    }

    /// Reads until a line contains `word`; the line.
    pub(super) fn until(&mut self, word: &str) -> String {
        let mut all = String::new();
        loop {
            let begin = all.len();
            let length = self
                .remarks
                .read_line(&mut all)
                .expect("it says so in time");
            assert!(length > 0, "no {word:?} in {all}");
            if all[begin..].contains(word) {
                return all[begin..].to_owned();
            }
        }
    }

    pub(super) fn signal(self, signal: Signal) -> Outcome {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        self.end()
    }

    /// Its result, when it ends by itself.
    pub(super) fn end(self) -> Outcome {
        self.child.output().into()
    }
}

#[test]
fn disk_of_a_pool_that_was_written_is_none_any_more_when_the_measurement_is_interrupted() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let bench = Bench::new();
    let disk = site.path("disk-0");
    let refused = bench.measure(&disk, &["--write"]);
    refused.fails(2, &["it is a disk of a pool", "--destroy disk-0"]);
    site.run(&["pool", "check"]).done();
    let options = ["--thorough", "--write", "--destroy", "disk-0"];
    let mut measuring = Heard::start(bench.command(&disk, &options));
    measuring.until("validation ...");
    let stopped = measuring.signal(Signal::INT);
    assert_eq!(stopped.code, 128 + 2, "{stopped:?}");
    assert_eq!(site.run(&["pool", "check"]).code, 1);
    site.run(&["pool", "create"]).done();
}

/// The drive is slow, so that there is something to interrupt. Its rotation is observed for 12 seconds, within
/// which nothing continues.
#[test]
fn interrupted_measurement_continues_where_it_was() {
    let bench = Bench::new();
    let drive = bench.emulated();
    let plant = ["--quick", "--plant", "quantum-atlas-ii"];
    let start = || Heard::start(bench.command(&drive, &plant));
    let mut first = start();
    first.until("rotation ...");
    let stopped = first.signal(Signal::HUP);
    assert_eq!(stopped.code, 128 + 1, "{stopped:?}");
    assert!(
        stopped.out.contains("the same command starts again"),
        "{stopped:?}"
    );
    let mut second = start();
    second.until("zones and tracks ...");
    let stopped = second.signal(Signal::INT);
    assert_eq!(stopped.code, 128 + 2, "{stopped:?}");
    let samples = bench.path("p.toml.samples");
    let served = (std::fs::metadata(&samples).expect("samples").len() - 64) / 40;
    assert!(
        stopped
            .out
            .contains(&format!("stopped after {served} requests")),
        "{served}: {stopped:?}"
    );
    let mut third = start();
    let line = third.until("continuing after");
    assert!(line.contains(&format!("after {served} requests")), "{line}");
    third.until("zones and tracks ...");
    let stopped = third.signal(Signal::TERM);
    assert_eq!(stopped.code, 128 + 15, "{stopped:?}");
    assert!(!bench.path("p.toml").exists());
    // Not with another plant.
    let other = ["--quick", "--plant", "hdd-8tb-7200"];
    bench
        .measure(&drive, &other)
        .fails(2, &["drive", "--plant"]);
}
