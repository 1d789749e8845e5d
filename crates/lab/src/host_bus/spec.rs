//! The description of a host bus and its adapters: a TOML file.

use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::Deserialize;
use toml::Spanned;

use super::times::{Direction, Point, Times, Transaction, WORD_BYTES};

/// The order in which waiting adapters get the bus.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// By the time of their requests; of two at one time, the next in turn after the last that had the bus.
    FirstCome,
    /// The next in turn after the last that had the bus.
    RoundRobin,
}

/// An adapter between a channel and the bus.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// Data that it holds between channel and bus.
    pub fifo: Bytes,
    from_memory_burst: Bytes,
    to_memory_burst: Bytes,
    to_memory: Times,
    from_memory: Times,
}

impl Adapter {
    /// The largest transaction.
    #[must_use]
    pub fn burst(&self, direction: Direction) -> Bytes {
        match direction {
            Direction::ToMemory => self.to_memory_burst,
            Direction::FromMemory => self.from_memory_burst,
        }
    }

    /// The time of a transaction of so many bytes that begins at a cache line.
    #[must_use]
    pub fn time(&self, direction: Direction, size: Bytes) -> Nanos {
        match direction {
            Direction::ToMemory => self.to_memory.of(size),
            Direction::FromMemory => self.from_memory.of(size),
        }
    }
}

/// A host bus and the adapters that can be on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostBus {
    /// Its name.
    pub name: String,
    /// The time of a word.
    pub word: Nanos,
    /// The time between two transactions, beside what their own times contain.
    pub idle: Nanos,
    /// Who is next.
    pub arbitration: Arbitration,
    /// Memory is not read faster than this.
    pub memory_read: Option<BytesPerSecond>,
    line: Bytes,
    reconnect: Nanos,
    adapters: Vec<Adapter>,
}

/// Why a description is none.
#[derive(Debug, thiserror::Error)]
pub enum HostBusError {
    /// Not TOML, or not with these keys.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A value is impossible.
    #[error("line {line}: {owner}`{key}`: {problem}")]
    Value {
        /// The line of the value, or of its adapter.
        line: usize,
        /// The adapter, followed by a space; empty for the bus.
        owner: String,
        /// The key.
        key: &'static str,
        /// The problem, and what to do.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    word_ns: Spanned<u64>,
    idle_ns: u64,
    arbitration: Arbitration,
    line_bytes: Spanned<u64>,
    reconnect_ns: u64,
    memory_read_bytes_per_second: Option<Spanned<u64>>,
    #[serde(default)]
    adapter: Vec<AdapterTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdapterTable {
    name: Spanned<String>,
    fifo_bytes: u64,
    burst_bytes: u64,
    to_memory_burst_bytes: Option<u64>,
    to_memory: Vec<Point>,
    from_memory: Vec<Point>,
}

/// A file's text, for the lines of its errors.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn wrong<T>(
        &self,
        at: &Spanned<T>,
        adapter: Option<&str>,
        key: &'static str,
        problem: impl Into<String>,
    ) -> HostBusError {
        HostBusError::Value {
            line: self.0[..at.span().start].matches('\n').count() + 1,
            owner: adapter.map_or_else(String::new, |name| format!("adapter `{name}`: ")),
            key,
            problem: problem.into(),
        }
    }
}

impl AdapterTable {
    fn adapter(self, text: &Text<'_>, word: Nanos) -> Result<Adapter, HostBusError> {
        let name = self.name.get_ref().clone();
        let wrong = |key, problem: String| text.wrong(&self.name, Some(&name), key, problem);
        let times = |key, points| Times::new(word, points).map_err(|problem| wrong(key, problem));
        let to_memory = times("to_memory", self.to_memory)?;
        let from_memory = times("from_memory", self.from_memory)?;
        let written = self.to_memory_burst_bytes.unwrap_or(self.burst_bytes);
        for (key, burst, times) in [
            ("burst_bytes", self.burst_bytes, &from_memory),
            ("to_memory_burst_bytes", written, &to_memory),
        ] {
            if burst == 0 || burst % WORD_BYTES != 0 {
                let problem = format!("{burst} bytes: give a multiple of {WORD_BYTES}, not 0");
                return Err(wrong(key, problem));
            }
            if burst > times.largest().get() {
                let largest = times.largest().get();
                let problem = format!(
                    "{burst} bytes, but the largest measured transaction has {largest}: add a point, or shorten the burst"
                );
                return Err(wrong(key, problem));
            }
            if self.fifo_bytes < burst {
                let problem = format!(
                    "{} bytes hold no burst of {burst}: enlarge the FIFO, or shorten the burst",
                    self.fifo_bytes
                );
                return Err(wrong("fifo_bytes", problem));
            }
        }
        Ok(Adapter {
            fifo: Bytes(self.fifo_bytes),
            from_memory_burst: Bytes(self.burst_bytes),
            to_memory_burst: Bytes(written),
            to_memory,
            from_memory,
            name,
        })
    }
}

