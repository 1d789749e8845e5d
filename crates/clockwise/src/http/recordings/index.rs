//! What the index of a recording says.

use std::ops::Range;

use axum::extract::State;
use axum::http::StatusCode;
use engine::volume_io::Client;
use media::archive::archives::OpenError;
use media::archive::{Archive, FRAMES_MAX, Recording, Window, groups_in};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, PathPart, QueryPart, Shared, answer};
use crate::wire::Problem;
use crate::wire::recordings::{IndexBlock, IndexFrame, IndexGroup, IndexKey, RecordingIndex};

/// Sections of the index that are read for one answer, each about 64 blocks.
const SECTIONS_MAX: usize = 256;

/// Blocks whose packets' entries are read for one answer.
const FRAMES_BLOCKS_MAX: u64 = 1_024;

/// Of which times of a recording, in nanoseconds of it.
#[derive(Deserialize, IntoParams, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct IndexTimes {
    /// From which on blocks and key frames are listed; from the beginning when only `to_ns` is there.
    from_ns: Option<u64>,
    /// Before which they begin; to the end when only `from_ns` is there.
    to_ns: Option<u64>,
    /// Whether all frames of these times are listed, for which the ends of their blocks are read.
    #[serde(default)]
    frames: bool,
}

impl RecordingIndex {
    fn told(&mut self, window: Window) {
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
}

/// The blocks of a recording in which what is to be played in a time begins.
fn blocks_in(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
    times: &Range<u64>,
) -> Result<Range<u64>, OpenError> {
    // And one before and one behind these: frames are not sent in the order in which they are shown.
    let from = archive.block_at(client, recording, times.start)?;
    let to = archive.block_at(client, recording, times.end - 1)?;
    Ok(from.saturating_sub(1).max(recording.first)..recording.end.min(to + 2))
}

/// What the index of a recording says: when each group of 64 blocks begins, and of a time the blocks and key frames, or all
/// frames.
#[utoipa::path(get, path = "/v1/volumes/{name}/recordings/{number}/index",
    params(("name" = String, Path), ("number" = u64, Path), IndexTimes),
    responses((status = 200, body = RecordingIndex), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn outline(
    state: State<Shared>,
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
        // Where the last blocks are damaged that is all that is known.
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
        if times.from_ns.or(times.to_ns).is_some() {
            let range = times.from_ns.unwrap_or(0)..times.to_ns.unwrap_or(u64::MAX);
            // Behind its end there is nothing, not even what was shown last.
            let within = match range.start > ends_ns {
                true => &[],
                false => groups_in(&groups, &range),
            };
            if range.is_empty() || within.len() > SECTIONS_MAX {
                return Err(Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    format!(
                        "from {} ns to {} ns are {} groups of blocks; one answer has up to {SECTIONS_MAX} of them, and at least some time",
                        range.start, range.end, within.len()
                    ),
                    "ask for a shorter time; without one the index names all groups and when they begin",
                )
                .at("the query"));
            }
            let window = archive.window(&client, &recording, within, &range);
            index.told(window.map_err(OpenError::from)?);
            if times.frames {
                let nothing = within.is_empty();
                let serials = match nothing {
                    true => 0..0,
                    false => blocks_in(&archive, &client, &recording, &range)?,
                };
                let (from, to) = (range.start, range.end);
                let is_too_long = |what: String| {
                    let status = StatusCode::UNPROCESSABLE_ENTITY;
                    let said = format!("from {from} ns to {to} ns are {what}");
                    Problem::new(status, said, "ask for a shorter time").at("the query")
                };
                let blocks = serials.end - serials.start;
                if blocks > FRAMES_BLOCKS_MAX {
                    return Err(is_too_long(format!(
                        "{blocks} blocks; one answer has the frames of up to {FRAMES_BLOCKS_MAX}"
                    )));
                }
                let found = archive.frames(&client, &recording, serials, &range);
                let found = found.map_err(OpenError::from)?;
                if found.are_too_many {
                    return Err(is_too_long(format!(
                        "more than {FRAMES_MAX} frames, which is as many as one answer has"
                    )));
                }
                index.track = index.track.or(Some(found.track.into())).filter(|_| !nothing);
                index.blocks_missing = found.missing;
                index.frames = Some(found.frames.into_iter().map(IndexFrame::from).collect());
            }
        } else if times.frames {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "frames are listed of a time",
                "give `from_ns`, `to_ns` or both as well",
            )
            .at("the query"));
        }
        Ok(index)
    })
    .await
}
