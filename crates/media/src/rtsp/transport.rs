//! Transports of tracks: interleaved with the messages of the connection, or UDP.

mod header;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::{io, iter};

use rtsp_types::headers::transport::{
    RtpLowerTransport, RtpProfile, RtpTransport, RtpTransportParameters,
    Transport as RequestedTransport, TransportMode,
};
use rustix::net::sockopt;

use crate::rtp::datagram;
use crate::rtsp::poll::Wait;
pub(crate) use header::transports;

/// Attempts to find a pair of UDP ports.
const PORT_TRIES: usize = 64;

/// The receive buffer of a track that is recorded by UDP.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Datagrams of a player that are received from one socket at a time.
const HEARD_AT_A_TIME: usize = 64;

/// The transport of a track.
#[derive(Debug)]
pub(crate) enum Transport {
    /// In the connection, on these channels (RFC 2326, section 10.12).
    Interleaved {
        /// The channel of RTP.
        rtp: u8,
        /// The channel of RTCP.
        rtcp: u8,
    },
    /// By UDP.
    Udp {
        /// The socket of RTP, connected to the peer: it receives from no other address.
        rtp: UdpSocket,
        /// The socket of RTCP, connected to the peer.
        rtcp: UdpSocket,
        /// The peer's ports of RTP and RTCP.
        peer: (u16, u16),
    },
}

/// Why a transport is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    /// None of the requested ones is supported.
    #[error(
        "only RTP/AVP over UDP unicast and RTP/AVP/TCP interleaved in the connection are supported"
    )]
    Unsupported,
    /// Packets would not be encrypted.
    #[error(
        "packets over UDP would not be encrypted: with rtsps, request RTP/AVP/TCP interleaved in the connection"
    )]
    Open,
    /// The host has no ports left.
    #[error("no pair of UDP ports is free: {0}")]
    Ports(io::Error),
}

impl Transport {
    /// The first of the requested transports that is supported. `number` is that of the track, and `taken` are the
    /// transports of the other tracks. With `is_secure` UDP is refused, as it is not encrypted.
    ///
    /// Channels that are equal or taken are replaced by free ones.
    ///
    /// # Errors
    /// When none of them is possible.
    pub(crate) fn choose(
        asked: &[RequestedTransport],
        local: IpAddr,
        peer: IpAddr,
        number: usize,
        taken: &[Option<Self>],
        is_secure: bool,
    ) -> Result<Self, TransportError> {
        let mut unsupported = TransportError::Unsupported;
        for one in asked {
            let RequestedTransport::Rtp(one) = one else {
                continue;
            };
            if one.profile != RtpProfile::Avp || one.params.multicast {
                continue;
            }
            match one.lower_transport {
                Some(RtpLowerTransport::Tcp) => {
                    let default = (2 * number) as u8;
                    let (rtp, rtcp) = one.params.interleaved.unwrap_or((default, None));
                    let wanted = (rtp, rtcp.unwrap_or(rtp.wrapping_add(1)));
                    if let Some((rtp, rtcp)) = Self::free_channels(wanted, taken) {
                        return Ok(Self::Interleaved { rtp, rtcp });
                    }
                }
                None | Some(RtpLowerTransport::Udp) if is_secure => {
                    unsupported = TransportError::Open;
                }
                None | Some(RtpLowerTransport::Udp) => {
                    let Some((first, second)) = one.params.client_port else {
                        continue;
                    };
                    let ports = (first, second.unwrap_or(first.wrapping_add(1)));
                    if ports.0 == 0 || ports.1 == 0 || ports.0 == ports.1 {
                        continue;
                    }
                    return Self::udp(local, peer, ports).map_err(TransportError::Ports);
                }
                Some(RtpLowerTransport::Other(_)) => {}
            }
        }
        Err(unsupported)
    }

    /// These channels if they are free, or the first two free ones.
    pub(crate) fn free_channels(wanted: (u8, u8), taken: &[Option<Self>]) -> Option<(u8, u8)> {
        let evens = (0..u8::MAX).step_by(2);
        iter::once(wanted)
            .chain(evens.map(|even| (even, even + 1)))
            .find(|pair| are_free(*pair, taken))
    }

    /// Receives datagrams of a player, which only show that it is there; returns true if there was one. Those that
    /// are left wake the caller again.
    pub(crate) fn take_keepalives(&self) -> bool {
        let Self::Udp { rtp, rtcp, .. } = self else {
            return false;
        };
        let mut scratch = [0; 2_048];
        let mut has_any = false;
        for socket in [rtp, rtcp] {
            let received = (0..HEARD_AT_A_TIME).take_while(|_| socket.recv(&mut scratch).is_ok());
            has_any |= received.count() > 0;
        }
        has_any
    }

