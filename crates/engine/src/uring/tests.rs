use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sched::units::{Bytes, Sector};

use super::*;
use crate::buffer::{Account, Buffer, MemoryConfig, Segments};
use testkit::folders::{folder, folders};
use testkit::{host, skip};

struct Rig {
    disk: UringDisk,
    wake: EventFd,
    account: Account,
    _memory: Memory,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn memory() -> Memory {
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(6))
    };
    Memory::new(&config).unwrap()
}

fn rig(folder: tempfile::TempDir, sectors: u64, places: usize) -> Rig {
    let path = folder.path().join("disk");
    fs::File::create(&path)
        .unwrap()
        .set_len(sectors * SECTOR_BYTES)
        .unwrap();
    let memory = memory();
    let mut disk = UringDisk::open(&path, &memory, places).unwrap();
    disk.attach().unwrap();
    let account = memory.open_account("test", Bytes(0)).unwrap();
    Rig {
        disk,
        wake: EventFd::new().unwrap(),
        account,
        _memory: memory,
        path,
        _folder: folder,
    }
}

impl Rig {
    fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.account.allocate(bytes.len()).unwrap();
        buffer.with_mut(|to| to.copy_from_slice(bytes)).unwrap();
        buffer
    }

    fn finish(&mut self, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        while done.len() < count {
            self.disk.wait(None, &self.wake, &mut done).unwrap();
        }
        done
    }

    fn run(&mut self, op: Op, start: u64, segments: Segments) -> Result<(), DiskError> {
        let count = Bytes(segments.size() as u64)
            .sectors()
            .unwrap_or(SectorCount(segments.size() as u64 / 512 + 1));
        self.disk.submit(DiskIo {
            tag: 9,
            op,
            start: Sector(start),
            count,
            segments,
            durable: false,
        })?;
        let done = self.finish(1);
        assert_eq!(done[0].tag, 9);
        done[0].result
    }
}

#[test]
fn written_data_can_be_read_by_others_and_read_back() {
    for folder in folders() {
        let mut rig = rig(folder, 64, 4);
        let from = rig.buffer(&[7; 8192]);
        rig.run(Op::Write, 16, from.segments(Op::Write, 0..8192).unwrap())
            .unwrap();
        rig.disk.host_sync().unwrap().sync().unwrap();
        let file = fs::read(&rig.path).unwrap();
        assert!(
            file[8192..16384].iter().all(|&byte| byte == 7)
                && file[..8192].iter().all(|&byte| byte == 0)
        );
        let to = rig.buffer(&[0; 8192]);
        rig.run(Op::Read, 16, to.segments(Op::Read, 0..8192).unwrap())
            .unwrap();
        assert!(to.with(|bytes| bytes == [7; 8192]).unwrap());
    }
}

#[test]
fn invalid_transfer_is_refused_by_the_disk() {
    for folder in folders() {
        let mut rig = rig(folder, 64, 1);
        let buffer = rig.buffer(&[0; 8192]);
        let read = |range| buffer.segments(Op::Read, range).unwrap();
        let invalid = |result| matches!(result, Err(DiskError::Invalid { .. }));
        assert!(invalid(rig.run(Op::Read, 64, read(0..512))), "past the end");
        assert!(
            invalid(rig.run(Op::Read, 60, read(0..4096))),
            "across the end"
        );
        assert!(
            invalid(rig.run(Op::Read, u64::MAX, read(0..512))),
            "overflowing"
        );
        assert!(invalid(rig.run(Op::Read, 0, read(0..0))), "nothing");
        assert!(
            invalid(rig.run(Op::Read, 0, read(0..700))),
            "no whole sectors"
        );
        assert!(
            invalid(rig.run(Op::Write, 0, read(0..512))),
            "the other direction"
        );
        assert_eq!(rig.run(Op::Read, 0, read(0..4096)), Ok(()));
    }
}

