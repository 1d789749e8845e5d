//! Heads of tracks of pictures.

use mp4_atom::{
    Av01, Av1c, Avc1, Avcc, AvccExt, Codec as Entry, Hvc1, HvcCArray, Hvcc, Visual, Vp08, Vp09,
    VpcC,
};

use super::{SampleEntry, TrackHead};
use crate::files::av1::Sequence;
use crate::files::mpeg4::Headers;
use crate::rtp::packet::vp::Format;
use crate::rtp::parameters::{Codec, Parameters};
use crate::rtp::sps::{AvcSps, HevcSps};

/// The NAL unit header, profile, compatibility and level.
const SPS_BYTES_MIN: usize = 4;

/// MPEG-4 object types (ISO/IEC 14496-1, table 5).
const MPEG4_VISUAL: u8 = 0x20;
const JPEG: u8 = 0x6c;

impl TrackHead {
    /// A video track; `None` if its parameters are invalid.
    #[must_use]
    pub fn video(id: u32, timescale: u32, codec: Codec, parameters: &Parameters) -> Option<Self> {
        // `h264-reader` expects longer units.
        let sps = parameters
            .sps
            .as_ref()
            .filter(|sps| sps.len() > SPS_BYTES_MIN)?;
        let (entry, size, codec) = match codec {
            Codec::Avc => avc(parameters, sps)?,
            Codec::Hevc => hevc(parameters, sps)?,
        };
        Some(Self {
            id,
            timescale,
            entry: entry.into(),
            size: Some(size),
            codec,
        })
    }

    /// A track of VP8 or VP9, by profile and size of its key frames.
    #[must_use]
    pub fn vp(id: u32, timescale: u32, format: Format, (profile, size): (u8, (u16, u16))) -> Self {
        // Profiles 1 and 3 have another chroma format, profiles 2 and 3 have more bits.
        let vpcc = VpcC {
            profile,
            bit_depth: if profile < 2 { 8 } else { 10 },
            // 4:2:0 with samples beside those of luminance, or 4:4:4.
            chroma_subsampling: if profile & 1 == 0 { 1 } else { 3 },
            ..VpcC::default()
        };
        let depth = vpcc.bit_depth;
        let visual = visual(size);
        let (name, entry) = match format {
            Format::Vp8 => {
                let vpcc = VpcC {
                    profile: 0,
                    bit_depth: 8,
                    chroma_subsampling: 1,
                    ..vpcc
                };
                let entry = Vp08 {
                    visual,
                    vpcc,
                    btrt: None,
                    colr: None,
                    pasp: None,
                    spatial: None,
                };
                ("vp08.00.00.08".to_owned(), Entry::from(entry))
            }
            Format::Vp9 => {
                let entry = Vp09 {
                    visual,
                    vpcc,
                    btrt: None,
                    colr: None,
                    pasp: None,
                    spatial: None,
                };
                (
                    format!("vp09.{profile:02}.10.{depth:02}"),
                    Entry::from(entry),
                )
            }
        };
        Self {
            id,
            timescale,
            entry: entry.into(),
            size: Some(size),
            codec: name,
        }
    }

    /// A track of AV1.
    #[must_use]
    pub fn av1(id: u32, timescale: u32, sequence: &Sequence) -> Self {
        let av1c = Av1c {
            seq_profile: sequence.profile,
            seq_level_idx_0: sequence.level,
            seq_tier_0: sequence.is_high_tier,
            high_bitdepth: sequence.bit_depth > 8,
            twelve_bit: sequence.bit_depth > 10,
            monochrome: sequence.is_monochrome,
            chroma_subsampling_x: sequence.is_subsampled.0,
            chroma_subsampling_y: sequence.is_subsampled.1,
            chroma_sample_position: sequence.chroma_position,
            initial_presentation_delay: None,
            config_obus: sequence.obu.clone(),
        };
        let entry = Av01 {
            visual: visual(sequence.size),
            av1c,
            ..Av01::default()
        };
        Self {
            id,
            timescale,
            entry: entry.into(),
            size: Some(sequence.size),
            codec: sequence.codec(),
        }
    }

