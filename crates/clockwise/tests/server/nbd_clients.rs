//! The NBD server with the clients that people use, unchanged, as Debian has them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::served::Rig;
use testkit::nbd::{Wire, cmd};
use testkit::pattern;
use testkit::process::{Process, WITHIN, output, run};
use testkit::skip::{have, is_root, skipped};

/// A file with a pattern, and some zeros in the middle.
fn image(folder: &Path, seed: u64, mib: usize) -> (String, Vec<u8>) {
    let mut data = pattern(seed, mib << 20);
    let third = data.len() / 3 / 4096 * 4096;
    data[third..2 * third].fill(0);
    let path = folder.join(format!("image-{seed}"));
    std::fs::write(&path, &data).unwrap();
    (path.display().to_string(), data)
}

fn contents(rig: &Rig, volume: &str, length: usize) -> Vec<u8> {
    let mut wire = Wire::structured(&rig.socket, volume);
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let count = (length - bytes.len()).min(16 << 20);
        bytes.extend(wire.read_range(bytes.len() as u64, count as u32));
    }
    bytes
}

#[test]
fn nbdinfo_lists_and_describes_the_volumes() {
    if !have("nbdinfo") {
        return;
    }
    let rig = Rig::new(&[("films", 64), ("scratch", 32)]);
    let list = run("nbdinfo", &["--list", &rig.uri("")]);
    assert!(list.contains("films") && list.contains("scratch"), "{list}");
    let info = run("nbdinfo", &["--json", &rig.tcp_uri("films")]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let export = &info["exports"][0];
    assert_eq!(info["protocol"], "newstyle-fixed");
    assert_eq!(info["structured"], true);
    assert_eq!(export["export-size"], 64 << 20);
    assert_eq!(export["block_size_minimum"], 512);
    for feature in [
        "can_flush",
        "can_fua",
        "can_trim",
        "can_zero",
        "can_multi_conn",
        "can_df",
    ] {
        assert_eq!(export[feature], true, "{feature}");
    }
    assert_eq!(export["is_read_only"], false);
    assert_eq!(export["contexts"][0], "base:allocation");
    assert_eq!(
        run("nbdinfo", &["--size", &rig.uri("scratch")]).trim(),
        (32 << 20).to_string()
    );

    Wire::structured(&rig.socket, "scratch").write(0, 1 << 20, &[1; 65536]);
    let map = run("nbdinfo", &["--map", "--json", &rig.uri("scratch")]);
    let map: Vec<serde_json::Value> = serde_json::from_str(&map).unwrap();
    let length: u64 = map.iter().map(|run| run["length"].as_u64().unwrap()).sum();
    assert_eq!(length, 32 << 20);
    assert!(map.iter().any(|run| run["type"] == 0) && map.iter().any(|run| run["type"] == 3));

    let refused = output("nbdinfo", &[&rig.uri("nothing")]);
    assert!(!refused.status.success());
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("nothing"), "{text}");
}

#[test]
fn nbdinfo_lists_as_many_volumes_as_there_are() {
    if !have("nbdinfo") {
        return;
    }
    let names: Vec<String> = (0..140).map(|number| format!("volume-{number}")).collect();
    let volumes: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let rig = Rig::new(&volumes);
    let list = run("nbdinfo", &["--list", "--json", &rig.uri("")]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let listed = list["exports"].as_array().unwrap();
    assert_eq!(listed.len(), names.len());
    for export in listed {
        assert_eq!(export["export-size"], 1 << 20, "{export}");
    }
}

#[test]
fn nbdcopy_copies_in_and_out_over_several_connections() {
    if !have("nbdcopy") {
        return;
    }
    let rig = Rig::new(&[("v", 48), ("w", 48)]);
    let (path, data) = image(rig.folder(), 1, 48);
    run(
        "nbdcopy",
        &["--flush", "--connections=4", &path, &rig.uri("v")],
    );
    assert!(contents(&rig, "v", 48 << 20) == data);
    run(
        "nbdcopy",
        &["--connections=4", &rig.uri("v"), &rig.tcp_uri("w")],
    );
    assert!(contents(&rig, "w", 48 << 20) == data);
    let back = rig.folder().join("back").display().to_string();
    run("nbdcopy", &[&rig.tcp_uri("w"), &back]);
    assert!(std::fs::read(back).unwrap() == data);
    let rig = rig.restart();
    assert!(contents(&rig, "v", 48 << 20) == data);
}

#[test]
fn qemu_img_converts_compares_and_measures() {
    if !have("qemu-img") {
        return;
    }
    let rig = Rig::new(&[("v", 32)]);
    let (path, data) = image(rig.folder(), 2, 32);
    let uri = rig.uri("v");
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", &path, &uri],
    );
    assert!(contents(&rig, "v", 32 << 20) == data);
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &path, &uri],
    );
    let info = run("qemu-img", &["info", "--output=json", &uri]);
    assert!(info.contains(&(32 << 20).to_string()), "{info}");
    let map = run("qemu-img", &["map", "--output=json", &uri]);
    assert!(
        map.contains("\"zero\": true") && map.contains("\"data\": true"),
        "{map}"
    );
    let qcow = rig.folder().join("v.qcow2").display().to_string();
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            &rig.tcp_uri("v"),
            &qcow,
        ],
    );
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "qcow2", &path, &qcow],
    );
}

