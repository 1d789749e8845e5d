//! Decisions of a recording connection: events in, typed actions out.
//!
//! No socket, no clock, no recorder: `recording` reports events with the time at which they happened, and carries out
//! [`RecordingSteps::next_action`] until there is none. A turn is: plan the sleep, wake, receive, report.

use std::collections::VecDeque;

use sched::units::Time;

use super::super::ClientRequest;
use crate::archive::block::Kind;
use crate::rtsp::receive::{Received, WakeEvent};

/// The next thing to do.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Action {
    DrainDisks,
    /// Receive what is in a socket of this track.
    ReceiveDatagrams(usize, Kind),
    /// Receive from the connection, and report the outcome with [`RecordingSteps::received`].
    ReadConnection,
    Answer(Box<ClientRequest>),
    SendReports,
    /// Packets wait for a buffer, or the connection for its turn: the peer is not silent.
    RestartSilence,
    End(EndReason),
}

/// Why nothing more is received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndReason {
    /// The peer has closed the connection.
    Closed,
    /// The server stops, or the session was ended by an operator.
    Stopped,
    /// All senders that were heard have left.
    SendersLeft,
    /// Nothing has arrived within the timeout.
    Silent,
}

/// The conditions that a sleep depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// A packet can be received.
    pub(super) has_room: bool,
    /// A packet in the connection has arrived in part.
    pub(super) is_mid_packet: bool,
    /// When the recording is over because its senders have left.
    pub(super) over_at: Option<Time>,
    /// When reports are to be sent; `None`: as soon as the connection takes the rest of the last ones.
    pub(super) report_at: Option<Time>,
}

/// The events of a sleep, beside those of the disks and the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SleepPlan {
    pub(super) until: Option<Time>,
    /// Wake for packets.
    pub(super) has_room: bool,
    /// Wake when the connection takes more of a report.
    pub(super) awaits_writable: bool,
    pub(super) sleep: SleepKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SleepKind {
    /// Until something is ready.
    Block,
    /// Only look what is ready: there is something to read at once.
    Poll,
}

/// Input of the connection that may not have been taken yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PendingInput {
    Empty,
    /// Bytes that arrived together with RECORD have been read and not parsed.
    Unread,
    /// Packets wait for a buffer, or for the next turn.
    Waiting,
}

/// The state of a recording connection between its actions.
pub(super) struct RecordingSteps {
    actions: VecDeque<Action>,
    input: PendingInput,
    has_room: bool,
    over_at: Option<Time>,
    reads_at_once: bool,
}

impl RecordingSteps {
    pub(super) fn new() -> Self {
        Self {
            actions: VecDeque::new(),
            input: PendingInput::Unread,
            has_room: false,
            over_at: None,
            reads_at_once: true,
        }
    }

    /// The next action of this turn; `None` if all have been taken.
    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// True if all that has arrived in the connection is taken as soon as it arrives.
    fn is_listening(&self) -> bool {
        self.has_room && self.input != PendingInput::Waiting
    }

    /// A turn begins.
    pub(super) fn begin_turn(&mut self, conditions: Conditions) -> SleepPlan {
        self.has_room = conditions.has_room;
        self.reads_at_once = match self.input {
            PendingInput::Empty => false,
            PendingInput::Unread => true,
            PendingInput::Waiting => self.has_room,
        };
        let is_listening = self.is_listening();
        let report_at = conditions.report_at.filter(|_| is_listening);
        let is_over = is_listening && !conditions.is_mid_packet;
        self.over_at = conditions.over_at.filter(|_| is_over);
        SleepPlan {
            until: report_at.into_iter().chain(self.over_at).min(),
            has_room: self.has_room,
            awaits_writable: is_listening && conditions.report_at.is_none(),
            sleep: match self.reads_at_once {
                true => SleepKind::Poll,
                false => SleepKind::Block,
            },
        }
    }