    /// A track of MPEG-4 Visual.
    #[must_use]
    pub fn mpeg4(id: u32, timescale: u32, headers: &Headers) -> Option<Self> {
        let (visual, bytes) = (visual(headers.size), &headers.bytes);
        Some(Self {
            id,
            timescale,
            entry: SampleEntry::mpeg4_visual(id, &visual, MPEG4_VISUAL, Some(bytes))?,
            size: Some(headers.size),
            codec: format!("mp4v.20.{}", headers.profile),
        })
    }

    /// A track of Motion JPEG with images of this width and height.
    #[must_use]
    pub fn jpeg(id: u32, timescale: u32, size: (u16, u16)) -> Option<Self> {
        Some(Self {
            id,
            timescale,
            entry: SampleEntry::mpeg4_visual(id, &visual(size), JPEG, None)?,
            size: Some(size),
            codec: "mp4v.6C".to_owned(),
        })
    }
}

fn visual((width, height): (u16, u16)) -> Visual {
    Visual {
        data_reference_index: 1,
        width,
        height,
        ..Visual::default()
    }
}

type Video = (Entry, (u16, u16), String);

fn avc(parameters: &Parameters, sps: &[u8]) -> Option<Video> {
    let plain = h264_reader::rbsp::decode_nal(sps).ok()?;
    let parsed = AvcSps::parse(&plain)?;
    let size = parsed.size()?;
    let [_, profile, compatibility, level, ..] = *sps else {
        return None;
    };
    // Only profiles beyond 4:2:0 with 8 bits have these fields (ISO/IEC 14496-15, 5.3.3.1.2).
    let ext = matches!(profile, 100 | 110 | 122 | 144).then(|| AvccExt {
        chroma_format: parsed.chroma_format,
        bit_depth_luma: parsed.luma_bits_above_8 + 8,
        bit_depth_chroma: parsed.chroma_bits_above_8 + 8,
        sequence_parameter_sets_ext: Vec::new(),
    });
    let avcc = Avcc {
        configuration_version: 1,
        avc_profile_indication: profile,
        profile_compatibility: compatibility,
        avc_level_indication: level,
        length_size: 4,
        sequence_parameter_sets: vec![sps.to_vec()],
        picture_parameter_sets: parameters.pps.clone(),
        ext,
    };
    let entry = Avc1 {
        visual: visual(size),
        avcc,
        ..Avc1::default()
    };
    let codec = format!("avc1.{profile:02x}{compatibility:02x}{level:02x}");
    Some((entry.into(), size, codec))
}

