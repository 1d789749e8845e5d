//! Checks of the mount point, and unmounting.
//!
//! A dead or hanging mount is found in the kernel's table of mounts, for which no file system has to answer. The server
//! never accesses its own mount while it takes requests.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::failure::{Failure, io_failure};

/// Source of the mount in the kernel's table, and the suffix of its type `fuse.clockwise`.
pub(super) const SOURCE: &str = "clockwise";

/// Time for an existing mount to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The most mounts of dead servers, one over the other, that are unmounted.
const DEAD_MAX: usize = 16;

/// An entry of the kernel's table of mounts.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MountEntry {
    /// Minor number of its device.
    device: u32,
    at: PathBuf,
    kind: String,
    source: String,
}

impl MountEntry {
    fn is_ours(&self) -> bool {
        self.kind.starts_with("fuse") && self.source == SOURCE
    }
}

/// Prepares a mount point: unmounts the mounts of killed servers at `path`, and checks that it is an empty directory.
/// Returns its real path.
///
/// # Errors
/// If volumes cannot be mounted there.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, Failure> {
    let at = real_path(path).map_err(|error| {
        io_failure("mount at", path, &error)
            .help("make the folder, or name another as `mount` in [fuse]")
    })?;
    for _ in 0..DEAD_MAX {
        let Some(mounted) = mounted_at(&at)? else {
            return check_empty(&at).map(|()| at);
        };
        let shown = at.display();
        if !mounted.is_ours() {
            return Err(Failure::failed(format!(
                "{} ({}) is mounted at {shown} already",
                mounted.source, mounted.kind
            ))
            .help("unmount it, or name another folder as `mount` in [fuse]"));
        }
        match state_of(&at) {
            MountState::Dead => {}
            MountState::Alive => {
                return Err(Failure::failed(format!(
                    "another server has its volumes mounted at {shown}"
                ))
                .help("end that server, or name another folder as `mount` in [fuse]"));
            }
            MountState::Hanging => {
                return Err(Failure::failed(format!(
                    "the file system mounted at {shown} does not answer within {ANSWERS_WITHIN:?}"
                ))
                .help(format!("end its server, then: umount --lazy {shown}")));
            }
        }
        detach(&at).map_err(|error| {
            io_failure("unmount the mount of a killed server at", &at, &error)
                .help(format!("as root: umount --lazy {shown}"))
        })?;
        tracing::info!(mount = %shown, "unmounted the mount of a killed server");
    }
    let shown = at.display();
    Err(Failure::failed(format!(
        "there are more dead mounts at {shown} than {DEAD_MAX}"
    ))
    .help(format!(
        "as root, repeat until it reports that nothing is mounted: umount --lazy {shown}"
    )))
}

/// Resolves a path without accessing a file system that is mounted there.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => {
            let at = folder.canonicalize()?.join(name);
            // Only a symbolic link needs resolving. A mount point is none.
            match std::fs::read_link(&at) {
                Ok(_) => at.canonicalize(),
                Err(_) => Ok(at),
            }
        }
        _ => path.canonicalize(),
    }
}

fn check_empty(at: &Path) -> Result<(), Failure> {
    let shown = at.display();
    let unusable = |what: String, help: String| Failure::failed(what).help(help);
    let entries = std::fs::read_dir(at).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unusable(
            format!("there is no mount point {shown}"),
            format!("make it: mkdir {shown}"),
        ),
        io::ErrorKind::NotADirectory => unusable(
            format!("the mount point {shown} is not a folder"),
            "name an empty folder as `mount` in [fuse]".to_owned(),
        ),
        _ => io_failure("read the mount point", at, &error),
    })?;
    if entries.count() > 0 {
        return Err(unusable(
            format!("the mount point {shown} is not empty, and the mount would hide its files"),
            "name an empty folder as `mount` in [fuse]".to_owned(),
        ));
    }
    Ok(())
}

/// The mount at a path; the last of several.
fn mounted_at(at: &Path) -> Result<Option<MountEntry>, Failure> {
    let table = std::path::Path::new("/proc/self/mountinfo");
    let bytes = std::fs::read(table).map_err(|error| io_failure("read", table, &error))?;
    let mut mounts = bytes.split(|byte| *byte == b'\n').filter_map(parse);
    Ok(mounts.rfind(|mounted| mounted.at == at))
}

/// Minor number of the device that is mounted at a path.
pub(super) fn device(at: &Path) -> Option<u32> {
    mounted_at(at).ok().flatten().map(|mounted| mounted.device)
}

/// Parses a line of `/proc/self/mountinfo` (proc(5)): number, parent, device, root, mount point, options, optional
/// fields up to a hyphen, type, source.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let at = PathBuf::from(unescape(fields.nth(1)?));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let mut text = || Some(unescape(rest.next()?).to_string_lossy().into_owned());
    Some(MountEntry {
        device: device.split_once(':')?.1.parse().ok()?,
        at,
        kind: text()?,
        source: text()?,
    })
}

