//! A server with RTSP, and a client that says what it likes.

pub mod browser;
pub mod camera;
pub mod clip;
pub mod files;
pub mod frames;
pub mod http;
pub mod load;
pub mod login;
pub mod peers;
pub mod sized;
pub mod source;
pub mod tls;
pub mod together;
pub mod udp;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;

use md5::{Digest, Md5};

use crate::process::WITHIN;
use crate::site::{ReadyServer, Serve, Site, call, read_text};

/// A site whose server has RTSP at a port of its own, with small blocks.
pub fn with_rtsp(site: &Site, more: &str) {
    with_blocks_of(site, "64KiB", more);
}

/// As [`with_rtsp`], with another size of blocks.
pub fn with_blocks_of(site: &Site, size: &str, more: &str) {
    let mut text = read_text(&site.config());
    text += &format!("[rtsp]\nlisten = \"0\"\nblock = \"{size}\"\n{more}\n");
    std::fs::write(site.config(), text).expect("the configuration can be written");
}

/// A pool on files with a volume for recordings, served.
pub fn serving(more: &str) -> (Site, ReadyServer, SocketAddr) {
    let site = Site::new(2);
    with_rtsp(&site, more);
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve(&site);
    site.run(&["volume", "create", "cam", "--size", "40MiB"])
        .done();
    (site, serve, address)
}

/// Serves it, and where its RTSP is.
pub fn serve(site: &Site) -> (ReadyServer, SocketAddr) {
    let serve = site.serve_json();
    let address = serve.said["rtsp"].as_str().map(str::parse);
    let address = address.unwrap_or_else(|| panic!("no RTSP: {}", serve.said));
    (serve, address.expect("an address"))
}

/// Serves it, and where its RTSP is, with what it logs.
pub fn serve_logged(site: &Site) -> (Serve, SocketAddr) {
    let serve = site.serve();
    let address = serve.ready.split("rtsp=\"").nth(1);
    let address = address.and_then(|rest| rest.split('"').next()?.parse().ok());
    let address = address.unwrap_or_else(|| panic!("no RTSP: {}", serve.ready));
    (serve, address)
}

/// As [`serving`], with what it logs.
pub fn serving_logged(more: &str) -> (Site, Serve, SocketAddr) {
    let site = Site::new(2);
    with_rtsp(&site, more);
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve_logged(&site);
    site.run(&["volume", "create", "cam", "--size", "40MiB"])
        .done();
    (site, serve, address)
}

