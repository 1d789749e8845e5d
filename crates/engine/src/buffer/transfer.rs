//! Moving segments to and from files and sockets: the kernel reads and writes the buffers directly.
//!
//! A call blocks or not according to the descriptor (`O_NONBLOCK`). Pipes and files work as well as sockets.
//! A buffer that takes part in a blocking call cannot be revoked until the call ends, so network clients
//! must use non-blocking descriptors.
//!
//! The system calls are made directly. The C library's functions of the same names are thread cancellation
//! points, which cost two atomic operations per call and are not needed here.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{SYS_pread64, SYS_preadv, SYS_pwrite64, SYS_pwritev, SYS_readv, SYS_writev, syscall};
use sched::request::Op;
use smallvec::SmallVec;

use super::segments::INLINE_IOVECS;
use super::slot::Use;
use super::{Buffer, BufferError, Segments};

/// The longest header of a message in a [`SendQueue`].
pub const HEADER_BYTES_MAX: usize = 64;

/// I/O vectors per call. The kernel takes up to 1,024; beyond some dozens a call is bound by the data.
const IOVECS_MAX: usize = 64;

/// The upper half of a file position, for systems where a position exceeds a word.
const HIGH: libc::c_long = 0;

const _: () = assert!(usize::BITS == 64, "a position is one word of a system call");

type Iovecs = SmallVec<[libc::iovec; INLINE_IOVECS]>;

/// A destination for received data.
#[derive(Debug)]
pub enum Place<'a> {
    /// A range of a buffer.
    Buffer(&'a Buffer, Range<usize>),
    /// Bytes outside of buffers.
    Bytes(&'a mut [u8]),
}

/// A buffer that is being received into.
struct FillGuard<'a>(&'a Buffer);

impl<'a> FillGuard<'a> {
    fn begin(buffer: &'a Buffer) -> Result<Self, BufferError> {
        buffer.inner().slots[buffer.slot() as usize].begin(Use::Fill)?;
        Ok(Self(buffer))
    }
}

impl Drop for FillGuard<'_> {
    fn drop(&mut self) {
        self.0.inner().end_use(self.0.slot(), Use::Fill);
    }
}

