//! The events of a channel, one after another.

use std::collections::VecDeque;

use sched::units::{Bytes, Nanos, Time};

use super::disk::{Disk, Slot};
use super::{Arrivals, Discipline, Setup, Tally, priority};
use crate::run::Hash;

/// An event that matters to fairness. The disk is a place in [`Setup::ids`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The host knows that a request is in the buffer of the disk.
    Ready(usize),
    /// The host has given the disk the right to send a request.
    Service(usize),
    /// A request is done.
    Done(usize),
}

/// Sees the events of a channel.
pub trait Watch {
    /// An event at a time.
    fn see(&mut self, at: Time, event: Event);
}

/// Sees nothing.
impl Watch for () {
    fn see(&mut self, _: Time, _: Event) {}
}

/// Runs a channel until its last request is done, or late if that ends it.
pub fn run(setup: &Setup<'_>, arrivals: &mut impl Arrivals, watch: &mut impl Watch) -> Tally {
    let mut channel = Channel::new(setup, watch);
    channel.run(arrivals);
    channel.tally()
}

/// The use of the bus, with the rank of its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tenure {
    Free,
    /// READ of data on the media, or PRE-FETCH.
    Fetch(usize),
    /// READ of data in the buffer.
    Read(usize),
    Data(usize),
    Status(usize),
}

/// A command that the host wants to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    Fetch(usize),
    Read(usize),
}

/// Kinds of times at which a disk acts: the media have read a request; a burst may go.
const MEDIA: usize = 0;
const BURST: usize = 1;

/// Disks are in order of priority: their ranks.
pub(super) struct Channel<'a, W> {
    pub(super) setup: &'a Setup<'a>,
    watch: &'a mut W,
    pub(super) disks: Vec<Disk>,
    /// The rank of each disk of the setup, and the reverse.
    rank_of: Vec<usize>,
    disk_of: Vec<usize>,
    /// The next acts of the disks: of rank r at 2 r + kind.
    wakes: Vec<Time>,
    /// Bits of ranks that arbitrate with data, or with a status.
    data: u32,
    status: u32,
    commands: VecDeque<Command>,
    tenure: Tenure,
    tenure_end: Time,
    pub(super) now: Time,
    pub(super) idle_tokens: u32,
    number: u64,
    bursts: u64,
    is_late: bool,
    bus_busy: Nanos,
    hash: Hash,
    times: Times,
}

/// Times of tenures.
struct Times {
    command: Nanos,
    status: Nanos,
    burst: Nanos,
    /// The last burst of a request, which may be shorter, and its status.
    last: Nanos,
    bursts: u32,
}

impl Times {
    fn new(setup: &Setup<'_>) -> Self {
        let bus = setup.bus;
        let (unit, burst) = (setup.unit.get(), bus.burst.get());
        let bursts = unit.div_ceil(burst).max(1);
        let join = bus.arbitration + bus.reconnect;
        Self {
            command: bus.arbitration + bus.command,
            status: join + bus.status,
            burst: join + bus.data(bus.burst),
            last: join + bus.data(Bytes(unit - (bursts - 1) * burst)) + bus.status,
            bursts: bursts as u32,
        }
    }
}

impl<'a, W: Watch> Channel<'a, W> {
    fn new(setup: &'a Setup<'a>, watch: &'a mut W) -> Self {
        let mut disk_of: Vec<usize> = (0..setup.ids.len()).collect();
        disk_of.sort_by_key(|disk| priority(setup.ids[*disk]));
        let mut rank_of = vec![0; disk_of.len()];
        (0..)
            .zip(&disk_of)
            .for_each(|(rank, disk)| rank_of[*disk] = rank);
        let disk =
            |disk: &usize| Disk::new(setup.ids[*disk], setup.spindles[*disk], (setup.scheduler)());
        Self {
            setup,
            watch,
            disks: disk_of.iter().map(disk).collect(),
            wakes: vec![Time::MAX; 2 * disk_of.len()],
            rank_of,
            disk_of,
            data: 0,
            status: 0,
            commands: VecDeque::with_capacity(64),
            tenure: Tenure::Free,
            tenure_end: Time::MAX,
            now: Time::ZERO,
            idle_tokens: match setup.discipline {
                Discipline::Plain => 0,
                Discipline::Fair { tokens } => tokens,
            },
            number: 0,
            bursts: 0,
            is_late: false,
            bus_busy: Nanos::ZERO,
            hash: Hash::default(),
            times: Times::new(setup),
        }
    }

