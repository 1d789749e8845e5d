//! Receives datagrams, and counts those that the kernel has dropped because a socket's receive buffer was full.
//!
//! The kernel gives the count with each datagram, as it was when that one came (`SO_RXQ_OVFL`, socket(7)).
//! Those dropped after the last datagram are counted in its table of sockets only.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use rustix::io::Errno;

/// The kernel's tables of sockets: a line per socket, whose words include its inode and the number of dropped
/// datagrams.
const TABLES: [&str; 2] = ["/proc/self/net/udp", "/proc/self/net/udp6"];
const INODE_WORD: usize = 9;
const DROPPED_WORD: usize = 12;

/// Reads of the tables to find a socket.
const READS_MAX: usize = 4;

/// Room for the control message with the count: a header and a word (cmsg(3)).
#[repr(align(8))]
struct Control([u8; 24]);

/// Makes the kernel give the count of dropped datagrams with each datagram.
///
/// # Errors
/// If the kernel refuses the option.
pub(crate) fn count_dropped(socket: &UdpSocket) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::RxqOvfl, &1)?)
}

/// Receives a datagram into `parts`. Returns its length in bytes, and the number of datagrams dropped before
/// it came, modulo 2^32, if [`count_dropped`] was called.
///
/// # Errors
/// Those of the socket.
pub(crate) fn receive(
    socket: &UdpSocket,
    parts: &mut [IoSliceMut<'_>],
) -> Result<(usize, u32), Errno> {
    let mut control = Control([0; 24]);
    let flags = MsgFlags::empty();
    let received = recvmsg::<()>(socket.as_raw_fd(), parts, Some(&mut control.0), flags);
    let errno = |error: nix::Error| Errno::from_raw_os_error(error as i32);
    let received = received.map_err(errno)?;
    let dropped = received
        .cmsgs()
        .map_err(errno)?
        .find_map(|message| match message {
            ControlMessageOwned::RxqOvfl(dropped) => Some(dropped),
            _ => None,
        });
    Ok((received.bytes, dropped.unwrap_or(0)))
}

/// Datagrams that each of these sockets has dropped so far, modulo 2^32; `None` for a socket that is in no
/// table, such as one of another network namespace.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn dropped(sockets: &[&UdpSocket]) -> io::Result<Vec<Option<u32>>> {
    let inodes = sockets
        .iter()
        .map(|socket| Ok(rustix::fs::fstat(socket)?.st_ino));
    let inodes: Vec<u64> = inodes.collect::<io::Result<_>>()?;
    let mut found = vec![None; inodes.len()];
    // The kernel gives a table in pieces, and leaves out a socket if one before it is closed between two pieces.
    for table in TABLES.iter().cycle().take(TABLES.len() * READS_MAX) {
        if !found.contains(&None) {
            break;
        }
        // A host without IPv6 has no table for it.
        let Ok(file) = File::open(table) else {
            continue;
        };
        for line in BufReader::new(file).lines() {
            let Some((inode, dropped)) = dropped_of(&line?) else {
                continue;
            };
            if let Some(place) = inodes.iter().position(|of| *of == inode) {
                found[place] = Some(dropped);
            }
        }
    }
    Ok(found)
}

/// The inode and the number of dropped datagrams of a line of a table; `None` for another line.
fn dropped_of(line: &str) -> Option<(u64, u32)> {
    let word = |number| line.split_ascii_whitespace().nth(number);
    let dropped: u64 = word(DROPPED_WORD)?.parse().ok()?;
    Some((word(INODE_WORD)?.parse().ok()?, dropped as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_line_is_parsed() {
        let head = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops";
        let line = "  977: 0100007F:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000   104        0 18223 2 00000000f3b6b6f4 4294967297 ";
        assert_eq!(dropped_of(line), Some((18_223, 1)));
        for other in [head, "", "977: 0100007F:14E9"] {
            assert_eq!(dropped_of(other), None);
        }
    }

    /// By the count with a datagram, and by the table.
    #[test]
    fn datagrams_dropped_by_a_full_socket_are_counted() {
        let bind = |host: &str| UdpSocket::bind(format!("{host}:0"));
        // The host may have no IPv6.
        let hosts = ["127.0.0.1", "[::1]"].map(|host| Some((bind(host).ok()?, bind(host).ok()?)));
        assert!(hosts[0].is_some());
        for (here, there) in hosts.into_iter().flatten() {
            there.connect(here.local_addr().unwrap()).unwrap();
            here.set_nonblocking(true).unwrap();
            count_dropped(&here).unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&here, 0).unwrap();
            let mut bytes = [0; 2_000];
            let mut receive = || receive(&here, &mut [IoSliceMut::new(&mut bytes)]);
            assert_eq!(receive(), Err(Errno::AGAIN));
            let send =
                |count| (0..count).for_each(|_| assert_eq!(there.send(&[7; 900]).unwrap(), 900));
            send(100);
            let mut kept = 0;
            while let Ok(received) = receive() {
                assert_eq!(received, (900, 0), "they came before any was dropped");
                kept += 1;
            }
            assert!(kept > 0);
            assert_eq!(
                dropped(&[&here, &there]).unwrap(),
                [Some(100 - kept), Some(0)]
            );
            send(1);
            assert_eq!(receive(), Ok((900, 100 - kept)));
            assert_eq!(
                dropped(&[&here, &there]).unwrap(),
                [Some(100 - kept), Some(0)]
            );
        }
    }
}
