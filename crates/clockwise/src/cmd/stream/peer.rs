//! The client's end of a byte stream: the file or pipe whose bytes are recorded, or that gets the played
//! bytes.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::target::Target;
use crate::failure::{Failure, FailureKind, io_failure};
use crate::wire::ask::StreamOp;

/// The extent to which the source's bytes were moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moved {
    /// All up to its end or to the limit of the stream.
    All,
    /// A part: the server ended the stream before the source's end.
    Part,
}

/// The source of the bytes to record.
pub(super) enum Source {
    Stdin,
    File {
        file: File,
        path: PathBuf,
        repeat: bool,
    },
}

impl Source {
    /// Opens a file, or standard input. A source that cannot be read, or not repeatedly if `repeat` is set,
    /// is refused at once.
    pub(super) fn open(path: &Path, repeat: bool) -> Result<Self, Failure> {
        if path == Path::new("-") {
            if repeat {
                return Err(
                    Failure::bad_input("standard input cannot be read repeatedly")
                        .help("give a file with --from, or omit --loop"),
                );
            }
            return Ok(Self::Stdin);
        }
        let file = File::open(path).map_err(|error| Failure {
            kind: FailureKind::BadInput,
            ..io_failure("read", path, &error)
        })?;
        let metadata = file
            .metadata()
            .map_err(|error| io_failure("read", path, &error))?;
        if metadata.is_dir() || repeat && !metadata.is_file() {
            return Err(Failure::bad_input(format!(
                "{} is not a file that can be read{}",
                path.display(),
                if repeat { " repeatedly" } else { "" }
            ))
            .help("give a file with --from, or `-` for standard input without --loop"));
        }
        if repeat && metadata.len() == 0 {
            return Err(Failure::bad_input(format!(
                "{} is empty, so --loop would never end",
                path.display()
            ))
            .help("give a file that is not empty, or omit --loop"));
        }
        Ok(Self::File {
            file,
            path: path.to_owned(),
            repeat,
        })
    }

    /// The result if the server ends the stream first. A repeated file has no end that could be missed.
    fn if_cut_off(&self) -> Moved {
        match self {
            Self::File { repeat: true, .. } => Moved::All,
            _ => Moved::Part,
        }
    }

    /// Sends all bytes, at most `limit`. Ends early if the server takes no more.
    fn send(self, connection: &UnixStream, limit: Option<u64>) -> io::Result<Moved> {
        let cut_off = self.if_cut_off();
        let mut left = limit.unwrap_or(u64::MAX);
        let mut to = connection;
        let sent = match self {
            Self::Stdin => io::copy(&mut io::stdin().lock().take(left), &mut to),
            Self::File {
                mut file, repeat, ..
            } => loop {
                match io::copy(&mut Read::by_ref(&mut file).take(left), &mut to) {
                    Ok(sent) if repeat && sent < left => {
                        left -= sent;
                        file.rewind()?;
                    }
                    other => break other,
                }
            },
        };
        // The server closes the connection of a stream whose range is full, or that was ended by a request.
        match sent {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(cut_off)
            }
            other => other.map(|_| Moved::All),
        }
    }
}

/// The sink of the played bytes.
pub(super) struct Sink(Target);

impl Sink {
    /// Opens a file, whose content stays until [`begin`](Peer::begin), or standard output.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        Target::open(path, io::stdout()).map(Self)
    }

    /// Writes all received bytes. If the reader of standard output closes it, as `head` does, that is a
    /// normal end.
    fn write_all(mut self, connection: &UnixStream) -> io::Result<()> {
        let mut from = connection;
        let taken = io::copy(&mut from, &mut self.0).and_then(|_| self.0.flush());
        match taken {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

/// The client's end of a byte stream.
pub(super) enum Peer {
    Source(Source),
    Sink(Sink),
}

impl Peer {
    /// True if standard output is used for its bytes.
    pub(super) fn is_to_stdout(&self) -> bool {
        matches!(self, Self::Sink(Sink(target)) if target.is_standard())
    }

    /// The direction of its bytes.
    pub(super) fn op(&self) -> StreamOp {
        match self {
            Self::Source(_) => StreamOp::Record,
            Self::Sink(_) => StreamOp::Play,
        }
    }

    /// Its operation, for error messages: `write out.ts`.
    pub(super) fn doing(&self) -> String {
        match self {
            Self::Source(Source::Stdin) => "read standard input".to_owned(),
            Self::Source(Source::File { path, .. }) => format!("read {}", path.display()),
            Self::Sink(sink) if sink.0.path() == Path::new("-") => {
                "write standard output".to_owned()
            }
            Self::Sink(sink) => format!("write {}", sink.0.path().display()),
        }
    }

    /// Its file, unless it is standard input or output, and the option that names it.
    pub(super) fn file(&self) -> Option<(&File, &'static str)> {
        match self {
            Self::Source(Source::Stdin) => None,
            Self::Source(Source::File { file, .. }) => Some((file, "--from")),
            Self::Sink(sink) => sink.0.file().map(|file| (file, "--to")),
        }
    }

    /// Empties the file of a sink. Called when the stream is certain to start.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        match self {
            Self::Source(_) => Ok(()),
            Self::Sink(sink) => sink.0.begin(),
        }
    }

    /// Moves all bytes, and returns when the server has closed its side.
    pub(super) fn run(self, connection: UnixStream, limit: Option<u64>) -> io::Result<Moved> {
        match self {
            Self::Source(source) => {
                let cut_off = source.if_cut_off();
                let sent = source.send(&connection, limit);
                // Fails if the server has closed the connection already.
                let _ = connection.shutdown(Shutdown::Write);
                // The server resets the connection if it ends the stream with unread bytes, as for a full
                // range.
                match io::copy(&mut &connection, &mut io::sink()) {
                    Ok(_) => sent,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        sent.map(|_| cut_off)
                    }
                    Err(error) => sent.and(Err(error)),
                }
            }
            Self::Sink(sink) => sink.write_all(&connection).map(|()| Moved::All),
        }
    }
}
