//! This end of a byte stream: the file or pipe whose bytes are recorded, or that gets those played.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::target::Target;
use crate::failure::{Failure, FailureKind, io_failure};
use crate::wire::ask::StreamOp;

/// Bytes to record.
pub(super) enum Source {
    Stdin,
    File {
        file: File,
        path: PathBuf,
        repeat: bool,
    },
}

impl Source {
    /// A file, or standard input; what cannot be read, or not again, is refused at once.
    pub(super) fn open(path: &Path, repeat: bool) -> Result<Self, Failure> {
        if path == Path::new("-") {
            if repeat {
                return Err(Failure::bad_input(
                    "standard input cannot be read again from its beginning",
                )
                .help("name a file with --from, or leave out --loop"));
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
                if repeat { " again and again" } else { "" }
            ))
            .help("name a file with --from, or `-` for standard input without --loop"));
        }
        if repeat && metadata.len() == 0 {
            return Err(Failure::bad_input(format!(
                "{} is empty, and would be for ever",
                path.display()
            ))
            .help("name a file with something in it, or leave out --loop"));
        }
        Ok(Self::File {
            file,
            path: path.to_owned(),
            repeat,
        })
    }

    /// Sends it all, at most `limit` bytes; ends early when nobody takes any more. Whether it was all.
    fn send(self, connection: &UnixStream, limit: Option<u64>) -> io::Result<bool> {
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
        // The server ends a stream whose range is full, or which was ended by somebody else.
        match sent {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(false)
            }
            other => other.map(|_| true),
        }
    }
}

/// Where played bytes go.
pub(super) struct Sink(Target);

impl Sink {
    /// A file, whose content stays until the peer [begins](Peer::begin), or standard output.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        Target::open(path, io::stdout()).map(Self)
    }

    /// Takes all that comes. A reader of standard output that has enough, as `head` does, ends it.
    fn take(mut self, connection: &UnixStream) -> io::Result<()> {
        let mut from = connection;
        let taken = io::copy(&mut from, &mut self.0).and_then(|_| self.0.flush());
        match taken {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

/// This end of the byte stream.
pub(super) enum Peer {
    Source(Source),
    Sink(Sink),
}

impl Peer {
    /// Whether standard output is for its bytes.
    pub(super) fn is_to_stdout(&self) -> bool {
        matches!(self, Self::Sink(Sink(target)) if target.is_standard())
    }

    /// Which way its bytes go.
    pub(super) fn op(&self) -> StreamOp {
        match self {
            Self::Source(_) => StreamOp::Record,
            Self::Sink(_) => StreamOp::Play,
        }
    }

    /// What it does with which file, for an error: `write out.ts`.
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

    /// Makes room for the bytes, now that it is certain that some will come.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        match self {
            Self::Source(_) => Ok(()),
            Self::Sink(sink) => sink.0.begin(),
        }
    }

    /// Moves all bytes, and returns when the server has closed its side: whether that took all there were.
    pub(super) fn run(self, connection: UnixStream, limit: Option<u64>) -> io::Result<bool> {
        match self {
            Self::Source(source) => {
                // One that is repeated has no end that could be missed.
                let is_endless = matches!(&source, Source::File { repeat: true, .. });
                let sent = source
                    .send(&connection, limit)
                    .map(|is_all| is_all || is_endless);
                // Already shut when the server went first.
                let _ = connection.shutdown(Shutdown::Write);
                // A server that ends a stream whose range is full leaves what came too late unread.
                match io::copy(&mut &connection, &mut io::sink()) {
                    Ok(_) => sent,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        sent.map(|_| is_endless)
                    }
                    Err(error) => sent.and(Err(error)),
                }
            }
            Self::Sink(sink) => sink.take(&connection).map(|()| true),
        }
    }
}
