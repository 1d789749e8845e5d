//! The data socket: a token, an answer, then raw bytes.
//!
//! The client sends one line, `clockwise-stream TOKEN\n`. The server answers one line, `ok\n`, or
//! `error REASON\n` and closes. After `ok` a recording client sends its bytes and shuts its sending
//! side down; a playing one reads until the end. The server closes when the last block is on the
//! disks, or the last byte is sent; the report is then there to be fetched.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::socket;

/// How long a server may take to answer the first line, which needs no disk.
const GRANTS_WITHIN: Duration = Duration::from_secs(20);

const GREETING: &str = "clockwise-stream ";

/// The longest first line of either side: the greeting and a token, or a reason.
pub(super) const LINE_BYTES_MAX: usize = 512;

/// Reads up to the end of the first line, and not a byte further: what follows is the stream's.
fn read_line(from: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::with_capacity(64);
    let mut byte = [0];
    loop {
        if from.read(&mut byte)? == 0 {
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the connection ended within the first line",
            ));
        }
        if byte[0] == b'\n' {
            break;
        }
        if line.len() == LINE_BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the first line is too long",
            ));
        }
        line.push(byte[0]);
    }
    String::from_utf8(line).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// The token in the first line of a client.
pub(super) fn read_greeting(from: &mut impl Read) -> io::Result<String> {
    read_line(from)?
        .strip_prefix(GREETING)
        .map(str::to_owned)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the first line is no greeting"))
}

/// A connection that is read until some moment, however many bytes come until then.
struct Until<'a> {
    connection: &'a UnixStream,
    moment: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let late = || io::Error::new(ErrorKind::TimedOut, "the first line takes too long");
        loop {
            let left = self.moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            self.connection.set_read_timeout(Some(left))?;
            match self.connection.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(late()),
                read => return read,
            }
        }
    }
}

/// The server's side: the token that a new connection brings.
///
/// # Errors
/// When all of it does not come within that time, or it is no greeting.
pub fn accept(connection: &UnixStream, within: Duration) -> io::Result<String> {
    let token = read_greeting(&mut Until {
        connection,
        moment: Instant::now() + within,
    })?;
    connection.set_read_timeout(None)?;
    Ok(token)
}

/// The server's side: bytes may come or go from now on.
///
/// # Errors
/// When the client has gone.
pub fn grant(connection: &mut UnixStream) -> io::Result<()> {
    connection.write_all(b"ok\n")
}

/// The server's side: the token is no good. A client that has gone does not want to know.
pub fn deny(connection: &mut UnixStream, reason: &str) {
    let _ = connection.write_all(format!("error {}\n", reason.replace('\n', " ")).as_bytes());
}

/// The client's side of the first lines: what the server answers.
fn greet(connection: &mut UnixStream, token: &str) -> io::Result<String> {
    let sent = connection.write_all(format!("{GREETING}{token}\n").as_bytes());
    // A server that has too many clients says so, and closes, before it is told anything.
    read_line(connection).map_err(|error| sent.err().unwrap_or(error))
}

/// The client's side: a connection that is the byte stream of the session with this token.
///
/// # Errors
/// When the server is not there or denies it.
pub fn connect(path: &Path, token: &str) -> Result<UnixStream, Failure> {
    let failed = |error: io::Error| {
        Failure::failed(format!("the data socket {}: {error}", path.display()))
            .help("see that you may use it, as `permissions` in the server's configuration says, and that the server still runs")
    };
    let mut connection = socket::connect(path, GRANTS_WITHIN).map_err(failed)?;
    connection
        .set_read_timeout(Some(GRANTS_WITHIN))
        .map_err(failed)?;
    let answer = greet(&mut connection, token).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => failed(ErrorKind::TimedOut.into()),
        _ => failed(error),
    })?;
    connection.set_read_timeout(None).map_err(failed)?;
    match answer.as_str() {
        "ok" => Ok(connection),
        answer => Err(
            Failure::failed(answer.strip_prefix("error ").unwrap_or(answer)).help(
                "reserve the stream again; `clockwise stream list` shows what became of this one",
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any of these tests takes.
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn the_first_line_ends_where_the_stream_begins() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(b"clockwise-stream abc\nDATA").unwrap();
        assert_eq!(accept(&server, LONG).unwrap(), "abc");
        let mut rest = [0; 4];
        server.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"DATA");
        // What the stream's bytes take is its own affair.
        assert_eq!(server.read_timeout().unwrap(), None);
    }

    #[test]
    fn garbage_is_no_greeting() {
        for garbage in [&b"GET / HTTP/1.1\n"[..], &[0xff; 2000], b"half a li"] {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(garbage).unwrap();
            drop(client);
            assert!(accept(&server, LONG).is_err());
        }
    }

    #[test]
    fn a_byte_now_and_then_is_not_a_line_in_time() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let within = Duration::from_millis(200);
        let dripping = std::thread::spawn(move || {
            while client.write_all(b"x").is_ok() {
                // The client's pace: each byte comes long before the time is over.
                std::thread::sleep(within / 20);
            }
        });
        let error = accept(&server, within).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        drop(server);
        dripping.join().unwrap();
    }

    #[test]
    fn who_is_denied_before_the_greeting_is_told_why() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        deny(&mut server, "too many");
        drop(server);
        assert_eq!(greet(&mut client, "abc").unwrap(), "error too many");
    }
}
