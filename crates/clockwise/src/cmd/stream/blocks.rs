//! A report on each block of a stream, as lines of CSV that are written while the stream runs.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::target::Target;
use crate::client::ApiClient;
use crate::failure::{Failure, FailureKind};
use crate::print::counted;
use crate::wire::streams::BlockView;

const HEAD: &str = "index,offset,bytes,submitted_ns,deadline_ns,completed_ns,late_ns,late_net_ns\n";

/// Writes the lines, and keeps track of the blocks.
pub(super) struct BlockLog {
    target: Target,
    /// True if the header line was written.
    has_head: bool,
    /// The next block to write.
    next: u64,
    /// Blocks without a line although later ones have one.
    lost: u64,
}

impl BlockLog {
    /// Opens a file, whose content stays until [`begin`](Self::begin), or standard error. A file that cannot
    /// be written is refused at once.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let bad_input = |failure| Failure {
            kind: FailureKind::BadInput,
            ..failure
        };
        let mut log = Self {
            target: Target::open(path, io::stderr())?,
            has_head: false,
            next: 0,
            lost: 0,
        };
        let has_content = log.target.has_content();
        if !has_content.map_err(|error| bad_input(log.failure(&error)))? {
            log.write_head().map_err(bad_input)?;
        }
        Ok(log)
    }

    /// The file, unless it is standard error.
    pub(super) fn file(&self) -> Option<&File> {
        self.target.file()
    }

    /// Empties the file and writes the header.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        self.target.begin()?;
        self.write_head()
    }

    fn write_head(&mut self) -> Result<(), Failure> {
        if self.has_head {
            return Ok(());
        }
        self.has_head = true;
        self.write(HEAD)
    }

    fn failure(&self, error: &io::Error) -> Failure {
        self.target.failure("standard error", error)
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.target.write_all(text.as_bytes());
        written.map_err(|error| self.failure(&error))
    }

    /// Fetches and writes the blocks that have been completed since the last call.
    pub(super) async fn fetch(&mut self, client: &ApiClient, path: &str) -> Result<(), Failure> {
        loop {
            let query = format!("{path}/blocks?from={}", self.next);
            let blocks: Vec<BlockView> = client.get(&query).await?;
            if blocks.is_empty() {
                return Ok(());
            }
            self.add(&blocks)?;
        }
    }

    fn add(&mut self, blocks: &[BlockView]) -> Result<(), Failure> {
        let mut text = String::new();
        for block in blocks {
            self.lost += block.index.saturating_sub(self.next);
            self.next = block.index + 1;
            let deadline = block.deadline_ns.map(|ns| ns.to_string());
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{}",
                block.index,
                block.offset,
                block.bytes,
                block.submitted_ns,
                deadline.unwrap_or_default(),
                block.completed_ns,
                block.late_ns,
                block.late_net_ns
            );
        }
        self.write(&text)
    }

    /// A remark about blocks without a line, if there are any.
    pub(super) fn note(&self) -> Option<String> {
        (self.lost > 0).then(|| {
            format!(
                "{} has no lines for {}: the blocks failed, or the server had discarded their reports already",
                self.target.path().display(),
                counted(self.lost, "block")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(index: u64) -> BlockView {
        BlockView {
            index,
            offset: index * 512,
            bytes: 512,
            submitted_ns: 1,
            deadline_ns: None,
            completed_ns: 2,
            late_ns: 0,
            late_net_ns: 0,
        }
    }

    #[test]
    fn blocks_without_a_line_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blocks.csv");
        let mut log = BlockLog::open(&path).unwrap();
        log.begin().unwrap();
        log.add(&[block(0), block(1)]).unwrap();
        assert_eq!(log.note(), None);
        log.add(&[block(5), block(6)]).unwrap();
        log.add(&[block(9)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let indices: Vec<&str> = text.lines().map(|line| &line[..1]).collect();
        assert_eq!(indices, ["i", "0", "1", "5", "6", "9"]);
        let note = log.note().unwrap();
        assert!(note.contains("no lines for 5 blocks"), "{note}");
    }

    #[test]
    fn file_that_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let in_no_folder = folder.path().join("absent").join("blocks.csv");
        for path in [in_no_folder.as_path(), Path::new("/dev/full")] {
            let name = path.display().to_string();
            let failure = BlockLog::open(path).err();
            let failure = failure.unwrap_or_else(|| panic!("{name} is taken"));
            assert_eq!(failure.kind, FailureKind::BadInput, "{name}");
            assert!(failure.what.contains(&name), "{}", failure.what);
        }
    }
}
