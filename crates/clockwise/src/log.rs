//! The log: lines on standard error, written by a thread of its own.
//!
//! A thread hands its line over and continues: it neither waits for the reader of the log nor fails with it.
//! A line is lost if it cannot be written, or if [`QUEUE_MAX`] lines already wait for a reader that does not
//! read. Lost lines are counted, and the next line that can be written reports the count.
//!
//! A line is text for people, or with [`LogFormat::Json`] an object for programs with the same fields.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Map, Value};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::prelude::*;

use crate::failure::{Failure, host_failure};

/// The most lines that wait to be written.
const QUEUE_MAX: usize = 4_096;

/// The maximum time that the program waits at its end for the last lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The format of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text for each event.
    Text,
    /// A JSON object for each event, on a line of its own.
    Json,
}

/// Number of lost lines that the log has not reported yet.
type LostCount = Arc<AtomicU64>;

/// The count of this process's log.
static LOST: OnceLock<LostCount> = OnceLock::new();

/// Number of lines lost since the start.
static LOST_IN_ALL: AtomicU64 = AtomicU64::new(0);

enum Message {
    Line(Vec<u8>),
    /// A request for a reply when all earlier lines have been written or lost.
    Flush(SyncSender<()>),
}

/// Queues lines for the writing thread. It never blocks and never fails.
#[derive(Clone)]
struct LineQueue {
    queue: SyncSender<Message>,
    lost: LostCount,
}

impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Message::Line(line.to_vec())).is_err() {
            count_lost(&self.lost);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The log of this process. Dropping it waits [`FLUSH_TIMEOUT`] at most for the last lines to be written.
pub(crate) struct Log(SyncSender<Message>);

impl Log {
    /// Waits until all lines so far are written or lost. Returns false if that takes longer than
    /// [`FLUSH_TIMEOUT`], because nothing reads the log.
    pub(crate) fn flush(&self) -> bool {
        let (done, is_done) = mpsc::sync_channel(1);
        self.0.try_send(Message::Flush(done)).is_ok() && is_done.recv_timeout(FLUSH_TIMEOUT).is_ok()
    }

    /// Adds the failure that ends the program, whatever lines `RUST_LOG` selects. For the JSON format.
    pub(crate) fn failure(&self, failure: &Failure) {
        let mut fields = Map::new();
        if let Some(place) = &failure.place {
            let place = format!("{}:{}:{}", place.file, place.line, place.column);
            fields.insert("place".to_owned(), place.into());
        }
        fields.insert("help".to_owned(), failure.help.as_str().into());
        let line = json_line("ERROR", &failure.what, fields);
        // Nothing reads the log if there is no room.
        let _ = self.0.try_send(Message::Line(line.into_bytes()));
    }
}

/// An event as a JSON object on a line, as the subscriber writes events.
fn json_line(level: &str, message: &str, fields: Map<String, Value>) -> String {
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), time().into());
    line.insert("level".to_owned(), level.into());
    line.insert("message".to_owned(), message.into());
    line.extend(fields);
    format!("{}\n", Value::Object(line))
}

