//! A track's packets by UDP.

use std::net::{SocketAddr, UdpSocket};

use rustix::net::sockopt;

use super::{Client, RtspResponse, SDP_TYPE, TCP, sdp};
use crate::process::WITHIN;

/// Two ports of ours in a row, for packets and for reports of them.
pub struct Pair {
    rtp: UdpSocket,
    rtcp: UdpSocket,
}

impl Pair {
    pub fn new() -> Self {
        let near = |port: u16| UdpSocket::bind(("127.0.0.1", port));
        let pair = (0..100).find_map(|_| {
            let rtp = near(0).ok()?;
            let port = rtp.local_addr().ok()?.port();
            Some((rtp, near(port.checked_add(1)?).ok()?))
        });
        let (rtp, rtcp) = pair.expect("two ports in a row");
        // Nothing is lost as a test does not run for a while.
        if sockopt::set_socket_recv_buffer_size_force(&rtp, 8 << 20).is_err() {
            sockopt::set_socket_recv_buffer_size(&rtp, 8 << 20).expect("a size");
        }
        rtp.set_read_timeout(Some(WITHIN)).expect("a time");
        Self { rtp, rtcp }
    }

    /// Transport header of SETUP.
    pub fn transport(&self) -> String {
        let [rtp, rtcp] =
            [&self.rtp, &self.rtcp].map(|of| of.local_addr().expect("it is bound").port());
        format!("Transport: RTP/AVP;unicast;client_port={rtp}-{rtcp}\r\n")
    }

    /// Takes the answer to SETUP: from here on both ends know each other.
    pub fn agreed(&self, server: SocketAddr, said: &RtspResponse) {
        let ports = said
            .header("Transport")
            .and_then(|of| of.split("server_port=").nth(1));
        let ports = ports.and_then(|of| of.split(';').next()?.split_once('-'));
        let (rtp, rtcp) = ports.unwrap_or_else(|| panic!("{said:?}"));
        for (socket, port) in [(&self.rtp, rtp), (&self.rtcp, rtcp)] {
            let port: u16 = port.parse().expect("a port");
            socket.connect((server.ip(), port)).expect("an address");
        }
    }

    /// Tells who sends us reports that a firewall lets none in (ICMP, code 10), as root.
    pub fn prohibit(&self) {
        use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
        let icmp = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
        let icmp = icmp.expect("a raw socket");
        let port = |of: std::io::Result<SocketAddr>| of.expect("it is connected").port();
        let (from, to) = (port(self.rtcp.peer_addr()), port(self.rtcp.local_addr()));
        // The report that was sent, as far as its ports.
        let mut message = vec![3, 10, 0, 0, 0, 0, 0, 0];
        message.extend([0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0]);
        message.extend([127, 0, 0, 1, 127, 0, 0, 1]);
        message.extend(from.to_be_bytes());
        message.extend(to.to_be_bytes());
        message.extend([0, 16, 0, 0]);
        let words = message
            .chunks(2)
            .map(|of| u32::from(of[0]) << 8 | u32::from(of[1]));
        let sum: u32 = words.sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let host: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let sent = sendto(&icmp, &message, SendFlags::empty(), &host);
        assert_eq!(sent.expect("it is sent"), message.len());
    }

    /// Sends a report.
    pub fn report(&self, packet: &[u8]) {
        self.rtcp.send(packet).expect("it is sent");
    }

    pub fn send(&self, packet: &[u8]) {
        self.rtp.send(packet).expect("it is sent");
    }

    /// Sockets of packets and of reports.
    pub fn sockets(&self) -> [&UdpSocket; 2] {
        [&self.rtp, &self.rtcp]
    }

    /// The next packet, into `bytes`; `None`: nothing comes within `wait`.
    pub fn receive<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let count = self.rtp.recv(bytes).ok()?;
        Some(&bytes[..count])
    }

    /// Waits no longer than this for a packet.
    pub fn wait_at_most(&self, wait: std::time::Duration) {
        self.rtp.set_read_timeout(Some(wait)).expect("a time");
    }
}

/// A publisher to `cam`, in its connection or by UDP.
pub struct Publisher {
    pub client: Client,
    pair: Option<Pair>,
}

impl Publisher {
    pub fn new(address: SocketAddr, kbit: u64, by_udp: bool) -> Self {
        let pair = by_udp.then(Pair::new);
        let transport = pair.as_ref().map_or(TCP.to_owned(), Pair::transport);
        let mut client = Client::connect(address);
        client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(kbit)).is(200);
        let said = client.ask("SETUP", "cam/one", &transport, "").is(200);
        if let Some(pair) = &pair {
            pair.agreed(address, &said);
        }
        client.ask("RECORD", "cam", "", "").is(200);
        Self { client, pair }
    }

    pub fn packet(&mut self, packet: &[u8]) {
        match &self.pair {
            Some(pair) => pair.send(packet),
            None => self.client.packet(0, packet),
        }
    }

    /// As [`Pair::prohibit`], of one by UDP.
    pub fn prohibit(&self) {
        self.pair.as_ref().expect("it is by UDP").prohibit();
    }
}
