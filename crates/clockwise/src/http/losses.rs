//! The rule for calls that destroy data: such a call is refused with a description of that data, unless it is
//! forced.
//!
//! The rule covers calls that lose data without naming it: recording bytes over the content of a volume,
//! cutting a volume, and a retention that drops recordings at once. It does not cover deletion, which names
//! the data, nor recording bytes over an earlier recording of bytes: such bytes have no mark by which they
//! could be recognised.

use axum::http::StatusCode;
use engine::pool::{MARKED_BYTES, Volume, mark_of};
use media::archive::archives::OpenError;
use sched::units::Bytes;

use super::App;
use crate::exports;
use crate::quantity::Size;
use crate::wire::Problem;

/// The most runs of written and unwritten bytes per query.
const RUNS_PER_QUERY: usize = 4_096;

/// The end of the description of a file system in a volume that is cut.
const MAY_REACH: &str = "which may reach past the new size";

/// The way in which a call destroys data of a volume.
#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    /// It overwrites bytes from this offset on.
    Overwrites(Bytes),
    /// It cuts off the bytes past this size.
    Cuts(Bytes),
}

/// Refuses a call that would destroy data of a volume, unless it is forced. A volume that is being recorded
/// or played over RTSP is protected even then.
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
                Err(remains_archive(name, from))
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
        Harm::Cuts(_) => ("shrinking the volume", "keep its size"),
    };
    Err(destroyed(
        name,
        &found,
        doing,
        &format!(
            "{instead}, or, if that data is not needed, delete the volume (`clockwise volume delete {name}`) and create it again"
        ),
    ))
}

/// The problem of a call that would destroy the data in `found`.
fn destroyed(volume: &str, found: &[String], doing: &str, instead: &str) -> Problem {
    let may_reach = |of: &String| of.ends_with(MAY_REACH);
    let would = match found.iter().all(may_reach) {
        true => "may",
        false => "would",
    };
    let why = match found.iter().any(may_reach) {
        true => ", which is right if the file system was made smaller before",
        false => "",
    };
    let found = found.join(", and ");
    Problem::new(
        StatusCode::CONFLICT,
        format!("volume {volume:?} {found}: {doing} {would} destroy that"),
        format!("{instead}; --force (`force` in the API) overrides this{why}"),
    )
    .at("volume")
}

fn in_use(volume: &str) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        format!("RTSP sessions are recording or playing volume {volume:?}"),
        "end these sessions first (`clockwise session list`, `clockwise source list`)",
    )
    .at("volume")
}

/// The problem of recording bytes after the beginning of an archive: the volume would still be recognised as
/// an archive by its beginning.
fn remains_archive(volume: &str, from: Bytes) -> Problem {
    let from = Size(from);
    Problem::new(
        StatusCode::CONFLICT,
        format!(
            "volume {volume:?} holds recordings, and would still count as a volume of recordings after bytes were recorded from {from} on: those bytes would be discarded like expired recordings"
        ),
        format!(
            "record from the volume's beginning on, or delete the volume (`clockwise volume delete {volume}`) and create it again"
        ),
    )
    .at("offset_bytes")
}

/// The data of a volume that would be destroyed, as phrases that follow its name.
fn found(app: &App, volume: &Volume, harm: Harm) -> Result<Vec<String>, Problem> {
    let mut found = Vec::new();
    if let Some(users) = exports::users_of(&app.pool.volume_info(volume.name())?) {
        found.push(format!("is in use through its export by {users}"));
    }
    if app.archives.are_in(volume)? {
        found.push(format!("holds {}", recordings(app, volume)?));
    } else if let Some(mark) = mark(app, volume)? {
        // Only the tools of the file system know how long it is.
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

/// A phrase with the number of recordings in an archive.
fn recordings(app: &App, volume: &Volume) -> Result<String, Problem> {
    match app.archives.open(volume.name(), None) {
        Ok(archive) => Ok(format!(
            "recordings ({} at present)",
            archive.recordings().len()
        )),
        // A damaged archive may still be repaired.
        Err(OpenError::Archive(_)) => Ok("recordings that cannot be listed".to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// The kind of data that the beginning of a volume shows, if it is recognised.
fn mark(app: &App, volume: &Volume) -> Result<Option<&'static str>, Problem> {
    let aligned_size = volume.size().get() - volume.size().get() % volume.alignment().get();
    let mut beginning = vec![0; aligned_size.min(MARKED_BYTES as u64) as usize];
    let client = app.archives.client()?;
    client
        .read_at(volume, Bytes::ZERO, &mut beginning)
        .map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the beginning of volume {:?} cannot be read: {error}", volume.name()),
                "`clockwise status` shows the state of its disks; --force (`force` in the API) skips this check",
            )
        })?;
    Ok(mark_of(&beginning))
}

/// The number of written bytes past `size`, in whole chunks.
fn written_past(volume: &Volume, size: Bytes) -> Bytes {
    let end = volume.size().get();
    let (mut at, mut written) = (size.get(), 0);
    while at < end {
        let runs = volume.block_status(at..end, RUNS_PER_QUERY);
        let Some(last) = runs.last() else { break };
        at = last.bytes.end;
        let data = runs.iter().filter(|run| !run.hole);
        written += data.map(|run| run.bytes.end - run.bytes.start).sum::<u64>();
    }
    Bytes(written)
}
