//! Where volumes may be mounted, and unmounting.
//!
//! A mount point that hangs or is dead is found in the kernel's table of mounts, which asks no file
//! system. The server never asks its own mount while it takes requests.

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

/// The name of a mount in the kernel's table: its source, and the end of its type `fuse.clockwise`.
pub(super) const SOURCE: &str = "clockwise";

/// How long a mount that is there may take to say that it lives.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The most mounts of dead servers, one over the other, that are taken away.
const DEAD_MAX: usize = 16;

/// A line of the kernel's table of mounts.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mounted {
    /// The minor number of its device.
    device: u32,
    at: PathBuf,
    kind: String,
    source: String,
}

impl Mounted {
    fn is_ours(&self) -> bool {
        self.kind.starts_with("fuse") && self.source == SOURCE
    }
}

/// Takes away what a server that was killed has left at `path`, and looks whether volumes can be mounted
/// there. Where it really is.
///
/// # Errors
/// The obstacle.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, Failure> {
    let at = real(path).map_err(|error| {
        io_failure("mount at", path, &error)
            .help("name a folder under [fuse] as `mount`, or make it")
    })?;
    for _ in 0..DEAD_MAX {
        let Some(mounted) = mounted_at(&at)? else {
            return is_empty_folder(&at).map(|()| at);
        };
        let shown = at.display();
        if !mounted.is_ours() {
            return Err(Failure::failed(format!(
                "{} ({}) is mounted at {shown} already",
                mounted.source, mounted.kind
            ))
            .help("unmount it, or name another folder under [fuse] as `mount`"));
        }
        match state_of(&at) {
            State::Dead => {}
            State::Lives => {
                return Err(Failure::failed(format!(
                    "another server has its volumes mounted at {shown}"
                ))
                .help("end that one, or name another folder under [fuse] as `mount`"));
            }
            State::Silent => {
                return Err(Failure::failed(format!(
                    "what is mounted at {shown} does not answer within {ANSWERS_WITHIN:?}"
                ))
                .help(format!("end its server, then: umount --lazy {shown}")));
            }
        }
        detach(&at).map_err(|error| {
            io_failure("unmount what a server that was killed left at", &at, &error)
                .help(format!("as root: umount --lazy {shown}"))
        })?;
        tracing::info!(mount = %shown, "unmounted what a server that was killed had left");
    }
    let shown = at.display();
    Err(Failure::failed(format!(
        "there are more dead mounts at {shown} than {DEAD_MAX}"
    ))
    .help(format!(
        "as root, until it says that nothing is mounted: umount --lazy {shown}"
    )))
}

/// Where a path leads, without asking what may be mounted there.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => {
            let at = folder.canonicalize()?.join(name);
            // A link leads elsewhere; what is mounted is none.
            match std::fs::read_link(&at) {
                Ok(_) => at.canonicalize(),
                Err(_) => Ok(at),
            }
        }
        _ => path.canonicalize(),
    }
}

fn is_empty_folder(at: &Path) -> Result<(), Failure> {
    let shown = at.display();
    let unusable = |what: String, help: String| Failure::failed(what).help(help);
    let entries = std::fs::read_dir(at).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unusable(
            format!("there is no mount point {shown}"),
            format!("make it: mkdir {shown}"),
        ),
        io::ErrorKind::NotADirectory => unusable(
            format!("the mount point {shown} is no folder"),
            "name an empty folder under [fuse] as `mount`".to_owned(),
        ),
        _ => io_failure("look into the mount point", at, &error),
    })?;
    if entries.count() > 0 {
        return Err(unusable(
            format!("the mount point {shown} is not empty, and what is in it would be hidden"),
            "name an empty folder under [fuse] as `mount`".to_owned(),
        ));
    }
    Ok(())
}

/// The mount at a place, the last of several.
fn mounted_at(at: &Path) -> Result<Option<Mounted>, Failure> {
    let table = std::path::Path::new("/proc/self/mountinfo");
    let bytes = std::fs::read(table).map_err(|error| io_failure("read", table, &error))?;
    let mut mounts = bytes.split(|byte| *byte == b'\n').filter_map(parsed);
    Ok(mounts.rfind(|mounted| mounted.at == at))
}

/// The number of the device that is mounted at a place.
pub(super) fn device(at: &Path) -> Option<u32> {
    mounted_at(at).ok().flatten().map(|mounted| mounted.device)
}

