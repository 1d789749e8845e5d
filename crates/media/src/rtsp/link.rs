//! The bytes of a connection: as they are, or by TLS.
//!
//! Without TLS a link is its socket, and bodies are received into blocks and sent from them with `readv` and `writev`.
//! With TLS they are decrypted in a buffer of the library's and copied from there, which is counted as such; what is
//! said is encrypted into another one, which may hold what the socket does not take yet.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustls::InvalidMessage;

use crate::rtsp::poll::Wait;

/// A connection.
pub(crate) struct Link {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
}

struct Tls {
    connection: rustls::Connection,
    /// Bytes that have been decrypted and were not taken.
    plain: usize,
    /// The peer has said that nothing more comes.
    is_over: bool,
}

/// `None`: not now.
fn later(error: io::Error) -> io::Result<Option<usize>> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

fn moved(result: Result<usize, Errno>) -> io::Result<Option<usize>> {
    result.map_or_else(|error| later(error.into()), |count| Ok(Some(count)))
}

impl From<TcpStream> for Link {
    fn from(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link {
    /// One by TLS, which begins with what is read or written first.
    pub(crate) fn secure(socket: TcpStream, connection: rustls::Connection) -> Self {
        let tls = Tls {
            connection,
            plain: 0,
            is_over: false,
        };
        Self {
            socket,
            tls: Some(Box::new(tls)),
        }
    }

    /// Whether it is by TLS: what goes through it is copied.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether TLS has begun and is not agreed on yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.connection.is_handshaking())
    }

    /// Waits for what comes; who is woken has to read, which sends what is left as well.
    pub(crate) fn hear<'a, T: Copy>(&'a self, wait: &mut Wait<'a, T>, what: T) {
        let mut flags = PollFlags::IN;
        if let Some(tls) = &self.tls {
            if tls.plain > 0 || tls.is_over {
                wait.at_once(what);
            }
            if tls.connection.wants_write() {
                flags |= PollFlags::OUT;
            }
        }
        wait.add(self.socket.as_fd(), flags, what);
    }

    /// What has come, as far as there is room for it; `None`: nothing has, `Some(0)`: nothing will.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => moved(rustix::io::read(&self.socket, out)),
            Some(tls) => tls.read(&self.socket, out),
        }
    }

    /// The same in parts, of which one after the other is filled.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn readv(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match (&mut self.tls, parts) {
            (None, parts) => moved(rustix::io::readv(&self.socket, parts)),
            // What follows is decrypted already, and can be had as well the next time.
            (Some(tls), [first, ..]) => tls.read(&self.socket, first),
            (Some(_), []) => Ok(None),
        }
    }

    /// Says something; how much of it was taken. `None`: not now.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => moved(rustix::io::write(&self.socket, bytes)),
            Some(tls) => tls.write(&self.socket, |writer| writer.write(bytes)),
        }
    }

    /// The same in parts.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn writev(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => moved(rustix::io::writev(&self.socket, parts)),
            Some(tls) => tls.write(&self.socket, |writer| writer.write_vectored(parts)),
        }
    }

    /// Whether all that was taken has gone.
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
    fn flush(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
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

    /// What has been decrypted; `None`: nothing is left.
    fn take(&mut self, out: &mut [u8]) -> io::Result<Option<usize>> {
        match self.connection.reader().read(out) {
            Ok(count) => {
                self.plain -= count.min(self.plain);
                Ok(Some(count))
            }
            // Who does not say that it ends has ended all the same.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Some(0)),
            Err(error) => later(error),
        }
    }

    fn read(&mut self, mut socket: &TcpStream, out: &mut [u8]) -> io::Result<Option<usize>> {
        self.flush(socket)?;
        if let Some(count) = self.take(out)? {
            return Ok(Some(count));
        }
        match self.connection.read_tls(&mut socket) {
            Ok(0) => return Ok(Some(0)),
            Ok(_) => {}
            Err(error) => return later(error),
        }
        let state = self.connection.process_new_packets();
        // What TLS answers by itself, and why it ends.
        let flushed = self.flush(socket);
        let state = state.map_err(|error| self.explained(error))?;
        flushed?;
        self.plain = state.plaintext_bytes_to_read();
        self.is_over = state.peer_has_closed();
        self.take(out)
    }

    fn write(
        &mut self,
        socket: &TcpStream,
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
                " (it speaks no TLS: rtsps:// and rtsp:// are at ports of their own)"
            }
            rustls::Error::InvalidCertificate(_) => " (--ca names whose certificates are believed)",
            _ => "",
        };
        io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}{hint}"))
    }
}

impl Drop for Link {
    /// Says that it ends, as far as that is taken.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            let _ = tls.flush(&self.socket);
        }
    }
}
