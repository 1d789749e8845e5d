//! The parts of a target that a measurement would destroy or miss: content with a known signature, and parts of a file
//! that were never written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use engine::pool::{MARKED_BYTES, mark_of};
use rustix::fs::SeekFrom as Extent;
use sched::units::{SECTOR_BYTES, SectorCount};
use volume::limits::BLOCK_BYTES;
use volume::ondisk::superblock::{Superblock, SuperblockError, second_copy_at};

/// A file in more parts is not looked at further.
const PARTS_MAX: u32 = 1 << 16;

/// The content of a device or file, in words. `None` if it is unknown, or cannot be read.
#[must_use]
pub fn known(path: &Path) -> Option<&'static str> {
    let mut file = opened(path)?;
    let bytes = file.seek(SeekFrom::End(0)).ok()?;
    let second = second_copy_at(SectorCount(bytes / SECTOR_BYTES));
    let beginning = part(&mut file, 0, MARKED_BYTES as u64).ok()?;
    let copy = part(&mut file, second.get() * SECTOR_BYTES, BLOCK_BYTES).ok()?;
    let is_of_pool = |block: &[u8]| Superblock::parse(block) != Err(SuperblockError::NotOne);
    if is_of_pool(&beginning) || is_of_pool(&copy) {
        return Some("a disk of a pool");
    }
    mark_of(&beginning)
}

/// A file or a block device. Opening a pipe would wait for its other end.
fn opened(path: &Path) -> Option<File> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    File::open(path).ok()
}

fn part(file: &mut File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.take(bytes).read_to_end(&mut found)?;
    Ok(found)
}

/// The part of a file that was never written, in percent; 0 where its file system does not say.
pub(super) fn holes_percent(path: &Path) -> u64 {
    let Some(file) = opened(path) else {
        return 0;
    };
    let Ok(bytes) = file.metadata().map(|metadata| metadata.len()) else {
        return 0;
    };
    let (mut at, mut holes) = (0, 0);
    for _ in 0..PARTS_MAX {
        let data = match rustix::fs::seek(&file, Extent::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole is left.
            Err(rustix::io::Errno::NXIO) => bytes,
            Err(_) => return 0,
        };
        holes += data.min(bytes).saturating_sub(at);
        if data >= bytes {
            break;
        }
        match rustix::fs::seek(&file, Extent::Hole(data)) {
            Ok(end) => at = end,
            Err(_) => return 0,
        }
    }
    (u128::from(holes) * 100)
        .div_ceil(u128::from(bytes.max(1)))
        .try_into()
        .unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn known_content_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        assert_eq!(known(file.path()), None);
        file.as_file().write_all_at(b"XFSB", 0).unwrap();
        assert_eq!(known(file.path()), Some("a file system (XFS)"));
    }

    #[test]
    fn holes_of_a_file_are_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holes_percent(file.path()), 0);
        file.as_file().write_all_at(&[1; 1 << 20], 0).unwrap();
        assert_eq!(holes_percent(file.path()), 0);
        file.as_file().set_len(4 << 20).unwrap();
        assert_eq!(holes_percent(file.path()), 75);
        let folder = file.path().parent().unwrap();
        assert_eq!((holes_percent(folder), known(folder)), (0, None));
    }
}
