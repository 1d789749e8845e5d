//! Which addresses are this host's: a source must not record its own recording.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

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
    // Whatever is bound to one is this host's, unless everything may be bound; then the kernel's tables say it.
    match may_bind_any {
        true => is_listed(ip),
        false => UdpSocket::bind(at).is_ok(),
    }
}

/// Whether the kernel has it among its own. What cannot be read lists nothing.
fn is_listed(ip: IpAddr) -> bool {
    let read = |name| std::fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    match ip {
        IpAddr::V4(ip) => is_in_routes(&read("fib_trie"), ip),
        IpAddr::V6(ip) => is_in_interfaces(&read("if_inet6"), ip),
    }
}

/// As routes are shown: an address on a line, and on the next ones what is done with what goes there.
fn is_in_routes(text: &str, ip: Ipv4Addr) -> bool {
    let mut is_it = false;
    text.lines().any(|line| {
        match line.trim_start().split_once("-- ") {
            Some((_, address)) => is_it = address.parse() == Ok(ip),
            None if is_it && line.contains("/32 host LOCAL") => return true,
            None => {}
        }
        false
    })
}

/// As the addresses of interfaces are shown: each begins a line, in 32 digits.
fn is_in_interfaces(text: &str, ip: Ipv6Addr) -> bool {
    let digits = format!("{:032x}", u128::from(ip));
    text.lines().any(|line| line.starts_with(&digits))
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
    fn a_host_is_itself_by_what_the_kernel_lists() {
        let others: SocketAddr = "192.0.2.1:8554".parse().unwrap();
        let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect(others)?;
            socket.local_addr()
        });
        for may_bind_any in [false, true] {
            let is = |address: SocketAddr| is_of_this_host(address, address.ip(), may_bind_any);
            assert!(!is(others));
            // Where there is a network at all.
            if let Ok(own) = &own {
                assert!(is(*own), "{own}");
            }
        }
    }

    #[test]
    fn a_second_address_of_an_interface_is_the_hosts_too() {
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
