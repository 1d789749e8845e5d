//! Both kinds of file that a disk may be: on a file system that does direct transfers, and in memory.

use super::skip::skipped;

/// A folder among what is built.
pub fn folder() -> tempfile::TempDir {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");
    std::fs::create_dir_all(built).unwrap();
    tempfile::tempdir_in(built).unwrap()
}

/// That folder, and one in memory. Where the host has none, that half of the test is skipped.
pub fn folders() -> Vec<tempfile::TempDir> {
    let mut folders = vec![folder()];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(in_memory) => folders.push(in_memory),
        Err(error) => skipped(&format!("no file in memory: /dev/shm: {error}")),
    }
    folders
}
