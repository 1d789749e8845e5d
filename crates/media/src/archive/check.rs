//! Whether a recording is as it was recorded: every block is read, and what is said in one place compared with another.

use engine::volume_io::Client;

use crate::archive::block::{Block, Kind};
use crate::archive::index::{self, Index};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::sdp::Description;

/// So many of what is damaged are named.
const NAMED_MAX: usize = 100;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks that are damaged.
    pub damaged: u64,
    /// The first of them, by their places in the recording, from 0.
    pub damaged_at: Vec<u64>,
    /// Packets that are not what their block says.
    pub impossible: u64,
    /// RTP packets.
    pub packets: u64,
    /// Bytes of all packets' bodies.
    pub bytes: u64,
    /// RTP packets that never came, or could not be recorded.
    pub lost: u64,
    /// Sections of the index that are there.
    pub sections: u64,
    /// Sections that should be there and are not.
    pub sections_missing: u64,
    /// Sections that say something else than the blocks that they are about.
    pub sections_wrong: u64,
}

impl Report {
    /// Whether all is there that was recorded, and findable.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged == 0 && self.impossible == 0 && self.sections_wrong == 0
    }
}

/// Reads a recording.
///
/// # Errors
/// When it cannot be read, or has been deleted or overwritten meanwhile.
pub fn check(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Option<Report>, ArchiveError> {
    let mut report = Report::default();
    // Frames that can be decoded alone as the blocks say, of those that the section will be about.
    let mut begun: Vec<(u64, usize, u8)> = Vec::new();
    // What is before this has gone.
    let mut there = recording.first;
    for serial in recording.first..recording.end {
        if !goes_on() {
            return Ok(None);
        }
        report.blocks += 1;
        let bytes = archive.read_block(client, serial)?;
        let block = bytes.as_deref().and_then(|bytes| Block::parse(bytes).ok());
        let block = block.filter(|block| {
            let of = &block.trailer;
            of.recording == recording.number && Description::parse(block.text()).is_ok()
        });
        let Some(block) = block else {
            // It may have gone since it was asked for, or its beginning may.
            let now = archive.recording(Some(recording.number));
            let now = now.ok_or_else(|| ArchiveError::NoSuch {
                volume: archive.volume().name().to_owned(),
                number: recording.number,
            })?;
            if serial < now.first || archive.is_overwritten(serial) {
                report.blocks -= 1;
                there = serial + 1;
                continue;
            }
            report.damaged += 1;
            if report.damaged_at.len() < NAMED_MAX {
                report.damaged_at.push(serial - recording.first);
            }
            continue;
        };
        for number in 0..block.len() {
            let Some((entry, body)) = block.packet(number) else {
                report.impossible += 1;
                continue;
            };
            report.bytes += body.len() as u64;
            if entry.kind == Kind::Rtp {
                report.packets += 1;
                report.lost += u64::from(entry.lost);
                if entry.begins_frame {
                    begun.push((serial, number, entry.track));
                }
            }
        }
        let is_last = serial + 1 == recording.end && block.trailer.is_last;
        if index::ends_group(serial) || is_last {
            match block.index() {
                [] => report.sections_missing += 1,
                section => {
                    report.sections += 1;
                    let is_right =
                        Index::parse(section).is_ok_and(|of| is_right(&of, there, serial, &begun));
                    report.sections_wrong += u64::from(!is_right && report.damaged == 0);
                }
            }
            begun.clear();
        }
    }
    Ok(Some(report))
}

/// Whether a section is about the blocks up to its own, and its keys are where frames begin, of what is there.
fn is_right(index: &Index, there: u64, serial: u64, begun: &[(u64, usize, u8)]) -> bool {
    let is_there = |serial: u64| serial >= there;
    index.end() == serial + 1
        && index
            .keys
            .iter()
            .filter(|key| is_there(key.serial))
            .all(|key| begun.contains(&(key.serial, key.packet as usize, index.track)))
}