/// A line of `/proc/self/mountinfo` (proc(5)): number, parent, device, root, place, options, others up to a
/// hyphen, type, source.
fn parsed(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let at = PathBuf::from(unescaped(fields.nth(1)?));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let mut text = || Some(unescaped(rest.next()?).to_string_lossy().into_owned());
    Some(Mounted {
        device: device.split_once(':')?.1.parse().ok()?,
        at,
        kind: text()?,
        source: text()?,
    })
}

/// Blanks, tabs, line ends and backslashes are three octal digits after a backslash there.
fn unescaped(field: &[u8]) -> OsString {
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

/// The fate of the users of a mount.
enum State {
    /// There is nobody to answer.
    Dead,
    Lives,
    /// Nobody has answered.
    Silent,
}

/// Asks a mount of another server; on a thread of its own, which hangs for as long as that one does.
fn state_of(at: &Path) -> State {
    let (answer, answered) = mpsc::channel();
    let at = at.to_owned();
    std::thread::spawn(move || {
        // Nobody listens any more when it comes too late.
        let _ = answer.send(rustix::fs::statfs(&at));
    });
    match answered.recv_timeout(ANSWERS_WITHIN) {
        Ok(Err(rustix::io::Errno::NOTCONN)) => State::Dead,
        Ok(_) => State::Lives,
        Err(_) => State::Silent,
    }
}

/// Whether the mount of that device is what is found there: not another that was mounted since, in its place or
/// over it.
fn is_at(at: &Path, device: u32) -> bool {
    self::device(at) == Some(device)
}

/// Unmounts the server's own mount, of that `device`, if nobody uses it.
///
/// # Errors
/// When somebody does, or it is not found there.
pub(super) fn unmount(at: &Path, device: u32) -> io::Result<()> {
    if !is_at(at, device) {
        let text = "somebody has taken it away from its place, or mounted something over it";
        return Err(io::Error::other(text));
    }
    match umount2(at, MntFlags::UMOUNT_NOFOLLOW) {
        Err(Errno::EPERM) => fusermount(at, &["-u", "-q"]),
        result => result.map_err(io::Error::from),
    }
}

/// Takes a mount away from its place, whoever still uses it.
fn detach(at: &Path) -> io::Result<()> {
    let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH;
    match umount2(at, flags) {
        Err(Errno::EPERM) => fusermount(at, &["-u", "-q", "-z"]),
        result => result.map_err(io::Error::from),
    }
}

/// The same of the server's own mount, of that `device`. Whatever still uses it is refused from here on, so
/// that nobody waits for an answer.
pub(super) fn give_up(at: &Path, device: u32) {
    let is_there = is_at(at, device);
    let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_FORCE | MntFlags::MNT_DETACH;
    if is_there && umount2(at, flags).is_ok() {
        return;
    }
    // Where this is not mounted or not permitted, the connection ends with the process.
    let _ = std::fs::write(format!("/sys/fs/fuse/connections/{device}/abort"), "1");
    if is_there {
        detach_own(at);
    }
}

/// The same of one of that `device` whose session has ended. Its number may be another's by now, which lives.
pub(super) fn clear(at: &Path, device: u32) {
    if is_at(at, device) && matches!(state_of(at), State::Dead) {
        detach_own(at);
    }
}

fn detach_own(at: &Path) {
    if let Err(error) = detach(at) {
        tracing::warn!(mount = %at.display(), %error, "the mount cannot be unmounted; the next start does so");
    }
}

/// Unmounts through the helper that may do what this user may not.
fn fusermount(at: &Path, options: &[&str]) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.args(options).arg("--").arg(at).stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "fusermount3 failed: {}",
        said.trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_and_a_blank_in_a_path() {
        let line = b"36 35 0:48 / /mnt/my\\040volumes rw,noatime shared:1 master:2 - fuse.clockwise clockwise rw,user_id=0";
        let mounted = parsed(line).expect("a mount");
        assert_eq!(mounted.device, 48);
        assert_eq!(mounted.at, Path::new("/mnt/my volumes"));
        assert!(mounted.is_ours());
        let other = b"22 1 8:1 / /a\\134b rw - ext4 /dev/root rw";
        let other = parsed(other).expect("a mount");
        assert_eq!(
            (other.at.as_path(), other.is_ours()),
            (Path::new("/a\\b"), false)
        );
        assert_eq!(parsed(b""), None);
        assert_eq!(parsed(b"36 35 0:48 / /mnt rw"), None);
    }

    #[test]
    fn what_is_no_mount_point_is_said_with_its_name() {
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
        failed("no folder");
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
