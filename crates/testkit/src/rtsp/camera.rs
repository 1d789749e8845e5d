//! A camera that does what a test says: each request is seen, and answered well or badly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

use md5::{Digest, Md5};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use sha2::Sha256;

use crate::process::WITHIN;

/// A report of nobody, which firewalls on the way take for the beginning of something.
pub const OPENS: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 0];

/// A camera that is switched on.
pub struct Camera {
    listener: TcpListener,
}

impl Camera {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Self { listener }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it is bound")
    }

    /// Its URL for somebody.
    pub fn url(&self, who: &str) -> String {
        format!("rtsp://{who}{}/live?channel=1", self.address())
    }

    /// Says to the next one that what it asks for is elsewhere, as far as these headers tell where.
    #[track_caller]
    pub fn moves(&self, status: &str, headers: &str) {
        let mut visit = self.visit();
        let wanted = visit.wants("OPTIONS");
        visit.does(&wanted, "");
        let wanted = visit.wants("DESCRIBE");
        visit.answer(&wanted, status, headers, "");
        visit.is_left();
    }

    /// The next one that connects.
    #[track_caller]
    pub fn visit(&self) -> CameraConnection {
        let until = Instant::now() + WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = left.try_into().expect("a time that can be waited");
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => panic!("nobody connects to the camera"),
                Ok(_) => break,
                Err(error) => assert_eq!(error, rustix::io::Errno::INTR),
            }
        }
        let (socket, _) = self.listener.accept().expect("somebody connects");
        socket.set_read_timeout(Some(WITHIN)).expect("a time");
        CameraConnection {
            socket,
            bytes: Vec::new(),
            udp: None,
            rtcp: None,
            reports: Vec::new(),
            setups: 0,
            named: String::new(),
            says_numbers: true,
            number: None,
            base: None,
            can: "OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER, TEARDOWN".to_owned(),
            ports: None,
            cannot: String::new(),
        }
    }
}

/// A request.
#[derive(Debug)]
pub struct CameraRequest {
    pub method: String,
    pub uri: String,
    pub head: String,
}

