//! What the demo asks of the drives: one load, the same under each scheduler.
//!
//! # Why this load
//!
//! What a scheduler is worth to best effort shows when blocks are long, fall due in clumps, and
//! leave the disk time in between: then plain EDF lets everything else wait until a whole clump is
//! served, and a scheduler that knows its slack does not. That is also what the reservations of a
//! media server are like: blocks as large as the papers' rule has them, and many outputs that were
//! started by one button. Streams that begin at random moments of their period queue so little that
//! all schedulers do about as well; a load that leaves no time at all over makes them all as slow
//! as each other, because a disk that is never idle serves equally many requests in any order. And
//! programs that wait for each answer before they ask again ask little of a disk that is slow to
//! answer: they are here, and counted, and beside them many who do not wait for each other.
//!
//! The volumes lie apart, as on disks that are in use: clips and recordings in the outer half, the
//! file system in the middle of each drive. Side by side, a seek would cost a quarter of what it
//! does on such disks.

use sched::units::{Bytes, BytesPerSecond};

/// The drive that is emulated, and its profile: a present-day one.
pub(super) const DRIVE: &str = "hdd-8tb-7200";

/// How many of them.
pub(super) const DRIVES: usize = 3;

/// The rate of each stream: a camera of very good resolution.
pub(super) const RATE: BytesPerSecond = BytesPerSecond(4_000_000);

/// Places on each drive where there is a clip to be played.
pub(super) const PLACES: usize = 4;

/// From one of those places to the next.
pub(super) const PLACE_STEP: Bytes = Bytes(1_000_000_000_000);

/// Where on each drive recordings go: between the second and the third place.
pub(super) const RECORDINGS_AT: Bytes = Bytes(1_500_000_000_000);

/// Where on each drive the volumes of best effort begin: in the middle.
pub(super) const FILES_AT: Bytes = Bytes(4_000_000_000_000);

/// What each playing stream plays, in a loop.
pub(super) const CLIP: Bytes = Bytes::from_mib(32);

/// The volume with the file system.
pub(super) const FILES: Bytes = Bytes(2_000_000_000);

/// The volume that other machines read and write over NBD.
pub(super) const DESKS: Bytes = Bytes::from_mib(256);

/// What is reserved for a camera that does not say what it needs.
pub(super) const CAMERA_RATE: BytesPerSecond = BytesPerSecond(200_000);

/// The blocks of what cameras record: at their rates a second or two.
pub(super) const CAMERA_BLOCK: Bytes = Bytes::from_kib(128);

/// Cameras that are recorded and played over RTSP on each drive, each by two processes of ffmpeg, which copy and do not
/// encode: as many as leave two processors time for the drives.
pub(super) const CAMERAS_PER_DRIVE: usize = 3;

/// The least that the volume of a camera takes.
const CAMERA_BYTES_MIN: Bytes = Bytes::from_mib(256);

/// How many times what is reserved for a camera that does not say what it needs one may send, and still be in its volume
/// whole.
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
        // What cameras have recorded is a file as well, when it is compared.
        recorded.saturating_add(filmed).saturating_add(filmed)
    };
    let mut recordings = run(seconds);
    if with_edf {
        recordings = recordings.saturating_add(run(edf_seconds(seconds)));
    }
    let clips = CLIP.get() * (DRIVES * PLACES) as u64;
    Bytes(recordings.saturating_add(clips + FILES.get() + DESKS.get() + ROOM_EXTRA.get()))
}