/// True if the kernel itself refuses to read the beginning of a file directly into this memory.
fn is_refused_by_the_kernel(path: &Path, memory: &mut [u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let read = rustix::fs::open(path, flags, Mode::empty())
        .and_then(|file| rustix::io::pread(&file, memory, 0));
    assert!(
        matches!(read, Ok(4096) | Err(Errno::INVAL)),
        "{read:?} of {path:?}"
    );
    read.is_err()
}

/// The required alignment of memory for direct transfers depends on the drive and the kernel.
#[test]
fn unusable_memory_fails_only_its_transfer() {
    let mut rig = rig(folder(), 64, 1);
    let mut buffer = rig.buffer(&[3; 8192]);
    let write = buffer.segments(Op::Write, 0..8192).unwrap();
    // A read of a hole would transfer nothing, so the range is written first.
    assert_eq!(rig.run(Op::Write, 0, write), Ok(()));
    rig.disk.host_sync().unwrap().sync().unwrap();
    let refused = buffer.with_mut(|bytes| is_refused_by_the_kernel(&rig.path, &mut bytes[1..4097]));
    if rig.disk.is_in_memory() || !refused.unwrap() {
        return skip::skipped("the kernel reads files here into memory that lies in any way");
    }
    let read = buffer.segments(Op::Read, 1..4097).unwrap();
    let result = rig.run(Op::Read, 0, read);
    assert!(
        matches!(result, Err(DiskError::Invalid { .. })),
        "{result:?}"
    );
    let read = buffer.segments(Op::Read, 0..4096).unwrap();
    assert_eq!(rig.run(Op::Read, 0, read), Ok(()));
}

#[test]
fn a_full_disk_takes_nothing_more_until_something_is_done() {
    for folder in folders() {
        let mut rig = rig(folder, 64, 2);
        let buffer = rig.buffer(&[0; 4096]);
        let io = |tag| DiskIo {
            tag,
            op: Op::Read,
            start: Sector(0),
            count: SectorCount(8),
            segments: buffer.segments(Op::Read, 0..4096).unwrap(),
            durable: false,
        };
        rig.disk.submit(io(1)).unwrap();
        rig.disk.submit(io(2)).unwrap();
        assert_eq!(rig.disk.submit(io(3)), Err(DiskError::Busy));
        let mut tags: Vec<_> = rig.finish(2).iter().map(|done| done.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, [1, 2]);
        rig.disk.submit(io(4)).unwrap();
        rig.finish(1);
    }
}

#[test]
fn waiting_ends_with_the_event_or_the_time() {
    for folder in folders() {
        let mut rig = rig(folder, 64, 1);
        let mut done = Vec::new();
        let until = clock::now().saturating_add(Nanos::from_millis(3));
        while clock::now() < until {
            rig.disk.wait(Some(until), &rig.wake, &mut done).unwrap();
        }
        rig.wake.signal();
        rig.disk.wait(None, &rig.wake, &mut done).unwrap();
        // The signal was consumed: a poll finds nothing, and another signal is needed to end a sleep.
        rig.disk
            .wait(Some(Time::ZERO), &rig.wake, &mut done)
            .unwrap();
        let wake = std::sync::Arc::new(std::mem::replace(&mut rig.wake, EventFd::new().unwrap()));
        let signaller = std::sync::Arc::clone(&wake);
        let thread = std::thread::spawn(move || signaller.signal());
        rig.disk.wait(None, &wake, &mut done).unwrap();
        thread.join().unwrap();
        assert!(done.is_empty());
    }
}

#[test]
fn the_end_of_a_file_that_has_shrunk_is_an_error() {
    for folder in folders() {
        let mut rig = rig(folder, 64, 1);
        let file = fs::OpenOptions::new().write(true).open(&rig.path).unwrap();
        file.set_len(4096).unwrap();
        let buffer = rig.buffer(&[0; 8192]);
        let result = rig.run(Op::Read, 0, buffer.segments(Op::Read, 0..8192).unwrap());
        assert_eq!(
            result,
            Err(DiskError::Io {
                errno: libc::EIO,
                start: Sector(0)
            })
        );
    }
}

#[test]
fn closing_waits_for_what_is_under_way() {
    for folder in folders() {
        let mut rig = rig(folder, 2048, 8);
        let buffer = rig.buffer(&[5; 1 << 20]);
        for tag in 0..8 {
            let part = tag as usize * (1 << 17)..(tag as usize + 1) * (1 << 17);
            let segments = buffer.segments(Op::Read, part).unwrap();
            let (start, count) = (Sector(tag * 256), SectorCount(256));
            rig.disk
                .submit(DiskIo {
                    tag,
                    op: Op::Read,
                    start,
                    count,
                    segments,
                    durable: false,
                })
                .unwrap();
        }
        drop(rig.disk);
        let mut buffer = buffer;
        assert_eq!(buffer.with_mut(|bytes| bytes.fill(1)), Ok(()));
    }
}

/// Transfers of a random program: direction, first sector, sectors, and where to divide the memory.
fn program() -> impl Strategy<Value = Vec<(bool, u64, u64, Vec<u64>)>> {
    let cuts = proptest::collection::vec(1u64..64, 0..6);
    proptest::collection::vec((any::<bool>(), 0u64..120, 1u64..65, cuts), 1..25)
}

fn obey(
    folder: tempfile::TempDir,
    program: &[(bool, u64, u64, Vec<u64>)],
) -> Result<(), TestCaseError> {
    const SECTORS: u64 = 128;
    let mut rig = rig(folder, SECTORS, 1);
    let unit = u64::from(rig.disk.block_bytes()) / SECTOR_BYTES;
    let mut model = vec![0u8; (SECTORS * SECTOR_BYTES) as usize];
    let mut next = 0u8;
    for (write, start, count, cuts) in program {
        let start = start / unit * unit;
        let count = (count.div_ceil(unit) * unit).min(SECTORS - start);
        let size = (count * SECTOR_BYTES) as usize;
        let at = (start * SECTOR_BYTES) as usize;
        let op = if *write { Op::Write } else { Op::Read };
        let mut buffer = rig.account.allocate(2 * size).unwrap();
        next = next.wrapping_add(1);
        buffer
            .with_mut(|bytes| {
                bytes
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, byte)| *byte = next ^ (at / 512) as u8)
            })
            .unwrap();
        // Pieces of the buffer in reverse order; their memory is the end of the buffer.
        let mut sizes: Vec<usize> = Vec::new();
        let mut left = count;
        for cut in cuts {
            let cut = (cut.div_ceil(unit) * unit).min(left);
            sizes.push((cut * SECTOR_BYTES) as usize);
            left -= cut;
        }
        sizes.push((left * SECTOR_BYTES) as usize);
        let mut segments = Segments::empty(op);
        let mut ranges = Vec::new();
        let mut end = 2 * size;
        for piece in sizes.into_iter().filter(|&piece| piece > 0) {
            let range = end - piece..end;
            end -= piece;
            segments.push(&buffer, range.clone()).unwrap();
            ranges.push(range);
        }
        prop_assert_eq!(rig.run(op, start, segments), Ok(()));
        let mut moved = at;
        for range in ranges {
            let here = moved..moved + range.len();
            moved += range.len();
            buffer
                .with(|bytes| {
                    if *write {
                        model[here].copy_from_slice(&bytes[range]);
                        Ok(())
                    } else {
                        prop_assert_eq!(&bytes[range], &model[here]);
                        Ok(())
                    }
                })
                .unwrap()?;
        }
    }
    rig.disk.host_sync().unwrap().sync().unwrap();
    prop_assert!(fs::read(&rig.path).unwrap() == model);
    Ok(())
}

