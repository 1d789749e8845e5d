//! Recordings of small blocks, of which all is known that is in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::pool::Volume;
use engine::volume_io::Client;
use media::archive::block::{Block, Composer, Entry, Header, Kind, Seal};
use media::archive::gap::GapCause;
use media::archive::index::{self, Index, Indexer};
use media::archive::{Archive, Recording};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sched::units::Bytes;

pub(crate) const BLOCK: u64 = 65_536;
const TRAILER: usize = 128;
const TEXT: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n\
                    a=control:sound\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:picture\r\n";
/// The track of the picture.
pub(crate) const PICTURE: u8 = 1;

/// The recorded stream: frames of packets, with key frames and sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Camera {
    pub(crate) number: u64,
    pub(crate) first: u64,
    pub(crate) blocks: u64,
    /// True if it was ended.
    pub(crate) is_ended: bool,
    /// From one key frame to the next at most, in frames.
    pub(crate) gop: u64,
    /// Packets in a block at most, if blocks are not to be full.
    pub(crate) packets: u64,
    /// Packets of a frame at most.
    pub(crate) parts: u64,
}

/// A recording that is there, and what was written of its index.
#[derive(Clone, Debug)]
pub(crate) struct Small {
    pub(crate) header: Header,
    pub(crate) camera: Camera,
    /// By their serials.
    pub(crate) blocks: BTreeMap<u64, Vec<u8>>,
    pub(crate) sections: BTreeMap<u64, Index>,
    /// Key frames of the picture: when they are, their block and their packet.
    pub(crate) keys: Vec<(u64, u64, usize)>,
    /// When the last packet is.
    pub(crate) ends_ns: u64,
    /// True if the last frame is a key frame.
    pub(crate) ends_with_key: bool,
}

impl Small {
    /// Times are in microseconds, as blocks have them.
    pub(crate) fn new(camera: Camera, ring: u64, seed: u64) -> Self {
        Self::of_blocks(BLOCK, camera, ring, seed)
    }

    /// As [`Self::new`], in blocks of this many bytes.
    pub(crate) fn of_blocks(block_bytes: u64, camera: Camera, ring: u64, seed: u64) -> Self {
        Self::filled(block_bytes, camera, ring, seed, None)
    }

    /// As [`Self::new`], in full blocks, except for this many bytes of the last one.
    pub(crate) fn of_full_blocks(
        block_bytes: u64,
        camera: Camera,
        ring: u64,
        seed: u64,
        left: usize,
    ) -> Self {
        Self::filled(block_bytes, camera, ring, seed, Some(left))
    }