/// Receives into several destinations in order with one `readv`: for messages of predictable sizes, so that
/// many cost one call. Returns the bytes received; 0 at the end of the stream.
///
/// # Errors
/// Errors of the descriptor; a [`BufferError`] if a buffer has been revoked or is in use.
///
/// # Panics
/// When a range is not within its buffer.
#[allow(unsafe_code)]
pub fn receive_into(socket: impl AsFd, places: &mut [Place<'_>]) -> io::Result<usize> {
    let mut iovecs = Iovecs::new();
    let mut held: SmallVec<[FillGuard<'_>; INLINE_IOVECS]> = SmallVec::new();
    for place in places.iter_mut().take(IOVECS_MAX) {
        match place {
            Place::Buffer(buffer, range) => {
                assert!(range.start <= range.end && range.end <= buffer.size());
                held.push(FillGuard::begin(buffer).map_err(io::Error::other)?);
                iovecs.push(libc::iovec {
                    iov_base: buffer
                        .inner()
                        .mapping
                        .at(buffer.offset() + range.start)
                        .cast(),
                    iov_len: range.len(),
                });
            }
            Place::Bytes(bytes) => iovecs.push(libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            }),
        }
    }
    if iovecs.is_empty() {
        return Ok(0);
    }
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the entries lie in buffers that `held` pins for filling, or are slices that `places` borrows
    // exclusively. Both last until after this call.
    check(unsafe { syscall(SYS_readv, fd, iovecs.as_ptr(), iovecs.len()) })
}

impl Segments {
    /// Fills the memory from a file at byte `position` (`preadv`): all of it, or an error.
    ///
    /// # Errors
    /// Errors of the file; `UnexpectedEof` past its end.
    ///
    /// # Panics
    /// When the direction is wrong.
    #[allow(unsafe_code)]
    pub fn read_from_file(&self, file: impl AsFd, position: u64) -> io::Result<()> {
        assert_eq!(self.op(), Op::Read, "memory to be read into");
        self.whole(position, |iovecs, position| {
            let fd = file.as_fd().as_raw_fd();
            // SAFETY: the entries lie in the mapping and are pinned for filling by `self`.
            unsafe {
                match iovecs {
                    [one] => syscall(SYS_pread64, fd, one.iov_base, one.iov_len, position),
                    all => syscall(SYS_preadv, fd, all.as_ptr(), all.len(), position, HIGH),
                }
            }
        })
    }

    /// Writes the memory to a file at byte `position` (`pwritev`): all of it, or an error.
    ///
    /// # Errors
    /// Errors of the file.
    ///
    /// # Panics
    /// When the direction is wrong.
    #[allow(unsafe_code)]
    pub fn write_to_file(&self, file: impl AsFd, position: u64) -> io::Result<()> {
        assert_eq!(self.op(), Op::Write, "memory to be written from");
        self.whole(position, |iovecs, position| {
            let fd = file.as_fd().as_raw_fd();
            // SAFETY: the entries lie in the mapping and are pinned as a source by `self`.
            unsafe {
                match iovecs {
                    [one] => syscall(SYS_pwrite64, fd, one.iov_base, one.iov_len, position),
                    all => syscall(SYS_pwritev, fd, all.as_ptr(), all.len(), position, HIGH),
                }
            }
        })
    }

    fn whole(
        &self,
        position: u64,
        mut call: impl FnMut(&[libc::iovec], libc::off_t) -> libc::c_long,
    ) -> io::Result<()> {
        let mut done = 0;
        let mut iovecs = Iovecs::new();
        while done < self.size() {
            iovecs.clear();
            self.gather(done, IOVECS_MAX, &mut iovecs);
            let at = position
                .checked_add(done as u64)
                .and_then(|at| libc::off_t::try_from(at).ok());
            match check(call(&iovecs, at.ok_or(io::ErrorKind::InvalidInput)?)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(moved) => done += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives into the memory from byte `from` on, and further bytes into `tail`, so that the next message's
    /// header costs no call of its own. One `readv`. Returns the bytes received, including those in `tail`; 0 at
    /// the end of the stream.
    ///
    /// # Errors
    /// Errors of the descriptor, including `WouldBlock`.
    ///
    /// # Panics
    /// When the direction is wrong.
    #[allow(unsafe_code)]
    pub fn receive(&self, socket: impl AsFd, from: usize, tail: &mut [u8]) -> io::Result<usize> {
        assert_eq!(self.op(), Op::Read, "memory to be received into");
        let mut iovecs = Iovecs::new();
        self.gather(from, IOVECS_MAX, &mut iovecs);
        let reached: usize = iovecs.iter().map(|iovec| iovec.iov_len).sum();
        if !tail.is_empty() && from + reached >= self.size() {
            iovecs.push(libc::iovec {
                iov_base: tail.as_mut_ptr().cast(),
                iov_len: tail.len(),
            });
        }
        if iovecs.is_empty() {
            return Ok(0);
        }
        // SAFETY: the entries lie in the mapping and are pinned for filling by `self`, except the last, which is
        // `tail`, borrowed until after the call.
        check(unsafe {
            let fd = socket.as_fd().as_raw_fd();
            syscall(SYS_readv, fd, iovecs.as_ptr(), iovecs.len())
        })
    }

    /// Sends the memory from byte `from` on. One `writev`. Returns the bytes sent.
    ///
    /// # Errors
    /// Errors of the descriptor, including `WouldBlock`.
    ///
    /// # Panics
    /// When the direction is wrong.
    pub fn send(&self, socket: impl AsFd, from: usize) -> io::Result<usize> {
        assert_eq!(self.op(), Op::Write, "memory to be sent from");
        let mut iovecs = Iovecs::new();
        self.gather(from, IOVECS_MAX, &mut iovecs);
        if iovecs.is_empty() {
            Ok(0)
        } else {
            write_held(socket.as_fd(), &iovecs)
        }
    }
}

/// Writes entries that the caller keeps valid during the call.
#[allow(unsafe_code)]
fn write_held(fd: BorrowedFd<'_>, iovecs: &[libc::iovec]) -> io::Result<usize> {
    // SAFETY: every caller has gathered the entries from segments and headers that it borrows over this call.
    check(unsafe { syscall(SYS_writev, fd.as_raw_fd(), iovecs.as_ptr(), iovecs.len()) })
}

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[derive(Debug)]
struct Message {
    header: [u8; HEADER_BYTES_MAX],
    header_size: usize,
    body: Option<Segments>,
}

impl Message {
    fn append(&mut self, header: &[u8]) {
        let end = self.header_size + header.len();
        self.header[self.header_size..end].copy_from_slice(header);
        self.header_size = end;
    }

    fn size(&self) -> usize {
        self.header_size + self.body.as_ref().map_or(0, Segments::size)
    }
}

/// Outgoing messages: headers and memory, gathered into as few calls as possible.
#[derive(Debug, Default)]
pub struct SendQueue {
    messages: VecDeque<Message>,
    /// Bytes of the first message that have been sent.
    sent: usize,
    pending: usize,
}

impl SendQueue {
    /// Appends a message: `header`, then the memory of `body`, which is pinned until it has been sent.
    ///
    /// # Panics
    /// When the header is longer than [`HEADER_BYTES_MAX`], or the direction of the body is wrong.
    pub fn push(&mut self, header: &[u8], body: Option<Segments>) {
        assert!(
            header.len() <= HEADER_BYTES_MAX,
            "a header of {} bytes",
            header.len()
        );
        assert!(
            body.as_ref().is_none_or(|body| body.op() == Op::Write),
            "memory to be sent from"
        );
        self.pending += header.len() + body.as_ref().map_or(0, Segments::size);
        // Consecutive headers without a body are merged, which saves I/O vectors.
        if let Some(last) = self.messages.back_mut()
            && last.body.is_none()
            && last.header_size + header.len() <= HEADER_BYTES_MAX
        {
            last.append(header);
            last.body = body;
            return;
        }
        let mut message = Message {
            header: [0; HEADER_BYTES_MAX],
            header_size: 0,
            body,
        };
        message.append(header);
        self.messages.push_back(message);
    }

    /// Sends as much as the descriptor takes. True when nothing is left.
    ///
    /// # Errors
    /// Errors of the descriptor, except `WouldBlock`, which is `Ok(false)`.
    pub fn send(&mut self, socket: impl AsFd) -> io::Result<bool> {
        while self.pending > 0 {
            match write_held(socket.as_fd(), &self.gather()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(moved) => self.advance(moved),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.advance(0);
        Ok(true)
    }

    /// Bytes not yet sent.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending
    }

    fn gather(&self) -> Iovecs {
        let mut iovecs = Iovecs::new();
        let mut skip = self.sent;
        for message in &self.messages {
            if iovecs.len() >= IOVECS_MAX {
                break;
            }
            let header = &message.header[skip.min(message.header_size)..message.header_size];
            if !header.is_empty() {
                iovecs.push(libc::iovec {
                    iov_base: header.as_ptr().cast_mut().cast(),
                    iov_len: header.len(),
                });
            }
            if let Some(body) = &message.body {
                let from = skip.saturating_sub(message.header_size);
                let before: usize = iovecs.len();
                body.gather(from, IOVECS_MAX, &mut iovecs);
                let gathered: usize = iovecs[before..].iter().map(|iovec| iovec.iov_len).sum();
                if from + gathered < body.size() {
                    break;
                }
            }
            skip = 0;
        }
        iovecs
    }

    /// Removes `moved` sent bytes from the front, and messages sent completely.
    fn advance(&mut self, moved: usize) {
        self.pending -= moved;
        self.sent += moved;
        while let Some(first) = self.messages.front() {
            let size = first.size();
            if self.sent < size {
                return;
            }
            self.sent -= size;
            self.messages.pop_front();
        }
    }
}