    /// Waits for datagrams.
    pub(crate) fn hear<'a, T: Copy>(&'a self, wait: &mut Wait<'a, T>, event: T) {
        if let Self::Udp { rtp, rtcp, .. } = self {
            wait.readable(rtp.as_fd(), event);
            wait.readable(rtcp.as_fd(), event);
        }
    }

    /// A pair of ports, connected to those of the peer.
    fn udp(local: IpAddr, peer: IpAddr, ports: (u16, u16)) -> io::Result<Self> {
        Self::connected(Self::pair(local)?, peer, ports)
    }

    /// An even port and the next one.
    ///
    /// # Errors
    /// When there are none.
    pub(crate) fn pair(local: IpAddr) -> io::Result<(UdpSocket, UdpSocket)> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        // Unusable ports stay bound until there is a pair, or the kernel would choose them again.
        let mut odd = Vec::new();
        for _ in 0..PORT_TRIES {
            let rtp = UdpSocket::bind((local, 0))?;
            let port = rtp.local_addr()?.port();
            if port % 2 == 1 || port == u16::MAX {
                odd.push(rtp);
                continue;
            }
            match UdpSocket::bind((local, port + 1)) {
                Ok(rtcp) => return Ok((rtp, rtcp)),
                Err(error) => {
                    last = error;
                    odd.push(rtp);
                }
            }
        }
        Err(last)
    }

    /// Connects a pair of sockets to the peer's ports: they receive from no other ones. With port 0 they receive
    /// from all ports of the peer, and send nothing.
    ///
    /// # Errors
    /// When the peer cannot be reached.
    pub(crate) fn connected(
        (rtp, rtcp): (UdpSocket, UdpSocket),
        peer: IpAddr,
        ports: (u16, u16),
    ) -> io::Result<Self> {
        for (socket, port) in [(&rtp, ports.0), (&rtcp, ports.1)] {
            socket.connect(SocketAddr::new(peer, port))?;
            socket.set_nonblocking(true)?;
            // Discards datagrams from other addresses that arrived before.
            while socket.recv(&mut [0; 1]).is_ok() {}
        }
        datagram::count_dropped(&rtp)?;
        Ok(Self::Udp {
            rtp,
            rtcp,
            peer: ports,
        })
    }

    /// Enlarges the receive buffer when recording begins. A session that is only set up uses no memory of the host
    /// for that.
    pub(crate) fn widen(&self) {
        let Self::Udp { rtp, .. } = self else { return };
        // Only root may exceed the limit of the host; a smaller buffer is no reason not to record.
        if sockopt::set_socket_recv_buffer_size_force(rtp, RECEIVE_BUFFER_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(rtp, RECEIVE_BUFFER_BYTES);
        }
    }

    /// Sends an empty RTP packet and an empty receiver report, as other clients do, so that firewalls and address
    /// translators let packets from the peer through. A lost one does no harm.
    pub(crate) fn open_ways(&self) {
        let Self::Udp { rtp, rtcp, .. } = self else {
            return;
        };
        let _ = rtp.send(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let _ = rtcp.send(&[0x80, 201, 0, 1, 0, 0, 0, 0]);
    }

    /// Discards packets that have arrived while nothing was recorded.
    pub(crate) fn forget(&self) {
        if let Self::Udp { rtp, rtcp, .. } = self {
            for socket in [rtp, rtcp] {
                // Bounded, as the peer may go on sending.
                (0..RECEIVE_BUFFER_BYTES).find(|_| socket.recv(&mut [0; 1]).is_err());
            }
        }
    }

    /// Its description in the reply to SETUP.
    ///
    /// # Errors
    /// When a socket has lost its address.
    pub(crate) fn answer(&self, records: bool) -> io::Result<RequestedTransport> {
        let mut params = RtpTransportParameters {
            unicast: true,
            ..RtpTransportParameters::default()
        };
        if records {
            params.mode = vec![TransportMode::Record];
        }
        let lower = match self {
            Self::Interleaved { rtp, rtcp } => {
                params.interleaved = Some((*rtp, Some(*rtcp)));
                RtpLowerTransport::Tcp
            }
            Self::Udp { rtp, rtcp, peer } => {
                params.client_port = Some((peer.0, Some(peer.1)));
                let ports = (rtp.local_addr()?.port(), rtcp.local_addr()?.port());
                params.server_port = Some((ports.0, Some(ports.1)));
                RtpLowerTransport::Udp
            }
        };
        Ok(RequestedTransport::Rtp(RtpTransport {
            profile: RtpProfile::Avp,
            lower_transport: Some(lower),
            params,
        }))
    }
}

