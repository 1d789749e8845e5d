//! Contents of log records, as bytes.

use sched::units::{Bytes, SECTOR_BYTES};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::change::{BitRun, Change, Written};
use super::record::PAYLOAD_BYTES_MAX;
use super::written::{PART, put_chunks, take_chunks, words};
use super::{PayloadError, RawPlace, take};
use crate::grade::Grade;
use crate::limits::{COUNTER_MAX, NAME_BYTES_MAX, VOLUME_EXTENTS_MAX};
use crate::place::{Geometry, Place, VolumeId};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSized {
    volume: U64,
    size: U64,
    extents: U32,
    zero: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawList {
    volume: U64,
    first: U32,
    count: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRun {
    first: U32,
    count: U32,
    state: u8,
    zero: [u8; 7],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMove {
    volume: U64,
    to: RawPlace,
    index: U32,
    zero: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawGrade {
    /// Its state is the grade.
    place: RawPlace,
    extra_us: U32,
}

const SLOW: u8 = 1;
const BAD: u8 = 2;

/// The most extents in a [`Change::Extents`], whatever is written of them.
#[must_use]
pub(crate) fn extents_per_record(geometry: Geometry) -> usize {
    (PAYLOAD_BYTES_MAX - size_of::<RawList>()) / (size_of::<RawPlace>() + 8 * words(geometry))
}

/// The most runs in a [`Change::Bits`], whatever they say.
#[must_use]
pub(crate) fn runs_per_record(geometry: Geometry) -> usize {
    (PAYLOAD_BYTES_MAX - size_of::<RawList>()) / (size_of::<RawRun>() + 8 * words(geometry))
}

/// The most places in a [`Change::Grades`].
pub(crate) const GRADES_PER_RECORD: usize =
    (PAYLOAD_BYTES_MAX - size_of::<RawList>()) / size_of::<RawGrade>();

fn take_name(input: &mut &[u8]) -> Result<String, PayloadError> {
    let length = usize::from(take::<U16>(input)?.get());
    let bytes = input.split_off(..length).ok_or(PayloadError("too short"))?;
    let name = std::str::from_utf8(bytes).map_err(|_| PayloadError("a name that is not UTF-8"))?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(PayloadError("a name's length"));
    }
    Ok(name.to_owned())
}

fn put_name(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
}

impl Change {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Node { .. } => 1,
            Self::Extents { .. } => 2,
            Self::Resize { .. } => 3,
            Self::Move { .. } => 4,
            Self::Delete { .. } => 5,
            Self::Rename { .. } => 6,
            Self::Bits { .. } => 7,
            Self::Bad { .. } => 8,
            Self::Link { .. } => 9,
            Self::Grades { .. } => 10,
            Self::Lost { .. } => 11,
        }
    }

    pub(crate) fn encode(&self, geometry: Geometry, out: &mut Vec<u8>) {
        let list = |volume: VolumeId, first: u32, count: usize| RawList {
            volume: U64::new(volume.0),
            first: U32::new(first),
            count: U32::new(count as u32),
        };
        match self {
            Self::Node {
                volume,
                size,
                extents,
                name,
            } => {
                put_sized(*volume, *size, *extents, out);
                put_name(name, out);
            }
            Self::Resize {
                volume,
                size,
                extents,
            } => put_sized(*volume, *size, *extents, out),
            Self::Extents {
                volume,
                first,
                extents,
            } => {
                out.extend_from_slice(list(*volume, *first, extents.len()).as_bytes());
                for (place, written) in extents {
                    out.extend_from_slice(RawPlace::new(*place, written.state()).as_bytes());
                    written.encode(geometry, out);
                }
            }
            Self::Move { volume, index, to } => {
                let (volume, index) = (U64::new(volume.0), U32::new(*index));
                let raw = RawMove {
                    volume,
                    to: RawPlace::new(*to, 0),
                    index,
                    zero: U32::ZERO,
                };
                out.extend_from_slice(raw.as_bytes());
            }
            Self::Delete { volume } => out.extend_from_slice(&volume.0.to_le_bytes()),
            Self::Rename { volume, name } => {
                out.extend_from_slice(&volume.0.to_le_bytes());
                put_name(name, out);
            }
            Self::Bits { volume, runs } => {
                out.extend_from_slice(list(*volume, 0, runs.len()).as_bytes());
                for run in runs {
                    let (first, count) = (U32::new(run.first), U32::new(run.count));
                    let raw = RawRun {
                        first,
                        count,
                        state: run.written.state(),
                        zero: [0; 7],
                    };
                    out.extend_from_slice(raw.as_bytes());
                    run.written.encode(geometry, out);
                }
            }
            Self::Bad { places } => {
                out.extend_from_slice(list(VolumeId(0), 0, places.len()).as_bytes());
                for place in places {
                    out.extend_from_slice(RawPlace::new(*place, 0).as_bytes());
                }
            }
            Self::Link { to } => out.extend_from_slice(RawPlace::new(*to, 0).as_bytes()),
            Self::Grades { places } => {
                out.extend_from_slice(list(VolumeId(0), 0, places.len()).as_bytes());
                places
                    .iter()
                    .for_each(|(place, grade)| put_grade(*place, *grade, out));
            }
            Self::Lost {
                volume,
                index,
                chunks,
            } => {
                out.extend_from_slice(list(*volume, *index, 1).as_bytes());
                put_chunks(chunks, geometry, out);
            }
        }
    }

    /// Reads a payload of that kind.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(kind: u8, payload: &[u8], geometry: Geometry) -> Result<Self, PayloadError> {
        let mut input = payload;
        let change = match kind {
            1 => {
                let (volume, size, extents) = take_sized(&mut input, geometry)?;
                Self::Node {
                    volume,
                    size,
                    extents,
                    name: take_name(&mut input)?,
                }
            }
            2 => Self::parse_extents(&mut input, geometry)?,
            3 => {
                let (volume, size, extents) = take_sized(&mut input, geometry)?;
                Self::Resize {
                    volume,
                    size,
                    extents,
                }
            }
            4 => {
                let raw = take::<RawMove>(&mut input)?;
                let volume = VolumeId(raw.volume.get());
                Self::Move {
                    volume,
                    index: raw.index.get(),
                    to: raw.to.place(),
                }
            }
            5 => Self::Delete {
                volume: VolumeId(take::<U64>(&mut input)?.get()),
            },
            6 => {
                let volume = VolumeId(take::<U64>(&mut input)?.get());
                Self::Rename {
                    volume,
                    name: take_name(&mut input)?,
                }
            }
            7 => Self::parse_bits(&mut input, geometry)?,
            8 => {
                let list = take::<RawList>(&mut input)?;
                let places =
                    (0..list.count.get()).map(|_| Ok(take::<RawPlace>(&mut input)?.place()));
                Self::Bad {
                    places: places.collect::<Result<_, _>>()?,
                }
            }
            9 => Self::Link {
                to: take::<RawPlace>(&mut input)?.place(),
            },
            10 => Self::parse_grades(&mut input)?,
            11 => Self::parse_lost(&mut input, geometry)?,
            _ => return Err(PayloadError("a kind of record that is not known")),
        };
        if input.is_empty() {
            Ok(change)
        } else {
            Err(PayloadError("too long"))
        }
    }

    fn parse_extents(input: &mut &[u8], geometry: Geometry) -> Result<Self, PayloadError> {
        let list = take::<RawList>(input)?;
        let mut extents = Vec::new();
        for _ in 0..list.count.get() {
            let raw = take::<RawPlace>(input)?;
            extents.push((raw.place(), Written::parse(raw.state, geometry, input)?));
        }
        Ok(Self::Extents {
            volume: VolumeId(list.volume.get()),
            first: list.first.get(),
            extents,
        })
    }

    fn parse_grades(input: &mut &[u8]) -> Result<Self, PayloadError> {
        let list = take::<RawList>(input)?;
        let mut places = Vec::new();
        for _ in 0..list.count.get() {
            let raw = take::<RawGrade>(input)?;
            let grade = match (raw.place.state, raw.extra_us.get()) {
                (SLOW, extra_us) => Grade::Slow { extra_us },
                (BAD, 0) => Grade::Bad,
                _ => return Err(PayloadError("an extent's grade")),
            };
            places.push((raw.place.place(), grade));
        }
        Ok(Self::Grades { places })
    }

    fn parse_lost(input: &mut &[u8], geometry: Geometry) -> Result<Self, PayloadError> {
        let list = take::<RawList>(input)?;
        let chunks = take_chunks(geometry, input)?;
        if list.count.get() != 1 {
            return Err(PayloadError("lost chunks"));
        }
        Ok(Self::Lost {
            volume: VolumeId(list.volume.get()),
            index: list.first.get(),
            chunks: Box::new(chunks),
        })
    }

    fn parse_bits(input: &mut &[u8], geometry: Geometry) -> Result<Self, PayloadError> {
        let list = take::<RawList>(input)?;
        let mut runs: Vec<BitRun> = Vec::new();
        for _ in 0..list.count.get() {
            let raw = take::<RawRun>(input)?;
            let (first, count) = (raw.first.get(), raw.count.get());
            let written = Written::parse(raw.state, geometry, input)?;
            let after = runs.last().map_or(0, |run| run.first + run.count);
            let end = first
                .checked_add(count)
                .filter(|end| *end <= VOLUME_EXTENTS_MAX);
            if count == 0 || first < after || end.is_none() || (raw.state == PART && count != 1) {
                return Err(PayloadError("a run of extents"));
            }
            runs.push(BitRun {
                first,
                count,
                written,
            });
        }
        Ok(Self::Bits {
            volume: VolumeId(list.volume.get()),
            runs,
        })
    }
}

