//! `clockwise camera`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::Serialize;

use super::question::{asked, has_person};
use super::source::{certificates, gaps, path, recording, state};
use super::{block_on, volume};
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::print::{Output, list, table};
use crate::quantity::{Rate, Size, WholeUnits, parse_rate, parse_size, parse_time};
use crate::text::printable;
use crate::wire::cameras::{AddCamera, AddedCamera, CameraTrack};
use crate::wire::recordings::RetentionView;
use crate::wire::sessions::RtspSessionView;
use crate::wire::sources::{SourceTransport, SourceUse, SourceView};
use crate::wire::view::VolumeView;

/// A volume that the server still looks through is deleted within this time, or not at all.
const IN_USE_MAX: Duration = Duration::from_secs(10);

/// The pause between two attempts to delete it.
const IN_USE_PAUSE: Duration = Duration::from_millis(100);

/// `clockwise camera`.
#[derive(Subcommand, Debug)]
pub enum CameraCommand {
    /// Look at what a camera sends for some seconds, create a volume for it, and record it whenever the
    /// server runs.
    Add(Box<AddArgs>),
    /// List the cameras.
    List,
    /// Show one camera: its state, its volume, and the reserved rate.
    Show {
        /// Its name.
        name: String,
    },
    /// Stop recording a camera; its recordings stay.
    Remove {
        /// Its name.
        name: String,
        /// Delete its volume with all recordings in it too; asks first.
        #[arg(long)]
        recordings: bool,
        /// Do not ask.
        #[arg(long, requires = "recordings")]
        yes: bool,
    },
}

