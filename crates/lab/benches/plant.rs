//! Speed of a plant: the cost of simulating a drive.

#![allow(missing_docs, reason = "criterion's macros document nothing")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drives::plant::spec::BUILT_IN;
use drives::plant::{Plant, PlantSpec};
use sched::request::Op;
use sched::units::{Sector, SectorCount};

const REQUESTS: u64 = 1_000;

fn serve(criterion: &mut Criterion) {
    for name in BUILT_IN {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(REQUESTS));
        for (what, count) in [("4 KiB", 8), ("64 KiB", 128), ("1 MiB", 2_048)] {
            let mut plant = Plant::new(PlantSpec::built_in(name).expect("built in"), 1);
            let sectors = plant.sectors().get() - count;
            let mut next = 0_u64;
            group.bench_function(what, |bencher| {
                bencher.iter(|| {
                    for i in 0..REQUESTS {
                        next = next.wrapping_add(0x9E37_79B9_7F4A_7C15);
                        let op = if i % 2 == 0 { Op::Read } else { Op::Write };
                        let start = Sector(((next >> 20) % sectors) & !7);
                        plant.service(plant.busy_until(), op, start, SectorCount(count));
                    }
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, serve);
criterion_main!(benches);
