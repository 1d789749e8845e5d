//! The file systems that are compared, each with its processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::SIZE;

/// Set, with the folder as its value, in the process that is to be our server, and which of them.
pub(crate) const SERVE: &str = "FUSE_BENCH_SERVE";
pub(crate) const SERVE_AS: &str = "FUSE_BENCH_SERVE_AS";

pub(crate) const SERVERS: [&str; 3] = [MOUNTED, NBDFUSE, "bindfs"];

/// Our server's own mount, and its NBD export through `nbdfuse`.
const MOUNTED: &str = "clockwise";
const NBDFUSE: &str = "nbdfuse";

/// No server of this comparison has a stream open.
pub(crate) const BESIDE: &str = "clockwise-stream";

/// Where our server has its own mount, if it has one.
pub(crate) fn mount_of(name: &str, folder: &Path) -> Option<PathBuf> {
    (name == MOUNTED).then(|| mount_point(name, folder))
}

pub(crate) fn is_ours(name: &str) -> bool {
    name == MOUNTED
}

fn mount_point(name: &str, folder: &Path) -> PathBuf {
    folder.join(format!("{name}.mount"))
}

/// A mounted file system. Unmounted, and its processes killed, when dropped.
pub(crate) struct Peer {
    processes: Vec<Child>,
    mount: PathBuf,
    /// The target of fio's job.
    pub(crate) target: Vec<String>,
}

impl Peer {
    /// The processes that serve it.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(Child::id)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Gone already is as good.
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(&self.mount)
            .status();
    }
}

/// Starts one of [`SERVERS`], and returns when its file is there.
pub(crate) fn start(name: &str, folder: &Path) -> Peer {
    let mount = mount_point(name, folder);
    std::fs::create_dir(&mount).expect("a mount point");
    let target = |file: &Path| {
        let file = format!("--filename={}", file.display());
        vec![
            "--ioengine=libaio".to_owned(),
            "--direct=1".to_owned(),
            file,
        ]
    };
    let file = mount.join("bench");
    let mut peer = Peer {
        processes: Vec::new(),
        target: target(&file),
        mount,
    };
    if name == "bindfs" {
        let passed = folder.join("passed");
        std::fs::create_dir(&passed).expect("a folder in memory");
        fill(&passed.join("bench"));
        let mut bindfs = Command::new("bindfs");
        bindfs
            .args(["-f", "--multithreaded"])
            .arg(passed)
            .arg(&peer.mount);
        peer.processes.push(bindfs.spawn().expect(name));
    } else {
        peer.processes.push(our_server(name, folder));
    }
    if name == NBDFUSE {
        let socket = folder.join(format!("{name}.sock"));
        let uri = format!("nbd+unix:///bench?socket={}", socket.display());
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse.arg(&file).arg(uri);
        peer.processes.push(nbdfuse.spawn().expect(name));
    }
    // Not all say when they are ready: when the file is there.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !std::fs::metadata(&file).is_ok_and(|file| file.len() == SIZE.0) {
        assert!(std::time::Instant::now() < until, "{name} did not start");
        std::thread::yield_now();
    }
    peer
}

fn our_server(name: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(SERVE, folder).env(SERVE_AS, name);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect(name);
    let mut line = String::new();
    let output = child.stdout.take().expect("piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("our server's first line");
    assert_eq!(line.trim(), "ready", "our server did not start");
    child
}

/// A file of random-looking bytes, all of its pages there.
fn fill(path: &Path) {
    let block = block_of_bytes();
    let mut file = std::fs::File::create(path).expect("a file in memory");
    for _ in 0..SIZE.0 / block.len() as u64 {
        std::io::Write::write_all(&mut file, &block).expect("room in memory");
    }
}

pub(crate) fn block_of_bytes() -> Vec<u8> {
    (0..1u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}
