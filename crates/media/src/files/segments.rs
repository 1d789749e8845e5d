//! Segments one after another or alone, and their fragments.

use super::clips::Piece;
use super::*;

/// Sequence numbers of fragments that are reserved for each segment of a file.
const NUMBERS_PER_SEGMENT: u32 = 1_024;

/// The segments of a file, one after another.
#[derive(Debug)]
pub struct Segments {
    first: Cut,
    times_ns: Range<u64>,
    origin_ns: i64,
    /// Place after the last packet; `None`: the end of the recording.
    end: Option<Place>,
    /// Time of the next picture after the last segment, if it is known.
    after_ns: Option<u64>,
    cuts: Cuts,
    number: u32,
    /// Start of the next segment; `None`: it is the first one.
    next: Option<Cut>,
    is_over: bool,
}

impl Segments {
    pub(super) fn new(cuts: Cuts, times_ns: Range<u64>) -> Self {
        Self {
            first: cuts.first(),
            times_ns,
            origin_ns: cuts.first().media_ns as i64,
            end: None,
            after_ns: None,
            cuts,
            number: 1,
            next: None,
            is_over: false,
        }
    }

    /// The segments of a piece of a clip; the first one has the number `number`.
    pub(super) fn of_piece(cuts: Cuts, piece: &Piece, number: u32) -> Self {
        Self {
            first: piece.first,
            times_ns: piece.times_ns.clone(),
            origin_ns: piece.origin_ns(),
            end: piece.end,
            after_ns: piece.after_ns,
            cuts,
            number,
            next: None,
            is_over: false,
        }
    }

    /// The number of the next segment.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Start of the first segment.
    #[must_use]
    pub fn first(&self) -> Cut {
        self.first
    }

    /// End of the time span, in nanoseconds of the recording's time.
    pub(super) fn ends_ns(&self) -> u64 {
        self.times_ns.end
    }

    /// The next segment and its start.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn next_segment(
        &mut self,
        source: &mut Source,
    ) -> Result<Option<(Cut, Segment)>, ExportError> {
        if self.is_over {
            return Ok(None);
        }
        let from = self.next.unwrap_or(self.first);
        let mut next = self.cuts.next_cut(source)?;
        // After a gap the cuts are still those before it.
        while next.is_some_and(|next| next.place <= from.place) {
            next = self.cuts.next_cut(source)?;
        }
        let end = self.end.unwrap_or(Place {
            serial: source.recording.end,
            packet: 0,
        });
        let next = next.filter(|of| of.media_ns < self.times_ns.end && of.place < end);
        self.is_over = next.is_none();
        let segment = Segment {
            places: from.place..next.map_or(end, |next| next.place),
            times_ns: self.first.media_ns..self.times_ns.end,
            origin_ns: self.origin_ns,
            next_ns: next.map_or(self.after_ns, |next| Some(next.media_ns)),
            number: self.number,
        };
        self.number = self.number.wrapping_add(NUMBERS_PER_SEGMENT);
        self.next = next;
        Ok(Some((from, segment)))
    }
}

/// A segment as a file of its own.
#[derive(Debug)]
pub struct SegmentFile {
    /// The file, with its head.
    pub bytes: Vec<u8>,
    /// True if no block of it is damaged.
    pub is_whole: bool,
}

