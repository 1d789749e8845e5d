//! Fragmented MP4 (ISO/IEC 14496-12): the head of a file, and fragments.
//!
//! A fragmented file can be written from start to end without knowing its length, and a browser can play each
//! fragment on its own. The boxes are encoded by `mp4-atom`.

mod entry;
mod head;

use mp4_atom::{
    Atom, Dinf, Dref, DrefEntry, Encode, FourCC, Ftyp, Hdlr, Mdhd, Mdia, Mehd, Mfhd, Minf, Moof,
    Moov, Mvex, Mvhd, Smhd, Stbl, Stco, Stsd, Styp, Tfdt, Tfhd, Tkhd, Traf, Trak, Trex, Trun,
    TrunEntry, Url, Vmhd,
};

pub use head::TrackHead;

/// Flags of a sample that depends on no other, and of one that does (ISO/IEC 14496-12, 8.8.3.1).
const KEY: u32 = 0x0200_0000;
const OTHER: u32 = 0x0101_0000;

/// A sample of a track; its time is in ticks of the track's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The encoded frame.
    pub data: Vec<u8>,
    /// Presentation time.
    pub ticks: i64,
    /// True if it can be decoded without others.
    pub is_key: bool,
}

/// The samples of a track in a fragment.
#[derive(Debug)]
pub struct Run<'a> {
    /// Number of the track in the file.
    pub id: u32,
    /// In decoding order.
    pub samples: &'a [Sample],
    /// Decoding time of the next sample, if it is known.
    pub next_ticks: Option<i64>,
    /// Default duration of a sample.
    pub usual_ticks: u32,
}

/// The head of a file: `ftyp` and `moov`, with the duration of the fragments in milliseconds if it is known.
///
/// # Errors
/// When a value does not fit in its box.
pub fn init(tracks: &[TrackHead], length_ms: Option<u64>) -> mp4_atom::Result<Vec<u8>> {
    let mut out = Vec::new();
    let brands = [b"iso6", b"mp41", b"cmfc"];
    Ftyp {
        major_brand: FourCC::new(b"iso6"),
        minor_version: 0,
        compatible_brands: brands.map(FourCC::new).to_vec(),
    }
    .encode(&mut out)?;
    let next_track_id = tracks.iter().map(|track| track.id).max().unwrap_or(0) + 1;
    let trex = |track: &TrackHead| Trex {
        track_id: track.id,
        default_sample_description_index: 1,
        ..Trex::default()
    };
    Moov {
        mvhd: Mvhd {
            timescale: 1_000,
            rate: 1.into(),
            volume: 1.into(),
            next_track_id,
            ..Mvhd::default()
        },
        mvex: Some(Mvex {
            mehd: length_ms.map(|fragment_duration| Mehd { fragment_duration }),
            trex: tracks.iter().map(trex).collect(),
        }),
        trak: tracks.iter().map(TrackHead::trak).collect(),
        ..Moov::default()
    }
    .encode(&mut out)?;
    for (place, track) in tracks.iter().enumerate() {
        track.entry.insert(&mut out, place);
    }
    Ok(out)
}

/// The head of a segment that is a file of its own: `styp`.
///
/// # Errors
/// Never for these values.
pub fn segment_head() -> mp4_atom::Result<Vec<u8>> {
    let mut out = Vec::new();
    Styp {
        major_brand: FourCC::new(b"msdh"),
        minor_version: 0,
        compatible_brands: vec![FourCC::new(b"msdh"), FourCC::new(b"cmfs")],
    }
    .encode(&mut out)?;
    Ok(out)
}

