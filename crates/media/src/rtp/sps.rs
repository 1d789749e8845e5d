//! Parses sequence parameter sets (SPS) of H.264 and H.265, as far as a file needs them.

use h264_reader::rbsp::{BitRead, BitReader};

/// The beginning of the SPS of H.264 (ITU-T H.264, 7.3.2.1.1). The rest is not parsed, because some cameras
/// write it wrong.
pub(crate) struct AvcSps {
    pub(crate) chroma_format: u8,
    pub(crate) luma_bits_above_8: u8,
    pub(crate) chroma_bits_above_8: u8,
    width: u32,
    height: u32,
    /// A picture may be a field: half of a frame.
    has_fields: bool,
}

/// Bytes of an SPS that are parsed to find out whether there are fields.
const PARSED_BYTES_MAX: usize = 512;

/// Returns true if a NAL unit is an SPS of H.264 with pictures that may be fields.
#[must_use]
pub(crate) fn has_fields(sps: &[u8]) -> bool {
    let beginning = &sps[..sps.len().min(PARSED_BYTES_MAX)];
    // The parser panics if there are no bytes at all.
    let unit = Some(beginning).filter(|unit| !unit.is_empty());
    let plain = unit.and_then(|unit| h264_reader::rbsp::decode_nal(unit).ok());
    let parsed = plain.and_then(|plain| AvcSps::parse(&plain));
    parsed.is_some_and(|of| of.has_fields)
}

/// Profiles whose SPS has a chroma format and bit depths.
const AVC_HIGH: [u8; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

impl AvcSps {
    /// Parses a NAL unit without its header and without emulation prevention bytes.
    pub(crate) fn parse(plain: &[u8]) -> Option<Self> {
        let profile = *plain.first()?;
        let mut bits = BitReader::new(plain.get(3..)?);
        let mut of = Self {
            chroma_format: 1,
            luma_bits_above_8: 0,
            chroma_bits_above_8: 0,
            width: 0,
            height: 0,
            has_fields: false,
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
        of.has_fields = !bits.read_bit("frame_mbs_only_flag").ok()?;
        if of.has_fields {
            bits.skip(1, "mb_adaptive_frame_field_flag").ok()?;
        }
        bits.skip(1, "direct_8x8_inference_flag").ok()?;
        let fields = if of.has_fields { 2 } else { 1 };
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

    /// Width and height of the cropped picture.
    pub(crate) fn size(&self) -> Option<(u16, u16)> {
        let some = |of: u32| u16::try_from(of).ok().filter(|of| *of > 0);
        Some((some(self.width)?, some(self.height)?))
    }
}

/// Reads an unsigned Exp-Golomb code of at most `most`.
fn ue(bits: &mut impl BitRead, most: u32) -> Option<u32> {
    bits.read_ue("a number").ok().filter(|of| *of <= most)
}

/// Skips one of the scaling lists (ITU-T H.264, 7.3.2.1.1.1).
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

/// The beginning of the SPS of H.265 (ITU-T H.265, 7.3.2.2.1).
pub(crate) struct HevcSps {
    pub(crate) sub_layers: u8,
    pub(crate) is_nested: bool,
    pub(crate) chroma_format: u8,
    width: u32,
    height: u32,
    /// Conformance window: left, right, top and bottom offset in chroma samples.
    window: [u32; 4],
    pub(crate) luma_bits_above_8: u8,
    pub(crate) chroma_bits_above_8: u8,
}

/// Largest width and height of a picture.
const PIXELS_MAX: u32 = u16::MAX as u32;

impl HevcSps {
    /// Parses a NAL unit without its header and without emulation prevention bytes.
    pub(crate) fn parse(plain: &[u8]) -> Option<Self> {
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

    /// Width and height of the cropped picture.
    pub(crate) fn size(&self) -> Option<(u16, u16)> {
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

/// Length of a profile and of a level in the SPS, in bits.
const PROFILE_BITS: u32 = 88;
const LEVEL_BITS: u32 = 8;