    /// The sleep has ended, with this ready.
    pub(super) fn woken(&mut self, ready: &[WakeEvent], now: Time) {
        if ready.contains(&WakeEvent::Disks) {
            self.actions.push_back(Action::DrainDisks);
        }
        if ready.contains(&WakeEvent::Stop) {
            self.actions.push_back(Action::End(EndReason::Stopped));
            return;
        }
        let is_quiet = !self.reads_at_once && !ready.iter().any(WakeEvent::is_of_packets);
        if is_quiet && self.over_at.is_some_and(|at| now >= at) {
            self.actions.push_back(Action::End(EndReason::SendersLeft));
            return;
        }
        let datagrams = ready.iter().filter_map(|of| match of {
            WakeEvent::Track(track, kind) => Some(Action::ReceiveDatagrams(*track, *kind)),
            _ => None,
        });
        self.actions.extend(datagrams);
        if self.reads_at_once || ready.contains(&WakeEvent::Socket) {
            self.actions.push_back(Action::ReadConnection);
        }
    }

    /// The connection was read.
    pub(super) fn received(&mut self, came: Received) {
        match came {
            Received::Request(request) => {
                // A peer that reads its replies slowly does not keep the disks from what is due for them.
                self.input = PendingInput::Waiting;
                self.actions.push_front(Action::Answer(request));
            }
            Received::Response(_) => self.actions.push_front(Action::ReadConnection),
            Received::Nothing => self.input = PendingInput::Empty,
            Received::NoRoom | Received::More => self.input = PendingInput::Waiting,
            Received::End => self.actions.push_front(Action::End(EndReason::Closed)),
        }
    }

