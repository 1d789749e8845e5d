//! The data socket: a token, an answer, then raw bytes.
//!
//! The client sends one line, `clockwise-stream TOKEN\n`. The server answers one line, `ok\n`, or
//! `error REASON\n` and closes. After `ok` a recording client sends its bytes and shuts its sending
//! side down; a playing one reads until the end. The server closes when the last block is on the
//! disks, or the last byte is sent; the report is then there to be fetched.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;

const GREETING: &str = "clockwise-stream ";

/// The longest first line of either side: the greeting and a token, or a reason.
const LINE_BYTES_MAX: usize = 512;

/// How long the server waits for a first line. A client sends it at once; who does not, holds a
/// thread.
pub const GREETING_WAIT: Duration = Duration::from_secs(5);

/// Reads up to the end of the first line, and not a byte further: what follows is the stream's.
fn read_line(from: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::with_capacity(64);
    let mut byte = [0];
    loop {
        if from.read(&mut byte)? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended within the first line",
            ));
        }
        if byte[0] == b'\n' {
            break;
        }
        if line.len() == LINE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the first line is too long",
            ));
        }
        line.push(byte[0]);
    }
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The server's side: the token that a new connection brings.
///
/// # Errors
/// When it does not come in time, or is no greeting.
pub fn accept(connection: &mut UnixStream) -> io::Result<String> {
    connection.set_read_timeout(Some(GREETING_WAIT))?;
    let line = read_line(connection)?;
    connection.set_read_timeout(None)?;
    line.strip_prefix(GREETING)
        .map(str::to_owned)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the first line is no greeting"))
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

/// The client's side: a connection that is the byte stream of the session with this token.
///
/// # Errors
/// When the server is not there or denies it.
pub fn connect(socket: &Path, token: &str) -> Result<UnixStream, Failure> {
    let failed = |error: io::Error| {
        Failure::failed(format!("the data socket {}: {error}", socket.display()))
            .help("see that you may use it, as `permissions` in the server's configuration says, and that the server still runs")
    };
    let mut connection = UnixStream::connect(socket).map_err(failed)?;
    connection
        .write_all(format!("{GREETING}{token}\n").as_bytes())
        .map_err(failed)?;
    match read_line(&mut connection).map_err(failed)?.as_str() {
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

    #[test]
    fn the_first_line_ends_where_the_stream_begins() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(b"clockwise-stream abc\nDATA").unwrap();
        assert_eq!(accept(&mut server).unwrap(), "abc");
        let mut rest = [0; 4];
        server.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"DATA");
    }

    #[test]
    fn garbage_is_no_greeting() {
        for garbage in [&b"GET / HTTP/1.1\n"[..], &[0xff; 2000], b"half a li"] {
            let (mut client, mut server) = UnixStream::pair().unwrap();
            client.write_all(garbage).unwrap();
            drop(client);
            assert!(accept(&mut server).is_err());
        }
    }
}
