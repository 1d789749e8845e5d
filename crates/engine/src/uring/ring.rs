//! The ring: setup, registration, and one system call to submit and to wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use sched::units::{Nanos, Time};

use crate::buffer::Region;
use crate::clock;
use crate::event::EventFd;
use crate::rt::DeniedResources;

/// User data of the wake-up event's completion; transfers use their index.
const WAKE: u64 = u64::MAX;

/// Receives the counts of events read by the kernel; the value is unused. It is static so that it outlives
/// every ring, because the kernel frees rings asynchronously.
static WAKE_COUNT: AtomicU64 = AtomicU64::new(0);

/// The most bytes that can be registered as one buffer.
const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// A transfer for the kernel. Its memory stays in place until the completion.
pub(super) struct Transfer<'a> {
    pub(super) write: bool,
    pub(super) position: u64,
    pub(super) iovecs: &'a [libc::iovec],
    pub(super) rw_flags: i32,
}

/// A ring for one file, used by one thread.
pub(super) struct Ring {
    ring: IoUring,
    file: RawFd,
    file_registered: bool,
    /// The mapping, if it is registered.
    registered: Option<Region>,
    vectored_fixed: bool,
    /// The event that the kernel is reading.
    wake_armed: Option<RawFd>,
}

impl Drop for Ring {
    /// Unregisters the file: the kernel frees a ring asynchronously, and until then the file would stay open
    /// and the disk in use.
    fn drop(&mut self) {
        if self.file_registered {
            // If this fails, the file is closed a little later.
            let _ = self.ring.submitter().unregister_files();
        }
    }
}

impl Ring {
    /// A ring with room for `places` transfers on `file`. Must be called on the thread that will use it.
    pub(super) fn new(
        file: &OwnedFd,
        region: Region,
        places: usize,
    ) -> io::Result<(Self, DeniedResources)> {
        let entries = u32::try_from(places + 2)
            .unwrap_or(u32::MAX)
            .next_power_of_two();
        let ring = build(entries)?;
        let mut denied = DeniedResources::default();
        let fd = file.as_fd().as_raw_fd();
        let file_registered = ring.submitter().register_files(&[fd]).is_ok();
        let registered = match register(&ring, &region) {
            Ok(()) => Some(region),
            Err(error) => {
                let what = "buffers registered with the ring (RLIMIT_MEMLOCK or CAP_IPC_LOCK)";
                denied.0.push(format!("{what}: {error}"));
                None
            }
        };
        let mut probe = Probe::new();
        let vectored_fixed = ring.submitter().register_probe(&mut probe).is_ok()
            && probe.is_supported(opcode::ReadvFixed::CODE)
            && probe.is_supported(opcode::WritevFixed::CODE);
        let ring = Self {
            ring,
            file: fd,
            file_registered,
            registered,
            vectored_fixed,
            wake_armed: None,
        };
        Ok((ring, denied))
    }

    /// Queues a transfer.
    ///
    /// # Safety
    /// The entries of `transfer.iovecs`, and for more than one the slice itself, must stay valid until
    /// the completion marked `index` has been reaped.
    #[allow(unsafe_code)]
    pub(super) unsafe fn push(&mut self, index: u64, transfer: &Transfer<'_>) {
        debug_assert_ne!(index, WAKE);
        let entry = self.entry(transfer).user_data(index);
        self.push_entry(&entry);
    }

