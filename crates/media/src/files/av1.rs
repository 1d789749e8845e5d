//! Temporal units of AV1 from packets ("RTP Payload Format For AV1" of the Alliance for Open Media).
//!
//! A temporal unit is all frames of one time, and ends with the marker. In files its OBUs have their lengths, and those
//! that files should not have are left out. A temporal unit without one of its packets is left out.

mod sequence;

use super::unit::{Packet, Unit};
use crate::rtp::packet::av1::{Obu, Payload, kind};
pub use sequence::Sequence;

/// Largest temporal unit, in bytes.
const UNIT_BYTES_MAX: usize = 64 << 20;

/// The OBU before each temporal unit of a file without other heads.
pub const DELIMITER: [u8; 2] = [kind::DELIMITER << 3 | 2, 0];

/// The temporal unit that is being received.
#[derive(Debug, Default)]
struct OpenUnit {
    unit: Unit,
    /// True if it has a frame; the first frame says whether it is a key frame.
    has_frame: bool,
    /// The first fragments of an OBU.
    fragments: Option<Vec<u8>>,
}

/// Depacketizer of AV1.
#[derive(Debug, Default)]
pub struct Av1 {
    open: Option<OpenUnit>,
    /// Timestamp of an incomplete temporal unit, whose other packets are ignored.
    skipped: Option<u32>,
    /// The first sequence header.
    pub sequence: Option<Sequence>,
    /// True if the sender sets the marker in the last packet of a temporal unit.
    has_marks: bool,
    /// Temporal units that were left out, because parts of them are missing or invalid.
    pub left_out: u64,
}

impl Av1 {
    /// Takes the next packet, and adds the completed temporal unit to `out`.
    pub fn push(&mut self, packet: &Packet<'_>, out: &mut Vec<Unit>) {
        let header = packet.header;
        let payload = Payload::parse(packet.payload);
        if packet.is_after_loss && !self.goes_on_after_loss(payload.as_ref()) {
            self.skip(header.timestamp);
        }
        if self.skipped == Some(header.timestamp) {
            self.skipped = self.skipped.filter(|_| !header.marker);
            return;
        }
        self.skipped = None;
        // The sender sets no markers.
        let is_other = |of: &mut OpenUnit| of.unit.timestamp != header.timestamp;
        if let Some(open) = self.open.take_if(is_other) {
            self.complete(open, out);
        }
        let mut open = self.open.take().unwrap_or_else(|| OpenUnit {
            unit: Unit {
                timestamp: header.timestamp,
                media_ns: packet.media_ns,
                ..Unit::default()
            },
            ..OpenUnit::default()
        });
        let is_taken = payload.is_some_and(|of| self.take(&of, &mut open).is_some());
        if !is_taken {
            self.open = Some(open);
            self.skip(header.timestamp);
            self.skipped = self.skipped.filter(|_| !header.marker);
        } else if header.marker {
            self.has_marks = true;
            self.complete(open, out);
        } else {
            self.open = Some(open);
        }
    }

    /// Ends the track. Returns the last temporal unit if the sender sets no markers.
    pub fn finish(&mut self) -> Option<Unit> {
        let mut last = Vec::new();
        let open = self.open.take().filter(|_| !self.has_marks)?;
        self.complete(open, &mut last);
        last.pop()
    }

    /// Drops the open temporal unit, and returns true if a packet after a gap surely begins another one.
    fn goes_on_after_loss(&mut self, payload: Option<&Payload<'_>>) -> bool {
        let had_open = self.drop_open();
        let Some(payload) = payload else {
            return false;
        };
        // The missing packets had the end of the open unit, or the beginning of the next one.
        payload.begins_sequence
            || payload.first().is_some_and(|of| match of.kind {
                kind::SEQUENCE | kind::DELIMITER => true,
                kind::FRAME | kind::FRAME_HEADER | kind::METADATA => had_open,
                _ => false,
            })
    }

    /// Leaves out the temporal unit with this timestamp.
    fn skip(&mut self, timestamp: u32) {
        if !self.drop_open() && self.skipped != Some(timestamp) {
            self.left_out += 1;
        }
        self.skipped = Some(timestamp);
    }

    /// Returns true if there was an open temporal unit.
    fn drop_open(&mut self) -> bool {
        let Some(open) = self.open.take() else {
            return false;
        };
        self.left_out += 1;
        self.skipped = Some(open.unit.timestamp);
        true
    }

    fn complete(&mut self, open: OpenUnit, out: &mut Vec<Unit>) {
        match open.has_frame && open.fragments.is_none() {
            true => out.push(open.unit),
            false => self.left_out += 1,
        }
    }

    /// Adds the elements of a packet to a temporal unit; `None` if they do not continue it or are invalid.
    fn take(&mut self, payload: &Payload<'_>, open: &mut OpenUnit) -> Option<()> {
        if payload.continues != open.fragments.is_some() {
            return None;
        }
        let mut elements = payload.elements().peekable();
        while let Some(element) = elements.next() {
            let element = element.ok()?;
            if open.unit.data.len() + element.len() > UNIT_BYTES_MAX {
                return None;
            }
            let goes_on = payload.is_open && elements.peek().is_none();
            match (open.fragments.take(), goes_on) {
                (None, false) => self.add(element, open)?,
                (None, true) => open.fragments = Some(element.to_vec()),
                (Some(mut fragments), goes_on) => {
                    fragments.extend_from_slice(element);
                    match goes_on && fragments.len() <= UNIT_BYTES_MAX {
                        true => open.fragments = Some(fragments),
                        false => self.add(&fragments, open)?,
                    }
                }
            }
        }
        Some(())
    }

    /// Adds an OBU to a temporal unit; `None` if it is invalid.
    fn add(&mut self, element: &[u8], open: &mut OpenUnit) -> Option<()> {
        let obu = Obu::parse(element).filter(Obu::is_whole)?;
        match obu.kind {
            kind::DELIMITER | kind::TILE_LIST | kind::PADDING => return Some(()),
            kind::SEQUENCE if self.sequence.is_none() => self.sequence = Sequence::parse(&obu),
            _ => {}
        }
        if matches!(obu.kind, kind::FRAME | kind::FRAME_HEADER) && !open.has_frame {
            let is_still = self.sequence.as_ref().is_some_and(|of| of.is_still);
            open.has_frame = true;
            open.unit.is_key = is_still || obu.is_key_frame() == Some(true);
        }
        obu.push(&mut open.unit.data);
        Some(())
    }
}

#[cfg(test)]
mod tests;
