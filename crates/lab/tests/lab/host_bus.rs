//! The host bus: its times, its limits, and runs that repeat.

use lab::host_bus::bus::{Masters, run};
use lab::host_bus::periodic::{Periodic, run_periodic};
use lab::host_bus::{
    Adapter, Arbitration, Direction, HostBus, Measured, Mechanics, Packets, Places, Scsi, Strings,
    StringsError, Transaction,
};
use lab::sweep::Sweep;
use lab::thesis::figures::{Figure, Options, figure};
use lab::thesis::{Source, Times};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};
use testkit::{Random, seed};

const MIB: f64 = 1_048_576.0;

fn adapter<'a>(bus: &'a HostBus, name: &str) -> &'a Adapter {
    bus.adapter(name).expect("the bus of the thesis has it")
}

fn cheetahs(bus: &HostBus, drives: Vec<u64>, op: Op, seed: u64) -> Strings<'_> {
    Strings {
        adapter: adapter(bus, "ncr53c875"),
        scsi: Scsi::ULTRA_WIDE,
        drive: Mechanics::CHEETAH,
        drives,
        op,
        places: Places::Random,
        block: Bytes::from_mib(1),
        offset: 0,
        requests: 5,
        seed,
    }
}

fn measured(bus: &HostBus, strings: &Strings<'_>) -> Measured {
    strings.run(bus).expect("the strings are possible")
}

#[test]
fn transactions_take_the_printed_times() {
    use Direction::{FromMemory, ToMemory};
    let bus = HostBus::of_thesis();
    let time = |name, direction, size, offset| {
        let transaction = Transaction {
            direction,
            size: Bytes(size),
            offset,
        };
        bus.time(adapter(&bus, name), transaction).get()
    };
    let printed = [
        ("ncr53c810a", ToMemory, 64, 8, 570),
        ("ncr53c810a", FromMemory, 64, 8, 1_800),
        ("ncr53c810a", FromMemory, 64, 0, 870),
        ("ncr53c875", FromMemory, 512, 0, 4_260),
        ("ncr53c875", ToMemory, 512, 0, 3_920),
        ("oppo", ToMemory, 64, 0, 560),
        ("oppo", FromMemory, 256, 0, 14_700 / 6),
    ];
    for (name, direction, size, offset, ns) in printed {
        assert_eq!(
            time(name, direction, size, offset),
            ns,
            "{name}: {size} bytes {direction:?} at {offset}"
        );
    }
    // Within a cache line nothing is divided, and behind one a part more is.
    assert_eq!(time("ncr53c810a", FromMemory, 24, 8), 520);
    assert_eq!(time("ncr53c810a", FromMemory, 28, 8), 520 + 125 + 370);
}

/// Two adapters that ask at given times.
struct Asking<'a> {
    adapter: &'a Adapter,
    asks: [Vec<u64>; 2],
    order: Vec<usize>,
}

impl Masters for Asking<'_> {
    fn count(&self) -> usize {
        2
    }

    fn ready(&self, master: usize) -> Option<Time> {
        self.asks[master].first().copied().map(Time)
    }

    fn adapter(&self, _master: usize) -> &Adapter {
        self.adapter
    }

    fn transaction(&self, _master: usize) -> Transaction {
        Transaction {
            direction: Direction::ToMemory,
            size: Bytes(512),
            offset: 0,
        }
    }

    fn done(&mut self, master: usize, _began: Time, _ended: Time) {
        self.asks[master].remove(0);
        self.order.push(master);
    }
}

#[test]
fn waiting_adapters_are_served_by_arbitration() {
    for (arbitration, order) in [
        (Arbitration::FirstCome, [0, 0, 1, 0]),
        (Arbitration::RoundRobin, [0, 1, 0, 0]),
    ] {
        let mut bus = HostBus::of_thesis();
        bus.arbitration = arbitration;
        let mut asking = Asking {
            adapter: adapter(&bus, "ncr53c875"),
            asks: [vec![0, 1, 2], vec![2]],
            order: Vec::new(),
        };
        let account = run(&bus, &mut asking);
        assert_eq!(asking.order, order, "{arbitration:?}");
        assert_eq!(account.ended, Time(4 * 3_920));
        assert_eq!(account.conflicts, 2);
    }
}

