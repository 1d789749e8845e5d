//! An emulated drive's thread has the priority that it asks for, or the drive says that it has not. A process
//! of its own, so that the thread that is found is its own.

use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::PlantSpec;
use testkit::own_process;
use testkit::threads::{FIFO, scheduling_of};

#[test]
fn a_drives_thread_is_real_time_or_the_drive_says_that_it_is_not() {
    own_process(|| {
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
    });
}
