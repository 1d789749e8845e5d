//! What a description means by what it says beside the grammar.

use sdp_types::{Attribute, Media};

/// How large pictures are, as GStreamer (`a=x-dimensions`) and RFC 6064 (`a=framesize`) say it.
pub(super) fn size(attribute: &Attribute) -> Option<(u16, u16)> {
    let value = attribute.value.as_deref()?;
    let (width, height) = match attribute.attribute.as_str() {
        "x-dimensions" => value.split_once(',')?,
        "framesize" => value.split_once(' ')?.1.split_once('-')?,
        _ => return None,
    };
    let pixels = |text: &str| text.trim().parse().ok().filter(|of| *of > 0);
    Some((pixels(width)?, pixels(height)?))
}

/// Types from this on are what a description says (RFC 3551, section 6).
const DYNAMIC_MIN: u8 = 96;

/// Some cameras describe the only format that a track has under the number of another one: it is meant for that.
pub(super) fn describe_the_only_format(media: &mut Media) {
    let mut formats = media.fmt.split_ascii_whitespace();
    let (Some(only), None) = (formats.next(), formats.next()) else {
        return;
    };
    // What others are is known.
    if !only.parse::<u8>().is_ok_and(|of| of >= DYNAMIC_MIN) {
        return;
    }
    for name in ["rtpmap", "fmtp"] {
        let mut said = media.attributes.iter_mut();
        let mut said = said.by_ref().filter(|of| of.attribute == name);
        if let (Some(one), None) = (said.next(), said.next())
            && let Some(value) = &one.value
            && let Some((of, rest)) = value.trim_start().split_once(' ')
            && of != only
            && of.parse::<u8>().is_ok()
        {
            one.value = Some(format!("{only} {rest}"));
        }
    }
}
