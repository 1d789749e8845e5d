//! MP4 in fragments (ISO/IEC 14496-12): what goes before them, and they themselves.
//!
//! In fragments, because a file can then be written from its beginning to its end without knowing either, and each
//! fragment alone can be handed to a browser. The boxes are `mp4-atom`'s.

mod head;

use mp4_atom::esds::{DecoderConfig, DecoderSpecific, EsDescriptor, SLConfig};
use mp4_atom::{
    Atom, Audio, Avc1, Avcc, AvccExt, Codec as Entry, Dinf, Dops, Dref, DrefEntry, Encode, Esds,
    FourCC, Ftyp, Hdlr, Hvc1, HvcCArray, Hvcc, Mdhd, Mdia, Mehd, Mfhd, Minf, Moof, Moov, Mp4a,
    Mvex, Mvhd, Opus, Smhd, Stbl, Stco, Stsd, Styp, Tfdt, Tfhd, Tkhd, Traf, Trak, Trex, Trun,
    TrunEntry, Url, Visual, Vmhd,
};

use super::aac;
use crate::rtp::parameters::{Codec, Parameters};
pub use head::TrackHead;

/// Flags of a sample that depends on no other, and of one that does (ISO/IEC 14496-12, 8.8.3.1).
const KEY: u32 = 0x0200_0000;
const OTHER: u32 = 0x0101_0000;

/// A frame, or a piece of sound, at its time in units of its track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Its bytes.
    pub data: Vec<u8>,
    /// When it is to be played.
    pub ticks: i64,
    /// Whether it can be decoded without any before it.
    pub is_key: bool,
}

/// What of a track goes into a fragment.
#[derive(Debug)]
pub struct Run<'a> {
    /// Which track.
    pub id: u32,
    /// In the order in which they are decoded.
    pub samples: &'a [Sample],
    /// When the next one is decoded, as far as that is known.
    pub next_ticks: Option<i64>,
    /// How long a sample is of which nothing else is known.
    pub usual_ticks: u32,
}

/// What goes before the fragments, which take so many milliseconds if that is known.
///
/// # Errors
/// Never but for what makes no sense.
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
    Ok(out)
}

/// What a segment that is handed out alone begins with.
///
/// # Errors
/// Never.
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

/// A fragment: what is said of the samples, and they themselves.
///
/// # Errors
/// When there is more than boxes can say.
pub fn fragment(number: u32, runs: &[Run<'_>]) -> mp4_atom::Result<Vec<u8>> {
    let mut moof = Moof {
        mfhd: Mfhd {
            sequence_number: number,
        },
        traf: runs.iter().map(traf).collect(),
    };
    let mut head = Vec::new();
    moof.encode(&mut head)?;
    // Where each run's samples begin, now that it is known how long what is before them is.
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
    say_flags_with_samples(&mut out);
    out.extend_from_slice(&(data_bytes as u32).to_be_bytes());
    out.extend_from_slice(b"mdat");
    for sample in runs.iter().flat_map(|run| run.samples) {
        out.extend_from_slice(&sample.data);
    }
    Ok(out)
}

/// Moves the flags of a run's only sample to where those of others are. `mp4-atom` says them once for the run
/// (`first_sample_flags`), and not all readers look there.
fn say_flags_with_samples(boxes: &mut [u8]) {
    let mut rest = boxes;
    while let Some(([s0, s1, s2, s3, kind @ ..], _)) = rest.split_first_chunk::<8>() {
        let (kind, bytes) = (*kind, u32::from_be_bytes([*s0, *s1, *s2, *s3]) as usize);
        let (this, behind) = rest.split_at_mut(bytes.clamp(8, rest.len()));
        match &kind {
            b"moof" | b"traf" => say_flags_with_samples(&mut this[8..]),
            b"trun" if this[11] & 4 > 0 => {
                this[11] &= !4;
                this[10] |= 4;
                // Behind its duration and its size.
                this[20..32].rotate_left(4);
            }
            _ => {}
        }
        rest = behind;
    }
}

fn traf(run: &Run<'_>) -> Traf {
    let shown = show_times(run);
    let decoded = decode_times(&shown);
    let mut entries: Vec<TrunEntry> = Vec::with_capacity(run.samples.len());
    for (number, sample) in run.samples.iter().enumerate() {
        let next = decoded.get(number + 1).copied();
        let duration = match next.or(run.next_ticks) {
            Some(next) if next > decoded[number] => {
                (next - decoded[number]).min(u32::MAX.into()) as u32
            }
            // As long as the one before.
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
            // The same length as what it will be.
            data_offset: Some(0),
            samples: entries.into(),
        }],
        ..Traf::default()
    }
}

/// When samples are shown: where several have one time, as some cameras send them, they share the time up to the next one,
/// no longer apart than is usual.
fn show_times(run: &Run<'_>) -> Vec<i64> {
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

/// When samples are decoded, given when they are shown, in the order in which they are decoded: packets do not say it.
/// The first one when the first is shown, and so on: each no later than it is shown but for what is moved about, whose
/// difference is below zero, as files of this kind may have it.
fn decode_times(shown: &[i64]) -> Vec<i64> {
    let mut times = shown.to_vec();
    times.sort_unstable();
    // No two at once.
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
    fn a_fragment_says_when_each_of_its_samples_is_decoded_and_shown() {
        // I P B B, as they are decoded.
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
        // Duration, size, flags and difference of the only sample: each is said of it.
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
            show_times(&Run {
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
        // At the end, up to what comes next, or within what there was before.
        assert_eq!(shown(&[0, 0], Some(4_000)), [0, 2_000]);
        assert_eq!(shown(&[0, 3_000, 3_000], None), [0, 3_000, 4_500]);
        assert_eq!(shown(&[5; 3], None), [5, 1_205, 2_405]);
        assert_eq!(shown(&[0, 10, 5], None), [0, 10, 5]);
    }
}
