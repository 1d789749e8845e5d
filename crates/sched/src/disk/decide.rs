//! The decision: the core's choice, the next best-effort request, and containers.

use super::held_up::Instead;
use super::{DiskScheduler, Flight, Linger};
use crate::best_effort::{Pick, Scope};
use crate::core::{Choice, JobKey, Service};
use crate::request::{Class, Decision, Dispatch, Request, RequestId, Served};
use crate::server::Open;
use crate::sweep::Turn;
use crate::task::TaskId;
use crate::units::{Nanos, Sector, SectorCount, Time};

impl DiskScheduler {
    /// The action to take now. Call it again after each event and after each `Issue`.
    pub fn decide(&mut self, now: Time) -> Decision {
        let on_disk =
            self.flights.len() + usize::from(self.passing.is_some() || self.lent.is_some());
        if on_disk >= self.profile.outstanding() as usize {
            return Decision::Wait { until: None };
        }
        let next_sweep = self.release_sweeps(now, now + Nanos(1));
        self.servers.advance(now, &mut self.core);
        self.stop_lingering(now, None);
        if let Some(linger) = self.linger {
            return Decision::Wait {
                until: Some(linger.until),
            };
        }
        loop {
            let next_container = self.servers.advance(now, &mut self.core);
            let next_container = [next_container, next_sweep].into_iter().flatten().min();
            let mut pick = self.pick(Scope::All, now);
            let need = |this: &Self, pick: Option<(Pick, Dispatch)>| {
                pick.map(|(_, piece)| this.need(&piece))
            };
            let reserve = pick.map_or(Nanos::ZERO, |(pick, _)| self.reserve(pick));
            let mut choice = self.core.choose_leaving(now, need(self, pick), reserve);
            let mut hold = None;
            if self.core.held_up()
                && let Some((held_up, _)) = pick
            {
                let last_resort =
                    choice == Choice::Wait { until: None } && next_container.is_none();
                match self.instead(now, held_up, last_resort) {
                    Instead::Piece(shorter, piece) => {
                        pick = Some((shorter, piece));
                        choice = self.core.choose(now, need(self, pick));
                    }
                    Instead::Hold(until) => hold = Some(until),
                    Instead::Nothing => {}
                }
            }
            if let Some(server) = self.servers.is_server(choice) {
                match self.serve_container(now, server) {
                    Some(decision) => return decision,
                    None => continue,
                }
            }
            if let Some(turn) = self.sweeps.turn(choice, &self.core) {
                return self.issue_swept(now, turn);
            }
            match (choice, pick) {
                (Choice::RealTime(task, job), _) => {
                    return self.issue_stream(now, task, job, Served::RealTime);
                }
                (Choice::Early(task, job), _) => {
                    return self.issue_stream(now, task, job, Served::Early);
                }
                (Choice::BestEffort, Some((pick, piece))) => {
                    let service = Service::BestEffort(piece.predicted);
                    return self.issue_best_effort(now, pick, piece, service, None);
                }
                (Choice::BestEffort, None) => {
                    return Decision::Wait {
                        until: next_container,
                    };
                }
                (Choice::Wait { until }, _) => {
                    let until = [until, next_container, hold].into_iter().flatten().min();
                    return Decision::Wait { until };
                }
            }
        }
    }

    /// The slack that a best-effort request leaves when it goes before released real-time requests. No client
    /// waits for an asynchronous request; if it took the last of the slack, a synchronous one that arrives a
    /// moment later would wait for all released requests. The reserve is the longest piece, so any request
    /// fits into it. An aged request leaves nothing.
    fn reserve(&self, pick: Pick) -> Nanos {
        if pick.is_aged() || self.queue.is_synchronous(pick.slot) {
            Nanos::ZERO
        } else {
            self.piece_max
        }
    }

    /// The best-effort request that would go next, and the piece of it.
    pub(super) fn pick(&self, scope: Scope, now: Time) -> Option<(Pick, Dispatch)> {
        let predict = |slot| self.piece(slot).predicted;
        let pick = self.queue.pick(scope, now, self.head, predict)?;
        Some((pick, self.piece(pick.slot)))
    }

    /// The slack that a best-effort piece needs: for itself, and for the way back to where streams lie.
    pub(super) fn need(&self, piece: &Dispatch) -> Nanos {
        piece.predicted.saturating_add(self.away_after(piece))
    }

    /// Time that a piece takes from its container: its own, and its addition to the way back.
    fn need_in_container(&self, piece: &Dispatch) -> Nanos {
        let further = self.away_after(piece).saturating_sub(self.core.away());
        piece.predicted.saturating_add(further)
    }

    /// Time by which a stream's request exceeds its cost after this piece.
    pub(super) fn away_after(&self, piece: &Dispatch) -> Nanos {
        self.away(Some(piece.last()))
    }

    pub(super) fn away(&self, head: Option<Sector>) -> Nanos {
        match &self.streams_within {
            None => Nanos::ZERO,
            Some(within) if self.serves_sweeps() => self.predictor.way_into(within, head),
            Some(within) => self.predictor.way_back(within, head),
        }
    }

    /// The arm is where this was the last sector transferred, and nothing is on the disk.
    pub(super) fn note_head(&mut self, head: Option<Sector>) {
        self.head = head;
        if self.streams_within.is_some() {
            self.core.set_away(self.away(head));
        }
    }

    /// The next piece of a best-effort request, up to a zone boundary and ending on a whole physical
    /// sector if there is more to come. A physical sector that lies in two zones is not cut.
    pub(super) fn piece(&self, slot: u32) -> Dispatch {
        self.piece_of(self.table.request(slot), self.table.done(slot))
    }

