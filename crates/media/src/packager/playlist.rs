//! Playlists of low-latency HLS.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use super::{LiveSegment, Packager, SEGMENT_MAX_NS};

/// The announced longest part in seconds.
const PART_TARGET_S: f64 = 0.5;

/// The announced longest segment in seconds: it ends with the first picture after its limit.
const TARGET_S: u64 = SEGMENT_MAX_NS / 1_000_000_000 + 1;

/// Segments whose parts are listed, with the one that is being made.
const SEGMENTS_WITH_PARTS: usize = 3;

/// Playlists may leave out segments that ended longer ago than this, which is six target durations.
const SKIP_UNTIL_S: u64 = 6 * TARGET_S;

/// A request may wait for a segment at most this far ahead.
const AHEAD_SEGMENTS_MAX: u64 = 2;

/// The delivery directives of a request (RFC 8216bis, section 6.2.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlaylistRequest {
    /// `_HLS_msn`: the playlist is to have this segment, or `part` of it.
    pub sequence: Option<u64>,
    /// `_HLS_part`.
    pub part: Option<usize>,
    /// `_HLS_skip=YES`: old segments may be left out.
    pub skips: bool,
}

impl Packager {
    /// True if a request can be answered now; `None` if it asks for a segment too far ahead.
    #[must_use]
    pub fn is_ready(&self, request: PlaylistRequest) -> Option<bool> {
        let (newest, parts) = self.next();
        let Some(sequence) = request.sequence else {
            return Some(self.heads.is_some());
        };
        if sequence > newest + AHEAD_SEGMENTS_MAX {
            return None;
        }
        Some(match request.part {
            Some(part) => sequence < newest || sequence == newest && part < parts,
            None => sequence < newest,
        })
    }

    /// The media playlist.
    #[must_use]
    pub fn playlist(&self, skips: bool) -> String {
        let complete = self.segments.len().saturating_sub(1);
        let skipped = if skips { self.skippable() } else { 0 };
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:{}\n\
             #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={},CAN-SKIP-UNTIL={SKIP_UNTIL_S}\n\
             #EXT-X-PART-INF:PART-TARGET={PART_TARGET_S}\n#EXT-X-MEDIA-SEQUENCE:{}\n",
            TARGET_S,
            3.0 * PART_TARGET_S,
            self.first
        );
        if skipped > 0 {
            let _ = writeln!(text, "#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}");
        } else {
            text += "#EXT-X-MAP:URI=\"init.mp4\"\n";
        }
        let with_parts = self.segments.len().saturating_sub(SEGMENTS_WITH_PARTS);
        for (place, segment) in self.segments.iter().enumerate().skip(skipped) {
            let sequence = self.first + place as u64;
            let at = Duration::from_nanos(self.begun_unix_ns.saturating_add(segment.begins_ns));
            let date = humantime::format_rfc3339_millis(UNIX_EPOCH + at);
            let _ = writeln!(text, "#EXT-X-PROGRAM-DATE-TIME:{date}");
            if place >= with_parts {
                list_parts(&mut text, sequence, segment);
            }
            if place < complete {
                let seconds = segment.length_ns() as f64 / 1e9;
                let _ = write!(text, "#EXTINF:{seconds:.3},\n{sequence}.m4s\n");
            }
        }
        let (newest, parts) = self.next();
        let _ = writeln!(
            text,
            "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{newest}.{parts}.m4s\""
        );
        text
    }

    /// Segments at the start that a delta update may leave out.
    fn skippable(&self) -> usize {
        let mut behind_ns = 0;
        let places = self.segments.iter().enumerate().rev();
        for (place, segment) in places {
            behind_ns += segment.length_ns();
            if behind_ns > SKIP_UNTIL_S * 1_000_000_000 {
                return place;
            }
        }
        0
    }
}

fn list_parts(text: &mut String, sequence: u64, segment: &LiveSegment) {
    for (number, part) in segment.parts.iter().enumerate() {
        let seconds = part.length_ns as f64 / 1e9;
        let independent = if part.is_independent {
            ",INDEPENDENT=YES"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "#EXT-X-PART:DURATION={seconds:.3},URI=\"{sequence}.{number}.m4s\"{independent}"
        );
    }
}