impl CameraRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// A field of the Authorization header.
    pub fn login(&self, name: &str) -> Option<&str> {
        let login = self.header("Authorization")?.strip_prefix("Digest ")?;
        let parts = login
            .split(',')
            .filter_map(|part| part.trim().split_once('='));
        let mut values = parts.filter(|(key, _)| *key == name);
        values.next().map(|(_, value)| value.trim_matches('"'))
    }

    /// True if the sender knows the password, as RFC 2069, 2617 and 7616 compute it.
    pub fn is_by(&self, user: &str, password: &str) -> bool {
        let said = |name| self.login(name).unwrap_or_default();
        let hash = |text: String| match said("algorithm") {
            "SHA-256" => hex(&Sha256::digest(text)),
            _ => hex(&Md5::digest(text)),
        };
        let who = hash(format!("{user}:{}:{password}", said("realm")));
        let what = hash(format!("{}:{}", self.method, said("uri")));
        let response = match self.login("qop") {
            None => hash(format!("{who}:{}:{what}", said("nonce"))),
            Some(qop) => hash(format!(
                "{who}:{}:{}:{}:{qop}:{what}",
                said("nonce"),
                said("nc"),
                said("cnonce")
            )),
        };
        said("username") == user && said("uri") == self.uri && said("response") == response
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Somebody who is connected to a camera.
pub struct CameraConnection {
    pub socket: TcpStream,
    bytes: Vec<u8>,
    /// Destination of packets outside the connection, and the camera's socket for them.
    udp: Option<(UdpSocket, u16)>,
    /// Socket for reports of them.
    pub rtcp: Option<UdpSocket>,
    /// Reports in the connection.
    reports: Vec<Vec<u8>>,
    setups: u32,
    /// Additions to each Transport header.
    pub named: String,
    /// True if its answers have a CSeq.
    pub says_numbers: bool,
    /// The number that it says of each, if not the right one.
    pub number: Option<u32>,
    /// Base of its tracks, if not the requested URL.
    pub base: Option<String>,
    /// Value of its Public header.
    pub can: String,
    /// Its statement about server ports, if not the true one.
    pub ports: Option<String>,
    /// A word of the transports that it does not have.
    pub cannot: String,
}

impl CameraConnection {
    /// The next request; `None`: whoever it was has gone.
    pub fn wanted(&mut self) -> Option<CameraRequest> {
        loop {
            while self.take_report() {}
            if let Some(end) = self.bytes.windows(4).position(|of| of == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
                self.bytes.drain(..end + 4);
                let mut words = head.split(' ');
                let method = words.next().expect("a method").to_owned();
                let uri = words.next().expect("a URI").to_owned();
                return Some(CameraRequest { method, uri, head });
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Reads from the connection; true if something came.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        match self.socket.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.bytes.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing is asked: {error}"),
        }
    }

    fn take_report(&mut self) -> bool {
        let [b'$', channel, high, low, rest @ ..] = self.bytes.as_slice() else {
            return false;
        };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(report) = rest.get(..len) else {
            return false;
        };
        assert_eq!(*channel, 1, "what is told is a report of the first track");
        self.reports.push(report.to_vec());
        self.bytes.drain(..4 + len);
        true
    }

    /// The next report of its packets. Requests that come before are answered as by a healthy camera.
    #[track_caller]
    pub fn told(&mut self) -> Vec<u8> {
        while let Some(rtcp) = &self.rtcp {
            let mut fds = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(rtcp, PollFlags::IN),
            ];
            let left = WITHIN.try_into().expect("a time that can be waited");
            let found = match self.bytes.is_empty() {
                true => poll(&mut fds, Some(&left)).expect("it is waited for"),
                false => 0,
            };
            if found > 0 && !fds[1].revents().is_empty() {
                let mut report = [0; 1_500];
                let count = rtcp.recv(&mut report).expect("a report");
                // A packet that opens a firewall is no report.
                if report[..count] == OPENS {
                    continue;
                }
                return report[..count].to_vec();
            }
            assert!(found > 0 || !self.bytes.is_empty(), "no report comes");
            let wanted = self.wanted().expect("a whole request");
            self.does(&wanted, "");
        }
        loop {
            if self.take_report() {
                return self.reports.remove(0);
            }
            if self.bytes.is_empty() || self.bytes[0] == b'$' {
                assert!(self.read(), "the connection is closed before a report");
            } else {
                let wanted = self.wanted().expect("a whole request");
                self.does(&wanted, "");
            }
        }
    }

    /// Waits for what comes to where it sends from, before it has sent anything.
    #[track_caller]
    pub fn opened(&self) -> [Vec<u8>; 2] {
        let (rtp, rtcp) = (self.udp.as_ref().map(|(rtp, _)| rtp), self.rtcp.as_ref());
        [rtp, rtcp].map(|socket| {
            let socket = socket.expect("it sends by UDP");
            socket.set_read_timeout(Some(WITHIN)).expect("a time");
            let mut bytes = [0; 1_500];
            let count = socket.recv(&mut bytes).expect("something comes");
            bytes[..count].to_vec()
        })
    }

    /// The next request, which is this one.
    #[track_caller]
    pub fn wants(&mut self, method: &str) -> CameraRequest {
        let wanted = self.wanted();
        let wanted = wanted.unwrap_or_else(|| panic!("no {method}: the connection is closed"));
        assert_eq!(wanted.method, method, "{wanted:?}");
        wanted
    }

    /// The answer to what it has asked itself, with its status as the URI; what is asked before is answered
    /// as by one that is well.
    #[track_caller]
    pub fn is_answered(&mut self) -> CameraRequest {
        loop {
            let wanted = self.wanted().expect("an answer");
            if wanted.method == "RTSP/1.0" {
                return wanted;
            }
            self.does(&wanted, "");
        }
    }

    /// Waits until the other side has gone; it may say good-bye before.
    #[track_caller]
    pub fn is_left(&mut self) {
        while let Some(wanted) = self.wanted() {
            assert_eq!(wanted.method, "TEARDOWN", "{wanted:?}");
        }
    }

    /// Sends bytes as they are, whether they are taken or not.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Goes without a word, as one whose power fails.
    pub fn reset(self) {
        let at_once = Some(std::time::Duration::ZERO);
        sockopt::set_socket_linger(&self.socket, at_once).expect("it can be reset");
    }

    pub fn answer(&mut self, to: &CameraRequest, status: &str, headers: &str, body: &str) {
        let asked = to.header("CSeq").expect("a number").to_owned();
        let number = self.number.map_or(asked, |number| number.to_string());
        let number = match self.says_numbers {
            true => format!("CSeq: {number}\r\n"),
            false => String::new(),
        };
        let text = format!(
            "RTSP/1.0 {status}\r\n{number}{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send(text.as_bytes());
    }

    /// Answers whatever comes as a camera does that is well, up to PLAY, whose request it returns.
    #[track_caller]
    pub fn plays(&mut self, sdp: &str) -> CameraRequest {
        let wanted = self.is_asked_to_play(sdp);
        self.does(&wanted, sdp);
        wanted
    }

    /// As [`CameraConnection::plays`], with PLAY still unanswered.
    #[track_caller]
    pub fn is_asked_to_play(&mut self, sdp: &str) -> CameraRequest {
        loop {
            let wanted = self.wanted().expect("it goes on up to PLAY");
            if wanted.method == "PLAY" {
                return wanted;
            }
            self.does(&wanted, sdp);
        }
    }

    /// Answers a request as a camera does that is well.
    #[track_caller]
    pub fn does(&mut self, wanted: &CameraRequest, sdp: &str) {
        let session = "Session: 12345678;timeout=2\r\n";
        match wanted.method.as_str() {
            "OPTIONS" => {
                let can = format!("Public: {}\r\n", self.can);
                self.answer(wanted, "200 OK", &can, "");
            }
            "DESCRIBE" => {
                let asked = format!("{}/", wanted.uri);
                let base = self.base.as_ref().unwrap_or(&asked);
                let kind = format!("Content-Type: application/sdp\r\nContent-Base: {base}\r\n");
                self.answer(wanted, "200 OK", &kind, sdp);
            }
            "SETUP" if !self.cannot.is_empty() && wanted.head.contains(&self.cannot) => {
                self.answer(wanted, "461 Unsupported Transport", "", "");
            }
            "SETUP" => {
                let transport = self.transport(wanted) + &self.named;
                let headers = format!("Transport: {transport}\r\n{session}");
                self.answer(wanted, "200 OK", &headers, "");
            }
            "PLAY" | "GET_PARAMETER" | "TEARDOWN" => {
                assert_eq!(wanted.header("Session"), Some("12345678"), "{wanted:?}");
                self.answer(wanted, "200 OK", session, "");
            }
            _ => self.answer(wanted, "501 Not Implemented", "", ""),
        }
    }

    fn transport(&mut self, wanted: &CameraRequest) -> String {
        self.setups += 1;
        let asked = wanted.header("Transport").expect("a transport");
        let Some((_, ports)) = asked.split_once("client_port=") else {
            assert!(asked.starts_with("RTP/AVP/TCP;"), "{asked}");
            return asked.to_owned();
        };
        let (rtp, _) = ports.split_once('-').expect("two ports");
        let (socket, rtcp, port) = loop {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            let port = socket.local_addr().expect("it is bound").port();
            if let Some(next) = port.checked_add(1)
                && let Ok(rtcp) = UdpSocket::bind(("127.0.0.1", next))
            {
                break (socket, rtcp, port);
            }
        };
        rtcp.set_read_timeout(Some(WITHIN)).expect("a time");
        self.rtcp = Some(rtcp);
        self.udp = Some((socket, rtp.parse().expect("a port")));
        match &self.ports {
            Some(said) => format!("{asked}{said}"),
            None => format!("{asked};server_port={port}-{}", port.wrapping_add(1)),
        }
    }

    /// Sends a report of the first track, the way that was agreed on.
    pub fn report(&mut self, report: &[u8]) {
        match (&self.rtcp, &self.udp) {
            (Some(rtcp), Some((_, port))) => {
                let sent = rtcp.send_to(report, ("127.0.0.1", port + 1));
                sent.expect("it is sent");
            }
            _ => {
                let [high, low] = (report.len() as u16).to_be_bytes();
                self.send(&[&[b'$', 1, high, low], report].concat());
            }
        }
    }

    /// Sends a packet of the first track, the way that was agreed on.
    pub fn packet(&mut self, packet: &[u8]) {
        match &self.udp {
            Some((socket, port)) => {
                socket
                    .send_to(packet, ("127.0.0.1", *port))
                    .expect("it is sent");
            }
            None => {
                let [high, low] = (packet.len() as u16).to_be_bytes();
                self.send(&[&[b'$', 0, high, low], packet].concat());
            }
        }
    }
}