/// The present time, as the subscriber writes it.
fn time() -> String {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Starts the log on standard error, where a service manager collects it. `RUST_LOG` filters lines by level
/// and crate, such as `warn,media=debug`; `default` is the filter without it.
///
/// # Errors
/// When the host has no descriptor or no thread for it.
pub(crate) fn start(default: &str, format: LogFormat) -> Result<Log, Failure> {
    let failed = |error: io::Error| host_failure("start the log", &error);
    let chosen = std::env::var("RUST_LOG").ok();
    let chosen = chosen.and_then(|text| text.parse::<Targets>().ok());
    // The default is a valid constant.
    let filter = chosen.unwrap_or_else(|| default.parse().unwrap_or_default());
    // A descriptor of its own: other writers to standard error do not wait for this thread's lock.
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    let lost = LOST.get_or_init(LostCount::default);
    let queue = start_writer(File::from(stderr), format, Arc::clone(lost)).map_err(failed)?;
    let lines = LineQueue {
        queue: queue.clone(),
        lost: Arc::clone(lost),
    };
    // Only a second call can fail; the first log stays in use then.
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(lines)
        .log_internal_errors(false)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(false);
    let layer = match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .try_init();
    Ok(Log(queue))
}

/// Number of lost lines that the log has not reported yet.
pub(crate) fn lost() -> u64 {
    LOST.get().map_or(0, |lost| lost.load(Ordering::Relaxed))
}

/// Number of lines lost since the start.
pub(crate) fn lost_in_all() -> u64 {
    LOST_IN_ALL.load(Ordering::Relaxed)
}

fn count_lost(lost: &LostCount) {
    lost.fetch_add(1, Ordering::Relaxed);
    LOST_IN_ALL.fetch_add(1, Ordering::Relaxed);
}

/// Starts the thread that writes the lines.
fn start_writer(to: File, format: LogFormat, lost: LostCount) -> io::Result<SyncSender<Message>> {
    let (queue, messages) = mpsc::sync_channel(QUEUE_MAX);
    let out = LineWriter {
        to,
        format,
        lost,
        is_within_line: false,
        reason: String::new(),
    };
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || out.write_all(&messages))?;
    Ok(queue)
}

/// Writes the lines, on the log's thread.
struct LineWriter {
    to: File,
    format: LogFormat,
    lost: LostCount,
    /// True if the last line was written only in part.
    is_within_line: bool,
    /// Why a line could not be written; empty if lines were lost because the queue was full.
    reason: String,
}