/// Encodes a fragment: `moof` with the metadata of the samples, and `mdat` with their bytes.
///
/// # Errors
/// When a value does not fit in its box.
pub fn fragment(number: u32, runs: &[Run<'_>]) -> mp4_atom::Result<Vec<u8>> {
    let mut moof = Moof {
        mfhd: Mfhd {
            sequence_number: number,
        },
        traf: runs.iter().map(traf).collect(),
    };
    let mut head = Vec::new();
    moof.encode(&mut head)?;
    // The offsets of the runs are known only after the length of the head is.
    let mut at = head.len() + 8;
    for (traf, run) in moof.traf.iter_mut().zip(runs) {
        traf.trun[0].data_offset =
            Some(i32::try_from(at).map_err(|_| mp4_atom::Error::TooLarge(Moof::KIND))?);
        at += run
            .samples
            .iter()
            .map(|sample| sample.data.len())
            .sum::<usize>();
    }
    let data_bytes = at - head.len();
    let mut out = Vec::with_capacity(at);
    moof.encode(&mut out)?;
    move_flags_to_samples(&mut out);
    out.extend_from_slice(&(data_bytes as u32).to_be_bytes());
    out.extend_from_slice(b"mdat");
    for sample in runs.iter().flat_map(|run| run.samples) {
        out.extend_from_slice(&sample.data);
    }
    Ok(out)
}

/// Moves the flags of the sample in a run of one to the sample's entry. For such a run `mp4-atom` writes
/// `first_sample_flags` instead, which not all readers support.
fn move_flags_to_samples(boxes: &mut [u8]) {
    let mut rest = boxes;
    while let Some(([s0, s1, s2, s3, kind @ ..], _)) = rest.split_first_chunk::<8>() {
        let (kind, bytes) = (*kind, u32::from_be_bytes([*s0, *s1, *s2, *s3]) as usize);
        let (this, behind) = rest.split_at_mut(bytes.clamp(8, rest.len()));
        match &kind {
            b"moof" | b"traf" => move_flags_to_samples(&mut this[8..]),
            b"trun" if this[11] & 4 > 0 => {
                this[11] &= !4;
                this[10] |= 4;
                // The flags come after the duration and the size.
                this[20..32].rotate_left(4);
            }
            _ => {}
        }
        rest = behind;
    }
}

fn traf(run: &Run<'_>) -> Traf {
    let shown = presentation_times(run);
    let decoded = decoding_times(&shown);
    let mut entries: Vec<TrunEntry> = Vec::with_capacity(run.samples.len());
    for (number, sample) in run.samples.iter().enumerate() {
        let next = decoded.get(number + 1).copied();
        let duration = match next.or(run.next_ticks) {
            Some(next) if next > decoded[number] => {
                (next - decoded[number]).min(u32::MAX.into()) as u32
            }
            // As long as the previous sample.
            _ => entries
                .last()
                .and_then(|last| last.duration)
                .unwrap_or(run.usual_ticks),
        };
        let after = shown[number] - decoded[number];
        entries.push(TrunEntry {
            duration: Some(duration),
            size: Some(sample.data.len() as u32),
            flags: Some(if sample.is_key { KEY } else { OTHER }),
            cts: Some(after.clamp(i32::MIN.into(), i32::MAX.into())),
        });
    }
    Traf {
        tfhd: Tfhd {
            track_id: run.id,
            default_base_is_moof: true,
            ..Tfhd::default()
        },
        tfdt: Some(Tfdt {
            base_media_decode_time: decoded.first().copied().unwrap_or(0).max(0) as u64,
        }),
        trun: vec![Trun {
            // A placeholder of the final length.
            data_offset: Some(0),
            samples: entries.into(),
        }],
        ..Traf::default()
    }
}

/// Presentation times. If several samples have one time, as some cameras send them, they share the interval
/// up to the next time, at most the usual duration apart.
fn presentation_times(run: &Run<'_>) -> Vec<i64> {
    let mut times: Vec<i64> = run.samples.iter().map(|sample| sample.ticks).collect();
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|number| times[*number]);
    let usual = i64::from(run.usual_ticks);
    let (mut from, mut before) = (0, None);
    while let Some(first) = order.get(from) {
        let at = times[*first];
        let is_later = |number: &&usize| times[**number] > at;
        let next = order[from..].iter().find(is_later).map(|of| times[*of]);
        let next = next.or(run.next_ticks.filter(|next| *next > at));
        let count = order[from..].partition_point(|of| times[*of] <= at);
        if count > 1 {
            let room = match (next, before) {
                (Some(next), _) => next - at,
                (None, Some(before)) => usual.min(at - before),
                (None, None) => usual,
            };
            let step = (room / count as i64).clamp(1, usual.max(1));
            for (later, number) in (0..).zip(&order[from..from + count]) {
                times[*number] += later * step;
            }
        }
        (from, before) = (from + count, Some(at));
    }
    times
}

