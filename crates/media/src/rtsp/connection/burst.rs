//! Packets that are sent with one system call.
//!
//! A packet costs a player as much as a whole frame: nearly all of it is the system call. Over a connection all packets
//! go into one `writev`. By UDP those of equal length, and a shorter one behind them, go into one `sendmsg` with
//! `UDP_SEGMENT` (udp(7)), which the kernel or the network card divides into datagrams.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::io::Errno;

use crate::play::OutPacket;
use crate::rtp::packet::HEADER_BYTES;
use crate::rtsp::link::Link;
use crate::rtsp::reports::frame;

/// Packets of one system call, at most. The kernel takes as many segments (`UDP_MAX_SEGMENTS`).
pub(super) const PACKETS_MAX: usize = 64;

/// Bytes of one datagram before the kernel divides it, at most (udp(7)).
const SEGMENTED_BYTES_MAX: usize = 65_000;

/// Sends packets between the messages of a connection (RFC 2326, section 10.12), without the first `skipped` bytes,
/// which have been sent. Returns the number of bytes; `None` if the connection takes none now.
pub(super) fn interleaved(
    link: &mut Link,
    packets: &[OutPacket<'_>],
    channel: impl Fn(usize) -> u8,
    skipped: usize,
) -> io::Result<Option<usize>> {
    let heads = packets.iter().map(|packet| {
        let mut head = [0; 4 + HEADER_BYTES];
        head[..4].copy_from_slice(&frame(channel(packet.track), packet.bytes()));
        head[4..].copy_from_slice(&packet.header);
        head
    });
    let heads: Vec<_> = heads.collect();
    let parts = heads.iter().zip(packets);
    let parts = parts.flat_map(|(head, packet)| [IoSlice::new(head), IoSlice::new(packet.body)]);
    let mut parts: Vec<_> = parts.collect();
    let mut parts = &mut parts[..];
    IoSlice::advance_slices(&mut parts, skipped);
    link.writev(parts)
}

/// The bytes of a packet between the messages of a connection.
pub(super) fn interleaved_bytes(packet: &OutPacket<'_>) -> usize {
    4 + packet.bytes()
}

/// The number of packets, from the first one on, that are sent as one datagram which the kernel divides.
fn segments(packets: &[OutPacket<'_>]) -> usize {
    let Some(first) = packets.first() else {
        return 0;
    };
    let len = first.bytes();
    let (mut count, mut bytes) = (0, 0);
    for packet in packets.iter().take(PACKETS_MAX) {
        bytes += packet.bytes();
        if packet.bytes() > len || (count > 0 && bytes > SEGMENTED_BYTES_MAX) {
            break;
        }
        count += 1;
        if packet.bytes() < len {
            break;
        }
    }
    count
}

/// Sends packets of one track by UDP; returns the number of packets that were sent, fewer if the socket takes no more
/// now.
pub(super) fn datagrams(socket: &UdpSocket, packets: &[OutPacket<'_>]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(left) = packets.get(sent..).filter(|left| !left.is_empty()) {
        let count = segments(left);
        match send(socket, &left[..count]) {
            Ok(()) => sent += count,
            // Not all network devices can do it.
            Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::NOTSUP) if count > 1 => {
                match send(socket, &left[..1]) {
                    Ok(()) => sent += 1,
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

/// Sends packets with one system call. Several have the length of the first one, except the last, which may be shorter.
fn send(socket: &UdpSocket, packets: &[OutPacket<'_>]) -> Result<(), Errno> {
    let parts = packets.iter();
    let parts = parts.flat_map(|packet| [IoSlice::new(&packet.header), IoSlice::new(packet.body)]);
    let parts: Vec<_> = parts.collect();
    let result = match packets {
        [] => return Ok(()),
        [_] => rustix::io::writev(socket, &parts),
        [first, ..] => {
            let segment = first.bytes() as u16;
            let control = [ControlMessage::UdpGsoSegments(&segment)];
            let sent = sendmsg::<()>(
                socket.as_raw_fd(),
                &parts,
                &control,
                MsgFlags::empty(),
                None,
            );
            sent.map_err(|error| Errno::from_raw_os_error(error as i32))
        }
    };
    match result {
        // The peer has closed the port (ICMP): the packets count as sent.
        Ok(_) | Err(Errno::CONNREFUSED) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets<'p>(bodies: &'p [Vec<u8>]) -> Vec<OutPacket<'p>> {
        let packet = |(number, body): (usize, &'p Vec<u8>)| OutPacket {
            track: 0,
            header: [number as u8; HEADER_BYTES],
            body,
        };
        bodies.iter().enumerate().map(packet).collect()
    }

    /// Of any lengths, each packet arrives as one datagram.
    #[test]
    fn packets_arrive_one_by_one() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let lens = [
            20, 5, 1_400, 1_400, 1_400, 300, 1_400, 1_400, 1_500, 0, 0, 7,
        ];
        let bodies: Vec<_> = lens.iter().map(|len| vec![3; *len]).collect();
        let packets = packets(&bodies);
        assert_eq!(datagrams(&sender, &packets).unwrap(), lens.len());
        let mut bytes = [0; 2_000];
        for (number, len) in lens.into_iter().enumerate() {
            assert_eq!(receiver.recv(&mut bytes).unwrap(), HEADER_BYTES + len);
            assert_eq!(bytes[..HEADER_BYTES], [number as u8; HEADER_BYTES]);
        }
        receiver.set_nonblocking(true).unwrap();
        assert!(receiver.recv(&mut bytes).is_err());
    }

    #[test]
    fn run_ends_with_the_first_packet_of_another_length() {
        let of = |lens: &[usize]| {
            let bodies: Vec<_> = lens.iter().map(|len| vec![0; *len]).collect();
            segments(&packets(&bodies))
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[9]), 1);
        assert_eq!(of(&[9, 9, 9]), 3);
        assert_eq!(of(&[9, 9, 3, 3]), 3);
        assert_eq!(of(&[9, 10]), 1);
        assert_eq!(of(&[100; 70]), PACKETS_MAX);
        assert_eq!(of(&[20_000; 5]), 3);
        assert_eq!(of(&[64_000, 64_000]), 1);
    }
}