impl Source {
    /// Makes a listed segment in memory; `None` if it was overwritten meanwhile.
    ///
    /// # Errors
    /// When the recording cannot be read, or the segment is too large.
    pub fn alone(&mut self, part: &Part) -> Result<Option<SegmentFile>, ExportError> {
        let segment = Segment {
            // Grows from one segment to the next, and is the same for each request.
            number: (part.begins.media_ns / 1_000_000) as u32,
            places: part.places(),
            times_ns: 0..u64::MAX,
            origin_ns: 0,
            next_ns: Some(part.ends.media_ns),
        };
        let mut bytes = mp4::segment_head()?;
        let flow = self.segment(&segment, &mut |fragment| {
            bytes.extend_from_slice(&fragment);
            match bytes.len() <= SEGMENT_BYTES_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        if flow.is_break() {
            return Err(ExportError::Large(SEGMENT_BYTES_MAX));
        }
        let first = self.first_there();
        let is_overwritten = self.missing.iter().any(|of| *of < first);
        let is_whole = self.missing.is_empty();
        Ok((!is_overwritten).then_some(SegmentFile { bytes, is_whole }))
    }
}

/// Collects samples for the next fragment.
#[derive(Debug)]
pub(super) struct Muxer {
    /// Samples of each track.
    waiting: Vec<Vec<Sample>>,
    waiting_bytes: usize,
    number: u32,
}

impl Muxer {
    /// A muxer for this many tracks; the first fragment gets the number `number`.
    pub(super) fn new(tracks: usize, number: u32) -> Self {
        Self {
            waiting: vec![Vec::new(); tracks],
            waiting_bytes: 0,
            number,
        }
    }

    /// Takes the complete samples of a track, and ends the fragment before it gets too large.
    pub(super) fn take(
        &mut self,
        tracks: &mut [Track],
        place: usize,
        times_ns: &Range<u64>,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>, ExportError> {
        for unit in tracks[place].take(times_ns) {
            let sample = tracks[place].sample(unit);
            let bytes = sample.data.len() + SAMPLE_HEAD_BYTES;
            if self.waiting_bytes + bytes > FRAGMENT_BYTES_MAX
                && self
                    .end_fragment(tracks, Some((place, sample.ticks)), emit)?
                    .is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            self.waiting_bytes += bytes;
            self.waiting[place].push(sample);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Track and time of the picture after the last one, if it comes so late that the last one needs an
    /// explicit duration: a frame that comes once in seconds is shown until the next one. Otherwise the last
    /// frame is as long as the one before, because the next segment may begin with frames that are shown
    /// before its first one.
    pub(super) fn next_sample(&self, tracks: &[Track], next_ns: u64) -> Option<(usize, i64)> {
        let of = tracks.iter().zip(&self.waiting).enumerate();
        of.filter(|(_, (_, waiting))| !waiting.is_empty())
            .find_map(|(place, (track, waiting))| {
                let next = track.shown_ticks(next_ns)?;
                let times = waiting.iter().map(|sample| sample.ticks);
                let last = times.clone().max()?;
                let before = times.filter(|ticks| *ticks < last).max();
                let usual = before.map_or(track.usual_ticks().into(), |before| last - before);
                let is_long = next - last > usual + track.ticks_of(LONG_FRAME_NS);
                is_long.then_some((place, next))
            })
    }

    /// Ends a fragment; `next` is the track and the time of the sample after it, if known.
    pub(super) fn end_fragment(
        &mut self,
        tracks: &[Track],
        next: Option<(usize, i64)>,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>, ExportError> {
        let runs = tracks.iter().enumerate().map(|(place, track)| Run {
            id: track.id(),
            samples: &self.waiting[place],
            next_ticks: next.filter(|(of, _)| *of == place).map(|(_, ticks)| ticks),
            usual_ticks: track.usual_ticks(),
        });
        let runs: Vec<Run<'_>> = runs.filter(|run| !run.samples.is_empty()).collect();
        if runs.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let flow = emit(mp4::fragment(self.number, &runs)?);
        self.number = self.number.wrapping_add(1);
        self.waiting.iter_mut().for_each(Vec::clear);
        self.waiting_bytes = 0;
        Ok(flow)
    }
}

#[cfg(test)]
mod tests {
    use mp4_atom::{Decode as _, Moof};

    use super::*;
    use crate::sdp::Description;

    /// A single track and the fragments that are made of it.
    struct SingleTrack {
        tracks: Vec<Track>,
        muxer: Muxer,
        fragments: Vec<Vec<u8>>,
    }

    impl SingleTrack {
        fn new(rtpmap: &str, fmtp: &str, number: u32) -> Self {
            let sdp = format!(
                "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
                 a=rtpmap:96 {rtpmap}\r\na=fmtp:96 {fmtp}\r\n"
            );
            let description = Description::parse(sdp.as_bytes()).unwrap();
            let track = Track::new(0, &description.tracks()[0], 0);
            Self {
                tracks: vec![track.unwrap()],
                muxer: Muxer::new(1, number),
                fragments: Vec::new(),
            }
        }

        fn packet(&mut self, number: u16, timestamp: u32, body: &[u8], media_ns: u64) {
            let mut header = [0; 12];
            header[..2].copy_from_slice(&[0x80, 96]);
            header[2..4].copy_from_slice(&number.to_be_bytes());
            header[4..8].copy_from_slice(&timestamp.to_be_bytes());
            self.tracks[0].push(header, body, media_ns);
            self.take();
        }

        fn take(&mut self) {
            let mut emit = |bytes| {
                self.fragments.push(bytes);
                ControlFlow::Continue(())
            };
            let times_ns = 0..u64::MAX;
            let flow = self.muxer.take(&mut self.tracks, 0, &times_ns, &mut emit);
            assert!(flow.unwrap().is_continue());
        }

        /// Ends the segment. Returns the next sample and all fragments.
        fn finish(mut self, next_ns: u64) -> (Option<(usize, i64)>, Vec<Moof>) {
            self.tracks[0].finish();
            self.take();
            let next = self.muxer.next_sample(&self.tracks, next_ns);
            let mut emit = |bytes| {
                self.fragments.push(bytes);
                ControlFlow::Continue(())
            };
            let flow = self.muxer.end_fragment(&self.tracks, next, &mut emit);
            assert!(flow.unwrap().is_continue());
            let moofs = self.fragments.iter();
            let moofs = moofs.map(|bytes| Moof::decode(&mut &bytes[..]).unwrap());
            (next, moofs.collect())
        }
    }

    /// The metadata of samples counts for the size of a fragment: a packet can have thousands of nearly empty
    /// frames.
    #[test]
    fn a_fragment_of_tiny_frames_is_limited() {
        let parameters = "mode=AAC-hbr;sizelength=8;config=1190";
        let mut audio = SingleTrack::new("MPEG4-GENERIC/48000/2", parameters, 7);
        let count = 8_000_u32;
        for number in 0..80 {
            // Frames of one byte, and some empty ones.
            let mut body = ((8 * (count + 9)) as u16).to_be_bytes().to_vec();
            body.extend(vec![1; count as usize]);
            body.extend([0; 9]);
            body.extend(vec![0x21; count as usize]);
            let timestamp = u32::from(number) * count * 1_024;
            let media_ns = u64::from(timestamp) * 1_000_000 / 48 / 1_000 * 1_000;
            audio.packet(number, timestamp, &body, media_ns);
        }
        assert_eq!(audio.tracks[0].left_out(), 80 * 9);
        let (_, fragments) = audio.finish(u64::MAX);
        let mut samples = 0;
        for (number, moof) in (7..).zip(&fragments) {
            assert_eq!(moof.mfhd.sequence_number, number);
            let of = moof.traf[0].trun[0].samples.len();
            assert!(of <= FRAGMENT_BYTES_MAX / SAMPLE_HEAD_BYTES, "{of} samples");
            samples += of;
        }
        assert_eq!(samples, 80 * count as usize);
        assert!(fragments.len() > 1);
    }

    /// The last frame of a camera with one frame in ten seconds is shown until the segment ends. At a usual
    /// frame rate it is as long as the frame before, because frames that are shown before the next key frame
    /// may follow it.
    #[test]
    fn a_late_next_frame_prolongs_the_last_one() {
        let seconds = |of: u64| of * 1_000_000_000;
        for (frames_s, next_s, explicit) in [
            (&[0][..], 10, Some(900_000)),
            (&[0, 1], 2, None),
            (&[0, 1], 7, Some(630_000)),
        ] {
            let mut video = SingleTrack::new("H264/90000", "packetization-mode=1", 0);
            for (number, at_s) in (0..).zip(frames_s) {
                let timestamp = *at_s as u32 * 90_000;
                let body = [0x65, 0x88, 0x80, 0x10];
                video.packet(number, timestamp, &body, seconds(*at_s));
            }
            let (next, fragments) = video.finish(seconds(next_s));
            assert_eq!(next, explicit.map(|ticks| (0, ticks)), "{frames_s:?}");
            let [moof] = &fragments[..] else {
                panic!("{} fragments", fragments.len());
            };
            let samples = moof.traf[0].trun[0].samples.iter();
            let duration = samples.last().and_then(|of| of.duration).unwrap();
            let last_s = frames_s[frames_s.len() - 1];
            let wanted = match explicit {
                Some(_) => (next_s - last_s) * 90_000,
                None => 90_000,
            };
            assert_eq!(u64::from(duration), wanted, "{frames_s:?}");
        }
    }
}
