//! Reports each loss of a camera, and its return, once.

use std::collections::BTreeMap;

use media::camera::source::{State, Status};
use media::camera::sources::Source;

use crate::wire::events::{EventKind, EventView};

/// The state of each camera at the last look, by its name.
#[derive(Default)]
pub(super) struct ReportedCameras(BTreeMap<String, ReportedCamera>);

#[derive(Clone, Default)]
struct ReportedCamera {
    /// Its loss has been reported, and its return has not.
    is_lost: bool,
    /// Its packets arrived at the last look.
    was_there: bool,
    recording: Option<u64>,
    gaps: u64,
}

impl ReportedCameras {
    /// Returns the events since the last call.
    pub(super) fn update(&mut self, sources: &[Source]) -> Vec<EventView> {
        let mut events = Vec::new();
        let mut before = std::mem::take(&mut self.0);
        for Source { spec, status } in sources {
            let mut camera = before.remove(&spec.name).unwrap_or_default();
            for (kind, what) in camera.update(&spec.name, status) {
                events.push(EventView {
                    camera: Some(spec.name.clone()),
                    volume: Some(spec.volume.clone()),
                    ..EventView::new(kind, what)
                });
            }
            self.0.insert(spec.name.clone(), camera);
        }
        events
    }
}

impl ReportedCamera {
    fn update(&mut self, name: &str, now: &Status) -> Vec<(EventKind, String)> {
        let lost = || {
            let reason = now
                .reason
                .as_deref()
                .unwrap_or("its connection is made anew");
            (
                EventKind::CameraLost,
                format!("camera {name:?} is lost: {reason}"),
            )
        };
        let back = || {
            (
                EventKind::CameraBack,
                format!("packets of camera {name:?} arrive again"),
            )
        };
        let mut events = Vec::new();
        match now.state {
            State::Recording => {
                // It may have been lost and have come back since the last look.
                let has_gap = now.recording == self.recording && now.gaps > self.gaps;
                if !self.is_lost && self.was_there && has_gap {
                    events.push(lost());
                    self.is_lost = true;
                }
                if self.is_lost {
                    events.push(back());
                }
                (self.is_lost, self.was_there) = (false, true);
            }
            State::Waiting | State::Refused => {
                if !self.is_lost {
                    events.push(lost());
                }
                (self.is_lost, self.was_there) = (true, false);
            }
            // The first connection is no loss.
            State::Connecting => {
                if self.was_there {
                    events.push(lost());
                    (self.is_lost, self.was_there) = (true, false);
                }
            }
            State::Idle | State::Ended => (self.is_lost, self.was_there) = (false, false),
        }
        (self.recording, self.gaps) = (now.recording, now.gaps);
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_return_are_reported_once() {
        let mut camera = ReportedCamera::default();
        let mut update = |state, gaps| {
            let status = Status {
                state,
                gaps,
                recording: Some(1),
                reason: (state == State::Waiting).then(|| "no route".to_owned()),
                ..Status::default()
            };
            let kinds = camera.update("door", &status).into_iter();
            kinds.map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        let (lost, back) = (EventKind::CameraLost, EventKind::CameraBack);
        assert_eq!(update(State::Connecting, 0), []);
        assert_eq!(update(State::Recording, 0), []);
        assert_eq!(update(State::Recording, 0), []);
        assert_eq!(update(State::Waiting, 0), [lost]);
        assert_eq!(update(State::Waiting, 0), []);
        assert_eq!(update(State::Connecting, 0), []);
        assert_eq!(update(State::Recording, 1), [back]);
        // Lost and back between two looks, once within a look.
        assert_eq!(update(State::Recording, 2), [lost, back]);
        assert_eq!(update(State::Recording, 2), []);
        assert_eq!(update(State::Connecting, 2), [lost]);
        assert_eq!(update(State::Refused, 2), []);
        assert_eq!(update(State::Recording, 3), [back]);
        assert_eq!(update(State::Idle, 3), []);
        assert_eq!(update(State::Connecting, 3), []);
        // One that cannot be reached from the beginning.
        assert_eq!(update(State::Waiting, 3), [lost]);
    }
}
