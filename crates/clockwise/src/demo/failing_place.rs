//! A place of a drive that fails under a recording, while all streams go on.
//!
//! It lies ahead of the recording, and fails for reads as well: what is compared afterwards was read elsewhere. It
//! fails without retries. A drive that tries again for long takes longer than its profile says, and that is another
//! matter than a lost block.

use std::ops::Range;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::cameras::is_filmed;
use super::report::Recording;
use super::stage::{Serving, Stage};
use super::streams::{Ended, Streams, broken};
use crate::failure::Failure;
use crate::wire::faults::{DriveFault, DriveFaults};
use crate::wire::streams::{BlockView, SessionView};
use crate::wire::view::{DiskView, PlaceView, StatusView, StreamView};

/// Length of the place, in blocks of the recording.
const PLACE_BLOCKS: u64 = 2;

/// Blocks from the last complete one to the place: the two that the recording has buffers for may be in flight.
const BLOCKS_AHEAD: u64 = 2;

/// Blocks that the recording makes behind the place.
const BLOCKS_BEHIND: usize = 2;

/// Longest time until the recording has passed the place: several times what its blocks take.
const PASSED_WITHIN: Duration = Duration::from_secs(60);

/// Interval of looks for that.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A place that failed, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct FailingPlace {
    /// The recording's volume.
    pub volume: String,
    /// The drive.
    pub disk: String,
    /// Where the place begins on the drive.
    pub from_byte: u64,
    /// Length of the place.
    pub bytes: u64,
    /// Writes that failed there and were made elsewhere.
    pub failed_writes: u64,
    /// Extents that were left, because a write to them failed.
    pub extents_left: u64,
    /// Blocks of the recording that were taken and not written.
    pub lost_blocks: u64,
    /// Bytes of the recording that are not those that were sent.
    pub different: u64,
    /// Blocks of all streams, of cameras too, from the end of the measurement on.
    pub blocks: u64,
    /// Late ones of these that were written again, net of the host's own lateness.
    pub late_again: u64,
    /// All other late ones, net of the host's own lateness.
    pub late_others: u64,
}

impl FailingPlace {
    /// True if something failed, nothing was lost, and no block was late but those that were written again.
    pub(super) fn is_kept(&self) -> bool {
        let lost = self.lost_blocks + self.different;
        self.failed_writes > 0 && lost + self.late_others == 0
    }

    /// Adds what is known when all streams have ended and their recordings are compared.
    pub(super) fn with_streams(
        self,
        before: &StatusView,
        ended: &Ended,
        recordings: &[Recording],
    ) -> Self {
        let (blocks, late) = moved(ended.sessions.iter().map(|of| &of.stream));
        let (blocks_before, late_before) = moved(before.streams.iter().filter(|of| !is_filmed(of)));
        let late = (late + self.late_others).saturating_sub(late_before);
        let recording = ended
            .sessions
            .iter()
            .find(|of| of.stream.volume == self.volume);
        let lost = |of: &SessionView| {
            let taken = of.pace.bytes.div_ceil(of.stream.block_bytes);
            taken.saturating_sub(of.stream.blocks)
        };
        let of_volume = recordings.iter().filter(|of| of.volume == self.volume);
        // Only a write that failed excuses a block.
        let late_again = self.late_again.min(self.failed_writes);
        Self {
            lost_blocks: recording.map_or(0, lost),
            different: of_volume.map(|of| of.different).sum(),
            blocks: (self.blocks + blocks).saturating_sub(blocks_before),
            late_again,
            late_others: late.saturating_sub(late_again),
            ..self
        }
    }
}

/// Blocks that streams have moved, and the late ones of these.
fn moved<'a>(streams: impl Iterator<Item = &'a StreamView>) -> (u64, u64) {
    streams.fold((0, 0), |(blocks, late), of| {
        (blocks + of.blocks, late + of.misses)
    })
}

/// The fault for a range of a volume.
fn fault(place: &PlaceView, range: &Range<u64>) -> Option<DriveFault> {
    let length = place.to_byte - place.from_byte;
    let start = range.start.max(place.offset_bytes);
    let end = range.end.min(place.offset_bytes + length);
    (start < end).then(|| DriveFault {
        from_byte: place.from_byte + (start - place.offset_bytes),
        bytes: end - start,
        op: None,
        rotations: 0,
        fails: true,
    })
}

