//! How a track's packets go: between the messages of the connection, or by UDP.

mod header;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::{io, iter};

use rtsp_types::headers::transport::{
    RtpLowerTransport, RtpProfile, RtpTransport, RtpTransportParameters, Transport as Asked,
    TransportMode,
};
use rustix::net::sockopt;

use crate::rtp::datagram;
use crate::rtsp::poll::Wait;
pub(crate) use header::transports;

/// How often ports are asked for before there are none.
const PORT_TRIES: usize = 64;

/// What the kernel keeps of a track's packets while its thread does something else.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// So many datagrams of somebody who plays are taken in before others have their turn.
const HEARD_AT_A_TIME: usize = 64;

/// How a track's packets go.
#[derive(Debug)]
pub(crate) enum Transport {
    /// In the connection, on these channels.
    Interleaved {
        /// Of RTP.
        rtp: u8,
        /// Of RTCP.
        rtcp: u8,
    },
    /// By UDP.
    Udp {
        /// For RTP, connected to its peer: nothing of others comes.
        rtp: UdpSocket,
        /// For RTCP.
        rtcp: UdpSocket,
        /// The ports of the peer.
        peer: (u16, u16),
    },
}

/// Why there is no transport.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    /// None of those that were named is known.
    #[error("RTP/AVP over UDP unicast and RTP/AVP/TCP in the connection are what there is")]
    Unsupported,
    /// It would be open to everybody.
    #[error(
        "by UDP packets would not be encrypted: with rtsps ask for RTP/AVP/TCP in the connection"
    )]
    Open,
    /// The host has no ports left.
    #[error("no pair of UDP ports could be had: {0}")]
    Ports(io::Error),
}

impl Transport {
    /// The first of those that are asked for that can be had; `number` is that of the track, and `taken` what the others have.
    /// With `is_secure` nothing goes by UDP: it would be for everybody to see.
    ///
    /// Channels that are one, or another track's, are others in the answer.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn choose(
        asked: &[Asked],
        local: IpAddr,
        peer: IpAddr,
        number: usize,
        taken: &[Option<Self>],
        is_secure: bool,
    ) -> Result<Self, TransportError> {
        let mut unsupported = TransportError::Unsupported;
        for one in asked {
            let Asked::Rtp(one) = one else { continue };
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

    /// These channels, or the first two that are nobody's.
    pub(crate) fn free_channels(wanted: (u8, u8), taken: &[Option<Self>]) -> Option<(u8, u8)> {
        let evens = (0..u8::MAX).step_by(2);
        iter::once(wanted)
            .chain(evens.map(|even| (even, even + 1)))
            .find(|pair| are_free(*pair, taken))
    }

    /// Takes in what somebody who plays by UDP says, which is that it is there; whether it has said anything. What is left
    /// of much wakes again.
    pub(crate) fn has_said(&self) -> bool {
        let Self::Udp { rtp, rtcp, .. } = self else {
            return false;
        };
        let mut scratch = [0; 2_048];
        let mut has_said = false;
        for socket in [rtp, rtcp] {
            let came = (0..HEARD_AT_A_TIME).take_while(|_| socket.recv(&mut scratch).is_ok());
            has_said |= came.count() > 0;
        }
        has_said
    }

    /// Has it wake whoever waits with what comes by UDP.
    pub(crate) fn hear<'a, T: Copy>(&'a self, wait: &mut Wait<'a, T>, wakes: T) {
        if let Self::Udp { rtp, rtcp, .. } = self {
            wait.readable(rtp.as_fd(), wakes);
            wait.readable(rtcp.as_fd(), wakes);
        }
    }

    /// An even port and the next one, connected to those of the peer.
    fn udp(local: IpAddr, peer: IpAddr, ports: (u16, u16)) -> io::Result<Self> {
        Self::connected(Self::pair(local)?, peer, ports)
    }

    /// An even port and the next one.
    ///
    /// # Errors
    /// When there are none.
    pub(crate) fn pair(local: IpAddr) -> io::Result<(UdpSocket, UdpSocket)> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        // What is of no use is kept until there is a pair, or it would be given out again.
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

    /// A pair of ports that only the peer's are heard at; of a port that is 0, all of the peer's are, and nothing is said there.
    ///
    /// # Errors
    /// When there is no way there.
    pub(crate) fn connected(
        (rtp, rtcp): (UdpSocket, UdpSocket),
        peer: IpAddr,
        ports: (u16, u16),
    ) -> io::Result<Self> {
        for (socket, port) in [(&rtp, ports.0), (&rtcp, ports.1)] {
            socket.connect(SocketAddr::new(peer, port))?;
            socket.set_nonblocking(true)?;
            // What somebody else has sent before.
            while socket.recv(&mut [0; 1]).is_ok() {}
        }
        datagram::count_dropped(&rtp)?;
        Ok(Self::Udp {
            rtp,
            rtcp,
            peer: ports,
        })
    }

    /// Much may wait in it from now on: it is recorded. Who has only set up takes none of the host's memory for that.
    pub(crate) fn widen(&self) {
        let Self::Udp { rtp, .. } = self else { return };
        // More than the host allows is for root; cut down to that it is no reason not to record.
        if sockopt::set_socket_recv_buffer_size_force(rtp, RECEIVE_BUFFER_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(rtp, RECEIVE_BUFFER_BYTES);
        }
    }

    /// Has firewalls and address translators on the way let what comes back through, as other clients do: a packet of nothing,
    /// and a report of nothing. One that is lost is no harm that was not there before.
    pub(crate) fn open_ways(&self) {
        let Self::Udp { rtp, rtcp, .. } = self else {
            return;
        };
        let _ = rtp.send(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let _ = rtcp.send(&[0x80, 201, 0, 1, 0, 0, 0, 0]);
    }

    /// Leaves what has come while nobody recorded.
    pub(crate) fn forget(&self) {
        if let Self::Udp { rtp, rtcp, .. } = self {
            for socket in [rtp, rtcp] {
                // No more than fits there: somebody may go on sending.
                (0..RECEIVE_BUFFER_BYTES).find(|_| socket.recv(&mut [0; 1]).is_err());
            }
        }
    }

    /// What the answer says of it.
    ///
    /// # Errors
    /// When a socket has lost its address.
    pub(crate) fn answer(&self, records: bool) -> io::Result<Asked> {
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
        Ok(Asked::Rtp(RtpTransport {
            profile: RtpProfile::Avp,
            lower_transport: Some(lower),
            params,
        }))
    }
}

/// Whether these are two channels, and nobody else's.
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

    /// Packets of two tracks on one channel could not be told apart, nor those of RTP and RTCP.
    #[test]
    fn channels_that_mean_something_already_are_others() {
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
            // That of its number.
            ("", (6, 7)),
        ] {
            assert_eq!(of(channels), chosen, "{channels}");
        }
    }

    #[test]
    fn the_first_that_can_be_had_is_taken() {
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
    fn with_tls_nothing_goes_by_udp() {
        let udp = "RTP/AVP;unicast;client_port=5000-5001";
        let error = choose_of(udp, true).unwrap_err();
        assert!(matches!(error, TransportError::Open), "{error:?}");
        let both = format!("{udp},RTP/AVP/TCP;unicast");
        let chosen = choose_of(&both, true);
        assert!(matches!(chosen, Ok(Transport::Interleaved { .. })));
    }
}
