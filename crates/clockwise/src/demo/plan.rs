//! The demo's load on the drives, the same under each scheduler.
//!
//! # Why this load
//!
//! A scheduler matters to best effort when blocks are long, fall due in clumps, and leave the disk time in
//! between. Then plain EDF lets all other requests wait until a whole clump is served, and a scheduler that
//! knows its slack does not. The reservations of a media server are like that: blocks are as large as the
//! papers' rule has them, and one button starts many outputs. Streams that begin at random moments of their
//! period queue so little that all schedulers do about as well; a load that leaves no time at all over makes
//! them all as slow as each other, because a disk that is never idle serves equally many requests in any
//! order. Programs that wait for each answer before they ask again load a slow disk little. They are part of
//! the load, and beside them are many programs that do not wait for each other.
//!
//! The volumes lie apart, as on disks that are in use: clips and recordings in the outer half, the
//! file system in the middle of each drive. Side by side, a seek would cost a quarter of what it
//! does on such disks.

use sched::units::{Bytes, BytesPerSecond};

/// The drive that is emulated, and its profile: a present-day one.
pub(super) const DRIVE: &str = "hdd-8tb-7200";

/// Number of drives.
pub(super) const DRIVES: usize = 3;

/// The rate of each stream: a camera of very good resolution.
pub(super) const RATE: BytesPerSecond = BytesPerSecond(4_000_000);

/// Places on each drive where there is a clip to be played.
pub(super) const PLACES: usize = 4;

/// From one of those places to the next.
pub(super) const PLACE_STEP: Bytes = Bytes(1_000_000_000_000);

/// Start of recordings on each drive: between the second and the third place.
pub(super) const RECORDINGS_AT: Bytes = Bytes(1_500_000_000_000);

/// Start of the volumes of best effort on each drive: in the middle.
pub(super) const FILES_AT: Bytes = Bytes(4_000_000_000_000);

/// Length of the looped clip of each playing stream.
pub(super) const CLIP: Bytes = Bytes::from_mib(32);

/// The volume with the file system.
pub(super) const FILES: Bytes = Bytes(2_000_000_000);

/// The volume that other machines read and write over NBD.
pub(super) const DESKS: Bytes = Bytes::from_mib(256);

/// Reservation for a camera that does not state its rate.
pub(super) const CAMERA_RATE: BytesPerSecond = BytesPerSecond(200_000);

/// The blocks of what cameras record: at their rates a second or two.
pub(super) const CAMERA_BLOCK: Bytes = Bytes::from_kib(128);

/// Cameras that are recorded and played over RTSP on each drive, each by two processes of ffmpeg, which copy
/// and do not encode: as many as leave two processors time for the drives.
pub(super) const CAMERAS_PER_DRIVE: usize = 3;

/// The least that the volume of a camera takes.
const CAMERA_BYTES_MIN: Bytes = Bytes::from_mib(256);

/// Factor over that reservation which a camera may send while its recording still fits into its volume.
const CAMERA_RATES_MAX: u64 = 2;

/// Memory for buffers: two blocks for each stream that admission allows, and the file system's part.
pub(super) const MEMORY: Bytes = Bytes::from_mib(1_792);

/// The part of the admitted capacity that is used, in percent.
pub(super) const CAPACITY_PERCENT: u64 = 80;

/// Seconds with `edf` beside a run of 60 s; in the same proportion for others.
const EDF_SECONDS_PER_MINUTE: u64 = 20;

/// Seconds for which recordings have room beside those that are measured: for starting, and for
/// taking the picture down.
const RECORDING_SECONDS_EXTRA: u64 = 60;

/// Room for structures, the repository, and what was forgotten.
const ROOM_EXTRA: Bytes = Bytes::from_mib(256);

/// Seconds with `edf` beside a run of `seconds`.
pub(super) fn edf_seconds(seconds: u64) -> u64 {
    (seconds * EDF_SECONDS_PER_MINUTE / 60).max(1)
}

/// The room that a recording may take in a run of `seconds`.
pub(super) fn recording_bytes(seconds: u64) -> Bytes {
    Bytes(
        RATE.get()
            .saturating_mul(seconds.saturating_add(RECORDING_SECONDS_EXTRA)),
    )
}

/// The volume of a camera in a run of `seconds`, which has all that it records.
pub(super) fn camera_bytes(seconds: u64) -> Bytes {
    let rate = CAMERA_RATES_MAX * CAMERA_RATE.get();
    let all = rate.saturating_mul(seconds.saturating_add(RECORDING_SECONDS_EXTRA));
    CAMERA_BYTES_MIN.max(Bytes(all))
}

/// The most that the demo writes to the host's disk.
pub(super) fn room(seconds: u64, with_edf: bool, recorders: u64) -> Bytes {
    let run = |seconds: u64| {
        let cameras = CAMERA_RATE.get() * (CAMERAS_PER_DRIVE * DRIVES) as u64;
        let filmed = cameras.saturating_mul(seconds.saturating_add(RECORDING_SECONDS_EXTRA));
        let recorded = recording_bytes(seconds).get().saturating_mul(recorders);
        // Recordings of cameras are exported to files as well, to be compared.
        recorded.saturating_add(filmed).saturating_add(filmed)
    };
    let mut recordings = run(seconds);
    if with_edf {
        recordings = recordings.saturating_add(run(edf_seconds(seconds)));
    }
    let clips = CLIP.get() * (DRIVES * PLACES) as u64;
    Bytes(recordings.saturating_add(clips + FILES.get() + DESKS.get() + ROOM_EXTRA.get()))
}
