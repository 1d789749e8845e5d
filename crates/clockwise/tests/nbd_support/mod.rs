//! What the NBD tests share: a real pool on files with the real server in front, real client
//! programs with a time limit, and a client of our own that speaks bytes.
//!
//! Everything is undone when it is dropped, so also when a test panics.

#![allow(dead_code, missing_docs, reason = "each test binary uses its part")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clockwise::export::nbd::{NbdConfig, Server};
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Disk;
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::uring::UringDisk;
use sched::profile::{DriveKind, DriveProfile};
use sched::units::Bytes;
use sim::emulator::{DriveOptions, EmulatedDrive};
use sim::plant::PlantSpec;

/// How long any client program may take.
const TOOL_WITHIN: Duration = Duration::from_secs(120);

/// Places of a file: as many requests as a busy client has.
const PLACES: usize = 32;

/// A pool on files in a folder of its own, served over NBD.
pub(crate) struct Rig {
    server: Option<Server>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) socket: PathBuf,
    pub(crate) tcp: SocketAddr,
    folder: tempfile::TempDir,
    disks: Disks,
}

/// What a pool lies on.
#[derive(Clone, Copy)]
enum Disks {
    /// So many files.
    Files(usize),
    /// One emulated drive that takes its time.
    Drive,
}

impl Rig {
    /// Two disks of 512 MiB and these volumes (name, MiB).
    pub(crate) fn new(volumes: &[(&str, u64)]) -> Self {
        Self::with(volumes, NbdConfig::default(), Bytes::from_mib(256))
    }

    /// The same with a configuration of the server, whose addresses are set here, and a size for
    /// the pool's memory.
    pub(crate) fn with(volumes: &[(&str, u64)], config: NbdConfig, memory: Bytes) -> Self {
        Self::on(Disks::Files(2), volumes, config, memory)
    }

    /// The same on an emulated Atlas-II, the way it was in 1998: 10 MB/s.
    pub(crate) fn slow(volumes: &[(&str, u64)], memory: Bytes) -> Self {
        Self::on(Disks::Drive, volumes, NbdConfig::default(), memory)
    }

    fn on(disks: Disks, volumes: &[(&str, u64)], config: NbdConfig, memory: Bytes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        disks.make(folder.path());
        let options = CreateOptions {
            name: "test".into(),
            extent_bytes: Some(Bytes::from_mib(1)),
            force: false,
        };
        let memory_of_pool = memory_of(memory);
        let opened = open_disks(folder.path(), disks, &memory_of_pool);
        Pool::create(&memory_of_pool, opened, &options).unwrap();
        let pool = open_pool(folder.path(), disks, memory_of_pool);
        for (name, mib) in volumes {
            let spec = VolumeSpec {
                name: (*name).into(),
                size: Bytes::from_mib(*mib),
                placement: Placement::default(),
            };
            pool.create_volume(&spec).unwrap();
        }
        let (server, socket, tcp) = serve(&pool, folder.path(), config);
        Self {
            server: Some(server),
            pool,
            socket,
            tcp,
            folder,
            disks,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Ends the server, as a service manager would.
    pub(crate) fn shutdown(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown(Duration::from_secs(20));
        }
    }

    /// Ends server and pool, opens both anew: what is there now was on the disks.
    pub(crate) fn restart(mut self) -> Self {
        self.shutdown();
        self.pool.close().unwrap();
        // Fields move out of a type with a destructor one by one only through replacement.
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        let disks = self.disks;
        drop(self);
        let pool = open_pool(folder.path(), disks, memory_of(Bytes::from_mib(256)));
        let (server, socket, tcp) = serve(&pool, folder.path(), NbdConfig::default());
        Self {
            server: Some(server),
            pool,
            socket,
            tcp,
            folder,
            disks,
        }
    }

    /// The address of a volume on the unix socket.
    pub(crate) fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket.display())
    }

    /// The address of a volume by TCP.
    pub(crate) fn tcp_uri(&self, volume: &str) -> String {
        format!("nbd://{}/{volume}", self.tcp)
    }

    /// A folder for whatever a test needs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown();
        // A pool that a test has broken may refuse; the files go away all the same.
        let _ = self.pool.close();
    }
}

fn disk_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("disk-{number}.img"))
}

fn memory_of(size: Bytes) -> Memory {
    Memory::new(&MemoryConfig {
        lock: false,
        ..MemoryConfig::new(size)
    })
    .unwrap()
}