#[test]
fn drive_alone_is_as_fast_as_its_tracks() {
    let bus = HostBus::of_thesis();
    let seed = seed("drive", None);
    for op in [Op::Read, Op::Write] {
        let measured = measured(&bus, &cheetahs(&bus, vec![1], op, seed));
        // 2,048 sectors, and 10 or 11 switches, of which 1 or 2 go to the next cylinder.
        let sector = 5_980_265.0 / 195.0 / 1e6;
        let least = (2_048.0 + 9.0 * 22.0 + 37.0) * sector + 0.607;
        let most = (2_048.0 + 9.0 * 22.0 + 2.0 * 37.0) * sector + 0.608 + 5.981;
        for time in measured.sorted() {
            let ms = time.as_millis_f64();
            // The last burst crosses the string when its last sector is there; a write may lose rotations.
            let after = if op == Op::Read {
                195.0 * 0.0128 + 0.1
            } else {
                5.981
            };
            assert!(
                least <= ms && ms <= most + after,
                "{op:?}: {ms} ms is not within {least} and {most} + {after}"
            );
        }
    }
}

#[test]
fn nothing_exceeds_the_bus_the_strings_or_memory() {
    let random = &mut Random(seed("strings", None));
    for _ in 0..24 {
        let mut drives: Vec<u64> = (0..random.range(1, 4)).map(|_| random.below(4)).collect();
        drives[0] += 1;
        let op = [Op::Read, Op::Write][random.below(2) as usize];
        let places = [Places::Random, Places::Sequential][random.below(2) as usize];
        let limit = BytesPerSecond(random.range(20, 100) << 20);
        let mut bus = HostBus::of_thesis();
        bus.memory_read = random.chance(50).then_some(limit);
        if random.chance(50) {
            bus.arbitration = Arbitration::RoundRobin;
        }
        let busy = drives.iter().filter(|drives| **drives > 0).count();
        let strings = Strings {
            places,
            requests: 2,
            ..cheetahs(&bus, drives, op, random.next())
        };
        let measured = measured(&bus, &strings);
        let account = measured.bus;
        assert!(account.busy <= account.ended - Time::ZERO);
        let rate = account.bytes_per_second();
        assert!(rate <= bus.rate_max().get() as f64, "{rate} over the bus");
        assert!(rate <= busy as f64 * 40e6, "{rate} over {busy} strings");
        if bus.memory_read.is_some() && op == Op::Write {
            assert!(rate <= limit.get() as f64, "{rate} over {limit:?}");
        }
        let served = measured.times.iter().map(Vec::len);
        let (least, most) = (served.clone().min(), served.max());
        assert!(
            least >= Some(2) || most == Some(16),
            "{least:?} to {most:?}"
        );
        assert_eq!(strings.run(&bus), Ok(measured), "the same again");
    }
}

#[test]
fn packets_cross_whole_and_twice() {
    let bus = HostBus::of_thesis();
    for (from, to) in [("oppo", "ncr53c810a"), ("ncr53c875", "oppo")] {
        for (size, buffers) in [(1, 1), (48, 2), (336, 7), (3_072, 1)] {
            let packets = Packets {
                from: adapter(&bus, from),
                to: adapter(&bus, to),
                size: Bytes(size),
                number: 10,
                buffers,
            };
            let account = packets.send(&bus);
            assert_eq!(account.bytes, Bytes(2 * 10 * size), "{from} to {to}");
            assert_eq!(account.busy, account.ended - Time::ZERO, "nothing is idle");
        }
    }
    // 64 bytes in 560 ns to memory and in 870 ns from it.
    let packets = Packets {
        from: adapter(&bus, "oppo"),
        to: adapter(&bus, "ncr53c810a"),
        size: Bytes(64),
        number: 1_000,
        buffers: 8,
    };
    let rate = packets.send(&bus).bytes_per_second() / 2.0 / MIB;
    assert!((rate - 64.0 / 1_430e-9 / MIB).abs() < 0.01, "{rate} MB/s");
}

#[test]
fn adapters_that_never_meet_have_no_conflicts() {
    let bus = HostBus::of_thesis();
    let periodic = |first| Periodic {
        adapter: adapter(&bus, "ncr53c875"),
        direction: Direction::FromMemory,
        first: Time(first),
        period: Nanos(15_400),
        times: 100,
    };
    let run = |starts: &[u64]| {
        let mut all: Vec<Periodic<'_>> = starts.iter().map(|first| periodic(*first)).collect();
        run_periodic(&bus, &mut all)
    };
    assert_eq!(run(&[0, 4_260, 8_520]).conflicts, 0);
    assert_eq!(run(&[0, 4_259, 8_520]).conflicts, 100);
    assert_eq!(run(&[]).transactions, 0);
}

#[test]
fn figure_is_the_same_for_any_number_of_threads() {
    let options = Options {
        times: Times::Printed,
        source: Source::Day,
        seed: 1,
    };
    let page = |threads| {
        let sweep = Sweep {
            threads,
            folder: None,
            progress: &|_, _| {},
        };
        figure(Figure::Packets, &options, &sweep).expect("the figure is drawn")
    };
    assert_eq!(page(1), page(3));
}

