//! The index of a recording.

use std::ops::Range;

use axum::extract::State;
use axum::http::StatusCode;
use engine::volume_io::Client;
use media::archive::archives::OpenError;
use media::archive::{Archive, FRAMES_MAX, Frames, Recording, Window, groups_in};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, PathPart, QueryPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::recordings::{IndexBlock, IndexFrame, IndexGroup, IndexKey, RecordingIndex};

/// The most sections of the index that are read for one answer. A section covers 64 blocks.
const SECTIONS_MAX: usize = 256;

/// The most blocks whose packet entries are read for one answer.
const FRAMES_BLOCKS_MAX: u64 = 1_024;

/// A range of times, in nanoseconds from the beginning of the recording.
#[derive(Deserialize, IntoParams, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct IndexTimes {
    /// List blocks and key frames from this time on; from the beginning if only `to_ns` is given.
    from_ns: Option<u64>,
    /// List those that begin before this time; to the end if only `from_ns` is given.
    to_ns: Option<u64>,
    /// List all frames of the range as well. The server reads their blocks' packet entries for that.
    #[serde(default)]
    frames: bool,
}

impl RecordingIndex {
    fn set_window(&mut self, window: Window) {
        let blocks = window.records.into_iter().map(|(block, of)| IndexBlock {
            block,
            begins_ns: of.media_ns,
            arrived_ns: of.arrival_ns,
            frames: of.frames.into(),
            packets: of.packets.into(),
            bytes: of.bytes.into(),
            lost: of.lost.into(),
        });
        let keys = window.keys.into_iter().map(|of| IndexKey {
            begins_ns: of.media_ns,
            block: of.serial,
            packet: of.packet.into(),
            bytes: of.bytes.into(),
        });
        self.track = Some(window.track.into()).filter(|_| blocks.len() > 0);
        self.blocks = Some(blocks.collect());
        self.keys = Some(keys.collect());
        self.keys_left_out = window.is_thinned;
        self.groups_missing = window.missing;
    }

    fn set_frames(&mut self, found: Frames) {
        self.track = self.track.or(Some(found.track.into()));
        self.blocks_missing = found.missing;
        self.frames = Some(found.frames.into_iter().map(IndexFrame::from).collect());
    }
}

/// The blocks of a recording in which the frames of a time range begin.
fn blocks_in(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
    times: &Range<u64>,
) -> Result<Range<u64>, OpenError> {
    // Includes one block before and one after, because frames are not sent in the order of presentation.
    let from = archive.block_at(client, recording, times.start)?;
    let to = archive.block_at(client, recording, times.end - 1)?;
    Ok(from.saturating_sub(1).max(recording.first)..recording.end.min(to + 2))
}

/// Checks that a range is not empty, and covers few enough groups of blocks for one answer.
fn check_range(range: &Range<u64>, groups: usize) -> Result<(), Problem> {
    if !range.is_empty() && groups <= SECTIONS_MAX {
        return Ok(());
    }
    let what = format!(
        "the range from {} ns to {} ns covers {groups} groups of blocks; one answer has at most {SECTIONS_MAX}, and the range must not be empty",
        range.start, range.end
    );
    let help = "ask for a shorter, non-empty range; without a range the index lists all groups and when they begin";
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, help).at("the query"))
}

fn frames_without_range() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "frames are listed only for a time range",
        "add `from_ns`, `to_ns` or both",
    )
    .at("the query")
}

/// The frames of a time range, unless they are too many for one answer.
fn frames_in(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
    range: &Range<u64>,
) -> Result<Frames, Problem> {
    let too_many = |what: String| {
        let (from, to) = (range.start, range.end);
        let what = format!("the range from {from} ns to {to} ns has {what}");
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            what,
            "ask for a shorter range",
        )
        .at("the query")
    };
    let serials = blocks_in(archive, client, recording, range)?;
    let blocks = serials.end - serials.start;
    if blocks > FRAMES_BLOCKS_MAX {
        return Err(too_many(format!(
            "{blocks} blocks; one answer has the frames of at most {FRAMES_BLOCKS_MAX}"
        )));
    }
    let found = archive.frames(client, recording, serials, range);
    let found = found.map_err(OpenError::from)?;
    match found.are_too_many {
        true => Err(too_many(format!(
            "more than {FRAMES_MAX} frames, the maximum of one answer"
        ))),
        false => Ok(found),
    }
}

/// The index of a recording: the start time of each group of 64 blocks, and for a time range its blocks and
/// key frames, or all frames.
#[utoipa::path(get, path = "/v1/volumes/{name}/recordings/{number}/index",
    params(("name" = String, Path), ("number" = u64, Path), IndexTimes),
    responses((status = 200, body = RecordingIndex), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn outline(
    state: State<SharedApp>,
    PathPart((name, number)): PathPart<(String, u64)>,
    QueryPart(times): QueryPart<IndexTimes>,
) -> Answer<RecordingIndex> {
    answer(state.0, move |app| {
        let (archive, recording) = app.archives.recording(&name, number)?;
        let client = app.archives.client()?;
        let groups = archive
            .outline(&client, &recording)
            .map_err(OpenError::from)?;
        let extent = archive
            .extent(&client, &recording)
            .map_err(OpenError::from)?;
        // If the last blocks are damaged, the last group's start time is the best known lower bound of the
        // end.
        let last_ns = groups.last().map_or(0, |last| last.begins_ns);
        let ends_ns = extent.end.max(last_ns);
        let mut index = RecordingIndex {
            number,
            begins_ns: extent.start,
            ends_ns,
            groups: groups
                .iter()
                .map(|of| IndexGroup {
                    block: of.first,
                    blocks: of.end - of.first,
                    begins_ns: of.begins_ns,
                })
                .collect(),
            blocks: None,
            keys: None,
            frames: None,
            track: None,
            keys_left_out: false,
            groups_missing: 0,
            blocks_missing: 0,
        };
        if times.from_ns.or(times.to_ns).is_none() {
            return match times.frames {
                true => Err(frames_without_range()),
                false => Ok(index),
            };
        }
        let range = times.from_ns.unwrap_or(0)..times.to_ns.unwrap_or(u64::MAX);
        // After the end nothing is listed, not even the last group.
        let within = match range.start > ends_ns {
            true => &[],
            false => groups_in(&groups, &range),
        };
        check_range(&range, within.len())?;
        let window = archive.window(&client, &recording, within, &range);
        index.set_window(window.map_err(OpenError::from)?);
        if times.frames && within.is_empty() {
            index.frames = Some(Vec::new());
        } else if times.frames {
            index.set_frames(frames_in(&archive, &client, &recording, &range)?);
        }
        Ok(index)
    })
    .await
}