#[test]
fn qemu_io_does_every_command() {
    if !have("qemu-io") {
        return;
    }
    let rig = Rig::new(&[("v", 32)]);
    let uri = rig.uri("v");
    let commands = [
        "write -P 0x5a 0 1M",
        "write -f -P 0xa5 1M 512k",
        "aio_write -P 0x11 4M 2M",
        "aio_flush",
        "read -P 0x5a 0 1M",
        "write -z 256k 64k",
        "write -z -u 512k 64k",
        "discard 2M 1M",
        "read -P 0 256k 64k",
        "read -P 0 512k 64k",
        "read -P 0x5a 320k 192k",
        "read -P 0xa5 1M 512k",
        "read -P 0x11 4M 2M",
        // Not aligned: the client knows the block size and does the rest itself.
        "write -P 0x77 8193 100",
        "read -P 0x77 8193 100",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw"];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(&uri);
    let text = run("qemu-io", &arguments);
    assert!(
        !text.contains("failed") && !text.contains("error"),
        "{text}"
    );
    let mut expected = vec![0x5a; 8192];
    expected.extend([0x5a]);
    expected.extend([0x77; 100]);
    expected.resize(16384, 0x5a);
    assert!(contents(&rig, "v", 16384) == expected);
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !have("fio") {
        return;
    }
    let rig = Rig::new(&[("v", 64)]);
    for (name, uri) in [("unix", rig.uri("v")), ("tcp", rig.tcp_uri("v"))] {
        let uri = format!("--uri={uri}");
        let folder = format!("--aux-path={}", rig.folder().display());
        for job in [
            ["--rw=randwrite", "--bs=4k", "--iodepth=32"],
            ["--rw=write", "--bs=1M", "--iodepth=8"],
            ["--rw=randrw", "--bsrange=512-256k", "--iodepth=16"],
        ] {
            let mut arguments = vec!["--name=verify", "--ioengine=nbd", &uri, &folder];
            arguments.extend(job);
            arguments.extend([
                "--size=64M",
                "--io_size=64M",
                "--verify=crc32c",
                "--do_verify=1",
            ]);
            arguments.extend(["--verify_fatal=1", "--fsync=64", "--randseed=7"]);
            let text = run("fio", &arguments);
            assert!(text.contains("err= 0"), "{name} {job:?}: {text}");
        }
    }
}

/// Runs a command when dropped, to undo what another did.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        // It may have been undone already.
        let _ = Process::captured(Command::new(self.0).args(&self.1)).try_output(WITHIN);
    }
}

/// A volume as a file, through nbdfuse.
struct Fused {
    file: PathBuf,
    _unmount: Undo,
    _process: Process,
}

impl Fused {
    fn new(rig: &Rig, volume: &str) -> Self {
        let folder = rig.folder().join("fuse");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(volume);
        let watch = rig.folder().join("ready");
        std::fs::create_dir_all(&watch).unwrap();
        let ready = ReadyServer::new(&watch);
        let pid_file = watch.join("pid");
        let mut command = Command::new("nbdfuse");
        command
            .arg("--pidfile")
            .arg(&pid_file)
            .arg(&file)
            .arg(rig.uri(volume));
        let process = Process::spawn(&mut command);
        let unmount = Undo(
            "fusermount3",
            vec!["-uz".into(), folder.display().to_string()],
        );
        ready.wait();
        Self {
            file,
            _unmount: unmount,
            _process: process,
        }
    }
}

