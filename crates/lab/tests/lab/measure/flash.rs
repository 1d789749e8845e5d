//! A drive without platters.

use measure::facts::TURNAROUND;
use sched::request::Op;
use testkit::Random;

use super::*;

/// A drive without positions: some channels, each an overhead and a rate; now and then a write waits for an erasure.
struct Flash {
    channels: Vec<Time>,
    random: Random,
    now: Time,
}

impl Flash {
    const OVERHEAD_NS: u64 = 80_000;
    const BYTES_PER_SECOND: u64 = 400_000_000;
    const ERASURE_NS: u64 = 9_000_000;

    fn serve(&mut self, requests: &[measure::Request], depth: u32) -> Vec<measure::Sample> {
        let mut samples: Vec<measure::Sample> = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let place = index.checked_sub(depth as usize);
            let free = place.map_or(self.now, |index| samples[index].completed);
            let issued = free.max(request.not_before);
            let channel = request.start.get() as usize / 256 % self.channels.len();
            let transfer = request.count.get() * 512 * 1_000_000_000 / Self::BYTES_PER_SECOND;
            let erasure = match request.op {
                Op::Write if self.random.below(200) == 0 => Self::ERASURE_NS,
                _ => 0,
            };
            let begin = issued.max(self.channels[channel]);
            let completed = begin + Nanos(Self::OVERHEAD_NS + transfer + erasure);
            self.channels[channel] = completed;
            samples.push(measure::Sample {
                issued,
                completed,
                alone: true,
                error: None,
            });
        }
        let last = samples.iter().map(|sample| sample.completed).max();
        self.now = last.unwrap_or(self.now);
        samples
    }
}

/// Measures a drive of so many channels.
fn measured(channels: usize, has_writes: bool, seed: u64) -> Measured {
    let mut drive = Flash {
        channels: vec![Time(0); channels],
        random: Random(seed),
        now: Time(0),
    };
    let capacity = SectorCount(1 << 26);
    let facts = measure::Facts {
        name: "flash".to_owned(),
        capacity,
        unit: SectorCount(8),
        physical: SectorCount(8),
        request_max: SectorCount(1 << 14),
        writable: has_writes
            .then_some(Sector(0)..Sector(capacity.get()))
            .into_iter()
            .collect(),
        is_file: false,
        is_device: true,
        turnaround: TURNAROUND,
    };
    let mut measurement = measure::Measurement::new(facts, Effort::Quick, seed);
    let mut samples = Vec::new();
    while let measure::Step::Serve { requests, depth } = measurement.step(&samples) {
        samples = drive.serve(&requests, depth);
    }
    let result = measurement.result().expect("it is finished");
    let measured = result.expect("it can be measured");
    println!(
        "{} {:#?}",
        measured.profile.to_toml(),
        measured.findings.notes
    );
    measured
}

#[test]
fn flash_gets_an_overhead_and_a_rate() {
    let seed = seed("flash_gets_an_overhead_and_a_rate", None);
    let measured = measured(8, true, seed);
    assert_eq!(measured.findings.method, Method::Flat);
    let spec = measured.profile.spec();
    // In a queue, large requests for one channel wait for each other.
    assert_eq!(spec.outstanding, 1);
    assert!(
        measured.findings.depths[3].reads_per_second
            > 3.0 * measured.findings.depths[0].reads_per_second
    );
    let flat = spec.flat.expect("it has no rotation");
    assert!(flat.write_overhead_us >= Flash::ERASURE_NS / 1_000);
    assert!(measured.findings.validation.requests >= 10_000);
}
