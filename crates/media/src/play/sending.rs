//! Sending of the next packet.

use std::io::{self, ErrorKind, IoSlice};

use super::{PlayError, Playback, Upcoming};
use crate::archive::block::Kind;
use crate::rtp::packet::HEADER_BYTES;
use crate::session::Scale;

impl Playback<'_> {
    /// The header of the next packet, if that is RTP and has been read: as received, or renumbered if the
    /// scale is not 1 or several recordings are played.
    #[must_use]
    pub fn header(&self) -> Option<[u8; HEADER_BYTES]> {
        let entry = self.packet().filter(|of| of.kind == Kind::Rtp)?;
        let is_unscaled = self.manner.scale == Scale::ONE;
        Some(match self.numbering.get(usize::from(entry.track)) {
            Some(of) => of.header(entry.header, self.shown_ns(entry), is_unscaled),
            None => entry.header,
        })
    }

    /// Sends `frame` and the next packet with `writev`, without the first `sent` bytes, which have been sent.
    /// Returns the number of bytes sent by this call and that of all bytes; `None` if the socket takes
    /// nothing now.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn send(
        &self,
        writev: impl FnOnce(&[IoSlice<'_>]) -> io::Result<Option<usize>>,
        frame: &[u8],
        sent: usize,
    ) -> Result<Option<(usize, usize)>, PlayError> {
        let Some((current, (_, _, body))) = self
            .current
            .as_ref()
            .and_then(|current| Some((current, current.packets.front()?)))
        else {
            return Ok(None);
        };
        let header = self.header();
        let header: &[u8] = header.as_ref().map_or(&[], |header| &header[..]);
        let written = current.buffer.with(|bytes| {
            let mut parts = [
                IoSlice::new(frame),
                IoSlice::new(header),
                IoSlice::new(&bytes[body.clone()]),
            ];
            let mut parts = &mut parts[..];
            IoSlice::advance_slices(&mut parts, sent);
            writev(parts)
        })?;
        let all = frame.len() + header.len() + body.len();
        match written {
            Ok(written) => Ok(written.map(|count| (count, all))),
            // The peer has closed the port (ICMP): the packet counts as sent.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                Ok(Some((all - sent, all)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The length of the next packet in bytes.
    #[must_use]
    pub fn packet_len(&self) -> usize {
        let front = self.current.as_ref().and_then(|of| of.packets.front());
        front.map_or(0, |(_, entry, body)| {
            let header = if entry.kind == Kind::Rtp {
                HEADER_BYTES
            } else {
                0
            };
            header + body.len()
        })
    }

    /// Advances the numbering by the next packet.
    fn count(&mut self) {
        let Some(entry) = self.packet().filter(|of| of.kind == Kind::Rtp).copied() else {
            return;
        };
        let (shown_ns, is_unscaled) = (self.shown_ns(&entry), self.manner.scale == Scale::ONE);
        if let Some(of) = self.numbering.get_mut(usize::from(entry.track)) {
            of.count(&entry.header, shown_ns, is_unscaled);
        }
    }

    /// Notes that the next packet, of this length, has been sent.
    pub(crate) fn sent(&mut self, len: usize) {
        if let Some((_, negotiation)) = &self.follows {
            negotiation.member().count(|counts| {
                counts.packets += 1;
                counts.bytes += len as u64;
            });
        }
        self.done();
    }

    /// Moves on to the packet after the next one, which was sent or left out.
    pub fn done(&mut self) {
        if let Some(Upcoming::Packet { due, .. }) = self.upcoming() {
            self.last_due = due;
            self.reached_ns = self.packet().map(|entry| entry.media_ns);
        }
        self.count();
        if let Some(current) = &mut self.current {
            current.packets.pop_front();
        }
    }
}