    pub(super) fn piece_of(&self, request: &Request, done: SectorCount) -> Dispatch {
        let start = request.start + done;
        let left = request.count - done;
        let zone = self.predictor.zone_of(start);
        let mut count = left.min(self.piece_sectors[zone]);
        if let Some(range) = self.predictor.zone_range(zone) {
            count = count.min(range.end.saturating_since(start));
        }
        if count < left {
            let (from, unit) = (start.get(), self.physical_sectors);
            let end = (start + count).get() / unit * unit;
            let end = end.max(from / unit * unit + unit);
            count = left.min(SectorCount(end - from));
        }
        let predicted = self.predict(request.op, start, count);
        Dispatch {
            id: request.id,
            op: request.op,
            start,
            count,
            offset: done,
            predicted,
            served: Served::Slack,
            deadline: None,
        }
    }

    /// The piece as a container pays for it. No slice is shorter than the longest piece, so a piece that is longer
    /// because the disk is slow there would never fit; it counts as the longest, and the rest is an overrun.
    fn in_container(&self, piece: Dispatch) -> Dispatch {
        let over = self
            .need_in_container(&piece)
            .saturating_sub(self.piece_max);
        let plain = self
            .predictor
            .predict(self.head, piece.op, piece.start, piece.count);
        let predicted = piece.predicted.saturating_sub(over);
        Dispatch {
            predicted: predicted.max(plain.min(piece.predicted)),
            ..piece
        }
    }

    /// A container's turn: its client's next request, or a short wait for one, or its end (`None`).
    pub(super) fn serve_container(&mut self, now: Time, task: TaskId) -> Option<Decision> {
        let Open {
            account,
            key,
            deadline,
            left,
        } = self.servers.open(task, &self.core)?;
        match self.pick(Scope::Account(account), now) {
            Some((pick, piece)) if self.need_in_container(&self.in_container(piece)) <= left => {
                let mut piece = self.in_container(piece);
                let synchronous = self.queue.is_synchronous(pick.slot);
                self.servers.touch(task, synchronous);
                piece.deadline = Some(deadline);
                piece.served = Served::Container;
                let service = Service::Piece(task, key, piece.predicted);
                Some(self.issue_best_effort(now, pick, piece, service, Some(task)))
            }
            None if self.profile.outstanding() == 1 => {
                let wait = self.servers.linger(task).map(|wait| wait.min(left));
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    let service = Service::Piece(task, key, wait);
                    self.core.start_ending_away(now, service, self.core.away());
                    self.linger = Some(Linger {
                        service,
                        account,
                        since: now,
                        until: now + wait,
                    });
                    return Some(Decision::Wait {
                        until: Some(now + wait),
                    });
                }
                self.servers.end(now, task, &mut self.core);
                None
            }
            _ => {
                self.servers.end(now, task, &mut self.core);
                None
            }
        }
    }

    /// Ends a wait that is over, or that a request of this account has come to end.
    pub(super) fn stop_lingering(&mut self, now: Time, account: Option<u32>) {
        if let Some(linger) = self.linger
            && (now >= linger.until || account == Some(linger.account))
        {
            self.linger = None;
            self.core.finish_one(now, linger.service, linger.since);
            if let Service::Piece(task, ..) = linger.service {
                self.servers.settle(task, &self.core);
            }
        }
    }

    pub(super) fn issue_stream(
        &mut self,
        now: Time,
        task: TaskId,
        job: JobKey,
        served: Served,
    ) -> Decision {
        let slot = self
            .table
            .find(RequestId(job.0))
            .expect("a stream's job is a queued request");
        let request = *self.table.request(slot);
        let window = self.core.window(task, job);
        let dispatch = Dispatch {
            id: request.id,
            op: request.op,
            start: request.start,
            count: request.count,
            offset: SectorCount::ZERO,
            predicted: self
                .predictor
                .predict(self.head, request.op, request.start, request.count),
            served,
            deadline: window.map(|window| window.deadline),
        };
        self.issue(now, slot, dispatch, Service::Job(task, job), Some(task))
    }

    /// The request of a sweep whose turn it is.
    fn issue_swept(&mut self, now: Time, turn: Turn) -> Decision {
        let slot = self.table.find(turn.request);
        let slot = slot.expect("a request that is in a sweep is queued");
        let Request {
            id,
            op,
            start,
            count,
            class,
            ..
        } = *self.table.request(slot);
        let Class::Swept(task, _) = class else {
            unreachable!("what is in a sweep was asked for by a member");
        };
        self.sweeps.started(task);
        let dispatch = Dispatch {
            id,
            op,
            start,
            count,
            offset: SectorCount::ZERO,
            predicted: turn.time,
            served: Served::RealTime,
            deadline: Some(turn.deadline),
        };
        self.issue(now, slot, dispatch, turn.service, Some(task))
    }

    pub(super) fn issue_best_effort(
        &mut self,
        now: Time,
        pick: Pick,
        piece: Dispatch,
        service: Service,
        task: Option<TaskId>,
    ) -> Decision {
        self.lent_last = false;
        let account = self.queue.account(pick.slot);
        self.queue.take(pick);
        self.servers.made_unready(now, account, &mut self.core);
        self.issue(now, pick.slot, piece, service, task)
    }

    pub(super) fn issue(
        &mut self,
        now: Time,
        slot: u32,
        dispatch: Dispatch,
        service: Service,
        task: Option<TaskId>,
    ) -> Decision {
        let away = match service {
            Service::Job(..) | Service::Swept(..) => Nanos::ZERO,
            Service::BestEffort(_) | Service::Piece(..) => self.away_after(&dispatch),
        };
        self.core.start_ending_away(now, service, away);
        self.flights.push(Flight {
            slot,
            service,
            dispatch,
            task,
            issued: now,
        });
        Decision::Issue(dispatch)
    }
}
