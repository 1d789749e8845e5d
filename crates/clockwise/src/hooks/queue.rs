//! The queue of a hook, in a file.
//!
//! `docs/reference/hooks.md` has the format: lines of JSON that are only appended. When the file is opened, and when it
//! has become long, it is replaced in one step by one that has what is left. If it cannot be written, the queue stays in
//! memory alone.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::wire::events::{EventKind, EventView};

/// The version of the file's format.
const VERSION: u32 = 1;

/// The most events that wait. Beyond that, the oldest ones are dropped.
const EVENTS_MAX: usize = 10_000;

/// No file is longer.
const BYTES_MAX: u64 = 64 << 20;

/// After so many lines that say nothing of what is left, the file is replaced.
const LINES_SPARE: usize = 1_000;

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Line {
    /// The first line: the version of the format, and the hook.
    Hook { version: u32, target: String },
    /// An event to deliver.
    Event(EventView),
    /// All events up to this number have been delivered.
    Delivered(u64),
    /// The queue has dropped `count` events, the last of them with this number.
    Dropped { id: u64, count: u64 },
}

/// The part of the queue that is left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Left {
    events: VecDeque<EventView>,
    /// Number of dropped events that the hook has not been told of, and the number of the last of them.
    dropped: Option<(u64, u64)>,
}

impl Left {
    /// Takes in a line after the first.
    fn take(&mut self, line: Line) {
        match line {
            Line::Hook { .. } => {}
            Line::Event(event) => self.events.push_back(event),
            Line::Delivered(id) => {
                self.events.retain(|event| event.id > id);
                self.dropped = self.dropped.filter(|(_, last)| *last > id);
            }
            Line::Dropped { id, count } => {
                self.events.retain(|event| event.id > id);
                self.dropped = Some((count, id));
            }
        }
    }

    fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        let dropped = self.dropped.map(|(count, id)| Line::Dropped { id, count });
        let events = self.events.iter().cloned().map(Line::Event);
        dropped.into_iter().chain(events)
    }
}

/// The queue of a hook.
pub(super) struct Queue {
    path: PathBuf,
    target: String,
    left: Left,
    /// `None` while the file cannot be written.
    file: Option<File>,
    /// Lines appended since the file was replaced.
    appended: usize,
}

/// FNV-1a with 64 bits. It tells hooks apart; nothing depends on its strength.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Queue {
    /// Opens the queue of the hook with this target, in the folder `state`.
    pub(super) fn open(state: &Path, target: &str) -> Self {
        let path = state.join(format!("hook-{:016x}.queue", hash(target)));
        let left = read(&path).unwrap_or_else(|problem| {
            let aside = path.with_extension("queue.damaged");
            let _ = std::fs::rename(&path, &aside);
            tracing::warn!(path = %path.display(), aside = %aside.display(), %problem, "the queue of a hook cannot be read; it is set aside, and a new one begins");
            Left::default()
        });
        let mut queue = Self {
            path,
            target: target.to_owned(),
            left,
            file: None,
            appended: 0,
        };
        queue.replace();
        queue
    }

    /// The event to deliver next.
    pub(super) fn next(&self) -> Option<EventView> {
        let Some((count, id)) = self.left.dropped else {
            return self.left.events.front().cloned();
        };
        let what =
            format!("{count} events were dropped because the hook did not take them in time");
        Some(EventView {
            id,
            lost: Some(count),
            at_unix_ns: self.left.events.front().map_or(0, |of| of.at_unix_ns),
            ..EventView::new(EventKind::Lost, what)
        })
    }

    /// The number of the newest event in it.
    pub(super) fn newest(&self) -> Option<u64> {
        let dropped = self.left.dropped.map(|(_, id)| id);
        self.left
            .events
            .iter()
            .map(|event| event.id)
            .max()
            .max(dropped)
    }

    /// Adds an event, durably. One that it has is not added again: the hook that was here before has taken it.
    pub(super) fn push(&mut self, event: EventView) {
        if self
            .left
            .events
            .back()
            .is_some_and(|last| last.id >= event.id)
        {
            return;
        }
        self.left.events.push_back(event.clone());
        self.append(&Line::Event(event), true);
        if self.left.events.len() > EVENTS_MAX
            && let Some(oldest) = self.left.events.pop_front()
        {
            let before = self.left.dropped.map_or(0, |(count, _)| count);
            let (count, id) = (before + 1, oldest.id);
            self.left.dropped = Some((count, id));
            self.append(&Line::Dropped { id, count }, false);
        }
    }

    /// The event with this number, and those before it, have been delivered.
    pub(super) fn delivered(&mut self, id: u64) {
        let line = Line::Delivered(id);
        self.left.take(line.clone());
        // Without that line the event would be delivered again.
        self.append(&line, false);
    }

    fn append(&mut self, line: &Line, is_durable: bool) {
        self.appended += 1;
        if self.appended > LINES_SPARE + self.left.events.len() {
            return self.replace();
        }
        let Some(file) = &mut self.file else {
            return self.replace();
        };
        let written = text(line).and_then(|text| file.write_all(&text));
        let written = written.and_then(|()| if is_durable { file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            self.failed(&error);
        }
    }

    /// Replaces the file by one that has what is left.
    fn replace(&mut self) {
        let had_file = self.file.is_some() || self.appended == 0;
        self.appended = 0;
        match self.written_anew() {
            Ok(file) => self.file = Some(file),
            Err(error) if had_file => self.failed(&error),
            // It has been said.
            Err(_) => self.file = None,
        }
    }

    fn failed(&mut self, error: &io::Error) {
        self.file = None;
        tracing::warn!(path = %self.path.display(), %error, "the queue of a hook cannot be written: its events are lost when the server ends. Make that folder writable, or set another as `state` in [server]");
    }

    fn written_anew(&self) -> io::Result<File> {
        let folder = self.path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let head = Line::Hook {
            version: VERSION,
            target: self.target.clone(),
        };
        let mut bytes = text(&head)?;
        for line in self.left.lines() {
            bytes.extend(text(&line)?);
        }
        let temporary = self.path.with_extension("queue.new");
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        File::open(folder)?.sync_all()?;
        Ok(file)
    }
}

fn text(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Reads the rest of the queue from a file. It ignores a last line that is not whole: the server ended while it wrote that.
fn read(path: &Path) -> Result<Left, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Left::default()),
        Err(error) => return Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    let taken = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    taken.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Left, String> {
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut lines = bytes[..end].split_inclusive(|byte| *byte == b'\n');
    let damaged = |error: serde_json::Error| format!("it is damaged: {error}");
    let head = lines.next().ok_or("it is empty")?;
    match serde_json::from_slice(head).map_err(damaged)? {
        Line::Hook {
            version: VERSION, ..
        } => {}
        Line::Hook { version, .. } => {
            return Err(format!(
                "it has version {version}, and this program knows version {VERSION}"
            ));
        }
        _ => return Err("its first line is not that of a queue".to_owned()),
    }
    let mut left = Left::default();
    for line in lines {
        left.take(serde_json::from_slice(line).map_err(damaged)?);
    }
    Ok(left)
}

#[cfg(test)]
mod tests;
