//! Detects cameras that are this server itself: a source must not record its own recording.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// True if `address` reaches this host at one of the addresses at which it is `listening`.
pub(super) fn is_own(address: SocketAddr, listening: &[SocketAddr]) -> bool {
    let ip = match address.ip().to_canonical() {
        // A connection to the unspecified address reaches this host.
        of if of.is_unspecified() && of.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        of if of.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        of => of,
    };
    let is_reached = |listener: &SocketAddr| {
        let at = listener.ip().to_canonical();
        listener.port() == address.port() && (at.is_unspecified() || at == ip)
    };
    listening.iter().any(is_reached) && is_of_this_host(address, ip, may_bind_any(ip))
}

/// True if `ip`, the canonical form of `address`, is an address of this host. `may_bind_any`: sockets can be bound to
/// addresses of other hosts.
fn is_of_this_host(address: SocketAddr, ip: IpAddr, may_bind_any: bool) -> bool {
    if ip.is_loopback() {
        return true;
    }
    // A link-local address is valid only with its interface.
    let mut at = SocketAddr::new(ip, 0);
    if let (SocketAddr::V6(of), SocketAddr::V6(at)) = (address, &mut at) {
        at.set_scope_id(of.scope_id());
    }
    // Binding succeeds only for the host's own addresses, unless any address can be bound.
    match may_bind_any {
        true => is_listed(ip),
        false => UdpSocket::bind(at).is_ok(),
    }
}

/// True if the kernel lists the address as local. A table that cannot be read counts as empty.
fn is_listed(ip: IpAddr) -> bool {
    let read = |name| std::fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    match ip {
        IpAddr::V4(ip) => is_in_routes(&read("fib_trie"), ip),
        IpAddr::V6(ip) => is_in_interfaces(&read("if_inet6"), ip),
    }
}

/// `text`: the format of `/proc/net/fib_trie`, in which a line with an address precedes the lines of its routes.
fn is_in_routes(text: &str, ip: Ipv4Addr) -> bool {
    let mut is_address = false;
    text.lines().any(|line| {
        match line.trim_start().split_once("-- ") {
            Some((_, address)) => is_address = address.parse() == Ok(ip),
            None if is_address && line.contains("/32 host LOCAL") => return true,
            None => {}
        }
        false
    })
}

/// `text`: the format of `/proc/net/if_inet6`, in which each line begins with an address of 32 hexadecimal digits.
fn is_in_interfaces(text: &str, ip: Ipv6Addr) -> bool {
    let digits = format!("{:032x}", u128::from(ip));
    text.lines().any(|line| line.starts_with(&digits))
}

/// True if the kernel lets sockets be bound to addresses of other hosts (`ip_nonlocal_bind`), as in failover pairs.
fn may_bind_any(ip: IpAddr) -> bool {
    let version = if ip.is_ipv4() { "ipv4/" } else { "ipv6/" };
    let path = format!("/proc/sys/net/{version}ip_nonlocal_bind");
    std::fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_the_host_is_its_own() {
        let is = |address: &str, listening: &str| {
            is_own(address.parse().unwrap(), &[listening.parse().unwrap()])
        };
        // Debian resolves a host's own name to this address.
        assert!(is("127.0.1.1:8554", "0.0.0.0:8554"));
        assert!(is("127.0.0.1:8554", "127.0.0.1:8554"));
        assert!(is("[::ffff:127.0.0.1]:8554", "[::]:8554"));
        assert!(!is("127.0.0.1:554", "0.0.0.0:8554"));
        assert!(!is("127.0.0.2:8554", "127.0.0.1:8554"));
        assert!(is("0.0.0.0:8554", "127.0.0.1:8554"));
        assert!(is("[::]:8554", "[::1]:8554"));
        assert!(!is("0.0.0.0:8554", "192.0.2.1:8554"));
        // Reserved for documentation (RFC 5737).
        assert!(!is("192.0.2.1:8554", "0.0.0.0:8554"));
    }

    #[test]
    fn own_address_is_found_by_binding_and_in_the_kernels_tables() {
        let others: SocketAddr = "192.0.2.1:8554".parse().unwrap();
        let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect(others)?;
            socket.local_addr()
        });
        for may_bind_any in [false, true] {
            let is = |address: SocketAddr| is_of_this_host(address, address.ip(), may_bind_any);
            assert!(!is(others));
            // A host without a network has no such address.
            if let Ok(own) = &own {
                assert!(is(*own), "{own}");
            }
        }
    }

    #[test]
    fn second_address_of_an_interface_is_own() {
        let routes = "Local:\n  +-- 192.0.2.0/29 2 0 2\n     |-- 192.0.2.5\n        /32 host LOCAL\n     |-- 192.0.2.6\n        \
                      /32 host LOCAL\n     |-- 192.0.2.7\n        /32 link BROADCAST\n     |-- 192.0.2.0\n        /29 link UNICAST\n";
        let listed =
            [5, 6, 7, 0, 8].map(|last| is_in_routes(routes, Ipv4Addr::new(192, 0, 2, last)));
        assert_eq!(listed, [true, true, false, false, false]);
        let interfaces = "20010db8000000000000000000000005 02 40 00 80 eth0\n";
        let is = |ip: &str| is_in_interfaces(interfaces, ip.parse().unwrap());
        assert!(is("2001:db8::5"));
        assert!(!is("2001:db8::6"));
    }
}
