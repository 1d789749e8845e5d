//! `clockwise recording lock`, `unlock` and `locks`.

use std::process::ExitCode;

use clap::Args;
use media::archive::wall_clock::now_unix_ns;
use sched::units::Bytes;

use super::super::{block_on, name_in_path, volume};
use super::export::{bad_time, zone};
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::local_time::Zone;
use crate::print::{Output, counted, table};
use crate::quantity::Size;
use crate::text::printable;
use crate::wire::locks::{LockView, MadeLock, MakeLock};

/// Options of `clockwise recording lock`.
#[derive(Args, Debug)]
pub struct LockArgs {
    /// The volume.
    volume: String,
    /// The start: a time such as "2026-11-28 14:00", 14:00, "yesterday 14:00" or -10min.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: String,
    /// The end, in the same forms.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: String,
    /// Why it is locked.
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
    /// When the lock ends by itself, such as 2027-01-31.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// The time zone of the times, such as Europe/Amsterdam [default: the host's].
    #[arg(long)]
    zone: Option<String>,
}

pub(super) fn lock(
    client: &ApiClient,
    args: &LockArgs,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let zone = zone(args.zone.as_deref())?;
    let now = now_unix_ns();
    let from = zone.parse(&args.from, now);
    let from = from.map_err(|error| bad_time("--from", &error))?;
    let until = zone.parse_end(&args.until, now, from);
    let until = until.map_err(|error| bad_time("--until", &error))?;
    let expires = args.expires.as_deref().map(|text| zone.parse(text, now));
    let expires = expires.transpose();
    let expires_unix_ns = expires.map_err(|error| bad_time("--expires", &error))?;
    let shown = zone.text(until);
    if until > now {
        return Err(
            Failure::bad_input(format!("--until {shown} is in the future"))
                .help("only what was recorded can be locked; give an earlier end"),
        );
    }
    if until <= from {
        let from = zone.text(from);
        return Err(
            Failure::bad_input(format!("--until {shown} is not after --from {from}"))
                .help("give a later --until"),
        );
    }
    let path = format!("{}/locks", volume::path(&args.volume)?);
    let ask = MakeLock {
        from_unix_ns: from,
        until_unix_ns: until,
        note: args.note.clone(),
        expires_unix_ns,
    };
    let made: MadeLock = output.during("copying the recording", || {
        block_on(client.post(&path, &ask))
    })?;
    output.result(&made, || {
        let size = Size(Bytes(made.lock.bytes));
        let name = printable(&made.lock.name).into_owned();
        format!("locked in volume {name}, {size}\n")
    })?;
    if made.missing_blocks > 0 {
        return Err(Failure::failed(format!(
            "{} could not be locked: damaged or overwritten",
            counted(made.missing_blocks, "block")
        ))
        .help("everything else of that time is locked"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn unlock(client: &ApiClient, name: &str, output: &Output) -> Result<ExitCode, Failure> {
    let name = name_in_path(name).ok_or_else(|| {
        Failure::bad_input("the name of a lock is empty")
            .help("`clockwise recording locks` lists the locks")
    })?;
    let ended: LockView = block_on(client.delete(&format!("/v1/locks/{name}")))?;
    output.result(&ended, || format!("unlocked {}\n", printable(&ended.name)))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn list(
    client: &ApiClient,
    zone_name: Option<&str>,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let zone = zone(zone_name)?;
    let locks: Vec<LockView> = block_on(client.get("/v1/locks"))?;
    output.result(&locks, || text(&locks, &zone))?;
    Ok(ExitCode::SUCCESS)
}

fn text(locks: &[LockView], zone: &Zone) -> String {
    if locks.is_empty() {
        return "there are no locks\n".to_owned();
    }
    let row = |of: &LockView| {
        let expires = of.expires_unix_ns.map(|at| zone.text(at));
        [
            printable(&of.name).into_owned(),
            printable(&of.volume).into_owned(),
            zone.text(of.from_unix_ns),
            zone.text(of.until_unix_ns),
            Size(Bytes(of.bytes)).to_string(),
            expires.unwrap_or_default(),
            printable(&of.note).into_owned(),
        ]
    };
    let head = ["LOCK", "VOLUME", "FROM", "UNTIL", "SIZE", "EXPIRES", "NOTE"];
    table(head, &[4], locks.iter().map(row)) + "\n"
}