    fn run(&mut self, arrivals: &mut impl Arrivals) {
        loop {
            let mut next = self.tenure_end;
            let mut wake = usize::MAX;
            for (index, at) in self.wakes.iter().enumerate() {
                if *at < next {
                    next = *at;
                    wake = index;
                }
            }
            let arrival = arrivals.time();
            let at = next.min(arrival);
            // Everything of this instant arbitrates at once.
            if at > self.now && self.tenure == Tenure::Free && self.grant() {
                continue;
            }
            if at == Time::MAX || self.is_late && self.setup.stop_when_late {
                return;
            }
            self.now = at;
            if arrival < next {
                self.arrive(&arrivals.take());
            } else if wake == usize::MAX {
                self.end_tenure();
            } else {
                self.wakes[wake] = Time::MAX;
                match wake % 2 {
                    MEDIA => self.fetched(wake / 2),
                    _ => self.want_data(wake / 2),
                }
            }
        }
    }

    fn tally(self) -> Tally {
        let mut disks: Vec<_> = self
            .disks
            .into_iter()
            .map(|disk| Some(disk.tally))
            .collect();
        let of = |rank: &usize| disks[*rank].take();
        Tally {
            disks: self.rank_of.iter().filter_map(of).collect(),
            bus_busy: self.bus_busy,
            end: self.now,
            hash: self.hash.0,
        }
    }

    /// Gives the bus to who arbitrates, the highest priority first.
    fn grant(&mut self) -> bool {
        let (tenure, length) = if let Some(command) = self.commands.pop_front() {
            let tenure = match command {
                Command::Fetch(rank) => Tenure::Fetch(rank),
                Command::Read(rank) => Tenure::Read(rank),
            };
            (tenure, self.times.command)
        } else {
            let wants = self.data | self.status;
            if wants == 0 {
                return false;
            }
            let rank = wants.trailing_zeros() as usize;
            // A drive sends its status first.
            if self.status & 1 << rank != 0 {
                self.begin_status(rank);
                (Tenure::Status(rank), self.times.status)
            } else {
                (Tenure::Data(rank), self.begin_burst(rank))
            }
        };
        self.tenure = tenure;
        self.tenure_end = self.now + length;
        self.bus_busy += length;
        true
    }

    fn begin_status(&mut self, rank: usize) {
        let (now, bursts) = (self.now, self.bursts);
        let disk = &mut self.disks[rank];
        let tally = &mut disk.tally;
        let (wait, passed) = (now - disk.status_since, bursts - disk.status_bursts);
        tally.status_wait_max = tally.status_wait_max.max(wait);
        tally.status_passed_max = tally.status_passed_max.max(passed);
    }

    fn begin_burst(&mut self, rank: usize) -> Nanos {
        self.data &= !(1 << rank);
        self.bursts += 1;
        let segments = self.setup.drive.segments();
        let disk = &mut self.disks[rank];
        disk.tally.bursts += 1;
        disk.tally.bus_wait += self.now - disk.data_since;
        // Segments are used in turn.
        disk.tally.overwritten += u64::from(disk.begun - disk.sent > segments);
        if disk.slot(disk.sent).bursts_left == 1 {
            self.times.last
        } else {
            self.times.burst
        }
    }

    fn end_tenure(&mut self) {
        let tenure = std::mem::replace(&mut self.tenure, Tenure::Free);
        self.tenure_end = Time::MAX;
        match tenure {
            Tenure::Free => {}
            Tenure::Fetch(rank) => self.receive(rank),
            Tenure::Read(rank) => self.receive_read(rank),
            Tenure::Data(rank) => self.end_burst(rank),
            Tenure::Status(rank) => self.end_status(rank),
        }
    }

    fn arrive(&mut self, arrival: &super::Arrival) {
        let rank = self.rank_of[arrival.disk as usize];
        let disk = &mut self.disks[rank];
        if disk.issued - disk.sent < self.setup.outstanding {
            self.issue(rank, arrival.deadline, arrival.unit);
        } else {
            let cylinder = self.setup.places[arrival.unit as usize].cylinder;
            self.number += 1;
            disk.join(arrival, cylinder, self.number);
        }
    }

    fn issue(&mut self, rank: usize, deadline: Time, unit: u32) {
        let disk = &mut self.disks[rank];
        disk.arm_then = self.setup.places[unit as usize].end_cylinder;
        *disk.slot(disk.issued) = Slot {
            deadline,
            unit,
            bursts_left: self.times.bursts,
            ..Slot::default()
        };
        disk.issued += 1;
        self.commands.push_back(Command::Fetch(rank));
    }

    /// Issues the request of the queue that the scheduler chooses.
    pub(super) fn refill(&mut self, rank: usize) {
        if let Some((deadline, unit)) = self.disks[rank].choose(self.now) {
            self.issue(rank, deadline, unit);
        }
    }

    fn receive(&mut self, rank: usize) {
        let now = self.now;
        let disk = &mut self.disks[rank];
        disk.slot(disk.received).received_at = now;
        disk.received += 1;
        if disk.begun == disk.fetched {
            self.begin_media(rank);
        }
    }

