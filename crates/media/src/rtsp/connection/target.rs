//! The target of a URL: a volume to record in, or recordings to play.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rtsp_types::StatusCode;

use super::answer::{Answer, answer};
use super::meanwhile::longest;
use super::{ClientRequest, Connection};
use crate::archive::archives::OpenError;
use crate::archive::{Archive, ArchiveError, Recording};
use crate::rtsp::access::AccessRight;
use crate::sdp::{self, Description};

/// Recordings that are played together, at most.
const PARTS_MAX: usize = 8;

/// The target of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// The volumes, at least one.
    pub(super) volumes: Vec<String>,
    /// The number of a recording in the first volume; `None` is the newest one.
    pub(super) number: Option<u64>,
    /// `live`: the recording that is being made, from now on.
    pub(super) is_live: bool,
    /// The rest of the path: a track.
    pub(super) rest: String,
}

/// Parses `/VOLUME`, `/VOLUME/7` or `/VOLUME/live`, each with or without a track behind it; `VOLUME+OTHER` names
/// recordings that are played together.
pub(super) fn target(request: &ClientRequest) -> Option<Target> {
    of_path(request.request_uri()?.path())
}

/// The volumes that a path names.
pub(crate) fn volumes(path: &str) -> Option<Vec<String>> {
    let first = path.trim_matches('/').split('/').next()?;
    let volumes = first.split('+').map(|volume| {
        let volume = percent_decode_str(volume).decode_utf8().ok()?;
        (!volume.is_empty()).then(|| volume.into_owned())
    });
    volumes.collect()
}

fn of_path(path: &str) -> Option<Target> {
    let volumes = volumes(path)?;
    let rest = path.trim_matches('/').split_once('/');
    let rest = rest.map_or("", |(_, rest)| rest);
    let (first, others) = rest.split_once('/').unwrap_or((rest, ""));
    let number = first.parse().ok();
    let is_live = first == "live";
    Some(Target {
        volumes,
        number,
        is_live,
        rest: if number.is_some() || is_live {
            others.to_owned()
        } else {
            rest.to_owned()
        },
    })
}

/// Why the part of a player's path behind the volume is neither a recording nor a track; `None` if it is one, or
/// the path names no volume.
pub(super) fn unknown_part(request: &ClientRequest) -> Option<String> {
    let Target { number, rest, .. } = target(request)?;
    if rest.is_empty() || sdp::is_control(&rest) {
        return None;
    }
    Some(match number {
        Some(number) => format!("there is no {rest:?} in recording {number}"),
        None => format!(
            "there is no recording {rest:?}: after the volume, give its number, or `live`, or nothing for the newest"
        ),
    })
}

pub(super) fn missing_volume(request: &ClientRequest) -> Answer {
    answer(Some(request), StatusCode::NotFound)
        .reason("name a volume: rtsp://HOST/VOLUME, with %2B for a plus in its name")
}

/// The volume that a request records in, or the name of a stream that is live only (`/NAME/live`), and whether it is
/// the latter.
pub(super) fn recorded_to(request: &ClientRequest) -> Result<(String, bool), Answer> {
    let target = target(request).ok_or_else(|| missing_volume(request))?;
    let refused = |why| Err(answer(Some(request), StatusCode::BadRequest).reason(why));
    let [volume] = &target.volumes[..] else {
        return refused("a recording is made in one volume; a plus in its name is written as %2B");
    };
    if target.number.is_some() {
        return refused(
            "a recording gets its number when it begins; name the volume alone: rtsp://HOST/VOLUME",
        );
    }
    Ok((volume.clone(), target.is_live))
}

/// The refusal if a recording or an archive could not be opened.
pub(super) fn unopened(request: &ClientRequest, error: &OpenError) -> Answer {
    let status = match error {
        OpenError::Archive(ArchiveError::Empty(_)) => StatusCode::NotFound,
        OpenError::Archive(
            ArchiveError::Foreign(_)
            | ArchiveError::Exported(_)
            | ArchiveError::Small { .. }
            | ArchiveError::Busy(_),
        ) => StatusCode::Forbidden,
        OpenError::Archive(_) => StatusCode::InternalServerError,
        OpenError::Pool(engine::pool::PoolError::NoSuchVolume { .. })
        | OpenError::NoRecording { .. } => StatusCode::NotFound,
        OpenError::Pool(_) | OpenError::Memory(_) => StatusCode::ServiceUnavailable,
    };
    answer(Some(request), status).reason(error.to_string())
}

