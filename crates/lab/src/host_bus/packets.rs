//! Packets that one adapter writes to memory and another reads from there (thesis 7.4, figure 7.11).

use sched::units::{Bytes, Time};

use super::bus::{Account, Masters, run};
use super::spec::{Adapter, HostBus};
use super::times::{Direction, Transaction};

/// Packets on their way through memory.
#[derive(Clone, Copy, Debug)]
pub struct Packets<'a> {
    /// The adapter that they come from.
    pub from: &'a Adapter,
    /// The adapter that they go to.
    pub to: &'a Adapter,
    /// The size of each.
    pub size: Bytes,
    /// Their number.
    pub number: u64,
    /// Packets that memory holds.
    pub buffers: u64,
}

/// Bytes and packets that one side has moved.
#[derive(Clone, Copy, Default)]
struct Side {
    packets: u64,
    bytes_of_packet: u64,
    ready: Option<Time>,
}

const WRITER: usize = 0;
const READER: usize = 1;

struct Relay<'a> {
    packets: Packets<'a>,
    sides: [Side; 2],
}

impl Relay<'_> {
    fn may(&self, side: usize) -> bool {
        let [writer, reader] = self.sides;
        let Packets {
            number, buffers, ..
        } = self.packets;
        match side {
            WRITER => writer.packets < number.min(reader.packets + buffers),
            _ => reader.packets < writer.packets,
        }
    }

    fn ask(&mut self, now: Time) {
        for side in [WRITER, READER] {
            let ready = self.sides[side].ready.unwrap_or(now);
            self.sides[side].ready = self.may(side).then_some(ready);
        }
    }
}

impl Masters for Relay<'_> {
    fn count(&self) -> usize {
        self.sides.len()
    }

    fn ready(&self, master: usize) -> Option<Time> {
        self.sides[master].ready
    }

    fn adapter(&self, master: usize) -> &Adapter {
        match master {
            WRITER => self.packets.from,
            _ => self.packets.to,
        }
    }

    fn transaction(&self, master: usize) -> Transaction {
        let direction = match master {
            WRITER => Direction::ToMemory,
            _ => Direction::FromMemory,
        };
        let left = self.packets.size.get() - self.sides[master].bytes_of_packet;
        let burst = self.adapter(master).burst(direction);
        Transaction {
            direction,
            size: Bytes(left.min(burst.get())),
            offset: 0,
        }
    }

    fn done(&mut self, master: usize, _began: Time, ended: Time) {
        let moved = self.transaction(master).size.get();
        let size = self.packets.size.get();
        let side = &mut self.sides[master];
        side.ready = None;
        side.bytes_of_packet += moved;
        if side.bytes_of_packet == size {
            side.bytes_of_packet = 0;
            side.packets += 1;
        }
        self.ask(ended);
    }
}

impl Packets<'_> {
    /// Sends the packets. Each begins at a cache line and takes transactions of its own.
    ///
    /// # Panics
    /// When packets are empty or memory holds none.
    #[must_use]
    pub fn send(self, bus: &HostBus) -> Account {
        assert!(
            self.size.get() > 0 && self.buffers > 0,
            "packets without bytes, or memory without buffers"
        );
        let mut relay = Relay {
            packets: self,
            sides: [Side::default(); 2],
        };
        relay.ask(Time::ZERO);
        run(bus, &mut relay)
    }
}
