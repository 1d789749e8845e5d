//! Which addresses are this host's: a source must not record its own recording.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// A port that nothing is sent to.
const DISCARD_PORT: u16 = 9;

/// Whether something of this host's that listens at these addresses is at that one.
pub(super) fn is_own(address: SocketAddr, listening: &[SocketAddr]) -> bool {
    let ip = match address.ip().to_canonical() {
        // Who connects to that is connected to this host.
        of if of.is_unspecified() && of.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        of if of.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        of => of,
    };
    let is_it = |of: &SocketAddr| {
        let at = of.ip().to_canonical();
        of.port() == address.port() && (at.is_unspecified() || at == ip)
    };
    listening.iter().any(is_it) && is_of_this_host(address, ip, may_bind_any(ip))
}

/// Whether an address, which is this one without what it is mapped to, is one of this host's, where sockets may be bound to
/// any or not.
fn is_of_this_host(address: SocketAddr, ip: IpAddr, may_bind_any: bool) -> bool {
    if ip.is_loopback() {
        return true;
    }
    // An address of a link is one with that link alone.
    let mut at = SocketAddr::new(ip, 0);
    if let (SocketAddr::V6(of), SocketAddr::V6(at)) = (address, &mut at) {
        at.set_scope_id(of.scope_id());
    }
    // Whatever is bound to one is this host's, unless everything may be bound; then it is who it is reached from.
    if !may_bind_any {
        return UdpSocket::bind(at).is_ok();
    }
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    at.set_port(DISCARD_PORT);
    reached_from(any, at).is_ok_and(|from| from == ip)
}

/// Which of this host's addresses another one is reached from. Nothing is sent.
fn reached_from(any: IpAddr, at: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(at)?;
    Ok(socket.local_addr()?.ip())
}

/// Whether the kernel lets sockets be bound to addresses of other hosts (`ip_nonlocal_bind`), as hosts that take over for
/// each other have it.
fn may_bind_any(ip: IpAddr) -> bool {
    let version = if ip.is_ipv4() { "ipv4/" } else { "ipv6/" };
    let path = format!("/proc/sys/net/{version}ip_nonlocal_bind");
    std::fs::read_to_string(path).is_ok_and(|said| said.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_itself_by_each_of_its_addresses() {
        let is = |address: &str, listening: &str| {
            is_own(address.parse().unwrap(), &[listening.parse().unwrap()])
        };
        // As Debian has a host's own name.
        assert!(is("127.0.1.1:8554", "0.0.0.0:8554"));
        assert!(is("127.0.0.1:8554", "127.0.0.1:8554"));
        assert!(is("[::ffff:127.0.0.1]:8554", "[::]:8554"));
        assert!(!is("127.0.0.1:554", "0.0.0.0:8554"));
        assert!(!is("127.0.0.2:8554", "127.0.0.1:8554"));
        assert!(is("0.0.0.0:8554", "127.0.0.1:8554"));
        assert!(is("[::]:8554", "[::1]:8554"));
        assert!(!is("0.0.0.0:8554", "192.0.2.1:8554"));
        // Of the documentation's.
        assert!(!is("192.0.2.1:8554", "0.0.0.0:8554"));
    }

    /// Where everything may be bound, as where it may not.
    #[test]
    fn a_host_is_itself_by_what_it_is_reached_from() {
        let others: SocketAddr = "192.0.2.1:8554".parse().unwrap();
        for may_bind_any in [false, true] {
            let is = |address: SocketAddr| is_of_this_host(address, address.ip(), may_bind_any);
            assert!(!is(others));
            // Where there is a network at all.
            if let Ok(own) = reached_from(Ipv4Addr::UNSPECIFIED.into(), others) {
                assert!(is(SocketAddr::new(own, 8_554)), "{own}");
            }
        }
    }
}