impl HostBus {
    /// The bus of the thesis, with its adapters.
    #[must_use]
    pub fn of_thesis() -> Self {
        let text = include_str!("../../host_buses/pci-440fx.toml");
        Self::parse(text).expect("the shipped description is checked by a test")
    }

    /// Reads a description.
    ///
    /// # Errors
    /// When it is not one; the error names the line, the key and what to do.
    pub fn parse(text: &str) -> Result<Self, HostBusError> {
        let file: File = toml::from_str(text)?;
        let text = Text(text);
        let (word, line) = (*file.word_ns.get_ref(), *file.line_bytes.get_ref());
        if word == 0 {
            let problem = "a word takes no time: give 30 for 33 MHz";
            return Err(text.wrong(&file.word_ns, None, "word_ns", problem));
        }
        if line == 0 || line % WORD_BYTES != 0 {
            let problem = format!("{line} bytes: give a multiple of {WORD_BYTES}, not 0");
            return Err(text.wrong(&file.line_bytes, None, "line_bytes", problem));
        }
        if let Some(rate) = file.memory_read_bytes_per_second.as_ref()
            && *rate.get_ref() == 0
        {
            let problem = "a rate of 0: leave the key out for memory without a limit";
            return Err(text.wrong(rate, None, "memory_read_bytes_per_second", problem));
        }
        let mut adapters: Vec<Adapter> = Vec::new();
        for table in file.adapter {
            let name = table.name.get_ref();
            if adapters.iter().any(|adapter| adapter.name == *name) {
                let problem = "a second adapter of this name: give it another";
                return Err(text.wrong(&table.name, Some(name), "name", problem));
            }
            adapters.push(table.adapter(&text, Nanos(word))?);
        }
        Ok(Self {
            name: file.name,
            word: Nanos(word),
            idle: Nanos(file.idle_ns),
            arbitration: file.arbitration,
            memory_read: file
                .memory_read_bytes_per_second
                .map(|rate| BytesPerSecond(rate.into_inner())),
            line: Bytes(line),
            reconnect: Nanos(file.reconnect_ns),
            adapters,
        })
    }

    /// The adapter of that name.
    #[must_use]
    pub fn adapter(&self, name: &str) -> Option<&Adapter> {
        self.adapters.iter().find(|adapter| adapter.name == name)
    }

    /// The time of a transaction. One from memory that does not begin at a cache line is divided at the lines.
    #[must_use]
    pub fn time(&self, adapter: &Adapter, transaction: Transaction) -> Nanos {
        let Transaction {
            direction,
            size,
            offset,
        } = transaction;
        let line = self.line.get();
        let first = line - offset % line;
        if direction == Direction::ToMemory || first == line || size.get() <= first {
            return adapter.time(direction, size);
        }
        let rest = size.get() - first;
        let of = |bytes| adapter.time(direction, Bytes(bytes));
        let last = rest % line;
        let whole = (of(line) + self.reconnect) * (rest / line);
        let end = if last == 0 {
            Nanos::ZERO
        } else {
            self.reconnect + of(last)
        };
        of(first) + whole + end
    }

    /// The rate that no run exceeds.
    #[must_use]
    pub fn rate_max(&self) -> BytesPerSecond {
        BytesPerSecond(WORD_BYTES * 1_000_000_000 / self.word.get())
    }
}