    fn begin_media(&mut self, rank: usize) {
        let drive = self.setup.drive;
        let disk = &mut self.disks[rank];
        let slot = *disk.slot(disk.begun);
        let place = &self.setup.places[slot.unit as usize];
        let start = self.now.max(slot.received_at + drive.command());
        let end = drive.read(start, disk.arm, disk.spindle, place);
        disk.arm = place.end_cylinder;
        disk.tally.busy += end - start;
        self.wakes[2 * rank + MEDIA] = end;
        let number = disk.begun;
        disk.begun += 1;
        if self.setup.discipline == Discipline::Plain {
            let slot = disk.slot(number);
            let bursts = u64::from(slot.bursts_left);
            slot.burst_gap = Nanos(place.media.get() / bursts);
            slot.burst_at = Time(end.get() - slot.burst_gap.get() * (bursts - 1));
            if bursts > 1 && number == disk.sent {
                self.offer(rank);
            }
        }
    }

    /// The media have been read.
    fn fetched(&mut self, rank: usize) {
        let (now, bursts) = (self.now, self.bursts);
        let disk = &mut self.disks[rank];
        disk.fetched += 1;
        let is_front = disk.fetched - 1 == disk.sent;
        if self.setup.discipline == Discipline::Plain {
            if is_front && !disk.is_offered {
                self.offer(rank);
            }
        } else if self.status & 1 << rank == 0 {
            self.status |= 1 << rank;
            disk.status_since = now;
            disk.status_bursts = bursts;
        }
        let disk = &self.disks[rank];
        if disk.received != disk.begun {
            self.begin_media(rank);
        }
    }

    /// Sees to the next burst of the disk's front request, which the drive may send.
    fn offer(&mut self, rank: usize) {
        let disk = &mut self.disks[rank];
        disk.is_offered = true;
        let at = disk.slot(disk.sent).burst_at;
        if at <= self.now {
            self.want_data(rank);
        } else {
            self.wakes[2 * rank + BURST] = at;
        }
    }

    fn want_data(&mut self, rank: usize) {
        self.data |= 1 << rank;
        self.disks[rank].data_since = self.now;
    }

    fn end_burst(&mut self, rank: usize) {
        let disk = &mut self.disks[rank];
        disk.is_offered = false;
        let slot = disk.slot(disk.sent);
        slot.bursts_left -= 1;
        if slot.bursts_left > 0 {
            slot.burst_at += slot.burst_gap;
            return self.offer(rank);
        }
        let (deadline, unit) = (slot.deadline, slot.unit);
        disk.sent += 1;
        disk.tally.done += 1;
        let is_late = self.now > deadline;
        disk.tally.late += u64::from(is_late);
        self.is_late |= is_late;
        self.hash
            .add(self.now.get() ^ u64::from(unit) << 40 ^ (rank as u64) << 60);
        self.see(rank, Event::Done);
        let disk = &self.disks[rank];
        if self.setup.discipline == Discipline::Plain {
            let can_send =
                disk.sent != disk.fetched || disk.sent != disk.begun && self.times.bursts > 1;
            if can_send {
                self.offer(rank);
            }
            self.refill(rank);
        } else {
            if disk.ordered != disk.sent {
                self.offer(rank);
            }
            self.read_done(rank);
        }
    }

    /// The status of a PRE-FETCH has reached the host.
    fn end_status(&mut self, rank: usize) {
        let (now, bursts) = (self.now, self.bursts);
        let disk = &mut self.disks[rank];
        disk.notified += 1;
        if disk.notified == disk.fetched {
            self.status &= !(1 << rank);
        } else {
            disk.status_since = now;
            disk.status_bursts = bursts;
        }
        self.see(rank, Event::Ready);
        self.fetch_done(rank);
    }

    /// Sends a READ of the next request in the disk's buffer.
    pub(super) fn ask(&mut self, rank: usize) {
        self.disks[rank].asked += 1;
        self.commands.push_back(Command::Read(rank));
        self.see(rank, Event::Service);
    }

    fn receive_read(&mut self, rank: usize) {
        self.number += 1;
        // Any bits that differ from request to request.
        let dice = self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.now.get() << 32;
        let at = self.now + self.setup.drive.buffered_read(dice);
        let disk = &mut self.disks[rank];
        let slot = disk.slot(disk.ordered);
        slot.burst_at = at;
        slot.burst_gap = Nanos::ZERO;
        disk.ordered += 1;
        if disk.ordered - 1 == disk.sent {
            self.offer(rank);
        }
    }

    fn see(&mut self, rank: usize, event: fn(usize) -> Event) {
        self.watch.see(self.now, event(self.disk_of[rank]));
    }
}
