//! `clockwise volume`.

use std::process::ExitCode;
use std::time::Duration;

use ::volume::name::shown;
use clap::Subcommand;
use sched::units::Bytes;

use super::disk::find_disk;
use super::{block_on, name_in_path};
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::print::{Output, list, table};
use crate::quantity::{Size, parse_position, parse_size};
use crate::wire::ask::{
    CreateVolume, Direction, MoveProgress, MoveVolume, PlacementAsk, ResizeVolume,
};
use crate::wire::view::{PlaceView, PoolView, VolumeView};

/// The time between two requests for the progress of a move.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Where extents are placed.
#[derive(clap::Args, Clone, Debug)]
pub struct PlacementArgs {
    /// Only on this disk, named as for `disk show`; may be given several times [default: all disks in turn].
    #[arg(long, value_name = "NAME")]
    disk: Vec<String>,
    /// Only in this zone of each disk, as `disk show DISK` lists them; 0 is the outermost and fastest.
    #[arg(long, allow_negative_numbers = true)]
    zone: Option<usize>,
    /// Only from this byte of each disk on, such as 1TB.
    #[arg(long, value_name = "SIZE", value_parser = parse_position, allow_hyphen_values = true)]
    from_byte: Option<Bytes>,
    /// Only up to this byte of each disk.
    #[arg(long, value_name = "SIZE", value_parser = parse_position, allow_hyphen_values = true)]
    to_byte: Option<Bytes>,
    /// Neighbouring extents on one disk before the next disk is taken [default: 1, or for a volume that
    /// grows, as many as it has].
    #[arg(long, value_name = "EXTENTS", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    run: Option<u32>,
}

impl PlacementArgs {
    fn ask(&self, client: &ApiClient) -> Result<PlacementAsk, Failure> {
        let mut disks = Vec::with_capacity(self.disk.len());
        if !self.disk.is_empty() {
            let pool: PoolView = block_on(client.get("/v1/pool"))?;
            let names: Vec<&str> = pool.disks.iter().map(String::as_str).collect();
            for wanted in &self.disk {
                disks.push(names[find_disk(&names, wanted)?].to_owned());
            }
        }
        Ok(PlacementAsk {
            disks,
            zone: self.zone,
            from_byte: self.from_byte.map(Bytes::get),
            to_byte: self.to_byte.map(Bytes::get),
            run_extents: self.run.unwrap_or(0),
        })
    }
}

/// `clockwise volume`.
#[derive(Subcommand, Debug)]
pub enum VolumeCommand {
    /// Create a volume.
    Create {
        /// Its name.
        name: String,
        /// Its size, such as 100GiB; it takes whole extents of the disks.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
        size: Bytes,
        /// Where its extents are placed.
        #[command(flatten)]
        placement: PlacementArgs,
    },
    /// List the volumes.
    List,
    /// Show one volume.
    Show {
        /// Its name.
        name: String,
        /// Show where its extents lie instead, in the volume's order.
        #[arg(long)]
        places: bool,
    },
    /// Grow a volume, also while it is in use.
    Grow {
        /// Its name.
        name: String,
        /// The new size.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
        size: Bytes,
        /// Where the new extents are placed.
        #[command(flatten)]
        placement: PlacementArgs,
    },
    /// Shrink a volume, also while it is in use. A shrink that would lose data is refused without --force.
    Shrink {
        /// Its name.
        name: String,
        /// The new size.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
        size: Bytes,
        /// Shrink the volume even if data is lost: recordings, a file system, written data past the new size,
        /// or a volume in use through its export.
        #[arg(long)]
        force: bool,
    },
    /// Move a volume's extents, also while it is in use, in the time that streams leave. Ctrl-C stops the
    /// move; it continues if this command is killed.
    Move {
        /// Its name.
        name: String,
        /// Stop the running move instead; moved extents stay where they are.
        #[arg(long, conflicts_with_all = ["disk", "zone", "from_byte", "to_byte", "run"])]
        stop: bool,
        /// Where the extents are placed.
        #[command(flatten)]
        placement: PlacementArgs,
    },
    /// Delete a volume that is not in use, with all data in it.
    Delete {
        /// Its name.
        name: String,
    },
}

/// The path of a volume in the API.
pub(super) fn path(name: &str) -> Result<String, Failure> {
    let name = name_in_path(name).ok_or_else(|| {
        Failure::bad_input("the volume's name is empty")
            .help("`clockwise volume list` shows the volumes")
    })?;
    Ok(format!("/v1/volumes/{name}"))
}

