//! Removal of other demos' folders, and conditions for a demo to begin.

use std::os::unix::fs::{chown, symlink};
use std::sync::mpsc;
use std::time::Duration;

use testkit::skip;

use super::*;

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// Longer than it takes on any machine to look through a folder.
const LONG: Duration = Duration::from_secs(60);

/// A folder as a demo of this name leaves it.
fn left_in(parent: &Path, name: &str) -> PathBuf {
    let left = parent.join(format!("{PREFIX}{name}"));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join(LOCK), b"").unwrap();
    left
}

#[test]
fn remains_are_removed_and_live_or_kept_folders_stay() {
    let parent = tempfile::tempdir().unwrap();
    let living = Scratch::new(Some(parent.path()), false, Bytes(1)).unwrap();
    let kept = Scratch::new(Some(parent.path()), true, Bytes(1)).unwrap();
    let kept_path = kept.path().to_owned();
    drop(kept);
    let left = left_in(parent.path(), "left");
    let strange = parent.path().join("something else");
    std::fs::create_dir(&strange).unwrap();
    clear_leftovers(parent.path());
    assert!(living.path().is_dir() && kept_path.is_dir() && strange.is_dir());
    assert!(!left.exists());
    let path = living.path().to_owned();
    drop(living);
    assert!(!path.exists());
}

#[test]
fn too_little_room_is_said_before_anything_is_made() {
    let parent = tempfile::tempdir().unwrap();
    let refused = Scratch::new(Some(parent.path()), false, Bytes(u64::MAX))
        .err()
        .unwrap();
    assert!(refused.what.contains("free"), "{}", refused.what);
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn false_lock_is_no_obstacle() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join(format!("{PREFIX}pipe"));
    std::fs::create_dir(&folder).unwrap();
    let pipe = folder.join(LOCK);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let (looked, looking) = mpsc::channel();
    let place = parent.path().to_owned();
    let thread = std::thread::spawn(move || {
        clear_leftovers(&place);
        looked.send(()).unwrap();
    });
    let in_time = looking.recv_timeout(LONG);
    // Somebody at the other end lets go whoever waits for that.
    let other_end = File::options().read(true).write(true).open(&pipe);
    thread.join().unwrap();
    drop(other_end);
    assert!(in_time.is_ok(), "it waits for somebody to write");
    assert!(pipe.exists(), "it was not left by a demo");
}

#[test]
fn folders_elsewhere_or_of_others_are_left_alone() {
    let (parent, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let strange = left_in(elsewhere.path(), "strange");
    let name = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
    symlink(&strange, name("folder")).unwrap();
    std::fs::create_dir(name("lock")).unwrap();
    symlink(strange.join(LOCK), name("lock").join(LOCK)).unwrap();
    let mut kept = vec![strange, name("folder"), name("lock")];
    if skip::is_root("giving a folder away") {
        // Whose the folder is, and whose the lock in it.
        let (theirs, mixed) = (
            left_in(parent.path(), "theirs"),
            left_in(parent.path(), "mixed"),
        );
        for path in [&theirs, &mixed.join(LOCK)] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        kept.extend([theirs, mixed]);
    }
    clear_leftovers(parent.path());
    for path in kept {
        assert!(
            path.symlink_metadata().is_ok(),
            "{} is gone",
            path.display()
        );
    }
}

#[test]
fn folders_that_were_made_for_it_go_with_it_and_others_stay() {
    let parent = tempfile::tempdir().unwrap();
    let outer = parent.path().join("outer");
    let inner = outer.join("inner");
    let scratch = Scratch::new(Some(&inner), false, Bytes(1)).unwrap();
    assert!(scratch.path().starts_with(&inner) && scratch.path().is_dir());
    drop(scratch);
    assert!(!outer.exists());
    assert!(Scratch::new(Some(&inner), false, Bytes(u64::MAX)).is_err());
    assert!(!outer.exists());
    // A kept folder, and one that was there before.
    let kept = Scratch::new(Some(&inner), true, Bytes(1)).unwrap();
    let path = kept.path().to_owned();
    drop(kept);
    assert!(path.is_dir());
    drop(Scratch::new(Some(&inner), false, Bytes(1)).unwrap());
    assert!(path.is_dir());
}
