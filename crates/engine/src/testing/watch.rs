//! Counting a program's accesses to memory by the processor's watchpoints (`perf_event_open`).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

// From `linux/perf_event.h` and `linux/hw_breakpoint.h`; the libc crate does not have them.
const PERF_TYPE_BREAKPOINT: u32 = 5;
const BREAKPOINT_RW: u32 = 3;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// `struct perf_event_attr` as far as watchpoints need it (PERF_ATTR_SIZE_VER1).
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    at: u64,
    len: u64,
}

/// Counts instructions of this process that read or write certain words. Accesses by the kernel are not
/// counted.
pub struct Watch(Vec<OwnedFd>);

impl Watch {
    /// Watches the eight bytes at each of these addresses, which must be multiples of eight, in all existing
    /// threads and those that they start. Current processors can watch four addresses.
    pub fn new(words: &[usize]) -> io::Result<Self> {
        let mut counters = Vec::new();
        for task in std::fs::read_dir("/proc/self/task")? {
            let name = task?.file_name();
            let thread: libc::pid_t = name.to_str().and_then(|name| name.parse().ok()).unwrap();
            for &word in words {
                match counter(word, thread) {
                    // The thread has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    counter => counters.push(counter?),
                }
            }
        }
        Ok(Self(counters))
    }

    /// Number of accesses so far.
    pub fn touched(&self) -> u64 {
        let count = |counter: &OwnedFd| {
            let mut bytes = [0; 8];
            assert_eq!(rustix::io::read(counter, &mut bytes).unwrap(), 8);
            u64::from_ne_bytes(bytes)
        };
        self.0.iter().map(count).sum()
    }
}

#[allow(unsafe_code)]
fn counter(word: usize, thread: libc::pid_t) -> io::Result<OwnedFd> {
    const ANY_PROCESSOR: libc::c_int = -1;
    const NO_GROUP: libc::c_int = -1;
    let attr = Attr {
        kind: PERF_TYPE_BREAKPOINT,
        size: size_of::<Attr>() as u32,
        flags: INHERIT | EXCLUDE_KERNEL | EXCLUDE_HV,
        breakpoint: BREAKPOINT_RW,
        at: word as u64,
        len: 8,
        ..Attr::default()
    };
    // SAFETY: `attr` has the length that it states and outlives the call, which only reads it. A counting
    // watchpoint does not change the memory that it watches.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            thread,
            ANY_PROCESSOR,
            NO_GROUP,
            FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