impl Stage<'_> {
    /// Makes a place ahead of a recording fail, and returns when the recording has passed it.
    pub(super) fn fail_place(
        &self,
        serving: &Serving<'_>,
        streams: &Streams,
        before: &StatusView,
    ) -> Result<FailingPlace, Failure> {
        let what = "Letting a place of a drive fail ahead of a recording, which goes on over it";
        self.output
            .step(what, || self.fail_ahead(serving, streams, before))
    }

    fn fail_ahead(
        &self,
        serving: &Serving<'_>,
        streams: &Streams,
        before: &StatusView,
    ) -> Result<FailingPlace, Failure> {
        let (volume, id) = streams.first_recording()?;
        let session: SessionView = serving.get(&format!("/v1/streams/{id}"))?;
        let (done, block) = (session.stream.blocks, session.stream.block_bytes);
        let from = done + BLOCKS_AHEAD;
        let range = from * block..(from + PLACE_BLOCKS) * block;
        let (disk, faults) = self.inject(serving, volume, &range)?;
        let blocks = self.wait_until_past(serving, id, done, &range)?;
        let status: StatusView = serving.get("/v1/status")?;
        let counts = |status: &StatusView| {
            let is_it = |of: &&DiskView| of.name == disk;
            let bad = status.disks.iter().find(is_it).map(|of| of.bad_places);
            let recording = status.streams.iter().find(|of| of.volume == volume);
            (bad.unwrap_or(0), recording.map_or(0, |of| of.errors))
        };
        let ((bad_before, errors_before), (bad, errors)) = (counts(before), counts(&status));
        let filmed = |status: &StatusView| moved(status.streams.iter().filter(|of| is_filmed(of)));
        let ((blocks_before, late_before), (filmed, late)) = (filmed(before), filmed(&status));
        let is_there =
            |of: &&BlockView| of.offset < range.end && of.offset + of.bytes > range.start;
        let again = blocks.iter().filter(is_there);
        Ok(FailingPlace {
            volume: volume.to_owned(),
            disk: disk.clone(),
            from_byte: faults[0].from_byte,
            bytes: faults.iter().map(|fault| fault.bytes).sum(),
            failed_writes: errors.saturating_sub(errors_before),
            extents_left: bad.saturating_sub(bad_before),
            blocks: filmed.saturating_sub(blocks_before),
            late_again: again.filter(|of| of.late_net_ns > 0).count() as u64,
            late_others: late.saturating_sub(late_before),
            ..FailingPlace::default()
        })
    }

    /// Lets the place of a range of a volume fail. Returns its disk and what fails there, at least one fault.
    fn inject(
        &self,
        serving: &Serving<'_>,
        volume: &str,
        range: &Range<u64>,
    ) -> Result<(String, Vec<DriveFault>), Failure> {
        let listed = format!("/v1/volumes/{volume}/places?from={}", range.start);
        let places: Vec<PlaceView> = serving.get(&listed)?;
        let faults: Vec<_> = places.iter().filter_map(|of| fault(of, range)).collect();
        let drives = serving.drives();
        let found = places.first().filter(|_| !faults.is_empty());
        let found = found.and_then(|of| drives.iter().position(|name| *name == of.disk));
        let drive = found.ok_or_else(|| {
            Failure::bug(format!("{volume} has no room left at byte {}", range.start))
        })?;
        let path = format!("/v1/disks/{drive}/faults");
        let faults = DriveFaults { faults };
        let given = self.runtime.block_on(serving.api.patch(&path, &faults));
        let DriveFaults { faults } = given?;
        Ok((drives[drive].clone(), faults))
    }

    /// Waits until a recording has made some blocks behind a range. Returns its blocks from number `first` on.
    fn wait_until_past(
        &self,
        serving: &Serving<'_>,
        id: u64,
        first: u64,
        range: &Range<u64>,
    ) -> Result<Vec<BlockView>, Failure> {
        let begun = Instant::now();
        loop {
            self.interrupt.wait(self.runtime, LOOK_INTERVAL)?;
            let session: SessionView = serving.get(&format!("/v1/streams/{id}"))?;
            if let Some(reason) = &session.stream.failed {
                return Err(broken(reason));
            }
            let listed = format!("/v1/streams/{id}/blocks?from={first}");
            let blocks: Vec<BlockView> = serving.get(&listed)?;
            let behind = blocks.iter().filter(|of| of.offset >= range.end);
            if behind.count() >= BLOCKS_BEHIND {
                return Ok(blocks);
            }
            if begun.elapsed() > PASSED_WITHIN {
                return Err(Failure::failed(format!(
                    "a recording did not pass a place that fails within {PASSED_WITHIN:?}"
                ))
                .help("this machine is too slow for the demo, or too busy"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_what_a_run_of_extents_has_of_the_range() {
        let place = PlaceView {
            offset_bytes: 100,
            extents: 2,
            disk: "d".to_owned(),
            from_byte: 1_000,
            to_byte: 1_040,
            zone: 0,
        };
        let of = |range: Range<u64>| fault(&place, &range).map(|it| (it.from_byte, it.bytes));
        assert_eq!(of(110..120), Some((1_010, 10)));
        assert_eq!(of(90..110), Some((1_000, 10)));
        assert_eq!(of(130..200), Some((1_030, 10)));
        assert_eq!((of(0..100), of(140..150)), (None, None));
    }

    #[test]
    fn only_blocks_that_were_written_again_may_be_late() {
        let place = |failed_writes, late_again, late_others| FailingPlace {
            failed_writes,
            late_again,
            late_others,
            ..FailingPlace::default()
        };
        assert!(place(1, 0, 0).is_kept() && place(2, 2, 0).is_kept());
        assert!(!place(1, 1, 1).is_kept() && !place(0, 0, 0).is_kept());
        let kept = place(1, 0, 0);
        let lost = FailingPlace {
            lost_blocks: 1,
            ..kept.clone()
        };
        let different = FailingPlace {
            different: 1,
            ..kept
        };
        assert!(!lost.is_kept() && !different.is_kept());
    }
}
