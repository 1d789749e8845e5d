//! The servers that are compared, each a process of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::SIZE;

/// Set, with the folder as its value, in the process that is to be our server, and which of them.
pub(crate) const SERVE: &str = "NBD_BENCH_SERVE";
pub(crate) const SERVE_AS: &str = "NBD_BENCH_SERVE_AS";

pub(crate) const SERVERS: [&str; 4] = [ALONE, BESIDE, "nbdkit", "qemu-nbd"];

/// Our server with nothing promised, and with a stream open.
const ALONE: &str = "clockwise";
pub(crate) const BESIDE: &str = "clockwise-stream";

/// Ours are not mounted.
pub(crate) fn mount_of(_: &str, _: &Path) -> Option<PathBuf> {
    None
}

pub(crate) fn is_ours(name: &str) -> bool {
    [ALONE, BESIDE].contains(&name)
}

/// A running server, killed when dropped.
pub(crate) struct Peer {
    child: Child,
    /// The target of fio's job.
    pub(crate) target: Vec<String>,
}

impl Peer {
    /// The processes that serve it.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.child.id())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts one of [`SERVERS`], and returns when it takes connections.
pub(crate) fn start(name: &str, folder: &Path) -> Peer {
    let socket = folder.join(format!("{name}.sock"));
    let volume = if is_ours(name) { "bench" } else { "" };
    let uri = format!("nbd+unix:///{volume}?socket={}", socket.display());
    let file = folder.join(format!("{name}.img"));
    let mut command = match name {
        ALONE | BESIDE => {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.env(SERVE, folder).env(SERVE_AS, name);
            command
        }
        "nbdkit" => {
            fill(&file);
            let mut command = Command::new("nbdkit");
            command
                .arg("-f")
                .arg("-U")
                .arg(&socket)
                .arg("file")
                .arg(&file);
            command
        }
        _ => {
            fill(&file);
            let mut command = Command::new("qemu-nbd");
            command
                .args(["-f", "raw", "-t", "--cache=writeback", "-k"])
                .arg(&socket)
                .arg(&file);
            command
        }
    };
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect(name);
    // It ends the server, whatever becomes of this.
    let target = vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")];
    let mut peer = Peer { child, target };
    if is_ours(name) {
        let mut line = String::new();
        let output = peer.child.stdout.take().expect("piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("our server's first line");
        assert_eq!(line.trim(), "ready", "our server did not start");
    }
    // The others do not say when they are ready: when one can connect to them.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let ready = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    while !ready() {
        assert!(std::time::Instant::now() < until, "{name} did not start");
        std::thread::yield_now();
    }
    peer
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