/// A recording that can be played.
pub(super) struct PlayableRecording {
    pub(super) archive: Arc<Archive>,
    pub(super) recording: Recording,
    pub(super) description: Description,
}

impl Connection<'_> {
    /// The recordings that a request names, at least one: the first one, and those of the other volumes that were
    /// recorded at the same time.
    pub(super) fn recorded(
        &self,
        request: &ClientRequest,
    ) -> Result<Vec<PlayableRecording>, Answer> {
        let target = target(request).ok_or_else(|| missing_volume(request))?;
        if let Some(why) = unknown_part(request) {
            return Err(answer(Some(request), StatusCode::NotFound).reason(why));
        }
        let count = target.volumes.len();
        if count > PARTS_MAX {
            let why = format!(
                "{count} recordings are requested; at most {PARTS_MAX} can be played together"
            );
            return Err(answer(Some(request), StatusCode::BadRequest).reason(why));
        }
        let mut recorded: Vec<PlayableRecording> = Vec::with_capacity(count);
        for volume in &target.volumes {
            self.may(request, AccessRight::Recordings, volume)?;
            if recorded
                .iter()
                .any(|of| of.archive.volume().name() == volume)
            {
                let why = format!("volume {volume:?} is named twice");
                return Err(answer(Some(request), StatusCode::BadRequest).reason(why));
            }
            recorded.push(self.recorded_in(request, &target, volume, recorded.first())?);
        }
        Ok(recorded)
    }

    /// The recording of a volume: the one that is named, or the one that was recorded at the time of `first`.
    fn recorded_in(
        &self,
        request: &ClientRequest,
        target: &Target,
        volume: &str,
        first: Option<&PlayableRecording>,
    ) -> Result<PlayableRecording, Answer> {
        let missing = |why: String| answer(Some(request), StatusCode::NotFound).reason(why);
        let archive = self.shared.archives.open(volume, None);
        let archive = archive.map_err(|error| unopened(request, &error))?;
        let recording = match first {
            Some(first) => self
                .made_with(&archive, (&first.archive, &first.recording))
                .map(|made| longest(&made))
                .map_err(|error| unopened(request, &error.into()))?
                .ok_or_else(|| {
                    missing(format!(
                        "nothing was recorded in volume {volume:?} while recording {} in volume {:?} was",
                        first.recording.number,
                        first.archive.volume().name()
                    ))
                })?,
            _ => archive
                .recording(target.number.filter(|_| first.is_none()))
                .ok_or_else(|| {
                    let which = target.number.map_or("recording".to_owned(), |number| {
                        format!("recording {number}")
                    });
                    missing(format!("there is no {which} in volume {volume:?}"))
                })?,
        };
        let described = self.shared.archives.describe(&archive, recording);
        let described = described.map_err(|error| unopened(request, &error))?;
        let description = described.description.ok_or_else(|| {
            missing(format!(
                "the last blocks of recording {} in volume {volume:?} are damaged",
                recording.number
            ))
        })?;
        Ok(PlayableRecording {
            archive,
            recording,
            description,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_volumes_a_recording_and_a_track() {
        let of = |path| {
            let Target {
                volumes,
                number,
                is_live,
                rest,
            } = of_path(path)?;
            Some((volumes.join("|"), number, is_live, rest))
        };
        let is = |volumes: &str, number, is_live, rest: &str| {
            Some((volumes.to_owned(), number, is_live, rest.to_owned()))
        };
        assert_eq!(of("/cam"), is("cam", None, false, ""));
        assert_eq!(of("/cam/track1"), is("cam", None, false, "track1"));
        assert_eq!(of("/cam/7/track1/"), is("cam", Some(7), false, "track1"));
        assert_eq!(of("/cam/live"), is("cam", None, true, ""));
        assert_eq!(of("/a+b+c/7"), is("a|b|c", Some(7), false, ""));
        assert_eq!(
            of("/front%20door+b%2B"),
            is("front door|b+", None, false, "")
        );
        for none in ["", "/", "/a++b", "/+", "/%ff"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
