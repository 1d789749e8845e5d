//! The demo's volumes: made, filled before a run, and compared after it.

use std::sync::Arc;

use engine::pool::Pool;
use engine::volume_io::{Client, ClientOptions};
use indicatif::ProgressBar;
use sched::units::Bytes;

use super::media::Clip;
use super::plan::{
    CLIP, DESKS, DRIVES, FILES, FILES_AT, PLACE_STEP, PLACES, RECORDINGS_AT, recording_bytes,
};
use super::stage::{Serving, Stage};
use crate::failure::Failure;

/// Bytes that are written and compared at a time.
const PIECE: Bytes = Bytes::from_mib(4);

/// Help for an emulated drive that fails.
const DRIVE_HELP: &str =
    "the scratch folder may be full or broken: give another with --scratch, and see `dmesg`";

/// The volume with the file system.
pub(super) const FILES_VOLUME: &str = "files";

/// The volume that other machines use.
pub(super) const DESKS_VOLUME: &str = "desks";

/// The volume with the clip at a place of a drive.
pub(super) fn clip_volume(drive: usize, place: usize) -> String {
    format!("clip-{drive}-{place}")
}

/// The volume of a recording.
pub(super) fn recording_volume(scheduler: &str, number: usize) -> String {
    format!("camera-{number}-{scheduler}")
}

/// A client of the pool, best effort.
fn best_effort(pool: &Pool) -> Result<Client, Failure> {
    pool.client("demo", ClientOptions::default())
        .map_err(|refusal| crate::wire::Problem::from(refusal).into_failure())
}

impl Stage<'_> {
    /// The clip that is played from a drive.
    pub(super) fn clip_of(&self, drive: usize) -> &Clip {
        &self.clips[drive % self.clips.len()]
    }

    /// Makes the volumes of best effort, on all drives, and the clips', which are recorded.
    pub(super) fn make_volumes(&self, serving: &Serving<'_>) -> Result<(), Failure> {
        self.output
            .note("Creating volumes, and recording the clips for the players ...");
        serving.make_volume(FILES_VOLUME, FILES, &[], FILES_AT)?;
        serving.make_volume(DESKS_VOLUME, DESKS, &[], FILES_AT)?;
        let drives = serving.drives();
        for (drive, disk) in drives.iter().enumerate() {
            for place in 0..PLACES {
                let from = Bytes(PLACE_STEP.get() * place as u64);
                let name = clip_volume(drive, place);
                serving.make_volume(&name, CLIP, std::slice::from_ref(disk), from)?;
            }
        }
        let pool = &serving.pool;
        let total = CLIP.get() * (DRIVES * PLACES) as u64;
        let bar = self.output.byte_progress(Some(total), "recording clips");
        let filled = std::thread::scope(|scope| {
            let fills: Vec<_> = (0..DRIVES)
                .map(|drive| {
                    let bar = bar.clone();
                    scope.spawn(move || {
                        (0..PLACES).try_for_each(|place| {
                            let volume = clip_volume(drive, place);
                            self.fill(pool, &volume, self.clip_of(drive), &bar)
                        })
                    })
                })
                .collect();
            fills
                .into_iter()
                .map(|fill| fill.join())
                .collect::<Vec<_>>()
        });
        bar.finish_and_clear();
        for result in filled {
            result.map_err(|_| Failure::bug("recording a clip failed"))??;
        }
        Ok(())
    }

    /// Writes the looped clip to a volume, best effort.
    fn fill(
        &self,
        pool: &Arc<Pool>,
        volume: &str,
        clip: &Clip,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("recording {volume}: {error}")).help(DRIVE_HELP)
        };
        let client = best_effort(pool)?;
        let open = pool.open_volume(volume).map_err(|error| failed(&error))?;
        let content = clip.looped(CLIP.get() as usize);
        for (index, piece) in content.chunks(PIECE.get() as usize).enumerate() {
            self.interrupt.check()?;
            client
                .write_at(&open, Bytes(index as u64 * PIECE.get()), piece)
                .map_err(|error| failed(&error))?;
            bar.inc(piece.len() as u64);
        }
        client.flush(&open).map_err(|error| failed(&error))
    }

    /// A volume for each clip that is to be recorded, each on a drive of its own.
    pub(super) fn make_recordings(
        &self,
        serving: &Serving<'_>,
        scheduler: &str,
        seconds: u64,
    ) -> Result<(), Failure> {
        let drives = serving.drives();
        for number in 0..self.clips.len() {
            let disk = &drives[number % drives.len()];
            let name = recording_volume(scheduler, number);
            let size = recording_bytes(seconds);
            serving.make_volume(&name, size, std::slice::from_ref(disk), RECORDINGS_AT)?;
        }
        Ok(())
    }

    /// Reads a recording back, best effort, and counts the bytes that are not those of the clip.
    pub(super) fn compare(
        &self,
        serving: &Serving<'_>,
        volume: &str,
        clip: &Clip,
        len: u64,
        bar: &ProgressBar,
    ) -> Result<u64, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("reading {volume}: {error}")).help(DRIVE_HELP)
        };
        let client = best_effort(&serving.pool)?;
        let open = serving
            .pool
            .open_volume(volume)
            .map_err(|error| failed(&error))?;
        let mut piece = vec![0; PIECE.get() as usize];
        let mut different = 0;
        let mut offset = 0;
        while offset < len {
            self.interrupt.check()?;
            client
                .read_at(&open, Bytes(offset), &mut piece)
                .map_err(|error| failed(&error))?;
            let some = (len - offset).min(PIECE.get()) as usize;
            different += clip.differences(u64::MAX, offset, &piece[..some]);
            offset += PIECE.get();
            bar.inc(some as u64);
        }
        Ok(different)
    }
}
