//! What a track is, and how players are told.

use super::*;

/// Its header, and what kind of a sequence it is.
const SPS_BYTES_MIN: usize = 4;

/// What a track is, as a decoder has to know it.
#[derive(Clone, Debug)]
pub struct TrackHead {
    /// Its number in the file, from 1.
    pub id: u32,
    /// How many units of time a second has.
    pub timescale: u32,
    entry: Entry,
    size: Option<(u16, u16)>,
    /// What players call it (RFC 6381).
    pub codec: String,
}

impl TrackHead {
    /// Its number in the recording, from 0.
    #[must_use]
    pub fn track(&self) -> usize {
        self.id as usize - 1
    }

    /// How wide and high it is, in pixels, if it is a picture.
    #[must_use]
    pub fn size(&self) -> Option<(u16, u16)> {
        self.size
    }

    /// A picture. `None`: its parameters make no sense.
    #[must_use]
    pub fn video(id: u32, timescale: u32, codec: Codec, parameters: &Parameters) -> Option<Self> {
        // The library that reads them does not expect them to be cut shorter.
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
            entry,
            size: Some(size),
            codec,
        })
    }

    /// Sound in AAC.
    #[must_use]
    pub fn aac(id: u32, timescale: u32, config: &aac::Config) -> Self {
        let specific = DecoderSpecific {
            profile: config.object_type,
            freq_index: config.frequency_index,
            chan_conf: config.channels,
            raw: config.specific.clone(),
        };
        let dec_config = DecoderConfig {
            object_type_indication: 0x40,
            stream_type: 5,
            dec_specific: Some(specific),
            ..DecoderConfig::default()
        };
        let esds = Esds {
            es_desc: EsDescriptor {
                es_id: id as u16,
                dec_config,
                sl_config: SLConfig::default(),
                ..EsDescriptor::default()
            },
        };
        let entry = Mp4a {
            audio: audio(u16::from(config.channels), timescale),
            esds,
            btrt: None,
            taic: None,
        };
        Self {
            id,
            timescale,
            entry: entry.into(),
            size: None,
            codec: format!("mp4a.40.{}", config.object_type),
        }
    }

    /// Sound in Opus.
    #[must_use]
    pub fn opus(id: u32, timescale: u32, channels: u8) -> Self {
        let entry = Opus {
            audio: audio(u16::from(channels), timescale),
            dops: Dops {
                output_channel_count: channels,
                pre_skip: 0,
                input_sample_rate: timescale,
                output_gain: 0,
                channel_mapping: None,
            },
            btrt: None,
        };
        Self {
            id,
            timescale,
            entry: entry.into(),
            size: None,
            codec: "opus".to_owned(),
        }
    }

    pub(super) fn trak(&self) -> Trak {
        let is_video = self.size.is_some();
        let (width, height) = self.size.unwrap_or_default();
        let url = Url::default();
        let minf = Minf {
            vmhd: is_video.then(Vmhd::default),
            smhd: (!is_video).then(Smhd::default),
            dinf: Dinf {
                dref: Dref {
                    entries: vec![DrefEntry::Url(url)],
                },
            },
            stbl: Stbl {
                stsd: Stsd {
                    codecs: vec![self.entry.clone()],
                },
                stco: Some(Stco::default()),
                ..Stbl::default()
            },
            ..Minf::default()
        };
        let (handler, name) = match is_video {
            true => (b"vide", "video"),
            false => (b"soun", "sound"),
        };
        Trak {
            tkhd: Tkhd {
                track_id: self.id,
                enabled: true,
                in_movie: true,
                volume: u8::from(!is_video).into(),
                width: width.into(),
                height: height.into(),
                ..Tkhd::default()
            },
            mdia: Mdia {
                mdhd: Mdhd {
                    timescale: self.timescale,
                    language: "und".to_owned(),
                    ..Mdhd::default()
                },
                hdlr: Hdlr {
                    handler: FourCC::new(handler),
                    name: name.to_owned(),
                },
                minf,
            },
            ..Trak::default()
        }
    }
}