fn hevc(parameters: &Parameters, sps: &[u8]) -> Option<Video> {
    // The reader skips a NAL unit header of one byte, as in H.264; the second byte takes its place.
    let plain = h264_reader::rbsp::decode_nal(sps.get(1..)?).ok()?;
    let (general, rest) = plain.get(1..)?.split_first_chunk::<11>()?;
    let level = *rest.first()?;
    let parsed = HevcSps::parse(&plain)?;
    let size = parsed.size()?;
    let array = |nal_unit_type, nalus: Vec<Vec<u8>>| HvcCArray {
        completeness: false,
        nal_unit_type,
        nalus,
    };
    let [first, c0, c1, c2, c3, constraints @ ..] = *general;
    let hvcc = Hvcc {
        general_profile_space: first >> 6,
        general_tier_flag: first >> 5 & 1 == 1,
        general_profile_idc: first & 0x1f,
        general_profile_compatibility_flags: [c0, c1, c2, c3],
        general_constraint_indicator_flags: constraints,
        general_level_idc: level,
        chroma_format_idc: parsed.chroma_format,
        bit_depth_luma_minus8: parsed.luma_bits_above_8,
        bit_depth_chroma_minus8: parsed.chroma_bits_above_8,
        num_temporal_layers: parsed.sub_layers,
        temporal_id_nested: parsed.is_nested,
        length_size_minus_one: 3,
        arrays: vec![
            array(32, parameters.vps.iter().cloned().collect()),
            array(33, vec![sps.to_vec()]),
            array(34, parameters.pps.clone()),
        ],
        ..Hvcc::new()
    };
    let entry = Hvc1 {
        visual: visual(size),
        hvcc,
        ..Hvc1::default()
    };
    let tier = if first >> 5 & 1 == 1 { 'H' } else { 'L' };
    let compatible = u32::from_be_bytes([c0, c1, c2, c3]).reverse_bits();
    let codec = format!("hvc1.{}.{compatible:X}.{tier}{level}", first & 0x1f);
    Some((entry.into(), size, codec))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pictures of 64 by 48 pixels, as encoded by x264 and x265.
    const AVC_SPS: [u8; 22] = [
        0x67, 0x42, 0xc0, 0x0a, 0xda, 0x11, 0xec, 0x04, 0x40, 0x00, 0x00, 0x03, 0x00, 0x40, 0x00,
        0x00, 0x03, 0x02, 0x83, 0xc4, 0x89, 0xa8,
    ];
    const AVC_PPS: [u8; 5] = [0x68, 0xce, 0x01, 0x37, 0x20];
    const HEVC_VPS: [u8; 24] = [
        0x40, 0x01, 0x0c, 0x01, 0xff, 0xff, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00,
        0x03, 0x00, 0x00, 0x03, 0x00, 0x1e, 0x95, 0x94, 0x09,
    ];
    const HEVC_SPS: [u8; 41] = [
        0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00,
        0x03, 0x00, 0x1e, 0xa0, 0x20, 0x83, 0x16, 0x59, 0x59, 0x52, 0x93, 0x0b, 0xc0, 0x5a, 0x02,
        0x00, 0x00, 0x03, 0x00, 0x02, 0x00, 0x00, 0x03, 0x00, 0x0a, 0x10,
    ];
    const HEVC_PPS: [u8; 6] = [0x44, 0x01, 0xc0, 0x73, 0xc0, 0x89];

    #[test]
    fn video_size_is_that_of_the_parameters() {
        for (codec, units, called) in [
            (Codec::Avc, vec![&AVC_SPS[..], &AVC_PPS], "avc1.42c00a"),
            (
                Codec::Hevc,
                vec![&HEVC_VPS[..], &HEVC_SPS, &HEVC_PPS],
                "hvc1.1.6.L30",
            ),
        ] {
            let mut parameters = Parameters::default();
            units.iter().for_each(|unit| parameters.note(codec, unit));
            let head = TrackHead::video(1, 90_000, codec, &parameters).unwrap();
            assert_eq!(head.size(), Some((64, 48)));
            assert_eq!(head.codec, called);
            // A truncated SPS is refused, or has the same size.
            let sps = parameters.sps.clone().unwrap();
            for length in 0..sps.len() {
                parameters.sps = Some(sps[..length].to_vec());
                let head = TrackHead::video(1, 90_000, codec, &parameters);
                assert!(
                    head.is_none_or(|head| head.size() == Some((64, 48))),
                    "{length}"
                );
            }
        }
    }

    /// Some cameras append a byte to the SPS (retina #102), others zeros.
    #[test]
    fn bytes_after_parameters_are_ignored() {
        for behind in [&[0x04][..], &[0, 0], &[0x80, 0x80, 0x80]] {
            let mut parameters = Parameters::default();
            parameters.note(Codec::Avc, &[&AVC_SPS[..], behind].concat());
            parameters.note(Codec::Avc, &AVC_PPS);
            let head = TrackHead::video(1, 90_000, Codec::Avc, &parameters).unwrap();
            assert_eq!((head.size(), &*head.codec), (Some((64, 48)), "avc1.42c00a"));
        }
    }
}
