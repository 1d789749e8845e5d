//! Frames from packets of VP8 (RFC 7741) and VP9 (RFC 9628).
//!
//! A frame is all packets up to the one with the marker. The layers of a frame that has several are one frame.

use super::unit::{Packet, Unit};
use crate::rtp::packet::vp::{self, Format};

/// Largest frame, in bytes.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Depacketizer of VP8 and VP9.
#[derive(Debug)]
pub struct Vp {
    format: Format,
    /// The frame that is being received.
    open: Option<Unit>,
    /// Profile, and width and height, of the first key frame.
    pub head: Option<(u8, (u16, u16))>,
    /// Frames that were left out, because parts of them are missing.
    pub left_out: u64,
}

impl Vp {
    /// A depacketizer before the first packet.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            format,
            open: None,
            head: None,
            left_out: 0,
        }
    }

    /// The format of the frames.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Takes the next packet, and adds the completed frame to `out`.
    pub fn push(&mut self, packet: &Packet<'_>, out: &mut Vec<Unit>) {
        if packet.is_after_loss {
            self.drop_open();
        }
        let Some(part) = vp::Part::parse(self.format, packet.payload) else {
            self.drop_open();
            self.left_out += 1;
            return;
        };
        let timestamp = packet.header.timestamp;
        if part.begins_frame {
            self.drop_open();
            self.open = Some(Unit {
                timestamp,
                media_ns: packet.media_ns,
                is_key: part.is_key,
                ..Unit::default()
            });
        }
        let Some(unit) = self.open.as_mut() else {
            return;
        };
        if unit.timestamp != timestamp || unit.data.len() > FRAME_BYTES_MAX {
            self.drop_open();
            return;
        }
        unit.data.extend_from_slice(part.data);
        if packet.header.marker
            && let Some(unit) = self.open.take()
        {
            if self.head.is_none() && unit.is_key {
                self.head = vp::size(self.format, &unit.data);
            }
            out.push(unit);
        }
    }

    fn drop_open(&mut self) {
        self.left_out += u64::from(self.open.take().is_some());
    }
}