    fn filled(block_bytes: u64, camera: Camera, ring: u64, seed: u64, left: Option<usize>) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed);
        let header = Header {
            archive: rng.random(),
            block_bytes,
            blocks: ring,
        };
        let mut small = Self {
            header,
            camera,
            blocks: BTreeMap::new(),
            sections: BTreeMap::new(),
            keys: Vec::new(),
            ends_ns: 0,
            ends_with_key: false,
        };
        let mut indexer = Indexer::new(camera.first, PICTURE);
        let (mut parts_left, mut frames_left) = (0, 0);
        let (mut is_key, mut at_us) = (false, rng.random_range(0..9_000_000));
        for serial in camera.first..camera.first + camera.blocks {
            let is_last = camera.is_ended && serial + 1 == camera.first + camera.blocks;
            let mut block = vec![0; block_bytes as usize];
            let section = match index::ends_group(serial) {
                true => index::section_bytes_max(block.len()),
                false => 0,
            };
            let mut composer = Composer::new(block.len(), TEXT.len(), section);
            let count = rng.random_range(1..=camera.packets) as usize;
            let len_max = left.map_or(60, |_| 1_400);
            for number in 0.. {
                let is_full = match left {
                    None => number == count,
                    Some(left) => {
                        let least = if is_last { len_max + left } else { len_max };
                        composer.room().len() < least
                    }
                };
                if is_full {
                    break;
                }
                let is_sound = rng.random_ratio(1, 6);
                let begins = !is_sound && parts_left == 0;
                if begins {
                    is_key = frames_left == 0;
                    if is_key {
                        frames_left = rng.random_range(1..=camera.gop);
                        small.keys.push((at_us * 1_000, serial, number));
                    }
                    frames_left -= 1;
                    parts_left = rng.random_range(1..=camera.parts);
                }
                parts_left -= u64::from(!is_sound);
                at_us += rng.random_range(500..40_000);
                if begins && is_key {
                    small.keys.last_mut().unwrap().0 = at_us * 1_000;
                }
                let entry = Entry {
                    track: if is_sound { 0 } else { PICTURE },
                    kind: match is_sound && rng.random_ratio(1, 5) {
                        true => Kind::Rtcp,
                        false => Kind::Rtp,
                    },
                    begins_frame: begins || is_sound,
                    is_key: is_key || is_sound,
                    arrival_ns: at_us * 1_000 + 700_000_000,
                    media_ns: at_us * 1_000,
                    header: rng.random(),
                    lost: rng.random_range(0..2),
                };
                let len = rng.random_range(0..len_max);
                let from = composer.room().start;
                rng.fill(&mut block[from..from + len]);
                composer.push(&mut block, len, &entry);
                indexer.packet(&entry, len);
                small.ends_ns = entry.media_ns;
            }
            let written = indexer.block(is_last, composer.index_room());
            let (section, _) = written.unzip();
            if let Some(section) = section.as_ref().filter(|of| !of.is_empty()) {
                let parsed = Index::parse(section).unwrap();
                small.sections.insert(serial, parsed);
            }
            let seal = Seal {
                archive: header.archive,
                serial,
                recording: camera.number,
                first: camera.first,
                begun_unix_ns: 1_700_000_000_000_000_000,
                gap: None,
                end: is_last.then_some(GapCause::Camera),
            };
            let section = section.unwrap_or_default();
            composer.seal(&mut block, TEXT.as_bytes(), &section, &seal);
            small.blocks.insert(serial, block);
        }
        small.ends_with_key = is_key;
        small
    }

    pub(crate) fn end(&self) -> u64 {
        self.camera.first + self.camera.blocks
    }

    /// The serials of the last blocks of its groups.
    pub(crate) fn group_ends(&self) -> Vec<u64> {
        let serials = self.camera.first..self.end();
        let ends = serials.filter(|of| index::ends_group(*of) || of + 1 == self.end());
        ends.collect()
    }

    /// Length of its archive: the header's block and the ring.
    pub(crate) fn bytes(&self) -> u64 {
        (self.header.blocks + 1) * self.header.block_bytes
    }

    /// When a block begins.
    pub(crate) fn begins_ns(&self, serial: u64) -> u64 {
        Block::parse(&self.blocks[&serial])
            .unwrap()
            .trailer
            .media_ns
    }

    /// Writes it to a volume, but for what is zero.
    pub(crate) fn write(&self, client: &Client, volume: &Volume) {
        let put = |at: u64, bytes: &[u8]| client.write_at(volume, Bytes(at), bytes).unwrap();
        put(0, &self.header.encode());
        let size = self.header.block_bytes;
        // An older recording, of no more interest.
        for serial in 0..self.camera.first {
            let mut block = vec![0; size as usize];
            let seal = Seal {
                archive: self.header.archive,
                serial,
                recording: 2,
                first: 0,
                begun_unix_ns: 5,
                gap: None,
                end: None,
            };
            Composer::new(block.len(), 0, 0).seal(&mut block, b"", b"", &seal);
            let end = (serial + 2) * size;
            put(end - 512, &block[block.len() - 512..]);
        }
        for (serial, block) in &self.blocks {
            let at = (serial % self.header.blocks + 1) * size;
            for (number, part) in (0..).zip(block.chunks(4_096)) {
                if part.iter().any(|byte| *byte != 0) {
                    put(at + number * 4_096, part);
                }
            }
        }
    }
}

/// The archive as it is when nothing of it is known, and its only recording.
pub(crate) fn opened(client: &Client, volume: &Arc<Volume>) -> (Arc<Archive>, Recording) {
    let archive = Archive::open(client, Arc::clone(volume)).expect("an archive");
    let recording = archive.recording(None).expect("a recording");
    (Arc::new(archive), recording)
}

/// A block as it would be without its section.
pub(crate) fn without_section(block: &mut [u8]) {
    let trailer = block.len() - TRAILER;
    let number = |block: &[u8], at: usize| {
        u32::from_le_bytes(block[trailer + at..trailer + at + 4].try_into().unwrap()) as usize
    };
    let (entries, index) = (number(block, 104), number(block, 108));
    let end = trailer - entries * 32;
    block[end - index..end].fill(0);
    block[trailer + 108..].fill(0);
    mend(block);
}

/// A block whose section is torn, and nothing else of it is seen to be.
pub(crate) fn tear_section(block: &mut [u8]) {
    let trailer = block.len() - TRAILER;
    let entries = u32::from_le_bytes(block[trailer + 104..trailer + 108].try_into().unwrap());
    block[trailer - entries as usize * 32 - 1] ^= 1;
}

/// Makes the checksums of a block right.
fn mend(block: &mut [u8]) {
    let trailer = block.len() - TRAILER;
    let sum = |parts: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, parts);
    let content = sum(&block[..trailer]);
    block[trailer + 24..trailer + 32].copy_from_slice(&content.to_le_bytes());
    block[trailer + 16..trailer + 24].fill(0);
    let all = sum(&block[trailer..]);
    block[trailer + 16..trailer + 24].copy_from_slice(&all.to_le_bytes());
}
