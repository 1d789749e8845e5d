//! The log: lines on standard error, written by a thread of its own.
//!
//! A thread that has something to tell hands over a line and goes on: it neither waits for who reads the log nor fails with
//! them. A line is lost that cannot be written, or that comes while too many wait for a reader that does not read. Lost
//! lines are counted, and how many they are is the next line that can be written.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::prelude::*;

use crate::failure::{Failure, host_failure};

/// The most lines that wait to be written.
const WAITING_MAX: usize = 4_096;

/// How long the end of the program waits for the last lines to be written.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// How many lines are lost and have not been told to be.
type Lost = Arc<AtomicU64>;

/// Of the log of this process.
static LOST: OnceLock<Lost> = OnceLock::new();

enum Message {
    Line(Vec<u8>),
    /// Answers when all before it has been written or is lost.
    Flush(SyncSender<()>),
}

/// Takes lines. It never waits and never fails.
#[derive(Clone)]
struct Lines {
    queue: SyncSender<Message>,
    lost: Lost,
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Message::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The log of a program. Dropped, it waits a moment for the last lines to be written.
pub(crate) struct Log(SyncSender<Message>);

impl Log {
    /// Waits a moment until all lines so far are written or lost; false if nobody takes them.
    pub(crate) fn flush(&self) -> bool {
        let (done, is_done) = mpsc::sync_channel(1);
        self.0.try_send(Message::Flush(done)).is_ok() && is_done.recv_timeout(FLUSH_WITHIN).is_ok()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Begins the log. Messages go to standard error, where a service manager collects them; `RUST_LOG` chooses
/// them by level and crate, such as `warn,media=debug`.
///
/// # Errors
/// When the host has no descriptor or thread for it.
pub(crate) fn start(default: &str) -> Result<Log, Failure> {
    let failed = |error: io::Error| host_failure("begin the log", &error);
    let chosen = std::env::var("RUST_LOG").ok();
    let chosen = chosen.and_then(|text| text.parse::<Targets>().ok());
    // The default is a constant that is right.
    let filter = chosen.unwrap_or_else(|| default.parse().unwrap_or_default());
    // A descriptor of its own: whoever else writes to standard error does not wait for this thread.
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    let lost = LOST.get_or_init(Lost::default);
    let queue = begin(File::from(stderr), Arc::clone(lost)).map_err(failed)?;
    let lines = Lines {
        queue: queue.clone(),
        lost: Arc::clone(lost),
    };
    // Only a second call can fail, and the first log is as good.
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(lines)
        .log_internal_errors(false)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(false);
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .try_init();
    Ok(Log(queue))
}

/// How many lines are lost that the log itself has not told of yet.
pub(crate) fn lost() -> u64 {
    LOST.get().map_or(0, |lost| lost.load(Ordering::Relaxed))
}

/// Starts the thread that writes.
fn begin(to: File, lost: Lost) -> io::Result<SyncSender<Message>> {
    let (queue, messages) = mpsc::sync_channel(WAITING_MAX);
    let out = Out {
        to,
        lost,
        is_within_line: false,
        reason: String::new(),
    };
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || out.write_all(&messages))?;
    Ok(queue)
}

/// Where lines go.
struct Out {
    to: File,
    lost: Lost,
    /// The last line was written in part.
    is_within_line: bool,
    /// Why a line could not be written; empty if nobody took it in time.
    reason: String,
}

impl Out {
    fn write_all(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Line(line) => {
                    if !self.tell_lost() || !self.put(&line) {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Message::Flush(done) => {
                    self.tell_lost();
                    // Whoever asked may have given up.
                    let _ = done.try_send(());
                }
            }
        }
    }

    /// Tells how many lines are lost, if any are; whether lines can be written.
    fn tell_lost(&mut self) -> bool {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost == 0 {
            return true;
        }
        let mut line = String::new();
        let reason = match self.reason.as_str() {
            "" => "nobody read them",
            reason => reason,
        };
        // Text takes all that is written to it.
        let _ = SystemTime.format_time(&mut Writer::new(&mut line));
        let _ = writeln!(
            line,
            "  WARN lines of the log are lost lost={lost} reason={reason}"
        );
        let is_told = self.put(line.as_bytes());
        if is_told {
            self.lost.fetch_sub(lost, Ordering::Relaxed);
            self.reason.clear();
        }
        is_told
    }

    /// Writes a line; false if it is lost.
    fn put(&mut self, line: &[u8]) -> bool {
        let written = self.try_put(line);
        if let Err(error) = &written {
            self.reason = error.to_string();
        }
        written.is_ok()
    }

    fn try_put(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_within_line {
            self.write(b"\n")?;
            self.is_within_line = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            rest = &rest[self.write(rest)?..];
            self.is_within_line = !rest.is_empty();
        }
        Ok(())
    }

    /// Writes some of it, when the reader has room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.to.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Others have made it so, as a terminal that they share.
                    poll(&mut [PollFd::new(&self.to, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{BufRead, BufReader};
    use std::path::Path;

    use super::*;

    /// A log that writes to a file, and how many of its lines are lost.
    fn log(to: File) -> (Log, Lines) {
        let lost = Lost::default();
        let queue = begin(to, Arc::clone(&lost)).unwrap();
        let lines = Lines {
            queue: queue.clone(),
            lost,
        };
        (Log(queue), lines)
    }

    fn pipe(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        path
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (log, mut lines) = log(full);
        for _ in 0..3 {
            lines.write_all(b"a line\n").unwrap();
        }
        assert!(log.flush());
        assert_eq!(lines.lost.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn the_next_reader_is_told_how_many_lines_were_lost_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        // Both ends, as opening one waits for the other.
        let first = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let (log, mut lines) = log(OpenOptions::new().write(true).open(&path).unwrap());
        lines.write_all(b"one\n").unwrap();
        assert!(log.flush());
        let mut said = String::new();
        let mut first = BufReader::new(first);
        first.read_line(&mut said).unwrap();
        assert_eq!(said, "one\n");
        drop(first);
        for _ in 0..2 {
            lines.write_all(b"two\n").unwrap();
        }
        assert!(log.flush());
        assert_eq!(lines.lost.load(Ordering::Relaxed), 2);
        let second = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        lines.write_all(b"three\n").unwrap();
        assert!(log.flush());
        let mut said = BufReader::new(second).lines().map(Result::unwrap);
        let told = said.next().unwrap();
        assert!(
            told.contains("WARN") && told.contains("lost=2") && told.contains("Broken pipe"),
            "{told}"
        );
        assert_eq!(said.next().unwrap(), "three");
        assert_eq!(lines.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        let reader = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let (log, mut lines) = log(OpenOptions::new().write(true).open(&path).unwrap());
        // More than the pipe and those that may wait are.
        let line = [&[b'x'; 1_023][..], b"\n"].concat();
        let count = WAITING_MAX as u64 + 2_048;
        for _ in 0..count {
            lines.write_all(&line).unwrap();
        }
        assert!(!log.flush());
        let lost = lines.lost.load(Ordering::Relaxed);
        assert!(lost > 0);
        let mut read = BufReader::new(reader).lines().map(Result::unwrap);
        let mut told = None;
        let mut whole = 0;
        while whole + lost < count || told.is_none() {
            let line = read.next().unwrap();
            if line.contains("WARN") {
                told = Some(line);
            } else {
                assert_eq!(line.len(), 1_023);
                whole += 1;
            }
        }
        let told = told.unwrap();
        assert!(
            told.contains(&format!("lost={lost} reason=nobody")),
            "{told}"
        );
    }
}