/// Tells when a file is complete in a folder.
struct ReadyServer(std::os::fd::OwnedFd);

impl ReadyServer {
    fn new(folder: &Path) -> Self {
        use rustix::fs::inotify;
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&fd, folder, inotify::WatchFlags::CLOSE_WRITE).unwrap();
        Self(fd)
    }

    fn wait(self) {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let within = Timespec {
            tv_sec: Duration::from_secs(30).as_secs() as i64,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        assert_eq!(
            rustix::event::poll(&mut fds, Some(&within)),
            Ok(1),
            "nbdfuse did not start"
        );
    }
}

/// True if a volume can be mounted here. Otherwise the test is skipped.
fn may_mount() -> bool {
    let devices = ["/dev/fuse", "/dev/loop-control"];
    if let Some(missing) = devices.iter().find(|device| !Path::new(device).exists()) {
        skipped(&format!("there is no {missing}"));
        return false;
    }
    is_root("mounting a volume")
}

#[test]
fn a_file_system_lives_in_a_volume() {
    let tools = [
        "nbdfuse",
        "fusermount3",
        "losetup",
        "mkfs.ext4",
        "mount",
        "e2fsck",
    ];
    if !may_mount() || !tools.iter().all(|tool| have(tool)) {
        return;
    }
    let rig = Rig::new(&[("v", 128)]);
    let data = pattern(3, 20 << 20);
    {
        let fused = Fused::new(&rig, "v");
        let device = attach(&fused.file);
        run("mkfs.ext4", &["-q", &device.1[1]]);
        let mounted = mount(&rig, &device.1[1]);
        let folder = PathBuf::from(&mounted.1[0]);
        std::fs::write(folder.join("film"), &data).unwrap();
        for number in 0..200 {
            std::fs::write(folder.join(format!("note-{number}")), pattern(number, 3000)).unwrap();
        }
        run("sync", &["-f", &mounted.1[0]]);
        assert!(std::fs::read(folder.join("film")).unwrap() == data);
        run("umount", &[&mounted.1[0]]);
    }
    let rig = rig.restart();
    let fused = Fused::new(&rig, "v");
    let device = attach(&fused.file);
    run("e2fsck", &["-fn", &device.1[1]]);
    let mounted = mount(&rig, &device.1[1]);
    let folder = PathBuf::from(&mounted.1[0]);
    assert!(std::fs::read(folder.join("film")).unwrap() == data);
    for number in 0..200 {
        let note = std::fs::read(folder.join(format!("note-{number}"))).unwrap();
        assert!(note == pattern(number, 3000), "note {number}");
    }
}

/// A loop device on a file.
fn attach(file: &Path) -> Undo {
    let file = file.display().to_string();
    let device = run("losetup", &["--find", "--show", "--direct-io=on", &file]);
    Undo("losetup", vec!["--detach".into(), device.trim().into()])
}

fn mount(rig: &Rig, device: &str) -> Undo {
    let folder = rig.folder().join("mounted");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.display().to_string();
    run("mount", &[device, &folder]);
    Undo("umount", vec![folder])
}

#[test]
fn several_clients_at_once_share_a_volume() {
    if !have("fio") {
        return;
    }
    let rig = Rig::new(&[("v", 64)]);
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let uri = format!("--uri={}", rig.uri("v"));
            let offset = format!("--offset={}M", number * 16);
            let folder = format!("--aux-path={}", rig.folder().display());
            let name = format!("--name=client-{number}");
            std::thread::spawn(move || {
                let mut arguments = vec![name.as_str(), "--ioengine=nbd", &uri, &offset, &folder];
                arguments.extend(["--rw=randwrite", "--bs=8k", "--iodepth=16"]);
                arguments.extend(["--size=16M", "--verify=crc32c", "--do_verify=1"]);
                run("fio", &arguments)
            })
        })
        .collect();
    for client in clients {
        assert!(client.join().unwrap().contains("err= 0"));
    }
    let mut wire = Wire::structured(&rig.socket, "v");
    assert_eq!(wire.ask(cmd::FLUSH, 0, 0, 0).error, 0);
}
