//! Drives that share a link: their ends are compared with those of the model. The times are those of the drives' logs,
//! so it does not matter how late the host is.

use sched::units::BytesPerSecond;

use super::*;
use crate::link::{Link, Transfer};
use crate::plant::Service;

/// Not quite the rate of the drive.
const RATE: BytesPerSecond = BytesPerSecond(8_000_000);

/// Sectors of a long request: 1 MiB.
const MANY_SECTORS: SectorCount = SectorCount(2_048);

/// Where long requests are: not where retries are.
const FAR: Sector = Sector(100_000);

/// A drive on a link, and memory for its requests.
struct Linked {
    drive: EmulatedDrive,
    control: DriveControl,
    memory: Account,
    _folder: tempfile::TempDir,
}

impl Linked {
    fn new(link: &Arc<EmulatedLink>, lead: Option<Nanos>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = DriveOptions {
            lead,
            link: Some(Arc::clone(link)),
            ..DriveOptions::default()
        };
        let path = folder.path().join("drive");
        let drive = EmulatedDrive::create(&path, atlas(), &options).unwrap();
        let control = drive.control();
        control.keep_log(10);
        Self {
            drive,
            control,
            memory: account(),
            _folder: folder,
        }
    }

    /// A drive with a long request after one with so many retries. It announces the long one to the link long before
    /// it moves its data.
    fn ahead(link: &Arc<EmulatedLink>, rotations: u32) -> Self {
        let mut one = Self::new(link, LONG_LEAD);
        one.control.inject(retries(rotations));
        one.submit(Op::Read, Sector(0), FEW_SECTORS);
        one.submit(Op::Read, FAR, MANY_SECTORS);
        one
    }

    fn submit(&mut self, op: Op, start: Sector, count: SectorCount) {
        let io = request(&self.memory, op, start, count);
        self.drive.submit(io).unwrap();
    }

    /// Waits for so many ends.
    fn ends(&mut self, count: usize) -> Vec<Done> {
        let wake = EventFd::new().unwrap();
        let mut out = Vec::new();
        while out.len() < count {
            self.drive.wait(None, &wake, &mut out).unwrap();
        }
        out
    }

    /// Waits for so many ends, and returns the log.
    fn log(&mut self, count: usize) -> Vec<ServiceLogEntry> {
        let ends = self.ends(count);
        assert!(ends.iter().all(|done| done.result.is_ok()), "{ends:?}");
        self.control.take_log()
    }
}

fn transfer(service: Service, op: Op, count: SectorCount) -> Transfer {
    let before = service.breakdown;
    Transfer {
        op,
        start: service.begun + before.overhead + before.seek + before.rotation,
        end: service.completed,
        bytes: count.bytes(),
        rotation: atlas().rotation(),
    }
}

fn transfer_of(entry: &ServiceLogEntry) -> Transfer {
    transfer(entry.service, entry.op, entry.count)
}

#[test]
fn two_drives_that_read_at_once_take_as_long_as_the_model_says() {
    let (entries, first) = loop {
        let link = Arc::new(EmulatedLink::new(RATE));
        let mut drives = [0, 1].map(|_| Linked::ahead(&link, SOME_ROTATIONS));
        let entries = drives.each_mut().map(|one| one.log(2)[1]);
        let first = entries.iter().map(|entry| transfer_of(entry).start).min();
        // Unless the host was late by a second, both were announced before either began.
        if entries.iter().all(|entry| Some(entry.moved) < first) {
            break (entries, first.unwrap());
        }
    };
    let mut model = Link::new(RATE);
    let ids = entries.map(|entry| model.begin(Time::ZERO, transfer_of(&entry)));
    for (entry, id) in entries.iter().zip(ids) {
        assert_eq!(entry.due, model.due(id));
        assert!(entry.handed_over >= entry.due);
    }
    let last = entries[0].due.max(entries[1].due);
    let both = RATE.period_of(Bytes(2 * MANY_SECTORS.bytes().get()));
    assert!(last >= first + both.unwrap());
}

#[test]
fn a_drive_on_a_slow_link_is_busy_until_the_link_has_moved_its_data() {
    let rate = BytesPerSecond(4_000_000);
    let mut one = Linked::new(&Arc::new(EmulatedLink::new(rate)), None);
    let requests = [
        (Op::Read, 0),
        (Op::Write, 500_000),
        (Op::Read, 1_000_000),
        (Op::Write, 0),
    ];
    for (op, start) in requests {
        one.submit(op, Sector(start), MANY_SECTORS);
    }
    let mut free = Time::ZERO;
    for entry in one.log(requests.len()) {
        let mut model = Link::new(rate);
        let id = model.begin(Time::ZERO, transfer_of(&entry));
        assert_eq!(entry.due, model.due(id), "{entry:?}");
        assert!(entry.due > entry.service.completed, "{entry:?}");
        assert_eq!(entry.service.begun, entry.issued.max(free));
        free = entry.due;
    }
}

#[test]
fn retries_come_after_the_transfer_and_leave_the_link_to_others() {
    let rate = BytesPerSecond(1_000_000);
    let link = Arc::new(EmulatedLink::new(rate));
    let mut one = Linked::new(&link, None);
    one.control.inject(retries(10));
    one.submit(Op::Read, Sector(0), MANY_SECTORS);
    let entry = one.log(1)[0];
    let mut model = Link::new(rate);
    let id = model.begin(Time::ZERO, transfer_of(&entry));
    assert_eq!(entry.due, model.due(id) + atlas().rotation() * 10);
}

#[test]
fn a_drive_that_goes_leaves_the_link_to_others() {
    for go in [DriveControl::tear_off, DriveControl::power_cut] {
        let link = Arc::new(EmulatedLink::new(RATE));
        let mut one = Linked::ahead(&link, MANY_ROTATIONS);
        let service = loop {
            assert!(one.drive.shared.finished.wait(None));
            if let [_, long] = &lock(&one.drive.shared.state).finished[..] {
                break long.service;
            }
        };
        // Beside the long request, for another drive: as much as the link moves in that time.
        let long = transfer(service, Op::Read, MANY_SECTORS);
        let length = u128::from((long.end - long.start).get());
        let bytes = length * u128::from(RATE.get()) / 1_000_000_000;
        let other = Transfer {
            bytes: Bytes(bytes as u64),
            ..long
        };
        let other_ends = || {
            let mut model = lock(&link.0).clone();
            let id = model.begin(clock::now(), other);
            model.due(id)
        };
        assert!(other_ends() > other.end);
        go(&one.control);
        assert_eq!(other_ends(), other.end);
        assert!(one.ends(2).iter().all(|done| done.result.is_err()));
    }
}
