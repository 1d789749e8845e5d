//! Properties of the host on which a server depends, and which it does not find out until it needs them.

use std::io;

use io_uring::IoUring;

/// Tries to make a ring, as each disk does.
///
/// # Errors
/// When the host forbids it: the kernel (`kernel.io_uring_disabled`), a container's filter of system calls, or a limit.
pub fn try_io_uring() -> io::Result<()> {
    IoUring::new(1).map(drop)
}

/// True if the kernel counts the wall clock as synchronized, by whatever program: `adjtimex(2)`.
///
/// # Errors
/// When the host does not tell.
#[allow(unsafe_code)]
pub fn clock_is_synchronized() -> io::Result<bool> {
    // SAFETY: a timex is numbers only, for which zeros are valid; `modes` 0 asks without a change.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `clock` is a valid timex that outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut clock) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(state != libc::TIME_ERROR && clock.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_tells_of_its_clock() {
        // Hosts differ in the answer.
        clock_is_synchronized().unwrap();
    }
}
