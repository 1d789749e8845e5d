//! Sample entries: names and decoder configurations of tracks (ISO/IEC 14496-12, 8.5.2).

use mp4_atom::esds::{DecoderConfig, DecoderSpecific, EsDescriptor, SLConfig};
use mp4_atom::{Audio, Codec, Encode, Esds, Visual};

/// A sample entry.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum SampleEntry {
    /// One that `mp4-atom` writes.
    Known(Box<Codec>),
    /// Another one, as it is in files.
    Other(Vec<u8>),
}

impl<T: Into<Codec>> From<T> for SampleEntry {
    fn from(of: T) -> Self {
        Self::Known(Box::new(of.into()))
    }
}

/// Boxes around the sample entries of a track.
const AROUND: [&[u8; 4]; 6] = [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd"];

/// Length of size and name of a box.
const HEAD_BYTES: usize = 8;

impl SampleEntry {
    /// An entry with this name and contents; `None` if they cannot be written.
    fn other(name: [u8; 4], contents: &[&dyn Contents]) -> Option<Self> {
        let mut bytes = vec![0; HEAD_BYTES];
        contents.iter().try_for_each(|of| of.write(&mut bytes))?;
        let length = u32::try_from(bytes.len()).ok()?;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..HEAD_BYTES].copy_from_slice(&name);
        Some(Self::Other(bytes))
    }

    /// Sound in samples that need no configuration.
    pub(super) fn samples(name: [u8; 4], audio: &Audio) -> Option<Self> {
        Self::other(name, &[audio])
    }

    /// Pictures with an MPEG-4 object type (ISO/IEC 14496-1, table 5), and the headers that a decoder needs.
    pub(super) fn mpeg4_visual(
        id: u32,
        visual: &Visual,
        object_type: u8,
        headers: Option<&[u8]>,
    ) -> Option<Self> {
        const VISUAL_STREAM: u8 = 4;
        let specific = headers.map(|headers| DecoderSpecific {
            raw: headers.to_vec(),
            ..DecoderSpecific::default()
        });
        let configuration = DecoderConfig {
            object_type_indication: object_type,
            stream_type: VISUAL_STREAM,
            dec_specific: specific,
            ..DecoderConfig::default()
        };
        Self::other(*b"mp4v", &[visual, &descriptor(id, configuration)])
    }

    /// The entry as `mp4-atom` writes it.
    pub(super) fn known(&self) -> Option<&Codec> {
        match self {
            Self::Known(of) => Some(of),
            Self::Other(_) => None,
        }
    }

    /// Inserts an entry that `mp4-atom` has not written into the head of a file, as that of a track.
    pub(super) fn insert(&self, file: &mut Vec<u8>, track: usize) {
        let Self::Other(entry) = self else {
            return;
        };
        let (mut inside, mut around) = (0..file.len(), Vec::new());
        for name in AROUND {
            let nth = if name == b"trak" { track } else { 0 };
            let boxes = boxes(&file[inside.clone()]);
            let Some((at, length)) = boxes.filter(|of| of.0 == *name).map(|of| of.1).nth(nth)
            else {
                return;
            };
            let at = inside.start + at;
            around.push(at);
            inside = at + HEAD_BYTES..at + length;
        }
        let grows = entry.len() as u32;
        around.into_iter().for_each(|at| add(file, at, grows));
        // The number of entries follows version and flags.
        add(file, inside.start + 4, 1);
        file.splice(inside.end..inside.end, entry.iter().copied());
    }
}

/// The descriptor of an MPEG-4 stream.
pub(super) fn descriptor(id: u32, dec_config: DecoderConfig) -> Esds {
    Esds {
        es_desc: EsDescriptor {
            es_id: id as u16,
            dec_config,
            sl_config: SLConfig::default(),
            ..EsDescriptor::default()
        },
    }
}

/// A part of a sample entry.
trait Contents {
    /// Appends the part; `None` if it cannot be written.
    fn write(&self, out: &mut Vec<u8>) -> Option<()>;
}

impl<T: Encode> Contents for T {
    fn write(&self, out: &mut Vec<u8>) -> Option<()> {
        self.encode(out).ok()
    }
}

/// The boxes one after another: name, and place and length.
fn boxes(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], (usize, usize))> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let [s0, s1, s2, s3, name @ ..] = *bytes.get(at..)?.first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_be_bytes([s0, s1, s2, s3]) as usize;
        let found = (name, (at, length.clamp(HEAD_BYTES, bytes.len() - at)));
        at += found.1.1;
        Some(found)
    })
}

/// Adds to a number of four bytes.
fn add(file: &mut [u8], at: usize, more: u32) {
    if let Some(number) = file[at..].first_chunk_mut::<4>() {
        *number = u32::from_be_bytes(*number).wrapping_add(more).to_be_bytes();
    }
}