impl Disks {
    fn make(self, folder: &Path) {
        match self {
            Self::Files(count) => {
                for number in 0..count {
                    let file = std::fs::File::create(disk_path(folder, number)).unwrap();
                    file.set_len(512 << 20).unwrap();
                }
            }
            Self::Drive => {
                let plant = PlantSpec::built_in("quantum-atlas-ii").unwrap();
                let options = DriveOptions::default();
                EmulatedDrive::create(&disk_path(folder, 0), plant, &options).unwrap();
            }
        }
    }
}

fn open_disks(folder: &Path, disks: Disks, memory: &Memory) -> Vec<PoolDisk> {
    let count = match disks {
        Disks::Files(count) => count,
        Disks::Drive => 1,
    };
    (0..count)
        .map(|number| {
            let path = disk_path(folder, number);
            let (disk, profile): (Box<dyn Disk>, _) = match disks {
                Disks::Files(_) => {
                    let disk = UringDisk::open(&path, memory, PLACES).unwrap();
                    let profile = DriveProfile::conservative(DriveKind::File, disk.capacity());
                    (Box::new(disk), profile.unwrap())
                }
                Disks::Drive => {
                    let plant = PlantSpec::built_in("quantum-atlas-ii").unwrap();
                    let disk = EmulatedDrive::open(&path, plant, &DriveOptions::default());
                    let profile = DriveProfile::shipped("quantum-atlas-ii");
                    (Box::new(disk.unwrap()), profile.unwrap())
                }
            };
            PoolDisk {
                name: path.display().to_string(),
                disk,
                profile: Arc::new(profile),
                profile_is_measured: false,
            }
        })
        .collect()
}

fn open_pool(folder: &Path, disks: Disks, memory: Memory) -> Arc<Pool> {
    let options = OpenOptions {
        realtime: false,
        ..OpenOptions::default()
    };
    let opened = open_disks(folder, disks, &memory);
    Pool::open(memory, opened, options).unwrap()
}

fn serve(pool: &Arc<Pool>, folder: &Path, config: NbdConfig) -> (Server, PathBuf, SocketAddr) {
    let socket = folder.join("nbd.sock");
    let config = NbdConfig {
        unix: Some(socket.clone()),
        tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..config
    };
    let server = Server::start(Arc::clone(pool), &config).unwrap();
    let tcp = server.tcp_address().unwrap();
    (server, socket, tcp)
}

/// A child that does not outlive the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end, within the time limit, whatever its status.
pub(crate) fn output(tool: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{tool}: {error}"));
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut process = Process(child);
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).map(|_| bytes)
    });
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let result = out.read_to_end(&mut bytes).map(|_| bytes);
        // The test may have given up.
        let _ = done.send(result);
    });
    let stdout = match finished.recv_timeout(TOOL_WITHIN) {
        Ok(bytes) => bytes.unwrap(),
        Err(_) => {
            drop(process);
            let errors = errors.join().unwrap().unwrap();
            let errors = String::from_utf8_lossy(&errors);
            panic!("{tool} {arguments:?} took more than {TOOL_WITHIN:?}: {errors}");
        }
    };
    let status = process.0.wait().unwrap();
    let stderr = errors.join().unwrap().unwrap();
    Output {
        status,
        stdout,
        stderr,
    }
}

/// Runs a program that must succeed; what it printed.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> String {
    let output = output(tool, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Bytes that look random and are the same every time.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Commands of the protocol.
pub(crate) mod cmd {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 2;
    pub(crate) const DF: u16 = 4;
    pub(crate) const REQ_ONE: u16 = 8;
    pub(crate) const FAST_ZERO: u16 = 16;
}

/// A client that speaks bytes, so that it can say what no proper client would.
pub(crate) struct Wire {
    pub(crate) stream: UnixStream,
}

/// A reply, simple or put together from its chunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    pub(crate) text: String,
    /// Data by offset.
    pub(crate) data: Vec<(u64, Vec<u8>)>,
    /// Block status: length and flags.
    pub(crate) status: Vec<(u32, u32)>,
}

