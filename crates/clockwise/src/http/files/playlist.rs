//! The text of playlists, and the names of segments (RFC 8216).

use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use media::files::cuts::Place;
use media::files::{Numbers, Part};

/// The name of a segment.
fn name(places: &Range<Place>) -> String {
    let Range { start, end } = places;
    format!(
        "{}.{}-{}.{}.m4s",
        start.serial, start.packet, end.serial, end.packet
    )
}

/// The places of the segment that has this name.
pub(super) fn places(name: &str) -> Option<Range<Place>> {
    let place = |text: &str| {
        let (serial, packet) = text.split_once('.')?;
        Some(Place {
            serial: serial.parse().ok()?,
            packet: packet.parse().ok()?,
        })
    };
    let (from, to) = name.strip_suffix(".m4s")?.split_once('-')?;
    let places = place(from)?..place(to)?;
    (places.start < places.end).then_some(places)
}

/// Segments of one recording, one after another.
pub(super) struct Stretch {
    /// URL of the recording relative to the playlist: empty, or with a slash at its end.
    pub(super) path: String,
    /// When the recording began, in nanoseconds since 1970.
    pub(super) begun_unix_ns: u64,
    pub(super) parts: Vec<Part>,
}

/// The text of a media playlist (RFC 8216, section 4.3). `query` is added to each URL.
pub(super) fn media(
    stretches: &[Stretch],
    numbers: &Numbers,
    is_complete: bool,
    query: &str,
) -> String {
    let mut text = String::from("#EXTM3U\n#EXT-X-VERSION:7\n");
    let mut all = stretches.iter().flat_map(|of| &of.parts);
    if all.all(|part| part.is_independent) {
        text += "#EXT-X-INDEPENDENT-SEGMENTS\n";
    }
    text += &format!(
        "#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:{}\n",
        numbers.target_ns.div_ceil(1_000_000_000),
        numbers.sequence
    );
    if numbers.gaps > 0 {
        text += &format!("#EXT-X-DISCONTINUITY-SEQUENCE:{}\n", numbers.gaps);
    }
    if is_complete {
        text += "#EXT-X-PLAYLIST-TYPE:VOD\n";
    }
    for stretch in stretches {
        let path = &stretch.path;
        for (number, part) in stretch.parts.iter().enumerate() {
            if part.is_behind_gap {
                text += "#EXT-X-DISCONTINUITY\n";
            }
            if number == 0 {
                text += &format!("#EXT-X-MAP:URI=\"{path}init.mp4{query}\"\n");
            }
            // Across a gap, the durations of segments do not give the time.
            if number == 0 || part.is_behind_gap {
                let at_ns = stretch.begun_unix_ns.saturating_add(part.begins.media_ns);
                let date =
                    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(at_ns));
                text += &format!("#EXT-X-PROGRAM-DATE-TIME:{date}\n");
            }
            let seconds = (part.length_ns() as f64 / 1e9).max(0.001) as f32;
            let name = name(&part.places());
            text += &format!("#EXTINF:{seconds},\n{path}segments/{name}{query}\n");
        }
    }
    if is_complete {
        text += "#EXT-X-ENDLIST\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::files::cuts::Cut;

    fn cut(serial: u64, packet: u32, millis: u64) -> Cut {
        Cut {
            place: Place { serial, packet },
            media_ns: millis * 1_000_000,
        }
    }

    #[test]
    fn playlist_lists_segments_gaps_and_the_end() {
        let part = |begins, ends, is_behind_gap| Part {
            begins,
            ends,
            is_behind_gap,
            is_independent: true,
        };
        let parts = vec![
            part(cut(3, 0, 8_000), cut(5, 17, 12_000), true),
            part(cut(5, 17, 12_000), cut(9, 1, 15_250), false),
            part(cut(9, 2, 600_500), cut(11, 0, 604_000), true),
        ];
        let listed = [Stretch {
            path: String::new(),
            begun_unix_ns: 1_700_000_000_000_000_000,
            parts: parts.clone(),
        }];
        let before = Numbers::after(None, &parts[..2], 1_700_000_000_000_000_000);
        let numbers = Numbers::after(Some(&before), &parts[1..], 0);
        let listed = [Stretch {
            parts: parts[1..].to_vec(),
            ..listed.into_iter().next().unwrap()
        }];
        insta::assert_snapshot!(media(&listed, &numbers, true, "?tracks=0"), @r#"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-TARGETDURATION:6
        #EXT-X-MEDIA-SEQUENCE:1700000001
        #EXT-X-DISCONTINUITY-SEQUENCE:1
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXT-X-MAP:URI="init.mp4?tracks=0"
        #EXT-X-PROGRAM-DATE-TIME:2023-11-14T22:13:32.000Z
        #EXTINF:3.25,
        segments/5.17-9.1.m4s?tracks=0
        #EXT-X-DISCONTINUITY
        #EXT-X-PROGRAM-DATE-TIME:2023-11-14T22:23:20.500Z
        #EXTINF:3.5,
        segments/9.2-11.0.m4s?tracks=0
        #EXT-X-ENDLIST
        "#);
        let text = media(&listed, &numbers, false, "");
        assert!(!text.contains("ENDLIST") && !text.contains("VOD"));
    }

    #[test]
    fn segment_names_are_parsed_and_others_refused() {
        let of = Place {
            serial: 3,
            packet: 0,
        }..Place {
            serial: 5,
            packet: 17,
        };
        assert_eq!(places(&name(&of)), Some(of));
        for nonsense in [
            "",
            "3.0-5.17",
            "5.17-3.0.m4s",
            "3.0-3.0.m4s",
            "3-5.m4s",
            "a.b-c.d.m4s",
            "-1.0-2.0.m4s",
        ] {
            assert_eq!(places(nonsense), None, "{nonsense}");
        }
    }
}
