//! Recordings: what there is, whether it is sound, how much is kept, and their index.

use media::archive::Frame;
use media::archive::archives::Described;
use media::archive::check::Report;
use media::archive::retention_record::RetentionLimits;
use sched::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A recording, as much of it as has not been overwritten.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingView {
    /// Its number in its volume, from 1.
    pub number: u64,
    /// When it began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// How long it is.
    pub length_ns: u64,
    /// Blocks of it.
    pub blocks: u64,
    /// What its tracks are encoded as; none where that is damaged.
    pub tracks: Vec<String>,
    /// Whether it goes on.
    pub is_recorded: bool,
}

/// A track of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordedTrack {
    /// Its number, from 0.
    pub number: u64,
    /// The name of its encoding; empty where nothing is known of it.
    pub encoding: String,
    /// How many units of its timestamps a second has.
    pub clock_rate: u32,
    /// Whether it can be in an MP4 file.
    pub mp4: bool,
    /// Why it cannot be in one; absent where it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not_mp4: Option<String>,
    /// What a file of it alone is, if there can be one: `h264`, `h265`, `aac`, `mjpeg`, `s16be`, `mulaw` or `alaw`.
    pub raw: Option<String>,
}

/// A recording and what it consists of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingDetail {
    /// Its number in its volume, from 1.
    pub number: u64,
    /// When it began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// When what is left of it begins and ends, in nanoseconds of its time.
    pub begins_ns: u64,
    /// See `begins_ns`.
    pub ends_ns: u64,
    /// When it ends, or how far it has come if it goes on, in nanoseconds since 1970.
    pub ends_unix_ns: u64,
    /// Blocks of it, and bytes of each.
    pub blocks: u64,
    /// See `blocks`.
    pub block_bytes: u64,
    /// Its tracks; none where that is damaged.
    pub tracks: Vec<RecordedTrack>,
    /// Whether it goes on.
    pub is_recorded: bool,
    /// Its description (SDP) as players are given it.
    pub description: String,
}

/// What an examination of a recording found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingCheck {
    /// Whether it is as it was recorded.
    pub is_sound: bool,
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks that are damaged.
    pub damaged: u64,
    /// The first 100 of them, by their places in the recording, from 0.
    pub damaged_at: Vec<u64>,
    /// Packets that are not what their block says.
    pub impossible: u64,
    /// RTP packets.
    pub packets: u64,
    /// Bytes of all packets, without the fixed headers of RTP.
    pub bytes: u64,
    /// RTP packets that never came.
    pub lost: u64,
    /// Sections of the index that are there.
    pub sections: u64,
    /// Sections that are missing, as after a crash: they are made again of their blocks when they are needed.
    pub sections_missing: u64,
    /// Sections that say something else than the blocks that they are about.
    pub sections_wrong: u64,
}

/// How much of what is recorded in a volume is kept, and how long the volume may be for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RetentionView {
    /// What is older goes; when absent nothing does for that.
    pub keep_for_ns: Option<u64>,
    /// The oldest goes when recordings come to more than that; when absent, when the volume is full.
    pub keep_bytes: Option<u64>,
    /// The volume grows up to that instead of overwriting the oldest, and gives back what was never used of it; when
    /// absent it stays as long as it is.
    pub grow_to_bytes: Option<u64>,
    /// So much of the pool's space is left to others: the volume does not grow beyond that, and gives back what is
    /// missing of it; when absent it takes what there is.
    pub pool_free_bytes: Option<u64>,
}

/// How much is to be kept from now on; what is absent stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeRetention {
    /// What is older goes; 0: nothing does for that.
    pub keep_for_ns: Option<u64>,
    /// The oldest goes when recordings come to more than that, at least four blocks; 0: when the volume is full.
    pub keep_bytes: Option<u64>,
    /// The volume grows up to that instead of overwriting the oldest; 0: it does not grow.
    pub grow_to_bytes: Option<u64>,
    /// So much of the pool's space is left to others; 0: it takes what there is.
    pub pool_free_bytes: Option<u64>,
    /// Whether it is changed although something that is recorded goes at once by that.
    pub force: bool,
}

