//! Requests out of a trace, one after the other.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

use order::Order;
use sched::units::{Bytes, Time};

use super::formats::{self, LineFormat, srt};
use super::input::{Input, LINE_BYTES_MAX, Line};
use super::number::shown;
use super::{Format, Raw, Record, Timing, TraceRequest};

mod order;

/// Place in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a line, counted from 1.
    Line(u64),
    /// In a record of fixed length, counted from 1.
    Record(u64),
    /// In the header.
    Header,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Record(number) => write!(f, "record {number}"),
            Self::Header => f.write_str("the header"),
        }
    }
}

/// Why a trace cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The trace is empty.
    #[error("the trace is empty")]
    Empty,
    /// Its beginning is that of no format, and none was named.
    #[error(
        "the trace is in no known format (srt, disksim, msr, vscsi, blkparse or iolog); {what}"
    )]
    Unknown {
        /// Its format, or its first bytes.
        what: String,
    },
    /// Not readable, or damaged while it was compressed.
    #[error("after {place} the trace cannot be read: {error}")]
    Read {
        /// The last that could be.
        place: Place,
        /// Why.
        error: io::Error,
    },
    /// Something in it is not what the format has there.
    #[error("{place} of the trace: {problem}")]
    Record {
        /// Its place.
        place: Place,
        /// The fault.
        problem: String,
    },
}

enum Parser {
    Lines(Box<dyn LineFormat>),
    Srt,
}

impl Parser {
    fn new(format: Format, beginning: &[u8]) -> Self {
        Self::Lines(match format {
            Format::Srt => return Self::Srt,
            Format::Disksim => Box::new(formats::disksim::Disksim),
            Format::Msr => Box::new(formats::msr::Msr::default()),
            Format::Vscsi => Box::new(formats::vscsi::Vscsi),
            Format::Blkparse => Box::new(formats::blkparse::Blkparse::new(beginning)),
            Format::Iolog => Box::new(formats::iolog::Iolog::default()),
        })
    }
}

/// Knowledge from the records so far.
#[derive(Default)]
struct Seen {
    order: Order,
    devices: HashMap<String, u32>,
}

impl Seen {
    /// Takes a request whose time and device are in terms of the trace.
    fn take(&mut self, raw: &Raw<'_>) -> Result<(), String> {
        if raw.start_bytes.checked_add(raw.length_bytes).is_none() {
            return Err("it ends beyond 2^64 bytes".to_owned());
        }
        self.order.has_place(raw.at_ns)?;
        let device = match self.devices.get(raw.device) {
            Some(device) => *device,
            None => {
                let device = self.devices.len() as u32;
                self.devices.insert(raw.device.to_owned(), device);
                device
            }
        };
        let request = TraceRequest {
            at: Time::ZERO,
            device,
            op: raw.op,
            start: Bytes(raw.start_bytes),
            length: Bytes(raw.length_bytes),
            urgency: raw.urgency,
        };
        self.order.put(raw.at_ns, request);
        Ok(())
    }
}

/// Result of a record.
enum Step {
    Taken,
    End,
}

/// Reads a trace as an iterator over its requests, in order of time. After an error it is at its end.
pub struct Reader<'a> {
    input: Input<'a>,
    format: Format,
    parser: Parser,
    seen: Seen,
    /// Lines or records that have been read.
    number: u64,
    line: Vec<u8>,
    device: String,
    is_lenient: bool,
    skipped: u64,
    other: u64,
    /// Meaning of the times.
    timing: Timing,
    is_at_end: bool,
}

impl<'a> Reader<'a> {
    /// A reader of a trace in that format, or in the one that its first line is of.
    ///
    /// # Errors
    /// When there is nothing to be read, when its format is not known, or when its header is none.
    pub fn new(source: impl Read + 'a, format: Option<Format>) -> Result<Self, TraceError> {
        let unreadable = |error| TraceError::Read {
            place: Place::Header,
            error,
        };
        let input = Input::new(source).map_err(unreadable)?;
        let first = input.beginning();
        if first.is_empty() {
            return Err(TraceError::Empty);
        }
        let format = format
            .or_else(|| formats::detect(first))
            .ok_or_else(|| unknown(first))?;
        let timing = match format {
            Format::Iolog => formats::iolog::timing(first),
            Format::Srt | Format::Disksim | Format::Msr | Format::Vscsi | Format::Blkparse => {
                Timing::Open
            }
        };
        let parser = Parser::new(format, first);
        let mut reader = Self {
            input,
            format,
            parser,
            seen: Seen::default(),
            number: 0,
            line: Vec::new(),
            device: String::new(),
            is_lenient: false,
            skipped: 0,
            other: 0,
            timing,
            is_at_end: false,
        };
        if format == Format::Srt {
            reader.pass_header()?;
        }
        Ok(reader)
    }