const BUS: &str = r#"name = "test"
word_ns = 30
idle_ns = 0
arbitration = "first-come"
line_bytes = 32
reconnect_ns = 125
memory_read_bytes_per_second = 75_000_000

[[adapter]]
name = "one"
fifo_bytes = 64
burst_bytes = 64
to_memory = [{ bytes = 0, ns = 90 }, { bytes = 64, ns = 570 }]
from_memory = [{ bytes = 0, ns = 340 }, { bytes = 64, ns = 870 }]
"#;

fn bus_is_refused(from: &str, to: &str, place: &str, remedy: &str) {
    assert!(BUS.contains(from), "{from}");
    let error = HostBus::parse(&BUS.replacen(from, to, 1)).expect_err(to);
    let error = error.to_string();
    assert!(error.contains(place), "{to}: {error}");
    assert!(error.contains(remedy), "{to}: {error}");
}

#[test]
fn impossible_buses_are_refused_with_line_and_remedy() {
    HostBus::parse(BUS).expect("it is possible as it is");
    let adapter = &BUS[BUS.find("[[adapter]]").expect("it has one")..];
    let second = format!("{BUS}\n{adapter}");
    let one = |key: &str| format!("line 10: adapter `one`: `{key}`");
    let (fifo, burst) = (one("fifo_bytes"), one("burst_bytes"));
    let rate = "line 7: `memory_read_bytes_per_second`";
    for (from, to, place, remedy) in [
        (
            "word_ns = 30",
            "word_ns = 0",
            "line 2: `word_ns`",
            "give 30",
        ),
        (
            "line_bytes = 32",
            "line_bytes = 6",
            "line 5: `line_bytes`",
            "multiple of 4",
        ),
        ("75_000_000", "0", rate, "leave the key out"),
        (
            "fifo_bytes = 64",
            "fifo_bytes = 32",
            &fifo,
            "enlarge the FIFO",
        ),
        (
            "burst_bytes = 64",
            "burst_bytes = 0",
            &burst,
            "multiple of 4",
        ),
        (
            "burst_bytes = 64",
            "burst_bytes = 128",
            &burst,
            "add a point",
        ),
        (
            BUS,
            &second,
            "line 17: adapter `one`: `name`",
            "give it another",
        ),
        ("idle_ns", "idle_us", "line 3", "idle_us"),
    ] {
        bus_is_refused(from, to, place, remedy);
    }
}

#[test]
fn impossible_times_are_refused_with_line_and_remedy() {
    let points = "[{ bytes = 0, ns = 90 }, { bytes = 64, ns = 570 }]";
    let place = "line 10: adapter `one`: `to_memory`";
    for (to, remedy) in [
        ("[{ bytes = 64, ns = 570 }]", "two points"),
        (
            "[{ bytes = 0, ns = 90 }, { bytes = 64, ns = 80 }]",
            "order points",
        ),
        (
            "[{ bytes = 0, ns = 90 }, { bytes = 64, ns = 470 }]",
            "faster than the bus",
        ),
        (
            "[{ bytes = 0, ns = 90 }, { bytes = 63, ns = 570 }]",
            "whole words",
        ),
    ] {
        bus_is_refused(points, to, place, remedy);
    }
}

#[test]
fn impossible_strings_are_refused_with_a_remedy() {
    let bus = HostBus::of_thesis();
    let good = || cheetahs(&bus, vec![1], Op::Read, 1);
    let refused = |strings: Strings<'_>, error: StringsError| {
        assert_eq!(strings.run(&bus), Err(error));
        assert!(error.to_string().contains(": "), "{error}");
    };
    refused(
        Strings {
            drives: vec![0, 0],
            ..good()
        },
        StringsError::NoDrives,
    );
    let stopped = Scsi {
        rate: BytesPerSecond(0),
        ..Scsi::FAST
    };
    refused(
        Strings {
            scsi: stopped,
            ..good()
        },
        StringsError::NoRate,
    );
    refused(
        Strings {
            block: Bytes(700),
            ..good()
        },
        StringsError::Block(700),
    );
    refused(
        Strings {
            block: Bytes(0),
            ..good()
        },
        StringsError::Block(0),
    );
    refused(
        Strings {
            requests: 0,
            ..good()
        },
        StringsError::NoRequests,
    );
    for burst in [0, 283] {
        let drive = Mechanics {
            burst,
            ..Mechanics::CHEETAH
        };
        refused(
            Strings { drive, ..good() },
            StringsError::Segment {
                burst,
                segment: 282,
            },
        );
    }
    let odd = HostBus::parse(&BUS.replace("burst_bytes = 64", "burst_bytes = 24"))
        .expect("it is possible");
    let strings = Strings {
        adapter: adapter(&odd, "one"),
        ..good()
    };
    refused(strings, StringsError::Burst(24));
}
