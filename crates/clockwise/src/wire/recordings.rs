//! Recordings: their properties, the result of a check, the retention, and the index.

use media::archive::Frame;
use media::archive::archives::RecordingInfo;
use media::archive::check::CheckReport;
use media::archive::retention_record::RetentionLimits;
use media::archive::timeline::{GapTime, RecordedTime};
use sched::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A recording, or the part of it that has not been overwritten.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingView {
    /// Its number in its volume, from 1.
    pub number: u64,
    /// When it began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// Its duration.
    pub length_ns: u64,
    /// Number of its blocks.
    pub blocks: u64,
    /// The encodings of its tracks; empty if the description is damaged.
    pub tracks: Vec<String>,
    /// True while it is being recorded.
    pub is_recorded: bool,
}

/// A recording and its volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ListedRecording {
    /// The volume.
    pub volume: String,
    /// The recording.
    #[serde(flatten)]
    pub recording: RecordingView,
}

/// A time in which something was recorded, or nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// When it begins, in nanoseconds since 1970.
    pub begins_unix_ns: u64,
    /// When it ends, in nanoseconds since 1970.
    pub ends_unix_ns: u64,
    /// The number of the recording; absent for a gap.
    pub recording: Option<u64>,
    /// True while it is being recorded.
    pub is_recorded: bool,
    /// Why nothing was recorded: `camera`, `network`, `server`, `disk` or `unknown`; absent if something was.
    pub cause: Option<String>,
}

/// The recorded times within a range, and the gaps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimelineView {
    /// In the order of their times.
    pub entries: Vec<TimelineEntry>,
    /// If there are more entries: the `from_unix_ns` that they begin with.
    pub next_unix_ns: Option<u64>,
}

/// A volume whose recordings cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UnreadableVolume {
    /// The volume.
    pub volume: String,
    /// Why they cannot be read.
    pub reason: String,
}

/// The recordings in all volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AllRecordings {
    /// By volume, the oldest of each first.
    pub recordings: Vec<ListedRecording>,
    /// Volumes that are left out, because their recordings cannot be read.
    pub unreadable: Vec<UnreadableVolume>,
}

/// A track of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordedTrack {
    /// Its number, from 0.
    pub number: u64,
    /// The name of its encoding; empty if it is not known.
    pub encoding: String,
    /// The units of its timestamps per second.
    pub clock_rate: u32,
    /// True if an MP4 file can contain it.
    pub mp4: bool,
    /// Why an MP4 file cannot contain it; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not_mp4: Option<String>,
    /// The format of a file with this track alone, if there is one: `h264`, `h265`, `aac`, `mjpeg`, `s16be`,
    /// `mulaw`, `alaw` or `g722`.
    pub raw: Option<String>,
}

/// A recording with its tracks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingDetail {
    /// Its number in its volume, from 1.
    pub number: u64,
    /// When it began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// The start of its remaining part, in nanoseconds from its beginning.
    pub begins_ns: u64,
    /// The end of its remaining part, in nanoseconds from its beginning.
    pub ends_ns: u64,
    /// When it ended, or its present end while it is being recorded, in nanoseconds since 1970.
    pub ends_unix_ns: u64,
    /// Number of its blocks.
    pub blocks: u64,
    /// The size of a block.
    pub block_bytes: u64,
    /// Its tracks; empty if the description is damaged.
    pub tracks: Vec<RecordedTrack>,
    /// True while it is being recorded.
    pub is_recorded: bool,
    /// Its description (SDP), as players get it.
    pub description: String,
}

/// The result of a check of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingCheck {
    /// True if the recording is undamaged.
    pub is_sound: bool,
    /// The counters of the check.
    #[serde(flatten)]
    pub report: CheckReport,
}

/// The retention of a volume: limits on its recordings, and on its growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RetentionView {
    /// Recordings older than this are dropped; if absent, age does not matter.
    pub keep_for_ns: Option<u64>,
    /// The oldest recordings are dropped when all together exceed this size; if absent, when the volume is
    /// full.
    pub keep_bytes: Option<u64>,
    /// The volume grows up to this size instead of dropping the oldest recordings, and returns space that it
    /// never used; if absent, its size is fixed.
    pub grow_to_bytes: Option<u64>,
    /// This much of the pool's space is left to others: the volume does not grow beyond that, and returns
    /// space to restore it; if absent, it may take all space.
    pub pool_free_bytes: Option<u64>,
}

/// A change of the retention. Absent members stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeRetention {
    /// Drop recordings older than this; 0: age does not matter.
    pub keep_for_ns: Option<u64>,
    /// Drop the oldest recordings when all together exceed this size, at least four blocks; 0: when the
    /// volume is full.
    pub keep_bytes: Option<u64>,
    /// Let the volume grow up to this size instead of dropping the oldest recordings; 0: its size is fixed.
    pub grow_to_bytes: Option<u64>,
    /// Leave this much of the pool's space to others; 0: the volume may take all space.
    pub pool_free_bytes: Option<u64>,
    /// True to apply the change even if recordings are lost at once.
    pub force: bool,
}