    /// Leaves out what is no record of the format, and counts it.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.is_lenient = true;
        self
    }

    /// The format that is read.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Meaning of the trace's times.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Number of faulty records that were left out.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of records that are no transfers.
    #[must_use]
    pub fn other(&self) -> u64 {
        self.other
    }

    /// The disks' names in the trace, by their numbers; those met so far.
    #[must_use]
    pub fn devices(&self) -> Vec<&str> {
        let mut names = vec![""; self.seen.devices.len()];
        for (name, device) in &self.seen.devices {
            names[*device as usize] = name;
        }
        names
    }

    fn place(&self) -> Place {
        match (self.format, self.number) {
            (Format::Srt, 0) => Place::Header,
            (Format::Srt, number) => Place::Record(number),
            (_, number) => Place::Line(number),
        }
    }

    fn wrong(&self, problem: impl Into<String>) -> TraceError {
        TraceError::Record {
            place: self.place(),
            problem: problem.into(),
        }
    }

    /// Reads the text that an SRT trace begins with, to its end.
    fn pass_header(&mut self) -> Result<(), TraceError> {
        let mut magic = [0; srt::MAGIC.len()];
        let count = self.fill(&mut magic)?;
        if magic[..count] != *srt::MAGIC {
            return Err(self.wrong("it does not begin with $$TR_IOREC, as a trace of SRT does"));
        }
        let mut byte = [0];
        for _ in 0..srt::HEADER_BYTES_MAX {
            if self.fill(&mut byte)? == 0 {
                return Err(self.wrong("it has no end: a form feed is missing"));
            }
            if byte[0] == srt::HEADER_END {
                return Ok(());
            }
        }
        Err(self.wrong("it has no end within a mebibyte: a form feed is missing"))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, TraceError> {
        let place = self.place();
        let filled = self.input.fill(bytes);
        filled.map_err(|error| TraceError::Read { place, error })
    }

    /// Reads the next line or record. The inner error is one that a lenient reader passes over.
    fn step(&mut self) -> Result<Result<Step, String>, TraceError> {
        let place = self.place();
        let Parser::Lines(parser) = &mut self.parser else {
            return self.step_record();
        };
        let line = self.input.line(&mut self.line);
        match line.map_err(|error| TraceError::Read { place, error })? {
            Line::None => return Ok(Ok(Step::End)),
            Line::Read => self.number += 1,
            Line::TooLong => {
                self.number += 1;
                return Ok(Err(format!("it is longer than {LINE_BYTES_MAX} bytes")));
            }
        }
        // A name that was cut off within a character does no harm.
        let line = String::from_utf8_lossy(&self.line);
        if formats::is_passed_over(&line) {
            return Ok(Ok(Step::Taken));
        }
        let record = parser.record(&line);
        Ok(record.and_then(|record| taken(&mut self.seen, &mut self.other, &record)))
    }

    fn step_record(&mut self) -> Result<Result<Step, String>, TraceError> {
        let mut bytes = [0; srt::RECORD_BYTES];
        let count = self.fill(&mut bytes)?;
        if count == 0 {
            return Ok(Ok(Step::End));
        }
        self.number += 1;
        if count < bytes.len() {
            return Ok(Err(format!("it ends after {count} bytes")));
        }
        let record = srt::record(&bytes, &mut self.device);
        Ok(record.and_then(|record| taken(&mut self.seen, &mut self.other, &record)))
    }
}

/// Takes a record into account.
fn taken(seen: &mut Seen, other: &mut u64, record: &Record<'_>) -> Result<Step, String> {
    match record {
        Record::Request(raw) if raw.length_bytes > 0 => seen.take(raw)?,
        Record::Request(_) | Record::Other => *other += 1,
        Record::Heading => {}
        Record::End => return Ok(Step::End),
    }
    Ok(Step::Taken)
}

fn unknown(beginning: &[u8]) -> TraceError {
    let what = formats::other(beginning).map_or_else(
        || {
            let text = String::from_utf8_lossy(beginning);
            let first = text.lines().find(|line| !line.trim().is_empty());
            format!("it begins with `{}`", shown(first.unwrap_or_default()))
        },
        str::to_owned,
    );
    TraceError::Unknown { what }
}

impl Iterator for Reader<'_> {
    type Item = Result<TraceRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        // Records without times of their own are in order: there is nothing to wait for.
        let is_in_order = self.timing == Timing::Closed;
        loop {
            let is_next = is_in_order || self.is_at_end;
            if let Some(request) = self.seen.order.take(is_next) {
                return Some(Ok(request));
            }
            if self.is_at_end {
                return None;
            }
            let error = match self.step() {
                Ok(Ok(Step::Taken)) => continue,
                Ok(Ok(Step::End)) => {
                    self.is_at_end = true;
                    continue;
                }
                Ok(Err(_)) if self.is_lenient => {
                    self.skipped += 1;
                    continue;
                }
                Ok(Err(problem)) => self.wrong(problem),
                Err(error) => error,
            };
            self.is_at_end = true;
            self.seen.order.clear();
            return Some(Err(error));
        }
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("format", &self.format)
            .field("number", &self.number)
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
