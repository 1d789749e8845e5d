//! Written chunks of an extent, in memory and in log records.

use zerocopy::little_endian::U64;

use super::{PayloadError, take};
use crate::chunks::{ChunkSet, WORDS};
use crate::place::Geometry;

/// Written chunks of an extent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// Nothing: fresh, or discarded.
    Nothing,
    /// Everything.
    All,
    /// Some chunks.
    Part(Box<ChunkSet>),
}

const NOTHING: u8 = 0;
const ALL: u8 = 1;
pub(super) const PART: u8 = 2;

impl Written {
    /// In its shortest form.
    #[must_use]
    pub fn of(set: &ChunkSet, geometry: Geometry) -> Self {
        if set.is_empty() {
            Self::Nothing
        } else if *set == ChunkSet::of(0..geometry.chunks()) {
            Self::All
        } else {
            Self::Part(Box::new(*set))
        }
    }

    /// The chunks.
    #[must_use]
    pub fn set(&self, geometry: Geometry) -> ChunkSet {
        match self {
            Self::Nothing => ChunkSet::EMPTY,
            Self::All => ChunkSet::of(0..geometry.chunks()),
            Self::Part(set) => **set,
        }
    }

    pub(super) fn state(&self) -> u8 {
        match self {
            Self::Nothing => NOTHING,
            Self::All => ALL,
            Self::Part(_) => PART,
        }
    }

    pub(super) fn encode(&self, geometry: Geometry, out: &mut Vec<u8>) {
        if let Self::Part(set) = self {
            put_chunks(set, geometry, out);
        }
    }

    pub(super) fn parse(
        state: u8,
        geometry: Geometry,
        input: &mut &[u8],
    ) -> Result<Self, PayloadError> {
        match state {
            NOTHING => Ok(Self::Nothing),
            ALL => Ok(Self::All),
            PART => {
                let set = take_chunks(geometry, input)?;
                let shortest = Self::of(&set, geometry);
                if shortest.state() == PART {
                    Ok(shortest)
                } else {
                    Err(PayloadError("chunks"))
                }
            }
            _ => Err(PayloadError("an extent's state")),
        }
    }
}

pub(super) fn put_chunks(set: &ChunkSet, geometry: Geometry, out: &mut Vec<u8>) {
    for word in &set.0[..words(geometry)] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

pub(super) fn take_chunks(geometry: Geometry, input: &mut &[u8]) -> Result<ChunkSet, PayloadError> {
    let mut set = [0; WORDS];
    for word in &mut set[..words(geometry)] {
        *word = take::<U64>(input)?.get();
    }
    let set = ChunkSet(set);
    let outside = set.without(&ChunkSet::of(0..geometry.chunks()));
    outside
        .is_empty()
        .then_some(set)
        .ok_or(PayloadError("chunks"))
}

/// The words in which the pool's extents keep their bits.
pub(crate) fn words(geometry: Geometry) -> usize {
    geometry.chunks().div_ceil(64) as usize
}
