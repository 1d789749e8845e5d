//! Listening Unix sockets: for the control API, for the data of streams, and for the block export.

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

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The maximum time for another server to accept a connection that tests if it is alive.
const ACCEPTS_WITHIN: Duration = Duration::from_secs(1);

/// The path of a socket, whose file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed by someone else.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Connects to a socket. Waits at most `within` while the server's queue of connections is full.
pub(crate) fn connect(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket: OwnedFd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(within))?;
    let connected = rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address));
    connected.map_err(|error| match error {
        Errno::AGAIN => io::Error::from(ErrorKind::TimedOut),
        other => other.into(),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Listens at `path` with a non-blocking socket, and creates its folder if needed. The file never has more
/// permissions than `mode`. The socket file of a server that has ended is replaced.
pub(crate) fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), Failure> {
    let address = SocketAddrUnix::new(path).map_err(|_| {
        Failure::bad_input(format!("{} is too long for a socket path", path.display())).help(
            "a socket path has at most 107 bytes: set a shorter one in the configuration, such as one under /run",
        )
    })?;
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder).map_err(|error| {
            io_failure("create the folder", folder, &error)
                .help("create it, or set another path for the socket in the configuration")
        })?;
    }
    remove_stale(path)?;
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
    // The kernel creates the file with the permissions of the socket, less the umask of the process.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, address)?;
    let file = SocketFile(path.to_owned());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
}

/// Removes the socket file of a server that has ended. A server that still listens there is an error.
fn remove_stale(path: &Path) -> Result<(), Failure> {
    let kind = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_failure("use", path, &error)),
        Ok(metadata) => metadata.file_type(),
    };
    if !kind.is_socket() {
        return Err(
            Failure::bad_input(format!("{} exists and is not a socket", path.display()))
                .help("set another path for the socket in the configuration"),
        );
    }
    match connect(path, ACCEPTS_WITHIN) {
        // A stopped server does not accept connections, but still owns its socket.
        Err(error) if error.kind() != ErrorKind::TimedOut => {
            std::fs::remove_file(path).map_err(|error| io_failure("replace", path, &error))
        }
        _ => Err(
            Failure::failed(format!("another server is listening at {}", path.display()))
                .help("stop that server first, or set other socket paths in the configuration"),
        ),
    }
}
