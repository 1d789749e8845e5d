//! Attributes of a description that cameras write outside the standards, and their meaning.

use sdp_types::{Attribute, Media};

/// Width and height of pictures, from `a=x-dimensions` (GStreamer) or `a=framesize` (RFC 6064).
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

/// The first dynamic payload type: a description defines it (RFC 3551, section 6).
const DYNAMIC_MIN: u8 = 96;

/// Some cameras describe the only format of a track under another payload type: this corrects the type.
pub(super) fn describe_the_only_format(media: &mut Media) {
    let mut formats = media.fmt.split_ascii_whitespace();
    let (Some(only), None) = (formats.next(), formats.next()) else {
        return;
    };
    // A static payload type needs no description.
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
