//! The data socket: a token, a response, then raw bytes.
//!
//! The client sends one line, `clockwise-stream TOKEN\n`. The server responds with one line: `ok\n`, or `error
//! REASON\n` after which it closes the connection. After `ok` a recording client sends its bytes and shuts its
//! sending side down. A playing client reads until the end of the stream. The server closes the connection once the
//! last block is on the disks or the last byte has been sent. The report is complete by then.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::socket;

/// Time for a server to respond to the first line, for which it needs no disk.
const RESPONDS_WITHIN: Duration = Duration::from_secs(20);

const GREETING: &str = "clockwise-stream ";

/// The longest first line of either side in bytes: a greeting with a token, or a reason.
pub(super) const LINE_BYTES_MAX: usize = 512;

/// Reads the first line, and no byte after it: those belong to the stream.
fn read_line(from: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::with_capacity(64);
    let mut byte = [0];
    loop {
        let read = match from.read(&mut byte) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
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

/// Reads the token from a client's first line.
pub(super) fn read_greeting(from: &mut impl Read) -> io::Result<String> {
    read_line(from)?
        .strip_prefix(GREETING)
        .map(str::to_owned)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the first line is not a greeting"))
}

/// Reads a connection until a deadline for all bytes together.
struct DeadlineReader<'a> {
    connection: &'a UnixStream,
    deadline: Instant,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let late = || {
            io::Error::new(
                ErrorKind::TimedOut,
                "the first line is incomplete after the time limit",
            )
        };
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
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

/// Server: reads the token from a new connection.
///
/// # Errors
/// If the greeting is not complete within the time, or is not a greeting.
pub fn accept(connection: &UnixStream, within: Duration) -> io::Result<String> {
    let token = read_greeting(&mut DeadlineReader {
        connection,
        deadline: Instant::now() + within,
    })?;
    connection.set_read_timeout(None)?;
    Ok(token)
}

/// Server: accepts the token. The stream's bytes follow.
///
/// # Errors
/// If the client has closed the connection.
pub fn grant(connection: &mut UnixStream) -> io::Result<()> {
    connection.write_all(b"ok\n")
}

/// Server: refuses the token. Ignores that the client may have closed the connection.
pub fn deny(connection: &mut UnixStream, reason: &str) {
    let _ = connection.write_all(format!("error {}\n", reason.replace('\n', " ")).as_bytes());
}

/// Client: sends the greeting. Returns the server's response.
fn greet(connection: &mut UnixStream, token: &str) -> io::Result<String> {
    let sent = connection.write_all(format!("{GREETING}{token}\n").as_bytes());
    // A server with too many clients sends its refusal and closes without reading the greeting.
    read_line(connection).map_err(|error| sent.err().unwrap_or(error))
}

/// Client: connects the byte stream of the session with this token.
///
/// # Errors
/// If the server cannot be reached or refuses the token.
pub fn connect(path: &Path, token: &str) -> Result<UnixStream, Failure> {
    let failed = |error: io::Error| {
        Failure::failed(format!("the data socket {}: {error}", path.display()))
            .help("check that the server is running and that `permissions` in its configuration lets you use the socket")
    };
    let mut connection = socket::connect(path, RESPONDS_WITHIN).map_err(failed)?;
    connection
        .set_read_timeout(Some(RESPONDS_WITHIN))
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
                "reserve the stream again; `clockwise stream list` shows the state of this one",
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
    fn first_line_ends_where_the_stream_begins() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(b"clockwise-stream abc\nDATA").unwrap();
        assert_eq!(accept(&server, LONG).unwrap(), "abc");
        let mut rest = [0; 4];
        server.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"DATA");
        // The time limit does not apply to the bytes of the stream.
        assert_eq!(server.read_timeout().unwrap(), None);
    }

    #[test]
    fn garbage_is_not_a_greeting() {
        for garbage in [&b"GET / HTTP/1.1\n"[..], &[0xff; 2000], b"half a li"] {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(garbage).unwrap();
            drop(client);
            assert!(accept(&server, LONG).is_err());
        }
    }

    #[test]
    fn slow_greeting_misses_the_deadline() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let within = Duration::from_millis(200);
        let sender = std::thread::spawn(move || {
            while client.write_all(b"x").is_ok() {
                // Each byte arrives well within the time limit.
                std::thread::sleep(within / 20);
            }
        });
        let error = accept(&server, within).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        drop(server);
        sender.join().unwrap();
    }

    #[test]
    fn refusal_before_the_greeting_reaches_the_client() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        deny(&mut server, "too many");
        drop(server);
        assert_eq!(greet(&mut client, "abc").unwrap(), "error too many");
    }
}