/// Options of `clockwise camera add`.
#[derive(clap::Args, Debug)]
pub struct AddArgs {
    /// A name for the camera.
    name: String,
    /// Its URL: rtsp://USER:PASSWORD@HOST/PATH, or rtsps for TLS.
    url: String,
    /// How long recordings are kept, such as 30d [default: 7d, or as long as half of the pool's free space
    /// lasts].
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    keep: Option<Nanos>,
    /// The volume for its recordings; it is created if it does not exist [default: a new one with the
    /// camera's name].
    #[arg(long)]
    volume: Option<String>,
    /// The transport of packets.
    #[arg(long, value_enum, default_value_t)]
    transport: SourceTransport,
    /// The rate to reserve, such as 500KB/s [default: the measured rate, which the reservation follows].
    #[arg(long, value_parser = parse_rate, allow_hyphen_values = true)]
    rate: Option<BytesPerSecond>,
    /// The size of the volume's blocks, a power of two from 64KiB to 4MiB [default: one that suits the rate
    /// and the disks].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    block: Option<Bytes>,
    /// With rtsps: a PEM file with the camera's certificate or those that sign it [default: the
    /// certificates of the server's host].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

pub(super) fn run(
    client: &ApiClient,
    command: &CameraCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        CameraCommand::Add(args) => add(client, args, output)?,
        CameraCommand::List => {
            let sources: Vec<SourceView> = block_on(client.get("/v1/sources"))?;
            let sessions: Vec<RtspSessionView> = block_on(client.get("/v1/sessions"))?;
            output.result(&sources, || cameras_text(&sources, &sessions))?;
        }
        CameraCommand::Show { name } => {
            let camera = Camera::get(client, name)?;
            output.result(&camera, || camera_text(&camera))?;
        }
        CameraCommand::Remove {
            name,
            recordings,
            yes,
        } => {
            let source: SourceView = block_on(client.get(&path(name)?))?;
            if *recordings && !*yes {
                confirm(&source, output)?;
            }
            let source: SourceView = output.during("ending the recording", || {
                block_on(client.delete(&path(name)?))
            })?;
            if *recordings {
                let volume = volume::path(&source.volume)?;
                output.during("deleting the volume", || delete_volume(client, &volume))?;
            }
            output.result(&source, || removed_text(&source, *recordings))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Deletes the volume of a source that has ended. The server may look through its recordings for a moment after that.
fn delete_volume(client: &ApiClient, path: &str) -> Result<VolumeView, Failure> {
    let until = Instant::now() + IN_USE_MAX;
    loop {
        match block_on(client.delete(path)) {
            Err(failure)
                if failure.what.contains("in use by recordings") && Instant::now() < until =>
            {
                std::thread::sleep(IN_USE_PAUSE);
            }
            deleted => return deleted,
        }
    }
}

fn add(client: &ApiClient, args: &AddArgs, output: &Output) -> Result<(), Failure> {
    let ask = AddCamera {
        name: args.name.clone(),
        url: args.url.clone(),
        volume: args.volume.clone(),
        keep_for_ns: args.keep.map(Nanos::get),
        transport: args.transport,
        rate_bytes_per_second: args.rate.map(|rate| rate.0),
        block_bytes: args.block.map(Bytes::get),
        certificates: args.ca.as_deref().map(certificates).transpose()?,
    };
    let added: AddedCamera = output.during("looking at what the camera sends", || {
        block_on(client.post("/v1/cameras", &ask))
    })?;
    output.result(&added, || added_text(&added))
}

/// Asks whether the recordings of a camera may be deleted.
fn confirm(source: &SourceView, output: &Output) -> Result<(), Failure> {
    let volume = printable(&source.volume);
    if !has_person(output) {
        return Err(Failure::bad_input(format!(
            "`--recordings` deletes volume {volume} with all recordings in it"
        ))
        .help("add `--yes` if that is what you want, or leave `--recordings` out to keep them"));
    }
    let question = format!(
        "Volume {volume} will be deleted with all recordings in it. Type {volume} to go on: "
    );
    match asked(&question)? == source.volume {
        true => Ok(()),
        false => Err(Failure::bad_input(
            "the answer is not the name of the volume, so nothing is removed",
        )
        .help("leave `--recordings` out to keep the recordings")),
    }
}

/// A camera with all that is known of it.
#[derive(Serialize)]
struct Camera {
    source: SourceView,
    volume: Option<VolumeView>,
    retention: Option<RetentionView>,
    session: Option<RtspSessionView>,
}

impl Camera {
    fn get(client: &ApiClient, name: &str) -> Result<Self, Failure> {
        let source: SourceView = block_on(client.get(&path(name)?))?;
        let volume = volume::path(&source.volume)?;
        let sessions: Vec<RtspSessionView> = block_on(client.get("/v1/sessions"))?;
        Ok(Self {
            session: session_of(&source, &sessions).cloned(),
            // The volume may have been deleted, or not have been recorded to.
            volume: block_on(client.get(&volume)).ok(),
            retention: block_on(client.get(&format!("{volume}/retention"))).ok(),
            source,
        })
    }
}

/// The session by which a camera is recorded.
fn session_of<'a>(
    source: &SourceView,
    sessions: &'a [RtspSessionView],
) -> Option<&'a RtspSessionView> {
    let is_its = |of: &&RtspSessionView| of.who == source.name && of.volume == source.volume;
    sessions.iter().find(is_its)
}

fn reserved(session: Option<&RtspSessionView>) -> String {
    session.map_or("nothing".to_owned(), |of| {
        Rate(BytesPerSecond(of.rate_bytes_per_second)).to_string()
    })
}

fn cameras_text(sources: &[SourceView], sessions: &[RtspSessionView]) -> String {
    if sources.is_empty() {
        return "there are no cameras; add one with `clockwise camera add NAME URL`\n".to_owned();
    }
    let row = |of: &SourceView| {
        [
            printable(&of.name).into_owned(),
            printable(&of.volume).into_owned(),
            reserved(session_of(of, sessions)),
            gaps(of),
            state(of),
        ]
    };
    let head = ["CAMERA", "VOLUME", "RESERVED", "GAPS", "STATE"];
    table(head, &[2], sources.iter().map(row)) + "\n"
}

fn camera_text(of: &Camera) -> String {
    let source = &of.source;
    let size = |bytes| Size(Bytes(bytes)).to_string();
    let volume = match &of.volume {
        Some(volume) => format!("{}, {}", printable(&source.volume), size(volume.size_bytes)),
        None if source.used != SourceUse::Record => "none: it is not recorded".to_owned(),
        None => format!("{}, which does not exist", printable(&source.volume)),
    };
    let kept = of.retention.and_then(|of| of.keep_for_ns);
    let not_kept = match source.used {
        SourceUse::Record => "until the volume is full",
        SourceUse::LiveOnly | SourceUse::OnDemand => "nothing is kept",
    };
    let kept = kept.map_or(not_kept.to_owned(), |age| {
        WholeUnits(Nanos(age)).to_string()
    });
    let user = source.user.as_deref().map_or("none".into(), printable);
    let mut pairs = vec![
        ("camera", printable(&source.name).into_owned()),
        ("url", printable(&source.url).into_owned()),
        ("user", user.into_owned()),
        ("state", state(source)),
        ("volume", volume),
        ("kept for", kept),
        ("reserved", reserved(of.session.as_ref())),
        ("recording", recording(source)),
        (
            "received",
            format!(
                "{} packets, {}; {} lost",
                source.packets,
                size(source.bytes),
                source.lost
            ),
        ),
        ("gaps", gaps(source)),
    ];
    // It goes on with what it has.
    let refused = of
        .session
        .as_ref()
        .and_then(|of| of.counts.refused.as_ref());
    if let Some(refused) = refused {
        pairs.push(("needs more", printable(refused).into_owned()));
    }
    list(&pairs)
}

fn track_text(of: &CameraTrack) -> String {
    let name = match of.encoding.as_str() {
        "" => "unknown format",
        name => name,
    };
    let size = of.width.zip(of.height);
    let size = size.map_or(String::new(), |(width, height)| {
        format!(" {width}x{height}")
    });
    match of.is_recorded {
        true => format!(
            "{}{size}, {}",
            printable(name),
            Rate(BytesPerSecond(of.rate_bytes_per_second))
        ),
        false => format!(
            "{}{size}, which the camera refuses to send",
            printable(name)
        ),
    }
}

fn added_text(of: &AddedCamera) -> String {
    let mut text = String::from("found\n");
    for track in &of.tracks {
        text += &format!("  {}\n", track_text(track));
    }
    text += &format!(
        "  together {} as stored\n",
        Rate(BytesPerSecond(of.measured_bytes_per_second))
    );
    let volume = printable(&of.source.volume);
    let what = match of.is_volume_new {
        true => "created volume",
        false => "used volume",
    };
    text += &format!(
        "{what} {volume} of {} with blocks of {}\n",
        Size(Bytes(of.volume_bytes)),
        Size(Bytes(of.block_bytes))
    );
    let keep = of.keep_for_ns.map(|keep| WholeUnits(Nanos(keep)));
    text += &match (keep, of.is_keep_default) {
        (Some(keep), true) => {
            format!("recordings are kept for {keep}, the default; `--keep` changes it\n")
        }
        (Some(keep), false) => format!("recordings are kept for {keep}\n"),
        (None, _) => "recordings are kept as the volume was set\n".to_owned(),
    };
    let name = printable(&of.source.name);
    text + &format!("recording {name}; `clockwise camera show {name}` shows its state\n")
}

fn removed_text(of: &SourceView, with_recordings: bool) -> String {
    let (name, volume) = (printable(&of.name), printable(&of.volume));
    match with_recordings {
        true => format!("removed camera {name}, and volume {volume} with its recordings\n"),
        false => format!(
            "removed camera {name}; its recordings stay in volume {volume}, and `clockwise volume delete {volume}` deletes them\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_camera_is_described() {
        let source: SourceView = serde_json::from_value(serde_json::json!({
            "name": "door", "url": "rtsp://h/x", "user": null, "volume": "door", "transport": "tcp",
            "rate_bytes_per_second": null, "state": "connecting", "reason": null, "recording": null,
            "packets": 0, "bytes": 0, "lost": 0, "gaps": 0, "gap_ns": 0,
        }))
        .unwrap();
        let track = |encoding: &str, is_recorded: bool| CameraTrack {
            encoding: encoding.to_owned(),
            clock_rate: 90_000,
            width: is_recorded.then_some(640),
            height: is_recorded.then_some(480),
            rate_bytes_per_second: 24_000,
            is_recorded,
        };
        let added = AddedCamera {
            source,
            tracks: vec![track("H264", true), track("", false)],
            measured_bytes_per_second: 25_000,
            stated_bytes_per_second: None,
            keep_for_ns: Some(7 * 86_400_000_000_000),
            is_keep_default: true,
            is_volume_new: true,
            volume_bytes: 20 << 30,
            block_bytes: 65_536,
        };
        let text = added_text(&added);
        for part in [
            "H264 640x480, 24.0 KB/s",
            "unknown format, which the camera refuses",
            "together 25.0 KB/s",
            "created volume door of 20 GiB with blocks of 64 KiB",
            "kept for 7d, the default",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
