//! Segments one after another or alone, and the fragments of each.

use super::*;

/// Segments one after another.
#[derive(Debug)]
pub struct Segments {
    first: Cut,
    times_ns: Range<u64>,
    cuts: Cuts,
    number: u32,
    /// Where the next one begins; `None`: with the first.
    next: Option<Cut>,
    is_over: bool,
}

impl Segments {
    pub(super) fn new(cuts: Cuts, times_ns: Range<u64>) -> Self {
        Self {
            first: cuts.first(),
            times_ns,
            cuts,
            number: 1,
            next: None,
            is_over: false,
        }
    }

    /// Where the first one begins.
    #[must_use]
    pub fn first(&self) -> Cut {
        self.first
    }

    /// When the last one ends, at the latest.
    pub(super) fn ends_ns(&self) -> u64 {
        self.times_ns.end
    }

    /// The next one, and when it begins.
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
        let next = self.cuts.next_cut(source)?;
        let next = next.filter(|next| next.media_ns < self.times_ns.end);
        self.is_over = next.is_none();
        let end = Place {
            serial: source.recording.end,
            packet: 0,
        };
        let segment = Segment {
            places: from.place..next.map_or(end, |next| next.place),
            times_ns: self.first.media_ns..self.times_ns.end,
            origin_ns: self.first.media_ns,
            number: self.number,
        };
        self.number = self.number.wrapping_add(1);
        self.next = next;
        Ok(Some((from, segment)))
    }
}

/// A segment that is played by itself.
#[derive(Debug)]
pub struct Alone {
    /// With what it begins with.
    pub bytes: Vec<u8>,
    /// Nothing of it is damaged.
    pub is_whole: bool,
}

impl Source {
    /// Makes what lies between two places, in memory. `None`: it was overwritten meanwhile.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn alone(&mut self, places: Range<Place>) -> Result<Option<Alone>, ExportError> {
        let segment = Segment {
            number: places.start.serial as u32,
            places,
            times_ns: 0..u64::MAX,
            origin_ns: 0,
        };
        let mut bytes = mp4::segment_head()?;
        let flow = self.segment(&segment, &mut |fragment| {
            bytes.extend_from_slice(&fragment);
            ControlFlow::Continue(())
        })?;
        debug_assert!(flow.is_continue());
        let first = self.first_there();
        let is_gone = self.missing.iter().any(|of| *of < first);
        let is_whole = self.missing.is_empty();
        Ok((!is_gone).then_some(Alone { bytes, is_whole }))
    }
}

/// What waits for its fragment.
#[derive(Debug)]
pub(super) struct Muxer {
    /// Of each track.
    waiting: Vec<Vec<Sample>>,
    waiting_bytes: usize,
    number: u32,
}

impl Muxer {
    /// For fragments of so many tracks, which begin with this number.
    pub(super) fn new(tracks: usize, number: u32) -> Self {
        Self {
            waiting: vec![Vec::new(); tracks],
            waiting_bytes: 0,
            number,
        }
    }

    /// Takes what is whole of a track.
    pub(super) fn take(
        &mut self,
        tracks: &mut [Track],
        place: usize,
        times_ns: &Range<u64>,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>, ExportError> {
        for unit in tracks[place].take(times_ns) {
            let sample = tracks[place].sample(unit);
            if self.waiting_bytes + sample.data.len() > FRAGMENT_BYTES_MAX
                && self
                    .cut(tracks, Some((place, sample.ticks)), emit)?
                    .is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            self.waiting_bytes += sample.data.len();
            self.waiting[place].push(sample);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Ends a fragment; `next` is the sample that comes after it, of which track and when.
    pub(super) fn cut(
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
        self.waiting.iter_mut().for_each(Vec::clear);
        self.waiting_bytes = 0;
        Ok(flow)
    }
}
