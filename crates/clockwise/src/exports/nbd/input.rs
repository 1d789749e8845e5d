//! Bytes that have been received and not parsed.
//!
//! From a client that writes, a call receives no more than the current header or payload, so that a payload goes from
//! the socket directly into its buffer. The header after it comes with the same call ([`Input::header_space`]). From a
//! client that does not write, a call receives many headers.

use std::io;
use std::os::fd::AsFd;

use super::proto::request::REQUEST_BYTES;

/// The most bytes received at a time from a client that does not write: more than a hundred headers.
pub(super) const BULK_BYTES: usize = 4096;

const _: () = assert!(BULK_BYTES > 2 * REQUEST_BYTES);

/// The result of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// This many bytes; 0 if a signal interrupted the call.
    Bytes(usize),
    /// No bytes at the moment.
    WouldBlock,
    /// The client has closed its sending side.
    End,
}

/// The size of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadSize {
    /// Up to [`BULK_BYTES`].
    Bulk,
    /// The rest of one header.
    OneHeader,
}

impl Received {
    /// Interprets the result of a receive of at least one byte.
    pub(super) fn from_result(result: io::Result<usize>) -> io::Result<Self> {
        match result {
            Ok(0) => Ok(Self::End),
            Ok(count) => Ok(Self::Bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Self::WouldBlock),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Self::Bytes(0)),
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// The part of `bytes` that has been received and not parsed.
    start: usize,
    end: usize,
}

impl Input {
    /// Begins with `first`, at most [`BULK_BYTES`] that were received with the handshake.
    pub(super) fn new(first: &[u8]) -> Self {
        let mut bytes = vec![0; BULK_BYTES];
        bytes[..first.len()].copy_from_slice(first);
        Self {
            bytes,
            start: 0,
            end: first.len(),
        }
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Removes the first `count` bytes. The input must have as many.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Takes the next header, if it is complete.
    pub(super) fn header(&mut self) -> Option<[u8; REQUEST_BYTES]> {
        let header = *self.filled().first_chunk::<REQUEST_BYTES>()?;
        self.consume(REQUEST_BYTES);
        Some(header)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    /// Space for the header after a payload. The input must be empty.
    pub(super) fn header_space(&mut self) -> &mut [u8] {
        debug_assert!(self.filled().is_empty());
        &mut self.bytes[..REQUEST_BYTES]
    }

    /// Records that `count` bytes were received into [`Self::header_space`].
    pub(super) fn note_header_space(&mut self, count: usize) {
        self.end += count;
    }

    /// Receives headers. Returns the result and the number of bytes that there was room for.
    pub(super) fn receive(
        &mut self,
        socket: impl AsFd,
        size: ReadSize,
    ) -> io::Result<(Received, usize)> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let limit = match size {
            ReadSize::Bulk => BULK_BYTES,
            ReadSize::OneHeader => REQUEST_BYTES,
        };
        let space = &mut self.bytes[self.end..limit];
        let asked = space.len();
        let received = Received::from_result(rustix::io::read(socket, space).map_err(Into::into))?;
        if let Received::Bytes(count) = received {
            self.end += count;
        }
        Ok((received, asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn headers_are_received_singly_or_in_bulk() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut input = Input::new(&[]);
        let (received, _) = input.receive(&server, ReadSize::Bulk).unwrap();
        assert_eq!(received, Received::WouldBlock);
        client.write_all(&[7; 3 * REQUEST_BYTES + 5]).unwrap();
        assert_eq!(
            input.receive(&server, ReadSize::OneHeader).unwrap(),
            (Received::Bytes(REQUEST_BYTES), REQUEST_BYTES)
        );
        assert_eq!(input.filled().len(), REQUEST_BYTES);
        assert!(input.header().is_some() && input.header().is_none());
        assert_eq!(
            input.receive(&server, ReadSize::Bulk).unwrap(),
            (Received::Bytes(2 * REQUEST_BYTES + 5), BULK_BYTES)
        );
        assert!(input.header().is_some() && input.header().is_some());
        assert!(input.header().is_none());
        assert_eq!(input.filled().len(), 5);
        drop(client);
        let (received, _) = input.receive(&server, ReadSize::Bulk).unwrap();
        assert_eq!(received, Received::End);
    }
}