fn put_grade(place: Place, grade: Grade, out: &mut Vec<u8>) {
    let (state, extra_us) = match grade {
        Grade::Slow { extra_us } => (SLOW, extra_us),
        Grade::Bad => (BAD, 0),
    };
    let raw = RawGrade {
        place: RawPlace::new(place, state),
        extra_us: U32::new(extra_us),
    };
    out.extend_from_slice(raw.as_bytes());
}

fn put_sized(volume: VolumeId, size: Bytes, extents: u32, out: &mut Vec<u8>) {
    let (volume, size) = (U64::new(volume.0), U64::new(size.0));
    let raw = RawSized {
        volume,
        size,
        extents: U32::new(extents),
        zero: U32::ZERO,
    };
    out.extend_from_slice(raw.as_bytes());
}

fn take_sized(
    input: &mut &[u8],
    geometry: Geometry,
) -> Result<(VolumeId, Bytes, u32), PayloadError> {
    let raw = take::<RawSized>(input)?;
    let (size, extents) = (Bytes(raw.size.get()), raw.extents.get());
    let possible = size.0 > 0
        && size.0.is_multiple_of(SECTOR_BYTES)
        && extents <= VOLUME_EXTENTS_MAX
        && raw.volume.get() < COUNTER_MAX
        && geometry.extents_for(size) == u64::from(extents);
    if possible {
        Ok((VolumeId(raw.volume.get()), size, extents))
    } else {
        Err(PayloadError("a volume's size"))
    }
}
