//! The addresses of the configuration: free, or the server's own.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::{Found, wrong};
use crate::config::{Config, WebRtcConfig};

/// A protocol below that of a service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// An address at which the server listens.
struct Listener {
    service: &'static str,
    transport: Transport,
    address: SocketAddr,
}

fn listeners(config: &Config) -> Vec<Listener> {
    let mut all = Vec::new();
    let mut add = |service, transport, address: Option<SocketAddr>| {
        all.extend(address.map(|address| Listener {
            service,
            transport,
            address,
        }));
    };
    let rtsp = config.rtsp.as_ref();
    add("RTSP", Transport::Tcp, rtsp.and_then(|rtsp| rtsp.listen));
    let tls = rtsp.and_then(|rtsp| rtsp.tls.as_ref());
    add("RTSP over TLS", Transport::Tcp, tls.map(|tls| tls.listen));
    let nbd = config.exports.nbd.as_ref();
    add("NBD", Transport::Tcp, nbd.and_then(|nbd| nbd.tcp));
    add("metrics", Transport::Tcp, config.metrics);
    if let Some(http) = &config.http {
        let tls = http.tls.as_ref().map(|tls| tls.listen);
        add("HTTP", Transport::Tcp, http.listen);
        add("HTTP over TLS", Transport::Tcp, tls);
        match http.webrtc {
            WebRtcConfig::Off => {}
            WebRtcConfig::AsHttp => add("WebRTC", Transport::Udp, http.listen.or(tls)),
            WebRtcConfig::At(address) => {
                add("WebRTC", Transport::Tcp, Some(address));
                add("WebRTC", Transport::Udp, Some(address));
            }
        }
    }
    all
}

/// The numbers of the sockets of a process; `None` if this user may not see them.
fn sockets_of(pid: u32) -> Option<HashSet<String>> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = open
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    let numbers = links.filter_map(|link| {
        let link = link.to_str()?;
        Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    });
    Some(numbers.collect())
}

/// True if a line of `/proc/net/tcp` or one like it is of a listening socket at this port, with one of these numbers.
fn is_at(line: &str, transport: Transport, port: u16, sockets: &HashSet<String>) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // The local address ends with the port; then come the remote address, the state, and the number as the tenth.
    let [_, local, _, state, ..] = fields.as_slice() else {
        return false;
    };
    let is_port = local
        .rsplit_once(':')
        .is_some_and(|(_, of)| u16::from_str_radix(of, 16) == Ok(port));
    let listens = transport == Transport::Udp || *state == "0A";
    is_port
        && listens
        && fields
            .get(9)
            .is_some_and(|number| sockets.contains(*number))
}

/// True if a process listens there. A process whose sockets this user may not see counts as listening.
fn is_own(pid: u32, listener: &Listener) -> bool {
    let Some(sockets) = sockets_of(pid) else {
        return true;
    };
    let name = listener.transport.name();
    ["", "6"].iter().any(|version| {
        let table = fs::read_to_string(format!("/proc/net/{name}{version}")).unwrap_or_default();
        let port = listener.address.port();
        let mut lines = table.lines().skip(1);
        lines.any(|line| is_at(line, listener.transport, port, &sockets))
    })
}

/// Addresses at which the server can listen or does.
pub(super) fn ports(config: &Config, pid: Option<u32>) -> Found {
    let mut found = Vec::new();
    for listener in listeners(config) {
        let address = listener.address;
        let bound = match listener.transport {
            Transport::Tcp => TcpListener::bind(address).map(drop),
            Transport::Udp => UdpSocket::bind(address).map(drop),
        };
        let Err(error) = bound else { continue };
        let is_busy = error.kind() == ErrorKind::AddrInUse;
        if is_busy && pid.is_some_and(|pid| is_own(pid, &listener)) {
            continue;
        }
        let (service, transport) = (listener.service, listener.transport.name());
        let fix = match error.kind() {
            ErrorKind::AddrInUse => format!(
                "ss -lnp --{transport} sport = :{} shows the program: stop it, or set another port for {service}",
                address.port()
            ),
            ErrorKind::PermissionDenied => format!(
                "set a port of 1024 or more for {service}, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit of the service"
            ),
            ErrorKind::AddrNotAvailable => {
                format!("set an address for {service} that `ip address` shows, or 0.0.0.0 for all")
            }
            _ => format!("set another address for {service}"),
        };
        let what = format!("{address} cannot be used for {service} ({transport}): {error}");
        found.push(wrong(
            what,
            format!("the server cannot serve {service} there"),
            fix,
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_listeners_are_known_by_their_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let of = |transport, address| Listener {
            service: "test",
            transport,
            address,
        };
        let own = of(Transport::Tcp, listener.local_addr().unwrap());
        assert!(is_own(std::process::id(), &own));
        assert!(is_own(
            std::process::id(),
            &of(Transport::Udp, udp.local_addr().unwrap())
        ));
        // The process that started this one does not listen there.
        let parent = std::os::unix::process::parent_id();
        assert!(!is_own(parent, &own) || sockets_of(parent).is_none());
        drop(listener);
        assert!(!is_own(std::process::id(), &own));
    }
}
