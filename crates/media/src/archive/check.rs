//! Checks a recording for damage: reads every block, and compares the blocks with the index.

use engine::volume_io::Client;
use serde::{Deserialize, Serialize};

use crate::archive::block::{Block, Kind};
use crate::archive::index::{self, Index};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::sdp::Description;

/// The most damaged blocks that are listed.
const LISTED_MAX: usize = 100;

/// The counters of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = RecordingCheckReport)]
pub struct CheckReport {
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks that are damaged.
    pub damaged: u64,
    /// The first 100 of them, by their places in the recording, from 0.
    pub damaged_at: Vec<u64>,
    /// Packets that contradict their block's header.
    pub impossible: u64,
    /// RTP packets.
    pub packets: u64,
    /// Bytes of all packets, without the fixed RTP headers.
    pub bytes: u64,
    /// RTP packets that were lost before they were recorded.
    pub lost: u64,
    /// Sections of the index that exist.
    pub sections: u64,
    /// Sections that are missing, as after a crash. They are rebuilt from their blocks when needed.
    pub sections_missing: u64,
    /// Sections that contradict the blocks that they describe.
    pub sections_wrong: u64,
}

impl CheckReport {
    /// True if all blocks are undamaged and the index is right.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged == 0 && self.impossible == 0 && self.sections_wrong == 0
    }
}

/// Checks a recording. Returns `None` when `goes_on` returns false.
///
/// # Errors
/// When the recording cannot be read, or was deleted or overwritten meanwhile.
pub fn check(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Option<CheckReport>, ArchiveError> {
    let mut report = CheckReport::default();
    // The places where frames begin in the blocks of the present index section: serial number, packet, track.
    let mut frame_starts: Vec<(u64, usize, u8)> = Vec::new();
    // The first block that has not been overwritten.
    let mut first_present = recording.first;
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
            // The recording, or its beginning, may have been deleted or overwritten since.
            let now = archive.recording(Some(recording.number));
            let now = now.ok_or_else(|| ArchiveError::NoSuch {
                volume: archive.volume().name().to_owned(),
                number: recording.number,
            })?;
            if serial < now.first || archive.is_overwritten(serial) {
                report.blocks -= 1;
                first_present = serial + 1;
                continue;
            }
            report.damaged += 1;
            if report.damaged_at.len() < LISTED_MAX {
                report.damaged_at.push(serial - recording.first);
            }
            continue;
        };
        count_packets(&block, &mut report, |number, track| {
            frame_starts.push((serial, number, track));
        });
        let is_last = serial + 1 == recording.end && block.trailer.is_last();
        if index::ends_group(serial) || is_last {
            match block.index() {
                [] => report.sections_missing += 1,
                section => {
                    report.sections += 1;
                    let index = Index::parse(section);
                    let is_right = index
                        .is_ok_and(|of| matches_blocks(&of, first_present, serial, &frame_starts));
                    report.sections_wrong += u64::from(!is_right && report.damaged == 0);
                }
            }
            frame_starts.clear();
        }
    }
    Ok(Some(report))
}

/// Counts the packets of a block. `begins` gets the packet and the track of each frame that begins in it.
fn count_packets(block: &Block<'_>, report: &mut CheckReport, mut begins: impl FnMut(usize, u8)) {
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
                begins(number, entry.track);
            }
        }
    }
}

/// True if a section describes the blocks up to its own, and each of its keys that was not overwritten is
/// where a frame begins.
fn matches_blocks(
    index: &Index,
    first_present: u64,
    serial: u64,
    frame_starts: &[(u64, usize, u8)],
) -> bool {
    let is_present = |serial: u64| serial >= first_present;
    index.end() == serial + 1
        && index
            .keys
            .iter()
            .filter(|key| is_present(key.serial))
            .all(|key| frame_starts.contains(&(key.serial, key.packet as usize, index.track)))
}
