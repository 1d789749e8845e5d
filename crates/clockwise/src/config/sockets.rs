//! The paths of the server's sockets: each is short enough for a socket, and no two are the same.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::canonical;
use crate::failure::{Failure, SourceFile};

/// The longest path of a socket, in bytes: the size of the kernel's `sun_path` less its terminating zero.
const PATH_BYTES_MAX: usize = 107;

/// The sockets of a configuration.
pub(super) struct Sockets {
    pub(super) api: PathBuf,
    pub(super) data: PathBuf,
    pub(super) nbd: Option<PathBuf>,
}

/// The configured sockets, relative to `folder`. The socket for data is by default in the folder of the API's
/// socket.
///
/// # Errors
/// The first path that is too long, or is used twice.
pub(super) fn sockets(
    source: &SourceFile<'_>,
    folder: &Path,
    api: Spanned<PathBuf>,
    data: Option<Spanned<PathBuf>>,
    nbd: Option<Spanned<PathBuf>>,
) -> Result<Sockets, Failure> {
    let api_span = api.span();
    let api = folder.join(api.into_inner());
    let (data, data_span) = match data {
        Some(data) => (folder.join(data.get_ref()), data.span()),
        None => (api.with_file_name("data.sock"), api_span.clone()),
    };
    let nbd = nbd.map(|nbd| (folder.join(nbd.get_ref()), nbd.span()));
    let mut named = vec![
        ("control API", &api, api_span),
        ("streams' data", &data, data_span),
    ];
    if let Some((path, span)) = &nbd {
        named.push(("block export", path, span.clone()));
    }
    for (index, (what, path, span)) in named.iter().enumerate() {
        check_length(source, span.clone(), what, path)?;
        let same = named[..index]
            .iter()
            .find(|(_, other, _)| canonical(other) == canonical(path));
        if let Some((other, ..)) = same {
            return Err(source
                .bad_input(
                    span.clone(),
                    format!(
                        "{} is the socket of both the {other} and the {what}",
                        path.display()
                    ),
                )
                .help("set another path for one of them"));
        }
    }
    Ok(Sockets {
        nbd: nbd.map(|(path, _)| path),
        api,
        data,
    })
}

/// Checks that a path is short enough for a socket.
fn check_length(
    source: &SourceFile<'_>,
    span: Range<usize>,
    what: &str,
    path: &Path,
) -> Result<(), Failure> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes <= PATH_BYTES_MAX {
        return Ok(());
    }
    Err(source
        .bad_input(
            span,
            format!(
                "{} is too long for the socket of the {what}: it has {bytes} bytes, and the maximum is {PATH_BYTES_MAX}",
                path.display()
            ),
        )
        .help("set a shorter path, such as one under /run"))
}
