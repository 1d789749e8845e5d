//! The disks of a configuration: there, measured, with a cache that does not delay, and on cables of their own.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::Access;

use super::{Found, weak, wrong};
use crate::config::{Config, DiskConfig, DiskKind};
use crate::device::{self, Identity, WriteCache};
use crate::disks;

/// Words of warnings of the server about facts that are found here.
const KNOWN: [&str; 3] = [
    "was not measured on this disk",
    "counts as an estimate",
    "no FUA",
];

/// True if a warning of the server is about a fact that is found here.
pub(super) fn is_known(warning: &str) -> bool {
    KNOWN.iter().any(|words| warning.contains(words))
}

fn is_block(disk: &&DiskConfig) -> bool {
    disk.kind == DiskKind::Block
}

/// Disks that the server can open. A server that runs has opened its own.
pub(super) fn usable(config: &Config, is_running: bool) -> Found {
    if is_running {
        return Vec::new();
    }
    let why = "the pool needs all of its disks: the server does not start";
    let mut found = Vec::new();
    for disk in &config.disks {
        let path = disk.path.display();
        if let Err(failure) = disks::check_kind(disk) {
            found.push(wrong(failure.what, why, failure.help));
            continue;
        }
        if let Err(error) = rustix::fs::access(&disk.path, Access::READ_OK | Access::WRITE_OK) {
            let fix = format!(
                "run the server as root or as a user who may: a member of the group in `ls -lL {path}`, such as by: adduser USER disk"
            );
            found.push(wrong(
                format!("{path} cannot be opened by this user: {error}"),
                why,
                fix,
            ));
        }
        let users = Identity::of(&disk.path).map(|identity| identity.users);
        for user in users.unwrap_or_default() {
            let fix = format!("lsblk {path}, then umount, swapoff or stop what uses it");
            found.push(wrong(format!("{path} is in use: {user}"), why, fix));
        }
    }
    found
}

/// The name for the profile of a disk: the last part of its path.
fn profile_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}.toml")
}

/// Disks whose profile was measured on them.
pub(super) fn measured(file: &Path, config: &Config, is_running: bool) -> Found {
    // Names in the configuration are relative to its folder.
    let folder = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = folder.parent().unwrap_or(Path::new("/"));
    let doubted = config.disks.iter().filter_map(|disk| {
        let doubt = disks::estimate(disk)?;
        let path = disk.path.display();
        let profile = profile_name(&disk.path);
        let to = folder.join(&profile);
        let to = to.display();
        let measure = match (is_running, &disk.plant) {
            (true, _) => format!("clockwise disk measure {path} --online --write --to {to}"),
            (false, Some(plant)) => {
                format!("clockwise disk measure {path} --plant {} --to {to}", plant.name())
            }
            (false, None) if disk.kind == DiskKind::Block => {
                format!("clockwise disk measure {path} --write --to {to} (destroys its data; `--online --write` while the server runs does not)")
            }
            (false, None) => format!("clockwise disk measure {path} --to {to}"),
        };
        Some(weak(
            format!("{path}: {doubt}"),
            "a guarantee is no better than the profile: if the disk is slower, deadlines are missed; if it is faster, streams \
             are refused that it would carry",
            format!("{measure}, then profile = {profile:?} in its [[disk]]"),
        ))
    });
    doubted.collect()
}

/// Disks that make single writes durable without a flush of their cache.
pub(super) fn caches(config: &Config) -> Found {
    let mut found = Vec::new();
    for disk in config.disks.iter().filter(is_block) {
        let Ok(identity) = Identity::of(&disk.path) else {
            continue;
        };
        if identity.write_cache == Some(WriteCache::WriteBack) && identity.fua != Some(true) {
            let path = disk.path.display();
            found.push(weak(
                format!("{path} has a volatile write cache and no FUA"),
                "each write is followed by a flush, whose time its profile may not include",
                format!(
                    "hdparm -W 0 {path}, at each start: ExecStartPre=+ in the unit of the service"
                ),
            ));
        }
    }
    found
}

/// Disks that have their cables to themselves, or are on a `[[link]]`.
pub(super) fn links(config: &Config) -> Found {
    let mut by_cable: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, disk) in config
        .disks
        .iter()
        .enumerate()
        .filter(|(_, disk)| is_block(disk))
    {
        if let Ok(Some(cable)) = device::cable(&disk.path) {
            by_cable.entry(cable).or_default().push(number);
        }
    }
    let is_named = |disks: &[usize]| {
        let mut links = config.links.iter();
        links.any(|link| disks.iter().all(|disk| link.disks.contains(disk)))
    };
    let shared = by_cable
        .into_iter()
        .filter(|(_, disks)| disks.len() > 1 && !is_named(disks));
    let found = shared.map(|(cable, disks)| {
        let path = |disk: &usize| config.disks[*disk].path.display().to_string();
        let paths: Vec<String> = disks.iter().map(path).collect();
        weak(
            format!("{} share {cable}, and no [[link]] names them", paths.join(", ")),
            "if together they are faster than it, requests take longer than predicted and deadlines are missed",
            format!(
                "a [[link]] with disks = {paths:?} and the rate that they reach together (docs/guide/real-disks.md measures it)"
            ),
        )
    });
    found.collect()
}
