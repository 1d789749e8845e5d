//! The kernel, the clock, open files, the folder of the server's state, and programs of hooks.

use std::fs;
use std::path::Path;

use rustix::fs::Access;
use sched::units::Bytes;

use super::{Found, weak, wrong};
use crate::hooks::{HookConfig, HookTarget};
use crate::quantity::Size;

/// The oldest kernel that the server is made for.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// With fewer open files the number of connections is small.
const FILES_MIN: u64 = 4_096;

/// Room for the statistics of service times, the sources and more.
const STATE_BYTES_MIN: u64 = 64 << 20;

/// A version as `uname -r` prints it.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn kernel() -> Found {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(found) if found < KERNEL_MIN => vec![wrong(
            format!("the kernel is {release}"),
            format!(
                "the server needs {}.{} or newer",
                KERNEL_MIN.0, KERNEL_MIN.1
            ),
            "install a newer kernel, such as that of Debian 12: apt-get install linux-image-amd64",
        )],
        _ => Vec::new(),
    }
}

pub(super) fn io_uring() -> Found {
    let Err(error) = engine::host::try_io_uring() else {
        return Vec::new();
    };
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let fix = match setting.trim() {
        "" | "0" => {
            "permit the system calls io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile of the container or service"
        }
        _ => "sysctl -w kernel.io_uring_disabled=0, and the same line in a file of /etc/sysctl.d",
    };
    let why = "the server reads and writes disks by io_uring and does not start without it";
    vec![wrong(
        format!("the host refuses io_uring: {error}"),
        why,
        fix,
    )]
}

pub(super) fn clock() -> Found {
    if engine::host::clock_is_synchronized().unwrap_or(true) {
        return Vec::new();
    }
    vec![weak(
        "the clock of the host is not synchronized",
        "recordings are found and exported by the time of the clock",
        "timedatectl set-ntp true; or: apt-get install chrony",
    )]
}

/// The hard limit of open files of a process; `None` if there is none or it cannot be read.
fn files_max(pid: Option<u32>) -> Option<u64> {
    let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

pub(super) fn descriptors(pid: Option<u32>) -> Found {
    match files_max(pid) {
        Some(limit) if limit < FILES_MIN => vec![weak(
            format!("the limit of open files is {limit}"),
            "each camera, player and browser needs some: the server refuses connections at a share of the limit",
            "LimitNOFILE=65536 in the unit of the service; for a shell of root: prlimit --nofile=65536 --pid $$",
        )],
        _ => Vec::new(),
    }
}

/// A folder, or the nearest one above it that exists.
fn existing(folder: &Path) -> &Path {
    let absolute = |path: &&Path| !path.as_os_str().is_empty() && path.exists();
    folder.ancestors().find(absolute).unwrap_or(Path::new("."))
}

pub(super) fn state(folder: &Path, is_running: bool) -> Found {
    let there = existing(folder);
    let named = there.display();
    let mut found = Vec::new();
    let why = "statistics of service times are lost when the server ends, and drift is not noticed";
    let may_write = rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK);
    // A server that runs may be another user's.
    if let Err(error) = may_write
        && !is_running
    {
        let fix = "run the server as the owner of that folder, or set `state` in [server] to a folder of its user";
        found.push(weak(
            format!("{named} cannot be written: {error}"),
            why,
            fix,
        ));
    }
    if let Ok(space) = rustix::fs::statvfs(there) {
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < STATE_BYTES_MIN {
            let what = format!("{named} has {} free", Size(Bytes(free)));
            let fix = format!("free some space: du -xh {named} | sort -h | tail");
            found.push(weak(what, why, fix));
        }
    }
    found
}

/// Programs of hooks that can be run. Those without a path are looked for when they run.
pub(super) fn hooks(hooks: &[HookConfig]) -> Found {
    let programs = hooks.iter().filter_map(|hook| match &hook.target {
        HookTarget::Run(words) => words.first().filter(|program| program.contains('/')),
        HookTarget::Post(_) => None,
    });
    let found = programs.filter_map(|program| {
        let error = rustix::fs::access(program.as_str(), Access::EXEC_OK).err()?;
        Some(wrong(
            format!("{program} cannot be run: {error}"),
            "a hook gets no events; they wait in its queue, and the oldest are dropped when it is full",
            format!("install it, chmod 755 {program}, or correct `run` in its [[hook]]"),
        ))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_their_numbers() {
        for (release, found) in [
            ("6.1.0-13-amd64", Some((6, 1))),
            ("5.10.0", Some((5, 10))),
            ("6.18.44-x", Some((6, 18))),
            ("unknown", None),
        ] {
            assert_eq!(version(release), found, "{release}");
        }
        assert!(version("5.10.0").unwrap() < KERNEL_MIN);
        assert!(version("6.18.44").unwrap() > KERNEL_MIN);
    }
}