fn audio(channel_count: u16, rate: u32) -> Audio {
    Audio {
        data_reference_index: 1,
        channel_count,
        sample_size: 16,
        // What is faster than can be said here is in the decoder's own configuration.
        sample_rate: u16::try_from(rate).unwrap_or(0).into(),
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
    // What only the profiles with more than 4:2:0 of 8 bits have (ISO/IEC 14496-15, 5.3.3.1.2).
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
    // Its second byte is taken for a header of one byte, as H.264 has it.
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

/// What a file has to say of an H.264 sequence (ITU-T H.264, 7.3.2.1.1): the beginning of its parameters. What is behind that
/// is not looked at, as there are cameras that write it wrong.
struct AvcSps {
    chroma_format: u8,
    luma_bits_above_8: u8,
    chroma_bits_above_8: u8,
    width: u32,
    height: u32,
}

/// Profiles that say which chroma and how many bits they have.
const AVC_HIGH: [u8; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

impl AvcSps {
    /// Of what is behind the header of the NAL unit.
    fn parse(plain: &[u8]) -> Option<Self> {
        let profile = *plain.first()?;
        let mut bits = BitReader::new(plain.get(3..)?);
        let mut of = Self {
            chroma_format: 1,
            luma_bits_above_8: 0,
            chroma_bits_above_8: 0,
            width: 0,
            height: 0,
        };
        ue(&mut bits, 31)?;
        if AVC_HIGH.contains(&profile) {
            of.chroma_format = ue(&mut bits, 3)? as u8;
            if of.chroma_format == 3 {
                bits.skip(1, "separate_colour_plane_flag").ok()?;
            }
            of.luma_bits_above_8 = ue(&mut bits, 6)? as u8;
            of.chroma_bits_above_8 = ue(&mut bits, 6)? as u8;
            bits.skip(1, "qpprime_y_zero_transform_bypass_flag").ok()?;
            if bits.read_bit("seq_scaling_matrix_present_flag").ok()? {
                let lists = if of.chroma_format == 3 { 12 } else { 8 };
                (0..lists).try_for_each(|list| skip_scaling(&mut bits, list))?;
            }
        }
        ue(&mut bits, 12)?;
        match ue(&mut bits, 2)? {
            0 => drop(ue(&mut bits, 12)?),
            1 => {
                bits.skip(1, "delta_pic_order_always_zero_flag").ok()?;
                bits.read_se("offset_for_non_ref_pic").ok()?;
                bits.read_se("offset_for_top_to_bottom_field").ok()?;
                for _ in 0..ue(&mut bits, 255)? {
                    bits.read_se("offset_for_ref_frame").ok()?;
                }
            }
            _ => {}
        }
        ue(&mut bits, 64)?;
        bits.skip(1, "gaps_in_frame_num_value_allowed_flag").ok()?;
        let (wide, high) = (
            ue(&mut bits, PIXELS_MAX / 16)?,
            ue(&mut bits, PIXELS_MAX / 16)?,
        );
        let is_of_frames = bits.read_bit("frame_mbs_only_flag").ok()?;
        if !is_of_frames {
            bits.skip(1, "mb_adaptive_frame_field_flag").ok()?;
        }
        bits.skip(1, "direct_8x8_inference_flag").ok()?;
        let fields = if is_of_frames { 1 } else { 2 };
        (of.width, of.height) = ((wide + 1) * 16, (high + 1) * 16 * fields);
        if bits.read_bit("frame_cropping_flag").ok()? {
            of.crop(&mut bits, fields)?;
        }
        Some(of)
    }

    fn crop(&mut self, bits: &mut impl BitRead, fields: u32) -> Option<()> {
        let (of_width, of_height) = match self.chroma_format {
            1 => (2, 2),
            2 => (2, 1),
            _ => (1, 1),
        };
        let mut sum = || Some(ue(bits, PIXELS_MAX)? + ue(bits, PIXELS_MAX)?);
        let (across, down) = (sum()?, sum()?);
        self.width = self.width.checked_sub(across * of_width)?;
        self.height = self.height.checked_sub(down * of_height * fields)?;
        Some(())
    }

    fn size(&self) -> Option<(u16, u16)> {
        let some = |of: u32| u16::try_from(of).ok().filter(|of| *of > 0);
        Some((some(self.width)?, some(self.height)?))
    }
}

/// A number that is not higher than it may be.
fn ue(bits: &mut impl BitRead, most: u32) -> Option<u32> {
    bits.read_ue("a number").ok().filter(|of| *of <= most)
}

/// Passes over one of the scaling lists (7.3.2.1.1.1).
fn skip_scaling(bits: &mut impl BitRead, list: u32) -> Option<()> {
    if !bits.read_bit("seq_scaling_list_present_flag").ok()? {
        return Some(());
    }
    let (mut last, mut next) = (8, 8);
    for _ in 0..if list < 6 { 16 } else { 64 } {
        if next != 0 {
            let delta = bits.read_se("delta_scale").ok()?;
            next = i32::wrapping_add(last, delta).rem_euclid(256);
        }
        if next != 0 {
            last = next;
        }
    }
    Some(())
}

/// What a file has to say of an H.265 sequence (ITU-T H.265, 7.3.2.2.1): the beginning of its parameters.
struct HevcSps {
    sub_layers: u8,
    is_nested: bool,
    chroma_format: u8,
    width: u32,
    height: u32,
    /// Left, right, top and bottom, in units of its chroma samples.
    window: [u32; 4],
    luma_bits_above_8: u8,
    chroma_bits_above_8: u8,
}

/// The largest picture, in either direction.
const PIXELS_MAX: u32 = u16::MAX as u32;

impl HevcSps {
    /// Of what is behind the header of the NAL unit.
    fn parse(plain: &[u8]) -> Option<Self> {
        let mut bits = BitReader::new(plain);
        let skip = |bits: &mut BitReader<_>, count| bits.skip(count, "skipped").ok();
        skip(&mut bits, 4)?;
        let sub_layers: u8 = bits.read::<3, _>("sps_max_sub_layers_minus1").ok()?;
        let is_nested = bits.read_bit("sps_temporal_id_nesting_flag").ok()?;
        skip(&mut bits, PROFILE_BITS + LEVEL_BITS)?;
        let mut further = 0;
        for _ in 0..sub_layers {
            further +=
                PROFILE_BITS * u32::from(bits.read_bit("sub_layer_profile_present_flag").ok()?);
            further += LEVEL_BITS * u32::from(bits.read_bit("sub_layer_level_present_flag").ok()?);
        }
        if sub_layers > 0 {
            further += 2 * (8 - u32::from(sub_layers));
        }
        skip(&mut bits, further)?;
        bits.read_ue("sps_seq_parameter_set_id").ok()?;
        let chroma_format = bits
            .read_ue("chroma_format_idc")
            .ok()
            .filter(|of| *of <= 3)? as u8;
        if chroma_format == 3 {
            skip(&mut bits, 1)?;
        }
        let mut size = || {
            bits.read_ue("pic_size")
                .ok()
                .filter(|of| (1..=PIXELS_MAX).contains(of))
        };
        let (width, height) = (size()?, size()?);
        let mut window = [0; 4];
        if bits.read_bit("conformance_window_flag").ok()? {
            for offset in &mut window {
                *offset = bits
                    .read_ue("conf_win_offset")
                    .ok()
                    .filter(|of| *of <= PIXELS_MAX)?;
            }
        }
        let mut above_8 = || bits.read_ue("bit_depth_minus8").ok().filter(|of| *of <= 8);
        Some(Self {
            sub_layers: sub_layers + 1,
            is_nested,
            chroma_format,
            width,
            height,
            window,
            luma_bits_above_8: above_8()? as u8,
            chroma_bits_above_8: above_8()? as u8,
        })
    }

    /// How wide and high what is shown of it is.
    fn size(&self) -> Option<(u16, u16)> {
        let (of_width, of_height) = match self.chroma_format {
            1 => (2, 2),
            2 => (2, 1),
            _ => (1, 1),
        };
        let [left, right, top, bottom] = self.window;
        let shown = |whole: u32, cut: u32| u16::try_from(whole.checked_sub(cut)?).ok();
        Some((
            shown(self.width, (left + right) * of_width)?,
            shown(self.height, (top + bottom) * of_height)?,
        ))
    }
}

/// How long a profile and a level are there.
const PROFILE_BITS: u32 = 88;
const LEVEL_BITS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Of pictures of 64 by 48, as x264 and x265 write them.
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
    fn a_picture_is_as_large_as_its_parameters_say() {
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
            // Cut short anywhere it is none, or the same.
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
}
