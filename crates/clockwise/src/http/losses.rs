//! The one rule for calls that destroy data: a call is refused, and told what is there, unless it is forced.
//!
//! The rule is for calls by which something is lost that they do not name: bytes that are recorded over what is in a volume,
//! a volume that is cut, a retention that lets go of recordings at once. Deleting names what goes, so it is not asked about.
//! Neither is one recording of bytes over another one: bytes without a mark are nobody's that could be told.

use axum::http::StatusCode;
use engine::pool::{MARKED_BYTES, Volume, mark_of};
use media::archive::archives::OpenError;
use sched::units::Bytes;

use super::App;
use crate::exports;
use crate::quantity::Size;
use crate::wire::Problem;

/// Runs of written and of unwritten bytes that are looked at together.
const RUNS: usize = 4_096;

/// What is said of a file system in a volume that is cut.
const MAY_REACH: &str = "which may reach past the new size";

/// What a call does to a volume.
#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    /// It writes somewhere in it, from so many bytes on.
    Overwrites(Bytes),
    /// It cuts off what lies past so many bytes.
    Cuts(Bytes),
}

/// Refuses a call that would destroy something in a volume, unless it is `forced`. What is recorded or played over RTSP at
/// this moment is not destroyed even then.
pub(super) fn refuse(
    app: &App,
    volume: &Volume,
    harm: Harm,
    is_forced: bool,
) -> Result<(), Problem> {
    let name = volume.name();
    if is_forced {
        if app.archives.is_open(name) {
            return Err(in_use(name));
        }
        return match harm {
            Harm::Overwrites(from) if from > Bytes::ZERO && app.archives.are_in(volume)? => {
                Err(stays(name, from))
            }
            Harm::Overwrites(_) | Harm::Cuts(_) => Ok(()),
        };
    }
    let found = found(app, volume, harm)?;
    if found.is_empty() {
        return Ok(());
    }
    let (doing, instead) = match harm {
        Harm::Overwrites(_) => ("recording bytes there", "record to another volume"),
        Harm::Cuts(_) => ("shrinking it", "leave it as long as it is"),
    };
    Err(destroyed(
        name,
        &found,
        doing,
        &format!(
            "{instead}, or, if nobody needs that any more, `clockwise volume delete {name}` and create it anew"
        ),
    ))
}

/// The problem of a call that would destroy what was `found`.
fn destroyed(volume: &str, found: &[String], doing: &str, instead: &str) -> Problem {
    let may_reach = |of: &String| of.ends_with(MAY_REACH);
    let would = match found.iter().all(may_reach) {
        true => "may",
        false => "would",
    };
    let why = match found.iter().any(may_reach) {
        true => ", as is right where the file system was made smaller before",
        false => "",
    };
    let found = found.join(", and ");
    Problem::new(
        StatusCode::CONFLICT,
        format!("volume {volume:?} {found}: {doing} {would} destroy that"),
        format!("{instead}; --force (`force` in the API) does it all the same{why}"),
    )
    .at("volume")
}

fn in_use(volume: &str) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        format!("RTSP sessions record or play volume {volume:?} at the moment"),
        "end that first (`clockwise session list`, `clockwise source list`), then do this again",
    )
    .at("volume")
}

/// The refusal of bytes behind the beginning of an archive: that beginning would still make it one.
fn stays(volume: &str, from: Bytes) -> Problem {
    let from = Size(from);
    Problem::new(
        StatusCode::CONFLICT,
        format!(
            "volume {volume:?} holds recordings, and would still be a volume of recordings if bytes were recorded from {from} on: they would be discarded like recordings that are not kept any more"
        ),
        format!(
            "record from the volume's beginning on, or `clockwise volume delete {volume}` and create it anew"
        ),
    )
    .at("offset_bytes")
}

/// What of a volume would be destroyed, in words that follow its name.
fn found(app: &App, volume: &Volume, harm: Harm) -> Result<Vec<String>, Problem> {
    let mut found = Vec::new();
    if let Some(users) = exports::users_of(&app.pool.volume_info(volume.name())?) {
        found.push(format!("is in use through its export by {users}"));
    }
    if app.archives.are_in(volume)? {
        found.push(format!("holds {}", recordings(app, volume)?));
    } else if let Some(mark) = mark(app, volume)? {
        // How long it is only its own tools know.
        let may_reach = matches!(harm, Harm::Cuts(_)) && mark.starts_with("a file system");
        found.push(match may_reach {
            true => format!("holds {mark}, {MAY_REACH}"),
            false => format!("holds {mark}"),
        });
    }
    if let Harm::Cuts(size) = harm {
        let written = written_past(volume, size);
        if written > Bytes::ZERO {
            let (written, size) = (Size(written), Size(size));
            found.push(format!("has {written} of written data past {size}"));
        }
    }
    Ok(found)
}

/// How many recordings there are in an archive, of one that can be opened.
fn recordings(app: &App, volume: &Volume) -> Result<String, Problem> {
    match app.archives.open(volume.name(), None) {
        Ok(archive) => Ok(format!("recordings ({} now)", archive.recordings().len())),
        // Damaged ones may be mended.
        Err(OpenError::Archive(_)) => Ok("recordings (which cannot be listed)".to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// What its beginning tells of a volume.
fn mark(app: &App, volume: &Volume) -> Result<Option<&'static str>, Problem> {
    let whole = volume.size().get() - volume.size().get() % volume.alignment().get();
    let mut beginning = vec![0; whole.min(MARKED_BYTES as u64) as usize];
    let client = app.archives.client()?;
    client
        .read_at(volume, Bytes::ZERO, &mut beginning)
        .map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("what volume {:?} holds cannot be read: {error}", volume.name()),
                "`clockwise status` shows what its disks do; --force (`force` in the API) does not look",
            )
        })?;
    Ok(mark_of(&beginning))
}

/// How many bytes past so many were written, to whole chunks.
fn written_past(volume: &Volume, size: Bytes) -> Bytes {
    let end = volume.size().get();
    let (mut at, mut written) = (size.get(), 0);
    while at < end {
        let runs = volume.block_status(at..end, RUNS);
        let Some(last) = runs.last() else { break };
        at = last.bytes.end;
        let data = runs.iter().filter(|run| !run.hole);
        written += data.map(|run| run.bytes.end - run.bytes.start).sum::<u64>();
    }
    Bytes(written)
}