impl From<RecordedTime> for TimelineEntry {
    fn from(of: RecordedTime) -> Self {
        Self {
            begins_unix_ns: of.unix_ns.start,
            ends_unix_ns: of.unix_ns.end,
            recording: Some(of.recording),
            is_recorded: of.goes_on,
            cause: None,
        }
    }
}

impl From<GapTime> for TimelineEntry {
    fn from(of: GapTime) -> Self {
        Self {
            begins_unix_ns: of.unix_ns.start,
            ends_unix_ns: of.unix_ns.end,
            recording: None,
            is_recorded: false,
            cause: Some(of.cause.name().to_owned()),
        }
    }
}

impl From<RecordingInfo> for RecordingView {
    fn from(of: RecordingInfo) -> Self {
        let tracks = of.description.iter().flat_map(|of| of.tracks());
        Self {
            number: of.recording.number,
            begun_unix_ns: of.recording.begun_unix_ns,
            length_ns: of.length_ns,
            blocks: of.recording.end - of.recording.first,
            tracks: tracks.map(|track| track.encoding.clone()).collect(),
            is_recorded: of.is_recorded,
        }
    }
}

impl From<CheckReport> for RecordingCheck {
    fn from(report: CheckReport) -> Self {
        Self {
            is_sound: report.is_sound(),
            report,
        }
    }
}

impl From<RetentionLimits> for RetentionView {
    fn from(of: RetentionLimits) -> Self {
        Self {
            keep_for_ns: of.age.map(Nanos::get),
            keep_bytes: of.size.map(Bytes::get),
            grow_to_bytes: of.grow_to.map(Bytes::get),
            pool_free_bytes: of.free.map(Bytes::get),
        }
    }
}

/// The index of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingIndex {
    /// Its number in its volume, from 1.
    pub number: u64,
    /// The start of its remaining part, in nanoseconds from its beginning.
    pub begins_ns: u64,
    /// The end of its remaining part, in nanoseconds from its beginning.
    pub ends_ns: u64,
    /// All groups of its blocks, in order.
    pub groups: Vec<IndexGroup>,
    /// Its blocks in the requested time range, empty if nothing was recorded then; absent if no range was
    /// requested.
    pub blocks: Option<Vec<IndexBlock>>,
    /// Its key frames in that range; absent if no range was requested.
    pub keys: Option<Vec<IndexKey>>,
    /// All its frames in that range, in the order of sending; absent if they were not requested.
    pub frames: Option<Vec<IndexFrame>>,
    /// The track of these frames.
    pub track: Option<u64>,
    /// True if the index had no room for some key frames between these.
    pub keys_left_out: bool,
    /// Groups in that range whose blocks and key frames are not known: damaged groups, and the last group of
    /// a recording in progress.
    pub groups_missing: u64,
    /// Blocks in that range that are damaged or overwritten, so that their frames are not listed.
    pub blocks_missing: u64,
}

/// A group of up to 64 blocks of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexGroup {
    /// The serial number of its first block. Serial numbers count the blocks of the volume.
    pub block: u64,
    /// Number of its blocks.
    pub blocks: u64,
    /// Its start, in nanoseconds from the beginning of the recording.
    pub begins_ns: u64,
}

/// A block in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexBlock {
    /// Its serial number.
    pub block: u64,
    /// The presentation time of its first packet, in nanoseconds from the beginning of the recording.
    pub begins_ns: u64,
    /// The arrival time of that packet, in nanoseconds from the beginning of the recording.
    pub arrived_ns: u64,
    /// Frames of the indexed track that begin in it.
    pub frames: u64,
    /// Packets in it.
    pub packets: u64,
    /// Bytes of these packets, without the fixed RTP headers.
    pub bytes: u64,
    /// Packets that were lost before these.
    pub lost: u64,
}

/// A key frame: it can be decoded alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexKey {
    /// Its presentation time, in nanoseconds from the beginning of the recording.
    pub begins_ns: u64,
    /// The serial number of the block that it begins in.
    pub block: u64,
    /// The packet of that block that it begins with, from 0.
    pub packet: u64,
    /// Bytes of the part of it that is in its group.
    pub bytes: u64,
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexFrame {
    /// Its number in the recording, from 0; absent if no section of the index gives it.
    pub number: Option<u64>,
    /// Its presentation time, in nanoseconds from the beginning of the recording.
    pub begins_ns: u64,
    /// The arrival time of its first packet, in nanoseconds from the beginning of the recording.
    pub arrived_ns: u64,
    /// The serial number of the block that it begins in.
    pub block: u64,
    /// The packet of that block that it begins with, from 0.
    pub packet: u64,
    /// Its offset in that block, in bytes.
    pub offset_bytes: u64,
    /// Number of its packets.
    pub packets: u64,
    /// Bytes of these packets, without the fixed RTP headers.
    pub bytes: u64,
    /// True if it can be decoded alone.
    pub is_key: bool,
    /// Packets that were lost before these.
    pub lost: u64,
}

impl From<Frame> for IndexFrame {
    fn from(of: Frame) -> Self {
        Self {
            number: of.number,
            begins_ns: of.media_ns,
            arrived_ns: of.arrival_ns,
            block: of.serial,
            packet: of.packet.into(),
            offset_bytes: of.offset,
            packets: of.packets.into(),
            bytes: of.bytes,
            is_key: of.is_key,
            lost: of.lost,
        }
    }
}
