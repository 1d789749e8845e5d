//! The users of a device: mount points, swap, and devices made of it. The users of a file: loop devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{file_name, partitions, read_text};

/// The users of a device and of its partitions, as texts for people.
pub(super) fn users(root: &Path, node: &Path) -> Vec<String> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let swaps = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let mut found = Vec::new();
    for node in std::iter::once(node.to_owned()).chain(partitions(node)) {
        let name = file_name(&node);
        let number = read_text(&node.join("dev")).unwrap_or_default();
        for point in mount_points(&mounts, &number, &name) {
            found.push(format!("{name} is mounted at {point}"));
        }
        if is_swap(&swaps, &name) {
            found.push(format!("{name} is swap space"));
        }
        let holders = fs::read_dir(node.join("holders"));
        let mut holders: Vec<String> = holders
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| file_name(&entry.path()))
            .collect();
        holders.sort();
        for holder in holders {
            found.push(format!("{name} is part of {holder}"));
        }
    }
    found
}

/// The loop devices over a file, as texts for people. The kernel names the file as it was when the device was made, so
/// another name of the same file counts as well.
pub(super) fn loops(root: &Path, path: &Path, metadata: &fs::Metadata) -> Vec<String> {
    let devices = fs::read_dir(root.join("sys/block"));
    let devices = devices.into_iter().flatten().flatten();
    let is_over_it = |device: &Path| {
        let Some(backing) = read_text(&device.join("loop/backing_file")) else {
            return false;
        };
        let same =
            |other: fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
        Path::new(&backing) == path || fs::metadata(&backing).is_ok_and(same)
    };
    let mut found: Vec<String> = devices
        .map(|entry| entry.path())
        .filter(|device| is_over_it(device))
        .map(|device| format!("/dev/{} is a loop device over it", file_name(&device)))
        .collect();
    found.sort();
    found
}

/// The mount points in `/proc/self/mountinfo` of a device with this number and name. A file system with a number
/// of its own, such as btrfs, names its device as the source.
fn mount_points<'a>(
    mounts: &'a str,
    number: &'a str,
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    mounts.lines().filter_map(move |line| {
        let mut fields = line.split(' ');
        let of = fields.nth(2)?;
        let point = fields.nth(1)?;
        let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
        let is_of_device = of == number || source.strip_prefix("/dev/") == Some(name);
        is_of_device.then_some(point)
    })
}

fn is_swap(swaps: &str, name: &str) -> bool {
    let paths = swaps.lines().skip(1);
    paths
        .filter_map(|line| line.split_whitespace().next())
        .any(|path| path.strip_prefix("/dev/") == Some(name))
}