    /// All actions of a turn have been carried out; `silent_at`: when the peer has been silent for too long.
    pub(super) fn end_turn(&mut self, now: Time, silent_at: Time) {
        self.actions.push_back(match self.is_listening() {
            false => Action::RestartSilence,
            true if now >= silent_at => Action::End(EndReason::Silent),
            true => Action::SendReports,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Time = Time::MAX;

    fn conditions() -> Conditions {
        Conditions {
            has_room: true,
            is_mid_packet: false,
            over_at: None,
            report_at: Some(Time(50)),
        }
    }

    /// Steps whose connection is empty.
    fn idle() -> RecordingSteps {
        let mut steps = RecordingSteps::new();
        steps.received(Received::Nothing);
        steps
    }

    fn actions(steps: &mut RecordingSteps) -> Vec<Action> {
        std::iter::from_fn(|| steps.next_action()).collect()
    }

    fn woken(steps: &mut RecordingSteps, ready: &[WakeEvent], now: u64) -> Vec<Action> {
        steps.woken(ready, Time(now));
        actions(steps)
    }

    #[test]
    fn first_turn_reads_the_connection_without_sleeping() {
        let mut steps = RecordingSteps::new();
        let plan = steps.begin_turn(conditions());
        assert_eq!(plan.sleep, SleepKind::Poll);
        assert_eq!(woken(&mut steps, &[], 0), [Action::ReadConnection]);
        steps.received(Received::Nothing);
        let plan = steps.begin_turn(conditions());
        assert_eq!(
            plan,
            SleepPlan {
                until: Some(Time(50)),
                has_room: true,
                awaits_writable: false,
                sleep: SleepKind::Block,
            }
        );
        assert_eq!(woken(&mut steps, &[], 50), []);
    }

    #[test]
    fn datagrams_are_received_before_the_connection_and_after_the_disks() {
        let mut steps = idle();
        steps.begin_turn(conditions());
        let ready = [
            WakeEvent::Socket,
            WakeEvent::Track(1, Kind::Rtcp),
            WakeEvent::Track(0, Kind::Rtp),
            WakeEvent::Writable,
            WakeEvent::Disks,
        ];
        let expected = [
            Action::DrainDisks,
            Action::ReceiveDatagrams(1, Kind::Rtcp),
            Action::ReceiveDatagrams(0, Kind::Rtp),
            Action::ReadConnection,
        ];
        assert_eq!(woken(&mut steps, &ready, 0), expected);
    }

    #[test]
    fn stop_ends_the_recording_before_anything_is_received() {
        let mut steps = idle();
        steps.begin_turn(conditions());
        let ready = [
            WakeEvent::Stop,
            WakeEvent::Socket,
            WakeEvent::Track(0, Kind::Rtp),
        ];
        let expected = [Action::End(EndReason::Stopped)];
        assert_eq!(woken(&mut steps, &ready, 0), expected);
    }

    #[test]
    fn input_without_room_waits_and_is_read_when_there_is_room() {
        let mut steps = idle();
        steps.received(Received::NoRoom);
        let full = Conditions {
            has_room: false,
            over_at: Some(Time(1)),
            report_at: None,
            ..conditions()
        };
        let plan = steps.begin_turn(full);
        let expected = SleepPlan {
            until: None,
            has_room: false,
            awaits_writable: false,
            sleep: SleepKind::Block,
        };
        assert_eq!(plan, expected);
        assert_eq!(woken(&mut steps, &[], 2), []);
        // Meanwhile the peer is not silent, however long it takes.
        steps.end_turn(Time(9), Time(3));
        assert_eq!(actions(&mut steps), [Action::RestartSilence]);
        assert_eq!(steps.begin_turn(conditions()).sleep, SleepKind::Poll);
        assert_eq!(woken(&mut steps, &[], 9), [Action::ReadConnection]);
    }

    #[test]
    fn recording_ends_when_its_senders_have_left_and_nothing_waits() {
        let left = Conditions {
            over_at: Some(Time(20)),
            ..conditions()
        };
        let mut steps = idle();
        assert_eq!(steps.begin_turn(left).until, Some(Time(20)));
        assert_eq!(woken(&mut steps, &[], 19), []);
        steps.begin_turn(left);
        let packets = woken(&mut steps, &[WakeEvent::Track(0, Kind::Rtp)], 20);
        assert_eq!(packets, [Action::ReceiveDatagrams(0, Kind::Rtp)]);
        let part = Conditions {
            is_mid_packet: true,
            ..left
        };
        assert_eq!(steps.begin_turn(part).until, Some(Time(50)));
        assert_eq!(woken(&mut steps, &[], 20), []);
        steps.begin_turn(left);
        let over = woken(&mut steps, &[], 20);
        assert_eq!(over, [Action::End(EndReason::SendersLeft)]);
    }

    #[test]
    fn request_is_answered_and_other_input_waits_for_the_next_turn() {
        let mut steps = idle();
        steps.begin_turn(conditions());
        steps.woken(&[WakeEvent::Socket], Time(0));
        assert_eq!(steps.next_action(), Some(Action::ReadConnection));
        let request =
            rtsp_types::Request::builder(rtsp_types::Method::Options, rtsp_types::Version::V1_0);
        let request = Box::new(request.build(Vec::new()));
        steps.received(Received::Request(request.clone()));
        assert_eq!(actions(&mut steps), [Action::Answer(request)]);
        steps.end_turn(Time(0), NEVER);
        assert_eq!(actions(&mut steps), [Action::RestartSilence]);
        assert_eq!(steps.begin_turn(conditions()).sleep, SleepKind::Poll);
    }

    #[test]
    fn response_is_passed_over_and_reading_goes_on() {
        let mut steps = idle();
        steps.begin_turn(conditions());
        let response =
            rtsp_types::Response::builder(rtsp_types::Version::V1_0, rtsp_types::StatusCode::Ok);
        steps.received(Received::Response(Box::new(response.build(Vec::new()))));
        assert_eq!(actions(&mut steps), [Action::ReadConnection]);
        steps.received(Received::End);
        let closed = [Action::End(EndReason::Closed)];
        assert_eq!(actions(&mut steps), closed);
    }

    #[test]
    fn report_is_sent_each_turn_unless_the_peer_is_silent() {
        let mut steps = idle();
        steps.begin_turn(conditions());
        steps.end_turn(Time(9), Time(10));
        assert_eq!(actions(&mut steps), [Action::SendReports]);
        steps.end_turn(Time(10), Time(10));
        let silent = [Action::End(EndReason::Silent)];
        assert_eq!(actions(&mut steps), silent);
    }

    #[test]
    fn unsent_report_waits_until_the_connection_takes_it() {
        let mut steps = idle();
        let unsent = Conditions {
            report_at: None,
            ..conditions()
        };
        let plan = steps.begin_turn(unsent);
        assert!(plan.awaits_writable);
        assert_eq!(plan.until, None);
    }
}
