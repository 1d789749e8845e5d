//! The byte stream of a connection, plain or over TLS.
//!
//! Without TLS a link is its socket: bodies are received into blocks and sent from them with `readv` and `writev`.
//! With TLS they are decrypted in a buffer of the library and copied from there, which is counted. Outgoing bytes
//! are encrypted into another buffer, which may hold bytes that the socket has not taken yet.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustls::InvalidMessage;

use crate::rtsp::poll::Wait;

/// A stream socket, of a network or within the process.
struct Socket(OwnedFd);

impl Read for &Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, out)?)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
pub(crate) struct Link {
    socket: Socket,
    tls: Option<Box<Tls>>,
}

struct Tls {
    connection: rustls::Connection,
    /// Decrypted bytes that have not been taken.
    plain: usize,
    /// The peer has closed its direction.
    is_over: bool,
}

/// `None` if the operation would block.
fn none_if_blocking(error: io::Error) -> io::Result<Option<usize>> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

fn count_of(result: Result<usize, Errno>) -> io::Result<Option<usize>> {
    result.map_or_else(
        |error| none_if_blocking(error.into()),
        |count| Ok(Some(count)),
    )
}

impl<S: Into<OwnedFd>> From<S> for Link {
    fn from(socket: S) -> Self {
        Self {
            socket: Socket(socket.into()),
            tls: None,
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.0.as_fd()
    }
}

impl Link {
    /// A link over TLS. The handshake begins with the first read or write.
    pub(crate) fn secure(socket: impl Into<OwnedFd>, connection: rustls::Connection) -> Self {
        let tls = Tls {
            connection,
            plain: 0,
            is_over: false,
        };
        Self {
            socket: Socket(socket.into()),
            tls: Some(Box::new(tls)),
        }
    }

    /// True if it is over TLS: its bytes are copied.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// True during the TLS handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.connection.is_handshaking())
    }

    /// Waits for bytes. When woken, the caller has to read, which also sends encrypted bytes that are left.
    pub(crate) fn hear<'a, T: Copy>(&'a self, wait: &mut Wait<'a, T>, event: T) {
        let mut flags = PollFlags::IN;
        if let Some(tls) = &self.tls {
            if tls.plain > 0 || tls.is_over {
                wait.at_once(event);
            }
            if tls.connection.wants_write() {
                flags |= PollFlags::OUT;
            }
        }
        wait.add(self.socket.0.as_fd(), flags, event);
    }

    /// Reads bytes that have arrived. `None`: none have; `Some(0)`: the peer has closed the connection.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => count_of(rustix::io::read(&self.socket.0, out)),
            Some(tls) => tls.read(&self.socket, out),
        }
    }

    /// As [`read`](Self::read), into several parts.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn readv(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match (&mut self.tls, parts) {
            (None, parts) => count_of(rustix::io::readv(&self.socket.0, parts)),
            // The bytes for the other parts are decrypted already, and are read the next time.
            (Some(tls), [first, ..]) => tls.read(&self.socket, first),
            (Some(_), []) => Ok(None),
        }
    }

    /// Writes bytes; returns how many were taken. `None`: the socket takes none now.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => count_of(rustix::io::write(&self.socket.0, bytes)),
            Some(tls) => tls.write(&self.socket, |writer| writer.write(bytes)),
        }
    }

    /// As [`write`](Self::write), from several parts.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn writev(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => count_of(rustix::io::writev(&self.socket.0, parts)),
            Some(tls) => tls.write(&self.socket, |writer| writer.write_vectored(parts)),
        }
    }

    /// True if all bytes that were taken have been given to the socket.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.flush(&self.socket),
        }
    }
}

impl Tls {
    fn flush(&mut self, mut socket: &Socket) -> io::Result<bool> {
        while self.connection.wants_write() {
            if let Err(error) = self.connection.write_tls(&mut socket) {
                return match error.kind() {
                    ErrorKind::WouldBlock => Ok(false),
                    ErrorKind::Interrupted => continue,
                    _ => Err(error),
                };
            }
        }
        Ok(true)
    }

    /// Takes decrypted bytes; `None` if there are none.
    fn take(&mut self, out: &mut [u8]) -> io::Result<Option<usize>> {
        match self.connection.reader().read(out) {
            Ok(count) => {
                self.plain -= count.min(self.plain);
                Ok(Some(count))
            }
            // The peer has closed the connection without closing TLS.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Some(0)),
            Err(error) => none_if_blocking(error),
        }
    }

    fn read(&mut self, mut socket: &Socket, out: &mut [u8]) -> io::Result<Option<usize>> {
        self.flush(socket)?;
        if let Some(count) = self.take(out)? {
            return Ok(Some(count));
        }
        match self.connection.read_tls(&mut socket) {
            Ok(0) => return Ok(Some(0)),
            Ok(_) => {}
            Err(error) => return none_if_blocking(error),
        }
        let state = self.connection.process_new_packets();
        // Sends the alerts and handshake messages of the library, also before an error.
        let flushed = self.flush(socket);
        let state = state.map_err(|error| self.explained(error))?;
        flushed?;
        self.plain = state.plaintext_bytes_to_read();
        self.is_over = state.peer_has_closed();
        self.take(out)
    }

    fn write(
        &mut self,
        socket: &Socket,
        write: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        if !self.flush(socket)? {
            return Ok(None);
        }
        let count = write(&mut self.connection.writer())?;
        self.flush(socket)?;
        Ok(Some(count))
    }

    fn explained(&self, error: rustls::Error) -> io::Error {
        let is_other = matches!(
            error,
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)
        );
        let hint = match error {
            _ if is_other && self.connection.is_handshaking() => {
                " (the peer does not use TLS on this port: rtsps:// and rtsp:// have different ports)"
            }
            rustls::Error::InvalidCertificate(_) => " (--ca sets the trusted certificates)",
            _ => "",
        };
        io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}{hint}"))
    }
}

impl Drop for Link {
    /// Closes TLS, as far as the socket takes that.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            let _ = tls.flush(&self.socket);
        }
    }
}