    #[allow(unsafe_code)]
    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller of `push` guarantees validity for transfers; `arm` reads into a static.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The queue has an entry for every transfer and for the event.
        assert!(
            pushed.is_ok(),
            "the submission queue has a place for every transfer"
        );
    }

    fn entry(&self, transfer: &Transfer<'_>) -> squeue::Entry {
        macro_rules! build {
            ($op:ident($($argument:expr),*)) => {{
                if self.file_registered {
                    opcode::$op::new(Fixed(0), $($argument),*)
                } else {
                    opcode::$op::new(Fd(self.file), $($argument),*)
                }
                .offset(transfer.position)
                .rw_flags(transfer.rw_flags)
                .build()
            }};
        }
        let list = transfer.iovecs;
        let (at, count) = (list.as_ptr(), list.len() as u32);
        let index = self.buffer_index(list);
        match (index, list) {
            (Some(index), [only]) => {
                let (base, size) = (only.iov_base.cast::<u8>(), only.iov_len as u32);
                if transfer.write {
                    build!(WriteFixed(base, size, index))
                } else {
                    build!(ReadFixed(base, size, index))
                }
            }
            (Some(index), _) if self.vectored_fixed => {
                if transfer.write {
                    build!(WritevFixed(at, count, index))
                } else {
                    build!(ReadvFixed(at, count, index))
                }
            }
            _ if transfer.write => build!(Writev(at, count)),
            _ => build!(Readv(at, count)),
        }
    }

    /// The index of the registered buffer that contains all entries.
    fn buffer_index(&self, list: &[libc::iovec]) -> Option<u16> {
        let base = self.registered.as_ref()?.base() as usize;
        let mut common = None;
        for entry in list {
            let from = entry.iov_base as usize - base;
            let index = from / REGISTERED_BYTES_MAX;
            let last = (from + entry.iov_len - 1) / REGISTERED_BYTES_MAX;
            if last != index || common.is_some_and(|common| common != index) {
                return None;
            }
            common = Some(index);
        }
        common.and_then(|index| u16::try_from(index).ok())
    }

    /// Submits queued entries and sleeps until a completion, a signal of `wake`, or `until`; does not sleep
    /// if `until` is past.
    pub(super) fn enter(&mut self, until: Option<Time>, wake: &EventFd) -> io::Result<()> {
        let left = until.map(|until| until.saturating_since(clock::now()));
        if left == Some(Nanos::ZERO) {
            return self.poll();
        }
        self.arm(wake);
        let timeout = left.map(|left| {
            let spec = clock::timespec_of(left);
            Timespec::new()
                .sec(spec.tv_sec as u64)
                .nsec(spec.tv_nsec as u32)
        });
        loop {
            let submitted = match &timeout {
                Some(timeout) => self
                    .ring
                    .submitter()
                    .submit_with_args(1, &SubmitArgs::new().timespec(timeout)),
                None => self.ring.submitter().submit_and_wait(1),
            };
            match submitted {
                // A partial submission does not wait, so the rest is submitted in another call.
                Ok(_)
                    if !self.ring.submission().is_empty() && self.ring.completion().is_empty() => {}
                Ok(_) => return Ok(()),
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Submits queued entries and lets the kernel post completions. Makes no system call if there is neither.
    pub(super) fn poll(&mut self) -> io::Result<()> {
        let submission = self.ring.submission();
        let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        if idle {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Queues a read of the event, unless one is queued.
    fn arm(&mut self, wake: &EventFd) {
        let fd = wake.as_fd().as_raw_fd();
        if self.wake_armed != Some(fd) {
            let into = WAKE_COUNT.as_ptr().cast();
            let entry = opcode::Read::new(Fd(fd), into, size_of::<u64>() as u32)
                .build()
                .user_data(WAKE);
            self.push_entry(&entry);
            self.wake_armed = Some(fd);
        }
    }

    /// Calls `each` with the index and result of every completed transfer. True if the event was signalled.
    pub(super) fn reap(&mut self, mut each: impl FnMut(u64, i32)) -> bool {
        let mut woken = false;
        let armed = &mut self.wake_armed;
        for entry in self.ring.completion() {
            if entry.user_data() == WAKE {
                *armed = None;
                woken = true;
            } else {
                each(entry.user_data(), entry.result());
            }
        }
        woken
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

/// A ring for one submitting thread, with the kernel's work deferred to that thread's waits; a plain ring on
/// kernels without these features.
fn build(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .dontfork()
        .setup_clamp()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .build(entries)
        .or_else(|_| IoUring::builder().dontfork().setup_clamp().build(entries))
}

#[allow(unsafe_code)]
fn register(ring: &IoUring, region: &Region) -> io::Result<()> {
    let pieces: Vec<_> = (0..region.size())
        .step_by(REGISTERED_BYTES_MAX)
        .map(|offset| libc::iovec {
            iov_base: region.base().wrapping_add(offset).cast(),
            iov_len: REGISTERED_BYTES_MAX.min(region.size() - offset),
        })
        .collect();
    // SAFETY: the pieces make up the mapping, which `region` keeps in place as long as the ring has it
    // registered (`Ring::registered`).
    unsafe { ring.submitter().register_buffers(&pieces) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Memory, MemoryConfig};
    use sched::units::Bytes;
    use testkit::skip::skipped;

    fn ring() -> (Ring, Region, OwnedFd) {
        let config = MemoryConfig {
            lock: false,
            ..MemoryConfig::new(Bytes::from_mib(4))
        };
        let region = Memory::new(&config).unwrap().region();
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let (ring, _denied) = Ring::new(&file, region.clone(), 2).unwrap();
        (ring, region, file)
    }

    /// The operation that the kernel would use for these bytes; nothing is submitted.
    fn operation(ring: &Ring, write: bool, iovecs: &[libc::iovec]) -> String {
        let transfer = Transfer {
            write,
            position: 0,
            iovecs,
            rw_flags: 0,
        };
        let text = format!("{:?}", ring.entry(&transfer));
        let (_, rest) = text.split_once("op_code: ").unwrap();
        rest.split(',').next().unwrap().to_owned()
    }

    fn piece(at: usize, len: usize) -> libc::iovec {
        libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: len,
        }
    }

    #[test]
    fn buffers_travel_as_registered_memory_and_anything_else_as_a_plain_list() {
        let (mut ring, region, _file) = ring();
        if ring.registered.is_none() {
            skipped("the host does not let memory be registered (RLIMIT_MEMLOCK)");
            return;
        }
        let base = region.base() as usize;
        let one = [piece(base + 4096, 8192)];
        let two = [piece(base, 4096), piece(base + (1 << 20), 512)];
        let operations = |ring: &Ring, list: &[libc::iovec]| {
            [false, true].map(|write| operation(ring, write, list))
        };
        let names = |read: u8, write: u8| [read, write].map(|code| code.to_string());
        let plain = names(opcode::Readv::CODE, opcode::Writev::CODE);
        let fixed = names(opcode::ReadFixed::CODE, opcode::WriteFixed::CODE);
        assert_eq!(operations(&ring, &one), fixed);
        let listed = if ring.vectored_fixed {
            names(opcode::ReadvFixed::CODE, opcode::WritevFixed::CODE)
        } else {
            plain.clone()
        };
        assert_eq!(operations(&ring, &two), listed);
        ring.registered = None;
        for list in [&one[..], &two] {
            assert_eq!(operations(&ring, list), plain);
        }
    }
}
