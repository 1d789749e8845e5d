//! `clockwise events`.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::block_on;
use super::recording::export::zone;
use crate::client::ApiClient;
use crate::failure::{Failure, host_failure};
use crate::local_time::Zone;
use crate::print::Output;
use crate::wire::events::EventView;

/// Options of `clockwise events`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Begin with the earlier events that the server keeps, at most 1,000.
    #[arg(long)]
    past: bool,
    /// The time zone of the times, such as Europe/Amsterdam [default: the host's].
    #[arg(long)]
    zone: Option<String>,
}

pub(super) fn run(client: &ApiClient, args: &Args, output: &Output) -> Result<ExitCode, Failure> {
    let zone = zone(args.zone.as_deref())?;
    let path = if args.past {
        "/v1/events?after=0"
    } else {
        "/v1/events"
    };
    block_on(async {
        client.opened().await?;
        let mut interrupts = signal(SignalKind::interrupt())
            .map_err(|error| host_failure("listen for Ctrl-C", &error))?;
        let mut messages = Messages::default();
        let following = client.download(path, |piece| {
            for event in messages.take(piece)? {
                output.result(&event, || line(&event, &zone))?;
            }
            Ok(())
        });
        tokio::select! {
            ended = following => ended.map(drop)?,
            _ = interrupts.recv() => return Ok(ExitCode::SUCCESS),
        }
        Err(Failure::failed("the server has ended").help(
            "its log says why; `clockwise events --past` shows the events since its next start",
        ))
    })
}

fn line(event: &EventView, zone: &Zone) -> String {
    format!(
        "{}  {:<17}{}\n",
        zone.text(event.at_unix_ns),
        event.kind.name(),
        event.what
    )
}

/// Bytes of server-sent events that have not come whole.
#[derive(Default)]
struct Messages(Vec<u8>);

impl Messages {
    /// Takes in a piece. Returns the events that are whole now.
    fn take(&mut self, piece: &[u8]) -> Result<Vec<EventView>, Failure> {
        self.0.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.0.windows(2).position(|two| two == b"\n\n") {
            let message: Vec<u8> = self.0.drain(..end + 2).collect();
            let mut lines = message.split(|byte| *byte == b'\n');
            let Some(data) = lines.find_map(|line| line.strip_prefix(b"data: ")) else {
                continue;
            };
            let event = serde_json::from_slice(data).map_err(|error| {
                Failure::failed(format!("cannot parse an event of the server: {error}"))
                    .help("the server and this command may be of different versions")
            })?;
            events.push(event);
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::events::EventKind;

    #[test]
    fn events_are_put_together_from_pieces() {
        let event = EventView::new(EventKind::DiskBack, "it is back".to_owned());
        let data = serde_json::to_string(&event).unwrap();
        let text =
            format!(":\n\nid: 1\nevent: disk-back\ndata: {data}\n\n:\n\nid: 2\ndata: {data}\n\n");
        for length in [1, 7, text.len()] {
            let mut messages = Messages::default();
            let pieces = text.as_bytes().chunks(length);
            let events = pieces.flat_map(|piece| messages.take(piece).unwrap());
            assert_eq!(events.collect::<Vec<_>>(), [event.clone(), event.clone()]);
        }
    }
}
