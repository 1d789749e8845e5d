//! Unix sockets that are listened on: of the control API, of streams' data, and of the block export.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::failure::{Failure, io_failure};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// How long a server that listens may take to accept another one, which only looks whether it is there.
const ACCEPTS_WITHIN: Duration = Duration::from_secs(1);

/// A socket file that goes away with its owner.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If somebody else took it away there is nothing left to do.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Connects to a socket, waiting so long for a server that has others to accept first, or accepts nobody.
pub(crate) fn connect(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket: OwnedFd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(within))?;
    rustix::net::connect(&socket, &address).map_err(|error| match error {
        Errno::AGAIN => io::Error::from(ErrorKind::TimedOut),
        other => other.into(),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Listens at `path`, without ever waiting, making its folder if there is none. Its file never has more
/// permissions than `mode`. The socket of a server that is gone is replaced.
pub(crate) fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), Failure> {
    let address = SocketAddrUnix::new(path).map_err(|_| {
        Failure::bad_input(format!("{} is too long for a socket", path.display())).help(
            "a socket's path has at most 107 bytes: name another in the configuration, under /run for one",
        )
    })?;
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder).map_err(|error| {
            io_failure("make the folder", folder, &error)
                .help("make it, or name another place for the socket in the configuration")
        })?;
    }
    clear(path)?;
    listen_at(&address, path, mode).map_err(|error| io_failure("listen at", path, &error))
}

fn listen_at(
    address: &SocketAddrUnix,
    path: &Path,
    mode: u32,
) -> io::Result<(UnixListener, SocketFile)> {
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // The kernel makes the file with the permissions of the socket, less the process's mask.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, address)?;
    let file = SocketFile(path.to_owned());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
}

/// Takes away the socket of a server that is gone; one that answers is an error.
fn clear(path: &Path) -> Result<(), Failure> {
    let kind = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_failure("use", path, &error)),
        Ok(metadata) => metadata.file_type(),
    };
    if !kind.is_socket() {
        return Err(
            Failure::bad_input(format!("{} is there and is not a socket", path.display()))
                .help("name another path for the socket in the configuration"),
        );
    }
    match connect(path, ACCEPTS_WITHIN) {
        // One that accepts nobody, as it was stopped, is there as well.
        Err(error) if error.kind() != ErrorKind::TimedOut => {
            std::fs::remove_file(path).map_err(|error| io_failure("replace", path, &error))
        }
        _ => Err(
            Failure::failed(format!("another server listens at {}", path.display()))
                .help("end it first, or name other sockets in the configuration"),
        ),
    }
}