proptest! {
    #![proptest_config(testkit::cases(48))]

    /// Vectored transfers anywhere on a disk do what they do on an array of bytes.
    #[test]
    fn transfers_agree_with_an_array_of_bytes(program in program()) {
        for folder in folders() {
            obey(folder, &program)?;
        }
    }
}

#[test]
fn a_block_device_is_a_disk_with_its_own_durability() {
    let folder = folder();
    let path = folder.path().join("backing");
    fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let Some(device) = host::Loop::attach(&path, 512) else {
        return;
    };
    let memory = memory();
    let mut disk = UringDisk::open(device.path(), &memory, 2).unwrap();
    assert!(disk.is_device());
    assert_eq!(disk.capacity(), SectorCount(2048));
    assert_ne!(disk.durability(), Durability::Host);
    assert!(disk.host_sync().is_none());
    let again = UringDisk::open(device.path(), &memory, 2).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::ResourceBusy);
    disk.attach().unwrap();
    let account = memory.open_account("test", Bytes(0)).unwrap();
    let mut rig = Rig {
        disk,
        wake: EventFd::new().unwrap(),
        account,
        _memory: memory,
        path,
        _folder: folder,
    };
    let from = rig.buffer(&[3; 8192]);
    let segments = from.segments(Op::Write, 0..8192).unwrap();
    let (start, count) = (Sector(16), SectorCount(16));
    rig.disk
        .submit(DiskIo {
            tag: 1,
            op: Op::Write,
            start,
            count,
            segments,
            durable: true,
        })
        .unwrap();
    assert_eq!(rig.finish(1)[0].result, Ok(()));
    // Durable data has reached the file behind the device.
    assert!(
        fs::read(&rig.path).unwrap()[8192..16384]
            .iter()
            .all(|&byte| byte == 3)
    );
    drop(rig);
}

#[test]
fn a_disk_that_is_opened_for_reads_refuses_writes() {
    let folder = folder();
    let path = folder.path().join("disk");
    fs::write(&path, vec![7; 8192]).unwrap();
    let memory = memory();
    let _other = UringDisk::open(&path, &memory, 1).unwrap();
    let mut disk = UringDisk::open_for(&path, &memory, 1, None, Access::SharedReads).unwrap();
    disk.attach().unwrap();
    let account = memory.open_account("test", Bytes(0)).unwrap();
    let mut rig = Rig {
        disk,
        wake: EventFd::new().unwrap(),
        account,
        _memory: memory,
        path,
        _folder: folder,
    };
    let buffer = rig.buffer(&[3; 4096]);
    let read = buffer.segments(Op::Read, 0..4096).unwrap();
    assert_eq!(rig.run(Op::Read, 8, read), Ok(()));
    let refused = rig.disk.submit(DiskIo {
        tag: 1,
        op: Op::Write,
        start: Sector(0),
        count: SectorCount(8),
        segments: buffer.segments(Op::Write, 0..4096).unwrap(),
        durable: false,
    });
    assert!(
        matches!(refused, Err(DiskError::Invalid { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read(&rig.path).unwrap(), vec![7; 8192]);
}