impl From<Described> for RecordingView {
    fn from(of: Described) -> Self {
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

impl From<Report> for RecordingCheck {
    fn from(of: Report) -> Self {
        Self {
            is_sound: of.is_sound(),
            blocks: of.blocks,
            damaged: of.damaged,
            damaged_at: of.damaged_at,
            impossible: of.impossible,
            packets: of.packets,
            bytes: of.bytes,
            lost: of.lost,
            sections: of.sections,
            sections_missing: of.sections_missing,
            sections_wrong: of.sections_wrong,
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

/// What the index of a recording says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingIndex {
    /// Its number in its volume, from 1.
    pub number: u64,
    /// When what is left of it begins and ends, in nanoseconds of its time.
    pub begins_ns: u64,
    /// See `begins_ns`.
    pub ends_ns: u64,
    /// All of it, in groups of blocks, in order.
    pub groups: Vec<IndexGroup>,
    /// Its blocks of the times that were asked for, none where nothing was recorded then; absent where none were asked
    /// for.
    pub blocks: Option<Vec<IndexBlock>>,
    /// Its key frames of these times; absent where none were asked for.
    pub keys: Option<Vec<IndexKey>>,
    /// All its frames of these times, in the order in which they were sent; absent where they were not asked for.
    pub frames: Option<Vec<IndexFrame>>,
    /// The track whose frames these are.
    pub track: Option<u64>,
    /// Whether key frames are missing between these, for want of room.
    pub keys_left_out: bool,
    /// Groups of these times of which blocks and their key frames are not known: those that are damaged, and the last group
    /// of a recording that goes on.
    pub groups_missing: u64,
    /// Blocks whose frames were asked for that are damaged or gone.
    pub blocks_missing: u64,
}

/// Up to 64 blocks of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexGroup {
    /// The serial of the first of them: it counts the blocks of the volume.
    pub block: u64,
    /// How many.
    pub blocks: u64,
    /// When it begins, in nanoseconds of the recording.
    pub begins_ns: u64,
}

/// A block of a recording, as its index has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexBlock {
    /// Its serial.
    pub block: u64,
    /// When its first packet is to be played, in nanoseconds of the recording.
    pub begins_ns: u64,
    /// When that came, in nanoseconds of the recording.
    pub arrived_ns: u64,
    /// Frames of the indexed track that begin in it.
    pub frames: u64,
    /// Packets in it.
    pub packets: u64,
    /// Bytes of them, without the fixed headers of RTP.
    pub bytes: u64,
    /// Packets that are missing before them.
    pub lost: u64,
}

/// A frame that can be decoded alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexKey {
    /// When it is to be played, in nanoseconds of the recording.
    pub begins_ns: u64,
    /// The serial of the block that it begins in.
    pub block: u64,
    /// The packet in it that it begins with, from 0.
    pub packet: u64,
    /// Bytes of it, as far as they are in its group.
    pub bytes: u64,
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IndexFrame {
    /// Its number in the recording, from 0, as far as those before it are known; absent where no section of the index says.
    pub number: Option<u64>,
    /// When it is to be played, in nanoseconds of the recording.
    pub begins_ns: u64,
    /// When its first packet came, in nanoseconds of the recording.
    pub arrived_ns: u64,
    /// The serial of the block that it begins in.
    pub block: u64,
    /// The packet in it that it begins with, from 0.
    pub packet: u64,
    /// Where in that block it begins, in bytes.
    pub offset_bytes: u64,
    /// Packets of it.
    pub packets: u64,
    /// Bytes of them, without the fixed headers of RTP.
    pub bytes: u64,
    /// Whether it can be decoded alone.
    pub is_key: bool,
    /// Packets that are missing before these.
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
