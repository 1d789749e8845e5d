//! The paths of the server's sockets: where each is, that it can be one, and that no two are the same.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::real;
use crate::failure::{Failure, SourceFile};

/// The longest path of a socket, in bytes: what the kernel's address has room for, and its end.
const PATH_BYTES_MAX: usize = 107;

/// The sockets of a configuration.
pub(super) struct Sockets {
    pub(super) api: PathBuf,
    pub(super) data: PathBuf,
    pub(super) nbd: Option<PathBuf>,
}

/// The sockets that are named, relative to `folder`; the one for data is beside that of the API unless it is
/// named.
///
/// # Errors
/// The first that cannot be, or is another one as well.
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
        fits(source, span.clone(), what, path)?;
        let same = named[..index]
            .iter()
            .find(|(_, other, _)| real(other) == real(path));
        if let Some((other, ..)) = same {
            return Err(source
                .wrong(
                    span.clone(),
                    format!(
                        "{} is the socket of the {other} and of the {what}",
                        path.display()
                    ),
                )
                .help("name another path: each has a socket of its own"));
        }
    }
    Ok(Sockets {
        nbd: nbd.map(|(path, _)| path),
        api,
        data,
    })
}

/// Checks that a path is not too long for a socket.
fn fits(
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
        .wrong(
            span,
            format!(
                "{} has {bytes} bytes, too many for the socket of the {what}: the most is {PATH_BYTES_MAX}",
                path.display()
            ),
        )
        .help("name a shorter path, such as one in /run"))
}