/// Decoding times of samples in decoding order, which packets do not tell: the sorted presentation times. A
/// reordered sample may so be shown before it is decoded; its composition offset is negative, which fragments
/// allow.
fn decoding_times(shown: &[i64]) -> Vec<i64> {
    let mut times = shown.to_vec();
    times.sort_unstable();
    // Strictly increasing.
    for number in 1..times.len() {
        times[number] = times[number].max(times[number - 1] + 1);
    }
    times
}

#[cfg(test)]
mod tests {
    use mp4_atom::Decode;

    use super::*;

    fn sample(ticks: i64, is_key: bool) -> Sample {
        Sample {
            data: vec![ticks as u8; 3],
            ticks,
            is_key,
        }
    }

    #[test]
    fn a_fragment_has_the_times_of_its_samples() {
        // I P B B, in decoding order.
        let samples = [
            sample(0, true),
            sample(30, false),
            sample(10, false),
            sample(20, false),
        ];
        let run = Run {
            id: 1,
            samples: &samples,
            next_ticks: Some(40),
            usual_ticks: 7,
        };
        let sound = [sample(5, true)];
        let other = Run {
            id: 2,
            samples: &sound,
            next_ticks: None,
            usual_ticks: 1_024,
        };
        let bytes = fragment(3, &[run, other]).unwrap();
        let mut rest = &bytes[..];
        let moof = Moof::decode(&mut rest).unwrap();
        assert_eq!(moof.mfhd.sequence_number, 3);
        let shown = |traf: &Traf| -> Vec<(i64, u32)> {
            let mut at = traf
                .tfdt
                .as_ref()
                .map_or(0, |of| of.base_media_decode_time as i64);
            let entries = traf.trun[0].samples.iter();
            entries
                .map(|entry| {
                    let duration = entry.duration.unwrap();
                    let shown = at + entry.cts.unwrap();
                    at += i64::from(duration);
                    (shown, duration)
                })
                .collect()
        };
        assert_eq!(
            shown(&moof.traf[0]),
            [(0, 10), (30, 10), (10, 10), (20, 10)]
        );
        assert_eq!(shown(&moof.traf[1]), [(5, 1_024)]);
        // Duration, size, flags and composition offset of the only sample are in its entry.
        let at = bytes.windows(4).rposition(|of| of == b"trun").unwrap();
        let words: Vec<u32> = bytes[at + 4..at + 32]
            .chunks_exact(4)
            .map(|of| u32::from_be_bytes(of.try_into().unwrap()))
            .collect();
        assert_eq!((words[0], words[1]), (0x0100_0f01, 1));
        assert_eq!(words[3..], [1_024, 3, KEY, 0]);
        let at = |traf: &Traf| traf.trun[0].data_offset.unwrap() as usize;
        assert_eq!(
            bytes[at(&moof.traf[0])..][..12],
            [0, 0, 0, 30, 30, 30, 10, 10, 10, 20, 20, 20]
        );
        assert_eq!(bytes[at(&moof.traf[1])..], [5, 5, 5]);
    }

    #[test]
    fn samples_of_one_time_share_the_time_up_to_the_next() {
        let shown = |ticks: &[i64], next_ticks| {
            let samples: Vec<Sample> = ticks.iter().map(|of| sample(*of, false)).collect();
            presentation_times(&Run {
                id: 1,
                samples: &samples,
                next_ticks,
                usual_ticks: 3_600,
            })
        };
        let twice = [0, 9_000, 9_000, 27_000];
        assert_eq!(shown(&twice, None), [0, 9_000, 12_600, 27_000]);
        let thrice = [0, 3_000, 0, 0];
        assert_eq!(shown(&thrice, None), [0, 3_000, 1_000, 2_000]);
        // At the end: up to the next sample's time, or within the last interval.
        assert_eq!(shown(&[0, 0], Some(4_000)), [0, 2_000]);
        assert_eq!(shown(&[0, 3_000, 3_000], None), [0, 3_000, 4_500]);
        assert_eq!(shown(&[5; 3], None), [5, 1_205, 2_405]);
        assert_eq!(shown(&[0, 10, 5], None), [0, 10, 5]);
    }
}
