//! The cable that a drive may share with others, by its place among the kernel's devices.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The cable, port multiplier or expander by which the drive of the block device at `path` is connected, if drives can
/// share it: in the kernel's names, for people.
///
/// # Errors
/// If nothing is there, or the kernel does not list the device.
pub fn cable(path: &Path) -> io::Result<Option<String>> {
    let metadata = fs::metadata(path)?;
    if !metadata.file_type().is_block_device() {
        return Ok(None);
    }
    let number = metadata.rdev();
    let listed = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    );
    Ok(in_place(&fs::canonicalize(listed)?))
}

/// As [`cable`], of a device in this folder of `/sys/devices`.
fn in_place(folder: &Path) -> Option<String> {
    let parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    let numbered = |part: &str, prefix: &str| {
        let number = part.strip_prefix(prefix);
        number.is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    for (index, part) in parts.iter().enumerate() {
        // `usb2/2-1/2-1.4`: a port of the host, and below it those of a hub.
        if numbered(part, "usb") {
            let port = parts.get(index + 1)?;
            return Some(format!("USB port {port}"));
        }
        if numbered(part, "expander-") {
            return Some(format!("SAS {part}"));
        }
        // `ata3/link3.1`: a port multiplier has several links, a drive without one has `link3`.
        if numbered(part, "link") && part.contains('.') {
            let port = parts[..index].iter().rfind(|part| numbered(part, "ata"))?;
            return Some(format!("the port multiplier at {port}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_of_one_enclosure_have_one_cable() {
        let place = |path: &str| in_place(Path::new(path));
        let pci = "/sys/devices/pci0000:00/0000:00:14.0";
        let usb = |rest: &str| place(&format!("{pci}/{rest}/host6/target6:0:0/6:0:0:0/block/sdb"));
        let enclosure = usb("usb2/2-1/2-1.1/2-1.1:1.0");
        assert_eq!(enclosure.as_deref(), Some("USB port 2-1"));
        assert_eq!(usb("usb2/2-1/2-1.4/2-1.4:1.0"), enclosure);
        assert_ne!(usb("usb2/2-3/2-3:1.0"), enclosure);
        assert_eq!(
            usb("host0/port-0:0/expander-0:0/port-0:0:3/end_device-0:0:3").as_deref(),
            Some("SAS expander-0:0")
        );
        assert_eq!(
            usb("ata3/link3.1/dev3.1.0").as_deref(),
            Some("the port multiplier at ata3")
        );
        assert_eq!(usb("ata3"), None);
        assert_eq!(place("/sys/devices/virtual/block/loop0"), None);
    }
}
