//! Bytes of requests received and not yet taken apart.
//!
//! A client that writes is received from with exactly as many bytes as belong to what is being
//! read, so that a payload goes from the socket straight into its buffer; the header after it comes
//! with the same call ([`Input::header_space`]). A client that does not write is received from in
//! bulk: thirty-two reads are one call.

use std::io;
use std::os::fd::AsFd;

use super::proto::request::REQUEST_BYTES;

/// How much is received at a time from a client that does not write: more than a hundred headers.
pub(super) const BULK_BYTES: usize = 4096;

const _: () = assert!(BULK_BYTES > 2 * REQUEST_BYTES);

/// What a receive brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// None for now.
    Nothing,
    /// The client will send no more.
    End,
}

impl Received {
    /// What the result of a receive of at least one byte means.
    pub(super) fn from_result(result: io::Result<usize>) -> io::Result<Self> {
        match result {
            Ok(0) => Ok(Self::End),
            Ok(count) => Ok(Self::Bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Self::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Self::Bytes(0)),
            Err(error) => Err(error),
        }
    }
}

/// The bytes.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Begins with `first`, at most [`BULK_BYTES`] bytes, that were received with the handshake.
    pub(super) fn new(first: &[u8]) -> Self {
        let mut bytes = vec![0; BULK_BYTES];
        bytes[..first.len()].copy_from_slice(first);
        Self {
            bytes,
            start: 0,
            end: first.len(),
        }
    }

    /// What is there.
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Takes `count` bytes that are there off the front.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The next header, if it is there whole.
    pub(super) fn header(&mut self) -> Option<[u8; REQUEST_BYTES]> {
        let header = *self.filled().first_chunk::<REQUEST_BYTES>()?;
        self.consume(REQUEST_BYTES);
        Some(header)
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    /// Space for one header behind a payload that is being received. Only when nothing is there.
    pub(super) fn header_space(&mut self) -> &mut [u8] {
        debug_assert!(self.filled().is_empty());
        &mut self.bytes[..REQUEST_BYTES]
    }

    /// Notes that `count` bytes came into [`Self::header_space`].
    pub(super) fn came(&mut self, count: usize) {
        self.end += count;
    }

    /// Receives: in bulk, or no more than what is missing of one header. Returns with it whether
    /// the socket had less than was asked of it.
    pub(super) fn receive(
        &mut self,
        socket: impl AsFd,
        bulk: bool,
    ) -> io::Result<(Received, bool)> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let limit = if bulk { BULK_BYTES } else { REQUEST_BYTES };
        let space = &mut self.bytes[self.end..limit];
        let asked = space.len();
        let received = Received::from_result(rustix::io::read(socket, space).map_err(Into::into))?;
        if let Received::Bytes(count) = received {
            self.end += count;
        }
        let short = !matches!(received, Received::Bytes(count) if count == asked);
        Ok((received, short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn headers_come_one_by_one_or_in_bulk() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut input = Input::new(&[]);
        assert_eq!(input.receive(&server, true).unwrap().0, Received::Nothing);
        client.write_all(&[7; 3 * REQUEST_BYTES + 5]).unwrap();
        let (received, short) = input.receive(&server, false).unwrap();
        assert_eq!((received, short), (Received::Bytes(REQUEST_BYTES), false));
        assert_eq!(input.filled().len(), REQUEST_BYTES);
        assert!(input.header().is_some() && input.header().is_none());
        let (received, short) = input.receive(&server, true).unwrap();
        assert_eq!(
            (received, short),
            (Received::Bytes(2 * REQUEST_BYTES + 5), true)
        );
        assert!(input.header().is_some() && input.header().is_some());
        assert!(input.header().is_none());
        assert_eq!(input.filled().len(), 5);
        drop(client);
        assert_eq!(input.receive(&server, true).unwrap().0, Received::End);
    }
}