impl Wire {
    /// Connects and reads the greeting.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut wire = Self { stream };
        assert_eq!(&wire.read::<18>(), b"NBDMAGICIHAVEOPT\x00\x03");
        wire.send(&[0, 0, 0, 3]);
        wire
    }

    /// Connects and enters transmission on `volume`, with structured replies and block status.
    pub(crate) fn structured(socket: &Path, volume: &str) -> Self {
        let mut wire = Self::connect(socket);
        wire.option(8, &[]);
        assert_eq!(wire.option_reply().1, 1);
        let mut data = (volume.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(volume.as_bytes());
        data.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 15]);
        data.extend_from_slice(b"base:allocation");
        wire.option(10, &data);
        while wire.option_reply().1 != 1 {}
        wire.go(volume);
        wire
    }

    /// Connects and enters transmission on `volume` without structured replies.
    pub(crate) fn simple(socket: &Path, volume: &str) -> Self {
        let mut wire = Self::connect(socket);
        wire.go(volume);
        wire
    }

    fn go(&mut self, volume: &str) {
        if let Err(text) = self.try_go(volume) {
            panic!("refused: {text}");
        }
    }

    /// Enters transmission on `volume`, or is told why not.
    pub(crate) fn try_go(&mut self, volume: &str) -> Result<(), String> {
        let mut data = (volume.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(volume.as_bytes());
        data.extend_from_slice(&[0, 1, 0, 3]);
        self.option(7, &data);
        loop {
            let (_, kind, data) = self.option_reply();
            match kind {
                1 => return Ok(()),
                3 => {}
                _ => return Err(String::from_utf8_lossy(&data).into_owned()),
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn read<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn option(&mut self, code: u32, data: &[u8]) {
        self.send(b"IHAVEOPT");
        self.send(&code.to_be_bytes());
        self.send(&(data.len() as u32).to_be_bytes());
        self.send(data);
    }

    /// A reply to an option: the option, the kind, the data.
    pub(crate) fn option_reply(&mut self) -> (u32, u32, Vec<u8>) {
        assert_eq!(self.read::<8>(), 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let option = u32::from_be_bytes(self.read());
        let kind = u32::from_be_bytes(self.read());
        let length = u32::from_be_bytes(self.read());
        (option, kind, self.read_bytes(length as usize))
    }

    pub(crate) fn header(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes
    }

    pub(crate) fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&Self::header(kind, flags, cookie, offset, length));
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// A simple reply with `length` bytes of data if it is no error.
    pub(crate) fn simple_reply(&mut self, length: usize) -> Reply {
        assert_eq!(self.read::<4>(), 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(self.read());
        let cookie = u64::from_be_bytes(self.read());
        let data = if error == 0 {
            self.read_bytes(length)
        } else {
            Vec::new()
        };
        Reply {
            cookie,
            error,
            data: vec![(0, data)],
            ..Reply::default()
        }
    }

    /// A structured reply, all of its chunks; they may not be mixed with those of others.
    pub(crate) fn structured_reply(&mut self) -> Reply {
        let mut reply = Reply::default();
        loop {
            let (done, cookie) = self.chunk(&mut reply);
            reply.cookie = cookie;
            if done {
                return reply;
            }
        }
    }

    fn chunk(&mut self, reply: &mut Reply) -> (bool, u64) {
        assert_eq!(self.read::<4>(), 0x668e_33ef_u32.to_be_bytes());
        let flags = u16::from_be_bytes(self.read());
        let kind = u16::from_be_bytes(self.read());
        let cookie = u64::from_be_bytes(self.read());
        let length = u32::from_be_bytes(self.read()) as usize;
        match kind {
            0 => assert_eq!(length, 0),
            1 => {
                let offset = u64::from_be_bytes(self.read());
                reply.data.push((offset, self.read_bytes(length - 8)));
            }
            5 => {
                assert_eq!(self.read::<4>(), [0, 0, 0, 1]);
                for _ in 0..(length - 4) / 8 {
                    let length = u32::from_be_bytes(self.read());
                    reply.status.push((length, u32::from_be_bytes(self.read())));
                }
            }
            0x8001 => {
                reply.error = u32::from_be_bytes(self.read());
                let count = u16::from_be_bytes(self.read());
                reply.text = String::from_utf8(self.read_bytes(usize::from(count))).unwrap();
            }
            other => panic!("a chunk of type {other}"),
        }
        (flags & 1 == 1, cookie)
    }

    /// Sends a request and takes its structured reply.
    pub(crate) fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> Reply {
        self.request(kind, flags, 77, offset, length);
        let reply = self.structured_reply();
        assert_eq!(reply.cookie, 77);
        reply
    }

    /// Writes and takes the reply.
    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Reply {
        self.request(cmd::WRITE, flags, 78, offset, data.len() as u32);
        self.send(data);
        self.structured_reply()
    }

    /// Reads a range, put together in order.
    pub(crate) fn read_range(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let mut reply = self.ask(cmd::READ, 0, offset, length);
        assert_eq!(reply.error, 0, "{}", reply.text);
        reply.data.sort();
        let mut bytes = Vec::new();
        for (at, data) in reply.data {
            assert_eq!(at, offset + bytes.len() as u64);
            bytes.extend(data);
        }
        assert_eq!(bytes.len(), length as usize);
        bytes
    }
}
