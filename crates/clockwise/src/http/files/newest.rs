//! The newest recording of a volume, whatever its number is: a playlist that goes on from one recording to the next.

use axum::extract::State;
use axum::response::Response;
use media::archive::Recording;
use media::files::{ListId, Part};

use super::hls::PLAYLIST;
use super::playlist::{self, Stretch};
use super::wanted::{END_NS, Span, Wanted};
use super::{
    OpenRecording, PathPart, QueryPart, SharedApp, open, open_newest, plain, run_blocking,
};
use crate::wire::Problem;

/// Most segments that are listed.
const SEGMENTS_MAX: usize = 30;

/// The last segments of a recording, and when its first one begins.
fn end_of(recording: &mut OpenRecording) -> Result<Stretch, Problem> {
    let of = &recording.described;
    let (number, begun_unix_ns) = (of.recording.number, of.recording.begun_unix_ns);
    let span = Span::End(of.ends_ns.saturating_sub(END_NS)..u64::MAX);
    let listed = recording.list(&span)?;
    let mut parts = listed.parts;
    // A player of the recording before has another head, and times that do not continue.
    let first = recording.source.recording().first;
    let is_start = |part: &&mut Part| part.begins.place.serial == first;
    if recording
        .archive
        .is_from_its_start(recording.source.recording())
        && let Some(first) = parts.first_mut().filter(is_start)
    {
        first.is_behind_gap = true;
    }
    Ok(Stretch {
        path: format!("../{number}/"),
        begun_unix_ns,
        parts,
    })
}

/// The last segments of the newest recordings, the latest recording last.
fn newest(app: &SharedApp, volume: &str) -> Result<(OpenRecording, Vec<Stretch>), Problem> {
    let mut recording = open_newest(app, volume)?;
    let mut stretches = vec![end_of(&mut recording)?];
    let number = recording.described.recording.number;
    let earlier = recording.archive.recordings();
    let before = earlier
        .iter()
        .map(|of: &Recording| of.number)
        .rfind(|of| *of < number);
    if let Some(before) = before.filter(|_| stretches[0].parts.len() < SEGMENTS_MAX)
        && let Ok(mut before) = open(app, volume, before)
    {
        stretches.insert(0, end_of(&mut before)?);
    }
    let mut room = SEGMENTS_MAX;
    for stretch in stretches.iter_mut().rev() {
        let excess = stretch.parts.len().saturating_sub(room);
        stretch.parts.drain(..excess);
        room -= stretch.parts.len();
    }
    stretches.retain(|of| !of.parts.is_empty());
    Ok((recording, stretches))
}

pub(super) async fn playlist(
    state: State<SharedApp>,
    PathPart(volume): PathPart<String>,
    QueryPart(wanted): QueryPart<Wanted>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        wanted.is_only_of_tracks()?;
        let (recording, stretches) = newest(app, &volume)?;
        let parts: Vec<Part> = stretches.iter().flat_map(|of| &of.parts).copied().collect();
        let at_ns = stretches.first().and_then(|of| {
            let first = of.parts.first()?;
            Some(of.begun_unix_ns.saturating_add(first.begins.media_ns))
        });
        let numbers = app.media.segments_told.numbers(
            &recording.source,
            ListId::Newest,
            &parts,
            at_ns.unwrap_or(recording.described.recording.begun_unix_ns),
        );
        let text = playlist::media(&stretches, &numbers, false, &wanted.of_tracks());
        Ok(plain(PLAYLIST, text))
    })
    .await
}

pub(super) async fn master(
    state: State<SharedApp>,
    PathPart(volume): PathPart<String>,
    QueryPart(wanted): QueryPart<Wanted>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        wanted.is_only_of_tracks()?;
        let mut recording = open_newest(app, &volume)?;
        let media = format!("media.m3u8{}", wanted.query());
        Ok(plain(PLAYLIST, recording.master(app, &wanted, &media)?))
    })
    .await
}
