//! Measures a plant in virtual time, with the same object that measures devices, and compares profiles with it.

use std::ops::Range;

use drives::plant::Plant;
use measure::facts::{Effort, Facts, TURNAROUND};
use measure::machine::{MeasureError, Measured, Measurement, Request, Sample, Step};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::dice::Dice;

/// Disturbances of a drive beside its mechanics.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Disturbances {
    /// The number of late requests in a thousand.
    pub late_permille: u64,
    /// The longest delay of a late request; delays are uniform.
    pub late_max: Nanos,
    /// Every completion is noticed up to this late, evenly, as on a host with other work.
    pub noticed_late_max: Nanos,
    /// Requests that touch these sectors take so much longer.
    pub slow: Vec<(Range<Sector>, Nanos)>,
    /// Before so many of a thousand requests, the drive serves a read of someone else.
    pub others_permille: u64,
    /// Requests that begin under this head take so much longer.
    pub slow_head: Option<(u64, Nanos)>,
}

/// A plant with disturbances, and its clock.
pub struct MeasuredPlant {
    plant: Plant,
    disturbances: Disturbances,
    dice: Dice,
    now: Time,
}

/// The result of a measurement in virtual time.
pub struct Outcome {
    /// The profile and the evidence.
    pub measured: Result<Measured, MeasureError>,
    /// The time that the drive took.
    pub took: Nanos,
    /// Number of requests.
    pub requests: u64,
}

impl MeasuredPlant {
    /// The plant, at time zero. `seed` decides which requests are late.
    #[must_use]
    pub fn new(plant: Plant, disturbances: Disturbances, seed: u64) -> Self {
        Self {
            plant,
            disturbances,
            dice: Dice(Xoshiro256PlusPlus::seed_from_u64(seed)),
            now: Time::ZERO,
        }
    }

    /// The facts for a measuring program: the capacity and the sizes of sectors. It may write everywhere.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let spec = self.plant.spec();
        let capacity = self.plant.sectors();
        Facts {
            name: spec.name().to_owned(),
            capacity,
            unit: SectorCount(1),
            physical: SectorCount(spec.physical_sectors()),
            request_max: SectorCount(1 << 15),
            writable: std::iter::once(Sector(0)..Sector(capacity.get())).collect(),
            is_file: false,
            is_device: true,
            turnaround: TURNAROUND,
        }
    }

    /// Serves a request.
    pub fn serve(&mut self, request: &Request, issued: Time) -> Sample {
        let Request {
            op, start, count, ..
        } = *request;
        let others = self.disturbances.others_permille;
        let is_after_others = others > 0 && self.dice.below(1_000) < others;
        let issued = if is_after_others {
            let elsewhere = Sector(self.dice.below(self.plant.sectors().get() - 1));
            let other = self
                .plant
                .service(issued, Op::Read, elsewhere, SectorCount(1));
            other.completed
        } else {
            issued
        };
        let service = self.plant.service(issued, op, start, count);
        let end = Sector(start.get() + count.get());
        let touched = |slow: &&(Range<Sector>, Nanos)| slow.0.start < end && start < slow.0.end;
        let slow = self.disturbances.slow.iter().filter(touched);
        let mut completed = service.completed + slow.map(|slow| slow.1).sum();
        if let Some((head, longer)) = self.disturbances.slow_head
            && self.plant.locate(start).head == head
        {
            completed += longer;
        }
        if self.dice.below(1_000) < self.disturbances.late_permille {
            completed += Nanos(self.dice.below(self.disturbances.late_max.get().max(1)));
        }
        self.plant.busy_at_least_until(completed);
        let noticed_late = self
            .dice
            .below(self.disturbances.noticed_late_max.get() + 1);
        completed += Nanos(noticed_late);
        Sample {
            issued,
            completed,
            alone: !is_after_others,
            error: None,
        }
    }

    /// Measures the drive.
    pub fn measure(&mut self, facts: Facts, effort: Effort, seed: u64) -> Outcome {
        let mut measurement = Measurement::new(facts, effort, seed);
        let begin = self.now;
        let mut requests = 0;
        let mut samples = Vec::new();
        while let Step::Serve {
            requests: wanted,
            depth,
        } = measurement.step(&samples)
        {
            requests += wanted.len() as u64;
            samples = self.batch(&wanted, depth);
        }
        Outcome {
            measured: measurement
                .result()
                .expect("a measurement that is finished has a result"),
            took: self.now.saturating_since(begin),
            requests,
        }
    }

    /// Serves requests in order, `depth` of them on the drive at a time.
    fn batch(&mut self, requests: &[Request], depth: u32) -> Vec<Sample> {
        let mut samples: Vec<Sample> = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let place = index.checked_sub(depth as usize);
            let free = place.map_or(self.now, |index| samples[index].completed);
            let sample = self.serve(request, free.max(request.not_before));
            samples.push(sample);
        }
        let last = samples.iter().map(|sample| sample.completed).max();
        self.now = last.unwrap_or(self.now);
        samples
    }

    /// Compares a profile with the drive on `count` random requests: half of them small, the others blocks of 64 KiB
    /// to 1 MiB; reads and writes, after waits of up to 20 ms.
    pub fn compare(&mut self, profile: &DriveProfile, count: u64) -> Compared {
        let predictor = Predictor::new(profile);
        let sectors = self.plant.sectors().get();
        let align = self.plant.spec().physical_sectors();
        let mut compared = Compared::default();
        let (mut predicted_sum, mut actual_sum) = (0, 0);
        let mut head = None;
        for _ in 0..count {
            let size = match self.dice.below(2) {
                0 => 8 << self.dice.below(5),
                _ => 128 << self.dice.below(5),
            };
            let start = self.dice.below((sectors - size) / align) * align;
            let request = Request {
                op: [Op::Read, Op::Write][usize::from(self.dice.below(2) == 0)],
                start: Sector(start),
                count: SectorCount(size),
                not_before: self.now + Nanos(self.dice.below(20_000_000)),
            };
            let sample = self.serve(&request, request.not_before);
            let predicted = predictor.predict(head, request.op, request.start, request.count);
            let excess = sample.took().saturating_sub(predicted);
            compared.longer += u64::from(!excess.is_zero());
            compared.excess_max = compared.excess_max.max(excess);
            predicted_sum += predicted.get();
            actual_sum += sample.took().get();
            self.now = sample.completed;
            head = Some(Sector(start + size - 1));
        }
        compared.predicted_over_actual = predicted_sum as f64 / actual_sum as f64;
        let whole = Sector(0)..Sector(sectors);
        compared.admitted = [256, 2_048].map(|count| {
            let worst = [Op::Read, Op::Write]
                .map(|op| predictor.worst_case(whole.clone(), op, SectorCount(count)));
            1e9 / worst[0].max(worst[1]).get() as f64
        });
        compared
    }
}

/// A profile beside its drive.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Compared {
    /// Requests that took longer than predicted.
    pub longer: u64,
    /// The most by which one did.
    pub excess_max: Nanos,
    /// The sum of the predictions over that of the times.
    pub predicted_over_actual: f64,
    /// Blocks of 128 KiB and of 1 MiB in a second, by their worst cases anywhere.
    pub admitted: [f64; 2],
}