impl LineWriter {
    fn write_all(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Line(line) => {
                    if !self.report_lost() || !self.write_line(&line) {
                        count_lost(&self.lost);
                    }
                }
                Message::Flush(done) => {
                    self.report_lost();
                    // The thread that asked may have timed out.
                    let _ = done.try_send(());
                }
            }
        }
    }

    /// Writes the number of lost lines, if there are any. Returns false if it cannot be written.
    fn report_lost(&mut self) -> bool {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost == 0 {
            return true;
        }
        let reason = match self.reason.as_str() {
            "" => "the reader of the log was too slow",
            reason => reason,
        };
        let what = "log lines were lost";
        let line = match self.format {
            LogFormat::Text => format!("{}  WARN {what} lost={lost} reason={reason}\n", time()),
            LogFormat::Json => {
                let fields = [("lost", lost.into()), ("reason", reason.into())];
                let fields = fields.map(|(name, value): (&str, Value)| (name.to_owned(), value));
                json_line("WARN", what, fields.into_iter().collect())
            }
        };
        let is_reported = self.write_line(line.as_bytes());
        if is_reported {
            self.lost.fetch_sub(lost, Ordering::Relaxed);
            self.reason.clear();
        }
        is_reported
    }

    /// Writes a line. Returns false if it is lost.
    fn write_line(&mut self, line: &[u8]) -> bool {
        let written = self.try_write_line(line);
        if let Err(error) = &written {
            self.reason = error.to_string();
        }
        written.is_ok()
    }

    fn try_write_line(&mut self, line: &[u8]) -> io::Result<()> {
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

    /// Writes a part of `bytes` as soon as the reader has room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.to.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Another process that shares the file, such as a terminal, has made it non-blocking.
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
    use std::path::{Path, PathBuf};

    use super::*;

    /// A log that writes to a file, and its queue with the count of lost lines.
    fn log(to: File) -> (Log, LineQueue) {
        log_as(LogFormat::Text, to)
    }

    fn log_as(format: LogFormat, to: File) -> (Log, LineQueue) {
        let lost = LostCount::default();
        let queue = start_writer(to, format, Arc::clone(&lost)).unwrap();
        let lines = LineQueue {
            queue: queue.clone(),
            lost,
        };
        (Log(queue), lines)
    }

    /// A FIFO in `folder`, and a reader of it. The reader also has it open for writing, because opening one end of a
    /// FIFO waits for the other end.
    fn fifo(folder: &Path) -> (PathBuf, File) {
        let path = folder.join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let reader = open_both_ends(&path);
        (path, reader)
    }

    fn open_both_ends(fifo: &Path) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(fifo)
            .unwrap()
    }

    #[test]
    fn lines_lost_on_a_full_disk_are_counted() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (log, mut lines) = log(full);
        for _ in 0..3 {
            lines.write_all(b"a line\n").unwrap();
        }
        assert!(log.flush());
        assert_eq!(lines.lost.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn next_reader_gets_the_count_of_lines_lost_without_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let (path, first) = fifo(folder.path());
        let (log, mut lines) = log(OpenOptions::new().write(true).open(&path).unwrap());
        lines.write_all(b"one\n").unwrap();
        assert!(log.flush());
        let mut line = String::new();
        let mut first = BufReader::new(first);
        first.read_line(&mut line).unwrap();
        assert_eq!(line, "one\n");
        drop(first);
        for _ in 0..2 {
            lines.write_all(b"two\n").unwrap();
        }
        assert!(log.flush());
        assert_eq!(lines.lost.load(Ordering::Relaxed), 2);
        let second = open_both_ends(&path);
        lines.write_all(b"three\n").unwrap();
        assert!(log.flush());
        let mut read = BufReader::new(second).lines().map(Result::unwrap);
        let report = read.next().unwrap();
        assert!(
            report.contains("WARN") && report.contains("lost=2") && report.contains("Broken pipe"),
            "{report}"
        );
        assert_eq!(read.next().unwrap(), "three");
        assert_eq!(lines.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lost_lines_and_the_last_failure_are_objects_for_programs() {
        let folder = tempfile::tempdir().unwrap();
        let (path, first) = fifo(folder.path());
        drop(first);
        let both_ends = open_both_ends(&path);
        let (log, lines) = log_as(
            LogFormat::Json,
            OpenOptions::new().write(true).open(&path).unwrap(),
        );
        lines.lost.fetch_add(3, Ordering::Relaxed);
        log.failure(&Failure::failed("no \"pool\"").help("make one"));
        assert!(log.flush());
        let mut read = BufReader::new(both_ends).lines().map(Result::unwrap);
        let mut next = || serde_json::from_str::<Value>(&read.next().unwrap()).unwrap();
        let lost = next();
        assert_eq!(lost["level"], "WARN");
        assert_eq!(lost["lost"], 3);
        assert_eq!(lost["reason"], "the reader of the log was too slow");
        let failure = next();
        assert_eq!(failure["level"], "ERROR");
        assert_eq!(failure["message"], "no \"pool\"");
        assert_eq!(failure["help"], "make one");
        assert!(failure["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn reader_that_does_not_read_blocks_no_writer() {
        let folder = tempfile::tempdir().unwrap();
        let (path, reader) = fifo(folder.path());
        let (log, mut lines) = log(OpenOptions::new().write(true).open(&path).unwrap());
        // More lines than the pipe and the queue have room for.
        let line = [&[b'x'; 1_023][..], b"\n"].concat();
        let count = QUEUE_MAX as u64 + 2_048;
        for _ in 0..count {
            lines.write_all(&line).unwrap();
        }
        assert!(!log.flush());
        let mut read = BufReader::new(reader).lines().map(Result::unwrap);
        // The log reports lost lines once or more often, depending on when its thread gets the processor.
        let (mut whole, mut lost) = (0, 0);
        while whole + lost < count {
            let line = read.next().unwrap();
            if line.contains("WARN") {
                let (_, report) = line.split_once("lost=").unwrap();
                let (lines, reason) = report.split_once(" reason=").unwrap();
                assert_eq!(reason, "the reader of the log was too slow");
                lost += lines.parse::<u64>().unwrap();
            } else {
                assert_eq!(line.len(), 1_023);
                whole += 1;
            }
        }
        assert!(lost > 0);
        assert_eq!(whole + lost, count);
    }
}
