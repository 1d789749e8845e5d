//! Sending of the next packet.

use sched::units::Time;

use super::{PlayError, Playback, Upcoming};
use crate::archive::block::Kind;
use crate::rtp::packet::HEADER_BYTES;
use crate::session::Scale;

/// A packet on its way to a player.
#[derive(Clone, Copy, Debug)]
pub struct OutPacket<'p> {
    /// Its track.
    pub track: usize,
    /// The fixed header with which it is sent.
    pub header: [u8; HEADER_BYTES],
    /// The rest of it.
    pub body: &'p [u8],
}

impl OutPacket<'_> {
    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

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

    /// Calls `send` with the next packets that are due at `now`, at most `count`: RTP packets of tracks that
    /// `is_taken`, one behind the other. The first packet counts as due. `None` if the next one is not of that kind.
    ///
    /// # Errors
    /// If the buffer of the block was taken away.
    pub fn with_due<R>(
        &self,
        now: Time,
        count: usize,
        is_taken: impl Fn(usize) -> bool,
        send: impl FnOnce(&[OutPacket<'_>]) -> R,
    ) -> Result<Option<R>, PlayError> {
        let Some(current) = &self.current else {
            return Ok(None);
        };
        let is_unscaled = self.manner.scale == Scale::ONE;
        let mut numbering = self.numbering.clone();
        let packets = current.packets.iter().take(count);
        let packets = packets.enumerate().map_while(|(place, (_, entry, body))| {
            let track = usize::from(entry.track);
            let is_due = place == 0 || self.due(entry).is_some_and(|due| due <= now);
            if entry.kind != Kind::Rtp || !is_taken(track) || !is_due {
                return None;
            }
            let header = match numbering.get_mut(track) {
                Some(of) => {
                    let shown_ns = self.shown_ns(entry);
                    let header = of.header(entry.header, shown_ns, is_unscaled);
                    of.count(&entry.header, shown_ns, is_unscaled);
                    header
                }
                None => entry.header,
            };
            Some((track, header, body.clone()))
        });
        let packets: Vec<_> = packets.collect();
        if packets.is_empty() {
            return Ok(None);
        }
        let sent = current.buffer.with(|bytes| {
            let packets = packets.into_iter().map(|(track, header, body)| OutPacket {
                track,
                header,
                body: &bytes[body],
            });
            send(&packets.collect::<Vec<_>>())
        });
        Ok(Some(sent?))
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

    /// Notes that the next `count` packets have been sent, of `bytes` bytes together.
    pub(crate) fn sent(&mut self, count: usize, bytes: usize) {
        if let Some((_, negotiation)) = &self.follows {
            negotiation.member().count(|counts| {
                counts.packets += count as u64;
                counts.bytes += bytes as u64;
            });
        }
        (0..count).for_each(|_| self.done());
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
