//! Whole files: MP4 from one segment after another, or raw from one packet after another.

use super::*;

/// Interval of the cuts of a file: its fragments begin at the first key frame of each.
pub const FILE_CUT_NS: u64 = 2_000_000_000;

impl Source {
    /// The segments of a time span, from the last key frame before it on.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn segments(
        &mut self,
        times_ns: &Range<u64>,
        cut_ns: u64,
    ) -> Result<Segments, ExportError> {
        self.check_start(times_ns.start)?;
        let cuts = Cuts::new(self, times_ns.start, cut_ns)?;
        Ok(Segments::new(cuts, times_ns.clone()))
    }

    /// Checks that something is played at this time or later.
    fn check_start(&self, from_ns: u64) -> Result<(), ExportError> {
        let end = self.archive.extent(&self.client, &self.recording)?.end;
        match from_ns <= end {
            true => Ok(()),
            false => Err(ExportError::Empty),
        }
    }

    /// Makes an MP4 file of a time span, from the last key frame before it on.
    ///
    /// # Errors
    /// When the span has no packets, or the recording cannot be read.
    pub fn file(&mut self, times_ns: &Range<u64>, emit: &mut Emit<'_>) -> Result<(), ExportError> {
        let mut segments = self.segments(times_ns, FILE_CUT_NS)?;
        // The head is emitted with the first fragment, so that an error is reported before any output.
        let mut head = Some(self.file_head(&segments)?);
        while let Some((_, segment)) = segments.next_segment(self)? {
            let mut emit = |bytes| {
                if let Some(head) = head.take() {
                    emit(head)?;
                }
                emit(bytes)
            };
            if self.segment(&segment, &mut emit)?.is_break() {
                return Ok(());
            }
        }
        match head {
            Some(_) => Err(ExportError::Empty),
            None => Ok(()),
        }
    }

    /// The head of an MP4 file with these segments.
    ///
    /// # Errors
    /// When no track has decoder parameters, or the recording cannot be read.
    pub fn file_head(&mut self, segments: &Segments) -> Result<Vec<u8>, ExportError> {
        let first = segments.first();
        let heads = self.heads(first.place)?;
        self.makes_of(heads.iter().map(TrackHead::track).collect());
        let end = self.archive.extent(&self.client, &self.recording)?.end;
        let end = end.min(segments.ends_ns());
        let length_ms = end.saturating_sub(first.media_ns) / 1_000_000;
        Ok(mp4::init(&heads, Some(length_ms))?)
    }

    /// Makes a raw file of a time span of one track: the given one, or the first that has a raw format.
    ///
    /// # Errors
    /// When the span has no packets, the track has no raw format, or the recording cannot be read.
    pub fn raw(
        &mut self,
        track: Option<usize>,
        times_ns: &Range<u64>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ExportError> {
        let mut track = self.raw_track(track)?;
        self.check_start(times_ns.start)?;
        // Packets before the first key frame are left out; in an audio track each frame is one.
        let (first, _) = self.start(times_ns.start)?;
        let end = Place {
            serial: self.recording.end,
            packet: 0,
        };
        let times_ns = first.media_ns.min(times_ns.start)..times_ns.end;
        let mut is_begun = false;
        let mut write = |track: &mut Track| {
            for unit in track.take(&times_ns) {
                if !(is_begun || unit.is_key) {
                    continue;
                }
                let mut out = Vec::new();
                if !std::mem::replace(&mut is_begun, true) {
                    out = track.raw_head();
                }
                track.raw(unit, &mut out);
                if emit(out).is_break() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        let missing = self.packets(&(first.place..end), times_ns.end, |entry, body| {
            if usize::from(entry.track) != track.number {
                return Ok(ControlFlow::Continue(()));
            }
            track.push(entry.header, body, entry.media_ns);
            Ok(write(&mut track))
        })?;
        track.finish();
        let _ = write(&mut track);
        self.missing.extend(missing);
        self.left_out += track.left_out();
        match is_begun {
            true => Ok(()),
            false => Err(ExportError::Empty),
        }
    }

    fn raw_track(&self, wanted: Option<usize>) -> Result<Track, ExportError> {
        let described = self.description.tracks();
        let has_raw = |number: &usize| exports(&described[*number]).raw.is_some();
        let found = match wanted {
            Some(number) if number >= described.len() => {
                return Err(ExportError::NoTrack(number, described.len()));
            }
            Some(number) => Some(number).filter(has_raw),
            None => (0..described.len()).find(has_raw),
        };
        let track = found.and_then(|number| Track::new(number, &described[number], 0));
        track.ok_or_else(|| self.nothing_for("a raw file"))
    }
}
