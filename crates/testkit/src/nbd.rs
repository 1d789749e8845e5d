//! A client that speaks bytes, and can break every rule of the protocol.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Commands of the protocol.
pub mod cmd {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 2;
    pub const DF: u16 = 4;
    pub const REQ_ONE: u16 = 8;
    pub const FAST_ZERO: u16 = 16;
}

/// A client that speaks bytes, so that it can say what no proper client would.
pub struct Wire<S = UnixStream> {
    pub stream: S,
    /// Parts of replies that are not whole yet, by cookie.
    parts: BTreeMap<u64, Reply>,
}

/// A reply, simple or put together from its chunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub error: u32,
    pub text: String,
    /// Data by offset.
    pub data: Vec<(u64, Vec<u8>)>,
    /// Block status: length and flags.
    pub status: Vec<(u32, u32)>,
}

/// Longest wait for an answer, or for room for a request.
const WITHIN: Option<Duration> = Some(Duration::from_secs(30));

impl Wire {
    /// Connects and reads the greeting.
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(WITHIN).unwrap();
        stream.set_write_timeout(WITHIN).unwrap();
        Self::greeted(stream)
    }

    /// Connects and enters transmission on `volume`, with structured replies and block status.
    pub fn structured(socket: &Path, volume: &str) -> Self {
        Self::connect(socket).structured_on(volume)
    }

    /// Connects and enters transmission on `volume` without structured replies.
    pub fn simple(socket: &Path, volume: &str) -> Self {
        let mut wire = Self::connect(socket);
        wire.go(volume);
        wire
    }

    /// Has what the disks have of a volume made durable, as any client of it may.
    #[track_caller]
    pub fn flush(socket: &Path, volume: &str) {
        let mut wire = Self::simple(socket, volume);
        wire.request(cmd::FLUSH, 0, 1, 0, 0);
        assert_eq!(wire.simple_reply(0).error, 0);
    }

    pub fn header(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes
    }
}

impl Wire<TcpStream> {
    /// As `structured`, by TCP.
    pub fn structured_by_tcp(address: SocketAddr, volume: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // An option goes in parts, which would wait for each other's acknowledgements.
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(WITHIN).unwrap();
        stream.set_write_timeout(WITHIN).unwrap();
        Self::greeted(stream).structured_on(volume)
    }
}

impl<S: Read + Write> Wire<S> {
    /// Reads the greeting.
    fn greeted(stream: S) -> Self {
        let mut wire = Self {
            stream,
            parts: BTreeMap::new(),
        };
        assert_eq!(&wire.read::<18>(), b"NBDMAGICIHAVEOPT\x00\x03");
        wire.send(&[0, 0, 0, 3]);
        wire
    }

    /// Enters transmission on `volume`, with structured replies and block status.
    fn structured_on(mut self, volume: &str) -> Self {
        self.option(8, &[]);
        assert_eq!(self.option_reply().1, 1);
        let mut data = (volume.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(volume.as_bytes());
        data.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 15]);
        data.extend_from_slice(b"base:allocation");
        self.option(10, &data);
        while self.option_reply().1 != 1 {}
        self.go(volume);
        self
    }

    fn go(&mut self, volume: &str) {
        if let Err(text) = self.try_go(volume) {
            panic!("refused: {text}");
        }
    }

    /// Enters transmission on `volume`, or is told why not.
    pub fn try_go(&mut self, volume: &str) -> Result<(), String> {
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

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn read<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn option(&mut self, code: u32, data: &[u8]) {
        self.send(b"IHAVEOPT");
        self.send(&code.to_be_bytes());
        self.send(&(data.len() as u32).to_be_bytes());
        self.send(data);
    }

    /// A reply to an option: the option, the kind, the data.
    pub fn option_reply(&mut self) -> (u32, u32, Vec<u8>) {
        assert_eq!(self.read::<8>(), 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let option = u32::from_be_bytes(self.read());
        let kind = u32::from_be_bytes(self.read());
        let length = u32::from_be_bytes(self.read());
        (option, kind, self.read_bytes(length as usize))
    }

    pub fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&Wire::header(kind, flags, cookie, offset, length));
    }

    /// True if the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// A simple reply with `length` bytes of data if it is no error.
    pub fn simple_reply(&mut self, length: usize) -> Reply {
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

    /// The next structured reply that is whole. Chunks of others may come between its own.
    pub fn structured_reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.chunk() {
                return reply;
            }
        }
    }

    /// Takes a chunk. The reply of which it is the last one.
    fn chunk(&mut self) -> Option<Reply> {
        assert_eq!(self.read::<4>(), 0x668e_33ef_u32.to_be_bytes());
        let flags = u16::from_be_bytes(self.read());
        let kind = u16::from_be_bytes(self.read());
        let cookie = u64::from_be_bytes(self.read());
        let length = u32::from_be_bytes(self.read()) as usize;
        let mut reply = self.parts.remove(&cookie).unwrap_or_default();
        reply.cookie = cookie;
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
        if flags & 1 == 1 {
            return Some(reply);
        }
        self.parts.insert(cookie, reply);
        None
    }

    /// Sends a request and takes its structured reply.
    pub fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> Reply {
        self.request(kind, flags, 77, offset, length);
        let reply = self.structured_reply();
        assert_eq!(reply.cookie, 77);
        reply
    }

    /// Writes and takes the reply.
    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Reply {
        self.request(cmd::WRITE, flags, 78, offset, data.len() as u32);
        self.send(data);
        self.structured_reply()
    }

    /// Reads a range, put together in order.
    pub fn read_range(&mut self, offset: u64, length: u32) -> Vec<u8> {
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
