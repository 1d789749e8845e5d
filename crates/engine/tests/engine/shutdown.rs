//! Shutting down leaves no thread behind. Runs in a process of its own, so that all threads are its own.

use std::fs::File;
use std::sync::Arc;
use testkit::own_process;

use engine::buffer::{Memory, MemoryConfig};
use engine::dispatcher::{Dispatcher, DispatcherConfig, Places, StallLimits};
use engine::rt::ThreadParams;
use engine::uring::UringDisk;
use sched::disk::{DiskScheduler, SchedulerConfig};
use sched::profile::{DriveKind, DriveProfile};
use sched::units::Bytes;
use testkit::until::seen;

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .collect()
}

#[test]
fn shutdown_leaves_no_thread() {
    own_process(|| {
        let before = threads().len();
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let config = MemoryConfig {
            lock: false,
            ..MemoryConfig::new(Bytes::from_mib(4))
        };
        let memory = Memory::new(&config).unwrap();
        let account = memory.open_account("test", Bytes(0)).unwrap();
        let dispatchers: Vec<_> = (0..3)
            .map(|index| {
                let path = folder.path().join(index.to_string());
                File::create(&path).unwrap().set_len(1 << 20).unwrap();
                let disk = UringDisk::open(&path, &memory, 2).unwrap();
                let capacity = engine::disk::Disk::capacity(&disk);
                let profile = DriveProfile::conservative(DriveKind::File, capacity).unwrap();
                let config = DispatcherConfig {
                    name: index.to_string(),
                    disk: Box::new(disk),
                    scheduler: DiskScheduler::new(Arc::new(profile), SchedulerConfig::default()),
                    thread: ThreadParams::dispatcher(format!("disk-{index}")),
                    places: Places::default(),
                    patience: StallLimits::default(),
                    link: None,
                };
                Dispatcher::start(config).unwrap().0
            })
            .collect();
        assert_eq!(
            threads().len(),
            before + 4,
            "three disks and the keeper of the memory: {:?}",
            threads()
        );
        for (index, dispatcher) in dispatchers.into_iter().enumerate() {
            dispatcher.stop(index % 2 == 0);
        }
        drop(memory);
        drop(account);
        // A joined thread may be listed for a moment longer.
        seen(|| (threads().len() <= before).then_some(()));
        let left = threads();
        assert_eq!(left.len(), before, "{left:?}");
    });
}
