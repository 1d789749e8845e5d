//! Without the right to lock memory everything works, and the pool reports the refusals.
//!
//! Runs in a process of its own, because the limit belongs to the process.

use std::fs::File;
use testkit::own_process;

use engine::buffer::{Memory, MemoryConfig};
use engine::disk::{Disk, DiskIo, Done};
use engine::event::EventFd;
use engine::uring::UringDisk;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;
use sched::request::Op;
use sched::units::{Bytes, Sector, SectorCount};
use testkit::rights::give_up;

#[test]
fn small_limit_of_locked_memory_is_tolerated_and_reported() {
    own_process(|| {
        give_up(CapabilitySet::IPC_LOCK, Resource::Memlock, 64 << 10);
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let memory = Memory::new(&MemoryConfig::new(Bytes::from_mib(4))).unwrap();
        assert!(
            memory
                .refused()
                .iter()
                .any(|words| words.contains("locked")),
            "{:?}",
            memory.refused()
        );
        let mut disk = UringDisk::open(&path, &memory, 2).unwrap();
        let denied = disk.attach().unwrap();
        assert!(
            denied.0.iter().any(|words| words.contains("registered")),
            "{denied:?}"
        );

        let account = memory.open_account("test", Bytes(0)).unwrap();
        let mut buffer = account.allocate(8192).unwrap();
        let (wake, mut done) = (EventFd::new().unwrap(), Vec::<Done>::new());
        for (op, byte) in [(Op::Write, 9), (Op::Read, 0)] {
            buffer.with_mut(|bytes| bytes.fill(byte)).unwrap();
            let mut segments = buffer.segments(op, 4096..8192).unwrap();
            segments.push(&buffer, 0..4096).unwrap();
            let (start, count) = (Sector(8), SectorCount(16));
            disk.submit(DiskIo {
                tag: 0,
                op,
                start,
                count,
                segments,
                durable: false,
            })
            .unwrap();
            while done.is_empty() {
                disk.wait(None, &wake, &mut done).unwrap();
            }
            assert_eq!(done.pop().unwrap().result, Ok(()));
        }
        assert!(buffer.with(|bytes| bytes == [9; 8192]).unwrap());
    });
}