/// A file of users of that name, as htdigest writes it.
pub fn users(site: &Site, name: &str, of: &[(&str, &str)]) {
    let mut text = String::new();
    for (user, password) in of {
        let secret = Md5::digest(format!("{user}:clockwise:{password}"));
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{user}:clockwise:{secret}\n");
    }
    let path = site.path(name);
    std::fs::write(&path, text).expect("it can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// One track's packets in the connection.
pub const TCP: &str = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
/// Type of a description.
pub const SDP_TYPE: &str = "Content-Type: application/sdp\r\n";

/// A publisher that records to `cam`.
pub fn publisher(address: SocketAddr, transport: &str) -> Client {
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    client.ask("SETUP", "cam/one", transport, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    client
}

/// A second track's packets in the connection.
pub const SECOND: &str = "Transport: RTP/AVP/TCP;unicast;interleaved=2-3\r\n";

/// A publisher that records two tracks to `cam`: the one of [`sdp`] and a sound of 8,000 units a second.
pub fn publisher_of_two(address: SocketAddr) -> Client {
    let sound = "m=audio 0 RTP/AVP 97\r\nb=AS:64\r\na=rtpmap:97 X-SOUND/8000\r\na=control:two\r\n";
    publisher_of(address, &(sdp(800) + sound))
}

/// A publisher that records the two tracks of a description to `cam`, which are called `one` and `two`.
pub fn publisher_of(address: SocketAddr, description: &str) -> Client {
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, description).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("SETUP", "cam/two", SECOND, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    client
}

/// An answer.
#[derive(Debug)]
pub struct RtspResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl RtspResponse {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// A client that does not wait for ever.
pub struct Client {
    pub socket: TcpStream,
    pub tls: Option<rustls::ClientConnection>,
    address: SocketAddr,
    bytes: Vec<u8>,
    number: u32,
    pub session: Option<String>,
    /// Packets that came, with their channels.
    pub packets: Vec<(u8, Vec<u8>)>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("the server listens");
        Self::with(socket, address)
    }

    fn with(socket: TcpStream, address: SocketAddr) -> Self {
        socket.set_read_timeout(Some(WITHIN)).expect("a time");
        socket.set_write_timeout(Some(WITHIN)).expect("a time");
        Self {
            socket,
            tls: None,
            address,
            bytes: Vec::new(),
            number: 0,
            session: None,
            packets: Vec::new(),
        }
    }

    /// One for which the host keeps little that it has not read.
    pub fn with_little_room(address: SocketAddr) -> Self {
        use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_recv_buffer_size(&socket, 4_096).expect("a size");
        connect(&socket, &address).expect("the server listens");
        Self::with(socket.into(), address)
    }

    /// One from another address of this host.
    pub fn from_another(address: SocketAddr) -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let from: SocketAddr = "127.0.0.2:0".parse().expect("an address");
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&socket, &from).expect("it is this host's");
        connect(&socket, &address).expect("the server listens");
        Self::with(socket.into(), address)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        let written = match &mut self.tls {
            None => self.socket.write_all(bytes),
            Some(tls) => rustls::Stream::new(tls, &mut self.socket).write_all(bytes),
        };
        written.expect("the server reads");
    }

    /// Sends a packet in the connection.
    pub fn packet(&mut self, channel: u8, packet: &[u8]) {
        let [high, low] = (packet.len() as u16).to_be_bytes();
        self.send(&[&[b'$', channel, high, low], packet].concat());
    }

    /// Asks for something about a path and takes the answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> RtspResponse {
        let text = self.request(method, path, headers, body);
        self.send(text.as_bytes());
        let said = self.answer().expect("an answer");
        let number = self.number.to_string();
        assert_eq!(said.header("CSeq"), Some(number.as_str()), "{said:?}");
        if let Some(session) = said.header("Session") {
            self.session = session.split(';').next().map(str::to_owned);
        }
        said
    }

    /// The next request.
    pub fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> String {
        self.number += 1;
        let scheme = if self.tls.is_some() { "rtsps" } else { "rtsp" };
        let mut text = format!(
            "{method} {scheme}://{}/{path} RTSP/1.0\r\nCSeq: {}\r\n{headers}",
            self.address, self.number
        );
        if let Some(session) = &self.session {
            text += &format!("Session: {session}\r\n");
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text + &format!("\r\n{body}")
    }

    /// Keeps the session alive, without waiting for the answer.
    pub fn keep_alive(&mut self, path: &str) {
        let session = self.session.clone().unwrap_or_default();
        let text = format!(
            "GET_PARAMETER rtsp://{}/{path} RTSP/1.0\r\nCSeq: 0\r\nSession: {session}\r\n\r\n",
            self.address
        );
        self.send(text.as_bytes());
    }

    /// The next answer; `None`: the server has closed the connection. Packets before it are kept.
    pub fn answer(&mut self) -> Option<RtspResponse> {
        loop {
            if self.take_packet() {
                continue;
            }
            if let Some(said) = self.take_answer() {
                return Some(said);
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Reads until so many packets have come on a channel, or the server has closed the connection.
    pub fn packets_on(&mut self, channel: u8, count: usize) -> Vec<Vec<u8>> {
        loop {
            // Answers between them are to what nobody waits for.
            while self.take_packet() || self.take_answer().is_some() {}
            let on: Vec<Vec<u8>> = self
                .packets
                .iter()
                .filter(|(of, _)| *of == channel)
                .map(|(_, packet)| packet.clone())
                .collect();
            if on.len() >= count || !self.read() {
                return on;
            }
        }
    }

    /// The next packets that come, with their channels, as soon as there are some; none: the server has closed the
    /// connection.
    pub fn next_packets(&mut self) -> Vec<(u8, Vec<u8>)> {
        loop {
            while self.take_packet() || self.take_answer().is_some() {}
            if !self.packets.is_empty() || !self.read() {
                return std::mem::take(&mut self.packets);
            }
        }
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 65_536];
        let read = match &mut self.tls {
            None => self.socket.read(&mut bytes),
            Some(tls) => rustls::Stream::new(tls, &mut self.socket).read(&mut bytes),
        };
        match read {
            Ok(0) => false,
            Ok(count) => {
                self.bytes.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("the server says nothing: {error}"),
        }
    }

    fn take_packet(&mut self) -> bool {
        let [b'$', channel, high, low, rest @ ..] = self.bytes.as_slice() else {
            return false;
        };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        if rest.len() < len {
            return false;
        }
        self.packets.push((*channel, rest[..len].to_vec()));
        self.bytes.drain(..4 + len);
        true
    }

    fn take_answer(&mut self) -> Option<RtspResponse> {
        if self.bytes.first() == Some(&b'$') {
            return None;
        }
        let end = self.bytes.windows(4).position(|of| of == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        let said = RtspResponse {
            status: head.split(' ').nth(1)?.parse().ok()?,
            head,
            body: String::new(),
        };
        let len: usize = said
            .header("Content-Length")
            .map_or(0, |len| len.parse().expect("a length"));
        let body = self.bytes.get(end + 4..end + 4 + len)?;
        let body = String::from_utf8_lossy(body).into_owned();
        self.bytes.drain(..end + 4 + len);
        Some(RtspResponse { body, ..said })
    }
}

/// A description of one track, which needs so many kbit/s.
pub fn sdp(kbit: u64) -> String {
    format!(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
         m=audio 0 RTP/AVP 96\r\nb=AS:{kbit}\r\na=rtpmap:96 X-TEST/1000\r\na=control:one\r\n"
    )
}

/// An RTP packet.
pub fn rtp(sequence: u16, timestamp: u32, ssrc: u32, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, 96];
    packet.extend(sequence.to_be_bytes());
    packet.extend(timestamp.to_be_bytes());
    packet.extend(ssrc.to_be_bytes());
    packet.extend(body);
    packet
}

/// The first `count` packets that a player of `path` gets in the connection; `headers` are those of PLAY.
pub fn played(address: SocketAddr, path: &str, headers: &str, count: usize) -> Vec<Vec<u8>> {
    let mut client = Client::connect(address);
    client.ask("DESCRIBE", path, "", "").is(200);
    client
        .ask("SETUP", &format!("{path}/track0"), TCP, "")
        .is(200);
    client.ask("PLAY", path, headers, "").is(200);
    let packets = client.packets_on(0, count);
    client.ask("TEARDOWN", path, "", "").is(200);
    packets
}

/// Lines of a log that say this.
pub fn lines<'a>(log: &'a str, said: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(said)).collect()
}

/// The number with this name in a line of a log.
#[track_caller]
pub fn logged(line: &str, name: &str) -> u64 {
    let value = line.split(&format!(" {name}=")).nth(1);
    let value = value.and_then(|rest| rest.split(' ').next());
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name}: {line}"))
}

/// Number of reservations at the server.
pub fn reservations(site: &Site) -> usize {
    let (status, said) = call(site, "GET", "/v1/status", "");
    assert_eq!(status, 200, "{said}");
    said["streams"].as_array().map_or(0, Vec::len)
}

/// A sender report of a source: this timestamp is that time.
pub fn sender_report(ssrc: u32, ntp: u64, timestamp: u32) -> Vec<u8> {
    let mut packet = vec![0x80, 200, 0, 6];
    packet.extend(ssrc.to_be_bytes());
    packet.extend(ntp.to_be_bytes());
    packet.extend(timestamp.to_be_bytes());
    packet.extend([0; 8]);
    packet
}

/// A farewell of these sources, by one of them.
pub fn bye(of: &[u32]) -> Vec<u8> {
    let mut packet = vec![0x80, 201, 0, 1];
    packet.extend(of[0].to_be_bytes());
    packet.extend([0x80 | of.len() as u8, 203, 0, of.len() as u8]);
    packet.extend(of.iter().flat_map(|ssrc| ssrc.to_be_bytes()));
    packet
}

/// The numbers of a receiver report's only block, from its source on.
pub fn block_of(report: &[u8]) -> [u32; 6] {
    assert_eq!(report[..2], [0x81, 201], "a receiver report with a block");
    std::array::from_fn(|number| {
        let at = 8 + 4 * number;
        u32::from_be_bytes(report[at..at + 4].try_into().expect("four"))
    })
}