/// True if these are two channels that no track has.
pub(crate) fn are_free((rtp, rtcp): (u8, u8), taken: &[Option<Transport>]) -> bool {
    let is_free = |channel: u8| {
        taken.iter().flatten().all(|of| match of {
            Transport::Interleaved { rtp, rtcp } => ![*rtp, *rtcp].contains(&channel),
            Transport::Udp { .. } => true,
        })
    };
    rtp != rtcp && is_free(rtp) && is_free(rtcp)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn choose(header: &str) -> Result<Transport, TransportError> {
        choose_of(header, false)
    }

    fn choose_of(header: &str, is_secure: bool) -> Result<Transport, TransportError> {
        choose_beside(header, &[], is_secure)
    }

    fn choose_beside(
        header: &str,
        taken: &[Option<Transport>],
        is_secure: bool,
    ) -> Result<Transport, TransportError> {
        let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let asked = transports(header).unwrap();
        Transport::choose(&asked, home, home, 1, taken, is_secure)
    }

    /// Packets of two tracks, or of RTP and RTCP, on one channel could not be distinguished.
    #[test]
    fn taken_channels_are_replaced_by_free_ones() {
        let of = |channels: &str| {
            let taken =
                [(0, 1), (2, 4)].map(|(rtp, rtcp)| Some(Transport::Interleaved { rtp, rtcp }));
            let chosen = choose_beside(&format!("RTP/AVP/TCP;unicast{channels}"), &taken, false);
            match chosen {
                Ok(Transport::Interleaved { rtp, rtcp }) => (rtp, rtcp),
                other => panic!("{channels}: {other:?}"),
            }
        };
        for (channels, chosen) in [
            (";interleaved=8-9", (8, 9)),
            (";interleaved=9-8", (9, 8)),
            (";interleaved=7", (7, 8)),
            (";interleaved=0-1", (6, 7)),
            (";interleaved=1-2", (6, 7)),
            (";interleaved=3-4", (6, 7)),
            (";interleaved=8-8", (6, 7)),
            (";interleaved=255", (6, 7)),
            // The default for the track's number.
            ("", (6, 7)),
        ] {
            assert_eq!(of(channels), chosen, "{channels}");
        }
    }

    #[test]
    fn first_supported_transport_is_chosen() {
        let chosen = choose("RTP/SAVP;unicast;client_port=6-7,RTP/AVP/TCP;unicast;interleaved=4-5");
        assert!(matches!(
            chosen,
            Ok(Transport::Interleaved { rtp: 4, rtcp: 5 })
        ));
        let chosen = choose("RTP/AVP/TCP;unicast;mode=record");
        assert!(matches!(
            chosen,
            Ok(Transport::Interleaved { rtp: 2, rtcp: 3 })
        ));
        let Ok(Transport::Udp { rtp, rtcp, peer }) =
            choose("RTP/AVP;unicast;client_port=5000-5001")
        else {
            panic!("UDP can be had");
        };
        let port = rtp.local_addr().unwrap().port();
        assert_eq!((port % 2, rtcp.local_addr().unwrap().port()), (0, port + 1));
        assert_eq!(
            (peer, rtp.peer_addr().unwrap().port()),
            ((5_000, 5_001), 5_000)
        );
        for header in [
            "RTP/AVP;multicast;port=5000-5001",
            "RTP/AVP;unicast",
            "RTP/AVP;unicast;client_port=0-1",
            "RTP/AVP;unicast;client_port=65535",
            "RTP/AVP;unicast;client_port=5000-5000",
            "RTP/SAVP/TCP;unicast",
        ] {
            assert!(
                matches!(choose(header), Err(TransportError::Unsupported)),
                "{header}"
            );
        }
    }

    #[test]
    fn udp_is_refused_over_tls() {
        let udp = "RTP/AVP;unicast;client_port=5000-5001";
        let error = choose_of(udp, true).unwrap_err();
        assert!(matches!(error, TransportError::Open), "{error:?}");
        let both = format!("{udp},RTP/AVP/TCP;unicast");
        let chosen = choose_of(&both, true);
        assert!(matches!(chosen, Ok(Transport::Interleaved { .. })));
    }
}
