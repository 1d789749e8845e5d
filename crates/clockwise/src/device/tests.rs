use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A folder with the parts of `/sys`, `/proc` and `/run` that are read.
pub(super) struct Host(TempDir);

impl Host {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Adds a device in the folder `sys/devices/PLACE`.
    pub(super) fn device(&self, place: &str, number: &str, files: &[(&str, &str)]) {
        let folder = format!("sys/devices/{place}");
        self.write(&format!("{folder}/dev"), format!("{number}\n"));
        for (name, text) in files {
            self.write(&format!("{folder}/{name}"), format!("{text}\n"));
        }
        let listed = self.0.path().join("sys/dev/block");
        fs::create_dir_all(&listed).unwrap();
        symlink(self.0.path().join(folder), listed.join(number)).unwrap();
    }

    fn identity(&self, major: u32, minor: u32) -> Identity {
        Identity::of_device(self.0.path(), (major, minor)).unwrap()
    }
}

#[test]
fn scsi_disk_has_its_serial_in_page_80() {
    let host = Host::new();
    let files = [
        ("size", "15628053168"),
        ("device/model", "ST8000NM0055-1RM"),
        ("device/rev", "SN04"),
        ("device/queue_depth", "32"),
        ("queue/rotational", "1"),
        ("queue/zoned", "none"),
        ("queue/write_cache", "write back"),
        ("queue/fua", "0"),
        ("queue/logical_block_size", "512"),
        ("queue/physical_block_size", "4096"),
    ];
    host.device("host0/block/sda", "8:0", &files);
    let page = b"\x00\x80\x00\x0c    ZA1234XYrest";
    host.write("sys/devices/host0/block/sda/device/vpd_pg80", page);
    assert_eq!(
        host.identity(8, 0),
        Identity {
            kind: NodeKind::Whole,
            name: "sda".to_owned(),
            model: "ST8000NM0055-1RM".to_owned(),
            serial: Some("ZA1234XY".to_owned()),
            firmware: "SN04".to_owned(),
            rotational: Some(true),
            zoned: Some(Zoned::No),
            write_cache: Some(WriteCache::WriteBack),
            fua: Some(false),
            queue_depth: Some(32),
            logical_block_bytes: Some(512),
            physical_block_bytes: Some(4_096),
            sectors: Some(15_628_053_168),
            users: Vec::new(),
        }
    );
}

#[test]
fn partition_has_the_serial_of_its_disk() {
    let host = Host::new();
    let whole = [("device/serial", "S4EWNX0"), ("size", "1000")];
    host.device("nvme0/nvme0n1", "259:0", &whole);
    let files = [("partition", "1"), ("start", "2048"), ("size", "500")];
    host.device("nvme0/nvme0n1/nvme0n1p1", "259:1", &files);
    let partition = host.identity(259, 1);
    let start_sector = 2_048;
    assert_eq!(partition.kind, NodeKind::Partition { start_sector });
    assert_eq!(partition.serial.as_deref(), Some("S4EWNX0"));
    assert_eq!(partition.sectors, Some(500));
    assert_eq!(partition.name, "nvme0n1");
    assert_eq!(host.identity(259, 0).kind, NodeKind::Whole);
}

#[test]
fn serial_comes_from_other_places_too() {
    let host = Host::new();
    host.device("virtio1/vda", "254:0", &[("serial", "overlay1")]);
    host.device("host1/sdb", "8:16", &[]);
    let udev = "S:disk/by-id/x\nE:ID_SERIAL=WDC_WD40-1\nE:ID_SERIAL_SHORT=WD-1\n";
    host.write("run/udev/data/b8:16", udev);
    host.device("virtual/dm-0", "253:0", &[("dm/uuid", "LVM-abc")]);
    host.device("virtual/loop0", "7:0", &[("loop/backing_file", "/d/disk")]);
    host.device("virtual/block/ram0", "1:0", &[]);
    host.device("host2/sdc", "8:32", &[]);
    let serial = |major, minor| host.identity(major, minor).serial;
    assert_eq!(serial(254, 0).as_deref(), Some("overlay1"));
    assert_eq!(serial(8, 16).as_deref(), Some("WD-1"));
    assert_eq!(serial(253, 0).as_deref(), Some("dm:LVM-abc"));
    assert_eq!(serial(7, 0).as_deref(), Some("file:/d/disk"));
    assert_eq!(serial(1, 0).as_deref(), Some("kernel:ram0"));
    assert_eq!(serial(8, 32), None);
    assert!(Identity::of_device(host.0.path(), (1, 1)).is_err());
}

