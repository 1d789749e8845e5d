//! An emulated drive's thread has the priority that it asks for, or the drive says that it has not. A program
//! of its own, so that the thread that is found is its own.

use sim::emulator::{DriveOptions, EmulatedDrive};
use sim::plant::PlantSpec;

/// SCHED_FIFO, as the kernel counts.
const FIFO: u32 = 1;

/// Scheduling policy and real-time priority of this program's thread of that name.
fn scheduling_of(name: &str) -> (u32, u32) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats =
        tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
    let named = |stat: &String| stat.contains(&format!("({name})"));
    let stat = stats
        .into_iter()
        .find(named)
        .expect("a thread of that name");
    // Behind the name come the fields from the third on; these are 40 and 41.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    (
        fields[41 - 3].parse().unwrap(),
        fields[40 - 3].parse().unwrap(),
    )
}

#[test]
fn a_drives_thread_is_real_time_or_the_drive_says_that_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let spec = PlantSpec::built_in("quantum-atlas-ii").unwrap();
    let path = folder.path().join("drive");
    let drive = EmulatedDrive::create(&path, spec, &DriveOptions::default()).unwrap();
    let refused = drive
        .denied()
        .0
        .iter()
        .any(|what| what.contains("SCHED_FIFO"));
    let expected = if refused { (0, 0) } else { (FIFO, 80) };
    assert_eq!(
        scheduling_of("emulated-drive"),
        expected,
        "{:?}",
        drive.denied()
    );
}