pub(super) fn run(
    client: &ApiClient,
    command: &VolumeCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let volume: VolumeView = match command {
        VolumeCommand::List => {
            let volumes: Vec<VolumeView> = block_on(client.get("/v1/volumes"))?;
            output.result(&volumes, || volumes_text(&volumes))?;
            return Ok(ExitCode::SUCCESS);
        }
        VolumeCommand::Create {
            name,
            size,
            placement,
        } => {
            let ask = CreateVolume {
                name: name.clone(),
                size_bytes: size.get(),
                placement: placement.ask(client)?,
            };
            output.during("creating the volume", || {
                block_on(client.post("/v1/volumes", &ask))
            })?
        }
        VolumeCommand::Show { name, places: true } => {
            let places = places(client, &path(name)?)?;
            output.result(&places, || places_text(&places))?;
            return Ok(ExitCode::SUCCESS);
        }
        VolumeCommand::Show { name, .. } => block_on(client.get(&path(name)?))?,
        VolumeCommand::Grow {
            name,
            size,
            placement,
        } => {
            let ask = ResizeVolume {
                size_bytes: size.get(),
                direction: Some(Direction::Grow),
                placement: placement.ask(client)?,
                force: false,
            };
            output.during("growing the volume", || resize(client, name, &ask))?
        }
        VolumeCommand::Shrink { name, size, force } => {
            let ask = ResizeVolume {
                size_bytes: size.get(),
                direction: Some(Direction::Shrink),
                placement: PlacementAsk::default(),
                force: *force,
            };
            output.during("shrinking the volume", || resize(client, name, &ask))?
        }
        VolumeCommand::Move {
            name, stop: true, ..
        } => return stop_move(client, name, output),
        VolumeCommand::Move {
            name, placement, ..
        } => move_extents(client, name, placement.ask(client)?, output)?,
        VolumeCommand::Delete { name } => {
            let path = path(name)?;
            let last: VolumeView =
                output.during("deleting the volume", || block_on(client.delete(&path)))?;
            output.result(&last, || format!("deleted volume {:?}\n", last.name))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    output.result(&volume, || volume_text(&volume))?;
    Ok(ExitCode::SUCCESS)
}

/// All runs of extents of a volume, fetched page by page.
fn places(client: &ApiClient, volume: &str) -> Result<Vec<PlaceView>, Failure> {
    let extent = block_on(client.get::<PoolView>("/v1/pool"))?.extent_bytes;
    let mut all: Vec<PlaceView> = Vec::new();
    let mut from = 0;
    loop {
        let page: Vec<PlaceView> = block_on(client.get(&format!("{volume}/places?from={from}")))?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        from = last.offset_bytes + last.extents * extent;
        all.extend(page);
    }
}

fn resize(client: &ApiClient, name: &str, ask: &ResizeVolume) -> Result<VolumeView, Failure> {
    block_on(client.patch(&path(name)?, ask))
}

fn stop_move(client: &ApiClient, name: &str, output: &Output) -> Result<ExitCode, Failure> {
    let at: MoveProgress = block_on(client.delete(&format!("{}/move", path(name)?)))?;
    output.result(&at, || {
        let MoveProgress { done, total } = at;
        format!(
            "the move of volume {} is stopping: {done} of {total} extents have been moved\n",
            shown(name)
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn move_extents(
    client: &ApiClient,
    name: &str,
    placement: PlacementAsk,
    output: &Output,
) -> Result<VolumeView, Failure> {
    let path = format!("{}/move", path(name)?);
    let ask = MoveVolume { placement };
    let bar = output.progress(0, "moving extents");
    let moved = block_on(async {
        client.opened().await?;
        let moving = client.post(&path, &ask);
        tokio::pin!(moving);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        loop {
            tokio::select! {
                moved = &mut moving => return moved,
                _ = ticks.tick() => {
                    // The move may not have started yet, or have ended. Its own answer reports errors.
                    if let Ok(MoveProgress { done, total }) = client.get(&path).await {
                        bar.set_length(total);
                        bar.set_position(done);
                    }
                }
                _ = tokio::signal::ctrl_c() => {
                    let _: MoveProgress = client.delete(&path).await?;
                }
            }
        }
    });
    bar.finish_and_clear();
    moved
}

fn places_text(places: &[PlaceView]) -> String {
    let size = |bytes| Size(Bytes(bytes)).to_string();
    table(
        ["FROM", "EXTENTS", "DISK", "ZONE", "ON DISK FROM", "TO"],
        &[0, 1, 3, 4, 5],
        places.iter().map(|place| {
            [
                size(place.offset_bytes),
                place.extents.to_string(),
                place.disk.clone(),
                place.zone.to_string(),
                size(place.from_byte),
                size(place.to_byte),
            ]
        }),
    )
}

/// The users of a volume: each kind once, with its number.
fn users(volume: &VolumeView) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for user in &volume.users {
        match kinds.iter_mut().find(|(kind, _)| kind == user) {
            Some((_, count)) => *count += 1,
            None => kinds.push((user, 1)),
        }
    }
    let text = kinds.iter().map(|(kind, count)| match count {
        1 => (*kind).to_owned(),
        _ => format!("{kind} ({count} times)"),
    });
    text.collect::<Vec<_>>().join(", ")
}

fn volumes_text(volumes: &[VolumeView]) -> String {
    if volumes.is_empty() {
        return "there are no volumes; create one with `clockwise volume create NAME --size SIZE`\n"
            .to_owned();
    }
    let mut text = table(
        ["VOLUME", "SIZE", "WRITTEN", "EXTENTS", "USED BY"],
        &[1, 2, 3],
        volumes.iter().map(|volume| {
            [
                shown(&volume.name).into_owned(),
                Size(Bytes(volume.size_bytes)).to_string(),
                Size(Bytes(volume.written_bytes)).to_string(),
                volume.extents.to_string(),
                users(volume),
            ]
        }),
    );
    text.push('\n');
    for volume in volumes {
        if let Some(reason) = &volume.poisoned {
            let name = shown(&volume.name);
            text += &format!("NO MORE WRITES to volume {name}: {reason}\n");
        }
        if let Some(MoveProgress { done, total }) = volume.moving {
            let name = shown(&volume.name);
            text += &format!(
                "volume {name} is being moved: {done} of {total} extents so far; `clockwise volume move {name} --stop` stops the move\n"
            );
        }
    }
    text
}

fn volume_text(volume: &VolumeView) -> String {
    let places: Vec<String> = volume
        .extents_by_disk
        .iter()
        .map(|place| format!("{} on {}", place.extents, place.disk))
        .collect();
    let mut pairs = vec![
        ("volume", shown(&volume.name).into_owned()),
        ("size", Size(Bytes(volume.size_bytes)).to_string()),
        ("written", Size(Bytes(volume.written_bytes)).to_string()),
        (
            "extents",
            format!("{} ({})", volume.extents, places.join(", ")),
        ),
        (
            "used by",
            if volume.users.is_empty() {
                "none".to_owned()
            } else {
                users(volume)
            },
        ),
    ];
    if let Some(MoveProgress { done, total }) = volume.moving {
        pairs.push(("moved", format!("{done} of {total} extents so far")));
    }
    if let Some(reason) = &volume.poisoned {
        pairs.push(("takes no writes", reason.clone()));
    }
    list(&pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_list_shows_poisoned_volumes_and_escapes_names() {
        let volume = |name: &str, poisoned: Option<&str>| VolumeView {
            name: name.to_owned(),
            size_bytes: 1,
            written_bytes: 1,
            extents: 1,
            open_count: 0,
            users: Vec::new(),
            poisoned: poisoned.map(str::to_owned),
            extents_by_disk: Vec::new(),
            moving: None,
        };
        let well = volumes_text(&[volume("a\nb", None)]);
        assert_eq!(well.lines().count(), 2, "{well}");
        assert!(well.contains("a\\u{a}b"), "{well}");
        let text = volumes_text(&[volume("v", None), volume("w", Some("disk sda: no answer"))]);
        let last = text.lines().last();
        assert_eq!(
            last,
            Some("NO MORE WRITES to volume w: disk sda: no answer"),
            "{text}"
        );
    }

    #[test]
    fn any_name_is_one_segment_of_a_path() {
        assert_eq!(path("cam-1").unwrap(), "/v1/volumes/cam-1");
        assert_eq!(path("a/b ?é").unwrap(), "/v1/volumes/a%2Fb%20%3F%C3%A9");
        assert_eq!(path("..").unwrap(), "/v1/volumes/%2E%2E");
        assert!(path("").is_err());
    }
}