#[test]
fn damaged_serial_page_is_no_serial() {
    assert_eq!(unit_serial(b"\x00\x80\x00\x04AB"), Some("AB".to_owned()));
    for page in [
        &b""[..],
        b"\x00\x80\x00",
        b"\x00\x83\x00\x02AB",
        b"\x00\x80\x00\x02  ",
    ] {
        assert_eq!(unit_serial(page), None, "{page:?}");
    }
}

#[test]
fn users_of_a_device_and_its_partitions_are_found() {
    let host = Host::new();
    host.device("host0/sda", "8:0", &[]);
    host.device("host0/sda/sda1", "8:1", &[("partition", "1")]);
    host.device("host0/sda/sda2", "8:2", &[("partition", "2")]);
    host.device("host0/sda/sda3", "8:3", &[("partition", "3")]);
    host.write("sys/devices/host0/sda/sda2/holders/dm-0", "");
    host.write(
        "proc/self/mountinfo",
        "36 35 8:1 / /home rw - ext4 /dev/sda1 rw\n37 35 0:40 / /media rw - btrfs /dev/sda rw\n",
    );
    host.write("proc/swaps", "Filename Type\n/dev/sda3 partition 1 0 -2\n");
    assert_eq!(
        host.identity(8, 0).users,
        [
            "sda is mounted at /media",
            "sda1 is mounted at /home",
            "sda2 is part of dm-0",
            "sda3 is swap space",
        ]
    );
    assert_eq!(host.identity(8, 1).users, ["sda1 is mounted at /home"]);
}

#[test]
fn users_of_a_file_are_the_loop_devices_over_it() {
    let host = Host::new();
    for name in ["disk", "link", "other"] {
        host.write(&format!("d/{name}"), "");
    }
    let path = |name: &str| fs::canonicalize(host.0.path().join("d").join(name)).unwrap();
    let (disk, link) = (path("disk"), path("link"));
    fs::remove_file(&link).unwrap();
    fs::hard_link(&disk, &link).unwrap();
    for (device, file) in [
        ("loop1", &disk),
        ("loop2", &path("other")),
        ("loop3", &link),
    ] {
        let backing = format!("{}\n", file.display());
        host.write(&format!("sys/block/{device}/loop/backing_file"), backing);
    }
    host.write("sys/block/sda/size", "8\n");
    assert_eq!(
        Identity::below(host.0.path(), &disk).unwrap().users,
        [
            "/dev/loop1 is a loop device over it",
            "/dev/loop3 is a loop device over it",
        ]
    );
}

#[test]
fn file_is_identified_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    fs::write(&path, [0; 2_048]).unwrap();
    let identity = Identity::of(&path).unwrap();
    let real = fs::canonicalize(&path).unwrap();
    assert_eq!(identity.kind, NodeKind::File);
    assert_eq!(identity.serial, Some(format!("file:{}", real.display())));
    assert_eq!(identity.sectors, Some(4));
    assert!(Identity::of(&folder.path().join("none")).is_err());
    let long = "/\u{e9}".repeat(100);
    let long = identity_of_file(&long);
    assert!(
        long.len() <= PATH_BYTES_MAX + 5 && long.ends_with("/\u{e9}"),
        "{long}"
    );
}