/// Decodes blanks, tabs, line ends and backslashes, which are three octal digits after a backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = if escaped.is_some() {
            &after[3..]
        } else {
            after
        };
        bytes.push(escaped.unwrap_or(*first));
    }
    OsString::from_vec(bytes)
}

/// The state of the server of a mount.
enum MountState {
    /// The server has ended.
    Dead,
    Alive,
    /// The server has not answered in time.
    Hanging,
}

/// Tests the mount of another server on a separate thread, which hangs for as long as that server does.
fn state_of(at: &Path) -> MountState {
    let (answer, answered) = mpsc::channel();
    let at = at.to_owned();
    std::thread::spawn(move || {
        // A late answer has no receiver.
        let _ = answer.send(rustix::fs::statfs(&at));
    });
    match answered.recv_timeout(ANSWERS_WITHIN) {
        Ok(Err(rustix::io::Errno::NOTCONN)) => MountState::Dead,
        Ok(_) => MountState::Alive,
        Err(_) => MountState::Hanging,
    }
}

/// Returns true if the device is the one mounted at the path, and not a later mount in its place or over it.
fn is_at(at: &Path, device: u32) -> bool {
    self::device(at) == Some(device)
}

/// Unmounts the server's own mount of `device`.
///
/// # Errors
/// If the mount is in use, or is not the one at the path.
pub(super) fn unmount(at: &Path, device: u32) -> io::Result<()> {
    if !is_at(at, device) {
        let text = "another process has moved or unmounted it, or mounted something over it";
        return Err(io::Error::other(text));
    }
    match umount2(at, MntFlags::UMOUNT_NOFOLLOW) {
        Err(Errno::EPERM) => fusermount(at, &["-u", "-q"]),
        result => result.map_err(io::Error::from),
    }
}

/// Detaches a mount, also while it is in use.
fn detach(at: &Path) -> io::Result<()> {
    let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH;
    match umount2(at, flags) {
        Err(Errno::EPERM) => fusermount(at, &["-u", "-q", "-z"]),
        result => result.map_err(io::Error::from),
    }
}

/// Ends the server's own mount of `device`, also while it is in use. Further requests fail at once.
pub(super) fn force_unmount(at: &Path, device: u32) {
    let is_there = is_at(at, device);
    let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_FORCE | MntFlags::MNT_DETACH;
    if is_there && umount2(at, flags).is_ok() {
        return;
    }
    // If sysfs is not mounted or this is not permitted, the connection ends with the process.
    let _ = std::fs::write(format!("/sys/fs/fuse/connections/{device}/abort"), "1");
    if is_there {
        detach_own(at);
    }
}

/// Detaches the mount of `device` after the end of its session, unless another living mount has that number by now.
pub(super) fn detach_dead(at: &Path, device: u32) {
    if is_at(at, device) && matches!(state_of(at), MountState::Dead) {
        detach_own(at);
    }
}

fn detach_own(at: &Path) {
    if let Err(error) = detach(at) {
        tracing::warn!(mount = %at.display(), %error, "the mount cannot be unmounted; the next start of the server unmounts it");
    }
}

/// Unmounts with the helper program, which has the privilege that this user lacks.
fn fusermount(at: &Path, options: &[&str]) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.args(options).arg("--").arg(at).stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "fusermount3 failed: {}",
        message.trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_mount_table_is_parsed_with_a_blank_in_the_path() {
        let line = b"36 35 0:48 / /mnt/my\\040volumes rw,noatime shared:1 master:2 - fuse.clockwise clockwise rw,user_id=0";
        let mounted = parse(line).expect("a mount");
        assert_eq!(mounted.device, 48);
        assert_eq!(mounted.at, Path::new("/mnt/my volumes"));
        assert!(mounted.is_ours());
        let other = b"22 1 8:1 / /a\\134b rw - ext4 /dev/root rw";
        let other = parse(other).expect("a mount");
        assert_eq!(
            (other.at.as_path(), other.is_ours()),
            (Path::new("/a\\b"), false)
        );
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 0:48 / /mnt rw"), None);
    }

    #[test]
    fn unusable_mount_point_is_reported_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("volumes");
        let failed = |word: &str| {
            let failure = prepare(&path).expect_err("it cannot be used");
            let name = path.file_name().expect("a name").to_string_lossy();
            assert!(failure.what.contains(&*name), "{}", failure.what);
            assert!(failure.what.contains(word), "{}", failure.what);
        };
        failed("no mount point");
        std::fs::write(&path, "").expect("a file");
        failed("not a folder");
        std::fs::remove_file(&path).expect("it is there");
        std::fs::create_dir(&path).expect("a folder");
        assert_eq!(
            prepare(&path).expect("it is empty").file_name(),
            path.file_name()
        );
        std::fs::write(path.join("a"), "").expect("a file");
        failed("not empty");
    }
}
